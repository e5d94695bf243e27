//! Go's syntax of regular expressions (RE2), translated into that of the regex crate.
//!
//! The same family, but in Go `\d`, `\w`, `\s` and `\b` are about ASCII, and a class knows no operators and no
//! classes within. A brace that counts nothing is a brace, and what is repeated is not repeated again.

use super::{PATTERN_BYTES_MAX, PatternError};

/// The largest count of a repetition.
const REPEATED_MAX: u32 = 1000;

/// The names of classes in classes, as in `[[:alpha:]]`.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// The letters of escapes that stand for classes.
const CLASSES: [char; 8] = ['d', 'D', 'w', 'W', 's', 'S', 'p', 'P'];

/// Translates an expression of Go's into the syntax of the regex crate; an error where Go would refuse it.
pub(crate) fn translate(text: &str) -> Result<String, PatternError> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err(PatternError::TooLong);
    }
    let mut translation = Translation {
        rest: text,
        made: String::with_capacity(text.len() + 16),
        is_repeated: false,
        left_at_names_end: text.rfind(":]").map_or(text.len(), |at| text.len() - at),
    };
    while let (text, Some(c)) = (translation.rest, translation.next()) {
        translation.item(c, text)?;
    }
    Ok(translation.made)
}

struct Translation<'t> {
    rest: &'t str,
    made: String,
    /// The last part of the translation is a repetition.
    is_repeated: bool,
    /// The bytes of the text from its last `:]` on.
    left_at_names_end: usize,
}

impl<'t> Translation<'t> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Skips the text if it comes next, and returns whether it did.
    fn takes(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Translates an item outside of classes, which begins with this character and is the beginning of `text`.
    fn item(&mut self, c: char, text: &'t str) -> Result<(), PatternError> {
        let was_repeated = std::mem::take(&mut self.is_repeated);
        match c {
            '\\' if self.takes("Q") => self.literal(),
            '\\' => return self.escape(false),
            '[' => return self.class(),
            '(' if self.rest.starts_with('?') => {
                let flags = self.rest[1..].bytes();
                let mut flags = flags.take_while(|b| b.is_ascii_alphabetic() || *b == b'-');
                if flags.any(|flag| b"xuR".contains(&flag)) {
                    return Err(invalid("a flag that there is not"));
                }
                self.made.push(c);
            }
            '*' | '+' | '?' => return self.repetition(was_repeated, c.encode_utf8(&mut [0; 4])),
            '{' => match count(text) {
                Some((written, most, rest)) => {
                    if most > REPEATED_MAX {
                        return Err(invalid("a count that is too large"));
                    }
                    self.rest = rest;
                    return self.repetition(was_repeated, written);
                }
                None => self.made.push_str("\\{"),
            },
            _ => self.made.push(c),
        }
        Ok(())
    }

    fn repetition(&mut self, was_repeated: bool, written: &str) -> Result<(), PatternError> {
        if was_repeated {
            return Err(invalid("a repetition of a repetition"));
        }
        self.made.push_str(written);
        if self.takes("?") {
            self.made.push('?');
        }
        self.is_repeated = true;
        Ok(())
    }

    /// Copies the text up to `\E` literally.
    fn literal(&mut self) {
        let (literal, rest) = match self.rest.split_once("\\E") {
            Some(parts) => parts,
            None => (self.rest, ""),
        };
        self.made.push_str(&regex_syntax::escape(literal));
        self.rest = rest;
    }

    fn escape(&mut self, in_class: bool) -> Result<(), PatternError> {
        let Some(escaped) = self.next() else {
            return Err(invalid("a backslash at its end"));
        };
        self.made.push_str(match escaped {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            's' => r"[\t\n\f\r ]",
            'S' => r"[^\t\n\f\r ]",
            'b' if !in_class => r"(?-u:\b)",
            'B' if !in_class => r"(?-u:\B)",
            '<' => "<",
            '>' => ">",
            'u' | 'U' => return Err(invalid("an escape that there is not")),
            '0'..='7' => return self.octal(escaped),
            'p' | 'P' => return self.property(escaped == 'P'),
            other => {
                self.made.extend(['\\', other]);
                // As in `\x{41}`.
                if other == 'x'
                    && let Some((inside, rest)) = between(self.rest, '{', |b| b.is_ascii_hexdigit())
                {
                    self.made.extend(["{", inside, "}"]);
                    self.rest = rest;
                }
                return Ok(());
            }
        });
        Ok(())
    }

    /// A character by up to three octal digits. A digit alone other than zero would be a group that was matched.
    fn octal(&mut self, first: char) -> Result<(), PatternError> {
        let digits = self.rest.bytes().take(2);
        let digits = digits.take_while(|b| (b'0'..=b'7').contains(b)).count();
        if first != '0' && digits == 0 {
            return Err(invalid("a reference to a group, which there is not"));
        }
        let number = format!("{first}{}", &self.rest[..digits]);
        self.rest = &self.rest[digits..];
        let code = u32::from_str_radix(&number, 8).unwrap_or_default();
        self.made.push_str(&format!("\\x{{{code:x}}}"));
        Ok(())
    }

    /// `\pL`, `\p{Lu}`, or `\p{^Lu}` for all others: a category or a script by its name alone.
    fn property(&mut self, is_negated: bool) -> Result<(), PatternError> {
        let is_inside = |b: u8| b.is_ascii_alphabetic() || b"^_".contains(&b);
        let parts = match self.rest.starts_with('{') {
            true => between(self.rest, '{', is_inside),
            false => self.rest.split_at_checked(1),
        };
        let (name, rest) = parts.ok_or_else(|| invalid("a property without an end"))?;
        let (name, is_negated) = match name.strip_prefix('^') {
            Some(name) => (name, !is_negated),
            None => (name, is_negated),
        };
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) || name.contains('^') {
            return Err(invalid("a property that there is not"));
        }
        let sign = if is_negated { 'P' } else { 'p' };
        self.made.push_str(&format!("\\{sign}{{{name}}}"));
        self.rest = rest;
        Ok(())
    }

    /// Translates the rest of a class, behind its opening bracket.
    fn class(&mut self) -> Result<(), PatternError> {
        self.made.push('[');
        if self.takes("^") {
            self.made.push('^');
        }
        let mut is_first = true;
        while let Some(c) = self.next() {
            match c {
                // `[]a]` and `[^]a]` begin with a bracket as a member.
                ']' if !is_first => {
                    self.made.push(c);
                    return Ok(());
                }
                '[' if self.rest.starts_with(':') && self.rest.len() > self.left_at_names_end => {
                    self.named()?;
                }
                '\\' if self.rest.starts_with(CLASSES) => self.escape(true)?,
                _ => self.range(c)?,
            }
            is_first = false;
        }
        Ok(())
    }

    /// A member, or the range that begins with it. Behind a class within the class, a `-` is a member itself.
    fn range(&mut self, first: char) -> Result<(), PatternError> {
        self.member(first)?;
        if self.rest.starts_with("-]") || !self.takes("-") {
            return Ok(());
        }
        self.made.push('-');
        let last = self
            .next()
            .ok_or_else(|| invalid("a range without an end"))?;
        self.member(last)
    }

    fn member(&mut self, c: char) -> Result<(), PatternError> {
        match c {
            '\\' if self.rest.starts_with(CLASSES) => {
                return Err(invalid("a range that ends in a class"));
            }
            '\\' => return self.escape(true),
            '[' | ']' | '&' | '~' | '-' | '^' => self.made.extend(['\\', c]),
            _ => self.made.push(c),
        }
        Ok(())
    }

    /// `[:alpha:]`, whose bracket does not close the class. No other class begins with a bracket and a colon if the rest has
    /// a colon and a bracket.
    fn named(&mut self) -> Result<(), PatternError> {
        let is_inside = |b: u8| b.is_ascii_alphabetic() || b == b'^';
        let parts = between(self.rest, ':', is_inside);
        let is_known = |name: &str| NAMED.contains(&name.strip_prefix('^').unwrap_or(name));
        let Some((name, rest)) = parts.filter(|(name, _)| is_known(name)) else {
            return Err(invalid("a class that there is not"));
        };
        self.made.push_str(&format!("[:{name}:]"));
        self.rest = rest;
        Ok(())
    }
}

fn invalid(what: &str) -> PatternError {
    PatternError::Syntax(what.to_owned())
}

/// Returns what stands between `{` and `}`, or `:` and `:]`, and what follows. `None` where anything else stands there. Reads no
/// further than that, so that thousands of openings cost no more than their text.
fn between(text: &str, opening: char, is_inside: impl Fn(u8) -> bool) -> Option<(&str, &str)> {
    let text = text.strip_prefix(opening)?;
    let length = text.bytes().take_while(|b| is_inside(*b)).count();
    let closing = if opening == ':' { ":]" } else { "}" };
    let rest = text[length..].strip_prefix(closing)?;
    Some((&text[..length], rest))
}

/// Reads `{2}`, `{2,}` or `{2,3}`: its text, the larger count and what follows. `None` where it counts nothing.
fn count(text: &str) -> Option<(&str, u32, &str)> {
    let (inside, rest) = between(text, '{', |b| b.is_ascii_digit() || b == b',')?;
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    if least.is_empty() || most.contains(',') {
        return None;
    }
    // Too many digits are too many times.
    let parsed = |text: &str| match text {
        "" => 0,
        text => text.parse().unwrap_or(u32::MAX),
    };
    let most = parsed(least).max(parsed(most));
    Some((&text[..text.len() - rest.len()], most, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{BoundedRegex, CompileError};

    /// Compiles without a limit of steps.
    fn free(text: &str) -> Result<BoundedRegex, CompileError<()>> {
        BoundedRegex::compile(text, |_| Ok(()))
    }

    #[test]
    fn expressions_match_as_in_go() {
        for (expression, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^\w+$", "é", false),
            (r"^[\w.-]+$", "a.b-c", true),
            (r"^[^\s]+$", "a b", false),
            (r"^[]a]+$", "]a", true),
            (r"^[^]a]+$", "b", true),
            (r"^[[a]+$", "[a", true),
            (r"^[a&&b]+$", "a&", true),
            (r"^[[:alpha:]_]+$", "ab_", true),
            (r"^[+--]+$", "+,-", true),
            (r"^[--9]$", "5", true),
            (r"^[\--9]$", "5", true),
            (r"^[\w--9]$", "/", true),
            (r"^[\pL-]$", "-", true),
            (r"^[a-c^-]$", "^", true),
            (r"^[[:a]$", ":", true),
            (r"^[[:]$", ":", true),
            (r"\bweb\b", "a web b", true),
            (r"^.$", "é", true),
            (r"^\/a\.b$", "/a.b", true),
            (r"(?i)^WEB$", "web", true),
            ("a", "bab", true),
            (r"^{a}${|}", "{a}", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^a{1,2}?$", "aa", true),
            (r"^${x}", "x", false),
            (r"^\Qa.b\E+$", "a.bb", true),
            (r"^\Qa.b", "axb", false),
            (r"^\<a\>$", "<a>", true),
            (r"^a\Bb$", "ab", true),
            (r"^[[:^alpha:]]+$", "12", true),
            (r"^(?i:A)(?P<n>b)(?<m>c)$", "abc", true),
            (r"^a+?$", "aa", true),
            (r"^\p{Lu}\x{41}\pL[\P{Lu}]$", "ÄAäx", true),
            (r"^\p{^Lu}\P{^Lu}[\p{^Lu}]$", "aAb", true),
            (r"^\141\0[\142]\08$", "a\0b\08", true),
            (r"^[\w-.]$", "-", true),
            (r"^[\w]+$", "é", false),
            (r"^[]&&a]+$", "&]", true),
            (r"^[[a:]+$", "[a:", true),
            // Where a word ends, ASCII alone decides.
            (r"\bweb\b", "éwebé", true),
            (r"^é\Bb$", "éb", false),
        ] {
            let regex = free(expression).unwrap_or_else(|error| panic!("{expression}: {error:?}"));
            let found = regex.is_match(text, |_| Ok::<_, ()>(()));
            assert_eq!(found, Ok(matches), "{expression} {text}");
        }
        for expression in [
            "(",
            "(a{1000}){1000}",
            "a{1001}",
            "a{1,99999999999}",
            r"\.{1001}",
            "a++",
            "a**",
            "a+?*",
            "a{2}{3}",
            r"\u0041",
            "a\\",
            "(?x)a",
            "(?i-u:a)",
            "[[:foo:]]",
            "*a",
            r"(a)\1",
            r"\p{Script=Greek}",
            r"\p{lu}",
            r"\p{L",
            r"[+-\d]",
            r"[[: :]]",
            r"[9-0]",
        ] {
            assert!(free(expression).is_err(), "{expression}");
        }
    }

    proptest! {
        #[test]
        fn compiling_any_regex_never_panics(text in r"[\[\]\\^&~:a-cQE{},(?)2é-]{0,12}") {
            let _ = free(&text);
        }
    }
}

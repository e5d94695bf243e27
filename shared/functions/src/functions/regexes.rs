//! Go's regular expressions.
//!
//! The same family, but in Go `\d`, `\w`, `\s` and `\b` are about ASCII, and a class knows no operators and no
//! classes within. A brace that counts nothing is a brace, and what is repeated is not repeated again.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use crate::bounded_regex::{BoundedRegex, CompileError, PATTERN_BYTES_MAX, PatternError};

/// The weight of the compiled expressions that each thread keeps; when there are more, all are forgotten.
const KEPT_MAX: usize = 64;

/// Bytes of an expression that weighs 1.
const LIGHT_BYTES_MAX: usize = 64 * 1024;

/// The weight of a larger one.
const HEAVY: usize = 16;

#[derive(Default)]
struct Kept {
    weight: usize,
    compiled: HashMap<String, Rc<BoundedRegex>>,
}

thread_local! {
    // A filter applies one expression to thousands of objects.
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// Compiles an expression, or finds it compiled. Compiling takes a thousand times as long as a search in a short text, so
/// `charge` takes the steps for it beforehand.
///
/// # Errors
/// The text is no expression of Go's, or `charge` refuses the work.
pub(super) fn compile<E>(
    text: &str,
    charge: impl FnMut(usize) -> Result<(), E>,
) -> Result<Rc<BoundedRegex>, CompileError<E>> {
    if let Some(regex) = KEPT.with_borrow(|kept| kept.compiled.get(text).cloned()) {
        return Ok(regex);
    }
    let translated = translate(text).map_err(CompileError::Invalid)?;
    let regex = Rc::new(BoundedRegex::compile(&translated, charge)?);
    keep(text, &regex);
    Ok(regex)
}

fn keep(text: &str, regex: &Rc<BoundedRegex>) {
    let weight = match regex.bytes() <= LIGHT_BYTES_MAX {
        true => 1,
        false => HEAVY,
    };
    KEPT.with_borrow_mut(|kept| {
        if kept.weight + weight > KEPT_MAX {
            *kept = Kept::default();
        }
        kept.weight += weight;
        kept.compiled.insert(text.to_owned(), Rc::clone(regex));
    });
}

/// The largest count of a repetition.
const REPEATED_MAX: u32 = 1000;

/// The names of classes in classes, as in `[[:alpha:]]`.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Translates an expression of Go's into the syntax of the regex crate; an error where Go would refuse it.
pub(super) fn translate(text: &str) -> Result<String, PatternError> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err(PatternError::TooLong);
    }
    let mut translation = Translation {
        rest: text,
        made: String::with_capacity(text.len() + 16),
        is_repeated: false,
    };
    while let Some(c) = translation.next() {
        translation.item(c)?;
    }
    Ok(translation.made)
}

struct Translation<'t> {
    rest: &'t str,
    made: String,
    /// The last part of the translation is a repetition.
    is_repeated: bool,
}

impl Translation<'_> {
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

    /// Translates an item outside of classes, which begins with this character.
    fn item(&mut self, c: char) -> Result<(), PatternError> {
        let was_repeated = std::mem::take(&mut self.is_repeated);
        match c {
            '\\' if self.takes("Q") => self.literal(),
            '\\' => return self.escape(false),
            '[' => return self.class(),
            '(' if self.rest.starts_with('?') => {
                let flags = self.rest[1..].split([':', ')', '<', '>']).next();
                if flags.is_some_and(|flags| flags.contains(['x', 'u', 'R'])) {
                    return Err(invalid("a flag that there is not"));
                }
                self.made.push(c);
            }
            '*' | '+' | '?' => return self.repetition(was_repeated, c.encode_utf8(&mut [0; 4])),
            '{' => match count(self.rest) {
                Some((inside, most)) => {
                    if most > REPEATED_MAX {
                        return Err(invalid("a count that is too large"));
                    }
                    self.rest = &self.rest[inside.len()..];
                    return self.repetition(was_repeated, &format!("{{{inside}"));
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
            other => {
                self.made.extend(['\\', other]);
                // As in `\p{L}` and `\x{41}`.
                if matches!(other, 'p' | 'P' | 'x')
                    && self.rest.starts_with('{')
                    && let Some((inside, rest)) = self.rest.split_once('}')
                {
                    self.made.extend([inside, "}"]);
                    self.rest = rest;
                }
                return Ok(());
            }
        });
        Ok(())
    }

    /// Translates the rest of a class, behind its opening bracket.
    fn class(&mut self) -> Result<(), PatternError> {
        self.made.push('[');
        if self.takes("^") {
            self.made.push('^');
        }
        let mut members = 0;
        while let Some(c) = self.next() {
            match c {
                // `[]a]` and `[^]a]` begin with a bracket as a member.
                ']' if members > 0 => {
                    self.made.push(c);
                    return Ok(());
                }
                '\\' => self.escape(true)?,
                '[' if self.rest.starts_with(':') => self.named()?,
                '[' | ']' | '&' | '~' => self.made.extend(['\\', c]),
                // The end of a range, which may be a `-` itself.
                '-' if self.made.ends_with('-') => self.made.extend(['\\', c]),
                _ => self.made.push(c),
            }
            members += 1;
        }
        Ok(())
    }

    /// `[:alpha:]`, whose bracket does not close the class.
    fn named(&mut self) -> Result<(), PatternError> {
        let Some((name, rest)) = self.rest[1..].split_once(":]") else {
            self.made.push_str("\\[");
            return Ok(());
        };
        let known = name.strip_prefix('^').unwrap_or(name);
        if !NAMED.contains(&known) {
            return Err(invalid("a class that there is not"));
        }
        self.made.push_str(&format!("[:{name}:]"));
        self.rest = rest;
        Ok(())
    }
}

fn invalid(what: &str) -> PatternError {
    PatternError::Syntax(what.to_owned())
}

/// Reads `2}`, `2,}` or `2,3}`: its text, and the larger count. `None` where it counts nothing.
fn count(text: &str) -> Option<(&str, u32)> {
    let (inside, _) = text.split_once('}')?;
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if least.is_empty() || !is_number(least) || !is_number(most) {
        return None;
    }
    // Too many digits are too many times.
    let parsed = |text: &str| match text {
        "" => 0,
        text => text.parse().unwrap_or(u32::MAX),
    };
    Some((&text[..=inside.len()], parsed(least).max(parsed(most))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compiles without a limit of steps.
    fn free(text: &str) -> Result<Rc<BoundedRegex>, CompileError<()>> {
        compile(text, |_| Ok(()))
    }

    #[test]
    fn an_expression_that_is_kept_is_free() {
        let charged = |text: &str| {
            let mut steps = 0;
            let compiled = compile(text, |charged| {
                steps += charged;
                Ok::<_, ()>(())
            });
            (compiled.is_ok(), steps)
        };
        let (is_ok, steps) = charged("^a[b]c$");
        assert!(is_ok && steps > 20_000, "{steps}");
        assert_eq!(charged("^a[b]c$"), (true, 0));
        let (is_ok, steps) = charged("(");
        assert!(!is_ok && steps > 0, "{steps}");
        assert_eq!(charged("("), (false, steps));
    }

    #[test]
    fn a_thread_keeps_few_expressions_of_which_large_ones_count_more() {
        for number in 0..200 {
            free(&format!("small{number}")).unwrap();
            free(&format!("(?:.{{100}}){{10}}{number}")).unwrap();
            KEPT.with_borrow(|kept| {
                let large = kept.compiled.keys().filter(|text| text.starts_with('('));
                let large = large.count();
                assert!(large <= 4, "{large}");
                assert!(kept.weight <= KEPT_MAX);
                assert_eq!(kept.weight, kept.compiled.len() + 15 * large);
            });
        }
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

//! Go's regular expressions.
//!
//! The same family, but in Go `\d`, `\w`, `\s` and `\b` are about ASCII, and a class knows no
//! operators and no classes within.

use std::{cell::RefCell, collections::HashMap};

use regex::{Regex, RegexBuilder};

/// Compiled expressions that each thread keeps; when there are more, all are forgotten.
const KEPT_MAX: usize = 128;

/// Bytes of one compiled expression; a larger one is an error.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;

thread_local! {
    // A filter applies one expression to thousands of objects.
    static KEPT: RefCell<HashMap<String, Regex>> = RefCell::default();
}

/// Compiles an expression, or finds it compiled.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    if let Some(regex) = KEPT.with_borrow(|kept| kept.get(text).cloned()) {
        return Ok(regex);
    }
    let regex = RegexBuilder::new(&translate(text))
        .size_limit(COMPILED_BYTES_MAX)
        .build()
        .map_err(|error| format!("invalid regular expression: {error}"))?;
    KEPT.with_borrow_mut(|kept| {
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(text.to_owned(), regex.clone());
    });
    Ok(regex)
}

/// The same expression in the words of the regex crate.
pub(super) fn translate(text: &str) -> String {
    let mut translated = String::with_capacity(text.len() + 16);
    let mut characters = text.chars().peekable();
    let mut class = Class::default();
    while let Some(c) = characters.next() {
        if c == '\\' {
            match characters.next() {
                Some(escaped) => push_escape(&mut translated, escaped, class.is_open),
                None => translated.push('\\'),
            }
            class.members += 1;
            continue;
        }
        if !class.is_open {
            if c == '[' {
                class = Class {
                    is_open: true,
                    members: 0,
                };
            }
            translated.push(c);
            continue;
        }
        match c {
            // `[]a]` and `[^]a]` begin with a bracket as a member.
            ']' if class.members > 0 => {
                class.is_open = false;
                translated.push(c);
                continue;
            }
            '^' if class.members == 0 && translated.ends_with('[') => {
                translated.push(c);
                continue;
            }
            '[' if characters.peek() == Some(&':') => {
                translated.push(c);
                // To the end of `[:alpha:]`, whose bracket does not close the class.
                for c in characters.by_ref() {
                    translated.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' | ']' | '&' | '~' => translated.extend(['\\', c]),
            // The end of a range, which may be a `-` itself.
            '-' if translated.ends_with('-') => translated.extend(['\\', c]),
            _ => translated.push(c),
        }
        class.members += 1;
    }
    translated
}

/// Whether a bracket expression is open, and how many members it has so far.
#[derive(Default)]
struct Class {
    is_open: bool,
    members: usize,
}

fn push_escape(translated: &mut String, escaped: char, in_class: bool) {
    translated.push_str(match escaped {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        's' => r"[\t\n\f\r ]",
        'S' => r"[^\t\n\f\r ]",
        'b' if !in_class => r"(?-u:\b)",
        other => {
            translated.extend(['\\', other]);
            return;
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        ] {
            let regex = compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
            assert_eq!(regex.is_match(text), matches, "{expression} {text}");
        }
        assert!(compile("(").is_err());
        assert!(compile("(a{1000}){1000}").is_err());
    }

    proptest! {
        #[test]
        fn it_never_panics(text in r"[\[\]\\^&~:a-c-]{0,12}") {
            let _ = compile(&text);
        }
    }
}

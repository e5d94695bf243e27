//! Letters in upper and lower case as Go has them: each character becomes one character, by Unicode's simple mappings.

use std::{cmp::Ordering, sync::LazyLock};

use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind};

/// The letters and digits of Unicode, in order.
static LETTERS_AND_DIGITS: LazyLock<Vec<ClassUnicodeRange>> = LazyLock::new(|| {
    let class = regex_syntax::parse(r"[\p{L}\p{Nd}]").map(Hir::into_kind);
    match class {
        Ok(HirKind::Class(Class::Unicode(class))) => class.ranges().to_vec(),
        _ => Vec::new(),
    }
});

/// Returns whether a character is a letter or a decimal digit. A letter's mark is neither.
pub(super) fn is_letter_or_digit(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    let at = LETTERS_AND_DIGITS.binary_search_by(|range| match range {
        range if range.end() < c => Ordering::Less,
        range if range.start() > c => Ordering::Greater,
        _ => Ordering::Equal,
    });
    at.is_ok()
}

/// Returns a text in upper case. `ß` stays.
pub(super) fn upper(text: &str) -> String {
    match text.is_ascii() {
        true => text.to_ascii_uppercase(),
        false => text.chars().map(upper_letter).collect(),
    }
}

/// Returns a text in lower case, with `σ` at the end of words too.
pub(super) fn lower(text: &str) -> String {
    match text.is_ascii() {
        true => text.to_ascii_lowercase(),
        false => text.chars().map(lower_letter).collect(),
    }
}

/// Returns whether two texts differ at most in the case of their letters.
pub(super) fn equal_fold(one: &str, other: &str) -> bool {
    match one.is_ascii() && other.is_ascii() {
        true => one.eq_ignore_ascii_case(other),
        false => one.chars().map(folded).eq(other.chars().map(folded)),
    }
}

fn upper_letter(letter: char) -> char {
    let mut upper = letter.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => upper,
        // Letters with an iota below, whose simple mapping has it beside.
        _ => match letter {
            '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
                after(letter, 8)
            }
            '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => after(letter, 9),
            _ => letter,
        },
    }
}

fn lower_letter(letter: char) -> char {
    // Of `İ` it is an i and a dot, of which the simple mapping is the i.
    letter.to_lowercase().next().unwrap_or(letter)
}

/// The letter for all that are equal but for their case.
fn folded(letter: char) -> char {
    match letter {
        // These are no case of another letter.
        'İ' | 'ı' => letter,
        letter => lower_letter(upper_letter(letter)),
    }
}

fn after(letter: char, places: u32) -> char {
    char::from_u32(u32::from(letter) + places).unwrap_or(letter)
}

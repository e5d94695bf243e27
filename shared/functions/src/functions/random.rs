//! `random`: a random text that a regular expression matches.

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Signature, Types};
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind, Repetition};

use super::arguments::string;
use crate::bounded_regex::{self, CompileError, PatternError, go_syntax};

/// Bytes of what is made; more is an error.
const MADE_BYTES_MAX: usize = 4096;

/// The most repetitions beyond the least for `*`, `+` and `{2,}`, which have no upper bound.
const MORE_MAX: u32 = 16;

/// The size from which a class counts as a negated class or as `.`, whose typeable characters are taken.
const CLASS_CHARACTERS_MAX: u64 = 60_000;

pub(super) fn register(table: &mut FunctionTable) {
    let pattern = Signature::of([Types::STRING]);
    table.register("random", pattern.nondeterministic(), random);
}

fn random(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let pattern = string(call, 0)?;
    let made = random_text(&pattern, call)?;
    call.new_string(&made)
}

/// The evaluation in which a random text is made: its random numbers, and its budget.
pub trait Chance {
    /// The evaluation's errors.
    type Error;

    /// Charges steps.
    ///
    /// # Errors
    /// None is left.
    fn charge(&mut self, steps: usize) -> Result<(), Self::Error>;

    /// Returns a random number, of all 64-bit numbers.
    ///
    /// # Errors
    /// There are none where this is evaluated.
    fn draw(&mut self) -> Result<u64, Self::Error>;

    /// Returns the error that the pattern is refused, and why.
    fn refuse(&self, message: String) -> Self::Error;
}

impl Chance for Call<'_> {
    type Error = EvalError;

    fn charge(&mut self, steps: usize) -> Result<(), EvalError> {
        self.charge_steps(steps)
    }

    fn draw(&mut self) -> Result<u64, EvalError> {
        Call::draw(self)
    }

    fn refuse(&self, message: String) -> EvalError {
        self.invalid_value(message)
    }
}

/// Returns a random text that the pattern matches, which is a regular expression of Go.
///
/// # Errors
/// The pattern is none, or what it makes grows beyond 4096 bytes.
pub fn random_text<C: Chance>(pattern: &str, chance: &mut C) -> Result<String, C::Error> {
    if pattern.is_empty() {
        return Err(chance.refuse("the pattern is empty".to_owned()));
    }
    let invalid = |chance: &C, error: PatternError| {
        chance.refuse(format!("invalid regular expression: {error}"))
    };
    let translated = go_syntax::translate(pattern).map_err(|error| invalid(chance, error))?;
    let parsed = bounded_regex::parse(&translated, &mut |steps| chance.charge(steps));
    let parsed = parsed.map_err(|error| match error {
        CompileError::TooCostly(error) => error,
        CompileError::Invalid(error) => invalid(chance, error),
    })?;
    let mut made = String::new();
    make(&parsed, &mut made, chance)?;
    Ok(made)
}

fn make<C: Chance>(expression: &Hir, made: &mut String, call: &mut C) -> Result<(), C::Error> {
    call.charge(1)?;
    match expression.kind() {
        // Where a word or a line begins is left to the rest.
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => made.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(class) => made.push(one_of(class, call)?),
        HirKind::Repetition(repetition) => repeat(repetition, made, call)?,
        HirKind::Capture(capture) => make(&capture.sub, made, call)?,
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| make(part, made, call))?,
        HirKind::Alternation(ways) => {
            let way = below(ways.len() as u64, call)? as usize;
            make(&ways[way], made, call)?;
        }
    }
    if made.len() > MADE_BYTES_MAX {
        let message = format!("the text grows beyond {MADE_BYTES_MAX} bytes");
        return Err(call.refuse(message));
    }
    Ok(())
}

fn repeat<C: Chance>(
    repetition: &Repetition,
    made: &mut String,
    call: &mut C,
) -> Result<(), C::Error> {
    let least = repetition.min;
    let most = repetition.max.unwrap_or(least.saturating_add(MORE_MAX));
    let more = below(u64::from(most.saturating_sub(least)) + 1, call)? as u32;
    (0..least.saturating_add(more)).try_for_each(|_| make(&repetition.sub, made, call))
}

/// Draws a number from 0 to `most - 1`. `most` is not 0.
fn below<C: Chance>(most: u64, call: &mut C) -> Result<u64, C::Error> {
    // The high bits of a product: as good as without remainder for numbers this small.
    Ok(((u128::from(call.draw()?) * u128::from(most)) >> 64) as u64)
}

fn one_of<C: Chance>(class: &Class, call: &mut C) -> Result<char, C::Error> {
    let mut class = match class {
        Class::Unicode(class) => class.clone(),
        Class::Bytes(class) => class.to_unicode_class().unwrap_or_else(ClassUnicode::empty),
    };
    if size(&class) > CLASS_CHARACTERS_MAX {
        let typed = regex_syntax::hir::ClassUnicodeRange::new(' ', '~');
        let mut of_these = class.clone();
        of_these.intersect(&ClassUnicode::new([typed]));
        if size(&of_these) > 0 {
            class = of_these;
        }
    }
    let nothing = |call: &C| call.refuse("nothing matches a class of the pattern".to_owned());
    if size(&class) == 0 {
        return Err(nothing(call));
    }
    let mut at = below(size(&class), call)?;
    for range in class.ranges() {
        let length = range.len() as u64;
        if at < length {
            return (range.start()..=range.end())
                .nth(at as usize)
                .ok_or_else(|| nothing(call));
        }
        at -= length;
    }
    Err(nothing(call))
}

fn size(class: &ClassUnicode) -> u64 {
    class.ranges().iter().map(|range| range.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use anteroom_jmespath::{Budget, Environment, EvalSeed, Expression};
    use proptest::prelude::*;
    use regex::Regex;
    use serde_json::{Value, json};

    use super::*;
    use crate::functions;

    fn made(pattern: &str, seed: &EvalSeed) -> Result<String, String> {
        let environment = Environment::standard()
            .with_functions(functions())
            .with_seed(Some(seed));
        let expression = Expression::parse("random(@)").unwrap();
        match expression.evaluate_json(&json!(pattern), &environment) {
            Ok(Value::String(text)) => Ok(text),
            Ok(other) => panic!("{other}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_random_text_matches_its_pattern_and_differs_between_draws() {
        let seed = EvalSeed::new(0, 3);
        for pattern in [
            "[0-9a-z]{8}",
            "^pod-[a-z0-9]{5,9}$",
            "(a|bc)+x?",
            r"\d{3}-\w+",
            "[^a]{4}",
            ".{3}",
            "[а-я]{2}",
            r"a\.b",
            "(?:x*){2,3}",
            r"[^\x00-\x7f]{4}",
        ] {
            let regex = Regex::new(&format!("^(?:{pattern})$")).unwrap();
            for _ in 0..20 {
                let text = made(pattern, &seed).unwrap();
                assert!(regex.is_match(&text), "{pattern}: {text}");
            }
        }
        // Of nearly all characters, those that are easily typed.
        for pattern in ["[^a]{4}", ".{3}"] {
            let text = made(pattern, &seed).unwrap();
            let is_typed = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            assert!(is_typed, "{pattern}: {text}");
        }
        let all: std::collections::BTreeSet<_> = (0..100)
            .map(|_| made("[0-9a-z]{8}", &seed).unwrap())
            .collect();
        assert_eq!(all.len(), 100);
        seed.go_to(0);
        let again = made("[0-9a-z]{8}", &seed).unwrap();
        seed.go_to(0);
        assert_eq!(made("[0-9a-z]{8}", &seed).unwrap(), again);
    }

    #[test]
    fn a_pattern_that_cannot_be_generated_is_an_error() {
        let seed = EvalSeed::new(0, 3);
        let longest = made("(a{1000}){4}a{96}", &seed).unwrap();
        assert_eq!(longest.len(), MADE_BYTES_MAX);
        for (pattern, says) in [
            ("", "empty"),
            ("(", "invalid regular expression"),
            ("(a{1000}){4}a{97}", "grows beyond 4096 bytes"),
            ("a{1001}", "a count that is too large"),
            ("((a{100}){100}){100}", "grows beyond"),
            (r"[^\x00-\x{10FFFF}]", "nothing matches"),
        ] {
            let error = made(pattern, &seed).unwrap_err();
            assert!(error.contains(says), "{pattern}: {error}");
        }
        let deep = format!("{}a{}", "(".repeat(1000), ")".repeat(1000));
        assert!(made(&deep, &seed).is_err());
    }

    /// Parts that are nearly always left out make a short text of much work.
    #[test]
    fn a_pattern_that_makes_little_is_charged_by_its_work() {
        let rare = format!("{}a{}", "(?:".repeat(12), ")?".repeat(12));
        let pattern = format!("(?:(?:{rare}){{1000}}){{1000}}");
        let seed = EvalSeed::new(0, 3);
        let budget = Budget {
            steps: 100_000,
            ..Budget::default()
        };
        let environment = Environment::standard()
            .with_functions(functions())
            .with_seed(Some(&seed))
            .with_budget(budget);
        let expression = Expression::parse("random(@)").unwrap();
        let made = expression.evaluate_json(&json!(pattern), &environment);
        assert!(matches!(made, Err(EvalError::Budget { .. })), "{made:?}");
    }

    #[test]
    fn without_a_seed_random_is_not_available() {
        let environment = Environment::standard().with_functions(functions());
        let expression = Expression::parse("random('a*')").unwrap();
        let error = expression.evaluate_json(&Value::Null, &environment);
        let message = error.unwrap_err().to_string();
        assert!(
            message.contains("random numbers are not available"),
            "{message}"
        );
    }

    proptest! {
        #[test]
        fn generating_for_any_pattern_never_panics(pattern in r"[a-c\[\](){}^$.*+?|\\0-9,-]{0,16}", seed: u64) {
            let _ = made(&pattern, &EvalSeed::new(0, seed));
        }
    }
}

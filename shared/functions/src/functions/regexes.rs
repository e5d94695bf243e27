//! Compiled regular expressions, kept for the next use.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use crate::bounded_regex::{BoundedRegex, CompileError};

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
    let regex = Rc::new(BoundedRegex::compile(text, charge)?);
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

#[cfg(test)]
mod tests {
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
        assert!(charged("^d[e]f$").0);
        assert_eq!(charged("^a[b]c$"), (true, 0), "beside another one");
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
}

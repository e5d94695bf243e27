//! Pointers of RFC 6901.

use std::fmt;

use crate::{PatchError, size::VALUE_BYTES};

/// A JSON pointer: its decoded steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    /// Empty, or each step after a `/`, with `~1` for a `/` and `~0` for a `~` in it.
    pub(crate) fn parse(text: &str, place: &str) -> Result<Self, PatchError> {
        let Some(steps) = text.strip_prefix('/') else {
            return match text {
                "" => Ok(Self(Vec::new())),
                _ => Err(PatchError::malformed(
                    place,
                    format!("the path `{text}` does not begin with `/`"),
                )),
            };
        };
        Ok(Self(steps.split('/').map(decoded_step).collect()))
    }

    pub(crate) fn steps(&self) -> &[String] {
        &self.0
    }

    /// The work of following the pointer, in bytes of text.
    pub(crate) fn work(&self) -> usize {
        let step = |step: &String| VALUE_BYTES + step.len();
        self.0.iter().map(step).sum()
    }

    /// Returns whether `other` is inside of what this points to.
    pub(crate) fn is_above(&self, other: &Self) -> bool {
        other.0.len() > self.0.len() && other.0.starts_with(&self.0)
    }
}

/// Returns a step of a pointer as the name that it means. Decodes `~1` before `~0`, so that `~01` is `~1`. A `~` before anything else stands for itself.
pub fn decoded_step(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| {
            let step = step.replace('~', "~0").replace('/', "~1");
            write!(f, "/{step}")
        })
    }
}

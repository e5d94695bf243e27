//! Reading answers at the least cost: what is common by two searches, what is not as a whole.

use super::question::Asked;
use crate::{Answer, Expected};

/// The verdict on an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The answer is the expected one.
    Right,
    /// A decision that is not as expected, with an example for people.
    Wrong(String),
    /// No decision.
    Error(String),
}

/// Holds an answer against what was expected.
pub(crate) fn judge(asked: Asked<'_>, body: &[u8]) -> Verdict {
    // Most reviews are admitted; a refusal may be for an error, which only its message tells.
    let admitted = asked.expected == Expected::Allowed
        && holds(body, b"\"allowed\":true")
        && holds(body, asked.uid.as_bytes());
    if admitted {
        return Verdict::Right;
    }
    match Answer::parse(asked.uid, body) {
        Err(kind) => Verdict::Error(kind),
        Ok(Answer::Failed { message }) => {
            // The first line names the object, which differs each time.
            Verdict::Error(
                message
                    .trim()
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .trim()
                    .into(),
            )
        }
        Ok(answer) if answer.is_wrong(asked.expected) => Verdict::Wrong(format!(
            "{}{}: expected {:?}, got {answer:?}: {}",
            asked.host,
            asked.path,
            asked.expected,
            String::from_utf8_lossy(body)
        )),
        Ok(_) => Verdict::Right,
    }
}

/// Returns true if `text` stands in `body`. Answers are short, so that the plain way is the fast one.
fn holds(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}

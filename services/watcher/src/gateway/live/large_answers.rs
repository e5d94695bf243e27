//! The memory that large answers of live reads take.

use std::sync::Arc;

use anteroom_model::FactError;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::limits::busy;
use crate::gateway::calls::CallFault;

/// Answers from this size on are large.
const LARGE_BYTES_MIN: usize = 256 * 1024;

/// Large answers that are in memory at once.
const LARGE_ANSWERS_MAX: usize = 2;

/// The most memory of an answer and its values. A few bytes of JSON are a value of a hundred bytes.
const PARSED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The places of large answers in memory.
pub(super) struct LargeAnswers(Arc<Semaphore>);

/// The place of a large answer, until nobody reads the answer any more.
pub(super) type AnswerPlace = Arc<OwnedSemaphorePermit>;

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_ANSWERS_MAX)))
    }
}

impl LargeAnswers {
    /// Waits for a place for an answer of so many bytes. A smaller answer needs none.
    ///
    /// # Errors
    /// There was no place before the deadline.
    pub(super) async fn place_for(
        &self,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Option<AnswerPlace>, FactError> {
        if bytes < LARGE_BYTES_MIN {
            return Ok(None);
        }
        let place = Arc::clone(&self.0).acquire_owned();
        match tokio::time::timeout_at(deadline, place).await {
            Ok(Ok(place)) => Ok(Some(Arc::new(place))),
            _ => Err(busy(
                "other large live reads take all the memory that they may",
            )),
        }
    }
}

/// Checks that the values of an answer take no more memory than [`PARSED_BYTES_MAX`]. Counts what separates values, so
/// that nothing is parsed for it.
///
/// # Errors
/// [`CallFault::TooLarge`].
pub(super) fn check_values(json: &[u8]) -> Result<(), CallFault> {
    /// About what a value takes with its key.
    const VALUE_BYTES: usize = 100;
    let separators = json
        .iter()
        .filter(|byte| matches!(byte, b',' | b'[' | b'{'));
    match VALUE_BYTES * separators.count() + json.len() <= PARSED_BYTES_MAX {
        true => Ok(()),
        false => Err(CallFault::TooLarge {
            bytes_max: PARSED_BYTES_MAX,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_very_many_values_is_refused_before_it_is_parsed() {
        let list = |elements: usize| format!("[{}]", vec!["1"; elements].join(","));
        assert!(check_values(list(600_000).as_bytes()).is_ok());
        assert!(check_values(list(700_000).as_bytes()).is_err());
        let text = format!("{{\"a\":\"{}\"}}", "b".repeat(8 * 1024 * 1024));
        assert!(check_values(text.as_bytes()).is_ok());
    }

    #[tokio::test]
    async fn few_large_answers_have_a_place_at_once_and_small_ones_need_none() {
        let (answers, soon) = (LargeAnswers::default(), Instant::now());
        let held = [
            answers.place_for(LARGE_BYTES_MIN, soon).await.unwrap(),
            answers.place_for(LARGE_BYTES_MIN, soon).await.unwrap(),
        ];
        assert!(held.iter().all(Option::is_some));
        let error = answers.place_for(LARGE_BYTES_MIN, soon).await.unwrap_err();
        // No default stands in for what nobody has read.
        assert!(!error.class().subject.is_said_by_source(), "{error}");
        assert!(
            answers
                .place_for(LARGE_BYTES_MIN - 1, soon)
                .await
                .unwrap()
                .is_none()
        );
        drop(held);
        assert!(answers.place_for(LARGE_BYTES_MIN, soon).await.is_ok());
    }
}

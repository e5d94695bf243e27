//! The memory that large answers of live reads take.

use std::sync::Arc;

use anteroom_functions::json::parsed_bytes_max;
use anteroom_model::FactError;

use super::{
    limits::ReadClaim,
    memory_turns::{MemoryPart, MemoryTurns},
};
use crate::gateway::calls::CallFault;

/// Answers that take so much memory once they are parsed are large: some 256 KiB of the JSON of usual objects.
const LARGE_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// The most memory of an answer once it is parsed. A few bytes of JSON may be a value of hundreds of bytes.
const PARSED_BYTES_MAX: u64 = 144 * 1024 * 1024;

/// The most memory of all large answers once they are parsed: the largest, and some others.
const ALL_PARSED_BYTES_MAX: u64 = PARSED_BYTES_MAX + 16 * 1024 * 1024;

/// The most text of large answers that wait for memory.
const WAITING_TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The memory of large answers.
pub(super) struct LargeAnswers(MemoryTurns);

/// The memory of a large answer, until nobody reads the answer any more.
pub(super) type AnswerMemory = Arc<MemoryPart>;

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(MemoryTurns::new(
            ALL_PARSED_BYTES_MAX,
            PARSED_BYTES_MAX,
            WAITING_TEXT_BYTES_MAX,
            "large live reads",
        ))
    }
}

impl LargeAnswers {
    /// Waits for memory for an answer of so many bytes of text, which takes `parsed_bytes` once it is parsed. A small
    /// answer needs none.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where there was no memory before the claim's deadline, or too much text waits.
    pub(super) async fn memory_for(
        &self,
        text_bytes: usize,
        parsed_bytes: u64,
        claim: &ReadClaim,
    ) -> Result<Option<AnswerMemory>, FactError> {
        if parsed_bytes < LARGE_BYTES_MIN {
            return Ok(None);
        }
        let memory = self.0.take(text_bytes, parsed_bytes, claim).await?;
        Ok(Some(Arc::new(memory)))
    }
}

/// Returns the memory that an answer takes at most once it is parsed, in bytes.
///
/// # Errors
/// [`CallFault::TooLarge`]: it takes more than an answer may.
pub(super) fn parsed_bytes(json: &[u8]) -> Result<u64, CallFault> {
    match parsed_bytes_max(json) {
        bytes if bytes <= PARSED_BYTES_MAX => Ok(bytes),
        _ => Err(CallFault::TooLarge {
            bytes_max: PARSED_BYTES_MAX as usize,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, time::Duration};

    use anteroom_wire::beneficiary::Beneficiary;
    use futures::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    /// The time that reads have where none runs out of it.
    const GIVEN: Duration = Duration::from_secs(10);

    #[test]
    fn an_answer_of_very_many_values_is_refused_before_it_is_parsed() {
        let list = |elements: usize| format!("[{}]", vec!["1"; elements].join(","));
        assert!(parsed_bytes(list(1_800_000).as_bytes()).is_ok());
        assert!(parsed_bytes(list(1_900_000).as_bytes()).is_err());
        let text = format!("{{\"a\":\"{}\"}}", "b".repeat(8 * 1024 * 1024));
        assert!(parsed_bytes(text.as_bytes()).is_ok());
    }

    /// A claim for policies of a namespace.
    fn claim(namespace: &str, deadline: Instant) -> ReadClaim {
        ReadClaim {
            beneficiary: Beneficiary::Policies(namespace.to_owned()),
            deadline,
        }
    }

    /// Half of the memory of all large answers. A beneficiary that has it gets no more.
    const HALF: u64 = ALL_PARSED_BYTES_MAX / 2;

    const TEXT_BYTES: usize = 4 * 1024 * 1024;

    /// The most of [`WAITING_TEXT_BYTES_MAX`] for one beneficiary.
    const BENEFICIARY_WAITING_TEXT_BYTES_MAX: u64 = WAITING_TEXT_BYTES_MAX / 2;

    #[tokio::test(start_paused = true)]
    async fn large_answers_have_so_much_memory_together_and_small_ones_need_none() {
        let (answers, soon) = (LargeAnswers::default(), Instant::now());
        let of = |namespace: &str| claim(namespace, soon);
        let memory_for = async |parsed_bytes, namespace| {
            let claim = of(namespace);
            answers.memory_for(TEXT_BYTES, parsed_bytes, &claim).await
        };
        let largest = memory_for(PARSED_BYTES_MAX, "a").await.unwrap();
        assert!(largest.is_some());
        let rest = ALL_PARSED_BYTES_MAX - PARSED_BYTES_MAX;
        let error = memory_for(rest + 1, "b").await.unwrap_err();
        // No default stands in for what nobody has read.
        assert!(!error.class().subject.is_said_by_source(), "{error}");
        let fits = memory_for(rest, "b").await.unwrap();
        assert!(fits.is_some());
        assert!(memory_for(LARGE_BYTES_MIN, "c").await.is_err());
        let small = memory_for(LARGE_BYTES_MIN - 1, "c").await.unwrap();
        assert!(small.is_none());
        drop((largest, fits));
        assert!(memory_for(PARSED_BYTES_MAX, "c").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_beneficiary_has_twice_the_memory_that_it_leaves_free() {
        let (answers, soon) = (LargeAnswers::default(), Instant::now());
        let of_a = claim("a", soon);
        let mut held = Vec::new();
        while let Ok(memory) = answers.memory_for(TEXT_BYTES, LARGE_BYTES_MIN, &of_a).await {
            held.push(memory);
        }
        assert_eq!(
            held.len() as u64,
            ALL_PARSED_BYTES_MAX * 2 / 3 / LARGE_BYTES_MIN
        );
        let left = ALL_PARSED_BYTES_MAX - held.len() as u64 * LARGE_BYTES_MIN;
        let of_b = claim("b", soon);
        assert!(answers.memory_for(TEXT_BYTES, left, &of_b).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_waits_for_one_turn_of_each_other_beneficiary() {
        // Beneficiaries that held memory when the last one asked go behind it.
        for (others, expected) in [(1_usize, vec![]), (2, vec![]), (4, vec![2, 3])] {
            let (answers, deadline) = (LargeAnswers::default(), Instant::now() + GIVEN);
            let claims: Vec<_> = (0..others)
                .map(|n| claim(&format!("n{n}"), deadline))
                .collect();
            let mut waiting: Vec<_> = (0..4 * others)
                .map(|n| n % others)
                .map(|of| {
                    let memory = answers.memory_for(TEXT_BYTES, HALF, &claims[of]);
                    (of, Box::pin(memory))
                })
                .collect();
            // What was granted, and to whom, in its order.
            let mut get = || -> Vec<_> {
                let mut got = Vec::new();
                waiting.retain_mut(|(of, memory)| match memory.now_or_never() {
                    Some(memory) => {
                        got.push((*of, memory.unwrap()));
                        false
                    }
                    None => true,
                });
                got
            };
            let mut held = VecDeque::from(get());
            assert_eq!(held.len(), others.min(2), "one for each");
            let of_last = claim("last", deadline);
            let mut last = Box::pin(answers.memory_for(TEXT_BYTES, HALF, &of_last));
            let mut turns = Vec::new();
            while (&mut last).now_or_never().is_none() {
                drop(held.pop_front());
                let got = get();
                turns.extend(got.iter().map(|(of, _)| *of));
                held.extend(got);
            }
            assert_eq!(turns, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_beneficiary_has_so_much_text_that_waits_and_leaves_some_to_others() {
        let (answers, deadline) = (LargeAnswers::default(), Instant::now() + GIVEN);
        let [of_a, of_b] = ["a", "b"].map(|namespace| claim(namespace, deadline));
        let memory_for = |claim| Box::pin(answers.memory_for(TEXT_BYTES, HALF, claim));
        let held = memory_for(&of_a).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..BENEFICIARY_WAITING_TEXT_BYTES_MAX / TEXT_BYTES as u64 {
            let mut memory = memory_for(&of_a);
            assert!((&mut memory).now_or_never().is_none());
            waiting.push(memory);
        }
        let error = memory_for(&of_a).await.unwrap_err();
        assert!(matches!(error, FactError::LiveReadBusy { .. }), "{error}");
        assert!(!error.class().subject.is_said_by_source(), "{error}");
        assert!(error.is_over_part());
        // `b` has the other half, and waits for that half again.
        let other = memory_for(&of_b).await.unwrap();
        let mut later = memory_for(&of_b);
        assert!((&mut later).now_or_never().is_none());
        drop(other);
        assert!(later.await.is_ok());
        drop((held, waiting));
        assert!(memory_for(&of_a).await.is_ok());
    }
}

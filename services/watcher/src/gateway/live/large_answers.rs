//! The memory that large answers of live reads take.

use std::sync::Arc;

use anteroom_functions::json::parsed_bytes_max;
use anteroom_model::FactError;
use anteroom_runtime::fair_quota::{FairPermit, FairQuota, QuotaFull};
use anteroom_wire::beneficiary::Beneficiary;

use super::limits::{ReadClaim, busy};
use crate::gateway::calls::CallFault;

/// Answers that take so much memory once they are parsed are large: some 256 KiB of the JSON of usual objects.
const LARGE_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// Large answers that are in memory at once, parsed.
const LARGE_ANSWERS_MAX: u64 = 2;

/// The most large answers that wait for a place. They wait as text: 160 MiB where each has 8 MiB.
const WAITING_MAX: u64 = 20;

/// The most of [`WAITING_MAX`] for one beneficiary: as many as it may have reads, of 16 in all.
const BENEFICIARY_WAITING_MAX: u64 = WAITING_MAX / 2;

/// The most memory of an answer once it is parsed. A few bytes of JSON may be a value of hundreds of bytes.
const PARSED_BYTES_MAX: u64 = 144 * 1024 * 1024;

/// The places of large answers in memory, which the beneficiaries of reads get in turns.
///
/// Each beneficiary has all places but one. So the first large answer of a beneficiary has a place at once, unless two
/// others have both. It waits then for the end of one, and for one turn of each other beneficiary that waits, however
/// many large answers these have.
pub(super) struct LargeAnswers {
    places: Arc<FairQuota<Beneficiary>>,
    /// The answers that wait for a place.
    waiting: Arc<FairQuota<Beneficiary>>,
}

/// The place of a large answer, until nobody reads the answer any more.
pub(super) type AnswerPlace = Arc<FairPermit<Beneficiary>>;

impl Default for LargeAnswers {
    fn default() -> Self {
        Self {
            places: FairQuota::new(LARGE_ANSWERS_MAX, LARGE_ANSWERS_MAX - 1),
            waiting: FairQuota::new(WAITING_MAX, BENEFICIARY_WAITING_MAX),
        }
    }
}

impl LargeAnswers {
    /// Waits for a place for an answer that takes so many bytes once it is parsed. A small answer needs none.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where there was no place before the claim's deadline, or too many wait.
    pub(super) async fn place_for(
        &self,
        parsed_bytes: u64,
        claim: &ReadClaim,
    ) -> Result<Option<AnswerPlace>, FactError> {
        if parsed_bytes < LARGE_BYTES_MIN {
            return Ok(None);
        }
        let beneficiary = || claim.beneficiary.clone();
        if let Ok(place) = self.places.try_take(beneficiary(), 1) {
            return Ok(Some(Arc::new(place)));
        }
        let waiting = self.waiting.try_take(beneficiary(), 1);
        let _waiting = waiting.map_err(|QuotaFull { held_max }| {
            busy(&format!("{held_max} large live reads wait for memory"))
        })?;
        let place = self.places.take(beneficiary(), 1, claim.deadline).await;
        let place =
            place.map_err(|_| busy("other large live reads take all the memory that they may"))?;
        Ok(Some(Arc::new(place)))
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

    #[tokio::test(start_paused = true)]
    async fn few_large_answers_have_a_place_at_once_and_small_ones_need_none() {
        let (answers, soon) = (LargeAnswers::default(), Instant::now());
        let of = |namespace: &str| claim(namespace, soon);
        let held = [
            answers.place_for(LARGE_BYTES_MIN, &of("a")).await.unwrap(),
            answers.place_for(LARGE_BYTES_MIN, &of("b")).await.unwrap(),
        ];
        assert!(held.iter().all(Option::is_some));
        let error = answers.place_for(LARGE_BYTES_MIN, &of("c")).await;
        let error = error.unwrap_err();
        // No default stands in for what nobody has read.
        assert!(!error.class().subject.is_said_by_source(), "{error}");
        assert!(
            answers
                .place_for(LARGE_BYTES_MIN - 1, &of("c"))
                .await
                .unwrap()
                .is_none()
        );
        drop(held);
        assert!(answers.place_for(LARGE_BYTES_MIN, &of("c")).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_waits_for_one_turn_of_each_other_beneficiary() {
        for (others, expected) in [(1_usize, vec![]), (2, vec![0, 1]), (4, vec![2, 3, 0, 1])] {
            let (answers, deadline) = (LargeAnswers::default(), Instant::now() + GIVEN);
            let claims: Vec<_> = (0..others)
                .map(|n| claim(&format!("n{n}"), deadline))
                .collect();
            let mut waiting: Vec<_> = (0..4 * others)
                .map(|n| n % others)
                .map(|of| {
                    let place = answers.place_for(LARGE_BYTES_MIN, &claims[of]);
                    (of, Box::pin(place))
                })
                .collect();
            // The places, and whose they are, in the order in which they were got.
            let mut get = || -> Vec<_> {
                let mut got = Vec::new();
                waiting.retain_mut(|(of, place)| match place.now_or_never() {
                    Some(place) => {
                        got.push((*of, place.unwrap()));
                        false
                    }
                    None => true,
                });
                got
            };
            let mut held = VecDeque::from(get());
            assert_eq!(held.len(), others.min(2), "one for each");
            let of_last = claim("last", deadline);
            let mut last = Box::pin(answers.place_for(LARGE_BYTES_MIN, &of_last));
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
    async fn a_beneficiary_has_so_many_large_answers_that_wait_and_leaves_some_to_others() {
        let (answers, deadline) = (LargeAnswers::default(), Instant::now() + GIVEN);
        let [of_a, of_b] = ["a", "b"].map(|namespace| claim(namespace, deadline));
        let place_for = |claim| Box::pin(answers.place_for(LARGE_BYTES_MIN, claim));
        let held = place_for(&of_a).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..BENEFICIARY_WAITING_MAX {
            let mut place = place_for(&of_a);
            assert!((&mut place).now_or_never().is_none());
            waiting.push(place);
        }
        let error = place_for(&of_a).await.unwrap_err();
        assert!(matches!(error, FactError::LiveReadBusy { .. }), "{error}");
        assert!(!error.class().subject.is_said_by_source(), "{error}");
        // `b` has the second place, and waits for that place again.
        let other = place_for(&of_b).await.unwrap();
        let mut later = place_for(&of_b);
        assert!((&mut later).now_or_never().is_none());
        drop(other);
        assert!(later.await.is_ok());
        drop((held, waiting));
        assert!(place_for(&of_a).await.is_ok());
    }
}

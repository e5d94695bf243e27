//! Answers of replicas and watchers are read where they arrive, beside requests that are admitted: large ones on threads of
//! their own, few at once, and in memory that was taken before.

use std::sync::Arc;

use anteroom_model::FactError;
use bytes::Bytes;
use serde_json::Value;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{
    memory::{FactHolder, FactMemory, FactPermit},
    message,
};
use crate::off_thread::off_thread_if_large;

/// Answers up to this size are read in place: that takes a fraction of a millisecond.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The number of large answers that are decoded at once. Further answers wait, within the deadline of their readers.
const AT_ONCE: usize = 2;

/// A result as it came, or its error.
pub(super) type EncodedResult = Result<Bytes, FactError>;

/// The results of one reply, as values.
#[derive(Debug)]
pub(super) struct DecodedResults {
    pub(super) values: Vec<Result<Value, FactError>>,
    /// The memory of all of them; `None`: they are small.
    pub(super) memory: Option<FactPermit>,
}

/// Reads answers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    places: Arc<Semaphore>,
    memory: FactMemory,
}

impl Decoder {
    /// Reads answers into this memory.
    pub(super) fn new(memory: FactMemory) -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            memory,
        }
    }

    /// Reads the results of one reply, in memory that `holder` takes for all of them together. Without a holder none is
    /// taken.
    ///
    /// # Errors
    /// The errors of [`FactMemory::take`], and [`FactError::DeadlineExceeded`] if no thread was free in time.
    pub(super) async fn results(
        &self,
        results: Vec<EncodedResult>,
        holder: Option<&FactHolder>,
        deadline: Instant,
    ) -> Result<DecodedResults, FactError> {
        let encoded_bytes: usize = results.iter().flatten().map(Bytes::len).sum();
        let (results, bytes) = off_thread_if_large(encoded_bytes, || counted(results));
        let memory = match holder {
            Some(holder) => {
                let taken = self.memory.take(encoded_bytes, bytes, holder, deadline);
                taken.await?
            }
            None => None,
        };
        // The memory is held there too, though nobody may wait for the values any more.
        let decode = move || {
            let values = results.into_iter().map(|result| message::value(&result?));
            Ok(DecodedResults {
                values: values.collect(),
                memory,
            })
        };
        self.run(encoded_bytes, deadline, decode).await
    }

    /// Does `work` over this many bytes.
    ///
    /// # Errors
    /// The errors of `work`, and [`FactError::DeadlineExceeded`] if no thread was free in time.
    async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        deadline: Instant,
        work: impl FnOnce() -> Result<T, FactError> + Send + 'static,
    ) -> Result<T, FactError> {
        if bytes <= INLINE_BYTES_MAX {
            return work();
        }
        let waits = deadline.saturating_duration_since(Instant::now());
        let permit = timeout_at(deadline, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(FactError::DeadlineExceeded {
                deadline_ms: message::millis(waits),
                over_part: false,
            });
        };
        let done = tokio::task::spawn_blocking(move || {
            // Held until it is done, though nobody may wait for it any more.
            let _permit = permit;
            work()
        });
        done.await.unwrap_or_else(|_| {
            Err(FactError::RequestInvalid {
                message: "the reply was not read to its end".to_owned(),
            })
        })
    }
}

/// Counts the memory of results. Each result that takes too much becomes an error.
fn counted(mut results: Vec<EncodedResult>) -> (Vec<EncodedResult>, u64) {
    let mut bytes = 0;
    for result in &mut results {
        let Ok(body) = result else { continue };
        match message::memory(body) {
            Ok(taken) => bytes += taken,
            Err(error) => *result = Err(error),
        }
    }
    (results, bytes)
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use anteroom_wire::body;
    use serde_json::json;

    use super::*;
    use crate::incoming::ReviewOwner;

    async fn reader_of(decoder: &Decoder, bytes: usize) -> Result<thread::ThreadId, FactError> {
        let deadline = Instant::now() + Duration::from_secs(1);
        let work = || Ok(thread::current().id());
        decoder.run(bytes, deadline, work).await
    }

    #[tokio::test]
    async fn large_answers_are_decoded_on_another_thread() {
        let decoder = Decoder::new(FactMemory::default());
        let own = thread::current().id();
        assert_eq!(reader_of(&decoder, INLINE_BYTES_MAX).await, Ok(own));
        let other = reader_of(&decoder, INLINE_BYTES_MAX + 1).await;
        assert!(other.is_ok_and(|other| other != own));
    }

    #[tokio::test(start_paused = true)]
    async fn few_large_answers_are_decoded_at_once_and_small_ones_never_wait() {
        let decoder = Decoder::new(FactMemory::default());
        let permits = Arc::clone(&decoder.places).acquire_many_owned(AT_ONCE as u32);
        let permits = permits.await.unwrap();
        assert!(reader_of(&decoder, INLINE_BYTES_MAX).await.is_ok());
        let late = reader_of(&decoder, INLINE_BYTES_MAX + 1).await;
        assert_eq!(
            late,
            Err(FactError::DeadlineExceeded {
                deadline_ms: 1_000,
                over_part: false,
            })
        );
        drop(permits);
        assert!(reader_of(&decoder, INLINE_BYTES_MAX + 1).await.is_ok());
    }

    /// A list of maps, each of which takes four bytes and hundreds in memory.
    fn maps(count: usize) -> Value {
        vec![json!({ "a": 0 }); count].into()
    }

    #[tokio::test]
    async fn the_results_of_a_reply_take_memory_together_and_a_result_that_is_too_large_none() {
        let decoder = Decoder::new(FactMemory::default());
        let holder = FactHolder::review(ReviewOwner::default());
        let read = async |holder: Option<&FactHolder>, counts: &[usize]| {
            let encode = |count: &usize| Ok(body::encode_value(&maps(*count)).unwrap());
            let mut results: Vec<EncodedResult> = counts.iter().map(encode).collect();
            results.push(Err(FactError::NoWatcher));
            let deadline = Instant::now() + Duration::from_secs(60);
            decoder.results(results, holder, deadline).await.unwrap()
        };
        let small = read(Some(&holder), &[600, 600]).await;
        assert!(small.memory.is_none());
        let large = read(Some(&holder), &[600, 600]).await;
        assert!(large.memory.is_some());
        let expected = [Ok(maps(600)), Ok(maps(600)), Err(FactError::NoWatcher)];
        assert_eq!(large.values, expected);
        assert!(read(None, &[6_000]).await.memory.is_none());
        drop(large);
        let too_large = read(Some(&holder), &[190_000, 1]).await;
        let is_over = matches!(too_large.values[0], Err(FactError::BudgetExceeded { .. }));
        assert!(is_over);
        assert_eq!(too_large.values[1], Ok(maps(1)));
        assert!(too_large.memory.is_none() && decoder.memory.is_free());
    }
}

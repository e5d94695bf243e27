//! Answers of watchers are read where they arrive, beside requests that are admitted: large ones on threads of their
//! own, few at once.

use std::sync::Arc;

use anteroom_model::FactError;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

/// Answers up to this size are read in place: that takes a fraction of a millisecond.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The number of large answers that are decoded at once. Further answers wait, within the deadline of their readers.
const AT_ONCE: usize = 2;

/// Reads answers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Decoder(Arc<Semaphore>);

impl Default for Decoder {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Decoder {
    /// Does `work` over this many bytes.
    ///
    /// # Errors
    /// The errors of `work`, and [`FactError::DeadlineExceeded`] if no thread was free in time.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        deadline: Instant,
        work: impl FnOnce() -> Result<T, FactError> + Send + 'static,
    ) -> Result<T, FactError> {
        if bytes <= INLINE_BYTES_MAX {
            return work();
        }
        let waits = deadline.saturating_duration_since(Instant::now());
        let place = timeout_at(deadline, Arc::clone(&self.0).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            return Err(FactError::DeadlineExceeded {
                deadline_ms: super::message::millis(waits),
                over_part: false,
            });
        };
        let done = tokio::task::spawn_blocking(move || {
            // Held until it is done, though nobody may wait for it any more.
            let _place = place;
            work()
        });
        done.await.unwrap_or_else(|_| {
            Err(FactError::RequestInvalid {
                message: "the reply was not read to its end".to_owned(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    async fn reader_of(decoder: &Decoder, bytes: usize) -> Result<thread::ThreadId, FactError> {
        let deadline = Instant::now() + Duration::from_secs(1);
        let work = || Ok(thread::current().id());
        decoder.run(bytes, deadline, work).await
    }

    #[tokio::test]
    async fn large_answers_are_decoded_on_another_thread() {
        let (decoder, own) = (Decoder::default(), thread::current().id());
        assert_eq!(reader_of(&decoder, INLINE_BYTES_MAX).await, Ok(own));
        let other = reader_of(&decoder, INLINE_BYTES_MAX + 1).await;
        assert!(other.is_ok_and(|other| other != own));
    }

    #[tokio::test(start_paused = true)]
    async fn few_large_answers_are_decoded_at_once_and_small_ones_never_wait() {
        let decoder = Decoder::default();
        let permits = Arc::clone(&decoder.0).acquire_many_owned(AT_ONCE as u32);
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
}

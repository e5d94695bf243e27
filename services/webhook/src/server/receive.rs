//! Receiving the body of a review: apart from deciding on it, within limits of its own.
//!
//! A body that comes slowly takes no capacity from a review that can be decided. It counts only once the webhook has
//! to wait for it: most bodies have arrived already.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anteroom_model::limits::REVIEW_BYTES_MAX;
use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::review::{ReviewError, UID_WITHIN_BYTES, uid_at_start};

/// Bodies that are waited for at once. One more is answered with 503.
const BODIES_MAX: usize = 4_096;

/// Bytes of all bodies that are still on their way.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The time in which a body has to bring [`STEP_BYTES`]. A small body has arrived by then, and a large one over a
/// slow link goes on.
const STEP: Duration = Duration::from_secs(3);

/// Bytes of a body that are read beyond the limit before the review is refused.
const SKIPPED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes that each [`STEP`] has to bring of a body that is not whole.
const STEP_BYTES: usize = 64 * 1024;

/// The reason why there is no body.
#[derive(Debug)]
pub(super) enum NotReceived {
    /// Too much is waited for already.
    Busy,
    Invalid(ReviewError),
}

/// The bodies on their way, of all connections.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    bodies: AtomicUsize,
    bytes: AtomicUsize,
}

impl Receiving {
    /// A whole body, within its limit, before `deadline`.
    pub(super) async fn receive(
        &self,
        mut body: Body,
        deadline: Instant,
    ) -> Result<Bytes, NotReceived> {
        let received = self.read(&mut body, deadline).await;
        if let Err(NotReceived::Invalid(ReviewError::TooLarge { .. })) = received {
            skip(body, deadline.min(Instant::now() + STEP)).await;
        }
        received
    }

    async fn read(&self, body: &mut Body, deadline: Instant) -> Result<Bytes, NotReceived> {
        let mut parts = BodyParts::default();
        while let Some(next) = body.frame().now_or_never() {
            match next {
                Some(frame) => parts.take(frame)?,
                None => return Ok(parts.whole()),
            };
        }
        self.wait_for(parts, body, deadline).await
    }

    /// Waits for the rest of a body.
    async fn wait_for(
        &self,
        mut parts: BodyParts,
        body: &mut Body,
        deadline: Instant,
    ) -> Result<Bytes, NotReceived> {
        let mut held = self.hold(parts.bytes)?;
        let mut stepped = parts.bytes;
        let mut timer = pin!(sleep_until(deadline.min(Instant::now() + STEP)));
        loop {
            tokio::select! {
                biased;
                next = body.frame() => match next {
                    Some(frame) => held.add(parts.take(frame)?)?,
                    None => return Ok(parts.whole()),
                },
                () = &mut timer => {
                    let now = Instant::now();
                    if now >= deadline {
                        return Err(late("not before the caller stops waiting".to_owned()));
                    }
                    if parts.bytes - stepped < STEP_BYTES {
                        let waited_ms = STEP.as_millis();
                        return Err(late(format!("less than {STEP_BYTES} bytes in {waited_ms} ms")));
                    }
                    stepped = parts.bytes;
                    timer.as_mut().reset(deadline.min(now + STEP));
                }
            }
        }
    }

    fn hold(&self, bytes: usize) -> Result<ReceivingBody<'_>, NotReceived> {
        take(&self.bodies, 1, BODIES_MAX)?;
        let mut held = ReceivingBody { of: self, bytes: 0 };
        held.add(bytes)?;
        Ok(held)
    }
}

/// Reads the rest of a body that is too large, and keeps nothing of it. A caller that still sends does not read answers.
async fn skip(mut body: Body, deadline: Instant) {
    let mut bytes = 0;
    while let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > SKIPPED_BYTES_MAX {
            return;
        }
    }
}

/// A body that is waited for.
struct ReceivingBody<'a> {
    of: &'a Receiving,
    bytes: usize,
}

impl ReceivingBody<'_> {
    fn add(&mut self, bytes: usize) -> Result<(), NotReceived> {
        take(&self.of.bytes, bytes, HELD_BYTES_MAX)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for ReceivingBody<'_> {
    fn drop(&mut self) {
        self.of.bodies.fetch_sub(1, Ordering::Relaxed);
        self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn take(taken: &AtomicUsize, more: usize, max: usize) -> Result<(), NotReceived> {
    let fits = |now: usize| now.checked_add(more).filter(|sum| *sum <= max);
    taken
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
        .map(|_| ())
        .map_err(|_| NotReceived::Busy)
}

/// The received parts of a body: mostly one, which is not copied.
#[derive(Debug, Default)]
struct BodyParts {
    first: Bytes,
    more: Vec<Bytes>,
    bytes: usize,
}

impl BodyParts {
    /// Takes a further part of the body. Returns its length.
    fn take(&mut self, frame: Result<Frame<Bytes>, axum::Error>) -> Result<usize, NotReceived> {
        let frame = frame.map_err(|error| late(error.to_string()))?;
        // Trailers say nothing here.
        let part = frame.into_data().unwrap_or_default();
        let taken = part.len();
        self.bytes += taken;
        if self.bytes > REVIEW_BYTES_MAX {
            return Err(NotReceived::Invalid(ReviewError::TooLarge {
                bytes_max: REVIEW_BYTES_MAX,
                uid: uid_at_start(&self.start()),
            }));
        }
        if self.first.is_empty() {
            self.first = part;
        } else if taken > 0 {
            self.more.push(part);
        }
        Ok(taken)
    }

    /// The first bytes of the body, in however many parts they came.
    fn start(&self) -> Vec<u8> {
        let parts = std::iter::once(&self.first).chain(&self.more);
        parts.flatten().copied().take(UID_WITHIN_BYTES).collect()
    }

    fn whole(self) -> Bytes {
        if self.more.is_empty() {
            return self.first;
        }
        let mut whole = Vec::with_capacity(self.bytes);
        whole.extend_from_slice(&self.first);
        self.more
            .iter()
            .for_each(|part| whole.extend_from_slice(part));
        whole.into()
    }
}

fn late(problem: String) -> NotReceived {
    NotReceived::Invalid(ReviewError::Body { problem })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, channel::mpsc, stream};

    use super::*;

    type Sender = mpsc::UnboundedSender<Result<Bytes, Infallible>>;

    fn open() -> (Sender, Body) {
        let (sender, parts) = mpsc::unbounded();
        (sender, Body::from_stream(parts))
    }

    fn send(sender: &Sender, bytes: usize) {
        let part = Bytes::from(vec![b'x'; bytes]);
        sender.unbounded_send(Ok(part)).unwrap();
    }

    fn in_seconds(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    fn problem(received: Result<Bytes, NotReceived>) -> String {
        match received {
            Err(NotReceived::Invalid(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_in_several_parts_is_joined() {
        let receiving = Receiving::default();
        let (sender, body) = open();
        send(&sender, 2);
        let waited = receiving.receive(body, in_seconds(1));
        let sent = async {
            tokio::task::yield_now().await;
            assert_eq!(receiving.bodies.load(Ordering::Relaxed), 1);
            send(&sender, 3);
            drop(sender);
        };
        let (received, ()) = tokio::join!(waited, sent);
        assert_eq!(received.unwrap(), "xxxxx");
        let there = stream::iter(["a", "b"]).map(Ok::<_, Infallible>);
        let received = receiving.receive(Body::from_stream(there), Instant::now());
        assert_eq!(received.now_or_never().unwrap().unwrap(), "ab");
        assert_eq!(receiving.bodies.load(Ordering::Relaxed), 0);
        assert_eq!(receiving.bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_coming_is_given_up() {
        let receiving = Receiving::default();
        let (sender, body) = open();
        send(&sender, 10);
        let begun = Instant::now();
        let told = problem(receiving.receive(body, in_seconds(30)).await);
        assert!(told.contains("in 3000 ms"), "{told}");
        assert_eq!(begun.elapsed().as_secs(), STEP.as_secs());
        let (_sender, body) = open();
        let told = problem(receiving.receive(body, in_seconds(1)).await);
        assert!(told.contains("stops waiting"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_over_a_slow_link_still_comes() {
        let receiving = Receiving::default();
        let (sender, body) = open();
        let sent = async {
            for _ in 0..9 {
                send(&sender, STEP_BYTES);
                tokio::time::sleep(STEP - Duration::from_millis(1)).await;
            }
            drop(sender);
        };
        let (received, ()) = tokio::join!(receiving.receive(body, in_seconds(30)), sent);
        assert_eq!(received.unwrap().len(), 9 * STEP_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_are_waited_for_are_limited_and_complete_ones_are_not() {
        let receiving = Receiving::default();
        let bodies = take(&receiving.bodies, BODIES_MAX - 1, BODIES_MAX);
        let bytes = take(&receiving.bytes, HELD_BYTES_MAX - 1, HELD_BYTES_MAX);
        assert!(bodies.is_ok() && bytes.is_ok());
        let (sender, body) = open();
        send(&sender, 1);
        let mut last = Box::pin(receiving.receive(body, in_seconds(1)));
        assert!(last.as_mut().now_or_never().is_none(), "it is waited for");
        let (_sender, body) = open();
        let refused = receiving.receive(body, in_seconds(1)).await;
        assert!(matches!(refused, Err(NotReceived::Busy)), "{refused:?}");
        let there = receiving.receive(Body::from("review"), in_seconds(1));
        assert_eq!(there.await.unwrap(), "review");
        send(&sender, 1);
        assert!(matches!(last.await, Err(NotReceived::Busy)));
        assert_eq!(receiving.bodies.load(Ordering::Relaxed), BODIES_MAX - 1);
        assert_eq!(receiving.bytes.load(Ordering::Relaxed), HELD_BYTES_MAX - 1);
    }

    #[tokio::test]
    async fn a_body_is_within_its_limit() {
        let receiving = Receiving::default();
        let largest = Body::from(vec![b' '; REVIEW_BYTES_MAX]);
        let received = receiving.receive(largest, in_seconds(1)).await;
        assert_eq!(received.unwrap().len(), REVIEW_BYTES_MAX);
        let larger = Body::from(vec![b' '; REVIEW_BYTES_MAX + 1]);
        let told = problem(receiving.receive(larger, in_seconds(1)).await);
        assert!(told.contains("larger than"), "{told}");
    }

    #[tokio::test]
    async fn the_uid_of_a_body_that_is_too_large_is_found_across_its_parts() {
        let head = br#"{"kind":"AdmissionReview","request":{"uid":"0ab-1","object":""#;
        let rest = Bytes::from(vec![b'x'; REVIEW_BYTES_MAX]);
        let parts = head.chunks(7).map(Bytes::copy_from_slice).chain([rest]);
        let body = Body::from_stream(stream::iter(parts.map(Ok::<_, Infallible>)));
        let refused = Receiving::default().receive(body, in_seconds(1)).await;
        let Err(NotReceived::Invalid(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.uid(), Some("0ab-1"));
    }
}

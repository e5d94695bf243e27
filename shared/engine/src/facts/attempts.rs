//! Several attempts at one query: the first answer counts.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use anteroom_model::{FactError, Retry};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The most attempts at a query that begin after a short wait. Each hanging replica costs a hedge.
const ATTEMPTS_MAX: usize = 3;

/// The time between further attempts: the replica that was asked may have died meanwhile, or a server on the way to
/// it.
const LATER: Duration = Duration::from_secs(1);

/// The most further attempts of one process in a second. More would only add to the load of slow replicas.
const LATER_PER_SECOND_MAX: u32 = 100;

/// The first pause if no replica could be asked, while an earlier one may still answer. Each pause is twice as long
/// as the one before, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The meaning of an attempt's error for the others.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// Nobody would say anything else.
    Final,
    /// Another replica may know better, and should be asked at once.
    AskAnother,
    /// Nobody can be asked now; who was asked before may still answer.
    NobodyElse,
}

fn meaning(error: &FactError) -> Meaning {
    match error.class().retry {
        Retry::SoonServed | Retry::AnotherReplica => Meaning::AskAnother,
        Retry::NobodyThere => Meaning::NobodyElse,
        Retry::TimedOut | Retry::Final => Meaning::Final,
    }
}

/// Makes an attempt, and another one after `hedge` without an answer (then after twice as long), or at once if
/// another replica may know better. If an attempt is under way and no replica is there for another, waits both for
/// its answer and for a replica. `given_ms` is the time that the deadline leaves, for the error.
///
/// Where nobody answers, and a replica had no place because of the review's own namespace, that is the error.
pub(super) async fn race<T, F>(
    hedge: Duration,
    later: &LaterAttempts,
    deadline: Instant,
    given_ms: u64,
    attempt: impl Fn() -> F,
) -> Result<T, FactError>
where
    F: Future<Output = Result<T, FactError>>,
{
    let mut pace = AttemptPace::new(hedge);
    let first = pin!(attempt());
    let mut running = Running::new(first);
    // One timer for both, since each costs something even where it never fires.
    let mut clock = pin!(sleep_until(pace.next_at.min(deadline)));
    let mut over_part = None;
    loop {
        let error = tokio::select! {
            biased;
            result = running.next() => match result {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            },
            () = &mut clock => {
                if Instant::now() >= deadline {
                    let late = FactError::DeadlineExceeded {
                        deadline_ms: given_ms,
                        over_part: false,
                    };
                    return Err(over_part.unwrap_or(late));
                }
                if pace.begin(later) {
                    running.push(attempt());
                }
                clock.as_mut().reset(pace.next_at.min(deadline));
                continue;
            }
        };
        if error.is_over_part() && over_part.is_none() {
            over_part = Some(error.clone());
        }
        match meaning(&error) {
            Meaning::AskAnother if pace.begun < ATTEMPTS_MAX => {
                pace.begun += 1;
                running.push(attempt());
            }
            Meaning::NobodyElse if !running.is_empty() => {
                pace.retry();
                clock.as_mut().reset(pace.next_at.min(deadline));
            }
            Meaning::AskAnother if !running.is_empty() => {}
            Meaning::Final | Meaning::AskAnother | Meaning::NobodyElse => {
                return Err(match over_part {
                    Some(earlier) if says_nothing(&error) => earlier,
                    _ => error,
                });
            }
        }
    }
}

/// Returns whether the service had no place or no news, or no time. That says nothing of the fact or of the view.
fn says_nothing(error: &FactError) -> bool {
    let is_behind = matches!(
        error,
        FactError::Stale { .. } | FactError::RevisionNotReached { .. }
    );
    is_behind || matches!(error.class().retry, Retry::AnotherReplica | Retry::TimedOut)
}

/// The later attempts of a process, which are limited together.
#[derive(Debug)]
pub(super) struct LaterAttempts(Mutex<(Instant, u32)>);

impl Default for LaterAttempts {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }
}

impl LaterAttempts {
    fn allow(&self) -> bool {
        let now = Instant::now();
        let (begun, made) = &mut *self.0.lock();
        if now.saturating_duration_since(*begun) >= Duration::from_secs(1) {
            (*begun, *made) = (now, 0);
        }
        *made += 1;
        *made <= LATER_PER_SECOND_MAX
    }
}

/// The pace of the attempts: the time of the next one.
struct AttemptPace {
    /// Attempts that somebody has received.
    begun: usize,
    wait: Duration,
    pause: Duration,
    next_at: Instant,
}

impl AttemptPace {
    fn new(hedge: Duration) -> Self {
        Self {
            begun: 1,
            wait: hedge,
            pause: PAUSE_MIN,
            next_at: Instant::now() + hedge,
        }
    }

    /// Notes that the wait for an answer is over. Returns whether one more attempt begins.
    fn begin(&mut self, later: &LaterAttempts) -> bool {
        let begins = self.begun < ATTEMPTS_MAX || later.allow();
        self.begun += usize::from(begins);
        self.wait = match self.begun < ATTEMPTS_MAX {
            true => self.wait * 2,
            false => self.wait.max(LATER),
        };
        self.next_at = Instant::now() + self.wait;
        begins
    }

    /// Notes that the last attempt has reached no replica.
    fn retry(&mut self) {
        self.begun = self.begun.saturating_sub(1);
        self.next_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// Attempts under way. Nearly always there is one, which takes no allocation.
struct Running<'f, F> {
    first: Option<Pin<&'f mut F>>,
    others: Vec<Pin<Box<F>>>,
}

impl<'f, F: Future> Running<'f, F> {
    fn new(first: Pin<&'f mut F>) -> Self {
        Self {
            first: Some(first),
            others: Vec::new(),
        }
    }

    fn push(&mut self, attempt: F) {
        self.others.push(Box::pin(attempt));
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    /// Returns the result of the first attempt that ends; waits for ever if there is none.
    async fn next(&mut self) -> F::Output {
        poll_fn(|cx| {
            if let Some(first) = &mut self.first
                && let Poll::Ready(output) = first.as_mut().poll(cx)
            {
                self.first = None;
                return Poll::Ready(output);
            }
            for at in 0..self.others.len() {
                if let Poll::Ready(output) = self.others[at].as_mut().poll(cx) {
                    self.others.remove(at);
                    return Poll::Ready(output);
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const HEDGE: Duration = Duration::from_millis(100);

    /// The script of an attempt: the milliseconds of waiting, and the result.
    type Script = (u64, Result<u32, FactError>);

    /// The scripts, and the expected result, duration and number of begun attempts.
    type Case<'a> = (&'a [Script], Result<u32, FactError>, u64, usize);

    /// Races the scripts. Returns the result, the duration, and the number of begun attempts.
    async fn run(deadline_ms: u64, script: &[Script]) -> (Result<u32, FactError>, u64, usize) {
        let (begun, start) = (AtomicUsize::new(0), Instant::now());
        let deadline = start + Duration::from_millis(deadline_ms);
        let result = race(
            HEDGE,
            &LaterAttempts::default(),
            deadline,
            deadline_ms,
            || {
                let (wait_ms, result) = script[begun.fetch_add(1, Ordering::Relaxed)].clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    result
                }
            },
        )
        .await;
        let took = u64::try_from(start.elapsed().as_millis()).unwrap();
        (result, took, begun.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_usable_answer_of_the_replicas_counts() {
        let busy = FactError::Busy {
            limit: 1,
            over_part: false,
        };
        let nobody = FactError::NoReplica { view: "v".into() };
        let bad = FactError::EvaluationFailed {
            message: "m".into(),
        };
        let late = FactError::DeadlineExceeded {
            deadline_ms: 1000,
            over_part: false,
        };
        let cases: [Case<'_>; 8] = [
            (&[(5, Ok(1))], Ok(1), 5, 1),
            // The first replica hangs: the second is asked after the hedge.
            (&[(9999, Ok(1)), (5, Ok(2))], Ok(2), 105, 2),
            // Two hang: the third after twice as long.
            (&[(9999, Ok(1)), (9999, Ok(2)), (5, Ok(3))], Ok(3), 305, 3),
            // Slow is not wrong: the first may still answer first.
            (&[(150, Ok(1)), (100, Ok(2))], Ok(1), 150, 2),
            (&[(5, Err(busy.clone())), (5, Ok(2))], Ok(2), 10, 2),
            (&[(5, Err(nobody.clone()))], Err(nobody.clone()), 5, 1),
            (&[(5, Err(bad.clone()))], Err(bad), 5, 1),
            (
                &[(9999, Ok(1)), (9999, Ok(2)), (9999, Ok(3))],
                Err(late),
                1000,
                3,
            ),
        ];

        for (script, result, took_ms, begun) in cases {
            assert_eq!(
                run(1000, script).await,
                (result, took_ms, begun),
                "{script:?}"
            );
        }
        // Who was asked before may still answer when nobody else can be asked.
        let script = [
            (200, Ok(1)),
            (5, Err(nobody.clone())),
            (5, Err(nobody.clone())),
            (5, Err(nobody.clone())),
        ];
        assert_eq!(run(1000, &script).await.0, Ok(1));
        // The replica has died, and a new replica comes: attempts after 20, 40 and 80 ms.
        let gone = || (0, Err(nobody.clone()));
        let script = [(99_999, Ok(1)), gone(), gone(), gone(), (5, Ok(2))];
        assert_eq!(run(9000, &script).await, (Ok(2), 100 + 20 + 40 + 80 + 5, 5));
        // All three that are asked die, and one more is asked later.
        let dead = || (99_999, Ok(0));
        let script = [dead(), dead(), dead(), dead(), (5, Ok(4))];
        assert_eq!(run(9000, &script).await, (Ok(4), 300 + 2 * 1000 + 5, 5));
        // All attempts end in errors: the last one is the answer.
        let script = [
            (5, Err(busy.clone())),
            (5, Err(busy.clone())),
            (5, Err(busy.clone())),
        ];
        assert_eq!(run(1000, &script).await, (Err(busy), 15, 3));
    }

    /// A flood of one replica must not get past a policy because the next replica is slow.
    #[tokio::test(start_paused = true)]
    async fn a_replica_that_the_own_namespace_keeps_busy_is_told_unless_another_says_more() {
        let over_part = FactError::Busy {
            limit: 1,
            over_part: true,
        };
        let busy = FactError::Busy {
            limit: 9,
            over_part: false,
        };
        let late = FactError::DeadlineExceeded {
            deadline_ms: 9,
            over_part: false,
        };
        let bad = FactError::EvaluationFailed {
            message: "m".into(),
        };
        let away = FactError::NoReplica { view: "v".into() };
        let own = || (5, Err(over_part.clone()));
        for (second, expected) in [
            ((5, Err(busy.clone())), Err(over_part.clone())),
            ((5, Err(late)), Err(over_part.clone())),
            ((9_999, Ok(1)), Err(over_part.clone())),
            ((5, Err(bad.clone())), Err(bad)),
            ((5, Err(away.clone())), Err(away)),
            ((5, Ok(2)), Ok(2)),
        ] {
            let script = [own(), second.clone(), second.clone(), second];
            assert_eq!(run(1_000, &script).await.0, expected);
        }
        let script = [(5, Err(busy.clone())), own(), (5, Err(busy))];
        assert_eq!(run(1_000, &script).await.0, Err(over_part));
    }

    #[tokio::test(start_paused = true)]
    async fn later_attempts_are_limited_for_all_together() {
        let later = LaterAttempts::default();
        let of_a_second = || (0..LATER_PER_SECOND_MAX * 2).filter(|_| later.allow());
        assert_eq!(of_a_second().count(), LATER_PER_SECOND_MAX as usize);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(of_a_second().count(), LATER_PER_SECOND_MAX as usize);
    }
}

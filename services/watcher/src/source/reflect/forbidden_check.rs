//! The decision whether to believe a refusal. Pure.
//!
//! An API server that starts answers before it has read its own rules, and forbids everything for that
//! moment: nobody's rights were taken away. It says itself that it is not ready then.

use std::time::Duration;

use tokio::time::Instant;

use crate::source::apiserver::Readiness;

/// The time for which a refusal is doubted where the API server forbids to ask whether it is ready, as it does
/// with everything while it starts.
const UNTOLD_MAX: Duration = Duration::from_secs(10);

/// The verdict on a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The refusal is true.
    Believed,
    /// The refusal may be from before the API server was ready: ask again, once, and believe what it says.
    AskAgain,
    /// The refusal tells nothing.
    Doubted,
}

/// The refusals of one source, and how far they are believed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubt {
    believed: bool,
    since: Option<Instant>,
}

impl Doubt {
    /// Something was allowed: the next refusal is the first one.
    pub(crate) fn allowed(&mut self) {
        *self = Self::default();
    }

    /// A refusal was believed, and so are those that follow it.
    pub(crate) fn is_over(&self) -> bool {
        self.believed
    }

    /// It is refused: nothing has to be asked until something is allowed.
    pub(crate) fn believe(&mut self) {
        self.believed = true;
    }

    /// It failed otherwise: what comes next may be another API server, or the same that starts again.
    pub(crate) fn interrupted(&mut self) {
        self.since = None;
    }

    pub(crate) fn judge(&mut self, said: Readiness, now: Instant) -> Verdict {
        if said == Readiness::NotReady {
            self.interrupted();
        }
        let since = *self.since.get_or_insert(now);
        match said {
            _ if self.believed => Verdict::Believed,
            Readiness::Ready => Verdict::AskAgain,
            Readiness::NotReady => Verdict::Doubted,
            Readiness::Untold if now.saturating_duration_since(since) >= UNTOLD_MAX => {
                Verdict::Believed
            }
            Readiness::Untold => Verdict::Doubted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_believed_once_the_api_server_is_ready_or_never_says() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        assert_eq!(doubt.judge(Readiness::Untold, now), Verdict::Doubted);
        assert_eq!(doubt.judge(Readiness::NotReady, now), Verdict::Doubted);
        assert_eq!(doubt.judge(Readiness::Ready, now), Verdict::AskAgain);
        let last = now + UNTOLD_MAX - Duration::from_millis(1);
        assert_eq!(doubt.judge(Readiness::Untold, last), Verdict::Doubted);
        doubt.interrupted();
        assert_eq!(doubt.judge(Readiness::Untold, last), Verdict::Doubted);
        let later = last + UNTOLD_MAX;
        assert_eq!(doubt.judge(Readiness::Untold, later), Verdict::Believed);
        assert_eq!(doubt.judge(Readiness::NotReady, later), Verdict::Doubted);
        assert_eq!(doubt.judge(Readiness::Untold, later), Verdict::Doubted);
        doubt.believe();
        assert!(doubt.is_over());
        doubt.allowed();
        assert_eq!(doubt.judge(Readiness::Untold, later), Verdict::Doubted);
    }
}

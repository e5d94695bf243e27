//! The decision whether to believe a refusal. Pure.
//!
//! An API server that starts answers before it has read its own rules, and forbids everything for that moment,
//! although no right was taken away. It then says itself that it is not ready.

use std::time::Duration;

use tokio::time::Instant;

use crate::source::apiserver::Readiness;

/// The time for which a refusal is doubted where the API server forbids to ask whether it is ready, as it does
/// with everything while it starts.
const UNTOLD_MAX: Duration = Duration::from_secs(10);

/// The verdict on a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalVerdict {
    /// The refusal is true.
    Confirmed,
    /// The refusal may come from a time before the API server was ready. The watcher asks once more, and believes the
    /// second answer.
    AskAgain,
    /// The refusal proves nothing.
    Unconfirmed,
}

/// The refusals of one source, and how far they are believed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForbiddenCheck {
    is_confirmed: bool,
    since: Option<Instant>,
}

impl ForbiddenCheck {
    /// Something was allowed: the next refusal is the first one.
    pub(crate) fn allowed(&mut self) {
        *self = Self::default();
    }

    /// Returns whether a refusal was confirmed; later refusals need no check.
    pub(crate) fn is_over(&self) -> bool {
        self.is_confirmed
    }

    /// Notes that the refusal is confirmed: nothing has to be asked until something is allowed.
    pub(crate) fn confirm(&mut self) {
        self.is_confirmed = true;
    }

    /// Notes an error other than a refusal: the next answer may be from a different or restarted API server.
    pub(crate) fn interrupted(&mut self) {
        self.since = None;
    }

    pub(crate) fn judge(&mut self, said: Readiness, now: Instant) -> RefusalVerdict {
        if said == Readiness::NotReady {
            self.interrupted();
        }
        let since = *self.since.get_or_insert(now);
        match said {
            _ if self.is_confirmed => RefusalVerdict::Confirmed,
            Readiness::Ready => RefusalVerdict::AskAgain,
            Readiness::NotReady => RefusalVerdict::Unconfirmed,
            Readiness::Untold if now.saturating_duration_since(since) >= UNTOLD_MAX => {
                RefusalVerdict::Confirmed
            }
            Readiness::Untold => RefusalVerdict::Unconfirmed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_believed_once_the_api_server_is_ready_or_never_says() {
        let now = Instant::now();
        let mut check = ForbiddenCheck::default();
        assert_eq!(
            check.judge(Readiness::Untold, now),
            RefusalVerdict::Unconfirmed
        );
        assert_eq!(
            check.judge(Readiness::NotReady, now),
            RefusalVerdict::Unconfirmed
        );
        assert_eq!(check.judge(Readiness::Ready, now), RefusalVerdict::AskAgain);
        let last = now + UNTOLD_MAX - Duration::from_millis(1);
        assert_eq!(
            check.judge(Readiness::Untold, last),
            RefusalVerdict::Unconfirmed
        );
        check.interrupted();
        assert_eq!(
            check.judge(Readiness::Untold, last),
            RefusalVerdict::Unconfirmed
        );
        let later = last + UNTOLD_MAX;
        assert_eq!(
            check.judge(Readiness::Untold, later),
            RefusalVerdict::Confirmed
        );
        assert_eq!(
            check.judge(Readiness::NotReady, later),
            RefusalVerdict::Unconfirmed
        );
        assert_eq!(
            check.judge(Readiness::Untold, later),
            RefusalVerdict::Unconfirmed
        );
        check.confirm();
        assert!(check.is_over());
        check.allowed();
        assert_eq!(
            check.judge(Readiness::Untold, later),
            RefusalVerdict::Unconfirmed
        );
    }
}

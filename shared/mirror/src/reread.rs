//! When the log is read again, since something in it was missed.

use std::time::Duration;

use crate::{MirrorConfig, freshness::Moment};

/// Why this mirror asks for the log again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RereadCause {
    /// The view's digest proves that a record is missing.
    DigestMismatch,
    /// A record could not be read, and some view's digest does not agree since.
    Undecodable,
    /// The log was shortened, and no writer has said since what a view is.
    Shortened,
    /// Beats run ahead, and nothing is read.
    Lag,
    /// Beats speak of another log.
    Incarnation,
}

impl RereadCause {
    /// One word, for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DigestMismatch => "digest_mismatch",
            Self::Undecodable => "undecodable",
            Self::Shortened => "shortened",
            Self::Lag => "lag",
            Self::Incarnation => "incarnation",
        }
    }
}

/// Sees to it that the log is asked for again, and not too often: the wait doubles every time, and
/// is back at its least once nothing was wanted for that long.
#[derive(Debug)]
pub(crate) struct Rereads {
    wait_min: Duration,
    wait: Duration,
    /// When it may be asked for again.
    not_before: Moment,
    wanted: Option<RereadCause>,
}

impl Rereads {
    pub(crate) fn new(config: &MirrorConfig) -> Self {
        Self {
            wait_min: config.restart_wait,
            wait: config.restart_wait,
            not_before: Moment::ZERO,
            wanted: None,
        }
    }

    /// The log should be read again. The first cause stands.
    pub(crate) fn want(&mut self, cause: RereadCause) {
        self.wanted.get_or_insert(cause);
    }

    /// The log is being read again, for whatever reason.
    pub(crate) fn begun(&mut self) {
        self.wanted = None;
    }

    /// Returns true if nothing was asked for lately.
    pub(crate) fn is_first(&self) -> bool {
        self.wait == self.wait_min
    }

    /// Returns the cause if it is time to ask. Until the log is being read again, that is so every so
    /// often.
    pub(crate) fn due(&mut self, now: Moment) -> Option<RereadCause> {
        if now < self.not_before {
            return None;
        }
        let Some(cause) = self.wanted else {
            if now >= self.not_before + self.wait {
                self.wait = self.wait_min;
            }
            return None;
        };
        self.not_before = now + self.wait;
        self.wait = (self.wait * 2).min(MirrorConfig::RESTART_WAIT_MAX);
        Some(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reread_is_asked_for_at_once_and_then_ever_more_rarely() {
        let config = MirrorConfig {
            restart_wait: Duration::from_secs(1),
            ..MirrorConfig::default()
        };
        let mut rereads = Rereads::new(&config);
        let mut asked = Vec::new();
        for second in 0..200 {
            rereads.want(RereadCause::Lag);
            if rereads.due(Duration::from_secs(second)).is_some() {
                asked.push(second);
                rereads.begun();
            }
        }
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 123, 183]);

        rereads.begun();
        assert_eq!(rereads.due(Duration::from_secs(303)), None);
        rereads.want(RereadCause::Lag);
        assert!(rereads.due(Duration::from_secs(303)).is_some());
        rereads.want(RereadCause::Lag);
        assert!(
            rereads.due(Duration::from_secs(304)).is_some(),
            "quiet for long enough"
        );
    }
}

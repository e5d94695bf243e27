//! Readiness: checks that a service waits for before it takes traffic.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

/// The checks of a process. Ready when there is at least one check and all of them are: a service
/// that has not said yet what it waits for is not ready. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    shared: Arc<ReadinessState>,
    prefix: Option<&'static str>,
}

#[derive(Debug, Default)]
struct ReadinessState {
    checks: Mutex<Checks>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Checks {
    next_id: u64,
    by_id: BTreeMap<u64, CheckReport>,
}

/// State of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Its name, as in `log` or `views`.
    pub name: String,
    /// `None`: ready. Otherwise what it waits for.
    #[serde(rename = "waitingFor", skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// A remark that does not hold back readiness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// State of the whole process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadinessReport {
    /// True if it takes traffic.
    pub ready: bool,
    /// Every check, in order of name.
    pub checks: Vec<CheckReport>,
}

impl Readiness {
    /// Without checks, and so not ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, which is not ready until [`Check::ready`]. `waiting_for` is read by people, as
    /// in "the first read of the log".
    pub fn check(&self, name: impl Into<String>, waiting_for: impl Into<String>) -> Check {
        self.add(CheckReport {
            name: name.into(),
            waiting_for: Some(waiting_for.into()),
            note: None,
        })
    }

    /// Adds a check that is ready from the beginning, with a note as in [`Check::ready_but`].
    pub fn remark(&self, name: impl Into<String>, note: impl Into<String>) -> Check {
        self.add(CheckReport {
            name: name.into(),
            waiting_for: None,
            note: Some(note.into()),
        })
    }

    fn add(&self, mut report: CheckReport) -> Check {
        if let Some(prefix) = self.prefix {
            report.name = format!("{prefix}/{}", report.name);
        }
        let mut checks = self.shared.checks.lock();
        let id = checks.next_id;
        checks.next_id += 1;
        checks.by_id.insert(id, report);
        drop(checks);
        self.shared.changed.send_replace(());
        Check {
            shared: Arc::clone(&self.shared),
            id,
        }
    }

    /// Returns the current state of every check.
    pub fn report(&self) -> ReadinessReport {
        let mut checks: Vec<_> = self.shared.checks.lock().by_id.values().cloned().collect();
        checks.sort_by(|a, b| a.name.cmp(&b.name));
        let ready = !checks.is_empty() && checks.iter().all(|c| c.waiting_for.is_none());
        ReadinessReport { ready, checks }
    }

    /// Waits until every check is ready.
    pub async fn wait_ready(&self) {
        let mut changed = self.shared.changed.subscribe();
        while !self.report().ready {
            if changed.changed().await.is_err() {
                return; // Unreachable: `self` holds the sender.
            }
        }
    }

    /// Returns a handle on the same checks that registers new checks as `prefix/…`.
    pub(crate) fn scope(&self, prefix: &'static str) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            prefix: Some(prefix),
        }
    }
}

/// A condition for which a service waits. Dropping it removes the check.
#[derive(Debug)]
pub struct Check {
    shared: Arc<ReadinessState>,
    id: u64,
}

impl Check {
    /// Notes that the awaited thing is there.
    pub fn ready(&self) {
        self.set(None, None);
    }

    /// Notes that the awaited thing is there. The note names something missing that does not keep the service from being ready.
    pub fn ready_but(&self, note: impl Into<String>) {
        self.set(None, Some(note.into()));
    }

    /// Notes that the awaited thing is not there, or not any more: `reason` says what is waited for.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(Some(reason.into()), None);
    }

    /// While it is not ready: what is waited for now. Once it is ready, nothing changes.
    pub fn waits_for(&self, reason: impl Into<String>) {
        let waiting = self.shared.checks.lock().by_id.get(&self.id).cloned();
        if waiting.is_some_and(|check| check.waiting_for.is_some()) {
            self.set(Some(reason.into()), None);
        }
    }

    fn set(&self, waiting_for: Option<String>, note: Option<String>) {
        let mut checks = self.shared.checks.lock();
        let Some(check) = checks.by_id.get_mut(&self.id) else {
            return;
        };
        check.note = note;
        if check.waiting_for == waiting_for {
            return;
        }
        let was_ready = check.waiting_for.is_none();
        check.waiting_for.clone_from(&waiting_for);
        let name = check.name.clone();
        drop(checks);
        match waiting_for {
            None => tracing::info!(check = name, "readiness check passed"),
            Some(reason) if was_ready => {
                tracing::warn!(check = name, reason, "readiness check failed");
            }
            Some(reason) => tracing::debug!(check = name, reason, "readiness check not passed yet"),
        }
        self.shared.changed.send_replace(());
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.shared.checks.lock().by_id.remove(&self.id);
        self.shared.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_all_checks_are_and_never_without_one() {
        let readiness = Readiness::new();
        assert!(!readiness.report().ready, "nothing is known yet");
        let log = readiness.check("log", "the first read of the log");
        let views = readiness.scope("webhook").check("views", "policies");
        log.ready();
        let report = readiness.report();
        assert!(!report.ready);
        assert_eq!(report.checks[0].waiting_for, None);
        assert_eq!(report.checks[1].name, "webhook/views");
        assert_eq!(report.checks[1].waiting_for.as_deref(), Some("policies"));
        views.ready();
        assert!(readiness.report().ready);
        views.waits_for("nothing any more");
        assert!(readiness.report().ready);
        views.not_ready("entries");
        views.waits_for("kinds");
        let waiting = &readiness.report().checks[1].waiting_for;
        assert_eq!(waiting.as_deref(), Some("kinds"));
        assert!(!readiness.report().ready);
        drop(views);
        assert!(readiness.report().ready, "a dropped check is gone");
        let remark = readiness.scope("webhook").remark("file", "it is old");
        let report = readiness.report();
        assert!(report.ready);
        assert_eq!(report.checks[1].name, "webhook/file");
        assert_eq!(report.checks[1].note.as_deref(), Some("it is old"));
        drop(remark);
    }

    #[tokio::test]
    async fn waiting_ends_with_the_last_check() {
        let readiness = Readiness::new();
        let check = readiness.check("a", "b");
        let waiter = tokio::spawn({
            let readiness = readiness.clone();
            async move { readiness.wait_ready().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        check.ready();
        waiter.await.unwrap();
    }
}

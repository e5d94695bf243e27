//! The position of the last change of each view in the log, be the view held or not.

use std::{collections::HashMap, sync::Arc};

use anteroom_bus::LogEvent;
use anteroom_model::{Incarnation, Revision, ViewId};
use anteroom_wire::envelope::Record;
use parking_lot::Mutex;

/// The position of the last change of each view in the log that a mirror follows, also of views that
/// the mirror does not hold. It serves readers that work by views which others hold. Put it into the
/// mirror's configuration ([`MirrorConfig::changes`](crate::MirrorConfig)). Cheap to clone.
///
/// Only an object that comes, changes or goes is a change of a view; a report of its writer is none.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<Mutex<Positions>>);

#[derive(Debug, Default)]
struct Positions {
    incarnation: Incarnation,
    last: HashMap<ViewId, Revision>,
    /// The last record whose view is unknown: it may have been a change of any view.
    of_any: Option<Revision>,
    was_read: bool,
}

impl Changes {
    /// The log, and the position in it of the view's last change that was read; `None`: there is none.
    pub fn last(&self, view: &ViewId) -> Option<(Incarnation, Revision)> {
        let noted = self.0.lock();
        let last = noted.last.get(view).copied().max(noted.of_any)?;
        Some((noted.incarnation.clone(), last))
    }

    /// Returns true if the log was read to its end once: positions noted before that are of changes
    /// that were there before.
    pub fn were_read(&self) -> bool {
        self.0.lock().was_read
    }

    /// An event of the log.
    pub(crate) fn take(&self, event: &LogEvent) {
        match event {
            LogEvent::Restart { incarnation, .. } => {
                let mut noted = self.0.lock();
                if noted.incarnation != *incarnation {
                    noted.incarnation = incarnation.clone();
                    noted.last.clear();
                    noted.of_any = None;
                }
            }
            LogEvent::Record { revision, envelope } => match envelope.as_deref() {
                Ok(envelope) => {
                    if let Record::Delta { view, .. } = &envelope.record {
                        self.note(view, *revision);
                    }
                }
                // It may have been a change.
                Err(unreadable) => match &unreadable.view {
                    Some(view) => self.note(view, *revision),
                    None => {
                        let mut noted = self.0.lock();
                        noted.of_any = noted.of_any.max(Some(*revision));
                    }
                },
            },
            LogEvent::CaughtUp { .. } => self.0.lock().was_read = true,
            LogEvent::Superseded { .. } | LogEvent::Away { .. } => {}
        }
    }

    fn note(&self, view: &ViewId, revision: Revision) {
        let mut noted = self.0.lock();
        match noted.last.get_mut(view) {
            // A log that is read again says the same again.
            Some(last) => *last = revision.max(*last),
            None => {
                noted.last.insert(view.clone(), revision);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_bus::{RestartCause, Unreadable};

    use super::*;

    fn unreadable(view: &str, revision: u64) -> LogEvent {
        unreadable_of(Some(ViewId::new(view)), revision)
    }

    fn unreadable_of(view: Option<ViewId>, revision: u64) -> LogEvent {
        LogEvent::Record {
            revision: Revision(revision),
            envelope: Err(Unreadable {
                view,
                key: None,
                error: anteroom_wire::WireError::Protocol {
                    found: String::new(),
                },
            }),
        }
    }

    fn restart(incarnation: &str) -> LogEvent {
        LogEvent::Restart {
            incarnation: Incarnation(incarnation.into()),
            cause: RestartCause::Asked,
        }
    }

    #[test]
    fn changes_keep_the_last_position_and_start_over_with_another_log() {
        let changes = Changes::default();
        let last = |view: &str| {
            let last = changes.last(&ViewId::new(view));
            last.map(|(log, revision)| (log.0.to_string(), revision.0))
        };
        changes.take(&restart("one"));
        for (view, revision) in [("a", 3), ("b", 4), ("a", 7)] {
            changes.take(&unreadable(view, revision));
        }
        assert_eq!(last("a"), Some(("one".to_owned(), 7)));
        assert!(!changes.were_read());
        changes.take(&LogEvent::CaughtUp {
            revision: Revision(7),
        });
        assert!(changes.were_read());
        changes.take(&restart("one"));
        changes.take(&unreadable("a", 3));
        assert_eq!(last("a"), Some(("one".to_owned(), 7)), "it is read again");
        assert_eq!(last("c"), None);
        changes.take(&restart("two"));
        changes.take(&unreadable("b", 2));
        assert_eq!((last("a"), last("b")), (None, Some(("two".to_owned(), 2))));
    }

    /// A record of an unknown view counts as a change of every view.
    #[test]
    fn a_record_of_an_unknown_view_is_a_change_of_all() {
        let changes = Changes::default();
        let last = |view: &str| changes.last(&ViewId::new(view)).map(|(_, at)| at.0);
        changes.take(&restart("one"));
        changes.take(&unreadable("a", 3));
        changes.take(&unreadable_of(None, 5));
        assert_eq!((last("a"), last("b")), (Some(5), Some(5)));
        changes.take(&unreadable("a", 7));
        changes.take(&unreadable_of(None, 5));
        assert_eq!((last("a"), last("b")), (Some(7), Some(5)));
        changes.take(&restart("two"));
        assert_eq!((last("a"), last("b")), (None, None));
    }
}

//! The state of a view for its readers, objects that cannot be published included.

use super::*;

/// The reason of the failure of a view with an object that cannot be published.
const UNUSABLE: &str = "ObjectUnusable";

impl ViewWriteState {
    /// The object is there and cannot be published. What is known of it is left as it is: the view
    /// is not served while it has such an object.
    pub(in crate::log_writer::publish) fn set_unusable(
        &mut self,
        incoming: Incoming,
        problem: String,
    ) {
        let Incoming { key, version, .. } = incoming;
        let outdated = self.is_outdated(&key, &version);
        self.pass_over(&key);
        if outdated {
            return;
        }
        let unusable = Unusable {
            version,
            list: self.lists,
            problem,
        };
        self.unusable.insert(key, unusable);
    }

    /// Returns the state to tell readers now that an object changed, if there is one: only of a
    /// view that is otherwise whole can one object make a difference.
    pub(in crate::log_writer::publish) fn state_after_object(&self) -> Option<ViewState> {
        self.is_whole().then(|| self.state_when_listed())
    }

    /// Returns whether all of the source is known, and one object at most is what fails it.
    pub(super) fn is_whole(&self) -> bool {
        match &self.state {
            ViewState::Synced => true,
            ViewState::Failed { failure } => failure.reason == UNUSABLE && !self.is_aside(),
            ViewState::Syncing | ViewState::Dropped => false,
        }
    }

    /// Returns the state to tell readers once a list is complete.
    pub(in crate::log_writer::publish) fn state_when_listed(&self) -> ViewState {
        match self.no_room().or_else(|| self.incomplete()) {
            None => ViewState::Synced,
            Some(failure) => ViewState::Failed { failure },
        }
    }

    /// The failure of a view that would answer *absent* for an object that is there.
    fn incomplete(&self) -> Option<Failure> {
        let (key, Unusable { problem, .. }) = self.unusable.iter().min_by_key(|(key, _)| *key)?;
        Some(Failure::new(
            UNUSABLE,
            format!(
                "{} object(s) cannot be published, the first is `{}`: {problem}. A view without \
                 them would take them for absent, so it is not served until they are changed, \
                 deleted, or left out by a selector",
                self.unusable.len(),
                shown(key)
            ),
        ))
    }
}

//! What readers have to be told of a view, objects that cannot be published included.

use super::*;

/// Why a view with an object that cannot be published fails.
const UNUSABLE: &str = "ObjectUnusable";

impl Ledger {
    /// The object is there and cannot be published. What is known of it is left as it is: the view
    /// is not served while it has such an object.
    pub(in crate::publish) fn set_unusable(&mut self, brought: Brought, problem: String) {
        let Brought {
            key, version, by, ..
        } = brought;
        let outdated = self.is_outdated(&key, &version);
        self.pass_over(&key, by);
        if outdated {
            return;
        }
        let mut marks = Marks::default();
        marks.bring(by);
        let unusable = Unusable {
            version,
            marks,
            problem,
        };
        self.unusable.insert(key, unusable);
    }

    /// What the readers have to be told now that an object changed, if that is anything: only of a
    /// view that is otherwise whole can one object make a difference.
    pub(in crate::publish) fn state_after_object(&self) -> Option<ViewState> {
        let whole = match &self.state {
            ViewState::Synced => true,
            ViewState::Failed { failure } => failure.reason == UNUSABLE,
            ViewState::Syncing | ViewState::Dropped => false,
        };
        whole.then(|| self.state_when_listed())
    }

    /// What the readers have to be told of a list that is complete.
    pub(in crate::publish) fn state_when_listed(&self) -> ViewState {
        match self.incomplete() {
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

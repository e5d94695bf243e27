//! Requests and objects that no policy is asked about, whatever the policies say. The rules for them may change while
//! they are used, as a mounted ConfigMap does.

mod file;
mod rules;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

pub use file::{EXEMPTIONS_BYTES_MAX, ExemptionArgs};
pub use rules::{ExemptionRules, ExemptionsError, NAMES_MAX};

/// The rules as they are now, shared by whoever asks. Cloned, it is the same.
#[derive(Clone, Debug, Default)]
pub struct Exemptions(Arc<ExemptionsState>);

#[derive(Debug, Default)]
struct ExemptionsState {
    rules: ArcSwap<ExemptionRules>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

impl Exemptions {
    /// Begins with these rules.
    pub fn new(rules: ExemptionRules) -> Self {
        let exemptions = Self::default();
        exemptions.replace(rules);
        exemptions
    }

    /// Returns the rules that are in force now.
    pub fn rules(&self) -> Arc<ExemptionRules> {
        self.0.rules.load_full()
    }

    /// Takes other rules from now on, and tells [`Exemptions::changes`].
    pub fn replace(&self, rules: ExemptionRules) {
        self.0.rules.store(Arc::new(rules));
        self.0.changes.send_modify(|changes| *changes += 1);
    }

    /// Counts the changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }
}

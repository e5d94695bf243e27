//! The configurations by which API servers may call this webhook.

use std::{collections::VecDeque, sync::Arc};

use anteroom_engine::{
    phase::ByPhase,
    policies::{Assignment, CalledWebhook},
};
use anteroom_policy::Phase;

use parking_lot::RwLock;

use super::Configuration;

/// Configurations of a phase that are remembered. An API server takes over a new one within milliseconds; of one
/// that is older all policies are asked.
const REMEMBERED_MAX: usize = 8;

/// The last configurations that this webhook made, by their id. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownConfigurations(Arc<ByPhase<RwLock<Remembered>>>);

/// Newest first.
type Remembered = VecDeque<(String, Arc<Assignment>)>;

impl KnownConfigurations {
    /// Remembers a configuration. It has to be remembered before it is written.
    pub(super) fn remember(&self, configuration: &Configuration) {
        let mut known = self.0.get(configuration.phase).write();
        known.retain(|(id, _)| *id != configuration.id);
        known.truncate(REMEMBERED_MAX - 1);
        let assignment = Arc::clone(&configuration.assignment);
        known.push_front((configuration.id.clone(), assignment));
    }

    /// Returns the webhook that was called; `None`: this process does not know it.
    pub(crate) fn called(
        &self,
        phase: Phase,
        configuration: &str,
        webhook: &str,
    ) -> Option<CalledWebhook> {
        let known = self.0.get(phase).read();
        let (_, assignment) = known.iter().find(|(id, _)| id == configuration)?;
        Some(CalledWebhook {
            webhook: assignment.position(webhook)?,
            assignment: Arc::clone(assignment),
        })
    }
}

//! The checks of the watcher's readiness.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_model::Group;
use anteroom_runtime::{Check, Readiness};
use parking_lot::Mutex;

/// The readiness checks of the watcher. Only the coordinator sets the checks of entries and policies; checks of views
/// are set for the groups that this watcher leads. A standby waits for nothing.
#[derive(Debug)]
pub(crate) struct Checks {
    /// The bus is within reach.
    pub bus: Check,
    /// The API server answers.
    pub api: Check,
    /// Every group is led, here or elsewhere.
    pub lead: Check,
    /// Entries can be read.
    pub entries: Arc<Check>,
    /// Policies can be read.
    pub policies: Arc<Check>,
    /// Every view that is written here was read, or cannot be.
    pub views: ViewsCheck,
}

impl Checks {
    pub(crate) fn new(readiness: &Readiness) -> Self {
        let checks = Self {
            bus: readiness.check("bus", "the bus to be within reach"),
            api: readiness.check("api-server", "the API server to answer"),
            lead: readiness.check("lead", "every group of views to be led by a watcher"),
            entries: Arc::new(readiness.check("entries", "")),
            policies: Arc::new(readiness.check("policies", "")),
            views: ViewsCheck {
                check: readiness.check("views", ""),
                waits: Mutex::default(),
            },
        };
        Group::all().for_each(|group| checks.stands_by(group));
        checks
    }

    /// Notes that this watcher leads the group.
    pub(crate) fn leads(&self, group: Group) {
        if group == Group::COORDINATOR {
            self.entries.not_ready("the first list of entries");
            self.policies.not_ready("the first list of policies");
        }
        let waits = "every view to be read once".to_owned();
        self.views.set(group, Some(waits));
    }

    /// Notes that another watcher leads the group, or none does.
    pub(crate) fn stands_by(&self, group: Group) {
        if group == Group::COORDINATOR {
            self.entries.ready();
            self.policies.ready();
        }
        self.views.set(group, None);
    }
}

/// The check of views, group by group.
#[derive(Debug)]
pub(crate) struct ViewsCheck {
    check: Check,
    waits: Mutex<BTreeMap<Group, String>>,
}

impl ViewsCheck {
    /// Sets the reason why views of this group are not all read; `None`: they are.
    pub(crate) fn set(&self, group: Group, waits_for: Option<String>) {
        let mut waits = self.waits.lock();
        match waits_for {
            Some(waits_for) => waits.insert(group, waits_for),
            None => waits.remove(&group),
        };
        match waits.is_empty() {
            true => self.check.ready(),
            false => {
                let all = waits
                    .iter()
                    .map(|(group, what)| format!("group {group}: {what}"));
                self.check.not_ready(all.collect::<Vec<_>>().join("; "));
            }
        }
    }
}

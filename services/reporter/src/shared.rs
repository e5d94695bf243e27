//! The state that scanner and writer share: the findings, and the data that both need beside them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use anteroom_model::ObjectKey;
use anteroom_policy::Reporting;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{findings::Findings, result::ReportSubject};

/// The part of a policy that reports and Events tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReportedPolicy {
    pub(crate) reporting: Reporting,
    pub(crate) uid: Option<String>,
}

/// A kind of objects, as owner references name it: group and kind.
pub(crate) type OwnerKind = (String, String);

/// The objects on which the results are not known yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsettled {
    /// The kinds for which not every object was judged yet.
    pub(crate) unseen: BTreeSet<OwnerKind>,
    /// Single objects that could not be read, by namespace and name.
    pub(crate) unread: BTreeSet<(OwnerKind, ObjectKey)>,
    /// Some objects are left out of the findings, since there are too many.
    pub(crate) is_full: bool,
}

impl Unsettled {
    /// Returns whether the results on this object are unknown.
    pub(crate) fn has(&self, owner: &Owner) -> bool {
        self.unseen.contains(&owner.0) || self.unread.contains(owner)
    }
}

/// The object of a report, by kind, namespace and name.
pub(crate) type Owner = (OwnerKind, ObjectKey);

/// Shared by scanner and writer. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SharedFindings {
    findings: Arc<Mutex<Findings>>,
    reported: Arc<Mutex<Arc<HashMap<ObjectKey, ReportedPolicy>>>>,
    /// Changes with every change of the findings.
    changed: watch::Sender<()>,
    /// `None`: nothing is known of any object.
    unsettled: watch::Sender<Option<Arc<Unsettled>>>,
}

impl SharedFindings {
    pub(crate) fn new() -> Self {
        Self {
            findings: Arc::default(),
            reported: Arc::default(),
            changed: watch::Sender::new(()),
            unsettled: watch::Sender::new(None),
        }
    }

    /// Changes the findings, and wakes the tasks that wait for changes.
    pub(crate) fn write<R>(&self, work: impl FnOnce(&mut Findings) -> R) -> R {
        let done = work(&mut self.findings.lock());
        self.changed.send_replace(());
        done
    }

    /// Changes the findings without waking the writer.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Findings) -> R) -> R {
        work(&mut self.findings.lock())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn set_reported(&self, reported: HashMap<ObjectKey, ReportedPolicy>) {
        *self.reported.lock() = Arc::new(reported);
    }

    pub(crate) fn reported(&self) -> Arc<HashMap<ObjectKey, ReportedPolicy>> {
        Arc::clone(&self.reported.lock())
    }

    pub(crate) fn settle(&self, unsettled: Unsettled) {
        self.unsettled.send_if_modified(|known| {
            let modified = known.as_deref() != Some(&unsettled);
            if modified {
                *known = Some(Arc::new(unsettled));
            }
            modified
        });
    }

    pub(crate) fn unsettled(&self) -> watch::Receiver<Option<Arc<Unsettled>>> {
        self.unsettled.subscribe()
    }
}

/// The kind of a subject, as owner references name it.
pub(crate) fn kind_of(api_version: &str, kind: &str) -> OwnerKind {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), kind.to_owned())
}

/// The object that a subject names.
pub(crate) fn owner_of(subject: &ReportSubject) -> Owner {
    let object = ObjectKey::new(&*subject.namespace, &*subject.name);
    (kind_of(&subject.api_version, &subject.kind), object)
}

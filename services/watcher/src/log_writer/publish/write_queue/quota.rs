//! The quotas of namespaces in the log. The views that only policies of one namespace read share one in each
//! group. An object stands once in each view of its type, and all views of a type are in one group: so however
//! many views a tenant has made, they hold no more than this of the objects of one type.
//!
//! A view of objects of many namespaces is in no namespace's quota. The objects of one namespace have a part of it that
//! is as large as the quota, unless the cluster's own policies or entries need the view whole.

use std::collections::{BTreeSet, HashMap};

use anteroom_model::{ObjectKey, Source, ViewId};
use tokio::time::Instant;

use super::WriteQueue;
use crate::log_writer::publish::view_state::{Limit, ViewWriteState};

/// The views in each namespace's quota.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// `None`: there is no limit.
    bytes_max: Option<u64>,
    views: HashMap<String, BTreeSet<ViewId>>,
}

#[cfg(test)]
impl Quotas {
    /// Returns whether no view is in any quota.
    pub(super) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }
}

impl WriteQueue {
    /// Limits the bytes that the views in one namespace's quota take in the log.
    pub(crate) fn limit_namespaces(&mut self, bytes_max: Option<u64>) {
        self.quotas.bytes_max = bytes_max;
    }

    /// Counts the view in the quota of its namespace, or ceases to.
    pub(crate) fn set_in_quota(&mut self, id: &ViewId, in_quota: bool) {
        let Some(view) = self.views.get_mut(id) else {
            return;
        };
        view.in_quota = in_quota;
        let Some(namespace) = namespace_of(&view.info.source) else {
            return;
        };
        let views = self.quotas.views.entry(namespace.to_owned()).or_default();
        if in_quota {
            views.insert(id.clone());
            return;
        }
        views.remove(id);
        if views.is_empty() {
            self.quotas.views.remove(namespace);
        }
    }

    /// Gives each namespace a part of the view if it holds objects of many namespaces, or ceases to. Objects that are
    /// referenced one by one always have parts. Call it after [`WriteQueue::limit_namespaces`].
    pub(crate) fn limit_each_namespace(&mut self, id: &ViewId, limited: bool) {
        let Some(view) = self.views.get_mut(id) else {
            return;
        };
        let has_parts = match &view.info.source {
            Source::Objects { .. } => true,
            Source::Collection(collection) => limited && collection.namespaces.is_empty(),
            Source::ApiCall { .. } | Source::System { .. } => false,
        };
        view.limit_namespaces(self.quotas.bytes_max.filter(|_| has_parts));
    }

    /// Says that the object counts in no namespace's part of the view, or that it does.
    pub(crate) fn set_exempt(&mut self, id: &ViewId, key: &ObjectKey, exempt: bool) {
        if let Some(view) = self.views.get_mut(id) {
            view.exempt(key, exempt);
        }
    }

    /// Returns a view with stubs of objects for which their namespaces' parts may have room now.
    pub(crate) fn next_to_list_for_stubs(&self, now: Instant) -> Option<ViewId> {
        let mut views = self.views.iter();
        let due = views.find(|(_, view)| view.is_list_for_stubs_due(now));
        due.map(|(id, _)| id.clone())
    }

    /// Notes that stubs of the view are asked for: a collection is listed again, and of a view of single objects each of
    /// the returned ones is read.
    pub(crate) fn list_for_stubs(&mut self, id: &ViewId, now: Instant) -> Vec<ObjectKey> {
        let view = self.views.get_mut(id);
        view.map_or_else(Vec::new, |view| view.list_for_stubs(now))
    }

    /// Returns the largest view in the view's quota, if that is exceeded.
    pub(super) fn over_quota(&self, view: &ViewWriteState) -> Option<(ViewId, Limit)> {
        let bytes_max = self.quotas.bytes_max?;
        let views = self.views_in_quota_of(view)?;
        (self.bytes_of(views) > bytes_max)
            .then(|| self.first_to_suspend(|id, _| views.contains(id)))?
            .map(|id| (id, Limit::Quota(bytes_max)))
    }

    /// Returns whether a suspended view can be written without exceeding its quota.
    pub(super) fn quota_holds(&self, view: &ViewWriteState) -> bool {
        let (Some(bytes_max), Some(views)) = (self.quotas.bytes_max, self.views_in_quota_of(view))
        else {
            return true;
        };
        self.bytes_of(views).saturating_add(view.bytes_wanted()) <= bytes_max
    }

    /// Returns the bytes that the namespace of a tenants' view wants in the log by all views in its quota. Of a view that
    /// namespaces share, it is the namespace with the largest part. 0: the view is the cluster's.
    pub(super) fn namespace_bytes(&self, view: &ViewWriteState) -> u64 {
        match self.views_in_quota_of(view) {
            Some(views) => self.bytes_of(views),
            None if view.in_quota => view.largest_part(),
            None => 0,
        }
    }

    fn views_in_quota_of(&self, view: &ViewWriteState) -> Option<&BTreeSet<ViewId>> {
        let namespace = namespace_of(&view.info.source).filter(|_| view.in_quota)?;
        self.quotas.views.get(namespace)
    }

    /// Returns the bytes that the views want in the log, without suspended views.
    fn bytes_of(&self, views: &BTreeSet<ViewId>) -> u64 {
        let views = views.iter().filter_map(|id| self.views.get(id));
        let written = views.filter(|view| !view.is_suspended());
        written.map(ViewWriteState::bytes_wanted).sum()
    }
}

/// Returns the namespace whose objects alone the source has.
fn namespace_of(source: &Source) -> Option<&str> {
    match source {
        Source::Collection(collection) => match &*collection.namespaces {
            [namespace] => Some(namespace),
            _ => None,
        },
        Source::Objects { .. } | Source::ApiCall { .. } | Source::System { .. } => None,
    }
}

//! The quotas of namespaces in the log. The views that only policies of one namespace read share one in each
//! group. An object stands once in each view of its type, and all views of a type are in one group: so however
//! many views a tenant has made, they hold no more than this of the objects of one type.

use std::collections::{BTreeSet, HashMap};

use anteroom_model::{Source, ViewId};

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

    /// Returns the bytes that all views in the view's quota want in the log; 0: it is in no namespace's quota.
    pub(super) fn bytes_in_quota_of(&self, view: &ViewWriteState) -> u64 {
        let views = self.views_in_quota_of(view);
        views.map_or(0, |views| self.bytes_of(views))
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

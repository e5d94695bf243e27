//! The objects of a view that a document lists, and the list's own fields.

use std::slice;

use anteroom_model::{ResourceVersion, SourceInfo};

use crate::{Object, Objects, Store};

/// The names that the list of a view's objects goes by, in the API server's words.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListHead {
    /// Fields with a text, in order; none for a view that is not a collection of the API server.
    pub(crate) texts: Vec<(&'static str, Box<str>)>,
    /// The name under which the list offers itself once more, as in `ingresses`.
    pub(crate) plural: Option<Box<str>>,
}

impl ListHead {
    pub(crate) fn of(info: &SourceInfo) -> Self {
        let Some(gvr) = info.gvr() else {
            return Self::default();
        };
        let plural = gvr.resource.as_str();
        Self {
            texts: vec![
                ("apiVersion", gvr.api_version().into()),
                ("kind", format!("{}List", info.kind).into()),
            ],
            // A resource called `items` has its list under `items` already.
            plural: (plural != ITEMS).then(|| plural.into()),
        }
    }
}

pub(crate) const ITEMS: &str = "items";

/// Objects of a store, in the API server's order: all of them, or those that were chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing<'a> {
    store: &'a Store,
    chosen: Option<&'a Chosen<'a>>,
}

/// A choice among the objects of a store, and how it is presented.
#[derive(Debug, Default)]
pub(crate) struct Chosen<'a> {
    /// `None`: all.
    pub(crate) objects: Option<Vec<&'a Object>>,
    /// The list's own `metadata`, where it has one.
    pub(crate) metadata: Option<ListMetadata>,
    /// Items are shown without `apiVersion` and `kind`, which the API server leaves out in lists of its
    /// own types.
    pub(crate) bare_items: bool,
}

/// The `metadata` of a list.
#[derive(Debug)]
pub(crate) struct ListMetadata {
    pub(crate) version: ResourceVersion,
    /// The token for the rest of the list, if the list was cut.
    pub(crate) next: Option<String>,
    /// The number of objects that were left out, where it is known.
    pub(crate) remaining: Option<u64>,
}

impl<'a> Listing<'a> {
    /// All objects, as a document of their own.
    pub(crate) fn all(store: &'a Store) -> Self {
        Self {
            store,
            chosen: None,
        }
    }

    pub(crate) fn of(store: &'a Store, chosen: &'a Chosen<'a>) -> Self {
        Self {
            store,
            chosen: Some(chosen),
        }
    }

    pub(crate) fn head(self) -> &'a ListHead {
        self.store.head()
    }

    pub(crate) fn metadata(self) -> Option<&'a ListMetadata> {
        self.chosen?.metadata.as_ref()
    }

    pub(crate) fn bare_items(self) -> bool {
        self.chosen.is_some_and(|chosen| chosen.bare_items)
    }

    fn objects(self) -> Option<&'a [&'a Object]> {
        self.chosen?.objects.as_deref()
    }

    pub(crate) fn len(self) -> usize {
        self.objects()
            .map_or_else(|| self.store.len(), <[&Object]>::len)
    }

    pub(crate) fn get(self, index: usize) -> Option<&'a Object> {
        if let Some(objects) = self.objects() {
            return objects.get(index).copied();
        }
        self.store.nth(index)
    }

    pub(crate) fn iter(self) -> Listed<'a> {
        match self.objects() {
            Some(objects) => Listed::Chosen(objects.iter()),
            None => Listed::All(self.store.objects()),
        }
    }
}

/// The objects of a listing.
#[derive(Clone, Debug)]
pub(crate) enum Listed<'a> {
    All(Objects<'a>),
    Chosen(slice::Iter<'a, &'a Object>),
    Some(slice::Iter<'a, Object>),
}

impl<'a> Iterator for Listed<'a> {
    type Item = &'a Object;

    #[inline]
    fn next(&mut self) -> Option<&'a Object> {
        match self {
            Self::All(objects) => objects.next(),
            Self::Chosen(objects) => objects.next().copied(),
            Self::Some(objects) => objects.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::All(objects) => objects.size_hint(),
            Self::Chosen(objects) => objects.size_hint(),
            Self::Some(objects) => objects.size_hint(),
        }
    }
}

/// The API server's own groups with a dot in their names. Groups without a dot are its own too, since
/// a CRD's has one; groups such as `gateway.networking.k8s.io`, which look alike, are not.
const BUILT_IN_GROUPS: [&str; 21] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "custom.metrics.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "external.metrics.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "metrics.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Returns true if the API server serves the types of this group itself: then the items of its lists
/// have neither `apiVersion` nor `kind`, while those of custom resources have both. Nothing in a watch
/// says so (each of its events has both), so these groups are known by name.
pub(crate) fn is_built_in(group: &str) -> bool {
    !group.contains('.') || BUILT_IN_GROUPS.binary_search(&group).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_api_groups_are_distinguished_from_crd_groups() {
        assert!(BUILT_IN_GROUPS.is_sorted());
        for group in ["", "apps", "policy", "networking.k8s.io", "storage.k8s.io"] {
            assert!(is_built_in(group), "{group}");
        }
        for group in [
            "gateway.networking.k8s.io",
            "snapshot.storage.k8s.io",
            "cluster.x-k8s.io",
            "networking.istio.io",
            "k8s.io",
        ] {
            assert!(!is_built_in(group), "{group}");
        }
    }
}

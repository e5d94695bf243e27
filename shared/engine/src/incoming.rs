//! A request as it arrives. Pure.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use anteroom_model::GroupVersionResource;
use anteroom_policy::{AdmissionRequest, Operation, RequestParts};

use crate::catalog::Catalog;

/// A request as it arrived. Most of its parts are read only if some policy reads them.
pub trait Incoming {
    /// The reason why a request cannot be read.
    type Error;

    /// The part by which policies are found.
    fn head(&self) -> RequestHead<'_>;

    /// Returns its length in bytes.
    fn bytes(&self) -> usize;

    /// Returns the party that the decision's memory and work are counted for.
    fn owner(&self) -> ReviewOwner;

    /// Returns whether the request is a dry run, which changes nothing. It is read on demand.
    fn is_dry_run(&self) -> bool;

    /// Returns the `fieldManager` of the request's options; empty if there is none. It is read on demand.
    fn field_manager(&self) -> String;

    /// Reads these parts of the review.
    ///
    /// # Errors
    /// A part is malformed.
    fn request(&self, parts: &RequestParts) -> Result<AdmissionRequest, Self::Error>;
}

/// The copies of an object that there are at once while rules change it: as it was sent, as its policy found it, as the
/// rule before left it, the rule's own, and the one that a patch makes of that.
pub const MUTATED_OBJECTS_MAX: u64 = 5;

/// The party that a review's memory and work are counted for: the request's namespace, or its user where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReviewOwner(u64);

impl ReviewOwner {
    /// The owner by its name: a hash that differs from process to process, so that nobody chooses names that collide.
    pub fn of(namespace: &str, user: &str) -> Self {
        static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let user = if namespace.is_empty() { user } else { "" };
        Self(HASHES.hash_one((namespace, user)))
    }
}

/// The part of a request by which policies are found.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The kind of the object, or of the subresource if that has its own.
    pub kind: KindName<'a>,
    /// The resource that it is sent to.
    pub resource: ResourcePath<'a>,
    /// The operation.
    pub operation: Operation,
    /// The namespace of the object; for a Namespace, its own name. Empty for a cluster-scoped object.
    pub namespace: &'a str,
}

/// A kind as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindName<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// The version, as in `v1`.
    pub version: &'a str,
    /// The kind, as in `Pod`; empty if it is unknown.
    pub kind: &'a str,
}

/// A resource as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// The version, as in `v1`.
    pub version: &'a str,
    /// The plural, as in `pods`.
    pub resource: &'a str,
    /// The subresource, as in `exec`; empty for the resource itself.
    pub subresource: &'a str,
}

impl<'a> RequestHead<'a> {
    /// Returns the kind by which policies name the resource. A subresource with a kind of its own (`Scale`,
    /// `PodExecOptions`) has its resource's kind. While the catalog is not known, the kind of a subresource is empty:
    /// no policy can name it.
    pub fn named_kind(&self, catalog: Option<&'a Catalog>) -> KindName<'a> {
        let ResourcePath {
            group,
            version,
            resource,
            subresource,
        } = self.resource;
        if subresource.is_empty() {
            return self.kind;
        }
        let kind = match catalog {
            None => "",
            Some(catalog) => {
                let gvr = GroupVersionResource::new(group, version, resource);
                match catalog.kinds.of_resource(&gvr) {
                    Some(record) => &record.kind,
                    None => return self.kind,
                }
            }
        };
        KindName {
            group,
            version,
            kind,
        }
    }
}

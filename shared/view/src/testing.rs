//! A view that tests and benchmarks fill by hand, without a log.

#![allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "for tests")]

use anteroom_model::{
    Collection, Delta, Digest, Epoch, GroupVersionResource, ObjectKey, Op, ResourceVersion,
    Revision, Source, SourceInfo, ViewRecord, ViewState,
};
use anteroom_wire::body;
use bytes::Bytes;
use serde_json::Value;

use crate::{Snapshot, View};

/// A view of one collection. Each call is the next record of its log.
#[derive(Debug)]
pub struct TestView {
    view: View,
    info: SourceInfo,
    revision: u64,
}

impl TestView {
    /// A synced view without objects.
    pub fn new(group: &str, plural: &str, kind: &str) -> Self {
        let mut view = Self::without_state(group, plural, kind);
        view.control(ViewState::Synced);
        view
    }

    /// A view without any record yet.
    pub fn without_state(group: &str, plural: &str, kind: &str) -> Self {
        let gvr = GroupVersionResource::new(group, "v1", plural);
        let info = SourceInfo {
            source: Source::Collection(Collection::all(gvr)),
            kind: kind.into(),
            namespaced: true,
        };
        Self {
            view: View::live(info.source.view_id()),
            info,
            revision: 0,
        }
    }

    /// Writes a control record.
    pub fn control(&mut self, state: ViewState) {
        self.revision += 1;
        let record = ViewRecord {
            view: self.view.id().clone(),
            info: self.info.clone(),
            epoch: Epoch::new(1, 0),
            state,
            version: ResourceVersion::new(self.revision.to_string()),
            objects: 0,
            digest: Digest::EMPTY,
            origin: Epoch::default(),
            age_max_ms: None,
        };
        self.view.control(Revision(self.revision), record);
    }

    /// Writes an object, which may be any JSON value.
    pub fn put(&mut self, namespace: &str, name: &str, object: &Value) {
        let body = body::encode_json(object).unwrap();
        self.apply(namespace, name, Op::Put(body));
    }

    /// Deletes an object.
    pub fn delete(&mut self, namespace: &str, name: &str) {
        self.apply(namespace, name, Op::Delete);
    }

    /// Its state now.
    pub fn snapshot(&self) -> Snapshot {
        self.view.snapshot(0, 0).unwrap()
    }

    fn apply(&mut self, namespace: &str, name: &str, op: Op<Bytes>) {
        self.revision += 1;
        let delta = Delta {
            key: ObjectKey::new(namespace, name),
            epoch: Epoch::new(1, 0),
            version: ResourceVersion::new(self.revision.to_string()),
            op,
        };
        self.view.apply(Revision(self.revision), &delta);
    }
}

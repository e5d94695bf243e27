//! A writer of logs, for the tests of readers: what the watcher is to them.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_bus::{Bus, BusExt as _, Fence, Lease};
use anteroom_model::{
    Delta, DesiredView, Digest, Epoch, Failure, Group, GroupVersionResource, Incarnation,
    ObjectKey, Op, ResourceVersion, Revision, Source, SourceInfo, ViewId, ViewOptions, ViewRecord,
    ViewState, system,
};
use anteroom_wire::{
    beat::{Beat, ViewBeat},
    body,
    envelope::{Envelope, Record, TraceContext},
};
use bytes::Bytes;
use serde_json::Value;

/// A view as it should be.
#[derive(Clone, Debug)]
pub struct Model {
    /// The source of the view.
    pub info: SourceInfo,
    /// Its objects, with their versions.
    pub objects: BTreeMap<ObjectKey, (ResourceVersion, Value)>,
    /// The position of its last record.
    pub revision: Revision,
    version: u64,
}

impl Model {
    /// A view of `info`, without objects.
    pub fn new(info: SourceInfo) -> Self {
        Self {
            info,
            objects: BTreeMap::new(),
            revision: Revision(0),
            version: 0,
        }
    }

    /// Over its objects.
    pub fn digest(&self) -> Digest {
        let mut digest = Digest::EMPTY;
        for (key, (version, _)) in &self.objects {
            digest.add(key, version);
        }
        digest
    }

    /// The objects in order.
    pub fn items(&self) -> Vec<Value> {
        self.objects
            .values()
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Puts an object under the next version: what that is as a record.
    pub fn put(&mut self, epoch: Epoch, key: ObjectKey, object: Value) -> Delta<Bytes> {
        self.version += 1;
        let version = ResourceVersion::new(self.version.to_string());
        let body = body::encode_json(&object).unwrap_or_default();
        self.objects.insert(key.clone(), (version.clone(), object));
        Delta {
            key,
            epoch,
            version,
            op: Op::Put(body),
        }
    }

    /// Deletes an object; returns the record of the deletion.
    pub fn delete(&mut self, epoch: Epoch, key: ObjectKey) -> Delta<Bytes> {
        self.version += 1;
        self.objects.remove(&key);
        Delta {
            key,
            epoch,
            version: ResourceVersion::new(self.version.to_string()),
            op: Op::Delete,
        }
    }

    /// Its state as a control record.
    pub fn control(&self, epoch: Epoch, state: ViewState) -> ViewRecord {
        ViewRecord {
            view: self.info.source.view_id(),
            info: self.info.clone(),
            epoch,
            state,
            version: ResourceVersion::new(self.version.to_string()),
            objects: self.objects.len() as u64,
            digest: self.digest(),
            origin: anteroom_model::Epoch::default(),
            age_max_ms: None,
        }
    }
}

/// A collection of namespaced objects in the group `networking.k8s.io`, as in `ingresses` of kind
/// `Ingress`.
pub fn collection(plural: &str, kind: &str) -> SourceInfo {
    let gvr = GroupVersionResource::new("networking.k8s.io", "v1", plural);
    SourceInfo {
        source: Source::Collection(anteroom_model::Collection::all(gvr)),
        kind: kind.to_owned(),
        namespaced: true,
    }
}

fn system_info(source: Source) -> SourceInfo {
    SourceInfo {
        source,
        kind: String::new(),
        namespaced: false,
    }
}

/// The writer of a log, with a model of each of its views. It does nothing by itself, beats
/// included.
///
/// # Panics
/// All methods panic where the bus refuses: it is for tests.
#[derive(Debug)]
#[allow(
    clippy::expect_used,
    reason = "a test has nothing to do about a bus that refuses"
)]
pub struct ViewWriter {
    bus: Arc<dyn Bus>,
    /// The leases of all groups: it is the writer of each.
    fences: BTreeMap<Group, Fence>,
    term: u32,
    incarnation: Incarnation,
    views: BTreeMap<ViewId, Model>,
    /// Goes with every record from now on.
    pub trace: Option<TraceContext>,
}

impl ViewWriter {
    /// Makes the log if there is none, and takes every group's lease.
    pub async fn new(bus: Arc<dyn Bus>) -> Self {
        let head = bus.ensure_log().await.expect("a log");
        let mut leases = BTreeMap::new();
        for group in Group::all() {
            leases.insert(group, bus.lease(group).await.expect("the lease"));
        }
        let terms = leases.values().flatten().map(|(lease, _)| lease.term);
        let term = terms.max().unwrap_or_default() + 1;
        let mut fences = BTreeMap::new();
        for (group, before) in leases {
            let lease = Lease {
                term,
                holder: "test".to_owned(),
            };
            let fence = bus
                .take_lease(group, lease, before.map(|(_, fence)| fence))
                .await;
            fences.insert(group, fence.expect("the lease was taken"));
        }
        Self {
            bus,
            fences,
            term,
            incarnation: head.incarnation,
            views: BTreeMap::new(),
            trace: None,
        }
    }

    /// A writer that has written the system views and sent a beat: all that makes a replica ready.
    pub async fn with_system_views(bus: Arc<dyn Bus>) -> Self {
        let mut writer = Self::new(bus).await;
        for source in [
            system::entries_source(),
            system::policies_source(),
            system::kinds_source(),
            system::exceptions_source(),
        ] {
            let view = writer.open(system_info(source));
            writer.synced(&view).await;
        }
        writer
    }

    /// A new view, of which nothing is written yet.
    pub fn open(&mut self, info: SourceInfo) -> ViewId {
        let id = info.source.view_id();
        self.views.insert(id.clone(), Model::new(info));
        id
    }

    /// Writes that an open view is desired. `in_quota`: only policies of namespaces need it.
    pub async fn desire(&mut self, view: &ViewId, in_quota: bool) {
        let desired_views = system::desired_views();
        if !self.views.contains_key(&desired_views) {
            self.open(system_info(system::desired_views_source()));
        }
        let options = ViewOptions {
            in_quota,
            ..ViewOptions::default()
        };
        let info = self.model(view).info.clone();
        let desired = serde_json::to_value(DesiredView { info, options });
        let desired = desired.expect("a record is JSON");
        self.put(&desired_views, "", view.as_str(), desired).await;
        self.synced(&desired_views).await;
    }

    /// The view as it should be.
    pub fn model(&self, view: &ViewId) -> &Model {
        &self.views[view]
    }

    /// The writer's epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.term, 0)
    }

    /// Writes an object.
    pub async fn put(
        &mut self,
        view: &ViewId,
        namespace: &str,
        name: &str,
        object: Value,
    ) -> Revision {
        let (key, epoch) = (ObjectKey::new(namespace, name), self.epoch());
        let model = self.views.get_mut(view).expect("an open view");
        let delta = model.put(epoch, key, object);
        self.delta(view, delta).await
    }

    /// Writes many objects, in as few batches as it takes.
    pub async fn put_all(&mut self, view: &ViewId, objects: Vec<(ObjectKey, Value)>) {
        let epoch = self.epoch();
        let model = self.views.get_mut(view).expect("an open view");
        let records = objects.into_iter().map(|(key, object)| Record::Delta {
            view: view.clone(),
            delta: model.put(epoch, key, object),
        });
        let records: Vec<_> = records.collect();
        for batch in records.chunks(anteroom_model::limits::BATCH_MESSAGES_MAX) {
            self.append(view, batch.to_vec()).await;
        }
    }

    /// Writes many objects whose bodies are made already, in as few batches as it takes. The model
    /// knows no more of them than their keys and versions.
    pub async fn put_bodies(&mut self, view: &ViewId, objects: Vec<(ObjectKey, Bytes)>) {
        let epoch = self.epoch();
        let model = self.views.get_mut(view).expect("an open view");
        let records = objects.into_iter().map(|(key, body)| {
            let mut delta = model.put(epoch, key, Value::Null);
            delta.op = Op::Put(body);
            let view = view.clone();
            Record::Delta { view, delta }
        });
        let records: Vec<_> = records.collect();
        for batch in records.chunks(anteroom_model::limits::BATCH_MESSAGES_MAX) {
            self.append(view, batch.to_vec()).await;
        }
    }

    /// Writes a tombstone.
    pub async fn delete(&mut self, view: &ViewId, namespace: &str, name: &str) -> Revision {
        let (key, epoch) = (ObjectKey::new(namespace, name), self.epoch());
        let model = self.views.get_mut(view).expect("an open view");
        let delta = model.delete(epoch, key);
        self.delta(view, delta).await
    }

    async fn delta(&mut self, view: &ViewId, delta: Delta<Bytes>) -> Revision {
        let view = view.clone();
        self.append(&view.clone(), vec![Record::Delta { view, delta }])
            .await
    }

    /// Writes that the view is synced, and beats.
    pub async fn synced(&mut self, view: &ViewId) -> Revision {
        let revision = self.control(view, ViewState::Synced).await;
        self.beat().await;
        revision
    }

    /// Writes that the view's source cannot be read, and beats.
    pub async fn failed(&mut self, view: &ViewId, failure: Failure) {
        self.control(view, ViewState::Failed { failure }).await;
        self.beat().await;
    }

    /// Writes where the view stands.
    pub async fn control(&mut self, view: &ViewId, state: ViewState) -> Revision {
        let record = self.views[view].control(self.epoch(), state);
        self.control_record(record).await
    }

    /// Writes a control record as it is given, be it wrong.
    pub async fn control_record(&mut self, record: ViewRecord) -> Revision {
        let view = record.view.clone();
        self.append(&view, vec![Record::Control(record)]).await
    }

    async fn append(&mut self, view: &ViewId, records: Vec<Record>) -> Revision {
        let envelope = |record| Envelope {
            record,
            trace: self.trace.clone(),
        };
        let batch = records.into_iter().map(envelope).collect();
        let fence = self.fences[&Group::of(&self.views[view].info.source)];
        let appended = self.bus.append(fence, batch).await;
        let revision = appended.expect("the batch was appended");
        let model = self.views.get_mut(view).expect("an open view");
        model.revision = revision;
        revision
    }

    /// Sends every group's beat: every view was heard from just now.
    pub async fn beat(&self) {
        self.beat_of_age(0).await;
    }

    /// Sends every group's beat: every view was heard from this long ago.
    pub async fn beat_of_age(&self, news_age_ms: u64) {
        for group in Group::all() {
            self.beat_of(group, news_age_ms).await;
        }
    }

    /// Sends the beat of one group: its views were heard from this long ago.
    pub async fn beat_of(&self, group: Group, news_age_ms: u64) {
        let of_group = |model: &Model| Group::of(&model.info.source) == group;
        let views = self.views.iter().filter(|(_, model)| of_group(model));
        let views = views.map(|(view, model)| ViewBeat {
            view: view.clone(),
            epoch: self.epoch(),
            revision: model.revision,
            news_age_ms,
            objects: 0,
            bytes: 0,
            skipped: 0,
            trouble: None,
        });
        let beat = Beat {
            incarnation: self.incarnation.clone(),
            group,
            term: self.term,
            holder: "test".to_owned(),
            page: 0,
            sent_ms: None,
            views: views.collect(),
        };
        self.bus.send(&beat).await.expect("a beat");
    }
}

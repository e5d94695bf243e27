//! A view that changes, and every state that it had.

use anteroom_model::{
    Collection, Delta, Digest, Epoch, GroupVersionResource, ObjectKey, Op, ResourceVersion,
    Revision, Source, SourceInfo, ViewRecord, ViewState,
};
use anteroom_view::{Snapshot, View};
use anteroom_wire::body;
use bytes::Bytes;
use serde_json::Value;

pub(crate) struct World {
    view: View,
    revision: u64,
    pub(crate) states: Vec<Snapshot>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) key: (u8, u8),
    /// `None`: it is deleted.
    pub(crate) object: Option<Value>,
}

impl World {
    pub(crate) fn new(group: &str) -> Self {
        let gvr = GroupVersionResource::new(group, "v1", "things");
        let info = SourceInfo {
            source: Source::Collection(Collection::all(gvr)),
            kind: "Thing".into(),
            namespaced: true,
        };
        let mut view = View::live(info.source.view_id());
        let record = ViewRecord {
            view: view.id().clone(),
            info,
            epoch: Epoch::new(1, 0),
            state: ViewState::Synced,
            version: ResourceVersion::new("1"),
            objects: 0,
            digest: Digest::EMPTY,
            origin: Epoch::default(),
            age_max_ms: None,
        };
        view.control(Revision(1), record);
        let states = vec![view.snapshot(0, 0).unwrap()];
        Self {
            view,
            revision: 1,
            states,
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.revision += 1;
        let (namespace, name) = (["a", "a-b", "b"][usize::from(step.key.0 % 3)], step.key.1);
        let name = format!("n{name}");
        let op = match step.object {
            None => Op::Delete,
            Some(mut object) => {
                if object.is_object() {
                    object["metadata"]["name"] = name.clone().into();
                    object["metadata"]["namespace"] = namespace.into();
                    object["kind"] = "Thing".into();
                }
                Op::Put(body::encode(&object).unwrap())
            }
        };
        let delta: Delta<Bytes> = Delta {
            key: ObjectKey::new(namespace, name),
            epoch: Epoch::new(1, 0),
            version: ResourceVersion::new(self.revision.to_string()),
            op,
        };
        self.view.apply(Revision(self.revision), &delta);
        self.states.push(self.view.snapshot(0, 0).unwrap());
    }
}

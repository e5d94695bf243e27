//! A state of a view, for the plan.

use anteroom_jmespath::{Node as _, Shape};
use anteroom_model::ObjectKey;
use anteroom_view::{Change, Object, Snapshot};

use crate::plan::{ViewSnapshot, WalkStep};

impl ViewSnapshot for Snapshot {
    type Object = Object;

    fn is(&self, other: &Self) -> bool {
        Snapshot::is(self, other)
    }

    fn since(&self, before: Option<&Self>) -> Vec<WalkStep<Object>> {
        let Some(before) = before else {
            return self.all().into_iter().map(WalkStep::Judge).collect();
        };
        let mut steps = Vec::new();
        self.changes_since(before, |change| match change {
            Change::Added(new) => steps.push(WalkStep::Judge(new.clone())),
            Change::Removed(old) => steps.extend(uid(old).map(WalkStep::Forget)),
            Change::Replaced { old, new } => {
                // An object that was deleted and created again under the same name is a different object.
                let gone = uid(old).filter(|gone| uid(new).as_ref() != Some(gone));
                steps.extend(gone.map(WalkStep::Forget));
                steps.push(WalkStep::Judge(new.clone()));
            }
        });
        steps
    }

    fn all(&self) -> Vec<Object> {
        self.read().objects().cloned().collect()
    }

    fn uid(object: &Object) -> Option<String> {
        uid(object)
    }

    fn key(object: &Object) -> ObjectKey {
        ObjectKey::new(object.namespace(), object.name())
    }

    fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.read().get(&key.namespace, &key.name).cloned()
    }
}

/// The object's `metadata.uid`, read in place.
fn uid(object: &Object) -> Option<String> {
    let uid = object.node().field("metadata")?.field("uid")?;
    match uid.shape() {
        Shape::String(text) => Some(text.to_string()),
        _ => None,
    }
}

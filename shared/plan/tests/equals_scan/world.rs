//! A view under change, with the history of its states.

use anteroom_view::{Snapshot, testing::TestView};
use serde_json::Value;

pub(crate) struct World {
    view: TestView,
    pub(crate) states: Vec<Snapshot>,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) key: (u8, u8),
    /// `None`: it is deleted.
    pub(crate) object: Option<Value>,
}

impl World {
    pub(crate) fn new(group: &str) -> Self {
        let view = TestView::new(group, "things", "Thing");
        let states = vec![view.snapshot()];
        Self { view, states }
    }

    pub(crate) fn step(&mut self, step: Step) {
        let (namespace, name) = (["a", "a-b", "b"][usize::from(step.key.0 % 3)], step.key.1);
        let name = format!("n{name}");
        match step.object {
            None => self.view.delete(namespace, &name),
            Some(mut object) => {
                if object.is_object() {
                    object["metadata"]["name"] = name.clone().into();
                    object["metadata"]["namespace"] = namespace.into();
                    object["kind"] = "Thing".into();
                }
                self.view.put(namespace, &name, &object);
            }
        }
        self.states.push(self.view.snapshot());
    }
}

//! Paths of all policies, and the changes of an object that they lead to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    value_path::{PathStep, PointerStep, ValuePath, pointers, title},
    variation::{Changes, Mentioned, Rank, Variation},
    vocabulary::Vocabulary,
};

/// Paths of all policies, with what is known of each.
#[derive(Debug, Default)]
pub(super) struct Guide {
    paths: BTreeMap<ValuePath, Mentioned>,
    literals: Vec<Value>,
}

/// Paths of an object's name and namespace, which every object must have.
const NAMES: &[&str] = &["metadata", "metadata.name", "metadata.namespace"];

/// Paths that make up an object's type: a different value would make a different kind of request.
const KINDS: &[&str] = &["apiVersion", "kind"];

/// Fields of a Pod's spec, which nothing that makes Pods has in its own.
const OF_PODS: &[&str] = &[
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsConfig",
    "ephemeralContainers",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "imagePullSecrets",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];

/// Fields of the spec of what makes Pods, which no Pod has.
const OF_CONTROLLERS: &[&str] = &["jobTemplate", "template"];

impl Guide {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let mut guide = Self::default();
        for mention in &vocabulary.mentions {
            for path in &mention.paths {
                for end in 1..path.len() {
                    guide.paths.entry(path[..end].to_vec()).or_default();
                }
                if !path.is_empty() {
                    let mentioned = guide.paths.entry(path.clone()).or_default();
                    add(&mut mentioned.near, &mention.literals);
                }
            }
            add(&mut guide.literals, &mention.literals);
        }
        let all: BTreeSet<ValuePath> = guide.paths.keys().cloned().collect();
        for (path, mentioned) in &mut guide.paths {
            let mut below = all.range(path.clone()..).skip(1);
            let next = below.next().filter(|next| next.starts_with(path));
            mentioned.is_leaf = next.is_none();
            let elements = [&path[..], &[PathStep::Each]].concat();
            let mut below = all
                .range(elements.clone()..)
                .skip_while(|one| **one == elements);
            mentioned.has_fields = below.next().is_some_and(|one| one.starts_with(&elements));
            mentioned.is_list = all.contains(&elements);
        }
        guide
    }

    /// The number of paths.
    pub(super) fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Returns the changes of an object, by rank. `makes_pods`: it has a template of Pods, of which its own fields are
    /// none.
    pub(super) fn changes(&self, object: &Value, makes_pods: bool) -> Vec<Variation> {
        let others = match makes_pods {
            true => OF_PODS,
            false => OF_CONTROLLERS,
        };
        let mut made = Changes::new(object);
        for (path, mentioned) in &self.paths {
            for pointer in pointers(object, path) {
                let name = title(&pointer);
                let is_name = NAMES.contains(&&*name);
                let is_other = matches!(&*pointer, [PointerStep::Field(spec), PointerStep::Field(field), ..]
                    if **spec == *"spec" && others.contains(&&**field));
                if is_other || KINDS.contains(&&*name) {
                    continue;
                }
                if !is_name {
                    made.shape(&pointer, mentioned);
                }
                if mentioned.is_leaf || mentioned.is_list {
                    made.literals(&pointer, mentioned, Rank::Near, &mentioned.near);
                    if !is_name {
                        made.literals(&pointer, mentioned, Rank::Far, &self.literals);
                    }
                }
            }
        }
        let lists = self.paths.keys().filter_map(|path| {
            let at = path.iter().position(|step| *step == PathStep::Each)?;
            path.get(..at)
        });
        made.appended(&lists.collect());
        made.into_sorted()
    }
}

fn add(to: &mut Vec<Value>, values: &[Value]) {
    for value in values {
        if !to.contains(value) {
            to.push(value.clone());
        }
    }
}

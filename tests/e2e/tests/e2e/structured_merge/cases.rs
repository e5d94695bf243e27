//! Random cases: an object, and a partial one over it.

use serde_json::{Value, json};

use super::{
    dice::{Dice, Part},
    things, workloads,
};

/// A kind of which there are cases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) api_version: &'static str,
    pub(super) name: &'static str,
    pub(super) plural: &'static str,
    make: fn(&mut Dice, Part) -> Value,
}

/// All kinds.
pub(super) const KINDS: [Kind; 6] = [
    kind("v1", "Pod", "pods", workloads::pod),
    kind(
        "apps/v1",
        "Deployment",
        "deployments",
        workloads::deployment,
    ),
    kind("v1", "Service", "services", workloads::service),
    kind(
        "networking.k8s.io/v1",
        "Ingress",
        "ingresses",
        workloads::ingress,
    ),
    kind("v1", "ConfigMap", "configmaps", workloads::config_map),
    kind("merge.example.com/v1", "Thing", "things", things::thing),
];

/// The kind of a case: those with more to them more often.
const OFTEN: [usize; 10] = [0, 0, 1, 1, 1, 2, 3, 4, 5, 5];

const fn kind(
    api_version: &'static str,
    name: &'static str,
    plural: &'static str,
    make: fn(&mut Dice, Part) -> Value,
) -> Kind {
    Kind {
        api_version,
        name,
        plural,
        make,
    }
}

impl Kind {
    pub(super) fn group(&self) -> &'static str {
        self.api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group)
    }

    /// The path of its objects in a namespace.
    pub(super) fn path(&self, namespace: &str) -> String {
        let root = if self.group().is_empty() {
            "api"
        } else {
            "apis"
        };
        let (api_version, plural) = (self.api_version, self.plural);
        format!("/{root}/{api_version}/namespaces/{namespace}/{plural}")
    }
}

/// A case.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) object: Value,
    pub(super) patch: Value,
}

/// The case with this number.
pub(super) fn case(seed: u64, number: u64) -> Case {
    let mut dice = Dice::of(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let kind = KINDS[dice.pick(&OFTEN)];
    let mut object = (kind.make)(&mut dice, Part::Whole);
    object["apiVersion"] = kind.api_version.into();
    object["kind"] = kind.name.into();
    object["metadata"]["name"] = "it".into();
    let mut patch = (kind.make)(&mut dice, Part::Patch);
    if dice.chance(10) {
        // The API server's word is the object's, whatever this says.
        patch["kind"] = "Other".into();
    }
    if dice.chance(6) {
        let field = dice.pick(&["metadata", "spec", "data"]);
        match patch.get_mut(field) {
            Some(value) => spoil(&mut dice, value),
            None => patch[field] = json!(["a"]),
        }
    }
    Case {
        kind,
        object,
        patch,
    }
}

/// Puts something where it does not belong: of another type, null, or of a name that nobody declared.
fn spoil(dice: &mut Dice, value: &mut Value) {
    let goes_down = dice.chance(80);
    match value {
        Value::Object(fields) if goes_down && !fields.is_empty() => {
            let place = dice.below(fields.len());
            if let Some(value) = fields.values_mut().nth(place) {
                spoil(dice, value);
            }
        }
        Value::Array(elements) if goes_down && !elements.is_empty() => {
            let place = dice.below(elements.len());
            spoil(dice, &mut elements[place]);
        }
        Value::Object(fields) if dice.chance(50) => {
            fields.insert("undeclared".to_owned(), 1.into());
        }
        value => {
            let wrong = [
                json!(null),
                json!("7"),
                json!(7),
                json!(true),
                json!({"a": "b"}),
                json!(["a"]),
            ];
            *value = dice.pick(&wrong);
        }
    }
}

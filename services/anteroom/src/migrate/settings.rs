//! The chart's values for an installation of Kyverno. Pure.

use std::collections::{BTreeMap, BTreeSet};

use anteroom_policy::{Policy, PolicyKind};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    convert,
    installation::{Installation, Part, full_name, text},
    likes::{Around, LIKES, Ours, Place},
    yaml,
};

/// The key of the policies that may change existing objects, and its value in the chart.
const ALLOW_WRITES: (&str, [&str; 2]) = (
    "config.allowWrites",
    ["clusterpolicy/*", "mutatingpolicy/*"],
);

/// The key that turns scans on.
const SCANS: &str = "features.backgroundScan.enabled";

/// A value of the chart's that is not its own.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Setting {
    pub(super) key: &'static str,
    pub(super) value: Value,
    /// Where it comes from.
    pub(super) from: String,
}

/// A setting of Kyverno's that has no like, or not in this form.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct WithoutLike {
    pub(super) from: String,
    pub(super) why: String,
}

/// The chart's values.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) taken: Vec<Setting>,
    pub(super) without_like: Vec<WithoutLike>,
}

/// A source of settings: its name for people, and what it has.
struct Source<'i> {
    name: String,
    object: &'i Value,
    around: Around,
}

impl Settings {
    pub(super) fn of(installation: &Installation, policies: &[(String, Policy)]) -> Self {
        let mut found = Self::default();
        let namespaces = convert::homes(
            installation
                .config
                .iter()
                .chain(installation.deployments.iter().map(|(_, one)| one)),
        );
        for config in &installation.config {
            let source = Source {
                name: format!("ConfigMap {}", full_name(config)),
                object: config,
                around: Around {
                    namespaces: namespaces.clone(),
                    ..Around::default()
                },
            };
            found.take(None, &source);
            found.rest(
                &source,
                config["data"].as_object().into_iter().flat_map(Map::keys),
                |key| is_known(|place| matches!(place, Place::Config(known) if *known == key)),
            );
        }
        for (part, deployment) in &installation.deployments {
            let flags = flags(deployment);
            let source = Source {
                name: format!("Deployment {}", full_name(deployment)),
                object: deployment,
                around: Around {
                    namespaces: namespaces.clone(),
                    flags: flags.clone(),
                },
            };
            found.take(Some(*part), &source);
            found.rest(&source, flags.keys(), |key| {
                is_known(|place| matches!(place, Place::Flag(_, known) if *known == key))
                    || key == "tracingPort"
                    || key == "enableTracing"
            });
        }
        found.allow_writes(policies);
        found
    }

    /// Takes what the table knows of a source. What comes first counts.
    fn take(&mut self, of: Option<Part>, source: &Source<'_>) {
        for (place, ours) in &LIKES {
            let (name, value) = match (*place, of) {
                (Place::Config(key), None) => {
                    (key.to_owned(), source.object["data"].get(key).cloned())
                }
                (Place::Flag(part, flag), Some(of)) if part == of => {
                    let value = source.around.flags.get(flag);
                    (
                        format!("--{flag}"),
                        value.map(|value| value.as_str().into()),
                    )
                }
                (Place::Field(part, pointer), Some(of)) if part == of => (
                    pointer[1..].replace('/', "."),
                    source.object.pointer(pointer).cloned(),
                ),
                _ => continue,
            };
            let Some(value) = value.filter(|value| !value.is_null()) else {
                continue;
            };
            let from = format!("{name} of {}", source.name);
            let lacks = match ours {
                Ours::Nothing(say) => say(&value),
                Ours::Key(key, default, convert) => {
                    let converted = convert(&value, &source.around);
                    let is_taken = self.taken.iter().any(|taken| taken.key == *key);
                    let default: Option<Value> = serde_json::from_str(default).ok();
                    if let Some(value) = converted.value
                        && Some(&value) != default.as_ref()
                        && !is_taken
                    {
                        let from = from.clone();
                        self.taken.push(Setting { key, value, from });
                    }
                    converted.lacks
                }
            };
            if let Some(why) = lacks {
                self.without_like.push(WithoutLike { from, why });
            }
        }
    }

    /// Names what the table does not know, so that nothing is passed over in silence.
    fn rest<'k>(
        &mut self,
        source: &Source<'_>,
        keys: impl Iterator<Item = &'k String>,
        is_known: impl Fn(&str) -> bool,
    ) {
        let unknown: BTreeSet<_> = keys
            .filter(|key| !is_known(key))
            .map(String::as_str)
            .collect();
        if !unknown.is_empty() {
            self.without_like.push(WithoutLike {
                from: source.name.clone(),
                why: format!(
                    "Nothing here is like {}.",
                    Vec::from_iter(unknown).join(", ")
                ),
            });
        }
    }

    /// In Kyverno, a policy of a namespace may change objects there without being named.
    fn allow_writes(&mut self, policies: &[(String, Policy)]) {
        let writers = policies.iter().filter(|(_, policy)| {
            policy.kind().is_namespaced() && policy.rules_on_existing().next().is_some()
        });
        let named: BTreeSet<_> = writers
            .map(|(_, policy)| {
                let kind = match policy.kind() {
                    PolicyKind::NamespacedMutating => "namespacedmutatingpolicy",
                    _ => "policy",
                };
                format!(
                    "{kind}/{}/{}",
                    policy.namespace().unwrap_or_default(),
                    policy.name()
                )
            })
            .collect();
        if !named.is_empty() {
            let (key, usual) = ALLOW_WRITES;
            let all = usual.into_iter().map(str::to_owned).chain(named);
            self.taken.push(Setting {
                key,
                value: all.map(Value::from).collect(),
                from: "policies of namespaces that change existing objects".to_owned(),
            });
        }
    }

    /// Returns whether what exists is judged.
    pub(super) fn scans(&self) -> bool {
        !self
            .taken
            .iter()
            .any(|taken| taken.key == SCANS && taken.value == false)
    }

    /// Returns the values, nested.
    pub(super) fn values(&self) -> Value {
        let mut values = json!({});
        for taken in &self.taken {
            let pointed = taken.key.split('.').fold(&mut values, |place, key| {
                if !place.is_object() {
                    *place = json!({});
                }
                &mut place[key]
            });
            *pointed = taken.value.clone();
        }
        values
    }

    /// Returns the values as a file, with where each comes from.
    pub(super) fn yaml(&self) -> String {
        let mut page = yaml::comment(
            "Values for Anteroom's chart that Kyverno's settings come to. Only what is not the chart's own value stands here. \
             Read it before you use it.",
        );
        let comments = self.taken.iter();
        let comments: yaml::Comments = comments
            .map(|taken| (taken.key.to_owned(), format!("From {}.", taken.from)))
            .collect();
        match self.taken.is_empty() {
            true => page.push_str("{}\n"),
            false => page.push_str(&yaml::block(&self.values(), &comments)),
        }
        if !self.without_like.is_empty() {
            page.push('\n');
            page.push_str(&yaml::comment("Without a like here:"));
        }
        for one in &self.without_like {
            page.push_str(&yaml::comment(&format!("- {}: {}", one.from, one.why)));
        }
        page
    }
}

fn is_known(is: impl Fn(&Place) -> bool) -> bool {
    LIKES.iter().any(|(place, _)| is(place))
}

/// Returns the flags of Kyverno's own container, by their names. One without a value is true.
fn flags(deployment: &Value) -> BTreeMap<String, String> {
    let containers = deployment.pointer("/spec/template/spec/containers");
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let own = containers
        .filter(|container| matches!(&*text(container, "/name"), "kyverno" | "controller"));
    let args = own.flat_map(|container| container["args"].as_array().into_iter().flatten());
    let flags = args.filter_map(Value::as_str).filter_map(|flag| {
        let flag = flag.strip_prefix("--").or_else(|| flag.strip_prefix('-'))?;
        let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
        Some((name.to_owned(), value.to_owned()))
    });
    flags.collect()
}

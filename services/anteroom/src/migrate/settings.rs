//! The chart's values for an installation of Kyverno. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use anteroom_policy::{Policy, PolicyKind};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    chart_keys::{CHART_KEYS, ChartKey, KyvernoSetting, SettingContext},
    convert::Converted,
    installation::{Installation, KyvernoDeployment, text, title},
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
    /// The setting of Kyverno's that the value comes from.
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

impl Settings {
    pub(super) fn of(installation: &Installation, policies: &[(String, Policy)]) -> Self {
        let mut found = Self::default();
        let deployments = &installation.deployments;
        let objects = installation
            .config
            .iter()
            .chain(deployments.iter().map(|(_, one)| one));
        let homes = objects.map(|object| text(object, "/metadata/namespace"));
        let around = SettingContext {
            namespaces: homes.filter(|home| !home.is_empty()).collect(),
            ..SettingContext::default()
        };
        for config in &installation.config {
            found.take(None, config, &around);
        }
        for (part, deployment) in deployments {
            let flags = flags(deployment);
            found.take(
                Some(*part),
                deployment,
                &SettingContext {
                    flags,
                    ..around.clone()
                },
            );
        }
        found.allow_writes(policies);
        found
    }

    /// Takes what the table knows of an object, and names what it does not know. What comes first counts.
    fn take(&mut self, of: Option<KyvernoDeployment>, object: &Value, around: &SettingContext) {
        let mut unknown: BTreeSet<String> = match of {
            Some(_) => around.flags.keys().cloned().collect(),
            None => object["data"]
                .as_object()
                .into_iter()
                .flat_map(Map::keys)
                .cloned()
                .collect(),
        };
        for (place, ours) in &CHART_KEYS {
            let (name, value) = match (*place, of) {
                (KyvernoSetting::Config(key), None) => {
                    (key.to_owned(), object["data"].get(key).cloned())
                }
                (KyvernoSetting::Flag(part, flag), Some(of)) if part == of => {
                    let value = around.flags.get(flag);
                    (flag.to_owned(), value.map(|value| value.as_str().into()))
                }
                (KyvernoSetting::Field(part, pointer), Some(of)) if part == of => (
                    pointer[1..].replace('/', "."),
                    object.pointer(pointer).cloned(),
                ),
                _ => continue,
            };
            unknown.remove(&name);
            if let Some(value) = value.filter(|value| !value.is_null()) {
                self.take_one(
                    ours,
                    &value,
                    &format!("{name} of {}", title(object)),
                    around,
                );
            }
        }
        if !unknown.is_empty() {
            self.without_like.push(WithoutLike {
                from: title(object),
                why: format!(
                    "Nothing here is like {}.",
                    Vec::from_iter(unknown).join(", ")
                ),
            });
        }
    }

    fn take_one(&mut self, ours: &ChartKey, value: &Value, from: &str, around: &SettingContext) {
        let lacks = match ours {
            ChartKey::Nothing(usual, why) => {
                let is_usual = value
                    .as_str()
                    .is_none_or(|text| text.is_empty() || text == *usual);
                (!is_usual).then(|| (*why).to_owned())
            }
            ChartKey::Key(key, default, convert) => {
                let Converted { value, lacks } = convert(value, around);
                let is_taken = self.taken.iter().any(|taken| taken.key == *key);
                let default: Option<Value> = serde_json::from_str(default).ok();
                if let Some(value) =
                    value.filter(|value| !is_taken && Some(value) != default.as_ref())
                {
                    let from = from.to_owned();
                    self.taken.push(Setting { key, value, from });
                }
                lacks
            }
        };
        if let Some(why) = lacks {
            let from = from.to_owned();
            self.without_like.push(WithoutLike { from, why });
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
            0,
        );
        match self.taken.is_empty() {
            true => page.push_str("{}\n"),
            false => self.write(&mut page, &self.values(), ""),
        }
        if !self.without_like.is_empty() {
            page.push('\n');
            page.push_str(&yaml::comment("Without a like here:", 0));
        }
        for one in &self.without_like {
            page.push_str(&yaml::comment(&format!("- {}: {}", one.from, one.why), 0));
        }
        page
    }

    /// Writes what is below a key of the chart, whose own keys need no quotes.
    fn write(&self, page: &mut String, values: &Value, path: &str) {
        let indent = if path.is_empty() {
            0
        } else {
            2 * path.split('.').count()
        };
        for (key, value) in values.as_object().into_iter().flatten() {
            let path = [path, key].join(if path.is_empty() { "" } else { "." });
            match self.taken.iter().find(|taken| taken.key == path) {
                Some(taken) => {
                    page.push_str(&yaml::comment(&format!("From {}.", taken.from), indent));
                    let value = yaml::behind_key(value, indent + 2);
                    let _ = writeln!(page, "{:indent$}{key}:{value}", "");
                }
                None => {
                    let _ = writeln!(page, "{:indent$}{key}:", "");
                    self.write(page, value, &path);
                }
            }
        }
    }
}

/// Returns the flags of Kyverno's own container, by their names, as Go reads them: a value stands behind `=`, or is the
/// next argument. A flag without a value is true.
pub(super) fn flags(deployment: &Value) -> BTreeMap<String, String> {
    let containers = deployment.pointer("/spec/template/spec/containers");
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let own = containers
        .filter(|container| matches!(&*text(container, "/name"), "kyverno" | "controller"));
    let args = own.flat_map(|container| container["args"].as_array().into_iter().flatten());
    let mut args = args.filter_map(Value::as_str).peekable();
    let mut flags = BTreeMap::new();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some(given) => given,
            None => (
                flag,
                args.next_if(|next| !next.starts_with('-'))
                    .unwrap_or("true"),
            ),
        };
        // Anything else is no flag: a key, for example, whose name would be shown.
        if name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        {
            flags.insert(name.to_owned(), value.to_owned());
        }
    }
    flags
}

//! The rules for Pod controllers that Kyverno derives from rules on Pods: one for the controllers whose Pod template
//! is `spec.template`, and one for CronJobs.
//!
//! The compiler derives no rules from a policy in three cases:
//! - a rule matches Pods and other kinds at once;
//! - a rule selects by names, labels or annotations, which a template need not share with its controller;
//! - no rule names Pods, or their controllers, without a group and a version.
//!
//! A derived rule matches only its own controllers, whatever else its filters allow.

use serde_json::{Map, Value, json};

use crate::ir::KindPattern;

/// Says for which controllers rules are derived: names with commas between, or `none`.
pub(super) const ANNOTATION: &str = "pod-policies.kyverno.io/autogen-controllers";

/// The kinds whose template is `spec.template`.
const CONTROLLERS: &[&str] = &[
    "apps/v1/DaemonSet",
    "apps/v1/Deployment",
    "batch/v1/Job",
    "apps/v1/ReplicaSet",
    "v1/ReplicationController",
    "apps/v1/StatefulSet",
];

const CRON_JOB: &str = "batch/v1/CronJob";

/// The most characters of the name of a derived rule; longer names are cut.
const NAME_CHARACTERS_MAX: usize = 63;

/// The prefix of a derived rule's name.
const PREFIX: &str = "autogen-";

/// A derived rule.
pub(super) struct AutogenRule {
    /// The index of the rule from which this rule is derived.
    pub(super) of: usize,
    /// The derived rule as an author would write it, except for its CEL expressions.
    pub(super) rule: Value,
    /// The path from the object to its Pod template.
    pub(super) template: &'static [&'static str],
    /// The kinds that make Pods in this way.
    pub(super) kinds: Vec<&'static str>,
}

/// A kind of Pod controllers: the place of their template, and the prefix of derived names.
struct Shape {
    prefix: &'static str,
    kinds: Vec<&'static str>,
    /// The path from the object to its Pod template.
    template: &'static [&'static str],
}

/// The rules that `rules` lead to, beside themselves.
pub(super) fn derive(metadata: &Value, rules: &[Value]) -> Vec<AutogenRule> {
    if !rules.iter().all(may_derive) || !rules.iter().any(names_pods) {
        return Vec::new();
    }
    let shapes = shapes(metadata["annotations"][ANNOTATION].as_str());
    let from = |shape: &Shape| {
        rules
            .iter()
            .enumerate()
            .filter_map(|(of, rule)| Some((of, derived(rule, shape)?)))
            .map(|(of, rule)| AutogenRule {
                of,
                rule,
                template: shape.template,
                kinds: shape.kinds.iter().copied().map(kind_alone).collect(),
            })
            .collect::<Vec<_>>()
    };
    shapes.iter().flat_map(from).collect()
}

fn shapes(annotation: Option<&str>) -> Vec<Shape> {
    // Spaces count: a name with one before it is of no controller.
    let named: Option<Vec<&str>> = annotation.map(|names| names.split(',').collect());
    let wanted = |kind: &&'static str| {
        let kind = kind_alone(kind);
        named.as_ref().is_none_or(|named| named.contains(&kind))
    };
    let all = [
        Shape {
            prefix: PREFIX,
            kinds: CONTROLLERS.iter().copied().filter(wanted).collect(),
            template: &["spec", "template"],
        },
        Shape {
            prefix: "autogen-cronjob-",
            kinds: [CRON_JOB].into_iter().filter(wanted).collect(),
            template: &["spec", "jobTemplate", "spec", "template"],
        },
    ];
    all.into_iter()
        .filter(|shape| !shape.kinds.is_empty())
        .collect()
}

fn kind_alone(kind: &'static str) -> &'static str {
    kind.rsplit('/').next().unwrap_or(kind)
}

/// Returns whether the rule names Pods, or controllers of Pods, by the kind alone. From `v1/Pod` nothing is
/// derived unless some rule does.
fn names_pods(rule: &Value) -> bool {
    let kinds = |resources: &Value| {
        let kinds = resources["kinds"].as_array().into_iter().flatten();
        let mut kinds = kinds.filter_map(Value::as_str);
        kinds.any(|kind| {
            let mut known = CONTROLLERS.iter().copied().chain([CRON_JOB]);
            kind == "Pod" || known.any(|known| kind_alone(known) == kind)
        })
    };
    let blocks = [&rule["match"], &rule["exclude"]];
    blocks.into_iter().flat_map(filters).any(kinds)
}

/// Returns whether nothing in the rule keeps its policy from being derived.
fn may_derive(rule: &Value) -> bool {
    let is_plain = |resources: &Value| {
        let given = |name| !resources[name].is_null() && resources[name] != json!([]);
        let kinds = resources["kinds"].as_array().map_or(0, Vec::len);
        !["name", "names", "selector", "annotations"]
            .into_iter()
            .any(given)
            && (kinds <= 1 || !speaks_of_pods(resources))
    };
    rule["generate"].is_null()
        && !patches_json(&rule["mutate"])
        && filters(&rule["match"]).iter().all(|r| is_plain(r))
        && filters(&rule["exclude"]).iter().all(|r| is_plain(r))
}

/// Returns whether a JSON patch names paths of a Pod. The compiler cannot translate these paths to a template's.
fn patches_json(mutate: &Value) -> bool {
    let all = mutate["foreach"].as_array();
    !mutate["patchesJson6902"].is_null() || all.is_some_and(|all| all.iter().any(patches_json))
}

fn derived(rule: &Value, shape: &Shape) -> Option<Value> {
    let name = rule["name"].as_str()?;
    if !rule["mutate"]["targets"].is_null() {
        return None; // The rule patches different objects than the rule matches.
    }
    let excluded = filters(&rule["exclude"]);
    let excludes_kinds = excluded.iter().any(|r| r["kinds"].is_array());
    if name.starts_with(PREFIX)
        || !filters(&rule["match"]).iter().any(|r| speaks_of_pods(r))
        || (excludes_kinds && !excluded.iter().any(|r| speaks_of_pods(r)))
    {
        return None;
    }
    let mut rule = rule.clone();
    let name = shape.prefix.chars().chain(name.chars());
    let name: String = name.take(NAME_CHARACTERS_MAX).collect();
    for block in ["match", "exclude"] {
        if let Some(block) = rule.get_mut(block) {
            each_filter(block, &mut |resources| {
                if speaks_of_pods(resources) {
                    resources["kinds"] = json!(shape.kinds);
                }
            });
        }
    }
    wrap_patterns(&mut rule, shape.template);
    if let Some(mutate) = rule.get_mut("mutate") {
        wrap_patches(mutate, shape.template);
    }
    let path = shape.template.join(".");
    shift(&mut rule, &path);
    rule["name"] = name.into();
    Some(rule)
}

/// A subresource of Pods counts for these, as in Kyverno.
fn speaks_of_pods(resources: &Value) -> bool {
    let kinds = resources["kinds"].as_array();
    let is_pod = |kind: &Value| {
        let kind = kind.as_str().and_then(KindPattern::parse);
        kind.is_some_and(|kind| kind.kind == "Pod")
    };
    kinds.is_some_and(|kinds| kinds.iter().any(is_pod))
}

/// The `resources` of a `match` or `exclude`, in whichever form they are given.
fn filters(block: &Value) -> Vec<&Value> {
    let lists = ["any", "all"]
        .into_iter()
        .filter_map(|name| block[name].as_array());
    let listed = lists.flatten().map(|filter| &filter["resources"]);
    let lone = Some(&block["resources"]).filter(|resources| resources.is_object());
    lone.into_iter().chain(listed).collect()
}

fn each_filter(block: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    if block["resources"].is_object() {
        visit(&mut block["resources"]);
    }
    for name in ["any", "all"] {
        let listed = block.get_mut(name).and_then(Value::as_array_mut);
        for filter in listed.into_iter().flatten() {
            if let Some(resources) = filter.get_mut("resources") {
                visit(resources);
            }
        }
    }
}

/// A pattern of a Pod is one of the template.
fn wrap_patterns(rule: &mut Value, template: &[&str]) {
    let Some(validate) = rule.get_mut("validate") else {
        return;
    };
    if let Some(pattern) = validate.get_mut("pattern") {
        wrap(pattern, template);
    }
    let patterns = validate.get_mut("anyPattern").and_then(Value::as_array_mut);
    for pattern in patterns.into_iter().flatten() {
        wrap(pattern, template);
    }
}

/// So is a patch.
fn wrap_patches(mutate: &mut Value, template: &[&str]) {
    if let Some(patch) = mutate.get_mut("patchStrategicMerge") {
        wrap(patch, template);
    }
    let all = mutate.get_mut("foreach").and_then(Value::as_array_mut);
    for each in all.into_iter().flatten() {
        wrap_patches(each, template);
    }
}

fn wrap(pattern: &mut Value, template: &[&str]) {
    for name in template.iter().rev() {
        let inner = pattern.take();
        *pattern = Value::Object(Map::from_iter([((*name).to_owned(), inner)]));
    }
}

/// Moves conditions on the object's `spec` and `metadata` to those of its template.
fn shift(value: &mut Value, template: &str) {
    match value {
        Value::String(text) => *text = shifted(text, template),
        Value::Array(elements) => elements.iter_mut().for_each(|value| shift(value, template)),
        Value::Object(entries) => {
            let taken = std::mem::take(entries);
            let shifted = taken.into_iter().map(|(key, mut value)| {
                shift(&mut value, template);
                (shifted(&key, template), value)
            });
            *entries = shifted.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn shifted(text: &str, template: &str) -> String {
    if !text.contains("request.") {
        return text.to_owned();
    }
    let mut text = text.to_owned();
    for object in ["request.object", "request.oldObject"] {
        for part in ["spec", "metadata"] {
            // What was put in for `spec` has no `metadata` right after the object.
            text = text.replace(
                &format!("{object}.{part}"),
                &format!("{object}.{template}.{part}"),
            );
        }
    }
    text
}

#[cfg(test)]
mod tests;

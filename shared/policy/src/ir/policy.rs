//! A compiled policy.

use anteroom_model::ObjectKey;
use serde_json::{Map, Value, json};

use super::{KindPattern, Phase, PolicyKind, RegisteredKinds, Rule, settings::Settings};

/// A compiled policy of any kind: immutable, and shared by all evaluations.
#[derive(Debug)]
pub struct Policy {
    pub(crate) kind: PolicyKind,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) not_run: Vec<NotRun>,
    pub(crate) settings: Settings,
}

impl Policy {
    /// Returns its kind.
    pub fn kind(&self) -> PolicyKind {
        self.kind
    }

    /// Returns its key among the policies of all kinds.
    pub fn key(&self) -> ObjectKey {
        self.kind
            .key(self.namespace().unwrap_or_default(), &self.name)
    }

    /// Returns its key as one text: `name`, `namespace/name` of a `Policy`, and with the kind before the name for kinds of
    /// policies.kyverno.io.
    pub fn full_name(&self) -> String {
        let key = self.key();
        match &*key.namespace {
            "" => key.name.into_string(),
            namespace => format!("{namespace}/{}", key.name),
        }
    }

    /// Returns `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace of a namespaced policy, which matches nothing outside it; `None` for a cluster-wide one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// `metadata.uid`, if the manifest came from an API server.
    pub fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// The rules, in the manifest's order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules of kinds that are not run, in the manifest's order. A policy that has no others does not
    /// compile.
    pub fn not_run(&self) -> &[NotRun] {
        &self.not_run
    }

    /// Returns the rules of a phase, in the manifest's order, without rules that change existing objects.
    pub fn rules_of(&self, phase: Phase) -> impl Iterator<Item = &Rule> {
        let of_phase = self.rules_called_in(phase);
        of_phase.filter(|rule| !rule.changes_existing())
    }

    /// Returns the rules that change existing objects, in the manifest's order. Requests that are admitted in the
    /// phase of validation trigger them.
    pub fn rules_on_existing(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.changes_existing())
    }

    /// The rules for which the webhook is called in a phase.
    pub(crate) fn rules_called_in(&self, phase: Phase) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.phase() == phase)
    }

    /// Returns the rules that a policy in CEL has for Pod controllers, as `status.autogen.configs` holds them: for
    /// each name, the resources and their constraints. `None`: no rule is derived.
    pub fn autogen_configs(&self) -> Option<Value> {
        let derived = self.rules.iter().filter(|rule| !rule.name.is_empty());
        let configs: Map<_, _> = derived
            .filter(|_| self.kind.is_cel())
            .map(|rule| {
                let targets: Vec<_> = rule.kinds().map(target).collect();
                let rules: Vec<_> = rule.kinds().map(resource_rule).collect();
                let spec = json!({ "matchConstraints": { "resourceRules": rules } });
                (
                    rule.name.clone(),
                    json!({ "spec": spec, "targets": targets }),
                )
            })
            .collect();
        (!configs.is_empty()).then_some(Value::Object(configs))
    }

    /// Returns the kinds and operations that the webhook must be called for in a phase: a superset of those
    /// that its rules match. There is one item for each filter of each rule, in order; none where the
    /// policy is not evaluated at admission.
    pub fn registered_kinds(&self, phase: Phase) -> impl Iterator<Item = RegisteredKinds> {
        let rules = self.settings.admission.then(|| self.rules_called_in(phase));
        let rules = rules.into_iter().flatten();
        rules.flat_map(move |rule| rule.matches.registered_kinds(phase))
    }
}

fn plural(kind: &KindPattern) -> &str {
    kind.resource
        .as_ref()
        .map_or("", |resource| &resource.plural)
}

fn target(kind: &KindPattern) -> Value {
    let name = match plural(kind) {
        "daemonsets" => "DaemonSet",
        "deployments" => "Deployment",
        "replicasets" => "ReplicaSet",
        "statefulsets" => "StatefulSet",
        "jobs" => "Job",
        "cronjobs" => "CronJob",
        _ => &kind.kind,
    };
    json!({
        "group": kind.group, "version": kind.version, "resource": plural(kind), "kind": name,
    })
}

fn resource_rule(kind: &KindPattern) -> Value {
    json!({ "apiGroups": [kind.group], "apiVersions": [kind.version], "resources": [plural(kind)] })
}

/// A rule that is never run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// Its name.
    pub rule: String,
    /// The field within the rule that names its work: `generate`, `verifyImages`, `mutate.targets`, `validate.assert`
    /// or `validate.manifests`.
    pub kind: &'static str,
    /// The field, as in `spec.rules[1].mutate.targets`.
    pub path: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::compile;

    #[test]
    fn a_derived_rule_is_told_with_the_resources_that_it_targets() {
        let policy = compile(&json!({
            "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "metadata": {"name": "p"},
            "spec": {
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }]},
                "validations": [{"expression": "object.metadata.name != 'a'"}],
            },
        }))
        .unwrap();
        let configs = policy.autogen_configs().unwrap();
        for (name, config) in configs.as_object().unwrap() {
            let targets = config["targets"].as_array().unwrap();
            let rules = targets.iter().map(|target| {
                json!({
                    "apiGroups": [target["group"]], "apiVersions": [target["version"]],
                    "resources": [target["resource"]],
                })
            });
            let rules: Vec<_> = rules.collect();
            assert!(!rules.is_empty(), "{name}");
            let told = &config["spec"]["matchConstraints"]["resourceRules"];
            assert_eq!(*told, json!(rules), "{name}");
        }
    }
}

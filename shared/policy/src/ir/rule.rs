//! A compiled rule: the match, the facts to read, and the work. Pure.

use std::sync::Arc;

use anteroom_cel::Program;
use anteroom_functions::pod_security::PodSecurity;
use anteroom_model::ExistingObjects;

use crate::ir::{
    KindPattern, Operation, Phase,
    cel::Cel,
    cel_mutation::CelMutation,
    conditions::Conditions,
    context::ContextEntry,
    matching::{Matches, Selector},
    mutate_existing::{CelTargets, MutateExisting, TargetType},
    mutation::Mutation,
    subquery::Pushdown,
    template::{Prepared, Template, ValueTemplate},
};

/// A compiled rule.
#[derive(Debug)]
pub struct Rule {
    pub(crate) name: String,
    pub(crate) action: FailureAction,
    pub(crate) overrides: Overrides,
    pub(crate) allow_existing_violations: bool,
    pub(crate) matches: Matches,
    /// The context entries in the manifest's order: each sees the entries before it.
    pub(crate) context: Vec<Arc<ContextEntry>>,
    pub(crate) preconditions: Conditions,
    pub(crate) message: Option<Template>,
    pub(crate) work: Work,
    /// The queries that are asked where its facts are kept.
    pub(crate) pushdown: Pushdown,
    /// An expression of the rule names `request.roles` or `request.clusterRoles`.
    pub(crate) names_roles: bool,
    /// The paths in the object that a rule with facts reads, each with all below it; `None`: the rule reads no facts.
    pub(crate) paths_beside_facts: Option<Vec<ObjectPath>>,
}

/// The names of fields, from the object inwards. Empty: the object whole.
pub(crate) type ObjectPath = Vec<Box<str>>;

impl Rule {
    /// Returns the rule's name, unique in its policy.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the phase in which the rule is asked.
    pub fn phase(&self) -> Phase {
        match self.work {
            Work::Mutate(_) | Work::Patch(_) => Phase::Mutation,
            // Triggered by what the object has become.
            Work::Validate(_) | Work::MutateExisting(_) => Phase::Validation,
        }
    }

    /// Returns whether the rule changes existing objects (`mutate.targets`) rather than the object of the request.
    pub fn changes_existing(&self) -> bool {
        self.existing().is_some()
    }

    /// Returns whether a new version of the policy runs it once for each trigger that exists
    /// (`mutateExistingOnPolicyUpdate`).
    pub fn runs_on_policy_update(&self) -> bool {
        self.existing()
            .is_some_and(|existing| existing.on_policy_update)
    }

    /// Returns whether a write by such a rule triggers the rule again (`skipBackgroundRequests: false`).
    pub fn is_triggered_by_own(&self) -> bool {
        self.existing()
            .is_some_and(|existing| existing.is_triggered_by_own)
    }

    /// Returns whether an operation can trigger it: a deletion only where its match says so.
    pub fn is_triggered_by(&self, operation: Operation) -> bool {
        operation != Operation::Delete || self.matches.names_deletion()
    }

    /// The kinds that it matches.
    pub fn kinds(&self) -> impl Iterator<Item = &KindPattern> {
        self.matches.kinds()
    }

    /// Returns the objects that it changes, as far as they are known before there is a trigger: a text with
    /// variables is empty.
    pub fn targets_of_existing(&self) -> Vec<ExistingObjects> {
        self.existing()
            .map_or_else(Vec::new, MutateExisting::fixed_objects)
    }

    /// The kinds of the objects on which a new version of the policy runs the rule: its triggers, or its targets
    /// where each target is its own trigger.
    pub fn kinds_on_policy_update(&self) -> Vec<KindPattern> {
        match self.targets_in_cel() {
            Some(targets) => targets.types.iter().map(TargetType::kind).collect(),
            None => self.kinds().cloned().collect(),
        }
    }

    /// Returns the existing objects that it changes, of a `MutatingPolicy`.
    pub(crate) fn targets_in_cel(&self) -> Option<&CelTargets> {
        self.existing()?.in_cel()
    }

    pub(crate) fn existing(&self) -> Option<&MutateExisting> {
        match &self.work {
            Work::MutateExisting(existing) => Some(existing),
            Work::Mutate(_) | Work::Patch(_) | Work::Validate(_) => None,
        }
    }

    /// Returns whether it changes objects, rather than judges them.
    pub fn is_mutation(&self) -> bool {
        self.phase() == Phase::Mutation
    }

    /// Returns the rule's failure action. An override may replace it; the report of an evaluation has the action for
    /// its request.
    pub fn action(&self) -> FailureAction {
        self.action
    }

    /// Returns whether it reads the user's roles, in its match or in an expression.
    pub(crate) fn reads_roles(&self) -> bool {
        self.matches.asks_roles() || self.names_roles
    }

    /// Returns the CEL expressions by which the rule validates, or those around its patches.
    pub(crate) fn cel(&self) -> Option<&Cel> {
        match &self.work {
            Work::Validate(Validation::Whole(Check::Cel(cel))) => Some(cel),
            _ => self.cel_mutation().map(|mutation| &mutation.shared_cel),
        }
    }

    /// Every expression in CEL.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Program> {
        let patches = self
            .cel_mutation()
            .map_or(&[][..], |mutation| &mutation.patches);
        let around = self.cel().into_iter().flat_map(Cel::programs);
        let targets = self.targets_in_cel();
        let targets = targets.and_then(|targets| targets.expression.as_ref());
        around
            .chain(patches.iter().map(|patch| &patch.program))
            .chain(targets.map(|expression| &expression.program))
    }

    /// Returns the patches of a `MutatingPolicy`.
    fn cel_mutation(&self) -> Option<&CelMutation> {
        match &self.work {
            Work::Patch(mutation) => Some(mutation),
            Work::MutateExisting(existing) => Some(&existing.in_cel()?.mutation),
            _ => None,
        }
    }

    /// Returns the `foreach` of a validation.
    pub(crate) fn each(&self) -> &[ForEach] {
        match &self.work {
            Work::Validate(validation) => validation.each(),
            Work::Mutate(_) | Work::Patch(_) | Work::MutateExisting(_) => &[],
        }
    }

    /// Returns the rule's context entries, including the entries of each `foreach`.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &ContextEntry> {
        let each = self.each().iter();
        let mut inner: Vec<_> = each.flat_map(ForEach::entries).collect();
        match &self.work {
            Work::Mutate(mutation) => inner = mutation.entries(),
            Work::MutateExisting(existing) => inner = existing.entries(),
            Work::Validate(_) | Work::Patch(_) => {}
        }
        self.context.iter().chain(inner).map(|entry| &**entry)
    }

    /// Returns the message of a report about an object that complies.
    pub fn pass_message(&self) -> String {
        let name = &self.name;
        match &self.work {
            Work::Validate(Validation::ForEach(_)) => "rule passed".to_owned(),
            Work::Validate(Validation::Whole(Check::PodSecurity(_) | Check::Cel(_))) => {
                format!("Validation rule '{name}' passed.")
            }
            _ => format!("validation rule '{name}' passed."),
        }
    }
}

/// The consequence of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// The request is denied.
    Enforce,
    /// The request is admitted, and the violation recorded.
    Audit,
}

/// Overrides of a rule's action, in two lists. From each list the first override for the object counts, or else the
/// rule's action. A violation denies only if both lists say so, as in Kyverno, which asks twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// Overrides that decide whether the rule may deny: the rule's own, or else the policy's.
    pub(crate) before: Vec<Arc<Override>>,
    /// Overrides that decide the action: the rule's own, and behind them the policy's where the rule has no
    /// action itself.
    pub(crate) after: Vec<Arc<Override>>,
}

/// The failure action for some objects.
#[derive(Debug)]
pub(crate) struct Override {
    pub(crate) action: FailureAction,
    /// Names with wildcards; `None`: all.
    pub(crate) namespaces: Option<Vec<String>>,
    /// Selects by the labels of the namespace.
    pub(crate) selector: Option<Selector>,
}

/// The work of a rule.
#[derive(Debug)]
pub(crate) enum Work {
    /// `validate`: objects are judged.
    Validate(Validation),
    /// `mutate`: the object is changed.
    Mutate(Mutation),
    /// `mutations` of a `MutatingPolicy`: the object is changed.
    Patch(Box<CelMutation>),
    /// `mutate` with `targets`, and the existing objects of a `MutatingPolicy`.
    MutateExisting(MutateExisting),
}

/// The parts of a validation.
#[derive(Debug)]
pub(crate) enum Validation {
    /// The object is judged as a whole.
    Whole(Check),
    /// `foreach`: the rule is violated if any loop finds a violation.
    ForEach(Vec<ForEach>),
}

impl Validation {
    /// Returns the `foreach` of a validation.
    pub(crate) fn each(&self) -> &[ForEach] {
        match self {
            Self::Whole(_) => &[],
            Self::ForEach(all) => all,
        }
    }

    /// Returns whether it compares something with a pattern, or reads it whole otherwise.
    pub(crate) fn has_pattern(&self) -> bool {
        match self {
            Self::Whole(check) => !matches!(check, Check::Deny(_) | Check::Cel(_)),
            Self::ForEach(all) => all.iter().any(|each| each.work.has_pattern()),
        }
    }
}

/// The way in which one object or element is judged.
#[derive(Debug)]
pub(crate) enum Check {
    /// `deny`: a violation where these are met.
    Deny(Conditions),
    /// `pattern`: it is a violation if the pattern does not match.
    Pattern(ValueTemplate),
    /// `anyPattern`: it is a violation if none of these patterns matches.
    AnyPattern(Vec<ValueTemplate>),
    /// `podSecurity`: a violation where the Pod is less than its standard asks for.
    PodSecurity(PodSecurity),
    /// `cel`: it is a violation if one of the expressions is not true.
    Cel(Box<Cel>),
}

/// A `foreach`: the checks of each element of a list.
#[derive(Debug)]
pub(crate) struct ForEach {
    pub(crate) list: Prepared,
    /// The rule's entries, the element, and its own entries.
    pub(crate) context: Vec<Arc<ContextEntry>>,
    /// The number of entries that are the rule's.
    pub(crate) outer: usize,
    pub(crate) preconditions: Conditions,
    pub(crate) work: Validation,
    /// `elementScope`: whether a pattern is about the element, which has to be an object then. Where it
    /// does not say, it is about an element that is one.
    pub(crate) element_scope: Option<bool>,
}

impl ForEach {
    /// The context entries of this loop and of its inner loops.
    pub(crate) fn entries(&self) -> Vec<&Arc<ContextEntry>> {
        let own = self.context[self.outer..].iter();
        let inner = self.work.each().iter().flat_map(ForEach::entries);
        own.chain(inner).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Policy, compile};

    fn compiled(manifest: &Value) -> Policy {
        compile(manifest).unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    /// A policy whose only rule is about ConfigMaps, and has these fields.
    fn classic(resources: &Value, work: &Value) -> Policy {
        let mut rule = work.clone();
        rule["name"] = "r".into();
        rule["match"] = json!({"any": [{"resources": resources}]});
        compiled(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [rule]},
        }))
    }

    /// Labels every Pod that is named like this.
    fn on_pods(name: &str) -> Value {
        json!({"mutate": {
            "targets": [{"apiVersion": "v1", "kind": "Pod", "namespace": "{{ request.namespace }}", "name": name}],
            "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}},
        }})
    }

    #[test]
    fn the_entries_of_a_rule_are_those_of_its_loops_and_targets_too() {
        let context = json!([{"name": "inner", "variable": {"value": 1}}]);
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let list = "request.object.data.list";
        let deny = json!({"conditions": {"all": [{"key": "{{ element }}", "operator": "Equals", "value": "a"}]}});
        for work in [
            json!({"validate": {"foreach": [{"list": list, "context": context, "deny": deny}]}}),
            json!({"mutate": {"foreach": [{"list": list, "context": context, "patchStrategicMerge": patch}]}}),
            json!({"mutate": {
                "targets": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "context": context}],
                "patchStrategicMerge": patch,
            }}),
        ] {
            let policy = classic(&json!({"kinds": ["ConfigMap"]}), &work);
            let rule = &policy.rules()[0];
            let names: Vec<_> = rule.entries().map(|entry| entry.name.as_str()).collect();
            assert!(names.contains(&"inner"), "{work}: {names:?}");
        }
    }

    #[test]
    fn a_deletion_triggers_only_a_rule_that_names_it() {
        for (operations, by_deletion) in [
            (json!(null), false),
            (json!(["UPDATE"]), false),
            (json!(["UPDATE", "DELETE"]), true),
        ] {
            let mut resources = json!({"kinds": ["ConfigMap"]});
            if operations.is_array() {
                resources["operations"] = operations;
            }
            let policy = classic(&resources, &on_pods("web"));
            let rule = &policy.rules()[0];
            assert!(rule.is_triggered_by(Operation::Update), "{resources}");
            let found = rule.is_triggered_by(Operation::Delete);
            assert_eq!(found, by_deletion, "{resources}");
        }
    }

    #[test]
    fn a_target_is_known_beforehand_but_for_its_variables() {
        let policy = classic(&json!({"kinds": ["ConfigMap"]}), &on_pods("web-*"));
        let expected = ExistingObjects {
            target: Some(0),
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: "web-*".to_owned(),
            ..ExistingObjects::default()
        };
        assert_eq!(policy.rules()[0].targets_of_existing(), [expected]);
        let patch = json!({"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}});
        let own = classic(&json!({"kinds": ["ConfigMap"]}), &json!({"mutate": patch}));
        assert!(own.rules()[0].targets_of_existing().is_empty());
        // A rule on existing objects comes after all that change the object of the request.
        assert!(own.rules()[0].is_mutation() && !policy.rules()[0].is_mutation());
    }

    #[test]
    fn conditions_and_patches_are_programs_of_a_mutating_policy() {
        let constraints = json!({"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"],
        }]});
        let condition = "object.metadata.name == 'a'";
        let patch = r#"[JSONPatch{op: "add", path: "/data/a", value: "b"}]"#;
        for is_existing in [false, true] {
            let mut spec = json!({
                "matchConstraints": constraints, "mutations": [{"jsonPatch": {"expression": patch}}],
                "matchConditions": [{"name": "c", "expression": condition}],
            });
            if is_existing {
                spec["evaluation"] = json!({"mutateExisting": {"enabled": true}});
                spec["targetMatchConstraints"] = constraints.clone();
            }
            let policy = compiled(&json!({
                "apiVersion": "policies.kyverno.io/v1", "kind": "MutatingPolicy", "metadata": {"name": "p"},
                "spec": spec,
            }));
            let rule = &policy.rules()[0];
            assert_eq!(rule.changes_existing(), is_existing);
            let found: Vec<_> = rule.programs().map(|one| one.source().trim()).collect();
            for expected in [condition, patch] {
                assert!(found.contains(&expected), "{is_existing}: {found:?}");
            }
        }
    }
}

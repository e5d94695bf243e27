//! Checks whether a rule of a policy may see or change existing objects.
//!
//! These checks ignore label selectors, and values that only the trigger knows. Both narrow the rule's objects, and
//! no rule reaches beyond its kinds, namespaces and names.

mod in_cel;

use anteroom_functions::wildcard;
use anteroom_model::ExistingObjects;
use serde_json::Value;

use super::{Refusal, footprint::Footprint};
use crate::ir::{
    KindPattern, Policy, Rule, ServedKind,
    call::check_name,
    mutate_existing::{MutateExisting, TargetSpec},
    template::Template,
};

impl Policy {
    /// Permits rule `rule` to read these: they are one of its targets, or its triggers where those are looked
    /// for. Any of several rules with that name may.
    ///
    /// # Errors
    /// [`Refusal`], with the reason.
    pub fn permits_reading(&self, rule: &str, objects: &ExistingObjects) -> Result<(), Refusal> {
        if let Some(home) = self.namespace()
            && objects.namespace != home
        {
            return Err(differs(objects.target, outside(home)));
        }
        self.any_of(rule, objects.target, |rule, existing| {
            match objects.target {
                None => is_trigger(rule, existing, objects),
                Some(at) => {
                    if let Some(targets) = existing.in_cel() {
                        return in_cel::reads(targets, at, objects);
                    }
                    let spec = spec(existing, at)?;
                    check_kind(spec, &objects.group, &objects.version, &objects.kind)?;
                    let said = [
                        ("namespace", &objects.namespace, &spec.namespace),
                        ("name", &objects.name, &spec.name),
                    ];
                    // A `Policy` says nothing of its own namespace.
                    let home = self.namespace().is_some();
                    let mut said = said
                        .into_iter()
                        .filter(|(field, ..)| !home || *field == "name");
                    said.try_for_each(|(field, text, own)| check_asked(field, text, own.as_ref()))
                }
            }
        })
    }

    /// Permits rule `rule` to change this object of target `target`: it has the target's kind, which the API server serves
    /// as `resource`, and a namespace and name that the target can mean.
    ///
    /// # Errors
    /// [`Refusal`], with the reason.
    pub fn permits_writing(
        &self,
        rule: &str,
        target: usize,
        object: &Value,
        resource: &str,
    ) -> Result<(), Refusal> {
        self.permits_target(rule, target, object, resource, |_| Ok(()))
    }

    /// Permits rule `rule` to change this object of target `target` to `after`, if the rule's patches can change
    /// every field that differs. So the watcher need not trust the sender of the write.
    ///
    /// # Errors
    /// [`Refusal`], with the first path that they do not change.
    pub fn permits_change(
        &self,
        rule: &str,
        target: usize,
        before: &Value,
        after: &Value,
        resource: &str,
    ) -> Result<(), Refusal> {
        self.permits_target(rule, target, after, resource, |spec| {
            let covered = Footprint::of(&spec.work).covers(before, after);
            covered.map_err(|path| format!("the rule does not change `{path}`"))
        })
    }

    fn permits_target(
        &self,
        rule: &str,
        target: usize,
        object: &Value,
        resource: &str,
        check: impl Fn(&TargetSpec) -> Result<(), String>,
    ) -> Result<(), Refusal> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        if let Err(reason) = check_name(&name) {
            return Err(differs(Some(target), reason));
        }
        if let Some(home) = self.namespace()
            && namespace != home
        {
            return Err(differs(Some(target), outside(home)));
        }
        let api_version = text(&object["apiVersion"]);
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        self.any_of(rule, Some(target), |_, existing| {
            if let Some(targets) = existing.in_cel() {
                // Expressions may change all of it.
                return in_cel::writes(targets, target, group, version, resource, &name);
            }
            let spec = spec(existing, target)?;
            check_kind(spec, group, version, &text(&object["kind"]))?;
            check_found("name", &name, spec.name.as_ref())?;
            if self.namespace().is_none() {
                check_found("namespace", &namespace, spec.namespace.as_ref())?;
            }
            check(spec)
        })
    }

    fn any_of(
        &self,
        rule: &str,
        target: Option<usize>,
        check: impl Fn(&Rule, &MutateExisting) -> Result<(), String>,
    ) -> Result<(), Refusal> {
        let mut refused = None;
        for found in self.rules.iter().filter(|found| found.name == rule) {
            let Some(existing) = found.existing() else {
                continue;
            };
            match check(found, existing) {
                Ok(()) => return Ok(()),
                Err(reason) => refused = Some(reason),
            }
        }
        Err(match refused {
            Some(reason) => differs(target, reason),
            None => Refusal::Unknown {
                rule: rule.to_owned(),
                variable: place(target),
            },
        })
    }
}

fn spec(existing: &MutateExisting, at: usize) -> Result<&TargetSpec, String> {
    let spec = existing.targets().get(at);
    spec.ok_or_else(|| "the rule has no such target".to_owned())
}

fn check_kind(spec: &TargetSpec, group: &str, version: &str, kind: &str) -> Result<(), String> {
    match (&*spec.group, &*spec.version, &*spec.kind) == (group, version, kind) {
        true => Ok(()),
        false => Err(format!("its kind is not {}", spec.kind)),
    }
}

/// Checks a text that is asked for against the policy's own.
fn check_asked(field: &str, text: &str, own: Option<&Template>) -> Result<(), String> {
    // Such a text would lead to a different path than the field names.
    if text.contains(['/', '%']) || matches!(text, "." | "..") {
        return Err(format!("its {field} `{text}` is no name"));
    }
    let fits = match own {
        None => text.is_empty(),
        Some(own) => !text.is_empty() && own.can_be(text, |_| true),
    };
    as_said(fits, field, own)
}

/// Checks a text that was found: a variable may have had wildcards in it, as the policy's text may.
fn check_found(field: &str, text: &str, own: Option<&Template>) -> Result<(), String> {
    let fits = own.is_none_or(|own| wildcard::matches(&own.sample("*"), text));
    as_said(fits, field, own)
}

fn as_said(fits: bool, field: &str, own: Option<&Template>) -> Result<(), String> {
    match fits {
        true => Ok(()),
        false => {
            let own = own.map_or("", Template::source);
            Err(format!("its {field} is not `{own}`"))
        }
    }
}

fn is_trigger(
    rule: &Rule,
    existing: &MutateExisting,
    objects: &ExistingObjects,
) -> Result<(), String> {
    let name = &objects.name;
    // A trigger is looked up by name after its request, to learn the outcome of the request.
    if name.is_empty() && !existing.on_policy_update {
        return Err("what exists is no trigger of the rule".to_owned());
    }
    check_asked_trigger(objects)?;
    let served = ServedKind {
        group: &objects.group,
        version: &objects.version,
        kind: &objects.kind,
        resource: &objects.resource,
        subresource: "",
    };
    let covers = |pattern: &KindPattern| pattern.covers_any_subresource(served);
    let is_named = match name.is_empty() {
        true => rule.kinds_on_policy_update().iter().any(covers),
        false => rule.kinds().any(covers),
    };
    match is_named {
        true => Ok(()),
        false => Err(format!("the rule does not match {}", objects.kind)),
    }
}

/// Checks that a trigger is asked for by one name, or that all are.
fn check_asked_trigger(objects: &ExistingObjects) -> Result<(), String> {
    let is_plain = |text: &str| !text.contains(['/', '%', '*', '?']) && !matches!(text, "." | "..");
    let texts = [("name", &objects.name), ("namespace", &objects.namespace)];
    match texts.into_iter().find(|(_, text)| !is_plain(text)) {
        Some((field, text)) => Err(format!("its {field} `{text}` is no name")),
        None => Ok(()),
    }
}

fn outside(home: &str) -> String {
    format!("a policy of namespace `{home}` has no targets outside it")
}

fn place(target: Option<usize>) -> String {
    match target {
        Some(at) => format!("mutate.targets[{at}]"),
        None => "match".to_owned(),
    }
}

fn differs(target: Option<usize>, reason: String) -> Refusal {
    Refusal::Differs {
        variable: place(target),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(kind: &str, target: &Value) -> Policy {
        let manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": kind,
            "metadata": {"name": "p", "namespace": "own"},
            "spec": {"mutateExistingOnPolicyUpdate": true, "rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "mutate": {"targets": [target], "patchStrategicMerge": {"data": {"a": "b"}}},
            }]},
        });
        let driver = crate::ir::Driver {
            targets: true,
            ..crate::ir::Driver::ALL
        };
        crate::compile_for(&manifest, driver).unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    fn object(namespace: &str, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name}})
    }

    fn asked(target: Option<usize>, kind: &str, namespace: &str, name: &str) -> ExistingObjects {
        ExistingObjects {
            target,
            version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..ExistingObjects::default()
        }
    }

    #[test]
    fn only_targets_of_the_rule_may_be_read_or_written() {
        let target = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "shop",
            "name": "web-*-{{ request.name }}"});
        let policy = policy("ClusterPolicy", &target);
        for (objects, permitted) in [
            (asked(Some(0), "Pod", "shop", "web-*-x"), true),
            (asked(Some(0), "Pod", "shop", "web-1-x"), false),
            (asked(Some(0), "Pod", "shop", ""), false),
            (asked(Some(0), "Pod", "", "web-*-x"), false),
            (asked(Some(0), "Node", "shop", "web-*-x"), false),
            (asked(Some(1), "Pod", "shop", "web-*-x"), false),
            (asked(None, "ConfigMap", "", ""), true),
            (asked(None, "ConfigMap", "shop", "c"), true),
            (asked(None, "ConfigMap", "shop", "c*"), false),
            (asked(None, "ConfigMap", "shop/../x", "c"), false),
            (asked(None, "Pod", "", ""), false),
            (asked(None, "Pod", "shop", "x"), false),
        ] {
            let found = policy.permits_reading("r", &objects);
            assert_eq!(found.is_ok(), permitted, "{objects}: {found:?}");
        }
        for (object, permitted) in [
            (object("shop", "web-1-x"), true),
            (object("shop", "api-1-x"), false),
            (object("other", "web-1-x"), false),
            (object("shop", "web-/../x"), false),
            (
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "web-1-x"}}),
                false,
            ),
        ] {
            let found = policy.permits_writing("r", 0, &object, "pods");
            assert_eq!(found.is_ok(), permitted, "{object}: {found:?}");
        }
        assert!(
            policy
                .permits_writing("other", 0, &object("shop", "web-1-x"), "pods")
                .is_err()
        );
        assert!(
            policy
                .permits_writing("r", 1, &object("shop", "web-1-x"), "pods")
                .is_err()
        );
    }

    #[test]
    fn a_rule_reads_its_trigger_by_name_alone_unless_it_runs_on_policy_update() {
        let target = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "shop"});
        let mut policy = policy("ClusterPolicy", &target);
        for rule in &mut policy.rules {
            if let crate::ir::rule::Work::MutateExisting(existing) = &mut rule.work {
                existing.on_policy_update = false;
            }
        }
        let reads = |name| policy.permits_reading("r", &asked(None, "ConfigMap", "shop", name));
        assert_eq!(reads("c"), Ok(()));
        assert!(reads("").is_err());
    }

    #[test]
    fn a_variable_in_a_target_may_only_yield_a_name() {
        let targets = json!({"apiVersion": "v1", "kind": "Pod",
            "namespace": "{{ request.namespace }}", "name": "{{ request.object.data.pod }}"});
        let policy = policy("ClusterPolicy", &targets);
        let of = |namespace: &str, name: &str| {
            policy.permits_reading("r", &asked(Some(0), "Pod", namespace, name))
        };
        assert_eq!(of("shop", "web.1-*"), Ok(()));
        for text in ["a/secrets/b", "a%2Fb", "..", "."] {
            assert!(of("shop", text).is_err(), "{text}");
            assert!(of(text, "web").is_err(), "{text}");
        }
    }

    #[test]
    fn a_namespaced_policy_has_no_targets_outside() {
        let policy = policy("Policy", &json!({"apiVersion": "v1", "kind": "Pod"}));
        assert_eq!(
            policy.permits_writing("r", 0, &object("own", "a"), "pods"),
            Ok(())
        );
        assert!(
            policy
                .permits_writing("r", 0, &object("other", "a"), "pods")
                .is_err()
        );
        let cluster_scoped = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        assert!(
            policy
                .permits_writing("r", 0, &cluster_scoped, "pods")
                .is_err()
        );
        let mine = asked(Some(0), "Pod", "own", "");
        assert_eq!(policy.permits_reading("r", &mine), Ok(()));
        assert!(
            policy
                .permits_reading("r", &asked(Some(0), "Pod", "", ""))
                .is_err()
        );
        assert!(
            policy
                .permits_reading("r", &asked(None, "ConfigMap", "", ""))
                .is_err()
        );
    }
}

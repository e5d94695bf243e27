//! The admission of policies themselves, and of exceptions from them. Pure.
//!
//! | finding | result |
//! |---|---|
//! | the policy may not read a source that it names | refused |
//! | it is malformed: an unknown field, an expression that cannot be parsed, a cycle | refused |
//! | something that Kyverno knows and this version does not evaluate | a warning: the policy is not in force |
//! | some of its rules are not run here, as of `generate` or `validate.assert` | a warning for each |
//! | a header of a `service` holds a credential in the clear | a warning for each |
//!
//! Each finding names the field, in the words that the policy's status would have. A policy with parts that this
//! version does not evaluate is not refused: an older version of this program must not prevent the installation of a
//! policy that a newer one evaluates.

mod credentials;

use anteroom_engine::{catalog::Catalog, facts::BusFacts, rule::RuleRef};
use anteroom_model::{ErrorCode, ExistingObjects, FactError, ObjectKey};
use anteroom_policy::{Driver, NotRun, Policy, PolicyException, PolicyKind, Problem, compile};
use futures::future::join_all;
use serde_json::Value;
use tokio::time::Instant;

/// Kinds and places of objects that exist of which it is asked whether they may be written.
const WRITES_ASKED_MAX: usize = 16;

/// The answer to a policy that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admission {
    /// The reasons for a refusal; empty: the write is admitted.
    pub(crate) refused: Vec<String>,
    /// Warnings for its author.
    pub(crate) warnings: Vec<String>,
    /// The existing objects that its rules change, each kind and place once. The author is warned if they may not be
    /// written.
    pub(crate) writes: Vec<(String, ExistingObjects)>,
}

/// Judges a policy as the request has it. Entries that are not known are no finding, since they may be created later,
/// and the policy's status reports them. `before` is the policy's earlier state: a change of other fields than the spec,
/// such as finalizers, has no findings.
pub(crate) fn judge(
    manifest: &Value,
    before: Option<&Value>,
    catalog: Option<&Catalog>,
) -> Admission {
    if before.is_some_and(|before| before["spec"] == manifest["spec"]) {
        return Admission::default();
    }
    if manifest["kind"] == "PolicyException" {
        let problems = PolicyException::compile(manifest, Driver::IN_CLUSTER).err();
        return problems.map_or_else(Admission::default, |found| of_problems(found, "exception"));
    }
    match compile(manifest) {
        Ok(policy) => Admission {
            refused: catalog.map_or_else(Vec::new, |catalog| refused_entries(&policy, catalog)),
            warnings: (policy.not_run().iter().map(passed_over))
                .chain(credentials::warnings(manifest))
                .collect(),
            writes: writes(&policy),
        },
        Err(problems) => of_problems(problems, "policy"),
    }
}

impl Admission {
    /// Warns of existing objects that the policy or the watcher may not change. If the rights are not known, there is
    /// no warning: an Event then says why the change did not come.
    pub(crate) async fn ask_for_writes(
        &mut self,
        policy: &ObjectKey,
        facts: &BusFacts,
        deadline: Instant,
    ) {
        let writes = std::mem::take(&mut self.writes);
        if !self.refused.is_empty() {
            return;
        }
        let asked = writes.into_iter().map(async |(rule, objects)| {
            let reader = RuleRef {
                policy: policy.clone(),
                rule,
            };
            let lacks = facts.lacks_to_write(&reader, objects, deadline).await;
            let lacks = lacks.ok().flatten()?;
            // A policy of policies.kyverno.io has no names of rules.
            Some(match &*reader.rule {
                "" => format!("the policy may change nothing: {lacks}"),
                rule => format!("rule `{rule}` may change nothing: {lacks}"),
            })
        });
        self.warnings
            .extend(join_all(asked).await.into_iter().flatten());
    }
}

fn of_problems(problems: Vec<Problem>, what: &str) -> Admission {
    let is_later = |problem: &Problem| problem.code == ErrorCode::POLICY_UNSUPPORTED;
    let (later, refused): (Vec<_>, Vec<_>) = problems.into_iter().partition(is_later);
    let warning = |problem: &Problem| format!("the {what} is not in force: {problem}");
    Admission {
        refused: refused.iter().map(ToString::to_string).collect(),
        warnings: later.iter().map(warning).collect(),
        writes: Vec::new(),
    }
}

fn passed_over(NotRun { rule, path, .. }: &NotRun) -> String {
    format!(
        "rule `{rule}` is not run here: {path} is not supported; the policy's other rules are run"
    )
}

/// The existing objects that the rules change, each with the first rule that does.
fn writes(policy: &Policy) -> Vec<(String, ExistingObjects)> {
    let mut writes: Vec<(String, ExistingObjects)> = Vec::new();
    for rule in policy.rules_on_existing() {
        for mut objects in rule.targets_of_existing() {
            objects.target = None;
            if let Some(own) = policy.namespace() {
                own.clone_into(&mut objects.namespace);
            }
            if !writes.iter().any(|(_, known)| *known == objects) {
                writes.push((rule.name().to_owned(), objects));
            }
        }
    }
    writes.truncate(WRITES_ASKED_MAX);
    writes
}

/// The entries that a namespaced policy may not read, as they are now.
fn refused_entries(policy: &Policy, catalog: &Catalog) -> Vec<String> {
    let Some(own) = policy.namespace() else {
        return Vec::new();
    };
    let refused = policy.entries().filter_map(|(kind, name)| {
        let record = catalog.entry(kind, name).ok()?;
        let error = match record.binding_within(Some(own)) {
            Ok(binding) if binding.secret => FactError::SecretForbidden {
                reader: PolicyKind::describe(&policy.key()),
            },
            Err(error @ FactError::OutsideNamespace { .. }) => error,
            _ => return None,
        };
        Some(format!("{} {error}", error.code()))
    });
    refused.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(kind: &str, context: &Value) -> Value {
        let mut context = context.clone();
        context["name"] = "x".into();
        json!({
            "apiVersion": "kyverno.io/v1", "kind": kind,
            "metadata": { "name": "p", "namespace": "own" },
            "spec": { "rules": [{ "name": "r", "context": [context],
                "match": { "any": [{ "resources": { "kinds": ["Pod"] } }] },
                "validate": { "deny": {} } }] },
        })
    }

    /// Every kind of context entry that names its source in the manifest.
    #[test]
    fn a_policy_that_reads_outside_its_namespace_is_refused() {
        for context in [
            json!({ "configMap": { "name": "c", "namespace": "other" } }),
            json!({ "apiCall": { "urlPath": "/api/v1/namespaces/other/pods" } }),
            json!({ "apiCall": { "urlPath": "/api/v1/pods" } }),
            json!({ "apiCall": { "service": { "url": "https://s/" } } }),
            json!({ "resourceCache": { "version": "v1", "kind": "pods", "namespace": "other" } }),
        ] {
            let admission = judge(&policy("Policy", &context), None, None);
            assert!(
                admission
                    .refused
                    .iter()
                    .all(|why| why.starts_with("AR304 spec.rules[0]")),
                "{admission:?}"
            );
            assert!(!admission.refused.is_empty(), "{context}");
            let admission = judge(&policy("ClusterPolicy", &context), None, None);
            assert_eq!(admission, Admission::default(), "{context}");
        }
        for context in [
            json!({ "configMap": { "name": "c", "namespace": "own" } }),
            json!({ "configMap": { "name": "c", "namespace": "{{ request.object.x }}" } }),
            json!({ "cachedContextEntry": { "name": "unknown" } }),
        ] {
            let admission = judge(&policy("Policy", &context), None, Some(&Catalog::default()));
            assert_eq!(admission, Admission::default(), "{context}");
        }
    }

    #[test]
    fn a_refused_policy_that_exists_may_still_lose_its_finalizers() {
        let outside = json!({ "apiCall": { "urlPath": "/version" } });
        let before = policy("Policy", &outside);
        let mut after = before.clone();
        after["metadata"]["finalizers"] = json!([]);
        assert_eq!(judge(&after, Some(&before), None), Admission::default());
        after["spec"]["background"] = false.into();
        assert_eq!(judge(&after, Some(&before), None).refused.len(), 1);
    }

    #[test]
    fn a_policy_with_an_unsupported_part_is_admitted_with_a_warning() {
        let mut manifest = policy("ClusterPolicy", &json!({ "variable": { "value": 1 } }));
        let secrets = json!([{ "apiVersion": "v1", "kind": "Secret" }]);
        let targets = json!({ "targets": secrets, "patchStrategicMerge": {} });
        manifest["spec"]["rules"][0]["mutate"] = targets;
        let rule = manifest["spec"]["rules"][0].as_object_mut().unwrap();
        rule.remove("validate");
        let admission = judge(&manifest, None, None);
        assert_eq!(admission.refused, Vec::<String>::new());
        let warnings = &admission.warnings;
        assert!(!warnings.is_empty());
        assert!(warnings[0].starts_with("the policy is not in force: AR301 spec.rules[0].mutate"));
        let credentials = json!({ "providers": ["default", "amazon"] });
        let image = json!({ "reference": "a", "imageRegistryCredentials": credentials });
        let context = json!({ "imageRegistry": image });
        let admission = judge(&policy("ClusterPolicy", &context), None, None);
        assert_eq!(admission.refused, Vec::<String>::new());
        let told = "imageRegistryCredentials.providers: registries are signed in to by";
        assert!(admission.warnings[0].contains(told), "{admission:?}");
    }

    #[test]
    fn a_malformed_policy_is_refused_with_the_path_of_its_field() {
        let fine = policy("ClusterPolicy", &json!({ "variable": { "value": 1 } }));
        assert_eq!(judge(&fine, None, None), Admission::default());
        for (path, value, field) in [
            ("/spec/rules/0/nope", json!(1), "spec.rules[0].nope"),
            (
                "/spec/rules/0/context/0/variable",
                json!({ "jmesPath": "a[" }),
                "spec.rules[0].context[0].variable.jmesPath",
            ),
            ("/spec/rules/0/name", json!(5), "spec.rules[0].name"),
        ] {
            let mut manifest = fine.clone();
            let (parent, name) = path.rsplit_once('/').unwrap();
            manifest.pointer_mut(parent).unwrap()[name] = value;
            let refused = judge(&manifest, None, None).refused;
            assert_eq!(refused.len(), 1, "{path}: {refused:?}");
            assert!(
                refused[0].starts_with(&format!("AR302 {field}")),
                "{refused:?}"
            );
            // An update that only removes finalizers is always admitted.
            assert_eq!(
                judge(&manifest, Some(&manifest), None),
                Admission::default()
            );
        }
    }

    #[test]
    fn each_rule_that_is_not_run_gets_a_warning() {
        let mut manifest = policy("ClusterPolicy", &json!({ "variable": { "value": 1 } }));
        let mut other = manifest["spec"]["rules"][0].clone();
        other["name"] = "made".into();
        other["generate"] = json!({ "kind": "ConfigMap" });
        other.as_object_mut().unwrap().remove("validate");
        let rules = manifest["spec"]["rules"].as_array_mut().unwrap();
        rules.push(other);
        let admission = judge(&manifest, None, None);
        assert_eq!(admission.refused, Vec::<String>::new());
        assert_eq!(admission.warnings.len(), 1);
        let told = "rule `made` is not run here: spec.rules[1].generate is not supported";
        assert!(admission.warnings[0].starts_with(told));
    }

    #[test]
    fn a_policy_exception_without_effect_gets_a_warning_on_admission() {
        let exception = |spec: &Value| {
            let manifest = json!({
                "apiVersion": "kyverno.io/v2", "kind": "PolicyException",
                "metadata": { "name": "e", "namespace": "n" }, "spec": spec,
            });
            judge(&manifest, None, None)
        };
        let matching = json!({ "any": [{ "resources": { "kinds": ["Pod"] } }] });
        let names = json!([{ "policyName": "p", "ruleNames": ["r"] }]);
        let sound = exception(&json!({ "match": matching, "exceptions": names }));
        assert_eq!(sound, Admission::default());
        for (spec, field) in [
            (json!({ "match": matching }), "spec.exceptions"),
            (
                json!({ "match": matching, "exceptions": names, "nope": 1 }),
                "spec.nope",
            ),
        ] {
            let admission = exception(&spec);
            assert_eq!(admission.refused.len(), 1, "{admission:?}");
            let start = format!("AR302 {field}");
            assert!(admission.refused[0].starts_with(&start), "{admission:?}");
        }
    }
}

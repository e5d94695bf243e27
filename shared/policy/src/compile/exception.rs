//! Compiles the custom resource `PolicyException`.

use serde_json::Value;

use super::{
    cel_exception, conditions,
    expressions::RootNames,
    fields::{Field, KnownFields, ManifestObject},
    pod_security, resources,
};
use crate::ir::{
    Driver, MANIFEST_DEPTH_MAX, PolicyException, Problem, cost,
    exception::Covered,
    manifest::is_deeper_than,
    matching::{Match, Matches},
    problem::Problems,
    subquery::ExpressionIds,
};

const EXCEPTION_MANIFEST: KnownFields = KnownFields {
    evaluated: &["apiVersion", "kind", "metadata", "spec"],
    inert: &["status"],
    later: &[],
};

/// The versions that are served; they have the same fields.
const VERSIONS: &[&str] = &["kyverno.io/v2", "kyverno.io/v2beta1", "kyverno.io/v2alpha1"];

const EXCEPTION_SPEC: KnownFields = KnownFields {
    evaluated: &[
        "background",
        "conditions",
        "exceptions",
        "match",
        "podSecurity",
    ],
    inert: &[],
    later: &[],
};

const EXCEPTED_RULES: KnownFields = KnownFields {
    evaluated: &["policyName", "ruleNames"],
    inert: &[],
    later: &[],
};

impl PolicyException {
    /// Compiles an exception of kyverno.io/v2 or an earlier version, or of policies.kyverno.io, for evaluations that are driven by `driver`.
    ///
    /// # Errors
    /// Every problem. An exception that does not compile exempts nothing.
    pub fn compile(manifest: &Value, driver: Driver) -> Result<Self, Vec<Problem>> {
        cost::limited(|| {
            let mut problems = Problems::new(driver, ExpressionIds::of_exception());
            let found = if is_deeper_than(manifest, MANIFEST_DEPTH_MAX) {
                let message = format!("the manifest nests deeper than {MANIFEST_DEPTH_MAX} levels");
                problems.invalid("", message);
                None
            } else {
                compile_exception(&Field::root(manifest), &mut problems)
            };
            match found {
                Some(found) if problems.is_empty() => Ok(found),
                _ => Err(problems.into_vec()),
            }
        })
    }
}

/// The parts that exceptions of both groups have.
pub(super) struct ExceptionHead<'m> {
    pub(super) metadata: Field<'m>,
    pub(super) name: &'m str,
    pub(super) namespace: &'m str,
    pub(super) spec: Field<'m>,
}

/// Reads the parts that exceptions of both groups have. `versions` are the served ones.
pub(super) fn exception_head<'m>(
    manifest: &Field<'m>,
    versions: &[&str],
    problems: &mut Problems,
) -> Option<ExceptionHead<'m>> {
    let manifest = manifest.object(&EXCEPTION_MANIFEST, problems)?;
    if let Some(version) = manifest.required("apiVersion", problems) {
        version.known_text(versions, problems);
    }
    if let Some(kind) = manifest.required("kind", problems) {
        kind.known_text(&["PolicyException"], problems);
    }
    let metadata = manifest.required("metadata", problems)?;
    Some(ExceptionHead {
        name: metadata.text_at("name").unwrap_or_default(),
        namespace: metadata.text_at("namespace").unwrap_or("default"),
        metadata,
        spec: manifest.required("spec", problems)?,
    })
}

fn compile_exception(manifest: &Field<'_>, problems: &mut Problems) -> Option<PolicyException> {
    if cel_exception::is_one(manifest) {
        return cel_exception::compile(manifest, problems);
    }
    let ExceptionHead {
        name,
        namespace,
        spec,
        ..
    } = exception_head(manifest, VERSIONS, problems)?;
    let spec = spec.object(&EXCEPTION_SPEC, problems)?;
    let matches = matches(&spec, problems);
    let exceptions = spec.required("exceptions", problems)?;
    let fields = exceptions.list(problems);
    if fields.is_empty() {
        problems.invalid(exceptions.path(), "it is empty");
    }
    let covers = fields.iter().filter_map(|field| covered(field, problems));
    let covers: Vec<_> = covers.collect();
    let background = spec
        .get("background")
        .and_then(|field| field.boolean(problems));
    let conditions = spec.get("conditions");
    let conditions =
        conditions.map(|field| conditions::compile(Some(field), &RootNames::open(), problems));
    let controls = spec.get("podSecurity");
    let controls = controls.map_or(Some(Vec::new()), |field| {
        pod_security::exclusions(&field, problems)
    });
    Some(PolicyException {
        name: format!("{namespace}/{name}"),
        matches: matches?,
        covers,
        conditions,
        controls: controls?,
        background: background.unwrap_or(true),
        in_cel: None,
    })
}

/// Compiles `match`, which has `any` or `all`. In Kyverno, an exception with neither exempts nothing. The older form
/// without both is none here: the API server drops its `resources`.
fn matches(spec: &ManifestObject<'_>, problems: &mut Problems) -> Option<Matches> {
    let has_list = |field: &Field<'_>| {
        let lists = ["any", "all"].into_iter();
        lists
            .map(|name| &field.value()[name])
            .any(|list| !list.is_null())
    };
    if let Some(field) = spec.get("match")
        && field.value().is_object()
        && !has_list(&field)
    {
        problems.invalid(field.path(), "any or all is required");
        return None;
    }
    let matches = resources::compile(spec, problems).map(Match::sparing);
    matches.map(Matches::Filters)
}

fn covered(field: &Field<'_>, problems: &mut Problems) -> Option<Covered> {
    let exception = field.object(&EXCEPTED_RULES, problems)?;
    let policy = exception.required("policyName", problems);
    let rules = exception.required("ruleNames", problems);
    Some(Covered {
        policy: policy?.plain_text(problems)?,
        rules: rules?.texts(problems),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{AdmissionRequest, Evaluation, Rule, RuleStep, compile};

    fn exception(spec: &Value) -> Result<PolicyException, String> {
        let manifest = json!({
            "apiVersion": "kyverno.io/v2", "kind": "PolicyException",
            "metadata": {"name": "e", "namespace": "ns"}, "spec": spec,
        });
        PolicyException::compile(&manifest, Driver::ALL).map_err(|problems| problems[0].to_string())
    }

    #[test]
    fn an_exception_covers_its_named_rules_for_matching_objects() {
        let pods = json!({"any": [{"resources": {"kinds": ["Pod"]}}]});
        let policy = compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [
                {"name": "one", "match": pods, "validate": {"pattern": {"spec": {"a": 1}}}},
                {"name": "two", "match": pods, "validate": {"pattern": {"spec": {"a": 1}}}},
            ]},
        }))
        .unwrap();
        let request = |name: &str| {
            AdmissionRequest::new(json!({
                "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "object": {"metadata": {"name": name}},
            }))
            .unwrap()
        };
        let covered = |spec: &Value, name: &str| -> Vec<String> {
            let exception = exception(spec).unwrap();
            let rules = policy.rules().iter();
            let request = request(name);
            let is_covered = |rule: &&Rule| {
                let evaluation = Evaluation::start(&policy, rule, &request);
                let mut evaluation = evaluation.with_exceptions([&exception]);
                let RuleStep::Done(report) = evaluation.step() else {
                    panic!("nothing is to be asked");
                };
                report.excepted_by == ["ns/e"]
            };
            rules
                .filter(is_covered)
                .map(|rule| rule.name().to_owned())
                .collect()
        };
        let spec = |policy: &str, rules: &[&str]| {
            json!({
                "match": {"any": [{"resources": {"kinds": ["Pod"], "names": ["old-*"]}}]},
                "exceptions": [{"policyName": policy, "ruleNames": rules}],
            })
        };
        assert_eq!(covered(&spec("p", &["one"]), "old-1"), ["one"]);
        assert_eq!(covered(&spec("p", &["one"]), "new"), [""; 0]);
        assert_eq!(covered(&spec("q", &["one"]), "old-1"), [""; 0]);
        // A rule for Deployments says nothing of a Pod anyway.
        assert_eq!(
            covered(&spec("p", &["t*", "autogen-one"]), "old-1"),
            ["two"]
        );
    }

    #[test]
    fn a_malformed_exception_is_refused_with_its_reason() {
        let of = |change: &Value| {
            let mut spec = json!({
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "exceptions": [{"policyName": "p", "ruleNames": ["r"]}],
            });
            for (key, value) in change.as_object().unwrap() {
                spec[key] = value.clone();
            }
            exception(&spec).map(|_| ())
        };
        assert_eq!(of(&json!({})), Ok(()));
        for (change, says) in [
            (
                json!({"conditions": {"every": []}}),
                "AR302 spec.conditions.every",
            ),
            (
                json!({"conditions": {"any": [{"key": "{{ nothing() }}", "operator": "Equals"}]}}),
                "AR302 spec.conditions.any[0].key",
            ),
            (
                json!({"podSecurity": [{"controlName": "Sleep"}]}),
                "AR302 spec.podSecurity[0].controlName",
            ),
            (json!({"background": "no"}), "AR302 spec.background"),
            (
                json!({"exceptions": []}),
                "AR302 spec.exceptions: it is empty",
            ),
            (
                json!({"exceptions": [{"policyName": "p"}]}),
                "AR302 spec.exceptions[0].ruleNames",
            ),
            (json!({"match": null}), "AR302 spec.match: it is required"),
            (
                json!({"match": {}}),
                "AR302 spec.match: any or all is required",
            ),
            (
                json!({"match": {"resources": {"kinds": ["Pod"]}}}),
                "AR302 spec.match: any or all is required",
            ),
            (json!({"mach": {}}), "AR302 spec.mach: unknown field"),
        ] {
            let error = of(&change).unwrap_err();
            assert!(error.starts_with(says), "{change}: {error}");
        }
    }
}

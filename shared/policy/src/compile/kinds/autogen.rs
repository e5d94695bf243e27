//! The rules for Pod controllers that Kyverno derives from a policy on Pods.
//!
//! Rules are derived only from a policy with exactly one resource rule, on Pods of `v1`. That rule may not select by
//! anything that a template need not share with its controller.

use super::{
    super::fields::{Field, KnownFields, ManifestObject},
    constraints,
};
use crate::ir::{
    KindPattern, Rule,
    matching::{Constraints, ResourceRule},
    problem::Problems,
};

const AUTOGEN: KnownFields = KnownFields {
    evaluated: &["podControllers"],
    // A native policy would be made of this one; it is evaluated here instead.
    inert: &["mutatingAdmissionPolicy", "validatingAdmissionPolicy"],
    later: &[],
};

const POD_CONTROLLERS: KnownFields = KnownFields {
    evaluated: &["controllers"],
    inert: &[],
    later: &[],
};

/// Group, version and plural of the kinds whose template is `spec.template`.
const CONTROLLERS: &[(&str, &str, &str)] = &[
    ("apps", "v1", "daemonsets"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "replicasets"),
    ("apps", "v1", "statefulsets"),
    ("batch", "v1", "jobs"),
];

const CRON_JOBS: &[(&str, &str, &str)] = &[("batch", "v1", "cronjobs")];

/// A derived rule.
struct CelAutogenRule {
    /// The name in the policy's status.
    name: &'static str,
    /// The path from the object to the template of its Pods.
    template: &'static [&'static str],
    constraints: Constraints,
}

/// Returns the policy's own rule and its derived rules. `rule` compiles the rule with a name, its constraints, and the
/// path to the template of Pods; `field` has the constraints.
pub(super) fn rules(
    spec: &ManifestObject<'_>,
    field: &Field<'_>,
    constraints: Constraints,
    rule: impl Fn(&str, Constraints, &[&str], &mut Problems) -> Option<Rule>,
    problems: &mut Problems,
) -> Option<Vec<Rule>> {
    let derived = derive(spec, field, &constraints, problems);
    let mut rules = vec![rule("", constraints, &[], problems)?];
    for derived in derived {
        // Derived rules of a faulty policy would repeat its problems.
        if !problems.is_empty() {
            break;
        }
        rules.extend(rule(
            derived.name,
            derived.constraints,
            derived.template,
            problems,
        ));
    }
    Some(rules)
}

/// The rules that are derived of a policy with these constraints.
fn derive(
    spec: &ManifestObject<'_>,
    field: &Field<'_>,
    constraints: &Constraints,
    problems: &mut Problems,
) -> Vec<CelAutogenRule> {
    let wanted = controllers(spec, problems);
    if !is_on_pods_alone(constraints) {
        return Vec::new();
    }
    let shapes = [
        ("defaults", CONTROLLERS, &["spec", "template"][..]),
        (
            "cronjobs",
            CRON_JOBS,
            &["spec", "jobTemplate", "spec", "template"],
        ),
    ];
    let derived = shapes.into_iter().filter_map(|(name, kinds, template)| {
        let is_wanted = |plural: &str| {
            let wanted = wanted.as_ref();
            wanted.is_none_or(|wanted| wanted.iter().any(|one| one == plural))
        };
        let kinds = kinds.iter().filter(|(_, _, plural)| is_wanted(plural));
        let kinds: Vec<_> = kinds
            .map(|(group, version, plural)| KindPattern::of_resource(group, version, plural, true))
            .collect();
        if kinds.is_empty() {
            return None;
        }
        // The selector of namespaces is the policy's own.
        let own = constraints::compile(field, problems)?;
        let include = own.include.into_iter().map(|rule| ResourceRule {
            kinds: kinds.clone(),
            ..rule
        });
        Some(CelAutogenRule {
            name,
            template,
            constraints: Constraints {
                include: include.collect(),
                exclude: Vec::new(),
                ..own
            },
        })
    });
    derived.collect()
}

/// The plurals that the policy names; `None`: it names none, and means all.
fn controllers(spec: &ManifestObject<'_>, problems: &mut Problems) -> Option<Vec<String>> {
    let autogen = spec.get("autogen")?.object(&AUTOGEN, problems)?;
    let controllers = autogen.get("podControllers")?;
    let controllers = controllers.object(&POD_CONTROLLERS, problems)?;
    Some(controllers.get("controllers")?.texts(problems))
}

fn is_on_pods_alone(constraints: &Constraints) -> bool {
    let Constraints {
        include,
        exclude,
        object_selector,
        namespace_selector: _,
    } = constraints;
    let [rule] = &**include else {
        return false;
    };
    let [kind] = &*rule.kinds else {
        return false;
    };
    let plural = kind.resource.as_ref().map(|resource| &*resource.plural);
    let is_pods = (&*kind.group, &*kind.version, plural) == ("", "v1", Some("pods"));
    is_pods
        && kind.subresource.is_empty()
        && rule.names.is_empty()
        && exclude.is_empty()
        && object_selector.is_none()
}

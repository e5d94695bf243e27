//! A policy of a manifest, rule by rule.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    actions::Actions,
    autogen,
    counts::ManifestCounts,
    fields::{Field, KnownFields, ManifestObject},
    kinds, rule, settings,
};
use crate::ir::{
    Driver, MANIFEST_DEPTH_MAX, NotRun, Policy, PolicyKind, Problem, Rule,
    manifest::is_deeper_than, matching::Matches, problem::Problems, subquery::ExpressionIds,
};

/// Rules of one policy.
pub const RULES_MAX: usize = 256;

/// Compiles a manifest for evaluations that are driven by `driver`. Which of its expressions are pushed down
/// is not known yet.
///
/// # Errors
/// Every problem that keeps the policy from being ready, in the manifest's order.
pub(crate) fn policy(manifest: &Value, driver: Driver) -> Result<Policy, Vec<Problem>> {
    let mut problems = Problems::new(driver, ExpressionIds::of_policy());
    let policy = if is_deeper_than(manifest, MANIFEST_DEPTH_MAX) {
        let message = format!("the manifest nests deeper than {MANIFEST_DEPTH_MAX} levels");
        problems.invalid("", message);
        None
    } else {
        ManifestCounts::of(manifest).check(&mut problems);
        let manifest = Field::root(manifest);
        match kinds::kind_of(&manifest) {
            Some(kind) => kinds::compile(kind, &manifest, &mut problems),
            None => compile_manifest(&manifest, &mut problems),
        }
    };
    match policy {
        Some(policy) if problems.is_empty() => Ok(policy),
        _ => Err(problems.into_vec()),
    }
}

const POLICY_MANIFEST: KnownFields = KnownFields {
    evaluated: &["apiVersion", "kind", "metadata", "spec"],
    inert: &["status"],
    later: &[],
};

/// `None` only where a problem was noted; the reverse does not hold, here and in all that follows.
fn compile_manifest(manifest: &Field<'_>, problems: &mut Problems) -> Option<Policy> {
    let manifest = manifest.object(&POLICY_MANIFEST, problems)?;
    if let Some(version) = manifest.required("apiVersion", problems) {
        version.known_text(&["kyverno.io/v1", "kyverno.io/v2beta1"], problems);
    }
    let kind = manifest
        .required("kind", problems)
        .and_then(|kind| kind.known_text(&["ClusterPolicy", "Policy"], problems));
    let metadata = manifest.required("metadata", problems)?;
    let (name, uid) = (metadata.text_at("name"), metadata.text_at("uid"));
    if name.is_none() {
        problems.invalid("metadata.name", "a name is required");
    }
    // Where the API server has not filled it in.
    let namespace = metadata.text_at("namespace").unwrap_or("default");
    let namespace = (kind == Some("Policy")).then(|| namespace.to_owned());
    let spec = manifest
        .required("spec", problems)?
        .object(&settings::POLICY_SPEC, problems)?;
    let settings = settings::compile(&spec, metadata.value(), problems);
    let actions = Actions::of_policy(&spec, problems);
    let home = namespace.as_deref();
    let (mut rules, not_run) = compile_rules(&spec, &actions, home, problems);
    if problems.is_empty() {
        let own = manifest.get("metadata").zip(spec.get("rules"));
        rules.extend(
            own.into_iter().flat_map(|(metadata, own)| {
                derive_rules(&metadata, &own, &actions, home, problems)
            }),
        );
    }
    Some(Policy {
        kind: match namespace {
            None => PolicyKind::Cluster,
            Some(_) => PolicyKind::Namespaced,
        },
        name: name?.to_owned(),
        namespace,
        uid: uid.map(str::to_owned),
        rules,
        not_run,
        settings,
    })
}

fn compile_rules(
    spec: &ManifestObject<'_>,
    actions: &Actions,
    home: Option<&str>,
    problems: &mut Problems,
) -> (Vec<Rule>, Vec<NotRun>) {
    let Some(field) = spec.required("rules", problems) else {
        return Default::default();
    };
    let fields = field.list(problems);
    if fields.is_empty() {
        problems.invalid(field.path(), "a policy has at least one rule");
    }
    if fields.len() > RULES_MAX {
        problems.invalid(field.path(), format!("more than {RULES_MAX} rules"));
    }
    let mut names = BTreeSet::new();
    let (mut rules, mut not_run) = (Vec::new(), Vec::new());
    let driver = problems.driver();
    let runs_none = (fields.iter()).all(|field| rule::not_run(field.value(), driver).is_some());
    for field in fields.iter().take(RULES_MAX) {
        if let Some(name) = field.text_at("name")
            && !names.insert(name)
        {
            let path = format!("{}.name", field.path());
            problems.invalid(path, format!("another rule is named `{name}`"));
        }
        match rule::not_run(field.value(), driver) {
            // A policy of which nothing is run would be in force in name alone.
            Some(kind) if !runs_none => not_run.push(passed_over(field, kind)),
            _ => rules.extend(rule::compile(field, actions, home, &[], problems)),
        }
    }
    (rules, not_run)
}

fn passed_over(field: &Field<'_>, kind: &'static str) -> NotRun {
    NotRun {
        rule: field.text_at("name").unwrap_or_default().to_owned(),
        kind,
        path: format!("{}.{kind}", field.path()),
    }
}

/// Returns the rules of a manifest if `driver` runs none of them; otherwise nothing. A caller that wants only
/// verdicts does not count such a policy as an error.
pub fn none_run(manifest: &Value, driver: Driver) -> Vec<NotRun> {
    let rules = manifest["spec"]["rules"].as_array().into_iter().flatten();
    let passed_over = |(at, rule): (usize, &Value)| {
        let kind = rule::not_run(rule, driver)?;
        let field = Field::at(rule, format!("spec.rules[{at}]"));
        Some(passed_over(&field, kind))
    };
    let all: Option<Vec<_>> = rules.enumerate().map(passed_over).collect();
    all.unwrap_or_default()
}

/// Returns the rules for Pod controllers that are derived from a policy's own rules (autogen), in the order of their
/// evaluation; none for a manifest without rules.
pub fn derived_rules(manifest: &Value) -> Vec<Value> {
    let own = manifest["spec"]["rules"].as_array();
    let derived = autogen::derive(&manifest["metadata"], own.map_or(&[], Vec::as_slice));
    derived.into_iter().map(|derived| derived.rule).collect()
}

/// Compiles the rules for Pod controllers that are derived from the policy's own rules.
fn derive_rules(
    metadata: &Field<'_>,
    own: &Field<'_>,
    actions: &Actions,
    home: Option<&str>,
    problems: &mut Problems,
) -> Vec<Rule> {
    let own_rules = own.value().as_array().map_or(&[][..], Vec::as_slice);
    autogen::derive(metadata.value(), own_rules)
        .iter()
        .filter_map(|derived| {
            let path = format!("{}[{}]", own.path(), derived.of);
            let field = Field::at(&derived.rule, path);
            let is_run = rule::not_run(&derived.rule, problems.driver()).is_none();
            let template = derived.template;
            let compile = || rule::compile(&field, actions, home, template, problems);
            let mut rule = is_run.then(compile)??;
            if let Matches::Filters(filters) = &mut rule.matches {
                filters.kinds_alone.clone_from(&derived.kinds);
            }
            Some(rule)
        })
        .collect()
}

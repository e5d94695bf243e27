//! `mutate.targets`: objects that exist already.

use std::sync::Arc;

use serde_json::Value;

use super::{
    conditions, context,
    expressions::RootNames,
    fields::{Field, KnownFields, ManifestObject},
    mutate,
    templates::parsed,
};
use crate::ir::{
    KindPattern,
    context::{ContextEntry, Loader},
    mutate_existing::{ExistingWork, MutateExisting, TargetSpec},
    problem::Problems,
    template::{Template, ValueTemplate},
};

/// Targets of one rule.
pub const TARGETS_MAX: usize = 64;

/// The variable of the target in a target's expressions.
pub(super) const TARGET: &str = "target";

const MUTATE_TARGET: KnownFields = KnownFields {
    evaluated: &[
        "apiVersion",
        "context",
        "kind",
        "name",
        "namespace",
        "preconditions",
        "selector",
        "uid",
    ],
    inert: &[],
    later: &[],
};

/// The parts of the rule around the targets.
#[derive(Clone, Copy)]
pub(super) struct Outer<'o> {
    pub(super) context: &'o [Arc<ContextEntry>],
    pub(super) names: &'o RootNames,
    /// The namespace of a `Policy`.
    pub(super) home: Option<&'o str>,
    /// Objects that exist are triggers, for all rules of the policy.
    pub(super) on_policy_update: bool,
}

/// `rule` is the whole rule.
pub(super) fn compile(
    rule: &ManifestObject<'_>,
    mutate: &ManifestObject<'_>,
    outer: Outer<'_>,
    problems: &mut Problems,
) -> Option<MutateExisting> {
    let field = mutate.get("targets")?;
    let fields = field.list(problems);
    if fields.is_empty() {
        problems.invalid(field.path(), "it is empty");
    }
    if fields.len() > TARGETS_MAX {
        let message = format!("more than {TARGETS_MAX} targets");
        problems.invalid(field.path(), message);
    }
    let fields = fields.iter().take(TARGETS_MAX);
    let targets: Vec<_> = fields
        .map(|field| target(field, mutate, outer, problems))
        .collect();
    // The type of the flag was checked with the remaining fields.
    let on_policy_update = mutate.get("mutateExistingOnPolicyUpdate");
    let on_policy_update = on_policy_update.and_then(|flag| flag.value().as_bool());
    let skips_own = rule.get("skipBackgroundRequests");
    let skips_own = skips_own.and_then(|flag| flag.boolean(problems));
    Some(MutateExisting {
        work: ExistingWork::Targets(targets.into_iter().collect::<Option<_>>()?),
        on_policy_update: on_policy_update.unwrap_or(outer.on_policy_update),
        is_triggered_by_own: skips_own == Some(false),
    })
}

fn target(
    field: &Field<'_>,
    mutate: &ManifestObject<'_>,
    outer: Outer<'_>,
    problems: &mut Problems,
) -> Option<TargetSpec> {
    let spec = field.object(&MUTATE_TARGET, problems)?;
    let kind = kind(&spec, problems);
    let mut text = |name| text(&spec, name, outer.names, problems);
    let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
    if let (Some(home), Some(written)) = (outer.home, namespace.as_ref().and_then(Template::fixed))
        && home != written
    {
        let message = format!("a policy of namespace `{home}` changes nothing outside it");
        problems.forbidden(spec.child("namespace"), message);
    }
    let selector = spec
        .get("selector")
        .and_then(|field| selector(&field, outer.names, problems));
    let mut names = outer.names.within(problems)?;
    names.define(TARGET);
    let own = spec.get("context");
    let (own, names) = context::compile_within(own, outer.home, names, problems);
    let preconditions = conditions::compile(spec.get("preconditions"), &names, problems);
    let given = Arc::new(ContextEntry {
        name: TARGET.to_owned(),
        loader: Loader::Given,
    });
    let context: Vec<_> = outer
        .context
        .iter()
        .cloned()
        .chain([given])
        .chain(own)
        .collect();
    let work = mutate::work(mutate, &context, &names, outer.home, TARGET, problems);
    let (group, version, kind) = kind?;
    Some(TargetSpec {
        group,
        version,
        kind,
        namespace,
        name,
        uid,
        selector,
        outer: outer.context.len(),
        context,
        preconditions,
        work: work?,
    })
}

/// Returns whether a rule changes existing Secrets, which is not supported.
pub(super) fn are_secrets(mutate: &Value) -> bool {
    let mut targets = mutate["targets"].as_array().into_iter().flatten();
    targets.any(|target| target["kind"] == "Secret")
}

/// Group, version and kind.
fn kind(spec: &ManifestObject<'_>, problems: &mut Problems) -> Option<(String, String, String)> {
    let mut text = |name| spec.required(name, problems)?.plain_text(problems);
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (api_version, kind) = (api_version?, kind?);
    let path = spec.child("kind");
    let Some(pattern) = KindPattern::parse(&format!("{api_version}/{kind}")) else {
        problems.invalid(path, format!("there is no kind `{api_version}/{kind}`"));
        return None;
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    if [&api_version, &kind]
        .iter()
        .any(|text| text.contains(['*', '?']))
    {
        problems.unsupported(path, "a target has one kind, without wildcards");
    } else if !pattern.subresource.is_empty() {
        problems.unsupported(path, "subresources of objects that exist are not changed");
    }
    Some((group.to_owned(), version.to_owned(), pattern.kind))
}

fn text(
    spec: &ManifestObject<'_>,
    name: &str,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<Template> {
    let field = spec.get(name)?;
    let text = field.text(problems).filter(|text| !text.is_empty())?;
    let template = parsed(field.path(), Template::parse(text), problems)?;
    template.visit(&mut |prepared| names.check(field.path(), prepared, problems));
    Some(template)
}

fn selector(
    field: &Field<'_>,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<ValueTemplate> {
    if !field.value().is_object() {
        problems.invalid(field.path(), "an object is expected here");
        return None;
    }
    let parsed = parsed(field.path(), ValueTemplate::parse(field.value()), problems)?;
    parsed.visit(&mut |prepared| names.check(field.path(), prepared, problems));
    Some(parsed)
}

#[cfg(test)]
mod tests;

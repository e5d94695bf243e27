//! The checks of one object, or of one element of a `foreach`: `deny`, `pattern`, `anyPattern`.

use super::{
    conditions,
    expressions::RootNames,
    fields::{Field, KnownFields, ManifestObject},
    pod_security,
    templates::parsed,
};
use crate::ir::{problem::Problems, rule::Check, template::ValueTemplate};

/// Patterns of one `anyPattern`.
const PATTERNS_MAX: usize = 64;

/// The known fields of `deny`. A `deny` without conditions is always a violation.
const DENY: KnownFields = KnownFields {
    evaluated: &["conditions"],
    inert: &[],
    later: &[],
};

/// Compiles the check of a rule; `None`: there is none, which the caller handles. `about` is the expression of the
/// value that a pattern is compared with.
pub(super) fn compile(
    of: &ManifestObject<'_>,
    about: &str,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<Check> {
    if let Some(deny) = of.get("deny") {
        let deny = deny.object(&DENY, problems)?.get("conditions");
        return Some(Check::Deny(conditions::compile(deny, names, problems)));
    }
    if let Some(field) = of.get("pattern") {
        return pattern(&field, about, names, problems).map(Check::Pattern);
    }
    if let Some(field) = of.get("podSecurity") {
        return pod_security::compile(&field, problems).map(Check::PodSecurity);
    }
    let field = of.get("anyPattern")?;
    let fields = field.list(problems);
    if fields.is_empty() && field.value().is_array() {
        problems.invalid(field.path(), "it is empty");
    }
    if fields.len() > PATTERNS_MAX {
        problems.invalid(field.path(), format!("more than {PATTERNS_MAX} of them"));
    }
    let patterns = fields.iter().take(PATTERNS_MAX);
    let patterns: Vec<_> = patterns
        .filter_map(|field| pattern(field, about, names, problems))
        .collect();
    Some(Check::AnyPattern(patterns))
}

fn pattern(
    field: &Field<'_>,
    about: &str,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<ValueTemplate> {
    let template = ValueTemplate::parse_document(field.value(), about);
    let template = parsed(field.path(), template, problems)?;
    template.visit(&mut |prepared| names.check(field.path(), prepared, problems));
    if !field.value().is_object() {
        problems.invalid(field.path(), "an object is expected here");
    }
    Some(template)
}

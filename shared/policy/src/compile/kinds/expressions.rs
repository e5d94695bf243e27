//! Expressions of a policy.

use anteroom_cel::{Dialect, FactScope, Names, Program};

use super::{
    super::{
        cel::{CEL_EXPRESSIONS_MAX, limited, truth},
        fields::{KnownFields, ManifestObject},
    },
    PolicySite,
};
use crate::ir::{cel::LocatedProgram, problem::Problems};

const CEL_MATCH_CONDITION: KnownFields = KnownFields {
    evaluated: &["expression", "name"],
    inert: &[],
    later: &[],
};

/// The names that expressions start from. `template` is the path to the template of Pods, of a derived rule.
pub(super) fn names(site: &PolicySite<'_>, template: &[&str]) -> Names {
    let scope = match site.home {
        Some(_) => FactScope::Namespace,
        None => FactScope::Cluster,
    };
    Names::default()
        .in_dialect(Dialect::Kyverno)
        .within_template(template)
        .with_facts(scope)
}

/// Compiles `matchConditions` or their like: all must be true.
pub(super) fn conditions(
    spec: &ManifestObject<'_>,
    field: &str,
    names: &Names,
    problems: &mut Problems,
) -> Vec<LocatedProgram> {
    let Some(field) = spec.get(field) else {
        return Vec::new();
    };
    let fields = limited(&field, CEL_EXPRESSIONS_MAX, problems);
    let conditions = fields.iter().filter_map(|field| {
        let condition = field.object(&CEL_MATCH_CONDITION, problems)?;
        condition.required("name", problems)?.text(problems)?;
        truth(&condition, names, "", problems)
    });
    conditions.collect()
}

/// Expressions with their parts marked that can be evaluated where their facts are kept.
pub(super) fn marked(
    all: Vec<LocatedProgram>,
    variables: &[Program],
    names: &Names,
) -> Vec<LocatedProgram> {
    let marked = all
        .into_iter()
        .map(|LocatedProgram { path, program }| LocatedProgram {
            path,
            program: program.with_subqueries(variables, names),
        });
    marked.collect()
}

/// Expressions with the path of the list that they stand in.
pub(super) fn with_path<'p>(
    path: &'static str,
    programs: impl Iterator<Item = &'p Program>,
) -> impl Iterator<Item = (&'static str, &'p Program)> {
    programs.map(move |program| (path, program))
}

//! The existing objects that a `MutatingPolicy` changes, by `targetMatchConstraints` or by the policy's own match.

use serde_json::{Map, Value};

use super::{
    super::{
        fields::{Field, ManifestObject},
        mutate_existing::TARGETS_MAX,
    },
    constraints,
};
use crate::ir::{
    KindPattern,
    call::check_name,
    matching::{Constraints, ResourceRule},
    mutate_existing::TargetType,
    problem::Problems,
};

/// The most combinations of a name and a type of one rule that are read one by one. For more, all objects of the
/// types are listed.
const NAMED_MAX: usize = 16;

const RULES: &str = "resourceRules";

/// `targetMatchConstraints`, where they name anything.
pub(super) struct Targets<'m> {
    field: Field<'m>,
    pub(super) expression: Option<Field<'m>>,
    has_rules: bool,
}

/// The types of objects, and the constraints on each object.
pub(super) struct Chosen {
    pub(super) types: Vec<TargetType>,
    pub(super) label_selector: String,
    pub(super) constraints: Constraints,
}

/// Returns the `targetMatchConstraints` of `spec`; `None`: the policy changes the objects that it matches.
pub(super) fn targets<'m>(spec: &ManifestObject<'m>) -> Option<Targets<'m>> {
    let field = spec.get("targetMatchConstraints")?;
    let given = |name: &str| field.value().get(name).filter(|value| !value.is_null());
    if field.value().as_object().is_some_and(Map::is_empty) {
        return None;
    }
    let expression = given("expression").filter(|value| *value != "");
    let rules = given(RULES).and_then(Value::as_array);
    Some(Targets {
        expression: expression
            .map(|value| Field::at(value, format!("{}.expression", field.path()))),
        has_rules: rules.is_some_and(|rules| !rules.is_empty()),
        field,
    })
}

/// Compiles `targets`, or else `written`, the policy's `matchConstraints`.
pub(super) fn compile(
    targets: Option<&Targets<'_>>,
    written: &Field<'_>,
    problems: &mut Problems,
) -> Option<Chosen> {
    let (constraints, path) = match targets {
        Some(targets) if targets.expression.is_some() && !targets.has_rules => {
            let message = "an expression gives objects of types that `resourceRules` name beside it: what the policy may \
                           write has to be known before it is run";
            problems.unsupported(targets.field.path(), message);
            return None;
        }
        Some(targets) => {
            let compiled = constraints::compile_targets(&targets.field, problems)?;
            (compiled, targets.field.path())
        }
        None => (constraints::compile(written, problems)?, written.path()),
    };
    let path = format!("{path}.{RULES}");
    let mut types = Vec::new();
    for rule in &constraints.include {
        add(rule, &path, &mut types, problems);
    }
    let whole: Vec<_> = types
        .iter()
        .filter(|one| one.name.is_empty())
        .cloned()
        .collect();
    types.retain(|one| {
        let is_of = |whole: &TargetType| {
            let of =
                |one: &TargetType| [&one.group, &one.version, &one.resource].map(String::clone);
            of(whole) == of(one)
        };
        one.name.is_empty() || !whole.iter().any(is_of)
    });
    if types.len() > TARGETS_MAX {
        problems.invalid(path, format!("more than {TARGETS_MAX} types of objects"));
    }
    let selector = constraints.object_selector.as_ref();
    let selector = selector.map(crate::ir::matching::Selector::to_text);
    // Wildcards are looked at here.
    let selector = selector.filter(|text| {
        !text.contains(['*', '?']) && anteroom_model::LabelSelector::parse(text).is_ok()
    });
    Some(Chosen {
        types,
        label_selector: selector.unwrap_or_default(),
        constraints,
    })
}

fn add(rule: &ResourceRule, path: &str, types: &mut Vec<TargetType>, problems: &mut Problems) {
    let are_named = !rule.names.is_empty()
        && rule.names.len() * rule.kinds.len() <= NAMED_MAX
        && rule.names.iter().all(|name| check_name(name).is_ok());
    let names: &[String] = match are_named {
        true => &rule.names,
        false => &[String::new()],
    };
    for kind in &rule.kinds {
        if let Err(message) = check(kind) {
            problems.unsupported(path, message);
            continue;
        }
        for name in names {
            let one = TargetType {
                group: kind.group.clone(),
                version: kind.version.clone(),
                resource: plural(kind).to_owned(),
                name: name.clone(),
            };
            if !types.contains(&one) {
                types.push(one);
            }
        }
    }
}

/// Checks that the pattern selects a single type whose existing objects may be changed.
fn check(kind: &KindPattern) -> Result<(), String> {
    let parts = [&kind.group, &kind.version, plural(kind)];
    if parts.iter().any(|part| part.contains(['*', '?'])) {
        return Err(format!(
            "objects that exist are changed of types without wildcards, and `{kind}` has some: what the policy may write \
             has to be known before it is run"
        ));
    }
    if !kind.subresource.is_empty() {
        return Err("subresources of objects that exist are not changed".to_owned());
    }
    match (&*kind.group, plural(kind)) {
        ("", "secrets") => Err(
            "Secrets that exist are not changed: nothing seals them on their way back".to_owned(),
        ),
        _ => Ok(()),
    }
}

fn plural(kind: &KindPattern) -> &str {
    kind.resource
        .as_ref()
        .map_or("", |resource| &resource.plural)
}

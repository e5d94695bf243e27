//! `webhookConfiguration.matchConditions`.

use std::collections::BTreeSet;

use anteroom_cel::{CompileError, Names, Program};

use super::fields::{Field, KnownFields};
use crate::ir::problem::Problems;

/// The most conditions that the API server takes.
pub(super) const MATCH_CONDITIONS_MAX: usize = 64;

/// The most bytes of all `matchConditions` of a policy, since they are evaluated for each request.
pub(super) const MATCH_CONDITIONS_BYTES_MAX: usize = 32 * 1024;

const MATCH_CONDITION: KnownFields = KnownFields {
    evaluated: &["expression", "name"],
    inert: &[],
    later: &[],
};

/// Compiles the conditions, in their order. One that is no CEL is malformed; one that uses `authorizer`, or anything
/// else of Kubernetes' CEL that is not evaluated here, is not supported.
pub(super) fn compile(field: Option<Field<'_>>, problems: &mut Problems) -> Vec<Program> {
    let Some(field) = field else {
        return Vec::new();
    };
    let fields = field.list(problems);
    if fields.len() > MATCH_CONDITIONS_MAX {
        let message = format!("more than {MATCH_CONDITIONS_MAX} of them");
        problems.invalid(field.path(), message);
    }
    let mut names = BTreeSet::new();
    let taken = fields.iter().take(MATCH_CONDITIONS_MAX);
    let mut bytes = 0;
    let conditions = taken.filter_map(|field| {
        let (expression, program) = compile_condition(field, &mut names, problems)?;
        bytes += expression.len();
        program
    });
    let conditions: Vec<Program> = conditions.collect();
    if bytes > MATCH_CONDITIONS_BYTES_MAX {
        let message = format!("they are longer than {MATCH_CONDITIONS_BYTES_MAX} bytes together");
        problems.invalid(field.path(), message);
    }
    conditions
}

fn compile_condition<'m>(
    field: &Field<'m>,
    names: &mut BTreeSet<&'m str>,
    problems: &mut Problems,
) -> Option<(&'m str, Option<Program>)> {
    let condition = field.object(&MATCH_CONDITION, problems)?;
    if let Some(name) = condition.required("name", problems)
        && let Some(text) = name.text(problems)
        && !names.insert(text)
    {
        problems.invalid(name.path(), format!("another condition is named `{text}`"));
    }
    let field = condition.required("expression", problems)?;
    let expression = field.text(problems)?;
    let program = match Program::compile(expression, &Names::default()) {
        Ok(program) => {
            if !program.can_be_bool() {
                problems.invalid(field.path(), "it must come to true or false");
            }
            Some(program)
        }
        Err(CompileError::Invalid(message)) => {
            problems.invalid(field.path(), message);
            None
        }
        Err(CompileError::Unsupported(message)) => {
            problems.unsupported(field.path(), message);
            None
        }
    };
    Some((expression, program))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Driver, Policy, Problem, compile_for};

    fn with(conditions: &Value, driver: Driver) -> Result<Policy, Vec<Problem>> {
        let manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {
                "webhookConfiguration": {"matchConditions": conditions},
                "rules": [{"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                    "validate": {"deny": {}}}],
            },
        });
        compile_for(&manifest, driver)
    }

    #[test]
    fn a_malformed_match_condition_is_refused_with_its_field() {
        let one = |expression: &str| json!([{"name": "a", "expression": expression}]);
        let place = "spec.webhookConfiguration.matchConditions";
        let expression = format!("{place}[0].expression");
        let long = format!("'{}' == ''", "x".repeat(12 * 1024));
        for (conditions, driver, expected) in [
            (one("object.metadata.name != 'a'"), Driver::ALL, None),
            (one("'a' in request.userInfo.groups"), Driver::ALL, None),
            (
                one("object.("),
                Driver::ALL,
                Some(("AR302", expression.clone())),
            ),
            (
                one("object.("),
                Driver::IN_CLUSTER,
                Some(("AR302", expression.clone())),
            ),
            (
                one("nope == 1"),
                Driver::IN_CLUSTER,
                Some(("AR302", expression.clone())),
            ),
            (
                one("'a'"),
                Driver::IN_CLUSTER,
                Some(("AR302", expression.clone())),
            ),
            // An API server has more than there is here.
            (
                one("authorizer.path('/x').check('get').allowed()"),
                Driver::IN_CLUSTER,
                Some(("AR301", expression.clone())),
            ),
            (
                one("authorizer.path('/x').check('get').allowed()"),
                Driver::ALL,
                Some(("AR301", expression)),
            ),
            (
                json!([{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]),
                Driver::ALL,
                Some(("AR302", format!("{place}[1].name"))),
            ),
            (
                json!(vec![json!({"name": "a", "expression": &long}); 1]),
                Driver::ALL,
                None,
            ),
            (
                (0..3)
                    .map(|at| json!({"name": at.to_string(), "expression": &long}))
                    .collect(),
                Driver::ALL,
                Some(("AR302", place.to_owned())),
            ),
            (
                (0..64)
                    .map(|at| json!({"name": at.to_string(), "expression": "true"}))
                    .collect(),
                Driver::ALL,
                None,
            ),
            (
                (0..65)
                    .map(|at| json!({"name": at.to_string(), "expression": "true"}))
                    .collect(),
                Driver::ALL,
                Some(("AR302", place.to_owned())),
            ),
        ] {
            let found = with(&conditions, driver).err();
            let found = found
                .as_ref()
                .map(|problems| (problems[0].code.as_str(), problems[0].path.clone()));
            assert_eq!(found, expected, "{conditions}");
        }
    }
}

//! Texts with variables in a manifest.

use super::{expressions::RootNames, fields::Field};
use crate::ir::{
    problem::Problems,
    template::{Number, Template, TemplateProblem},
};

/// A message with variables in it; an empty one is none.
pub(super) fn message(
    field: &Field<'_>,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<Template> {
    let text = field.text(problems).filter(|text| !text.is_empty())?;
    let template = parsed(field.path(), Template::parse_message(text), problems)?;
    template.visit(&mut |prepared| names.check(field.path(), prepared, problems));
    Some(template)
}

/// Returns the result of parsing, with its expressions numbered; a failure is noted as a problem.
pub(super) fn parsed<T: Number>(
    path: &str,
    result: Result<T, TemplateProblem>,
    problems: &mut Problems,
) -> Option<T> {
    match result {
        Ok(mut parsed) => {
            parsed.number(&mut problems.ids);
            return Some(parsed);
        }
        Err(TemplateProblem::Invalid(message)) => problems.invalid(path, message),
        Err(TemplateProblem::Unsupported(message)) => problems.unsupported(path, message),
    }
    None
}

//! Projections of an entry.

use std::collections::BTreeSet;

use anteroom_jmespath::Expression;
use anteroom_model::Projection;

use super::invalid;
use crate::source::{api::ProjectionSpec, discovery::Unresolved};

/// The projections of the entry of this name, each of which compiles.
pub(super) fn read(entry: &str, specs: &[ProjectionSpec]) -> Result<Vec<Projection>, Unresolved> {
    let mut names = BTreeSet::new();
    let read = specs.iter().enumerate().map(|(at, spec)| {
        let ProjectionSpec { name, jmes_path } = spec;
        let at = format!("projections[{at}]");
        let problem = if name.is_empty() {
            "A projection entry requires a name".to_owned()
        } else if name == entry {
            "A projection entry requires a name different from the global context entry name"
                .to_owned()
        } else if jmes_path.is_empty() {
            "A projection entry requires a JMESPath".to_owned()
        } else if !names.insert(name) {
            format!("two projections are called `{name}`")
        } else {
            match compile(jmes_path) {
                Ok(()) => {
                    return Ok(Projection {
                        name: name.clone(),
                        expression: jmes_path.clone(),
                    });
                }
                Err(problem) => format!("`{jmes_path}`: {problem}"),
            }
        };
        Err(invalid(format!("{at}: {problem}")))
    });
    read.collect()
}

fn compile(expression: &str) -> Result<(), String> {
    let parsed = Expression::parse(expression).map_err(|error| error.to_string())?;
    if let Some(parameter) = parsed.parameters().next() {
        return Err(format!(
            "nothing is bound to `${parameter}` in a projection"
        ));
    }
    let checked = parsed.check(anteroom_functions::functions());
    checked.map_err(|error| error.to_string())
}

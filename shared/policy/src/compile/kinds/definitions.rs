//! CustomResourceDefinitions that partial objects are merged by.

use anteroom_cel::{Names, Program};
use anteroom_patch::apply::ObjectSchema;

use crate::ir::{cel_mutation::Definition, matching::Constraints};

/// The most definitions of a policy. Further matched kinds have none.
const DEFINITIONS_MAX: usize = 16;

/// Returns a call for each custom kind that the constraints name without wildcards, and the definition that the call
/// reads. `names` are those of a cluster-wide policy, since a CustomResourceDefinition has no namespace.
pub(super) fn calls(constraints: &Constraints, names: &Names) -> Vec<(Definition, Program)> {
    let kinds = constraints.include.iter().flat_map(|rule| &rule.kinds);
    let mut found: Vec<(Definition, Program)> = Vec::new();
    for kind in kinds {
        let plural = kind.resource.as_ref().map_or("", |own| &own.plural);
        let is_one = |text: &str| !text.is_empty() && !text.contains(['*', '?', '"', '\\']);
        if !is_one(&kind.group)
            || !is_one(plural)
            || ObjectSchema::is_built_in_group(&kind.group)
            || found.len() == DEFINITIONS_MAX
        {
            continue;
        }
        let call = format!(
            "resource.get(\"apiextensions.k8s.io/v1\", \"customresourcedefinitions\", \"\", \"{plural}.{}\")",
            kind.group
        );
        let Ok(program) = Program::compile(&call, names) else {
            continue; // Nothing has such a name.
        };
        let Some(site) = program.sites().next() else {
            continue;
        };
        let definition = Definition {
            group: kind.group.clone(),
            call: site.name().to_owned(),
        };
        if found.iter().all(|(known, _)| known.call != definition.call) {
            found.push((definition, program));
        }
    }
    found
}

//! `patchesJson6902`: a list of operations, one as YAML in a text, or an expression that gives one.

use serde_json::Value;

use crate::{
    compile::{expressions::RootNames, fields::Field, templates::parsed},
    ir::{
        mutation::{Patch, PatchOperation},
        problem::Problems,
        template::{Template, ValueTemplate},
    },
};
use anteroom_patch::{OPERATIONS_MAX, json::OPERATIONS};

/// The fields of an operation; others are passed over, as in the RFC.
const FIELDS: [&str; 4] = ["op", "path", "from", "value"];

pub(super) fn compile(
    field: &Field<'_>,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<Patch> {
    let list = match field.value() {
        Value::String(text) => ValueTemplate::parse_yaml(text),
        list => ValueTemplate::parse(list),
    };
    let list = parsed(field.path(), list, problems)?;
    list.visit(&mut |prepared| names.check(field.path(), prepared, problems));
    if list.lone_variable().is_some() {
        return list.into_text().map(Patch::Computed);
    }
    let Some(elements) = list.elements() else {
        problems.invalid(field.path(), "a list of operations is expected here");
        return None;
    };
    if elements.len() > OPERATIONS_MAX {
        let message = format!("more than {OPERATIONS_MAX} operations");
        problems.invalid(field.path(), message);
        return None;
    }
    let one = |(at, element)| {
        let path = format!("{}[{at}]", field.path());
        operation(element, &path, problems)
    };
    let all: Vec<_> = elements.into_iter().enumerate().map(one).collect();
    let all: Option<_> = all.into_iter().collect();
    all.map(Patch::Json)
}

fn operation(
    written: ValueTemplate,
    path: &str,
    problems: &mut Problems,
) -> Option<PatchOperation> {
    let Some(fields) = written.fields(&FIELDS) else {
        problems.invalid(path, "an object is expected here");
        return None;
    };
    let [op, to, from, value] = fields;
    let mut text = |field: Option<ValueTemplate>, name: &str| -> Option<Template> {
        let field = field?;
        let text = field.into_text();
        if text.is_none() {
            problems.invalid(format!("{path}.{name}"), "a string is expected here");
        }
        text
    };
    let (op, to, from) = (text(op, "op"), text(to, "path"), text(from, "from"));
    let name = op.as_ref().and_then(Template::fixed).unwrap_or_default();
    if !OPERATIONS.contains(&name) {
        let message = format!("`{name}` is none of {}", OPERATIONS.join(", "));
        problems.invalid(format!("{path}.op"), message);
    }
    let needed = [
        ("path", to.is_none()),
        ("from", from.is_none() && matches!(name, "copy" | "move")),
        (
            "value",
            value.is_none() && matches!(name, "add" | "replace"),
        ),
    ];
    for (field, is_missing) in needed {
        if is_missing {
            problems.invalid(format!("{path}.{field}"), "it is required");
        }
    }
    for (field, pointer) in [("path", &to), ("from", &from)] {
        let source = pointer.as_ref().map_or("", Template::source);
        // A path that begins with a variable is checked once the variable is known.
        if !source.is_empty() && !source.starts_with(['/', '{']) {
            let message = format!("`{source}` does not begin with `/`");
            problems.invalid(format!("{path}.{field}"), message);
        }
    }
    Some(PatchOperation {
        name: name.to_owned(),
        path: to?,
        from,
        value,
    })
}

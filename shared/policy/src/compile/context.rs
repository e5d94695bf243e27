//! `context`: where the values of a rule's variables come from.

use super::{
    conditions,
    expressions::{Names, check_functions},
    fields::{Field, Known, Object},
    rule::parsed,
};
use crate::{
    policy::{ContextEntry, Loader},
    problem::Problems,
    template::Prepared,
};

/// Context entries of one rule. Loading one may load those before it, each from within the other.
pub const CONTEXT_ENTRIES_MAX: usize = 64;

const ENTRY: Known = Known {
    evaluated: &["cachedContextEntry", "name", "variable"],
    inert: &[],
    later: &[
        "apiCall",
        "configMap",
        "globalReference",
        "imageRegistry",
        "resourceCache",
    ],
};

const CACHED: Known = Known {
    evaluated: &["jmesPath", "jmespath", "name"],
    inert: &[],
    later: &[],
};

const VARIABLE: Known = Known {
    evaluated: &["default", "jmesPath", "jmespath", "value"],
    inert: &[],
    later: &[],
};

/// The entries, and the names that conditions and messages may use.
pub(super) fn compile(
    field: Option<Field<'_>>,
    problems: &mut Problems,
) -> (Vec<ContextEntry>, Names) {
    let Some(field) = field else {
        return (Vec::new(), Names::default());
    };
    let fields = field.list(problems);
    if fields.len() > CONTEXT_ENTRIES_MAX {
        let message = format!("more than {CONTEXT_ENTRIES_MAX} context entries");
        problems.invalid(field.path(), message);
    }
    let all = fields.iter().filter_map(|field| field.text_at("name"));
    let mut names = Names::of_context(all);
    let mut entries = Vec::new();
    for field in fields.iter().take(CONTEXT_ENTRIES_MAX) {
        let entry = compile_entry(field, &names, problems);
        if let Some(name) = field.text_at("name") {
            names.define(name);
        }
        entries.extend(entry);
    }
    (entries, names)
}

fn compile_entry(
    field: &Field<'_>,
    names: &Names,
    problems: &mut Problems,
) -> Option<ContextEntry> {
    let entry = field.object(&ENTRY, problems)?;
    let name = entry
        .required("name", problems)
        .and_then(|field| entry_name(&field, problems));
    let loader = match (entry.get("cachedContextEntry"), entry.get("variable")) {
        (Some(_), Some(_)) => {
            problems.invalid(
                entry.path(),
                "only one of cachedContextEntry and variable can be given",
            );
            None
        }
        (Some(cached), None) => cached_entry(&cached, names, problems),
        (None, Some(variable)) => compile_variable(&variable, names, problems),
        (None, None) => {
            if !entry.has_any(ENTRY.later) {
                problems.invalid(entry.path(), "cachedContextEntry or variable is required");
            }
            None
        }
    };
    Some(ContextEntry {
        name: name?,
        loader: loader?,
    })
}

fn entry_name(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let name = field.plain_text(problems)?;
    if Names::is_reserved(&name) {
        problems.invalid(
            field.path(),
            format!("`{name}` is a name that every rule has"),
        );
    }
    Some(name)
}

fn cached_entry(field: &Field<'_>, names: &Names, problems: &mut Problems) -> Option<Loader> {
    let cached = field.object(&CACHED, problems)?;
    let entry = cached
        .required("name", problems)
        .and_then(|field| field.plain_text(problems));
    let query = query(&cached, names, problems);
    Some(Loader::Fact {
        entry: entry?,
        query: query?,
    })
}

fn compile_variable(field: &Field<'_>, names: &Names, problems: &mut Problems) -> Option<Loader> {
    let variable = field.object(&VARIABLE, problems)?;
    if !variable.has_any(&["value", "jmesPath", "jmespath"]) {
        problems.invalid(variable.path(), "value or jmesPath is required");
    }
    let mut template = |name| {
        variable
            .get(name)
            .map(|field| conditions::value(&field, names, problems).ok_or(()))
            .transpose()
    };
    let (value, default) = (template("value"), template("default"));
    let query = query(&variable, names, problems)?;
    // Without a value of its own the query is about the context.
    if let (Some(query), Ok(None)) = (&query, &value) {
        names.check_root(&variable.child("jmesPath"), query, problems);
    }
    Some(Loader::Variable {
        value: value.ok()?,
        query,
        default: default.ok()?,
    })
}

/// The expression in either spelling. `None` after a problem.
fn query(object: &Object<'_>, names: &Names, problems: &mut Problems) -> Option<Option<Prepared>> {
    let field = match (object.get("jmesPath"), object.get("jmespath")) {
        (Some(_), Some(field)) => {
            problems.invalid(field.path(), "jmesPath is given too");
            field
        }
        (Some(field), None) | (None, Some(field)) => field,
        (None, None) => return Some(None),
    };
    let text = field.text(problems)?;
    if text.is_empty() {
        return Some(None);
    }
    let prepared = parsed(field.path(), Prepared::parse(text), problems)?;
    check_functions(field.path(), &prepared, problems);
    let mut is_inner = false;
    prepared.visit(&mut |prepared| {
        // What stands in `{{ }}` inside it is about the context, whatever the expression is about.
        if std::mem::replace(&mut is_inner, true) {
            names.check(field.path(), prepared, problems);
        }
    });
    Some(Some(prepared))
}

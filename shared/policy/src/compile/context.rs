//! `context`: where the values of a rule's variables come from.

use std::sync::Arc;

use super::{
    conditions,
    expressions::{RootNames, check_functions},
    fields::{Field, KnownFields, ManifestObject},
    templates::parsed,
};
use crate::ir::{
    context::{ContextEntry, Loader},
    problem::Problems,
    template::{Prepared, Template, ValueTemplate},
};

/// The most context entries of a rule. Each may load all entries before, as a nested evaluation.
pub const CONTEXT_ENTRIES_MAX: usize = 64;

const CONTEXT_ENTRY: KnownFields = KnownFields {
    evaluated: &[
        "apiCall",
        "cachedContextEntry",
        "configMap",
        "globalReference",
        "imageRegistry",
        "name",
        "resourceCache",
        "variable",
    ],
    inert: &[],
    later: &[],
};

const CONTEXT_VARIABLE: KnownFields = KnownFields {
    evaluated: &["default", "jmesPath", "jmespath", "value"],
    inert: &[],
    later: &[],
};

/// The entries, and the names that conditions and messages may use. `home` is the namespace of a
/// `Policy`.
pub(super) fn compile(
    field: Option<Field<'_>>,
    home: Option<&str>,
    problems: &mut Problems,
) -> (Vec<Arc<ContextEntry>>, RootNames) {
    compile_within(field, home, RootNames::default(), problems)
}

/// Compiles a context in which the names of `outer` are visible.
pub(super) fn compile_within(
    field: Option<Field<'_>>,
    home: Option<&str>,
    outer: RootNames,
    problems: &mut Problems,
) -> (Vec<Arc<ContextEntry>>, RootNames) {
    let Some(field) = field else {
        return (Vec::new(), outer);
    };
    let fields = field.list(problems);
    if fields.len() > CONTEXT_ENTRIES_MAX {
        let message = format!("more than {CONTEXT_ENTRIES_MAX} context entries");
        problems.invalid(field.path(), message);
    }
    let all = fields.iter().filter_map(|field| field.text_at("name"));
    let mut names = outer.with_context(all);
    let mut entries = Vec::new();
    for field in fields.iter().take(CONTEXT_ENTRIES_MAX) {
        let entry = compile_entry(field, home, &names, problems);
        if let Some(name) = field.text_at("name") {
            names.define(name);
        }
        entries.extend(entry.map(Arc::new));
    }
    (entries, names)
}

fn compile_entry(
    field: &Field<'_>,
    home: Option<&str>,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<ContextEntry> {
    let entry = field.object(&CONTEXT_ENTRY, problems)?;
    let name = entry
        .required("name", problems)
        .and_then(|field| entry_name(&field, problems));
    let given: Vec<_> = LOADERS
        .iter()
        .filter_map(|name| Some((*name, entry.get(name)?)))
        .collect();
    let mut compiler = EntryCompiler {
        home,
        names,
        problems,
    };
    let loader = match &*given {
        [(kind, field)] => compiler.loader(kind, field),
        [] => {
            let message = format!("one of {} is required", LOADERS.join(", "));
            problems.invalid(entry.path(), message);
            None
        }
        several => {
            let several: Vec<_> = several.iter().map(|(name, _)| *name).collect();
            let message = format!("only one of {} can be given", several.join(" and "));
            problems.invalid(entry.path(), message);
            None
        }
    };
    Some(ContextEntry {
        name: name?,
        loader: loader?,
    })
}

/// The fields that give an entry its value.
const LOADERS: &[&str] = &[
    "cachedContextEntry",
    "globalReference",
    "resourceCache",
    "apiCall",
    "configMap",
    "imageRegistry",
    "variable",
];

/// Compiles one entry of a context: the names that are visible to it, and where problems go.
pub(super) struct EntryCompiler<'a> {
    /// The namespace of a `Policy`.
    pub(super) home: Option<&'a str>,
    pub(super) names: &'a RootNames,
    pub(super) problems: &'a mut Problems,
}

impl EntryCompiler<'_> {
    fn loader(&mut self, kind: &str, field: &Field<'_>) -> Option<Loader> {
        let fact = match kind {
            "cachedContextEntry" => self.cached_entry(field),
            "globalReference" => self.global_reference(field),
            "resourceCache" => self.resource_cache(field),
            "apiCall" => self.api_call(field),
            "configMap" => self.config_map(field),
            "imageRegistry" => self.image_registry(field),
            _ => return compile_variable(field, self.names, self.problems),
        };
        fact.map(|fact| Loader::Fact(Box::new(fact)))
    }

    /// A text with variables in it.
    pub(super) fn template(&mut self, field: &Field<'_>) -> Option<Template> {
        let text = field.text(self.problems)?;
        let template = parsed(field.path(), Template::parse(text), self.problems)?;
        template.visit(&mut |prepared| self.names.check(field.path(), prepared, self.problems));
        Some(template)
    }

    /// Any value, with variables in its texts.
    pub(super) fn value(&mut self, field: &Field<'_>) -> Option<ValueTemplate> {
        conditions::value(field, self.names, self.problems)
    }

    /// The expression in either spelling. `None` after a problem.
    pub(super) fn query(&mut self, object: &ManifestObject<'_>) -> Option<Option<Prepared>> {
        query(object, self.names, self.problems)
    }
}

fn entry_name(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let name = field.plain_text(problems)?;
    if RootNames::is_reserved(&name) {
        problems.invalid(
            field.path(),
            format!("`{name}` is a name that every rule has"),
        );
    }
    Some(name)
}

fn compile_variable(
    field: &Field<'_>,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<Loader> {
    let variable = field.object(&CONTEXT_VARIABLE, problems)?;
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
fn query(
    object: &ManifestObject<'_>,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<Option<Prepared>> {
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
    let prepared = parsed(field.path(), Prepared::parse_query(text), problems)?;
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

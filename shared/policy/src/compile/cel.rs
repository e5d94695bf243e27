//! `validate.cel` and `celPreconditions`.

use std::{collections::BTreeSet, sync::OnceLock};

use anteroom_cel::{CompileError, Names, Program};

use super::{
    fields::{Field, KnownFields, ManifestObject},
    resources,
};
use crate::ir::{
    CollectionReference,
    call::check_name,
    cel::{Annotation, Cel, CelDialect, CelReads, Judged, LocatedProgram, Params},
    problem::Problems,
};

/// Expressions of one rule, as Kubernetes has it for conditions.
pub(crate) const CEL_EXPRESSIONS_MAX: usize = 64;

/// Variables of one rule.
pub(crate) const CEL_VARIABLES_MAX: usize = 128;

/// Audit annotations of one rule, as Kubernetes has it.
const ANNOTATIONS_MAX: usize = 20;

const VALIDATE_CEL: KnownFields = KnownFields {
    evaluated: &[
        "auditAnnotations",
        "expressions",
        "paramKind",
        "paramRef",
        "variables",
    ],
    // A ValidatingAdmissionPolicy would be made of the rule; it is evaluated here instead.
    inert: &["generate"],
    later: &[],
};

const CEL_EXPRESSION: KnownFields = KnownFields {
    evaluated: &["expression", "message", "messageExpression", "reason"],
    inert: &[],
    later: &[],
};

const CEL_NAMED_EXPRESSION: KnownFields = KnownFields {
    evaluated: &["expression", "name"],
    inert: &[],
    later: &[],
};

const AUDIT_ANNOTATION: KnownFields = KnownFields {
    evaluated: &["key", "valueExpression"],
    inert: &[],
    later: &[],
};

const PARAM_KIND: KnownFields = KnownFields {
    evaluated: &["apiVersion", "kind"],
    inert: &[],
    later: &[],
};

const PARAM_REF: KnownFields = KnownFields {
    evaluated: &["name", "namespace", "parameterNotFoundAction", "selector"],
    inert: &[],
    later: &[],
};

/// The reasons that the API server would give for a violation. All are a refusal here.
const REASONS: &[&str] = &[
    "Forbidden",
    "Invalid",
    "RequestEntityTooLarge",
    "Unauthorized",
];

/// The parts of the rule around `validate.cel` that its expressions depend on.
pub(super) struct RuleSite<'p> {
    /// The namespace of a `Policy`.
    pub(super) home: Option<&'p str>,
    /// The path from the object to its Pod template, for a derived rule.
    pub(super) template: &'p [&'p str],
    /// The rule's own message.
    pub(super) message: &'p str,
    /// The rule's path, with the dot after it.
    pub(super) rule: &'p str,
}

/// `field` is `validate.cel`.
pub(super) fn compile(
    rule: &ManifestObject<'_>,
    field: &Field<'_>,
    place: &RuleSite<'_>,
    problems: &mut Problems,
) -> Option<Cel> {
    let cel = field.object(&VALIDATE_CEL, problems)?;
    let params = params(&cel, place, problems);
    let mut names = Names::default().within_template(place.template);
    if cel.has_any(&["paramKind"]) {
        names = names.with_params();
    }
    let variables = variables(&cel, &mut names, problems);
    let preconditions = rule.get("celPreconditions");
    let preconditions = preconditions.map_or_else(Vec::new, |field| {
        limited(&field, CEL_EXPRESSIONS_MAX, problems)
    });
    let preconditions = preconditions.iter().filter_map(|field| {
        let condition = field.object(&CEL_NAMED_EXPRESSION, problems)?;
        condition.required("name", problems)?.text(problems)?;
        truth(&condition, &names, place.rule, problems)
    });
    let preconditions = preconditions.collect();
    let expressions = cel.required("expressions", problems)?;
    let fields = limited(&expressions, CEL_EXPRESSIONS_MAX, problems);
    if fields.is_empty() {
        problems.invalid(expressions.path(), "at least one expression is required");
    }
    let expressions = fields
        .iter()
        .filter_map(|field| judged(field, &names, place.rule, place.message, problems));
    let expressions = expressions.collect();
    let annotations = annotations(&cel, &names, problems);
    Some(Cel {
        preconditions,
        variables: variables?,
        expressions,
        annotations,
        params: params?,
        dialect: CelDialect::Rule,
        facts: Vec::new(),
        other_reads: CelReads::default(),
        known_reads: OnceLock::new(),
    })
}

pub(super) fn limited<'m>(
    field: &Field<'m>,
    most: usize,
    problems: &mut Problems,
) -> Vec<Field<'m>> {
    let mut fields = field.list(problems);
    if fields.len() > most {
        problems.invalid(field.path(), format!("more than {most} of them"));
        fields.truncate(most);
    }
    fields
}

/// An expression, its problem noted.
pub(super) fn program(
    field: &Field<'_>,
    names: &Names,
    problems: &mut Problems,
) -> Option<Program> {
    let source = field.text(problems)?;
    match Program::compile(source, names) {
        Ok(program) => return Some(program),
        Err(CompileError::Invalid(message)) => problems.invalid(field.path(), message),
        Err(CompileError::Unsupported(message)) => problems.unsupported(field.path(), message),
    }
    None
}

/// The `expression` of this, which must be true. `around` is the path that errors leave out.
pub(super) fn truth(
    of: &ManifestObject<'_>,
    names: &Names,
    around: &str,
    problems: &mut Problems,
) -> Option<LocatedProgram> {
    let field = of.required("expression", problems)?;
    let program = program(&field, names, problems)?;
    if !program.can_be_bool() {
        problems.invalid(field.path(), "it must come to true or false");
    }
    let path = field.path();
    Some(LocatedProgram {
        path: path.strip_prefix(around).unwrap_or(path).to_owned(),
        program,
    })
}

/// An expression that gives a text, or null.
pub(super) fn text(field: &Field<'_>, names: &Names, problems: &mut Problems) -> Option<Program> {
    let program = program(field, names, problems)?;
    if !program.can_be_text() && !program.can_be_null() {
        problems.invalid(field.path(), "it must come to a string");
    }
    Some(program)
}

/// `None` after a problem: then their places are not those that other expressions know.
pub(super) fn variables(
    cel: &ManifestObject<'_>,
    names: &mut Names,
    problems: &mut Problems,
) -> Option<Vec<Program>> {
    let Some(field) = cel.get("variables") else {
        return Some(Vec::new());
    };
    let mut programs = Vec::new();
    let fields = limited(&field, CEL_VARIABLES_MAX, problems);
    let mut is_whole = true;
    for field in &fields {
        let variable = field.object(&CEL_NAMED_EXPRESSION, problems)?;
        let name = variable.required("name", problems)?;
        let text = name.text(problems)?;
        let mut letters = text.bytes();
        let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        if !letters.next().is_some_and(is_first)
            || !letters.all(|byte| is_first(byte) || byte.is_ascii_digit())
        {
            problems.invalid(name.path(), format!("`{text}` is no name of a variable"));
        }
        if names.is_defined(text) {
            problems.invalid(name.path(), format!("another variable is named `{text}`"));
        }
        let expression = variable.required("expression", problems);
        match expression.and_then(|field| program(&field, names, problems)) {
            Some(program) => {
                let program = program.with_subqueries(&programs, names);
                names.define(text, &program);
                programs.push(program);
            }
            None => is_whole = false,
        }
    }
    is_whole.then_some(programs)
}

/// Compiles an expression that must be true. `rule` is the path that errors leave out. `default_message` is the
/// message of an expression without its own.
pub(super) fn judged(
    field: &Field<'_>,
    names: &Names,
    rule: &str,
    default_message: &str,
    problems: &mut Problems,
) -> Option<Judged> {
    let expression = field.object(&CEL_EXPRESSION, problems)?;
    if let Some(reason) = expression.get("reason") {
        reason.known_text(REASONS, problems);
    }
    let message = expression.get("message");
    let message = message.and_then(|field| field.text(problems));
    let message = message
        .filter(|text| !text.is_empty())
        .unwrap_or(default_message);
    let message_expression = expression.get("messageExpression");
    let message_expression = message_expression.filter(|field| field.value().as_str() != Some(""));
    let message_expression = message_expression.and_then(|field| text(&field, names, problems));
    Some(Judged {
        expression: truth(&expression, names, rule, problems)?,
        message: message.trim().to_owned(),
        message_expression,
    })
}

pub(super) fn annotations(
    cel: &ManifestObject<'_>,
    names: &Names,
    problems: &mut Problems,
) -> Vec<Annotation> {
    let Some(field) = cel.get("auditAnnotations") else {
        return Vec::new();
    };
    let mut keys = BTreeSet::new();
    let fields = limited(&field, ANNOTATIONS_MAX, problems);
    let all = fields.iter().filter_map(|field| {
        let annotation = field.object(&AUDIT_ANNOTATION, problems)?;
        let key = annotation.required("key", problems)?;
        let name = key.plain_text(problems)?;
        if !keys.insert(name.clone()) {
            problems.invalid(key.path(), "another audit annotation has this key");
        }
        let value = annotation.required("valueExpression", problems)?;
        Some(Annotation {
            key: name,
            value: text(&value, names, problems)?,
        })
    });
    all.collect()
}

/// `None` after a problem.
fn params(
    cel: &ManifestObject<'_>,
    place: &RuleSite<'_>,
    problems: &mut Problems,
) -> Option<Option<Params>> {
    let (kind, reference) = match (cel.get("paramKind"), cel.get("paramRef")) {
        (None, None) => return Some(None),
        (Some(kind), Some(reference)) => (kind, reference),
        (kind, _) => {
            let missing = if kind.is_some() {
                "paramRef"
            } else {
                "paramKind"
            };
            problems.invalid(cel.child(missing), "paramKind and paramRef come together");
            return None;
        }
    };
    let kind = kind.object(&PARAM_KIND, problems)?;
    let version = kind.required("apiVersion", problems);
    let version = version.and_then(|field| field.plain_text(problems));
    let name = kind.required("kind", problems)?;
    let kind_name = part(&name, problems);
    let reference = reference.object(&PARAM_REF, problems)?;
    let given = |name: &str| {
        let field = reference.get(name);
        field.filter(|field| field.value().as_str() != Some(""))
    };
    let action = given("parameterNotFoundAction");
    let action = action.and_then(|field| field.known_text(&["Allow", "Deny"], problems));
    let namespace = given("namespace").map(|field| within_home(&field, place, problems));
    let (group, version) = group_version(&version?);
    let mut collection = CollectionReference {
        group: Some(group),
        version: Some(version),
        resource: kind_name?,
        namespace: namespace
            .unwrap_or(place.home.map(str::to_owned))
            .unwrap_or_default(),
        declared: true,
        inline: true,
        ..CollectionReference::default()
    };
    let one = match (given("name"), reference.get("selector")) {
        (Some(name), None) => {
            let name = part(&name, problems)?;
            collection.field_selector = format!("metadata.name={name}");
            Some(name)
        }
        (None, Some(field)) => {
            collection.label_selector = selector(&field, problems)?;
            None
        }
        (given, _) => {
            let message = match given {
                Some(_) => "only one of name and selector can be given",
                None => "name or selector is required",
            };
            problems.invalid(reference.path(), message);
            return None;
        }
    };
    Some(Some(Params {
        collection,
        // As Kyverno has it: of a selector that selects none, nothing is asked unless it is said.
        may_be_absent: action.map_or(one.is_none(), |action| action == "Allow"),
        name: one,
    }))
}

/// Compiles a text that may stand in a path.
fn part(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let text = field.plain_text(problems)?;
    match check_name(&text) {
        Ok(()) => Some(text),
        Err(message) => {
            problems.invalid(field.path(), message);
            None
        }
    }
}

fn group_version(text: &str) -> (String, String) {
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    (group.to_owned(), version.to_owned())
}

fn within_home(field: &Field<'_>, place: &RuleSite<'_>, problems: &mut Problems) -> Option<String> {
    let namespace = part(field, problems)?;
    if let Some(home) = place.home
        && home != namespace
    {
        let message = format!(
            "paramRef namespace {namespace:?} is different from policy namespace {home:?}: a Policy \
             reads nothing outside its own"
        );
        problems.forbidden(field.path(), message);
    }
    Some(namespace)
}

/// A selector in the API server's syntax.
fn selector(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let selector = resources::selector(field, problems)?;
    let text = selector.to_text();
    match anteroom_model::LabelSelector::parse(&text) {
        Ok(_) => Some(text),
        Err(error) => {
            problems.invalid(field.path(), error.to_string());
            None
        }
    }
}

#[cfg(test)]
mod tests;

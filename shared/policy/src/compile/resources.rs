//! `match` and `exclude`.

use anteroom_functions::values::Format;
use serde_json::Map;

use super::fields::{Field, KnownFields, ManifestObject};
use crate::ir::{
    KindPattern, Operation,
    matching::{Filter, Filters, Match, Requirement, Selector, SetOperator, SubjectPattern, Users},
    problem::Problems,
};

const USERS: &[&str] = &["clusterRoles", "roles", "subjects"];

const MATCH_BLOCK: KnownFields = KnownFields {
    evaluated: &[
        "all",
        "any",
        "clusterRoles",
        "resources",
        "roles",
        "subjects",
    ],
    inert: &[],
    later: &[],
};

const MATCH_FILTER: KnownFields = KnownFields {
    evaluated: &["clusterRoles", "resources", "roles", "subjects"],
    inert: &[],
    later: &[],
};

const MATCH_SUBJECT: KnownFields = KnownFields {
    evaluated: &["kind", "name", "namespace"],
    inert: &["apiGroup"],
    later: &[],
};

const MATCH_RESOURCES: KnownFields = KnownFields {
    evaluated: &[
        "annotations",
        "kinds",
        "name",
        "names",
        "namespaceSelector",
        "namespaces",
        "operations",
        "selector",
    ],
    inert: &[],
    later: &[],
};

const LABEL_SELECTOR: KnownFields = KnownFields {
    evaluated: &["matchExpressions", "matchLabels"],
    inert: &[],
    later: &[],
};

const SELECTOR_REQUIREMENT: KnownFields = KnownFields {
    evaluated: &["key", "operator", "values"],
    inert: &[],
    later: &[],
};

pub(super) fn compile(rule: &ManifestObject<'_>, problems: &mut Problems) -> Option<Match> {
    let include = rule.required("match", problems);
    let include = include.and_then(|field| filters(&field, problems));
    let exclude = rule
        .get("exclude")
        .filter(|field| !is_empty(field))
        .and_then(|field| filters(&field, problems));
    Some(Match {
        include: include?,
        exclude,
        kinds_alone: Vec::new(),
        spares: false,
    })
}

/// `exclude: {}` and its like exclude nothing.
fn is_empty(field: &Field<'_>) -> bool {
    field.value().as_object().is_some_and(|block| {
        block.values().all(|part| match part {
            serde_json::Value::Null => true,
            serde_json::Value::Array(filters) => filters.is_empty(),
            serde_json::Value::Object(resources) => resources.is_empty(),
            _ => false,
        })
    })
}

fn filters(field: &Field<'_>, problems: &mut Problems) -> Option<Filters> {
    let block = field.object(&MATCH_BLOCK, problems)?;
    let legacy = ["resources", "clusterRoles", "roles", "subjects"];
    let is_legacy = block.has_any(&legacy);
    let given = [block.get("any"), block.get("all")];
    if given.iter().flatten().count() + usize::from(is_legacy) > 1 {
        problems.invalid(
            block.path(),
            "only one of any, all and resources can be given",
        );
    }
    let wrap: fn(Vec<Filter>) -> Filters;
    let filters: Vec<Filter> = match given {
        [Some(any), ..] => {
            wrap = Filters::Any;
            list(&any, problems)
        }
        [None, Some(all)] => {
            wrap = Filters::All;
            list(&all, problems)
        }
        [None, None] if is_legacy => {
            wrap = Filters::All;
            filter(&block, problems).into_iter().collect()
        }
        [None, None] => {
            problems.invalid(block.path(), "any, all or resources is required");
            return None;
        }
    };
    (!filters.is_empty()).then(|| wrap(filters))
}

fn list(field: &Field<'_>, problems: &mut Problems) -> Vec<Filter> {
    let fields = field.list(problems);
    if fields.is_empty() && field.value().is_array() {
        problems.invalid(field.path(), "it is empty");
    }
    fields
        .iter()
        .filter_map(|field| {
            let object = field.object(&MATCH_FILTER, problems)?;
            filter(&object, problems)
        })
        .collect()
}

/// Compiles a filter of resources, of users, or of both.
fn filter(object: &ManifestObject<'_>, problems: &mut Problems) -> Option<Filter> {
    let users = users(object, problems);
    let selects_users = !users.is_empty();
    // `resources: {}` beside users is about users alone, as if it were not there.
    let about_resources = |field: &Field<'_>| {
        let nothing = field.value().as_object().is_some_and(Map::is_empty);
        !(selects_users && nothing)
    };
    let Some(field) = object.get("resources").filter(about_resources) else {
        if users.is_empty() {
            match object.has_any(USERS) {
                true => problems.invalid(object.path(), "it selects nothing"),
                false => problems.invalid(object.child("resources"), "it is required"),
            }
            return None;
        }
        return Some(Filter {
            users,
            is_about_users: true,
            ..Filter::default()
        });
    };
    let resources = field.object(&MATCH_RESOURCES, problems)?;
    if resources.fields().next().is_none() {
        problems.invalid(field.path(), "it selects nothing");
    }
    let texts = |name, problems: &mut Problems| {
        resources
            .get(name)
            .map(|field| field.texts(problems))
            .unwrap_or_default()
    };
    Some(Filter {
        kinds: resources
            .get("kinds")
            .map(|field| kinds(&field, problems))
            .unwrap_or_default(),
        name: resources
            .get("name")
            .and_then(|name| name.plain_text(problems)),
        names: texts("names", problems),
        namespaces: resources
            .get("namespaces")
            .map(|field| field.texts_or_empty(problems))
            .unwrap_or_default(),
        operations: resources
            .get("operations")
            .map(|field| operations(&field, problems))
            .unwrap_or_default(),
        selector: resources
            .get("selector")
            .and_then(|field| selector(&field, problems)),
        annotations: resources.get("annotations").map(|field| Selector {
            labels: match_labels(&field, problems),
            requirements: Vec::new(),
        }),
        namespace_selector: resources
            .get("namespaceSelector")
            .and_then(|field| selector(&field, problems)),
        users,
        is_about_users: false,
    })
}

fn users(object: &ManifestObject<'_>, problems: &mut Problems) -> Users {
    let mut roles = |name: &str| {
        let field = object.get(name);
        field.map_or_else(Vec::new, |field| field.texts(problems))
    };
    let (roles, cluster_roles) = (roles("roles"), roles("clusterRoles"));
    let subjects = object.get("subjects").map(|field| field.list(problems));
    Users {
        subjects: subjects
            .iter()
            .flatten()
            .filter_map(|field| subject(field, problems))
            .collect(),
        roles,
        cluster_roles,
    }
}

fn subject(field: &Field<'_>, problems: &mut Problems) -> Option<SubjectPattern> {
    let object = field.object(&MATCH_SUBJECT, problems)?;
    let kind = object.required("kind", problems)?;
    let kind = kind.known_text(&["User", "Group", "ServiceAccount"], problems)?;
    let name = object.required("name", problems)?.plain_text(problems)?;
    Some(match kind {
        "Group" => SubjectPattern::Group(name),
        "ServiceAccount" => {
            let namespace = object.required("namespace", problems)?;
            let namespace = namespace.plain_text(problems)?;
            SubjectPattern::ServiceAccount(format!("system:serviceaccount:{namespace}:{name}"))
        }
        _ => SubjectPattern::User(name),
    })
}

fn kinds(field: &Field<'_>, problems: &mut Problems) -> Vec<KindPattern> {
    field
        .list(problems)
        .iter()
        .filter_map(|field| {
            let text = field.plain_text(problems)?;
            let pattern = KindPattern::parse(&text);
            if pattern.is_none() && !text.is_empty() {
                let message = format!(
                    "`{text}` is no kind: write Kind, version/Kind or group/version/Kind, and \
                     /subresource after it"
                );
                problems.invalid(field.path(), message);
            }
            pattern
        })
        .collect()
}

fn operations(field: &Field<'_>, problems: &mut Problems) -> Vec<Operation> {
    let names = Operation::ALL.map(Operation::as_str);
    field
        .list(problems)
        .iter()
        .filter_map(|field| Operation::parse(field.known_text(&names, problems)?))
        .collect()
}

pub(super) fn selector(field: &Field<'_>, problems: &mut Problems) -> Option<Selector> {
    let object = field.object(&LABEL_SELECTOR, problems)?;
    let mut selector = Selector::default();
    if let Some(labels) = object.get("matchLabels") {
        selector.labels = match_labels(&labels, problems);
    }
    if let Some(expressions) = object.get("matchExpressions") {
        let fields = expressions.list(problems);
        selector.requirements = fields
            .iter()
            .filter_map(|field| requirement(field, problems))
            .collect();
    }
    Some(selector)
}

/// Any key is a label here.
fn match_labels(field: &Field<'_>, problems: &mut Problems) -> Vec<(String, String)> {
    let Some(entries) = field.value().as_object() else {
        problems.invalid(field.path(), "an object is expected here");
        return Vec::new();
    };
    let mut labels = Vec::new();
    for (key, value) in entries {
        if let Some(value) = value.as_str() {
            labels.push((key.clone(), value.to_owned()));
        } else {
            let path = format!("{}[{key:?}]", field.path());
            problems.invalid(path, "a label is a string");
        }
    }
    labels
}

fn requirement(field: &Field<'_>, problems: &mut Problems) -> Option<Requirement> {
    let object = field.object(&SELECTOR_REQUIREMENT, problems)?;
    let key = object.required("key", problems)?.plain_text(problems)?;
    check_label(&key, "qualifiedName", &object.child("key"), problems);
    let operator = object.required("operator", problems)?;
    let operator = operator.known_text(&["In", "NotIn", "Exists", "DoesNotExist"], problems)?;
    let operator = SetOperator::parse(operator)?;
    let values = object
        .get("values")
        .map(|field| field.texts_or_empty(problems))
        .unwrap_or_default();
    for (at, value) in values.iter().enumerate() {
        let path = format!("{}[{at}]", object.child("values"));
        check_label(value, "labelValue", &path, problems);
    }
    if operator.takes_values() == values.is_empty() {
        let message = if values.is_empty() {
            "In and NotIn need values"
        } else {
            "Exists and DoesNotExist take no values"
        };
        problems.invalid(object.child("values"), message);
    }
    Some(Requirement {
        key,
        operator,
        values,
    })
}

/// Reports a key or a value that no label can have. An API server refuses such a selector, and in Kyverno its filter
/// matches nothing. Wildcards are for `matchLabels`.
fn check_label(text: &str, format: &str, path: &str, problems: &mut Problems) {
    if text.is_empty() {
        return;
    }
    let faults = Format::find(format).map_or_else(Vec::new, |format| format.check(text));
    if let Some(fault) = faults.first() {
        problems.invalid(path, format!("no label has `{text}`: {fault}"));
    }
}

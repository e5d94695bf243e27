//! Compiles `matchConstraints`: the requests that a policy is about.

use super::super::{
    fields::{Field, KnownFields, ManifestObject},
    resources,
};
use crate::ir::{
    KindPattern, Operation,
    matching::{Constraints, ResourceRule},
    problem::Problems,
};

/// Rules of one list.
const RULES_MAX: usize = 64;

/// Groups, versions and resources of one rule, each with each.
const KINDS_MAX: usize = 1024;

const MATCH_CONSTRAINTS: KnownFields = KnownFields {
    evaluated: &[
        "excludeResourceRules",
        "matchPolicy",
        "namespaceSelector",
        "objectSelector",
        "resourceRules",
    ],
    inert: &[],
    later: &[],
};

/// The fields of `targetMatchConstraints`.
pub(super) const TARGET_MATCH_CONSTRAINTS: KnownFields = KnownFields {
    evaluated: &[
        "excludeResourceRules",
        "expression",
        "matchPolicy",
        "namespaceSelector",
        "objectSelector",
        "resourceRules",
    ],
    inert: &[],
    later: &[],
};

const RESOURCE_RULE: KnownFields = KnownFields {
    evaluated: &[
        "apiGroups",
        "apiVersions",
        "operations",
        "resourceNames",
        "resources",
        "scope",
    ],
    inert: &[],
    later: &[],
};

/// Compiles the `matchConstraints` or their like in `spec`.
pub(super) fn compile(field: &Field<'_>, problems: &mut Problems) -> Option<Constraints> {
    let constraints = field.object(&MATCH_CONSTRAINTS, problems)?;
    of_fields(&constraints, problems)
}

/// Compiles `targetMatchConstraints`.
pub(super) fn compile_targets(field: &Field<'_>, problems: &mut Problems) -> Option<Constraints> {
    let constraints = field.object(&TARGET_MATCH_CONSTRAINTS, problems)?;
    of_fields(&constraints, problems)
}

fn of_fields(constraints: &ManifestObject<'_>, problems: &mut Problems) -> Option<Constraints> {
    let policy = constraints.get("matchPolicy");
    let policy = policy.and_then(|field| field.known_text(&["Equivalent", "Exact"], problems));
    let is_equivalent = policy != Some("Exact");
    let include = rules(constraints, "resourceRules", is_equivalent, problems);
    if include.is_empty() {
        let path = constraints.child("resourceRules");
        problems.invalid(path, "at least one rule is required");
    }
    let exclude = rules(constraints, "excludeResourceRules", is_equivalent, problems);
    let mut selector = |name| {
        let field = constraints.get(name)?;
        let selector = resources::selector(&field, problems)?;
        // One that selects all asks for nothing.
        let is_empty = selector.labels.is_empty() && selector.requirements.is_empty();
        (!is_empty).then_some(selector)
    };
    Some(Constraints {
        namespace_selector: selector("namespaceSelector"),
        object_selector: selector("objectSelector"),
        include,
        exclude,
    })
}

fn rules(
    of: &ManifestObject<'_>,
    name: &str,
    is_equivalent: bool,
    problems: &mut Problems,
) -> Vec<ResourceRule> {
    let Some(field) = of.get(name) else {
        return Vec::new();
    };
    let fields = field.list(problems);
    if fields.len() > RULES_MAX {
        problems.invalid(field.path(), format!("more than {RULES_MAX} of them"));
    }
    let rules = fields.iter().take(RULES_MAX);
    rules
        .filter_map(|field| rule(field, is_equivalent, problems))
        .collect()
}

fn rule(field: &Field<'_>, is_equivalent: bool, problems: &mut Problems) -> Option<ResourceRule> {
    let rule = field.object(&RESOURCE_RULE, problems)?;
    let mut all = |name: &str, otherwise: &[&str]| -> Vec<String> {
        match rule.get(name) {
            Some(field) => field.texts_or_empty(problems),
            None => otherwise.iter().map(|&text| text.to_owned()).collect(),
        }
    };
    let groups = all("apiGroups", &["*"]);
    let versions = all("apiVersions", &["*"]);
    let resources = all("resources", &[]);
    if resources.is_empty() {
        problems.invalid(rule.child("resources"), "at least one resource is required");
    }
    if groups.len() * versions.len() * resources.len() > KINDS_MAX {
        let message = format!("more than {KINDS_MAX} groups, versions and resources");
        problems.invalid(rule.path(), message);
        return None;
    }
    let operations = operations(&rule, problems);
    let scope = rule.get("scope");
    let scope = scope.and_then(|field| field.known_text(&["*", "Cluster", "Namespaced"], problems));
    let names = rule.get("resourceNames");
    let names = names.map_or_else(Vec::new, |field| field.texts(problems));
    let kinds = groups.iter().flat_map(|group| {
        let versions = versions.iter();
        let resources = &resources;
        versions.flat_map(move |version| {
            let resources = resources.iter();
            resources.map(move |resource| {
                KindPattern::of_resource(group, version, resource, is_equivalent)
            })
        })
    });
    Some(ResourceRule {
        kinds: kinds.collect(),
        operations,
        names,
        in_namespace: match scope {
            Some("Cluster") => Some(false),
            Some("Namespaced") => Some(true),
            _ => None,
        },
    })
}

/// Compiles the operations of a rule. Without any, the rule matches all, as with `*`.
fn operations(rule: &ManifestObject<'_>, problems: &mut Problems) -> Vec<Operation> {
    let Some(field) = rule.get("operations") else {
        return Operation::ALL.to_vec();
    };
    let mut operations = Vec::new();
    for field in field.list(problems) {
        let Some(text) = field.text(problems) else {
            continue;
        };
        match (text, Operation::parse(text)) {
            ("*", _) => operations.extend(Operation::ALL),
            (_, Some(operation)) => operations.push(operation),
            (_, None) => problems.invalid(
                field.path(),
                format!("`{text}` is none of CREATE, UPDATE, DELETE, CONNECT, *"),
            ),
        }
    }
    operations.sort_unstable();
    operations.dedup();
    if operations.is_empty() {
        problems.invalid(field.path(), "at least one operation is required");
    }
    operations
}

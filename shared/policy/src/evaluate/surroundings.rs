//! Facts that a request does not carry, asked for where a rule is about them.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    facts::{Facts, Question},
    interrupt::Stop,
};
use crate::ir::{
    AdmissionRequest, FactSubject, FailureAction, Rule,
    matching::{
        BINDINGS_OF_USER, LABELS, Lacking, Matched, Matches, NAMESPACE_SELECTOR, ROLES,
        Surroundings, names_of_user, roles_of,
    },
};

/// Returns whether this matches the request. Facts are asked for only where the request does not decide it.
pub(super) fn matches(
    matches: &Matches,
    request: &AdmissionRequest,
    facts: &mut Facts,
    known: &mut Surroundings,
) -> Result<bool, Stop> {
    match matches.matches(request, known) {
        Matched::Yes => return Ok(true),
        Matched::No => return Ok(false),
        Matched::Unknown => ask(matches.lacks(request, known), request, facts, known)?,
    }
    Ok(matches.matches(request, known) == Matched::Yes)
}

/// Returns the failure action for this request. Labels are asked for only where an override selects by them.
pub(super) fn action(
    rule: &Rule,
    request: &AdmissionRequest,
    facts: &mut Facts,
    known: &mut Surroundings,
) -> Result<FailureAction, Stop> {
    if let Some(action) = rule.action_for(request, known) {
        return Ok(action);
    }
    let labels = Lacking {
        namespace_labels: true,
        ..Lacking::default()
    };
    ask(labels, request, facts, known)?;
    Ok(rule
        .action_for(request, known)
        .unwrap_or(FailureAction::Enforce))
}

/// Finds the roles of the request's user.
pub(super) fn roles(
    request: &AdmissionRequest,
    facts: &mut Facts,
    known: &mut Surroundings,
) -> Result<(), Stop> {
    let roles = Lacking {
        roles: true,
        ..Lacking::default()
    };
    ask(roles, request, facts, known)
}

/// Asks for all lacking facts at once.
fn ask(
    lacking: Lacking,
    request: &AdmissionRequest,
    facts: &mut Facts,
    known: &mut Surroundings,
) -> Result<(), Stop> {
    let labels = lacking.namespace_labels.then(|| labels(request, facts));
    let roles = lacking.roles.then(|| {
        let bindings = [false, true].map(|cluster| bindings(cluster, request, facts));
        let [own, of_cluster] = bindings;
        let (own, of_cluster) = (own?, of_cluster?);
        Ok::<_, Stop>(roles_of(request, &own, &of_cluster))
    });
    if let Some(labels) = labels {
        known.namespace_labels = Some(labels?);
    }
    if let Some(roles) = roles {
        known.roles = Some(roles?);
    }
    Ok(())
}

fn labels(request: &AdmissionRequest, facts: &mut Facts) -> Result<Arc<Value>, Stop> {
    let subject = FactSubject::NamespaceLabels {
        namespace: request.object_namespace().to_owned(),
    };
    facts.need(
        NAMESPACE_SELECTOR,
        Question::new(subject, LABELS, BTreeMap::new()),
    )
}

fn bindings(
    cluster: bool,
    request: &AdmissionRequest,
    facts: &mut Facts,
) -> Result<Arc<Value>, Stop> {
    let names = BTreeMap::from([("names".to_owned(), names_of_user(request))]);
    let subject = FactSubject::RoleBindings { cluster };
    facts.need(ROLES, Question::new(subject, BINDINGS_OF_USER, names))
}

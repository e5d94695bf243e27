//! What a request does not carry, asked for where a rule is about it.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    Pass,
    conditions::Stop,
    facts::{Facts, Question},
};
use crate::{
    AdmissionRequest, FactTarget, FailureAction, Rule,
    matching::{
        BINDINGS_OF_USER, Lacking, Match, Matched, Surroundings, names_of_user, object_namespace,
        roles_of,
    },
};

/// What is made of a namespace.
pub(crate) const LABELS: &str = "metadata.labels || `{}`";

/// Of a namespace's labels, in place of a context entry's name.
pub(crate) const NAMESPACE_SELECTOR: &str = "namespaceSelector";

/// Of bindings, in place of a context entry's name.
pub(crate) const ROLES: &str = "roles";

/// Whether the rule speaks of the request. Where it does, and names the roles of whoever asks, the request
/// has them from then on.
pub(super) fn speaks_of(
    rule: &Rule,
    pass: &mut Pass<'_>,
    facts: &mut Facts,
    known: &mut Surroundings,
) -> Result<bool, Stop> {
    let speaks = match pass.is_earlier {
        // Whoever made the old state is not who asks now, and is known to nobody.
        true => {
            let (by_nobody, mut known) = (pass.request.by_nobody(), known.of_nobody());
            matches(&rule.matches, &by_nobody, facts, &mut known)?
        }
        false => matches(&rule.matches, &pass.request, facts, known)?,
    };
    if !speaks {
        return Ok(false);
    }
    if rule.names_roles && !pass.has_roles {
        if known.roles(&pass.request).is_none() {
            let roles = Lacking {
                roles: true,
                ..Lacking::default()
            };
            ask(roles, &pass.request, facts, known)?;
        }
        if let Some(roles) = known.roles(&pass.request) {
            pass.request = Cow::Owned(pass.request.with_roles(&roles));
        }
        pass.has_roles = true;
    }
    Ok(true)
}

/// Whether this speaks of the request. What does not depend on more than the request asks nobody.
pub(super) fn matches(
    matches: &Match,
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

/// What a violation by this request leads to. Labels are asked for only where an override is about them.
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

/// Learns what is lacking, all of it at once.
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
    let target = FactTarget::NamespaceLabels {
        namespace: object_namespace(request).to_owned(),
    };
    facts.need(
        NAMESPACE_SELECTOR,
        Question::new(target, LABELS, BTreeMap::new()),
    )
}

fn bindings(
    cluster: bool,
    request: &AdmissionRequest,
    facts: &mut Facts,
) -> Result<Arc<Value>, Stop> {
    let names = BTreeMap::from([("names".to_owned(), names_of_user(request))]);
    let target = FactTarget::RoleBindings { cluster };
    facts.need(ROLES, Question::new(target, BINDINGS_OF_USER, names))
}

//! Facts as push-down sees them: which are kept as lists, and which are projections. Pure.

use anteroom_jmespath::Expression;
use anteroom_model::EntryKind;

use crate::ir::{
    call::ApiCall,
    context::{ContextFact, FactOrigin},
};

/// The projection of an entry that a fact names. The projection and the expression after it are stages of one pipe,
/// and each stage gives null for a missing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamesProjection {
    No,
    Yes,
    /// The name is known with the request.
    Perhaps,
}

pub(super) fn names_projection(fact: &ContextFact) -> NamesProjection {
    let FactOrigin::Entry {
        kind: EntryKind::Global,
        name,
    } = &fact.source
    else {
        return NamesProjection::No;
    };
    match name.fixed() {
        None => NamesProjection::Perhaps,
        Some(name) if name.contains('.') => NamesProjection::Yes,
        Some(_) => NamesProjection::No,
    }
}

/// The expression of a fact that is kept as a list; `None`: its data whole.
///
/// # Errors
/// Why it is better fetched whole.
pub(super) fn is_kept(fact: &ContextFact) -> Result<Option<&Expression>, String> {
    let is_list = match &fact.source {
        FactOrigin::Entry { .. } | FactOrigin::Collection(_) => Ok(()),
        FactOrigin::Api(ApiCall {
            data: None,
            by_view: Some(plan),
            ..
        }) => match plan.is_list() {
            true => Ok(()),
            false => Err("it is one object"),
        },
        FactOrigin::Api(_) => Err("only the API server answers it"),
        FactOrigin::Service(_) => Err("a service answers it"),
        FactOrigin::ConfigMap(_) => Err("it is one ConfigMap"),
        FactOrigin::Image(_) => Err("a registry answers it"),
    };
    is_list?;
    if fact.nondeterministic_query().is_some() {
        return Err("its own expression speaks of the time or of chance".to_owned());
    }
    match &fact.query {
        None => Ok(None),
        Some(query) => match query.fixed() {
            Some(own) => Ok(Some(own)),
            None => Err("its own expression is put together for each request".to_owned()),
        },
    }
}

//! The step from a plan to the watches that each view and each reference hears, and to the lists that
//! they need.

use std::collections::BTreeMap;

use anteroom_model::{Failure, ObjectKey, ViewId, own_reason};

use super::{
    hub::Hub,
    join::Joining,
    plan::{self, Plan, PlanInput, WatchScope},
    reads::JOINS_MAX,
    references::State,
};
use crate::log_writer::publish::WriteQueue;

/// The views and references that move to a watch.
#[derive(Default)]
struct Arrivals {
    views: Vec<ViewId>,
    objects: Vec<ObjectKey>,
}

/// Moves views and references to the watches of the plan. Returns the lists to make beside each watch.
///
/// A view that changes its watches leaves all of them at once and is opened anew. Readers are served the known
/// objects until the lists of the new watches are complete.
pub(super) fn assign(
    hub: &mut Hub,
    plan: &Plan,
    input: &PlanInput,
    queue: &mut WriteQueue,
) -> Vec<(WatchScope, Joining)> {
    let mut arrivals: BTreeMap<WatchScope, Arrivals> = BTreeMap::new();
    let Hub {
        members, watches, ..
    } = hub;
    for (view, member) in members {
        let scopes = plan.views.get(view).cloned().unwrap_or_default();
        if !scopes.is_empty() && scopes.iter().eq(member.watches.keys()) {
            continue;
        }
        for scope in &scopes {
            let arrived = arrivals.entry(scope.clone()).or_default();
            arrived.views.push(view.clone());
        }
        let fits = !scopes.is_empty();
        member.switch_watches(scopes, watches, queue);
        if !fits {
            queue.refused(&member.handle, too_many());
        }
    }
    assign_references(hub, plan, input, &mut arrivals, queue);
    let mut joining = Vec::new();
    for (scope, arrived) in arrivals {
        admit(hub, &scope, arrived, &mut joining, queue);
    }
    joining
}

fn assign_references(
    hub: &mut Hub,
    plan: &Plan,
    input: &PlanInput,
    arrivals: &mut BTreeMap<WatchScope, Arrivals>,
    queue: &mut WriteQueue,
) {
    let usable =
        |scope: &WatchScope| plan.scopes.contains(scope) && !input.forbidden.contains(scope);
    let all = Some(WatchScope::all()).filter(usable);
    let mut unfit = Vec::new();
    for (object, reference) in &mut hub.references.by_object {
        let scope = if plan.unfit.contains(object) {
            unfit.push(object.clone());
            None
        } else if input.references.contains(object) {
            let namespace = || Some(WatchScope::of_namespace(&object.namespace)).filter(usable);
            let own = || Some(WatchScope::of_object(object));
            all.clone().or_else(namespace).or_else(own)
        } else {
            None
        };
        if reference.scope != scope {
            if let Some(scope) = &scope
                && !matches!(reference.state, State::Found | State::Absent)
            {
                let arrived = arrivals.entry(scope.clone()).or_default();
                arrived.objects.push(object.clone());
            }
            reference.scope = scope;
        }
    }
    for object in &unfit {
        hub.references.fail(object, &too_many(), queue);
    }
}

/// Makes the watch list again, or, for a few views, lists only their objects beside the watch.
fn admit(
    hub: &mut Hub,
    scope: &WatchScope,
    arrived: Arrivals,
    joining: &mut Vec<(WatchScope, Joining)>,
    queue: &mut WriteQueue,
) {
    let Some(watch) = hub.watches.get_mut(scope) else {
        return;
    };
    let count = watch.joining + arrived.views.len() + arrived.objects.len();
    if !watch.can_be_joined() || count > JOINS_MAX {
        return watch.ask();
    }
    watch.joining = count;
    for view in arrived.views {
        let Some(member) = hub.members.get_mut(&view) else {
            continue;
        };
        let list = queue.begin_list(&member.handle);
        if let Some(progress) = member.watches.get_mut(scope) {
            progress.join(list);
        }
        let within = |own: &WatchScope| own == scope || scope.holds_namespace(&own.namespace);
        let own = member.filter.own().into_iter().filter(within).collect();
        let handle = member.handle.clone();
        joining.push((scope.clone(), Joining::View { handle, list, own }));
    }
    let era = hub.references.era;
    for object in arrived.objects {
        joining.push((scope.clone(), Joining::Object { object, era }));
    }
}

fn too_many() -> Failure {
    Failure::new(
        own_reason::TOO_MANY_WATCHES,
        format!(
            "{} watches of one type are the limit, and the API server forbids the wider one that would \
             take their place: grant the watcher's ServiceAccount `list` and `watch` on the whole type",
            plan::WATCHES_PER_TYPE_MAX
        ),
    )
}

//! From a plan to who hears which watch, and who has to be brought what a watch has already.

use std::{collections::BTreeMap, time::Instant};

use anteroom_model::{Failure, ObjectKey, ViewId};

use super::{
    hub::Hub,
    join::{JOINS_MAX, Joins},
    plan::{self, Plan, Scope, Wants},
    references::State,
};
use crate::publish::{Publisher, Tenure};

/// What comes of a plan.
#[derive(Default)]
pub(super) struct Moves {
    /// Views that hear two watches, or a watch and a list, for a while.
    pub(super) overlaps: Vec<(Tenure, Instant)>,
    /// Who comes to which watch that runs.
    pub(super) joins: Vec<(Scope, Joins)>,
}

/// Who has to hear what a watch has.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) views: Vec<ViewId>,
    pub(super) objects: Vec<ObjectKey>,
}

/// Moves views and references to the watches of the plan.
pub(super) fn assign(hub: &mut Hub, plan: &Plan, wants: &Wants, publisher: &Publisher) -> Moves {
    let mut moves = Moves::default();
    let mut asked: BTreeMap<Scope, Asked> = BTreeMap::new();
    let Hub { members, feeds, .. } = hub;
    for (view, member) in members {
        let scopes = plan.views.get(view).cloned().unwrap_or_default();
        if scopes.is_empty() {
            member.feeds.clear();
            publisher.with(|book| book.refused(&member.tenure, too_many()));
        } else if scopes != member.feeds {
            for scope in scopes.iter().filter(|scope| !member.hears(scope)) {
                let feed = feeds.get_mut(scope);
                feed.into_iter()
                    .for_each(|feed| feed.begins_to_be_heard(view));
            }
            let served = !member.feeds.is_empty() && member.feeds.is_subset(&member.done);
            if served {
                member.old = member.feeds.difference(&scopes).cloned().collect();
                publisher.with(|book| book.set_overlap(&member.tenure, true));
                moves.overlaps.push((member.tenure.clone(), Instant::now()));
            }
            for scope in scopes.difference(&member.feeds) {
                let of = asked.entry(scope.clone()).or_default();
                of.views.push(view.clone());
            }
            member.joins.retain(|scope, _| scopes.contains(scope));
            member.done.retain(|scope| scopes.contains(scope));
            member.refused.retain(|scope, _| scopes.contains(scope));
            member.feeds = scopes;
        }
    }
    let usable = |scope: &Scope| plan.scopes.contains(scope) && !wants.forbidden.contains(scope);
    let all = Some(Scope::all()).filter(usable);
    let mut unfit = Vec::new();
    for (object, reference) in &mut hub.references.of {
        let scope = if plan.unfit.contains(object) {
            unfit.push(object.clone());
            None
        } else if wants.references.contains(object) {
            let namespace = || Some(Scope::of_namespace(&object.namespace)).filter(usable);
            let own = || Some(Scope::of_object(object));
            all.clone().or_else(namespace).or_else(own)
        } else {
            None
        };
        if reference.scope != scope {
            if !matches!(reference.state, State::Found | State::Absent) {
                let of = scope.clone().map(|scope| asked.entry(scope).or_default());
                of.into_iter()
                    .for_each(|of| of.objects.push(object.clone()));
            }
            reference.scope = scope;
        }
    }
    unfit
        .iter()
        .for_each(|object| hub.references.fail(object, &too_many(), publisher));
    for (scope, of) in asked {
        bring(hub, &scope, of, &mut moves, publisher);
    }
    moves
}

/// Has the watch list again, or, for a few, only what they hold beside it.
pub(super) fn bring(
    hub: &mut Hub,
    scope: &Scope,
    asked: Asked,
    moves: &mut Moves,
    publisher: &Publisher,
) {
    let Some(feed) = hub.feeds.get_mut(scope) else {
        return;
    };
    let joining = feed.joining + asked.views.len() + asked.objects.len();
    if !feed.can_be_joined() || joining > JOINS_MAX {
        return feed.ask();
    }
    feed.joining = joining;
    for view in asked.views {
        let Some(member) = hub.members.get_mut(&view) else {
            continue;
        };
        let begun = publisher.with(|book| {
            book.set_overlap(&member.tenure, true);
            book.begin_list_of(&mut member.tenure, scope.reach(), false)
        });
        member.joins.insert(scope.clone(), begun);
        let tenure = member.tenure.clone();
        moves.overlaps.push((tenure.clone(), Instant::now()));
        let within = |own: &Scope| own == scope || scope.holds_namespace(&own.namespace);
        let lists = member.lens.own().into_iter().filter(within).collect();
        let joins = Joins::View {
            tenure,
            begun,
            lists,
        };
        moves.joins.push((scope.clone(), joins));
    }
    let era = hub.references.era;
    for object in asked.objects {
        let joins = Joins::Object { object, era };
        moves.joins.push((scope.clone(), joins));
    }
}

fn too_many() -> Failure {
    Failure::new(
        "TooManyWatches",
        format!(
            "{} watches of one type are the limit, and the API server forbids the wider one that would \
             take their place: grant the watcher's ServiceAccount `list` and `watch` on the whole type",
            plan::WATCHES_PER_TYPE_MAX
        ),
    )
}

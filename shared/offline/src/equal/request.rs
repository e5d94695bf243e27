//! The requests of a search, the most promising first.

use std::collections::HashSet;

use anteroom_policy::Operation;
use serde_json::Value;

use super::{
    Search,
    seed::{Seed, roots},
    variation::{Change, Guide},
};
use crate::resource::Resource;

/// The most changes of one object at once.
const CHANGES_AT_ONCE: u64 = 3;

/// Of all requests, those that have one change, in hundredths; the rest has several.
const SINGLE_SHARE: usize = 75;

/// A request that both sides decide.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) object: Value,
    /// The object before an update.
    pub(super) old: Option<Value>,
    pub(super) operation: Operation,
    /// Its place among the users.
    pub(super) user: usize,
    /// The object that it was made from.
    pub(super) seed: String,
    /// The plural of its kind.
    pub(super) plural: String,
    /// The changes of that.
    pub(super) changes: Vec<String>,
    /// The places that were changed, and so the requests that may be of one cause.
    pub(super) about: String,
    pub(super) is_ill: bool,
}

impl Request {
    /// Its object, as it is judged.
    pub(super) fn resource(&self) -> Option<Resource> {
        let resource = Resource::new(self.object.clone())?;
        let plural = self.plural.clone();
        Some(Resource { plural, ..resource })
    }

    /// What tells it from others.
    fn identity(&self) -> String {
        let old = self.old.as_ref().map(Value::to_string).unwrap_or_default();
        format!("{} {} {} {old}", self.operation, self.user, self.object)
    }
}

/// All requests of a search, in order.
pub(super) struct Requests<'s> {
    pub(super) seeds: &'s [Seed],
    pub(super) guide: &'s Guide,
    pub(super) users: usize,
    /// Rules tell operations apart.
    pub(super) asks_operations: bool,
    pub(super) search: &'s Search,
}

impl Requests<'_> {
    /// Hands over each request, until there is none more or `take` returns false.
    pub(super) fn each(&self, take: &mut dyn FnMut(Request) -> bool) {
        let mut seen = HashSet::new();
        let mut count = 0;
        let mut take = |request: Request, limit: usize| {
            let is_asked = self.search.operations.contains(&request.operation)
                && !(self.search.well_typed && request.is_ill);
            if !is_asked || !seen.insert(request.identity()) {
                return true;
            }
            count += 1;
            take(request) && count < limit
        };
        let all = self.search.requests_max;
        for seed in self.seeds {
            for request in self.as_given(seed) {
                if !take(request, all) {
                    return;
                }
            }
        }
        let changes: Vec<Vec<Change>> = self.seeds.iter().map(|seed| self.changes(seed)).collect();
        let most = changes.iter().map(Vec::len).max().unwrap_or_default();
        let single = all / 100 * SINGLE_SHARE;
        'single: for at in 0..most {
            for (seed, changes) in self.seeds.iter().zip(&changes) {
                let Some(change) = changes.get(at) else {
                    continue;
                };
                for request in self.changed(seed, &[change]) {
                    if !take(request, single.max(1)) {
                        break 'single;
                    }
                }
            }
        }
        let mut chance = Chance(self.search.seed);
        // Most objects have more pairs of changes than this.
        for _ in 0..all.saturating_mul(2) {
            let at = chance.below(self.seeds.len());
            let (Some(seed), Some(changes)) = (self.seeds.get(at), changes.get(at)) else {
                return;
            };
            let number = 2 + chance.next() % (CHANGES_AT_ONCE - 1);
            let of_seed = (0..number).filter_map(|_| changes.get(chance.below(changes.len())));
            let of_seed: Vec<_> = of_seed.collect();
            for request in self.changed(seed, &of_seed).into_iter().take(1) {
                if !take(request, all) {
                    return;
                }
            }
        }
    }

    fn changes(&self, seed: &Seed) -> Vec<Change> {
        let mut found = Vec::new();
        // The innermost first: what makes Pods is mostly judged by those.
        for root in roots(&seed.object).iter().rev() {
            if let Some(inside) = super::place::get(&seed.object, root) {
                let changes = self.guide.changes(inside).into_iter();
                found.extend(changes.map(|change| change.below(root)));
            }
        }
        found
    }

    /// The object as it is, by every operation and user.
    fn as_given(&self, seed: &Seed) -> Vec<Request> {
        let mut found = Vec::new();
        let operations: &[_] = match seed.is_made {
            true => &[Operation::Create],
            false => &[Operation::Create, Operation::Update, Operation::Delete],
        };
        for operation in operations {
            for user in 0..self.users {
                found.push(Request {
                    user,
                    old: (*operation == Operation::Update).then(|| seed.object.clone()),
                    ..request(seed, *operation, seed.object.clone(), &[])
                });
            }
        }
        found
    }

    /// The object with changes.
    fn changed(&self, seed: &Seed, changes: &[&Change]) -> Vec<Request> {
        let mut object = seed.object.clone();
        changes.iter().for_each(|change| change.apply(&mut object));
        if object == seed.object {
            return Vec::new();
        }
        let mut found = vec![request(seed, Operation::Create, object.clone(), changes)];
        let is_same = ["name", "namespace"]
            .iter()
            .all(|name| object["metadata"][*name] == seed.object["metadata"][*name]);
        if self.asks_operations && is_same {
            let update = |from: &Value, to: &Value| Request {
                old: Some(from.clone()),
                ..request(seed, Operation::Update, to.clone(), changes)
            };
            found.push(update(&seed.object, &object));
            found.push(update(&object, &seed.object));
            found.push(request(seed, Operation::Delete, object, changes));
        }
        found
    }
}

fn request(seed: &Seed, operation: Operation, object: Value, changes: &[&Change]) -> Request {
    let about: Vec<_> = changes.iter().map(|change| change.about()).collect();
    Request {
        object,
        old: None,
        operation,
        user: 0,
        seed: seed.title.clone(),
        plural: seed.plural.clone(),
        changes: changes.iter().map(|change| change.title()).collect(),
        about: about.join(" "),
        is_ill: changes.iter().any(|change| change.is_ill),
    }
}

/// Numbers that look like chance, and are the same for the same seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or_default()
    }
}

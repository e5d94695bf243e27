//! The requests of a search, the most promising first.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use anteroom_policy::Operation;
use serde_json::Value;

use super::{
    Search,
    guide::Guide,
    seed::{Seed, roots},
    variation::Variation,
};
use crate::resource::Resource;

/// The most changes of one object at once, and the share of requests that have as many.
const CHANGES_AT_ONCE_MAX: usize = 3;

/// The most objects that are varied; others are asked about as they are.
const VARIED_MAX: usize = 64;

/// The largest object that is varied, as JSON.
const VARIED_BYTES_MAX: usize = 128 * 1024;

/// The largest share of requests about objects as they are, in hundredths of all.
const AS_GIVEN_SHARE: usize = 50;

/// The share of requests with one change, in hundredths of the other requests; the rest has several.
const SINGLE_SHARE: usize = 60;

/// The divisor of requests with several changes that may be by the second user.
const OTHER_USER_SHARE: usize = 4;

/// The most changes of an object that are remembered because they changed an outcome.
const TELLING_MAX: usize = 64;

/// The usefulness of a request as a start for further requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestValue {
    /// A rule judges the object a violation, or changes the object: a further change may show more.
    Telling,
    /// Nothing of the kind.
    Dull,
    /// There are to be no more.
    Last,
}

/// A request that both sides decide.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) object: Value,
    /// The object before an update.
    pub(super) old: Option<Value>,
    pub(super) operation: Operation,
    /// Its position among the users.
    pub(super) user: usize,
    /// The object that it was made from.
    pub(super) seed: String,
    /// The plural of its kind.
    pub(super) plural: String,
    /// The changes of that.
    pub(super) changes: Vec<String>,
    /// The paths that were changed. Requests about the same paths may show the same cause.
    pub(super) about: String,
    pub(super) is_invalid: bool,
}

impl Request {
    /// Its object, as it is judged.
    pub(super) fn resource(&self) -> Option<Resource> {
        let resource = Resource::new(self.object.clone())?;
        let plural = self.plural.clone();
        Some(Resource { plural, ..resource })
    }

    /// Returns a hash of the request.
    fn identity(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let parts = (self.operation, self.user, &self.object, &self.old);
        parts.hash(&mut hasher);
        hasher.finish()
    }
}

/// All requests of a search, in order.
pub(super) struct Requests<'s> {
    pub(super) seeds: &'s [Seed],
    pub(super) guide: &'s Guide,
    pub(super) users: usize,
    /// A rule depends on the operation.
    pub(super) asks_operations: bool,
    pub(super) search: &'s Search,
}

impl Requests<'_> {
    /// Hands over each request, until there is none more or `take` says so.
    pub(super) fn each(&self, take: &mut dyn FnMut(Request) -> RequestValue) {
        let mut sink = RequestSink {
            seen: HashSet::new(),
            count: 0,
            search: self.search,
            take,
        };
        let all = self.search.requests_max;
        let as_given = (all.saturating_mul(AS_GIVEN_SHARE) / 100).max(1);
        'given: for user in 0..self.users {
            for operation in [Operation::Create, Operation::Update, Operation::Delete] {
                for seed in self.seeds {
                    let request = as_it_is(seed, operation, user);
                    // Of what was made it is enough to be made.
                    let is_asked = !seed.is_made || operation == Operation::Create;
                    if is_asked && sink.add(request, as_given) == RequestValue::Last {
                        break 'given;
                    }
                }
            }
        }
        let varied = varied(self.seeds).into_iter();
        let mut varied: Vec<_> = varied.map(|seed| Varied::new(seed, self)).collect();
        let most = varied.iter().map(|one| one.changes.len()).max();
        let rest = all.saturating_sub(sink.count);
        let single = sink.count + rest.saturating_mul(SINGLE_SHARE) / 100;
        'single: for at in 0..most.unwrap_or_default() {
            for own in &mut varied {
                let Some(change) = own.changes.get(at) else {
                    continue;
                };
                for request in self.changed(own.seed, &[change]) {
                    match sink.add(request, single.max(1)) {
                        RequestValue::Last => break 'single,
                        RequestValue::Telling if own.telling.len() < TELLING_MAX => {
                            own.telling.push(at);
                        }
                        RequestValue::Telling | RequestValue::Dull => {}
                    }
                }
                own.telling.dedup();
            }
        }
        if varied.iter().any(|own| !own.telling.is_empty()) {
            varied.retain(|own| !own.telling.is_empty());
        }
        varied.retain(|own| !own.changes.is_empty());
        let mut chance = Chance(self.search.seed);
        // Most objects have more pairs of changes than this.
        for _ in 0..all.saturating_mul(4) {
            let at = chance.below(varied.len());
            let Some(own) = varied.get(at) else {
                return;
            };
            let changes = own.several(&mut chance);
            let mut requests = self.changed(own.seed, &changes);
            if requests.is_empty() {
                continue;
            }
            let mut request = requests.swap_remove(chance.below(requests.len()));
            if chance.below(OTHER_USER_SHARE) == 0 {
                request.user = chance.below(self.users);
            }
            if sink.add(request, all) == RequestValue::Last {
                return;
            }
        }
    }

    fn changes(&self, seed: &Seed) -> Vec<Variation> {
        let mut found = Vec::new();
        // The innermost first: what makes Pods is mostly judged by those.
        let roots = roots(&seed.object);
        let has_template = roots.len() > 1;
        for root in roots.iter().rev() {
            if let Some(inside) = super::value_path::get(&seed.object, root) {
                let changes = self
                    .guide
                    .changes(inside, root.is_empty() && has_template)
                    .into_iter();
                let asked = changes.filter(|one| !(self.search.valid_only && one.is_invalid));
                found.extend(asked.map(|change| change.below(root)));
            }
        }
        found
    }

    /// The object with changes.
    fn changed(&self, seed: &Seed, changes: &[&Variation]) -> Vec<Request> {
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

/// The object without a change.
fn as_it_is(seed: &Seed, operation: Operation, user: usize) -> Request {
    Request {
        user,
        old: (operation == Operation::Update).then(|| seed.object.clone()),
        ..request(seed, operation, seed.object.clone(), &[])
    }
}

/// The objects that are varied: not too many, not too large, and of all kinds as many as there are.
fn varied(seeds: &[Seed]) -> Vec<&Seed> {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ranked = Vec::new();
    for (at, seed) in seeds.iter().enumerate() {
        let of_kind = kinds
            .entry(seed.object["kind"].as_str().unwrap_or_default())
            .or_default();
        ranked.push((*of_kind, at, seed));
        *of_kind += 1;
    }
    ranked.sort_by_key(|(of_kind, at, _)| (*of_kind, *at));
    let small = ranked.into_iter().map(|(_, _, seed)| seed);
    let small = small.filter(|seed| seed.object.to_string().len() <= VARIED_BYTES_MAX);
    small.take(VARIED_MAX).collect()
}

fn request(seed: &Seed, operation: Operation, object: Value, changes: &[&Variation]) -> Request {
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
        is_invalid: changes.iter().any(|change| change.is_invalid),
    }
}

/// Hands on the requests of a search, each once.
struct RequestSink<'s> {
    seen: HashSet<u64>,
    count: usize,
    search: &'s Search,
    take: &'s mut dyn FnMut(Request) -> RequestValue,
}

impl RequestSink<'_> {
    /// Hands over a request, if it is a new one and asked for. Beyond `limit` there are no more.
    fn add(&mut self, request: Request, limit: usize) -> RequestValue {
        if self.count >= limit {
            return RequestValue::Last;
        }
        let is_asked = self.search.operations.contains(&request.operation);
        if !is_asked || !self.seen.insert(request.identity()) {
            return RequestValue::Dull;
        }
        self.count += 1;
        (self.take)(request)
    }
}

/// A seed with its changes.
struct Varied<'s> {
    seed: &'s Seed,
    changes: Vec<Variation>,
    /// The changes by the path that they are about.
    paths: Vec<Vec<usize>>,
    /// Changes of the object's name, namespace, labels and annotations, by which rules choose objects.
    choosing: Vec<Vec<usize>>,
    /// Changes that made a request useful.
    telling: Vec<usize>,
}

impl<'s> Varied<'s> {
    fn new(seed: &'s Seed, requests: &Requests<'_>) -> Self {
        let changes = requests.changes(seed);
        let mut paths: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, change) in changes.iter().enumerate() {
            paths.entry(change.about()).or_default().push(at);
        }
        let choosing = paths
            .iter()
            .filter(|(path, _)| path.starts_with("metadata."));
        Self {
            seed,
            changes,
            choosing: choosing.map(|(_, changes)| changes.clone()).collect(),
            paths: paths.into_values().collect(),
            telling: Vec::new(),
        }
    }

    /// Several changes by chance: a telling one first, if there is any, and further ones of any paths.
    fn several(&self, chance: &mut Chance) -> Vec<&Variation> {
        let telling = self.telling.get(chance.below(self.telling.len()));
        let mut several: Vec<_> = telling.copied().into_iter().collect();
        let number = 1 + usize::from(chance.below(CHANGES_AT_ONCE_MAX) == 0);
        for _ in several.len()..=number {
            let is_choosing = !self.choosing.is_empty() && chance.below(2) == 0;
            let paths = if is_choosing {
                &self.choosing
            } else {
                &self.paths
            };
            if let Some(path) = paths.get(chance.below(paths.len())) {
                several.extend(path.get(chance.below(path.len())).copied());
            }
        }
        several
            .iter()
            .filter_map(|at| self.changes.get(*at))
            .collect()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seed(kind: &str, name: &str, bytes: usize) -> Seed {
        Seed {
            object: json!({"kind": kind, "data": "x".repeat(bytes)}),
            title: format!("{kind}/{name}"),
            plural: String::new(),
            is_made: false,
        }
    }

    #[test]
    fn objects_that_are_varied_are_few_and_small_and_of_all_kinds() {
        let mut seeds: Vec<_> = (0..100).map(|at| seed("Pod", &at.to_string(), 0)).collect();
        seeds.push(seed("Service", "s", 0));
        let found = varied(&seeds);
        assert_eq!(found.len(), VARIED_MAX);
        assert_eq!((&*found[0].title, &*found[1].title), ("Pod/0", "Service/s"));
        let around = json!({"kind": "", "data": ""}).to_string().len();
        for (bytes, is_varied) in [(0, true), (1, false)] {
            let seed = seed("", "", VARIED_BYTES_MAX - around + bytes);
            assert_eq!(
                varied(std::slice::from_ref(&seed)).len(),
                usize::from(is_varied)
            );
        }
    }
}

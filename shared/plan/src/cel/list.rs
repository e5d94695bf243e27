//! The objects of a view as a list of CEL.

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use anteroom_cel::{Candidates, ObjectList, Probes};
use anteroom_jmespath::uncounted;
use anteroom_view::{LazyList, Object};
use anteroom_wire::body::BodyNode;

use super::{
    batches::Batches,
    candidates::{Matching, ProbeHits},
};
use crate::{Index, IndexKey, Scalar};

/// Objects that are looked through between two questions whether to go on.
pub const PACE_OBJECTS: usize = 64;

/// The size of a list up to which a scan is as fast as an index.
const FEW_OBJECTS: usize = 16;

/// So few objects are read at once, and no other index is asked for fewer.
const FEW_FOUND: usize = 16;

/// The most values of one lookup whose objects are read in batches and merged as they are read. For more values, all
/// objects are read at once.
const READ_BY_BATCHES_MAX: usize = 16;

/// The surroundings of a list: indexes, and turns.
pub trait ListHost: fmt::Debug + Sync {
    /// Calls `ask` with the index of this key, in the state of the list. Returns false if there is none at present.
    fn ask(&self, key: &IndexKey, ask: &mut dyn FnMut(&Index)) -> bool;

    /// Returns whether the scan of a list continues after `looked_through` objects. It is asked before the first
    /// object, and then once in [`PACE_OBJECTS`]. If not, the list ends there, and [`ViewList::is_cut`] says so.
    fn goes_on(&self, looked_through: usize) -> bool {
        let _ = looked_through;
        true
    }
}

/// The objects of a view, or of a part of it, as a list of CEL.
#[derive(Debug)]
pub struct ViewList<'a> {
    pub(super) objects: LazyList<'a>,
    pub(super) host: &'a dyn ListHost,
    is_cut: AtomicBool,
    examined: AtomicU64,
}

impl<'a> ViewList<'a> {
    /// Asks an index. An index catches up with the view for all evaluations, so this one pays nothing for that.
    pub(super) fn ask(&self, key: &IndexKey, ask: &mut dyn FnMut(&Index)) -> bool {
        uncounted(|| self.host.ask(key, ask))
    }

    /// Returns a list of these objects.
    pub fn new(objects: LazyList<'a>, host: &'a dyn ListHost) -> Self {
        Self {
            objects,
            host,
            is_cut: AtomicBool::new(false),
            examined: AtomicU64::new(0),
        }
    }

    /// The objects themselves.
    pub fn objects(&self) -> &LazyList<'a> {
        &self.objects
    }

    /// Returns whether some objects were left out because the host ended the scan: the result of the evaluation is
    /// not valid then.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// The number of objects that were looked at.
    pub fn examined(&self) -> u64 {
        self.examined.load(Ordering::Relaxed)
    }

    pub(super) fn examine(&self, objects: u64) {
        self.examined.fetch_add(objects, Ordering::Relaxed);
    }

    /// Goes through `objects` at the list's pace.
    pub(super) fn paced<'l>(
        &'l self,
        objects: Box<dyn Iterator<Item = &'a Object> + 'l>,
    ) -> Box<dyn Iterator<Item = &'a Object> + 'l> {
        let mut looked_through = 0;
        Box::new(objects.take_while(move |_| {
            if looked_through % PACE_OBJECTS == 0 && !self.host.goes_on(looked_through) {
                self.is_cut.store(true, Ordering::Relaxed);
                return false;
            }
            looked_through += 1;
            self.examine(1);
            true
        }))
    }

    /// Chooses the indexes to ask, and counts the objects that they find. `None`: a needed index is missing.
    fn choose(&self, probes: &Probes<'_>) -> Option<Choice> {
        match probes {
            Probes::One { key, values } => {
                let lookup = Lookup {
                    key: IndexKey::of_path(key),
                    values: values.clone(),
                };
                let mut found = 0;
                let is_there = self.ask(&lookup.key, &mut |index| {
                    found = lookup.values.iter().map(|value| index.having(value)).sum();
                });
                is_there.then(|| Choice {
                    lookups: vec![lookup],
                    found,
                })
            }
            Probes::Any(parts) => {
                let mut all = Some(Choice::default());
                for part in parts {
                    // Indexes are asked even after a missing one, so that all missing indexes are built at once.
                    all = all.zip(self.choose(part)).map(|(all, one)| all.and(one));
                }
                all
            }
            Probes::All(ways) => {
                let mut best: Option<Choice> = None;
                for way in ways {
                    if let Some(choice) = self.choose(way)
                        && best.as_ref().is_none_or(|best| choice.found < best.found)
                    {
                        best = Some(choice);
                    }
                    if best.as_ref().is_some_and(|best| best.found <= FEW_FOUND) {
                        break;
                    }
                }
                best
            }
        }
    }
}

/// The body of an object, for as long as its list lasts.
pub(super) fn node<'l, 'a: 'l>(object: &'a Object) -> BodyNode<'l> {
    object.node()
}

/// Values to look up in an index.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) key: IndexKey,
    values: Vec<Scalar>,
}

/// Lookups that find all relevant objects.
#[derive(Debug, Default)]
struct Choice {
    lookups: Vec<Lookup>,
    /// The number of objects, some more than once.
    found: usize,
}

impl Choice {
    fn and(mut self, other: Self) -> Self {
        self.lookups.extend(other.lookups);
        self.found += other.found;
        self
    }
}

impl ObjectList for ViewList<'_> {
    fn len(&self) -> usize {
        self.objects.len()
    }

    fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    fn get(&self, at: usize) -> Option<BodyNode<'_>> {
        self.examine(1);
        self.objects.get(at).map(Object::node)
    }

    fn iter(&self) -> Box<dyn Iterator<Item = BodyNode<'_>> + '_> {
        Box::new(self.paced(self.objects.iter()).map(node))
    }

    fn find(&self, probes: &Probes<'_>) -> Option<Box<dyn Candidates<'_> + '_>> {
        if self.objects.is_within(FEW_OBJECTS) {
            return None;
        }
        let Choice { lookups, found } = self.choose(probes)?;
        let matching = match found > FEW_FOUND && count(&lookups) <= READ_BY_BATCHES_MAX {
            true => self.match_lazily(&lookups),
            false => self.read(&lookups)?,
        };
        let mut keys: Vec<_> = Vec::new();
        for lookup in lookups {
            if !keys.contains(&lookup.key) {
                keys.push(lookup.key);
            }
        }
        Some(Box::new(ProbeHits::new(self, matching, keys)))
    }
}

/// The number of values.
fn count(lookups: &[Lookup]) -> usize {
    lookups.iter().map(|lookup| lookup.values.len()).sum()
}

impl<'a> ViewList<'a> {
    /// Objects that lookups find, once they are asked for.
    fn match_lazily(&self, lookups: &[Lookup]) -> Matching<'_, 'a> {
        let parts = lookups.iter().flat_map(|lookup| {
            let values = lookup.values.iter().cloned();
            values.map(|value| Batches::having(self, lookup.key.clone(), value))
        });
        Matching::lazy(self, parts.collect())
    }

    /// Objects that lookups find; `None`: an index is gone.
    fn read(&self, lookups: &[Lookup]) -> Option<Matching<'_, 'a>> {
        let mut matching: Vec<&Object> = Vec::new();
        for lookup in lookups {
            let is_there = self.ask(&lookup.key, &mut |index| {
                for value in &lookup.values {
                    index.each_having(value, &mut |object| {
                        matching.extend(self.objects.find(object));
                    });
                }
            });
            if !is_there {
                return None;
            }
        }
        Some(Matching::of(self, matching))
    }
}

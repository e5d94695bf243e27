//! The published reports beside a model: no report of an object that nobody knows is ever touched, and all others come
//! to say what there is to say.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Objects, by number; of two kinds in turn.
const OBJECTS: u8 = 6;

/// The content of a report; each content that is not `None` is a different one.
type Content = Option<u8>;

#[derive(Clone, Debug)]
enum Event {
    /// The content of the object's report from now on.
    Truth(u8, Content),
    /// The results of all objects of these kinds, and of these objects, are unknown.
    Unknown(BTreeSet<u8>, BTreeSet<u8>),
    /// Somebody looks at the report, as after any change.
    Look(u8),
    Due,
    /// A request comes to its end: it was heard or not, and its answer arrived or not.
    End {
        heard: bool,
        answered: bool,
    },
    List,
    /// Somebody else does this to the report.
    Others(u8, Content),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let object = || 0..OBJECTS;
    let content = || prop::option::of(0..3_u8);
    let some = |of: std::ops::Range<u8>| prop::collection::btree_set(of, 0..3);
    let event = prop_oneof![
        4 => (object(), content()).prop_map(|(object, content)| Event::Truth(object, content)),
        3 => (some(0..2), some(0..OBJECTS)).prop_map(|(kinds, objects)| Event::Unknown(kinds, objects)),
        2 => object().prop_map(Event::Look),
        4 => Just(Event::Due),
        4 => (any::<bool>(), any::<bool>())
            .prop_map(|(heard, answered)| Event::End { heard, answered }),
        1 => Just(Event::List),
        1 => (object(), content()).prop_map(|(object, content)| Event::Others(object, content)),
    ];
    prop::collection::vec(event, 0..80)
}

fn kind(object: u8) -> crate::shared::OwnerKind {
    (String::new(), format!("Kind{}", object % 2))
}

fn owner(object: u8) -> Owner {
    (kind(object), ObjectKey::new("n", object.to_string()))
}

fn said(content: u8) -> String {
    format!("says {content}")
}

struct World {
    published: PublishedReports,
    now: Instant,
    /// The reports at the API server.
    server: BTreeMap<u8, String>,
    truth: BTreeMap<u8, u8>,
    unknown: (BTreeSet<u8>, BTreeSet<u8>),
    /// The reports that were written or read here; an earlier reporter wrote the others.
    own: BTreeMap<u8, String>,
    of_before: BTreeSet<u8>,
    under_way: Vec<(u8, ReportAction)>,
}

impl World {
    fn new(before: &BTreeMap<u8, u8>, reports_max: usize) -> Self {
        let before = before.iter();
        let mut world = Self {
            published: PublishedReports::with_limit(reports_max),
            now: Instant::now(),
            server: before
                .map(|(object, content)| (*object, said(*content)))
                .collect(),
            truth: BTreeMap::new(),
            unknown: ((0..2).collect(), BTreeSet::new()),
            own: BTreeMap::new(),
            of_before: BTreeSet::new(),
            under_way: Vec::new(),
        };
        world.list();
        world
    }

    fn is_unknown(&self, object: u8) -> bool {
        self.unknown.0.contains(&(object % 2)) || self.unknown.1.contains(&object)
    }

    fn is_busy(&self, object: u8) -> bool {
        self.under_way.iter().any(|(busy, _)| *busy == object)
    }

    /// Returns the known part of the object's report.
    fn of_object(&self, object: u8) -> Option<Report> {
        let all = self
            .truth
            .get(&object)
            .map(|content| report(&said(*content)));
        match self.is_unknown(object) {
            false => all,
            true if object < OBJECTS / 2 => None,
            true => Some(report("a part")),
        }
    }

    /// Since something of it changed.
    fn look(&mut self, object: u8) {
        self.look_at(object, Some(&owner(object)));
    }

    fn look_at(&mut self, object: u8, of: Option<&Owner>) {
        let name = key(&object.to_string());
        let action = self.published.begin(&name, of, self.of_object(object));
        match action {
            ReportAction::Nothing => return,
            ReportAction::UpToDate => {
                // The published report equals the own report, so its content is known.
                self.of_before.remove(&object);
                let said = self.of_object(object).map(|report| report.content);
                self.own.extend(said.map(|said| (object, said)));
                return;
            }
            ReportAction::ReadFirst => {}
            ReportAction::Apply(_) | ReportAction::Delete => {
                let is_of_before = self.of_before.remove(&object);
                let unknown = is_of_before && self.is_unknown(object);
                assert!(!unknown, "{object} is not known, and it is to {action:?}");
                self.own.remove(&object);
            }
        }
        self.under_way.push((object, action));
    }

    fn end(&mut self, heard: bool, answered: bool) {
        if self.under_way.is_empty() {
            return;
        }
        let (object, action) = self.under_way.remove(0);
        let name = key(&object.to_string());
        let is_write = !matches!(action, ReportAction::ReadFirst);
        let content = match action {
            ReportAction::Apply(report) => Some(report.content),
            ReportAction::ReadFirst if heard && answered => {
                return self.published.was_read(&name, self.now);
            }
            _ => None,
        };
        if heard && is_write {
            match &content {
                Some(content) => drop(self.server.insert(object, content.clone())),
                None => drop(self.server.remove(&object)),
            }
        }
        let result = match heard && answered && is_write {
            true => Ok(content.clone()),
            false => Err(()),
        };
        if let (Ok(_), Some(content)) = (&result, content) {
            self.own.insert(object, content);
        }
        self.published.done(&name, result, 0, self.now);
    }

    fn list(&mut self) {
        let listed = |(object, content): (&u8, &String)| Listed {
            key: key(&object.to_string()),
            content: content.clone(),
            owner: owner(*object),
        };
        let all: Vec<Listed> = self.server.iter().map(listed).collect();
        self.published.listing();
        for page in all.chunks(2) {
            self.published.listed(page.to_vec(), self.now);
        }
        let is_lost = self.published.listed_all(self.now);
        for object in 0..OBJECTS {
            if self.is_busy(object) {
                continue;
            }
            match self.server.get(&object) {
                None => drop(self.of_before.remove(&object)),
                found if found == self.own.get(&object) => {}
                Some(_) => drop(self.of_before.insert(object)),
            }
        }
        if is_lost {
            self.published.look_at_all(self.now);
            let objects = (0..OBJECTS).filter(|object| self.of_object(*object).is_some());
            objects
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|object| self.look(object));
        }
    }

    fn settle(&mut self, unknown: (BTreeSet<u8>, BTreeSet<u8>)) {
        let unknown_before = (0..OBJECTS).filter(|object| self.is_unknown(*object));
        let before: Vec<_> = unknown_before
            .map(|object| (object, self.of_object(object)))
            .collect();
        self.unknown = unknown;
        let unsettled = Unsettled {
            unseen: self
                .unknown
                .0
                .iter()
                .map(|kind_of| kind(*kind_of))
                .collect(),
            unread: self.unknown.1.iter().map(|object| owner(*object)).collect(),
            is_full: false,
        };
        self.published.settle(Some(Arc::new(unsettled)), self.now);
        // What was found is in the findings before anybody says that it is all. Nobody looks at those of which
        // nothing was found: that is for the published reports to remember.
        for (object, of_object) in before {
            if !self.is_unknown(object) && self.of_object(object) != of_object {
                self.look(object);
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Truth(object, content) => {
                match content {
                    Some(content) => drop(self.truth.insert(object, content)),
                    None => drop(self.truth.remove(&object)),
                }
                self.look(object);
            }
            Event::Unknown(kinds, objects) => self.settle((kinds, objects)),
            Event::Look(object) => self.look(object),
            Event::Due => self.due(),
            Event::End { heard, answered } => self.end(heard, answered),
            Event::List => self.list(),
            Event::Others(object, content) => match content {
                Some(content) => drop(self.server.insert(object, said(content))),
                None => drop(self.server.remove(&object)),
            },
        }
    }

    fn due(&mut self) {
        self.now += Duration::from_secs(60);
        while let Some((_, name)) = self.published.take_due(self.now) {
            self.look_at(name.parse().unwrap(), None);
        }
    }

    /// Everything comes to its end, and is seen once more.
    fn come_to_rest(&mut self) {
        // Where not all are remembered, each list lets in some.
        for _ in 0..2 + 2 * OBJECTS {
            for _ in 0..10 {
                self.due();
                while !self.under_way.is_empty() {
                    self.end(true, true);
                }
            }
            assert_eq!(self.published.waiting(), 0, "it never comes to rest");
            self.list();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn reports_of_unread_objects_stay_and_all_others_match_the_results(
        before in prop::collection::btree_map(0..OBJECTS, 0..3_u8, 0..5),
        events in events(),
        unread in prop::collection::btree_set(0..OBJECTS, 0..4),
        reports_max in prop_oneof![Just(usize::MAX), 1..8_usize],
    ) {
        let mut world = World::new(&before, reports_max);
        for event in events {
            world.take(event);
        }
        world.settle((BTreeSet::new(), unread.clone()));
        world.list();
        let kept: BTreeMap<u8, Option<String>> = unread
            .iter()
            .filter(|object| world.of_before.contains(object) && !world.is_busy(**object))
            .map(|object| (*object, world.server.get(object).cloned()))
            .collect();
        world.come_to_rest();
        for object in 0..OBJECTS {
            let found = world.server.get(&object).cloned();
            if let Some(kept) = kept.get(&object) {
                prop_assert_eq!(&found, kept, "of what cannot be read");
            } else if !unread.contains(&object) {
                let truth = world.truth.get(&object).map(|content| said(*content));
                prop_assert_eq!(found, truth, "{}", object);
            }
        }
    }
}

//! The plan and the findings beside a full scan, for any sequence of changes.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    findings::{Findings, tests::result},
    result::{ReportOutcome, ReportSubject},
};

/// A view as a map, by name: an incarnation of the object, and what it says.
#[derive(Clone, Debug)]
struct Fake(Arc<BTreeMap<u16, (u32, u8)>>);

/// The content of an object that cannot be read, with an unreadable name.
const NAMELESS: u8 = 4;

/// An object of this content cannot be read: what was known of it stays.
const BROKEN: u8 = 5;

fn is_readable(content: u8) -> bool {
    !matches!(content, NAMELESS | BROKEN)
}

/// Name, incarnation, content.
type Thing = (u16, u32, u8);

fn uid(name: u16, incarnation: u32) -> String {
    format!("{name}-{incarnation}")
}

impl ViewSnapshot for Fake {
    type Object = Thing;

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn since(&self, before: Option<&Self>) -> Vec<WalkStep<Thing>> {
        let Some(Self(before)) = before else {
            return self.all().into_iter().map(WalkStep::Judge).collect();
        };
        let of = |name: &u16, (made, content): &(u32, u8)| Self::uid(&(*name, *made, *content));
        let gone = before.iter().filter_map(|(name, old)| {
            let now = self.0.get(name).and_then(|now| of(name, now));
            of(name, old).filter(|old| now.as_ref() != Some(old))
        });
        let gone = gone.map(WalkStep::Forget);
        let changed = self.0.iter();
        let changed = changed.filter(|(name, now)| before.get(*name) != Some(*now));
        let changed = changed
            .map(|(name, (incarnation, content))| WalkStep::Judge((*name, *incarnation, *content)));
        gone.chain(changed).collect()
    }

    fn all(&self) -> Vec<Thing> {
        let all = self.0.iter();
        all.map(|(name, (incarnation, content))| (*name, *incarnation, *content))
            .collect()
    }

    fn uid((name, incarnation, content): &Thing) -> Option<String> {
        (*content != NAMELESS).then(|| uid(*name, *incarnation))
    }

    fn key((name, ..): &Thing) -> ObjectKey {
        ObjectKey::new("", name.to_string())
    }

    fn get(&self, key: &ObjectKey) -> Option<Thing> {
        let name: u16 = key.name.parse().ok()?;
        let (incarnation, content) = self.0.get(&name)?;
        Some((name, *incarnation, *content))
    }
}

fn subject((name, incarnation, _): Thing) -> ReportSubject {
    ReportSubject {
        uid: uid(name, incarnation).into(),
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: "".into(),
        name: name.to_string().into(),
    }
}

#[derive(Clone, Debug)]
enum Event {
    Put(u8, u16, u8),
    Delete(u8, u16),
    /// The object goes and comes again between two looks.
    Remake(u8, u16, u8),
    /// The policy's new content; 0: the policy is gone.
    Policy(u8, u8),
    /// The view cannot be read, or can be again.
    Unknown(u8, bool),
    Begin,
    Steps(usize),
    Rescan,
    /// The walk that has waited longest takes along what changed.
    Extend,
    /// The policy's failed evaluations on the view are due again.
    Retry(u8, u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (0..2_u8, 0..4_u16, 0..6_u8).prop_map(|(v, n, c)| Event::Put(v, n, c)),
        2 => (0..2_u8, 0..4_u16).prop_map(|(v, n)| Event::Delete(v, n)),
        1 => (0..2_u8, 0..4_u16, 0..6_u8).prop_map(|(v, n, c)| Event::Remake(v, n, c)),
        3 => (0..3_u8, 0..4_u8).prop_map(|(p, c)| Event::Policy(p, c)),
        1 => (0..2_u8, any::<bool>()).prop_map(|(v, u)| Event::Unknown(v, u)),
        4 => Just(Event::Begin),
        6 => (0..3_usize).prop_map(Event::Steps),
        1 => Just(Event::Rescan),
        3 => Just(Event::Extend),
        2 => (0..3_u8, 0..2_u8).prop_map(|(p, v)| Event::Retry(p, v)),
    ];
    prop::collection::vec(event, 0..60)
}

/// Returns the policy's results for an object; none for some.
fn judge(policy: u8, content: u8) -> Vec<crate::result::RuleResult> {
    match (policy + content) % 4 {
        0 => Vec::new(),
        1 => vec![result("r", ReportOutcome::Pass)],
        2 => vec![result("r", ReportOutcome::Fail)],
        _ => vec![
            result("r", ReportOutcome::Fail),
            result("s", ReportOutcome::Error),
        ],
    }
}

#[derive(Default)]
struct World {
    views: [BTreeMap<u16, (u32, u8)>; 2],
    states: [Option<Fake>; 2],
    unknown: [bool; 2],
    policies: BTreeMap<u8, u8>,
    incarnations: u32,
    plan: ScanPlan<Fake>,
    findings: Findings,
    walks: Vec<Walk<Fake>>,
}

fn view(index: usize) -> ViewId {
    ViewId::new(format!("view{index}"))
}

fn scan(policy: u8, index: usize) -> PolicyScan {
    PolicyScan {
        policy: ObjectKey::new("", policy.to_string()),
        view: view(index),
    }
}

impl World {
    fn views_of(policy: u8) -> Vec<usize> {
        // One on each, and one on both.
        match policy {
            2 => vec![0, 1],
            policy => vec![usize::from(policy)],
        }
    }

    fn scans(&self) -> BTreeSet<PolicyScan> {
        let policies = self.policies.keys();
        policies
            .flat_map(|policy| {
                Self::views_of(*policy)
                    .into_iter()
                    .map(|v| scan(*policy, v))
            })
            .collect()
    }

    fn take(&mut self, event: &Event) {
        match *event {
            Event::Put(view, name, content) => {
                self.incarnations += 1;
                let incarnation = self.incarnations;
                let view = &mut self.views[usize::from(view)];
                view.entry(name).or_insert((incarnation, 0)).1 = content;
            }
            Event::Delete(view, name) => {
                self.views[usize::from(view)].remove(&name);
            }
            Event::Remake(view, name, content) => {
                self.incarnations += 1;
                let made = (self.incarnations, content);
                self.views[usize::from(view)].insert(name, made);
            }
            Event::Policy(policy, 0) => {
                self.policies.remove(&policy);
                self.set();
            }
            Event::Policy(policy, content) => {
                let before = self.policies.insert(policy, content);
                self.set();
                if before.is_some_and(|before| before != content) {
                    let key = scan(policy, 0).policy;
                    self.plan.rescan_all(|changed| *changed == key);
                }
            }
            Event::Unknown(view, unknown) => self.unknown[usize::from(view)] = unknown,
            Event::Begin => self.begin(),
            Event::Steps(count) => self.steps(count),
            Event::Extend => self.extend(),
            Event::Rescan => self.plan.rescan_all(|_| true),
            Event::Retry(policy, view) => {
                let scan = scan(policy, usize::from(view));
                let objects = self.findings.errors_of(&scan);
                let objects: Vec<_> = objects
                    .into_iter()
                    .map(|o| ObjectKey::new("", o.name))
                    .collect();
                self.walks.extend(self.plan.rescan_objects(&scan, &objects));
            }
        }
    }

    fn set(&mut self) {
        if self.plan.set(&self.scans()) {
            let plan = &self.plan;
            self.findings.retain(|scan| plan.has(scan));
        }
    }

    fn extend(&mut self) {
        self.look();
        let Some(walk) = self.walks.first_mut() else {
            return;
        };
        let index = usize::from(walk.view == view(1));
        if let Some(now) = self.states[index].as_ref().filter(|_| !self.unknown[index]) {
            walk.extend(now);
        }
    }

    fn look(&mut self) {
        for index in 0..2 {
            let changed = self.states[index]
                .as_ref()
                .is_none_or(|state| *state.0 != self.views[index]);
            if changed {
                self.states[index] = Some(Fake(Arc::new(self.views[index].clone())));
            }
        }
    }

    fn begin(&mut self) {
        self.look();
        let (states, unknown) = (&self.states, &self.unknown);
        let now = |id: &ViewId| {
            let index = (0..2).find(|index| view(*index) == *id)?;
            states[index].clone().filter(|_| !unknown[index])
        };
        // Policy 2 may wait for facts.
        let begun = self.plan.walks(now, |policy| &*policy.name == "2");
        self.walks.extend(begun);
    }

    /// Steps of the walk that has waited longest.
    fn steps(&mut self, count: usize) {
        if self.walks.is_empty() {
            return;
        }
        let mut walk = self.walks.remove(0);
        let index = usize::from(walk.view == view(1));
        let steps = walk.take(count);
        let met = steps.iter().filter_map(|step| match step {
            WalkStep::Judge((name, _, content)) => {
                let key = ObjectKey::new("", name.to_string());
                Some((key, is_readable(*content)))
            }
            WalkStep::Forget(_) => None,
        });
        let met: Vec<_> = met.collect();
        let objects = met.iter().map(|(key, is_readable)| (key, *is_readable));
        self.plan.note_visited(&mut walk, objects);
        for step in steps {
            for scan in self.plan.on(&walk) {
                assert_eq!(scan.view, view(index));
                let number: u8 = scan.policy.name.parse().unwrap();
                let content = &self.policies[&number];
                match &step {
                    WalkStep::Judge(thing) if !is_readable(thing.2) => {}
                    WalkStep::Judge(thing) => {
                        let results = judge(*content, thing.2);
                        self.findings.put(&subject(*thing), &scan, results, 0);
                    }
                    WalkStep::Forget(uid) => self.findings.forget(uid, &scan),
                }
            }
        }
        match walk.left() {
            0 => self.plan.finish_walk(walk),
            _ => self.walks.push(walk),
        }
    }

    fn settle(&mut self) {
        self.unknown = [false; 2];
        for _ in 0..1_000 {
            self.begin();
            if self.walks.is_empty() {
                return;
            }
            self.steps(3);
        }
        panic!("it never comes to an end");
    }

    /// Returns the findings without broken objects, whose earlier findings stay.
    fn known(
        &self,
    ) -> BTreeMap<ReportSubject, BTreeMap<PolicyScan, Vec<crate::result::RuleResult>>> {
        let things = self.views.iter().flatten();
        let broken = things.filter(|(_, (_, content))| *content == BROKEN);
        let broken = broken.map(|(name, (made, _))| uid(*name, *made));
        let broken: BTreeSet<String> = broken.collect();
        let mut known = self.findings.all();
        known.retain(|subject, _| !broken.contains(&*subject.uid));
        known
    }

    /// Returns the data that each scan reported as unreadable.
    fn unread(&self) -> BTreeMap<PolicyScan, Option<Vec<String>>> {
        let scans = self.scans().into_iter().map(|scan| {
            let keys = self.plan.unread_objects(&scan);
            let keys = keys.map(|keys| keys.iter().map(|key| key.name.to_string()).collect());
            (scan, keys)
        });
        scans.collect()
    }

    /// Returns the data that nobody can read.
    fn unreadable(&self) -> BTreeMap<PolicyScan, Option<Vec<String>>> {
        let scans = self.scans().into_iter().map(|scan| {
            let things = &self.views[usize::from(scan.view == view(1))];
            let unreadable = things.iter().filter(|(_, thing)| !is_readable(thing.1));
            let names = unreadable.map(|(name, _)| name.to_string()).collect();
            (scan, Some(names))
        });
        scans.collect()
    }

    fn full_scan(&self) -> Findings {
        let mut findings = Findings::default();
        for (policy, content) in &self.policies {
            for index in Self::views_of(*policy) {
                let things = Fake(Arc::new(self.views[index].clone())).all();
                for thing in things.into_iter().filter(|thing| is_readable(thing.2)) {
                    let results = judge(*content, thing.2);
                    findings.put(&subject(thing), &scan(*policy, index), results, 0);
                }
            }
        }
        findings
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn after_any_changes_the_findings_are_those_of_a_full_scan(events in events()) {
        let mut world = World::default();
        let mut told = world.unread();
        for event in &events {
            world.take(event);
            if world.plan.take_unread_changed() {
                told = world.unread();
            }
            prop_assert_eq!(&told, &world.unread(), "nobody said that it is another");
        }
        world.settle();
        prop_assert_eq!(world.known(), world.full_scan().all());
        prop_assert_eq!(world.unread(), world.unreadable());
        prop_assert_eq!(world.plan.len(), world.scans().len());
    }
}

fn never(_: &ObjectKey) -> bool {
    false
}

#[test]
fn a_policy_that_may_wait_for_facts_is_scanned_alone() {
    let mut plan = ScanPlan::default();
    plan.set(&[scan(0, 0), scan(2, 0)].into());
    let state = Fake(Arc::new([(1, (1, 1))].into()));
    let walks = plan.walks(|_| Some(state.clone()), |policy| &*policy.name == "2");
    let on: Vec<_> = walks.iter().map(|walk| plan.on(walk).len()).collect();
    assert_eq!(on, [1, 1]);
    let waits: Vec<_> = walks.iter().map(Walk::waits).collect();
    assert_eq!(waits, [false, true]);
}

#[test]
fn objects_that_change_during_a_scan_are_judged_in_the_same_scan() {
    let mut plan = ScanPlan::default();
    plan.set(&[scan(0, 0)].into());
    let state = |things: &[Thing]| {
        let things = things
            .iter()
            .map(|(name, made, content)| (*name, (*made, *content)));
        Fake(Arc::new(things.collect()))
    };
    let one = state(&[(1, 1, 0), (2, 1, 0), (3, 1, 0), (4, 1, 0)]);
    let mut walk = plan.walks(|_| Some(one.clone()), never).remove(0);
    assert_eq!(walk.take(1), [WalkStep::Judge((1, 1, 0))]);
    let two = state(&[(1, 1, 0), (2, 2, 0), (4, 1, 5), (5, 1, 0)]);
    walk.extend(&two);
    let changes = [
        WalkStep::Forget(uid(2, 1)),
        WalkStep::Forget(uid(3, 1)),
        WalkStep::Judge((2, 2, 0)),
        WalkStep::Judge((4, 1, 5)),
        WalkStep::Judge((5, 1, 0)),
    ];
    assert!(!walk.is_of_all());
    assert_eq!(walk.take(9), changes);
    assert!(walk.is_of_all());
    plan.finish_walk(walk);
    assert!(plan.walks(|_| Some(two.clone()), never).is_empty());
}

#[test]
fn unreadable_objects_are_known_one_by_one_up_to_a_limit() {
    let mut plan = ScanPlan::default();
    let scan = scan(0, 0);
    plan.set(&[scan.clone()].into());
    let things = |n: usize| Fake(Arc::new((0_u16..).take(n).map(|n| (n, (1, 1))).collect()));
    let mut go = |to: &Fake, whole: bool, unread: Range<usize>| {
        if whole {
            plan.rescan_all(|_| true);
        }
        let mut walk = plan.walks(|_| Some(to.clone()), never).remove(0);
        let keys: Vec<_> = unread
            .map(|number| ObjectKey::new("", number.to_string()))
            .collect();
        plan.note_visited(&mut walk, keys.iter().map(|key| (key, false)));
        plan.finish_walk(walk);
        plan.unread_objects(&scan).map(|keys| keys.len())
    };
    let (one, two) = (things(1), things(2));
    let (most, more) = (things(UNREAD_MAX), things(UNREAD_MAX + 1));
    let all = || 0..UNREAD_MAX;
    assert_eq!(go(&one, true, all()), Some(1), "the others are not there");
    assert_eq!(
        go(&two, false, 0..0),
        Some(2),
        "other changes change nothing"
    );
    assert_eq!(go(&most, true, all()), Some(UNREAD_MAX));
    assert_eq!(go(&more, false, UNREAD_MAX..UNREAD_MAX + 1), None);
    assert_eq!(go(&one, false, 0..0), None, "some of them nobody knows");
    assert_eq!(go(&one, true, 0..0), Some(0), "all was read");
    // On one walk, and on several.
    assert_eq!(go(&more, true, 0..UNREAD_MAX + 1), None);
    assert_eq!(
        go(&two, true, 0..3 * UNREAD_MAX),
        Some(2),
        "what is gone does not count"
    );
    for round in 1..5 {
        let gone = round * UNREAD_MAX;
        let found = go(&things(2 + round), false, gone..gone + 900);
        assert_eq!(found, Some(2), "nor what went before");
    }
}

#[test]
fn an_object_without_a_uid_is_not_judged_by_an_older_state() {
    let mut plan = ScanPlan::default();
    plan.set(&[scan(0, 0)].into());
    let state = |contents: [u8; 3]| {
        let things = (0_u16..).zip(contents);
        Fake(Arc::new(
            things.map(|(name, content)| (name, (1, content))).collect(),
        ))
    };
    let one = state([NAMELESS, 0, NAMELESS]);
    let mut walk = plan.walks(|_| Some(one.clone()), never).remove(0);
    walk.extend(&state([1, NAMELESS, NAMELESS]));
    let steps = [
        WalkStep::Forget(uid(1, 1)),
        WalkStep::Judge((0, 1, 1)),
        WalkStep::Judge((1, 1, NAMELESS)),
        WalkStep::Judge((2, 1, NAMELESS)),
    ];
    assert_eq!(walk.take(9), steps);
}

#[test]
fn policies_at_the_same_state_are_scanned_together() {
    let mut plan = ScanPlan::default();
    plan.set(&[scan(0, 0), scan(2, 0)].into());
    let state = |n: u16| Fake(Arc::new((0..n).map(|name| (name, (1, 1))).collect()));
    let (one, two) = (state(3), state(4));
    let mut walks = plan.walks(|_| Some(one.clone()), never);
    assert_eq!(walks.len(), 1);
    let mut walk = walks.remove(0);
    assert_eq!((plan.on(&walk).len(), walk.left()), (2, 3));
    assert!(
        plan.walks(|_| Some(two.clone()), never).is_empty(),
        "they walk"
    );
    walk.take(9);
    plan.finish_walk(walk);
    plan.rescan_all(|policy| &*policy.name == "2");
    let walks = plan.walks(|_| Some(two.clone()), never);
    let left: Vec<_> = walks.iter().map(Walk::left).collect();
    assert_eq!(left, [1, 4], "what came, and all");
    let of_all: Vec<_> = walks.iter().map(Walk::is_of_all).collect();
    assert_eq!(of_all, [false, true]);
}

#[test]
fn objects_are_judged_again_by_the_state_their_policy_has_reached() {
    let mut plan = ScanPlan::default();
    let scan = scan(0, 0);
    plan.set(&[scan.clone()].into());
    let keys = ["1", "9"].map(|name| ObjectKey::new("", name));
    assert!(
        plan.rescan_objects(&scan, &keys).is_none(),
        "it stands nowhere"
    );
    let state = Fake(Arc::new([(1, (1, 1)), (2, (1, 1))].into()));
    let walk = plan.walks(|_| Some(state.clone()), never).remove(0);
    assert!(plan.rescan_objects(&scan, &keys).is_none(), "it walks");
    plan.finish_walk(walk);
    let mut walk = plan.rescan_objects(&scan, &keys).unwrap();
    assert_eq!(walk.take(9), [WalkStep::Judge((1, 1, 1))]);
    plan.finish_walk(walk);
    assert_eq!(plan.unread_objects(&scan).map(|keys| keys.len()), Some(0));
}

#[test]
fn a_policy_without_objects_to_judge_again_scans_on() {
    let mut plan = ScanPlan::default();
    let scan = scan(0, 0);
    plan.set(&[scan.clone()].into());
    let state = |n: u16| Fake(Arc::new((0..n).map(|name| (name, (1, 1))).collect()));
    let (one, two) = (state(1), state(2));
    let walk = plan.walks(|_| Some(one.clone()), never).remove(0);
    plan.finish_walk(walk);
    for gone in [&[][..], &[ObjectKey::new("", "9")]] {
        assert!(plan.rescan_objects(&scan, gone).is_none());
    }
    let walks = plan.walks(|_| Some(two.clone()), never);
    assert_eq!(walks.iter().map(Walk::left).collect::<Vec<_>>(), [1]);
}

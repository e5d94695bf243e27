//! Findings hold no more than their limits say, and always of the same objects.

use proptest::prelude::*;

use super::*;

fn limited(objects_max: usize, bytes_max: usize) -> Findings {
    Findings::with_limits(Limits {
        objects_max,
        bytes_max,
        ..Limits::default()
    })
}

fn uids(findings: &Findings) -> Vec<String> {
    findings
        .all()
        .keys()
        .map(|subject| subject.uid.to_string())
        .collect()
}

fn pass() -> Vec<RuleResult> {
    vec![result("r", ReportOutcome::Pass)]
}

#[test]
fn beyond_the_limit_the_object_with_the_last_uid_is_left_out() {
    let mut findings = limited(2, usize::MAX);
    findings.put(&subject("c"), &scan("p"), pass(), 1);
    findings.put(&subject("b"), &scan("p"), pass(), 1);
    assert_eq!(
        (uids(&findings), findings.left_out()),
        (vec!["b".into(), "c".into()], 0)
    );
    take_all(&mut findings);
    findings.put(&subject("a"), &scan("p"), pass(), 1);
    assert_eq!(
        (uids(&findings), findings.left_out()),
        (vec!["a".into(), "b".into()], 1)
    );
    assert_eq!(
        take_all(&mut findings),
        ["a", "c"],
        "of what is left out the report goes"
    );
    for policy in ["p", "q"] {
        findings.put(&subject("c"), &scan(policy), pass(), 1);
        findings.put(&subject("d"), &scan(policy), pass(), 1);
    }
    assert_eq!(take_all(&mut findings), [""; 0]);
    assert_eq!((findings.len(), findings.left_out()), (2, 2));
    findings.forget("d", &scan("p"));
    assert_eq!(findings.left_out(), 2, "another policy speaks of it");
    findings.put(&subject("d"), &scan("q"), Vec::new(), 1);
    assert_eq!(findings.left_out(), 1);
    findings.retain(|scan| &*scan.policy.name == "none");
    assert_eq!((findings.len(), findings.left_out()), (0, 0));
}

#[test]
fn free_room_goes_to_left_out_objects_in_the_next_whole_scan() {
    let mut findings = limited(16, usize::MAX);
    let names: Vec<_> = (0..18).map(|number| format!("{number:02}")).collect();
    let walk = |findings: &mut Findings| {
        for name in &names {
            findings.put(&subject(name), &scan("p"), pass(), 1);
        }
        (findings.len(), findings.left_out())
    };
    assert!(!findings.reopen(), "nothing is left out");
    assert_eq!(walk(&mut findings), (16, 2));
    findings.forget("03", &scan("p"));
    assert!(!findings.reopen());
    assert_eq!(uids(&findings).len(), 15);
    findings.put(&subject("17"), &scan("p"), pass(), 1);
    assert_eq!(
        findings.left_out(),
        2,
        "nothing comes and goes at the limit"
    );
    findings.forget("04", &scan("p"));
    findings.put(&subject("17"), &scan("p"), pass(), 1);
    assert_eq!(findings.len(), 14, "not before all are judged again");
    assert!(findings.reopen());
    assert!(!findings.reopen(), "once");
    for name in ["17", "16"] {
        findings.put(&subject(name), &scan("p"), pass(), 1);
    }
    assert_eq!((findings.len(), findings.left_out()), (16, 0));
}

#[test]
fn gone_objects_are_remembered_up_to_a_limit_and_beyond_it_as_lost() {
    let mut findings = Findings::with_limits(Limits {
        objects_max: 1,
        bytes_max: usize::MAX,
        gone_max: 1,
    });
    let come_and_go = |findings: &mut Findings, name: &str| {
        findings.put(&subject(name), &scan("p"), pass(), 1);
        findings.forget(name, &scan("p"));
        findings.take_lost()
    };
    let lost = ["a", "b", "a", "c"].map(|name| come_and_go(&mut findings, name));
    assert_eq!(lost, [false, false, false, true]);
    // Subjects with findings are looked at, regardless of the deleted subjects.
    findings.put(&subject("d"), &scan("p"), pass(), 1);
    assert_eq!(take_all(&mut findings), ["a", "b", "d"]);
    assert!(!come_and_go(&mut findings, "e"));
}

#[test]
fn results_that_objects_share_are_held_once() {
    let mut findings = Findings::default();
    findings.put(&subject("a"), &scan("p"), pass(), 1);
    let one = findings.bytes();
    findings.put(&subject("b"), &scan("p"), pass(), 1);
    assert!(
        findings.bytes() - one < 2 * size_of::<ObjectFindings>(),
        "{one} {}",
        findings.bytes()
    );
    assert_eq!(findings.shares.results().len(), 1);
    assert!(Arc::ptr_eq(
        &findings.of_object("a").unwrap().findings[0].result,
        &findings.of_object("b").unwrap().findings[0].result,
    ));
    for uid in ["a", "b"] {
        findings.forget(uid, &scan("p"));
    }
    assert_eq!(
        (
            findings.bytes(),
            findings.shares.results().len(),
            findings.texts.len()
        ),
        (0, 0, 0)
    );
}

#[test]
fn large_objects_are_left_out_by_their_bytes() {
    let mut findings = Findings::default();
    findings.put(&subject("a"), &scan("p"), pass(), 1);
    let one = findings.bytes();
    let mut findings = limited(usize::MAX, one);
    findings.put(&subject("a"), &scan("p"), pass(), 1);
    assert_eq!((findings.len(), findings.bytes()), (1, one), "just so much");
    let mut findings = limited(usize::MAX, one - 1);
    findings.put(&subject("a"), &scan("p"), pass(), 1);
    assert_eq!(
        (findings.len(), findings.left_out(), findings.bytes()),
        (0, 1, 0)
    );
}

fn within(namespace: &str, uid: &str) -> ReportSubject {
    ReportSubject {
        namespace: namespace.into(),
        ..subject(uid)
    }
}

/// The UIDs of the objects of a namespace.
fn uids_within(findings: &Findings, namespace: &str) -> Vec<String> {
    let all = findings.all();
    let of_namespace = all.keys().filter(|one| &*one.namespace == namespace);
    of_namespace.map(|one| one.uid.to_string()).collect()
}

#[test]
fn a_namespace_with_many_objects_leaves_out_its_own_alone() {
    let mut findings = limited(10, usize::MAX);
    let many = || (0..20).map(|n| within("many", &format!("a{n:02}")));
    let few = || (0..3).map(|n| within("few", &format!("b{n}")));
    for subject in many().chain(few()) {
        findings.put(&subject, &scan("p"), pass(), 1);
    }
    assert_eq!(uids_within(&findings, "few").len(), 3);
    let expected: Vec<String> = (0..7).map(|n| format!("a{n:02}")).collect();
    assert_eq!(uids_within(&findings, "many"), expected);
    assert_eq!(findings.left_out(), 13);
    // Once the few are gone there is room, and the many are taken in again.
    for subject in few() {
        findings.forget(&subject.uid, &scan("p"));
    }
    assert!(findings.reopen());
    many().for_each(|subject| findings.put(&subject, &scan("p"), pass(), 1));
    assert_eq!(uids_within(&findings, "many").len(), 10);
}

#[test]
fn a_namespace_with_long_messages_leaves_out_its_own_objects_alone() {
    let mut findings = limited(usize::MAX, 20_000);
    for n in 0..20 {
        findings.put(&within("few", &format!("z{n}")), &scan("p"), pass(), 1);
        let mut long = result("r", ReportOutcome::Fail);
        long.message = format!("{n}").repeat(1_000).into();
        let subject = within("long", &format!("a{n:02}"));
        findings.put(&subject, &scan("p"), vec![long], 1);
    }
    assert_eq!(uids_within(&findings, "few").len(), 20);
    let left = uids_within(&findings, "long").len();
    assert!(left > 0 && left < 20, "{left}");
    assert_eq!(findings.left_out(), 20 - left);
    assert!(findings.bytes() <= 20_000);
}

/// The namespace, the number of its objects, the message of each, and whether all of them are held at the limit.
type Tenant = (&'static str, usize, fn(usize) -> String, bool);

#[test]
fn at_each_limit_the_namespace_that_really_takes_the_most_of_it_leaves_out_its_objects() {
    let short: fn(usize) -> String = |_| "m".into();
    let same: fn(usize) -> String = |_| "m".repeat(1_000);
    let own: fn(usize) -> String = |n| format!("own {n:01000}");
    let common: fn(usize) -> String = |n| format!("common {n:01000}");
    let cases: [(&str, usize, usize, &[Tenant]); 3] = [
        (
            "one message of many objects counts once",
            usize::MAX,
            80_000,
            &[("same", 100, same, true), ("own", 65, own, false)],
        ),
        (
            "messages count for each of the namespaces that have them",
            usize::MAX,
            90_000,
            &[
                ("a", 60, common, false),
                ("b", 60, common, false),
                ("own", 20, own, true),
            ],
        ),
        (
            "of objects, a namespace with few large ones takes least",
            10,
            usize::MAX,
            &[("own", 3, own, true), ("short", 20, short, false)],
        ),
    ];
    for (case, objects_max, bytes_max, tenants) in cases {
        let mut findings = limited(objects_max, bytes_max);
        for (namespace, objects, message, _) in tenants {
            for n in 0..*objects {
                let mut one = result("r", ReportOutcome::Fail);
                one.message = message(n).into();
                let subject = within(namespace, &format!("{namespace}{n:03}"));
                findings.put(&subject, &scan("p"), vec![one], 1);
            }
        }
        assert!(findings.left_out() > 0, "{case}");
        for (namespace, objects, _, is_whole) in tenants {
            let held = uids_within(&findings, namespace).len();
            assert_eq!(
                held == *objects,
                *is_whole,
                "{case}: {namespace} has {held}"
            );
        }
    }
}

/// An object, a policy, and how long what it says is; 0: it says nothing.
type Put = (u8, u8, usize);

fn put(findings: &mut Findings, (object, policy, length): Put) {
    let mut one = result("r", ReportOutcome::Fail);
    one.message = format!("{object}").repeat(length).into();
    let results = if length == 0 { Vec::new() } else { vec![one] };
    let (subject, scan) = (subject(&format!("{object:03}")), scan(&policy.to_string()));
    findings.put(&subject, &scan, results, 1);
}

/// A namespace, an object in it, a policy, and the length of its message; 0: it says nothing.
type Change = (u8, u8, u8, usize);

/// A plain model of the findings, which counts everything anew after each change.
#[derive(Default)]
struct Recount {
    /// The lengths of the messages by namespace and object, and by policy.
    objects: BTreeMap<(u8, u8), BTreeMap<u8, usize>>,
    /// The first object that each namespace leaves out, with all after it.
    horizons: BTreeMap<u8, u8>,
}

impl Recount {
    fn uid((namespace, object): (u8, u8)) -> String {
        format!("{namespace}-{object}")
    }

    /// The bytes of the objects of these namespaces, with each result once.
    fn bytes(&self, is_counted: impl Fn(u8) -> bool) -> usize {
        let counted = self.objects.iter().filter(|(key, _)| is_counted(key.0));
        let of_object = |(key, lengths): (&(u8, u8), &BTreeMap<u8, usize>)| {
            let texts = 2 * Self::uid(*key).len();
            size_of::<ObjectFindings>() + texts + lengths.len() * size_of::<Finding>()
        };
        let objects: usize = counted.clone().map(of_object).sum();
        let lengths: BTreeSet<usize> = counted
            .flat_map(|(_, lengths)| lengths.values().copied())
            .collect();
        let results = lengths
            .iter()
            .map(|length| size_of::<RuleResult>() + 1 + length);
        objects + results.sum::<usize>()
    }

    /// The bytes of everything.
    fn all_bytes(&self) -> usize {
        let namespaces: BTreeSet<u8> = self.objects.keys().map(|key| key.0).collect();
        let texts = match namespaces.len() {
            0 => 0,
            some => "v1Pod".len() + "n0".len() * some,
        };
        self.bytes(|_| true) + texts
    }

    /// The namespaces in the order of their objects, and of their bytes.
    fn orders(&self) -> [Vec<(usize, u8)>; 2] {
        let namespaces: BTreeSet<u8> = self.objects.keys().map(|key| key.0).collect();
        let count = |namespace: u8| self.objects.keys().filter(|key| key.0 == namespace).count();
        let bytes = |namespace: u8| self.bytes(|counted| counted == namespace);
        let by_objects = namespaces.iter().map(|one| (count(*one), *one));
        let by_bytes = namespaces.iter().map(|one| (bytes(*one), *one));
        let mut orders = [by_objects.collect::<Vec<_>>(), by_bytes.collect()];
        orders.iter_mut().for_each(|order| order.sort_unstable());
        orders
    }

    fn change(&mut self, (namespace, object, policy, length): Change, limits: Limits) {
        let horizon = self.horizons.get(&namespace);
        let key = (namespace, object);
        if length == 0 {
            self.objects.entry(key).or_default().remove(&policy);
            self.objects.retain(|_, lengths| !lengths.is_empty());
        } else if horizon.is_none_or(|horizon| object < *horizon) {
            self.objects.entry(key).or_default().insert(policy, length);
        }
        loop {
            let [by_objects, by_bytes] = self.orders();
            let order = match self.objects.len() > limits.objects_max {
                true => by_objects,
                false if self.all_bytes() > limits.bytes_max => by_bytes,
                false => return,
            };
            let most = order.last().unwrap().1;
            let last = *self
                .objects
                .range((most, 0)..=(most, u8::MAX))
                .next_back()
                .unwrap()
                .0;
            self.objects.remove(&last);
            self.horizons.insert(most, last.1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The objects that are left out are the same in whatever order unchanged objects come.
    #[test]
    fn which_objects_are_left_out_does_not_depend_on_their_order(
        puts in prop::collection::btree_map((0..12_u8, 0..3_u8), 1..200_usize, 0..30),
        order in any::<u64>(),
        objects_max in 1..12_usize,
        bytes_max in 500..6_000_usize,
    ) {
        let puts: Vec<Put> = puts.into_iter().map(|((o, p), length)| (o, p, length)).collect();
        let mut shuffled = puts.clone();
        shuffled.sort_by_key(|put| xxhash_rust::xxh3::xxh3_64_with_seed(format!("{put:?}").as_bytes(), order));
        let mut findings = limited(objects_max, bytes_max);
        shuffled.iter().for_each(|one| put(&mut findings, *one));
        // The model: as many of the first as there is room for.
        let objects: BTreeSet<u8> = puts.iter().map(|(object, ..)| *object).collect();
        let with = |count: usize| {
            let mut whole = Findings::default();
            let held: Vec<u8> = objects.iter().take(count).copied().collect();
            let of_these = puts.iter().filter(|(object, ..)| held.contains(object));
            of_these.for_each(|one| put(&mut whole, *one));
            whole
        };
        let fits = |count: &usize| *count <= objects_max && with(*count).bytes() <= bytes_max;
        let count = (0..=objects.len()).rev().find(fits).unwrap_or_default();
        prop_assert_eq!(findings.all(), with(count).all());
        prop_assert_eq!(findings.left_out(), objects.len() - count);
        prop_assert_eq!(findings.bytes(), with(count).bytes());
    }

    /// That holds for the objects of several namespaces too.
    #[test]
    fn which_objects_of_namespaces_are_left_out_does_not_depend_on_their_order(
        objects in prop::collection::btree_set((0..4_u8, 0..12_u8), 1..40),
        order in any::<u64>(),
        objects_max in 1..30_usize,
    ) {
        let left = |objects: &[(u8, u8)]| {
            let mut findings = limited(objects_max, usize::MAX);
            for (namespace, object) in objects {
                let subject = within(&format!("n{namespace}"), &format!("{namespace}-{object:02}"));
                findings.put(&subject, &scan("p"), pass(), 1);
            }
            (uids(&findings), findings.left_out())
        };
        let objects: Vec<(u8, u8)> = objects.into_iter().collect();
        let mut shuffled = objects.clone();
        shuffled.sort_by_key(|one| xxhash_rust::xxh3::xxh3_64_with_seed(format!("{one:?}").as_bytes(), order));
        prop_assert_eq!(left(&shuffled), left(&objects));
    }

    /// After each change, the parts are those of a plain recount, and the same namespaces have left out objects.
    #[test]
    fn parts_and_left_out_objects_are_those_of_a_plain_recount(
        changes in prop::collection::vec((0..4_u8, 0..8_u8, 0..3_u8, 0..40_usize), 1..80),
        objects_max in 1..30_usize,
        bytes_max in 500..8_000_usize,
    ) {
        let mut findings = limited(objects_max, bytes_max);
        let mut recount = Recount::default();
        for (nth, change) in changes.into_iter().enumerate() {
            let (namespace, object, policy, length) = change;
            let subject = within(&format!("n{namespace}"), &Recount::uid((namespace, object)));
            let mut one = result("r", ReportOutcome::Fail);
            one.message = "m".repeat(length).into();
            let results = if length == 0 { Vec::new() } else { vec![one] };
            findings.put(&subject, &scan(&policy.to_string()), results, 1);
            recount.change(change, findings.limits);
            if nth % 8 == 7 && findings.reopen() {
                recount.horizons.clear();
            }
            let orders = recount.orders().map(|order| {
                let named = |(number, of): (usize, u8)| (number, Arc::<str>::from(format!("n{of}")));
                order.into_iter().map(named).collect::<Vec<_>>()
            });
            prop_assert_eq!(findings.shares.orders(), orders);
            prop_assert_eq!(findings.bytes(), recount.all_bytes());
            let held: Vec<String> = recount.objects.keys().copied().map(Recount::uid).collect();
            prop_assert_eq!(uids(&findings), held);
        }
    }
}

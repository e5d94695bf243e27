//! Policies that wait for room in their namespace.

use super::*;

/// A policy of the namespace `a` that reads nothing, made in this minute, with so many rules.
fn plain(name: &str, minute: usize, rules: usize) -> Value {
    let mut policy = policy(name, "unused");
    policy["metadata"]["namespace"] = json!("a");
    policy["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:{minute:02}:00Z"));
    let mut rule = policy["spec"]["rules"][0].take();
    rule["context"] = json!([]);
    rule["validate"] = json!({"message": "no", "pattern": {"metadata": {"name": "?*"}}});
    let rules = (0..rules).map(|at| {
        let mut rule = rule.clone();
        rule["name"] = json!(format!("r{at}"));
        rule
    });
    policy["spec"]["rules"] = rules.collect();
    policy
}

/// The names of the policies that are published by these effects.
fn published(effects: &[String]) -> Vec<&str> {
    let names = effects
        .iter()
        .filter_map(|e| e.strip_prefix("put Policies "));
    names.collect()
}

fn list_all(world: &mut World) -> Vec<String> {
    let mut effects = Vec::new();
    for manifests in all_listed() {
        effects.extend(world.listed(manifests));
    }
    effects
}

fn gone(world: &mut World, name: &str) {
    let (key, version) = (ObjectKey::new("a", name), ResourceVersion::default());
    let span = Span::none();
    world.note(POLICIES, Note::Gone { key, version, span });
}

fn is_over_quota(world: &mut World, name: &str) -> bool {
    let expected = format!("Policy {name} False QuotaExceeded");
    world.statuses().contains(&expected)
}

#[test]
fn policies_beyond_the_number_of_their_namespace_are_not_published_and_say_so() {
    let mut world = World::settled();
    for number in 0..100 {
        let name = format!("p{number}");
        let effects = world.put(POLICIES, &plain(&name, 0, 1));
        assert_eq!(published(&effects), [name]);
    }
    assert_eq!(world.put(POLICIES, &plain("late", 2, 1)), [""; 0]);
    assert_eq!(world.put(POLICIES, &plain("more", 1, 1)), [""; 0]);
    assert!(is_over_quota(&mut world, "more"));
    let mut other = plain("more", 1, 1);
    other["metadata"]["namespace"] = json!("b");
    other["metadata"]["uid"] = json!("other");
    let effects = world.put(POLICIES, &other);
    assert_eq!(published(&effects), ["more"], "another namespace");
    world.reconciler.tick(world.now);
    assert_eq!(world.effects(), [""; 0], "there is no room yet");
    gone(&mut world, "p7");
    world.reconciler.tick(world.now);
    assert_eq!(published(&world.effects()), ["more"], "the older one");
    gone(&mut world, "late");
    gone(&mut world, "p8");
    world.reconciler.tick(world.now);
    assert_eq!(world.effects(), [""; 0], "none waits");
}

#[test]
fn a_version_that_grows_over_the_quota_leaves_the_one_before_in_force() {
    let mut world = World::settled();
    for (name, rules) in [("one", 200), ("two", 200), ("p", 1)] {
        let effects = world.put(POLICIES, &plain(name, 0, rules));
        assert_eq!(published(&effects), [name]);
    }
    let version = |generation: u64, rules| {
        let mut policy = plain("p", 0, rules);
        policy["metadata"]["generation"] = json!(generation);
        policy
    };
    assert_eq!(world.put(POLICIES, &version(2, 101)), [""; 0]);
    assert!(is_over_quota(&mut world, "p"));
    let id = PolicyId(ObjectKey::new("a", "p"));
    let policy = world.reconciler.policies.get(&id).unwrap();
    assert_eq!(policy.in_force, Some(1));
    let effects = world.put(POLICIES, &version(3, 100));
    assert_eq!(published(&effects), ["p"]);
}

#[test]
fn the_oldest_policies_are_put_in_force_in_whatever_order_they_are_listed() {
    let mut numbers: Vec<_> = (0..102).collect();
    for _ in 0..2 {
        let mut world = World::new();
        world.discovered();
        for number in &numbers {
            let minute = if *number == 50 || *number == 60 { 9 } else { 5 };
            let effects = world.put(POLICIES, &plain(&format!("p{number}"), minute, 1));
            assert_eq!(effects, [""; 0], "others are read first");
        }
        let effects = list_all(&mut world);
        assert_eq!(published(&effects).len(), 100);
        let listed = effects.iter().position(|e| e == "listed Policies");
        let last = effects.iter().rposition(|e| e.starts_with("put Policies "));
        assert!(last < listed, "readers get them with the list");
        for newest in ["p50", "p60"] {
            assert!(!published(&effects).contains(&newest));
        }
        let statuses = world.statuses();
        for newest in ["p50", "p60"] {
            let expected = format!("Policy {newest} False QuotaExceeded");
            assert!(statuses.contains(&expected), "{statuses:?}");
        }
        numbers.reverse();
    }
}

/// New policies displace none, whatever their names and times of creation are.
#[test]
fn policies_that_an_earlier_term_had_in_force_stay_so_beside_older_ones() {
    let in_force = ["x", "y", "z"].map(|name| plain(name, 30, 1));
    let in_log = in_force.iter().map(|policy| {
        let name = policy["metadata"]["name"].as_str().unwrap();
        let body = anteroom_wire::body::encode_json(policy).unwrap();
        (ObjectKey::new("a", name), body)
    });
    let mut world = World::new();
    world.reconciler.inherit(in_log.collect());
    world.discovered();
    let mut effects = Vec::new();
    for number in 0..100 {
        let older = plain(&format!("a{number}"), 0, 1);
        effects.extend(world.put(POLICIES, &older));
    }
    for policy in &in_force[..2] {
        effects.extend(world.put(POLICIES, policy));
    }
    assert_eq!(published(&effects), ["x", "y"]);
    // One was deleted while nobody led.
    effects.extend(list_all(&mut world));
    assert_eq!(published(&effects).len(), 100);
    assert!(!published(&effects).contains(&"z"));
}

#[test]
fn policies_are_put_in_force_although_a_list_does_not_come() {
    let mut world = World::new();
    world.discovered();
    assert_eq!(world.put(POLICIES, &plain("p", 0, 1)), [""; 0]);
    world.now += LISTS_WAIT;
    world.reconciler.tick(world.now);
    assert_eq!(published(&world.effects()), ["p"]);
}

/// At the begin of a term there may be very many, and their authors choose how long each takes to compile.
#[test]
fn new_policies_have_turns_and_their_view_is_complete_after_the_first_ones() {
    let mut world = World::new();
    world.discovered();
    for (name, minute) in [("b", 2), ("a", 1)] {
        world.put(POLICIES, &plain(name, minute, 1));
    }
    for manifests in all_listed() {
        let version = ResourceVersion::default();
        let listed = Note::Listed { version };
        world.reconciler.note(manifests, listed, world.now);
    }
    let is_complete = |effects: &[String]| {
        let told = |told: &str| effects.iter().any(|effect| effect == told);
        (told("listed Policies"), told("free inherited"))
    };
    let effects = world.effects_so_far();
    assert_eq!(published(&effects), [""; 0]);
    assert_eq!(is_complete(&effects), (false, false));
    // A policy that comes meanwhile has its turn after the others, and keeps nobody waiting.
    let late = put_note(&plain("late", 0, 1));
    world.reconciler.note(POLICIES, late, world.now);
    for (name, completes) in [("a", false), ("b", true), ("late", false)] {
        assert!(world.reconciler.has_turns());
        world.reconciler.take_turn(world.now);
        let effects = world.effects_so_far();
        assert_eq!(published(&effects), [name]);
        assert_eq!(is_complete(&effects), (completes, completes), "{name}");
    }
    assert!(!world.reconciler.has_turns());
    assert_eq!(
        published(&world.put(POLICIES, &plain("next", 0, 1))),
        ["next"]
    );
}

/// A policy may be deleted while its watch is away, and have its turn before the next list is complete.
#[test]
fn a_policy_that_a_list_leaves_out_is_gone_although_it_has_its_turn_meanwhile() {
    let mut world = World::new();
    world.discovered();
    for (name, minute) in [("a", 1), ("b", 2)] {
        world.put(POLICIES, &plain(name, minute, 1));
    }
    let listed = || Note::Listed {
        version: ResourceVersion::default(),
    };
    for manifests in all_listed() {
        world.reconciler.note(manifests, listed(), world.now);
    }
    let begin = Note::Begin {
        afresh: false,
        version: ResourceVersion::default(),
    };
    world.reconciler.note(POLICIES, begin, world.now);
    let stays = put_note(&plain("b", 2, 1));
    world.reconciler.note(POLICIES, stays, world.now);
    world.reconciler.take_turn(world.now);
    assert_eq!(published(&world.effects_so_far()), ["a"]);
    world.reconciler.note(POLICIES, listed(), world.now);
    let effects = world.effects();
    let deleted: Vec<_> = effects
        .iter()
        .filter(|effect| effect.starts_with("delete Policies"))
        .collect();
    assert_eq!(deleted, ["delete Policies a"]);
}

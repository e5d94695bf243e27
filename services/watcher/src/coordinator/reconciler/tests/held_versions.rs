//! Versions of policies that cannot be put in force.

use super::*;

/// A policy of the namespace `a`, of this generation, with this many sources of its own.
fn reading(name: &str, generation: u64, sources: usize) -> Value {
    let mut policy = policy(name, "unused");
    policy["metadata"]["namespace"] = json!("a");
    policy["metadata"]["generation"] = json!(generation);
    let source = |n: usize| {
        let cache = json!({
            "version": "v1", "kind": "pods", "namespace": "a",
            "labelSelector": format!("app={name}-{n}"),
        });
        json!({"name": format!("x{n}"), "resourceCache": cache})
    };
    let all: Vec<_> = (0..sources).collect();
    let rules = all.chunks(64).enumerate().map(|(at, numbers)| {
        let mut rule = policy["spec"]["rules"][0].clone();
        rule["name"] = json!(format!("r{at}"));
        rule["context"] = numbers.iter().map(|n| source(*n)).collect();
        rule["validate"] = json!({"message": "no", "pattern": {"metadata": {"name": "?*"}}});
        rule
    });
    policy["spec"]["rules"] = rules.collect();
    policy
}

fn puts(effects: &[String], view: &str) -> usize {
    let prefix = format!("put {view} ");
    effects.iter().filter(|e| e.starts_with(&prefix)).count()
}

#[test]
fn a_policy_over_its_quota_is_held_back_and_nobody_else() {
    let mut world = World::settled();
    let effects = world.put(POLICIES, &reading("greedy", 1, 12_000));
    let id = PolicyId(ObjectKey::new("a", "greedy"));
    assert_eq!(world.reconciler.policies.get(&id).unwrap().problems, []);
    assert_eq!(effects, [""; 0], "nothing is kept for it");
    assert_eq!(world.statuses(), ["Policy greedy False QuotaExceeded"]);
    let effects = world.put(POLICIES, &reading("modest", 1, 3));
    assert_eq!(puts(&effects, "Policies"), 1);
    assert_eq!(puts(&effects, "DesiredViews"), 3);
}

#[test]
fn a_policy_that_grows_over_its_quota_stays_in_force_as_it_was() {
    let mut world = World::settled();
    let first = world.put(POLICIES, &reading("p", 1, 3));
    assert_eq!(puts(&first, "DesiredViews"), 3);
    world.statuses();
    assert_eq!(world.put(POLICIES, &reading("p", 2, 65)), [""; 0]);
    assert_eq!(world.statuses(), ["Policy p False QuotaExceeded"]);
    let smaller = world.put(POLICIES, &reading("p", 3, 4));
    assert_eq!(puts(&smaller, "Policies"), 1);
    assert_eq!(puts(&smaller, "DesiredViews"), 1, "three are kept already");
    let again = world.statuses();
    assert!(
        !again.iter().any(|s| s.ends_with("QuotaExceeded")),
        "{again:?}"
    );
}

#[test]
fn a_namespace_over_its_quota_gets_its_policies_once_others_go() {
    let mut world = World::settled();
    world.put(POLICIES, &reading("one", 1, 20));
    assert_eq!(world.put(POLICIES, &reading("two", 1, 20)), [""; 0]);
    assert!(
        world
            .statuses()
            .contains(&"Policy two False QuotaExceeded".to_owned())
    );
    world.reconciler.tick(world.now);
    assert_eq!(world.effects(), [""; 0], "there is no room yet");
    let (key, version) = (ObjectKey::new("a", "one"), ResourceVersion::default());
    let span = Span::none();
    world.note(POLICIES, Note::Gone { key, version, span });
    world.reconciler.tick(world.now);
    let effects = world.effects();
    assert_eq!(puts(&effects, "Policies"), 1);
    assert_eq!(puts(&effects, "DesiredViews"), 20);
}

/// Returns a `ClusterPolicy` of this generation; `broken`: the policy does not compile.
fn version(generation: u64, broken: bool) -> Value {
    let mut policy = policy("p", "unused");
    policy["metadata"]["generation"] = json!(generation);
    if broken {
        policy["spec"]["rules"][0]["validate"]["deny"]["conditions"] = json!("{{ (");
    }
    policy
}

/// The manifest of a policy in the log.
fn in_log(policy: &Value) -> PoliciesInLog {
    let name = policy["metadata"]["name"].as_str().unwrap();
    let body = anteroom_wire::body::encode_json(policy).unwrap();
    PoliciesInLog::from([(ObjectKey::new("", name), body)])
}

fn message(world: &World) -> String {
    let id = PolicyId(ObjectKey::new("", "p"));
    let policy = world.reconciler.policies.get(&id).unwrap();
    policy.held_back.as_ref().unwrap().message.clone()
}

#[test]
fn a_version_that_does_not_compile_leaves_the_one_before_in_force() {
    let mut world = World::settled();
    let first = world.put(CLUSTER_POLICIES, &version(1, false));
    assert_eq!(puts(&first, "Policies"), 1);
    for generation in [2, 3] {
        let broken = world.put(CLUSTER_POLICIES, &version(generation, true));
        assert_eq!(puts(&broken, "Policies"), 0, "{broken:?}");
        assert!(message(&world).starts_with("generation 1 stays in force: "));
    }
    let statuses = world.statuses();
    assert!(
        statuses.contains(&"ClusterPolicy p False Invalid".to_owned()),
        "{statuses:?}"
    );
    let mended = world.put(CLUSTER_POLICIES, &version(4, false));
    assert_eq!(puts(&mended, "Policies"), 1);
    let gone = world.gone(CLUSTER_POLICIES, "p");
    assert!(gone.contains(&"delete Policies p".to_owned()));
}

#[test]
fn a_first_version_that_does_not_compile_is_published_for_readers_to_say_so() {
    let mut world = World::settled();
    for generation in [1, 2] {
        let broken = world.put(CLUSTER_POLICIES, &version(generation, true));
        assert_eq!(puts(&broken, "Policies"), 1);
    }
}

#[test]
fn the_version_in_force_outlives_the_watcher() {
    let mut world = World::new();
    world.reconciler.inherit(in_log(&version(1, false)));
    world.discovered();
    let found = world.put(CLUSTER_POLICIES, &version(2, true));
    assert_eq!(
        puts(&found, "Policies"),
        1,
        "as it stands in the log, so that it stays"
    );
    assert!(message(&world).starts_with("generation 1 stays in force: "));
    for manifests in all_listed() {
        let listed = world.listed(manifests);
        assert!(!listed.contains(&"delete Policies p".to_owned()));
    }
}

#[test]
fn a_policy_that_was_made_again_inherits_nothing() {
    let mut world = World::new();
    world.reconciler.inherit(in_log(&version(1, false)));
    world.discovered();
    let mut other = version(1, true);
    other["metadata"]["uid"] = json!("other");
    world.put(CLUSTER_POLICIES, &other);
    let id = PolicyId(ObjectKey::new("", "p"));
    let policy = world.reconciler.policies.get(&id).unwrap();
    assert_eq!((&policy.held_back, policy.in_force), (&None, None));
}

#[test]
fn a_version_over_its_quota_leaves_what_an_earlier_term_had_in_force() {
    let mut world = World::new();
    let body = anteroom_wire::body::encode_json(&reading("p", 1, 3)).unwrap();
    let key = ObjectKey::new("a", "p");
    world.reconciler.inherit(PoliciesInLog::from([(key, body)]));
    world.discovered();
    let found = world.put(POLICIES, &reading("p", 2, 65));
    assert_eq!(
        (puts(&found, "Policies"), puts(&found, "DesiredViews")),
        (1, 3)
    );
    for manifests in all_listed() {
        world.listed(manifests);
    }
    let statuses = world.statuses();
    assert!(
        statuses.contains(&"Policy p False QuotaExceeded".to_owned()),
        "{statuses:?}"
    );
}

/// It is not compiled again when only its labels or its status change.
#[test]
fn the_version_that_was_read_last_is_known_also_where_it_is_held_back() {
    let mut world = World::settled();
    let known = |world: &World, namespace: &str, name: &str| {
        let id = PolicyId(ObjectKey::new(namespace, name));
        let known = world.reconciler.known_version(&id).unwrap();
        assert!(known.held_back.is_none());
        (known.identity.generation, known.problems.is_empty())
    };
    world.put(CLUSTER_POLICIES, &version(1, false));
    assert_eq!(known(&world, "", "p"), (1, true));
    world.put(CLUSTER_POLICIES, &version(2, true));
    assert_eq!(known(&world, "", "p"), (2, false));
    world.put(CLUSTER_POLICIES, &version(3, false));
    assert_eq!(known(&world, "", "p"), (3, true));
    world.put(POLICIES, &reading("q", 1, 3));
    world.put(POLICIES, &reading("q", 2, 65));
    assert_eq!(known(&world, "a", "q"), (2, true));
}

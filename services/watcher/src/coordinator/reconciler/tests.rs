mod held_versions;
mod waiting;

use std::sync::Arc;

use anteroom_model::{GroupVersionResource, ResourceVersion, Revision};
use anteroom_policy::PolicyKind;
use serde_json::{Value, json};
use tracing::Span;

use super::*;
use crate::{
    coordinator::{
        collection::Manifests,
        manifests::PolicyManifest,
        permits::{CacheApiCalls, PolicyWriters, SecretsReaders},
        webhooks::LISTEN,
    },
    source::{
        discovery::ServedResource,
        reflect::{Note, Origin, RawObject},
    },
};

const ENTRIES: Manifests = Manifests::Entries(EntryKind::Cached);
const GLOBAL: Manifests = Manifests::Entries(EntryKind::Global);
const CLUSTER_POLICIES: Manifests = Manifests::Policies(PolicyKind::Cluster);
const POLICIES: Manifests = Manifests::Policies(PolicyKind::Namespaced);

/// All that is waited for: entries and policies of all kinds.
fn all_listed() -> impl Iterator<Item = Manifests> {
    let policies = PolicyKind::ALL.into_iter().map(Manifests::Policies);
    [ENTRIES, GLOBAL].into_iter().chain(policies)
}

/// A reconciler without any IO.
struct World {
    reconciler: Reconciler,
    now: Instant,
}

fn log() -> Incarnation {
    Incarnation("log".into())
}

fn served_resources() -> Arc<ServedResources> {
    let served = |plural: &str, kind: &str| ServedResource {
        record: KindRecord {
            gvr: GroupVersionResource::new("", "v1", plural),
            kind: kind.into(),
            namespaced: true,
            subresources: Vec::new(),
            preferred: true,
            watchable: true,
        },
        singular: kind.to_lowercase(),
    };
    Arc::new(ServedResources {
        resources: vec![served("pods", "Pod"), served("services", "Service")],
        broken: Vec::new(),
    })
}

fn entry(name: &str, plural: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "generation": 1},
        "spec": {"resource": {"version": "v1", "kind": plural}},
    })
}

/// A policy on Services that reads the entry.
fn policy(name: &str, entry: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "generation": 1},
        "spec": {"background": false, "rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Service"]}}]},
            "context": [{"name": "x", "cachedContextEntry": {"name": entry, "jmespath": "length(items)"}}],
            "validate": {"message": "no", "deny": {"conditions": {"any": [
                {"key": "{{ x }}", "operator": "Equals", "value": 1}]}}},
        }]},
    })
}

impl World {
    fn new() -> Self {
        let options = Options {
            cache_api_calls: CacheApiCalls::Auto,
            background_scans: false,
            secrets: Arc::new(SecretsReaders::default()),
            writers: Arc::new(PolicyWriters::default()),
            reads_exceptions: false,
            is_shadow: false,
        };
        let now = Instant::now();
        let mut reconciler = Reconciler::new(options, log(), now);
        reconciler.writer_found(WriterUser::Unsaid, now);
        reconciler.take_effects();
        Self { reconciler, now }
    }

    fn put(&mut self, manifests: Manifests, object: &Value) -> Vec<String> {
        self.note(manifests, put_note(object))
    }

    fn gone(&mut self, manifests: Manifests, name: &str) -> Vec<String> {
        let (key, version) = (ObjectKey::new("", name), ResourceVersion::default());
        let span = Span::none();
        self.note(manifests, Note::Gone { key, version, span })
    }

    fn listed(&mut self, manifests: Manifests) -> Vec<String> {
        let version = ResourceVersion::default();
        self.note(manifests, Note::Listed { version })
    }

    fn note(&mut self, manifests: Manifests, note: Note) -> Vec<String> {
        self.reconciler.note(manifests, note, self.now);
        self.effects()
    }

    fn discovered(&mut self) -> Vec<String> {
        self.reconciler.discovered(served_resources(), self.now);
        self.effects()
    }

    /// Everything is listed once, and the kinds are known.
    fn settled() -> Self {
        let mut world = Self::new();
        world.discovered();
        for manifests in all_listed() {
            world.listed(manifests);
        }
        world
    }

    /// The effects, once all policies have had their turns.
    fn effects(&mut self) -> Vec<String> {
        while self.reconciler.has_turns() {
            self.reconciler.take_turn(self.now);
        }
        self.effects_so_far()
    }

    fn effects_so_far(&mut self) -> Vec<String> {
        self.reconciler
            .take_effects()
            .iter()
            .filter_map(shown)
            .collect()
    }

    /// The conditions that changed, with a policy's position in the log at 5.
    fn statuses(&mut self) -> Vec<String> {
        let position = |_: &ObjectKey, _: &[ObjectKey]| Some(Revision(5));
        let clock = Timestamp::UNIX_EPOCH;
        self.reconciler.update_statuses(&position, self.now, clock);
        self.effects()
    }
}

fn put_note(object: &Value) -> Note {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap();
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    Note::Put {
        object: RawObject {
            key: ObjectKey::new(namespace, name),
            version: ResourceVersion::new("1"),
            json: object.to_string().into_bytes().into(),
        },
        origin: Origin::List,
    }
}

fn shown(effect: &CoordinatorEffect) -> Option<String> {
    Some(match effect {
        CoordinatorEffect::Write(view, Write::Put(record, _)) => {
            format!("put {view:?} {}", record.key.name)
        }
        CoordinatorEffect::Write(view, Write::Delete(key, _)) => {
            format!("delete {view:?} {}", key.name)
        }
        CoordinatorEffect::Write(view, Write::Listed) => format!("listed {view:?}"),
        CoordinatorEffect::Write(view, Write::Refused(failure)) => {
            format!("refused {view:?} {}", failure.reason)
        }
        CoordinatorEffect::SetStatus(owner, desired) => format!(
            "{} {} {} {}",
            owner.kind, owner.name, desired.ready.status, desired.ready.reason
        ),
        CoordinatorEffect::ForgetStatus(owner) => {
            format!("forget {} {}", owner.kind, owner.name)
        }
        CoordinatorEffect::FreeInherited => "free inherited".to_owned(),
        CoordinatorEffect::Rediscover => "rediscover".to_owned(),
        _ => return None,
    })
}

fn not_served() -> Note {
    Note::Refused(Failure::new("ResourceNotFound", "no such resource"))
}

/// Returns whether policies became known as a whole, and whether their view has failed.
fn policies_told(world: &mut World, manifests: Manifests, note: Note) -> (bool, bool) {
    world.reconciler.note(manifests, note, world.now);
    let effects = world.reconciler.take_effects();
    let is = |wanted: fn(&Write) -> bool| {
        let mut effects = effects.iter();
        effects.any(
            |effect| matches!(effect, CoordinatorEffect::Write(SystemView::Policies, write) if wanted(write)),
        )
    };
    let listed = is(|write| matches!(write, Write::Listed));
    (listed, is(|write| matches!(write, Write::Refused(_))))
}

#[test]
fn policies_are_known_without_the_kinds_that_are_not_served() {
    let mut world = World::new();
    world.discovered();
    for manifests in [CLUSTER_POLICIES, POLICIES] {
        let version = ResourceVersion::default();
        let told = policies_told(&mut world, manifests, Note::Listed { version });
        assert_eq!(told, (false, false), "others may have some");
    }
    let [others @ .., last] = PolicyKind::IN_CEL.map(Manifests::Policies);
    for manifests in others {
        assert_eq!(
            policies_told(&mut world, manifests, not_served()),
            (false, false)
        );
    }
    assert_eq!(policies_told(&mut world, last, not_served()), (true, false));
    assert!(world.reconciler.policies.are_known());
    // What is served and may not be read is not known.
    let forbidden = Note::Refused(Failure::new("Forbidden", "no"));
    assert_eq!(policies_told(&mut world, last, forbidden), (false, true));
}

#[test]
fn policies_of_kyverno_io_have_to_be_served() {
    let mut world = World::settled();
    let told = policies_told(&mut world, CLUSTER_POLICIES, not_served());
    assert_eq!(told, (false, true));
}

/// Kinds of policies have names of their own.
#[test]
fn policies_of_one_name_and_two_kinds_do_not_disturb_each_other() {
    let mut world = World::settled();
    world.put(ENTRIES, &entry("a", "pods"));
    world.put(CLUSTER_POLICIES, &policy("p", "a"));
    let validating = Manifests::Policies(PolicyKind::Validating);
    let mut other = policy("p", "a");
    other["metadata"]["uid"] = "other".into();
    let put = world.put(validating, &other);
    assert_eq!(put, ["put Policies ValidatingPolicy/p"]);
    let statuses = world.statuses();
    let said = |kind: &str| statuses.iter().any(|status| status.starts_with(kind));
    assert!(
        said("ClusterPolicy p ") && said("ValidatingPolicy p "),
        "{statuses:?}"
    );
    let gone = world.gone(validating, "p");
    assert_eq!(
        gone,
        [
            "delete Policies ValidatingPolicy/p",
            "forget ValidatingPolicy p"
        ]
    );
    assert!(world.reconciler.policies.iter().count() == 1);
}

/// A quiet watch may bring nothing but lists. That nobody reads exceptions is news as well.
#[test]
fn exceptions_that_nobody_reads_are_as_new_as_what_is_listed() {
    let mut world = World::settled();
    world.now += Duration::from_secs(60);
    let version = ResourceVersion::default();
    world
        .reconciler
        .note(POLICIES, Note::Listed { version }, world.now);
    let heard = world.reconciler.take_effects().into_iter().any(|effect| {
        matches!(effect, CoordinatorEffect::Write(SystemView::Exceptions, Write::Heard(at)) if at == world.now)
    });
    assert!(heard);
}

#[test]
fn an_entry_is_resolved_once_the_kinds_are_known_and_wanted_before_it_is_published() {
    let mut world = World::new();
    assert_eq!(world.put(ENTRIES, &entry("a", "pods")), [""; 0]);
    let effects = world.discovered();
    let expected = ["put DesiredViews pods.v1", "put Entries a"];
    assert_eq!(effects, expected);
    assert_eq!(
        world.gone(ENTRIES, "a"),
        [
            "forget CachedContextEntry a",
            "delete Entries a",
            "delete DesiredViews pods.v1",
        ]
    );
}

#[test]
fn two_entries_on_one_source_want_its_view_once() {
    let mut world = World::settled();
    world.put(ENTRIES, &entry("a", "pods"));
    let second = world.put(ENTRIES, &entry("b", "pods"));
    assert_eq!(second, ["put Entries b"]);
    let gone = world.gone(ENTRIES, "a");
    assert!(!gone.contains(&"delete DesiredViews pods.v1".to_owned()));
}

#[test]
fn inherited_views_are_freed_once_when_all_manifests_and_kinds_are_known() {
    let mut world = World::new();
    let freed = |effects: &[String]| effects.contains(&"free inherited".to_owned());
    for manifests in all_listed() {
        assert!(!freed(&world.listed(manifests)), "{manifests:?}");
    }
    assert!(freed(&world.discovered()));
    let again = world.listed(ENTRIES);
    assert!(!freed(&again));
    assert!(again.contains(&"listed Entries".to_owned()));
}

#[test]
fn an_entry_that_a_list_does_not_bring_is_gone() {
    let mut world = World::settled();
    world.put(ENTRIES, &entry("a", "pods"));
    world.put(ENTRIES, &entry("b", "services"));
    let version = ResourceVersion::new("1");
    let afresh = false;
    world.note(ENTRIES, Note::Begin { afresh, version });
    world.put(ENTRIES, &entry("b", "services"));
    let effects = world.listed(ENTRIES);
    assert!(effects.contains(&"delete DesiredViews pods.v1".to_owned()));
    assert!(!effects.contains(&"delete DesiredViews services.v1".to_owned()));
}

/// A status that could not be written yet would be written to the other object.
#[test]
fn the_status_of_an_object_is_forgotten_once_another_has_its_name() {
    let mut world = World::settled();
    let (mut entry, mut policy) = (entry("a", "pods"), policy("p", "a"));
    world.put(ENTRIES, &entry);
    world.put(CLUSTER_POLICIES, &policy);
    let is_forgotten = |effects: Vec<String>| effects.iter().any(|said| said.contains("forget"));
    assert!(!is_forgotten(world.put(ENTRIES, &entry)), "the same");
    assert!(!is_forgotten(world.put(CLUSTER_POLICIES, &policy)));
    entry["metadata"]["uid"] = "entry again".into();
    policy["metadata"]["uid"] = "policy again".into();
    assert!(is_forgotten(world.put(ENTRIES, &entry)));
    assert!(is_forgotten(world.put(CLUSTER_POLICIES, &policy)));
}

#[test]
fn a_policy_is_written_after_what_it_reads_and_its_status_speaks_of_the_entry() {
    let mut world = World::settled();
    world.put(ENTRIES, &entry("a", "pods"));
    assert_eq!(
        world.put(CLUSTER_POLICIES, &policy("p", "a")),
        ["put Policies p"]
    );
    let statuses = world.statuses();
    assert!(
        statuses
            .iter()
            .any(|status| status.starts_with("ClusterPolicy p False")),
        "{statuses:?}"
    );
    assert_eq!(world.statuses(), [""; 0], "nothing changed since");
    world.put(ENTRIES, &entry("a", "pods"));
    assert!(world.statuses().len() == 1, "only the entry was put again");
}

#[test]
fn a_policy_without_entries_is_ready_once_every_webhook_enforces_it() {
    let mut world = World::settled();
    let mut policy = policy("p", "a");
    policy["spec"]["rules"][0]["context"] = json!([]);
    policy["spec"]["rules"][0]["validate"] =
        json!({"message": "no", "pattern": {"metadata": {"name": "?*"}}});
    world.reconciler.listens_to_webhooks(world.now);
    world.put(CLUSTER_POLICIES, &policy);
    world.now += LISTEN;
    let beat = |enforced: u64| WebhookBeat {
        webhook: "w".into(),
        incarnation: log(),
        compiled: Revision(5),
        enforced: Revision(enforced),
        ..WebhookBeat::default()
    };
    world.reconciler.webhook_beat(beat(4), world.now);
    assert_eq!(world.statuses(), [""; 0], "it is on its way");
    world.now += Duration::from_secs(1);
    world.reconciler.tick(world.now);
    assert_eq!(world.statuses(), ["ClusterPolicy p False NotEnforced"]);
    world.reconciler.webhook_beat(beat(5), world.now);
    let [ready] = &world.statuses()[..] else {
        panic!("one status");
    };
    assert!(ready.starts_with("ClusterPolicy p True"), "{ready}");
}

#[test]
fn a_ready_policy_says_which_of_its_kinds_are_not_served_yet() {
    let mut world = World::settled();
    let kinds = ["example.com/v1/Widget", "Service", "No*"].map(|kind| {
        let kind = anteroom_policy::KindPattern::parse(kind);
        kind.unwrap()
    });
    let policy = PolicyManifest {
        kinds: kinds.into(),
        ..PolicyManifest::default()
    };
    let unserved = |served| -> Vec<String> {
        let kinds = policy.unserved_kinds(served).map(ToString::to_string);
        kinds.collect()
    };
    let served = served_resources();
    assert_eq!(unserved(Some(&served)), ["example.com/v1/Widget"]);
    assert_eq!(unserved(None).len(), 2, "nothing is known to be served");
    let id = PolicyId(ObjectKey::new("", "p"));
    world.reconciler.policies.put(&id, policy);
    world.statuses();
    world.reconciler.kinds_changed(None);
    assert_eq!(world.statuses().len(), 1, "it is looked at again");
}

#[test]
fn a_replica_says_how_old_the_answers_of_calls_are() {
    let mut world = World::settled();
    let view = ViewId::new("call");
    let beat = ReplicaBeat {
        replica: "r".into(),
        ages_ms: vec![(view.clone(), 1_000)],
        ..ReplicaBeat::default()
    };
    world.now += Duration::from_secs(60);
    world.reconciler.replica_beat(beat, world.now);
    let expected = world.now - Duration::from_secs(1);
    let effects = world.reconciler.take_effects();
    assert!(
        matches!(&effects[..], [CoordinatorEffect::AnswerAgeReported(called, at)] if *called == view && *at == expected),
        "{effects:?}"
    );
}

#[test]
fn the_writer_of_an_earlier_term_is_kept_until_this_terms_is_known_or_cannot_be() {
    let just_before = WRITER_WAIT - Duration::from_millis(1);
    for (writer, since, expected) in [
        (WriterUser::Unknown, Duration::ZERO, true),
        (WriterUser::Unknown, just_before, true),
        (WriterUser::Unknown, WRITER_WAIT, false),
        (WriterUser::Unsaid, Duration::ZERO, false),
        (WriterUser::Known("w".into()), Duration::ZERO, false),
    ] {
        assert_eq!(is_awaited(&writer, since), expected, "{writer:?} {since:?}");
    }
}

#[test]
fn the_key_of_a_kind_has_version_and_group() {
    let record = |group: &str, kind: &str| KindRecord {
        gvr: GroupVersionResource::new(group, "v1", "x"),
        kind: kind.into(),
        namespaced: true,
        subresources: Vec::new(),
        preferred: true,
        watchable: true,
    };
    let ingress = kind_key(&record("networking.k8s.io", "Ingress"));
    assert_eq!(&*ingress.name, "Ingress.v1.networking.k8s.io");
    assert_eq!(&*kind_key(&record("", "Pod")).name, "Pod.v1");
}

use anteroom_bus::local::LocalBus;
use anteroom_model::{Binding, EntryKind, EntryRecord, EntryState, Failure};
use anteroom_policy::{CALLS, CALLS_OFF, CollectionReference, Reference};
use anteroom_runtime::Service;
use anteroom_wire::replica_beat::ReplicaView;
use tokio::sync::watch;

use super::*;
use anteroom_engine::testing;

fn beat(replica: &str, views: &[(&str, &str)]) -> ReplicaBeat {
    let view = |(view, state): &(&str, &str)| ReplicaView {
        view: ViewId::new(*view),
        state: (*state).to_owned(),
        bytes: 0,
    };
    ReplicaBeat {
        replica: replica.into(),
        views: views.iter().map(view).collect(),
        ..ReplicaBeat::default()
    }
}

fn entry(kind: EntryKind, name: &str, view: Option<&str>) -> EntryRecord {
    EntryRecord {
        kind,
        name: name.into(),
        uid: String::new(),
        generation: 1,
        state: match view {
            Some(view) => EntryState::Bound(Binding::whole(ViewId::new(view))),
            None => EntryState::Invalid {
                failure: Failure::new("ResourceNotFound", "no such resource"),
            },
        },
        projections: Vec::new(),
    }
}

fn needs(catalog: &Catalog, all: &[Need]) -> Needs {
    let mut needs = Needs::default();
    for need in all {
        needs.add(catalog, need, || "p".to_owned());
    }
    needs
}

/// The missing things that hold back a webhook which has just started.
fn missing(needs: &Needs, replicas: &Replicas) -> Vec<String> {
    let now = Instant::now();
    StartProgress::new(now).judge(now, needs, replicas).holds
}

fn reference(inline: bool) -> Reference {
    Reference::Collection(CollectionReference {
        declared: true,
        inline,
        ..CollectionReference::default()
    })
}

fn declared(name: &str) -> Need {
    Need::Declared(reference(false), name.to_owned())
}

fn objects(view: &str) -> Need {
    Need::Objects(reference(false), ViewId::new(view))
}

fn catalog() -> Catalog {
    let records = [
        entry(EntryKind::Cached, "a", Some("va")),
        entry(EntryKind::Cached, "b", Some("vb")),
        entry(EntryKind::Global, "g", Some("vg")),
        entry(EntryKind::Cached, "invalid", None),
        entry(EntryKind::Implicit, "declared", Some("vd")),
        entry(EntryKind::Implicit, "broken", None),
    ];
    Catalog {
        entries: Arc::new(testing::entries(&records)),
        ..Catalog::default()
    }
}

/// The missing things that hold back readiness, and those that only readers are told of.
#[test]
fn views_that_policies_need_hold_readiness_back_until_a_replica_answers() {
    let catalog = catalog();
    let one = |need: Need| needs(&catalog, &[need]);
    let of_entry = one(Need::Entry(EntryKind::Cached, "a".into()));
    let waits = |needs: &Needs, views: &[(&str, &str)]| {
        let mut replicas = Replicas::default();
        let now = Instant::now();
        replicas.take_beat(now, beat("r1", views));
        replicas.take_beat(now, beat("r2", &[("other", "synced")]));
        missing(needs, &replicas)
    };
    for (state, missing) in [
        ("synced", false),
        ("failed", false),
        ("evicted", false),
        ("unsynced", true),
        ("syncing", true),
        ("stale", true),
        ("something new", true),
    ] {
        let found = waits(&of_entry, &[("va", state)]);
        let expected = missing
            .then(|| format!("view va of CachedContextEntry `a` for policy p: {state} in r1"));
        assert_eq!(found, Vec::from_iter(expected), "{state}");
    }
    let nobody = ["view va of CachedContextEntry `a` for policy p: no replica holds it"];
    assert_eq!(waits(&of_entry, &[]), nobody);
    let silence = ["view va of CachedContextEntry `a` for policy p: no replica is heard"];
    assert_eq!(missing(&of_entry, &Replicas::default()), silence);

    let said = [
        one(Need::Entry(EntryKind::Cached, "invalid".into())),
        one(Need::Entry(EntryKind::Cached, "nowhere".into())),
        one(declared("broken")),
    ];
    for needs in said {
        assert_eq!(needs, Needs::default(), "every reader is told");
    }
    for (need, view) in [
        (Need::Entry(EntryKind::Global, "g".into()), "vg"),
        (declared("declared"), "vd"),
        (objects("vo"), "vo"),
    ] {
        assert!(one(need).views.contains_key(&ViewId::new(view)));
    }
    let unregistered = one(declared("new"));
    let text = ["new for policy p: the watcher has not registered it"];
    assert_eq!(waits(&unregistered, &[]), text);
}

/// At the start all of it, for a minute; later on nothing takes the webhook from the policies that need nothing of it.
#[test]
fn missing_views_delay_readiness_at_the_start_alone() {
    let catalog = catalog();
    let old = Need::Entry(EntryKind::Cached, "a".into());
    let new = Need::Entry(EntryKind::Global, "g".into());
    let (none, one) = (
        needs(&catalog, &[]),
        needs(&catalog, std::slice::from_ref(&old)),
    );
    let two = needs(&catalog, &[old.clone(), new]);
    let unregistered = needs(&catalog, &[old, declared("new")]);
    let (a, g): (&[_], &[_]) = (&[("va", "synced")], &[("vg", "synced")]);
    let (both, neither): (&[_], &[_]) = (&[("va", "synced"), ("vg", "synced")], &[]);
    // Of each look: after how many seconds, what is needed, what is there, how much holds back, how much is told beside.
    type Looks<'a> = &'a [(u64, &'a Needs, &'a [(&'a str, &'a str)], usize, usize)];
    let stories: [(&str, Looks<'_>); 5] = [
        (
            "the start",
            &[
                (0, &two, neither, 2, 0),
                (0, &two, a, 1, 0),
                (0, &two, both, 0, 0),
            ],
        ),
        (
            "it may be lost before the start is over",
            &[(0, &two, a, 1, 0), (1, &two, g, 1, 0)],
        ),
        (
            "what never comes",
            &[
                (59, &two, a, 1, 0),
                (60, &two, a, 0, 1),
                (61, &two, neither, 0, 2),
            ],
        ),
        (
            "later on",
            &[
                (0, &one, a, 0, 0),
                (1, &two, a, 0, 1),
                (2, &two, both, 0, 0),
                (3, &two, neither, 0, 2),
            ],
        ),
        (
            "nothing at the start",
            &[
                (0, &none, neither, 0, 0),
                (1, &one, neither, 0, 1),
                (2, &unregistered, a, 0, 1),
            ],
        ),
    ];
    let begun = Instant::now();
    for (story, looks) in stories {
        let mut standing = StartProgress::new(begun);
        for (at, (seconds, needs, views, holds, waits)) in looks.iter().enumerate() {
            let mut replicas = Replicas::default();
            replicas.take_beat(Instant::now(), beat("r1", views));
            let now = begun + Duration::from_secs(*seconds);
            let look = standing.judge(now, needs, &replicas);
            let found = (look.holds.len(), look.waits.len());
            assert_eq!(found, (*holds, *waits), "{story}, look {at}: {look:?}");
        }
    }
}

/// `--cache-api-calls=off` keeps no call, so none is waited for; an inline entry is.
#[test]
fn a_call_that_is_not_cached_does_not_hold_readiness_back() {
    let mut off = entry(EntryKind::Implicit, CALLS, None);
    off.state = EntryState::Invalid {
        failure: Failure::new(CALLS_OFF, "off"),
    };
    let catalog = Catalog {
        entries: Arc::new(testing::entries(&[off])),
        ..Catalog::default()
    };
    let of_calls = [declared("never registered"), objects("vo")];
    assert_eq!(needs(&catalog, &of_calls), Needs::default());
    let inline = Need::Declared(reference(true), "inline".to_owned());
    assert_ne!(needs(&catalog, &[inline]), Needs::default());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_leaves_or_falls_silent_is_not_counted_on() {
    let of_entry = needs(&catalog(), &[Need::Entry(EntryKind::Cached, "a".into())]);
    let mut replicas = Replicas::default();
    let served = || beat("r1", &[("va", "synced")]);
    replicas.take_beat(Instant::now(), served());
    tokio::time::advance(SILENCE_MAX - Duration::from_millis(1)).await;
    replicas.forget_silent(Instant::now());
    assert!(missing(&of_entry, &replicas).is_empty());
    tokio::time::advance(Duration::from_millis(1)).await;
    replicas.forget_silent(Instant::now());
    assert!(!missing(&of_entry, &replicas).is_empty());

    replicas.take_beat(Instant::now(), served());
    let leaving = ReplicaBeat {
        leaving: true,
        ..served()
    };
    replicas.take_beat(Instant::now(), leaving);
    assert!(!missing(&of_entry, &replicas).is_empty());
}

#[test]
fn a_long_list_of_missing_views_is_summed_up() {
    let missing: Vec<_> = (0..NAMED_MAX + 3).map(|n| n.to_string()).collect();
    assert_eq!(listed(&missing), "0; 1; 2; 3; 4; 5; 6; 7; and 3 more");
    assert_eq!(listed(&missing[..2]), "0; 1");
}

/// Readiness is gained with the last view, and kept; what is missing is told.
#[tokio::test(start_paused = true)]
async fn readiness_is_gained_and_kept() {
    let bus = Arc::new(LocalBus::new());
    let service = Service::new("webhook");
    let (catalogs_in, catalogs) = watch::channel(None);
    let check = service.readiness.check("views", "policies");
    let reader: Arc<dyn Bus> = Arc::new(bus.join());
    let task = tokio::spawn(keep(reader, catalogs, check, service.shutdown.clone()));
    let waits_for = || service.readiness.report().checks[0].waiting_for.clone();
    let becomes = async |expected: Option<&str>| {
        // Ends: time passes as fast as it can here.
        while waits_for().as_deref() != expected {
            tokio::time::sleep(PACE).await;
        }
    };
    becomes(Some("policies")).await;

    let manifest = testing::reading_entry("a");
    let set = |manifests| Catalog {
        policies: Arc::new(testing::policies(manifests)),
        ..catalog()
    };
    let first = ("p", manifest);
    catalogs_in.send_replace(Some(Arc::new(set(vec![first.clone()]))));
    becomes(Some(
        "view va of CachedContextEntry `a` for policy p: no replica is heard",
    ))
    .await;
    let synced = beat("r1", &[("va", "synced")]);
    bus.send(&synced).await.unwrap();
    becomes(None).await;
    // One more policy is told beside, until its view is there.
    let second = ("q", testing::reading_entry("b"));
    catalogs_in.send_replace(Some(Arc::new(set(vec![first, second]))));
    let noted = async |expected: Option<&str>| {
        while service.readiness.report().checks[0].note.as_deref() != expected {
            assert_eq!(waits_for(), None);
            bus.send(&synced).await.unwrap();
            tokio::time::sleep(PACE).await;
        }
    };
    noted(Some(
        "view vb of CachedContextEntry `b` for policy q: no replica holds it",
    ))
    .await;
    let synced = beat("r1", &[("va", "synced"), ("vb", "synced")]);
    bus.send(&synced).await.unwrap();
    // Then it is silent.
    let silence = "view va of CachedContextEntry `a` for policy p: no replica is heard; \
                   view vb of CachedContextEntry `b` for policy q: no replica is heard";
    while service.readiness.report().checks[0].note.as_deref() != Some(silence) {
        assert_eq!(waits_for(), None);
        tokio::time::sleep(PACE).await;
    }
    service.shutdown.trigger("the test is over");
    task.await.unwrap().unwrap();
}

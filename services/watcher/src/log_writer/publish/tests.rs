//! The writer on the bus of one process.

use std::collections::HashMap;

use anteroom_bus::{
    Lease, LogEvent, LogScope,
    local::{APPEND_LATE_MAX, Chances, LocalBus},
};
use anteroom_model::{
    Collection, Delta, Epoch, Group, GroupVersionResource, ObjectKey, Op, ResourceVersion, Source,
    SourceInfo, ViewState, limits::MESSAGE_BYTES_MAX,
};
use anteroom_runtime::Service;
use anteroom_wire::{beat::Beat, envelope::Record};
use bytes::Bytes;

use super::*;
use crate::log_writer::{lead::TermFence, log_snapshot::LogSnapshot};

const TICK: Duration = Duration::from_millis(300);

/// A writer with one view, to which nothing was handed in.
pub(super) fn opened() -> (Publisher, WriteHandle) {
    let publisher = Publisher::new(1);
    let info = SourceInfo {
        source: Source::System { name: "a".into() },
        kind: String::new(),
        namespaced: true,
    };
    let handle = publisher.with(|queue| queue.open(info, HashMap::new()));
    (publisher, handle)
}

fn version(at: u64) -> ResourceVersion {
    ResourceVersion::new(at.to_string())
}

fn put(publisher: &Publisher, handle: &WriteHandle, body: Bytes) {
    let (key, now) = (ObjectKey::new("n", "x"), Instant::now());
    publisher.with(|queue| queue.put(handle, key, version(2), body, now, ChangeOrigin::List));
}

/// Readers compare digests, and successors begin where a view was left, by its control records: they
/// come in a group, too, where something is heard all the time.
#[tokio::test(start_paused = true)]
async fn control_records_are_written_in_a_group_that_is_never_quiet() {
    let bus = LocalBus::new();
    let leadership = Leadership::of_new_log(&bus, Group::COORDINATOR).await;
    let (publisher, handle) = opened();
    publisher.with(|queue| queue.listed(&handle, &version(1), Instant::now()));
    let metrics = BatchMetrics::register(&Service::new("test").metrics);
    let members = Members::new("w");
    let begun = Instant::now();
    let hears = async {
        let mut pace = tokio::time::interval(TICK);
        for at in 3.. {
            pace.tick().await;
            publisher.with(|queue| queue.mark_fresh(&handle, Some(version(at)), Instant::now()));
        }
    };
    let mut log = bus.follow(LogScope::All);
    let reads = async {
        let mut told = Vec::new();
        while told.len() < 4 {
            let Some(LogEvent::Record { envelope, .. }) = log.next().await else {
                continue;
            };
            let Record::Control(record) = envelope.unwrap().record else {
                continue;
            };
            if record.state == ViewState::Synced {
                told.push((begun.elapsed().as_secs(), record));
            }
            if told.len() == 1 {
                put(&publisher, &handle, Bytes::from_static(b"x"));
            }
        }
        told
    };
    let told = tokio::select! {
        end = publisher.run(&bus, &leadership, &members, &metrics) => panic!("{end:?}"),
        () = hears => panic!("it hears for ever"),
        told = reads => told,
    };
    let after: Vec<_> = told.windows(2).map(|two| two[1].0 - two[0].0).collect();
    assert!((10..=11).contains(&after[0]), "after a change: {after:?}");
    assert!(
        after[1..].iter().all(|after| (60..=61).contains(after)),
        "without one: {after:?}"
    );
    let versions: Vec<u64> = told
        .iter()
        .map(|(_, r)| r.version.as_str().parse().unwrap())
        .collect();
    assert!(
        versions.is_sorted() && versions[0] < versions[3],
        "{versions:?}"
    );
}

/// A bus that takes smaller messages than it did ends the term: the next one knows what is too large.
#[tokio::test(start_paused = true)]
async fn a_message_that_the_bus_finds_too_large_ends_the_term() {
    let bus = LocalBus::new();
    let leadership = Leadership::of_new_log(&bus, Group::COORDINATOR).await;
    let (publisher, handle) = opened();
    publisher.with(|queue| queue.limit_messages(usize::MAX));
    put(
        &publisher,
        &handle,
        Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]),
    );
    let metrics = BatchMetrics::register(&Service::new("test").metrics);
    let members = Members::new("w");
    let end = publisher.run(&bus, &leadership, &members, &metrics).await;
    assert_eq!(end, End::TooLarge);
}

/// The bytes of a batch may wait in a socket, or in a server that was cut off, while the writer goes on elsewhere.
#[tokio::test(start_paused = true)]
async fn a_batch_that_was_held_up_takes_nothing_back() {
    let bus = LocalBus::new();
    let leadership = Leadership::of_new_log(&bus, Group::COORDINATOR).await;
    let (publisher, handle) = opened();
    let metrics = BatchMetrics::register(&Service::new("test").metrics);
    let members = Members::new("w");
    let key = ObjectKey::new("n", "x");
    let put = |at| {
        let (now, origin, body) = (Instant::now(), ChangeOrigin::List, Bytes::new());
        publisher.with(|queue| queue.put(&handle, key.clone(), version(at), body, now, origin));
    };
    let writes = async {
        publisher.drained().await;
        bus.faults().set_chances(Chances {
            append_late: 1.0,
            ..Chances::default()
        });
        put(2);
        // The first attempt is held up, and the second one is not.
        tokio::time::sleep(Duration::from_millis(RETRY_BASE_MS / 3)).await;
        bus.faults().set_chances(Chances::default());
        publisher.drained().await;
        put(3);
        publisher.drained().await;
        tokio::time::sleep(APPEND_LATE_MAX).await;
    };
    tokio::select! {
        end = publisher.run(&bus, &leadership, &members, &metrics) => panic!("{end:?}"),
        () = writes => {}
    }
    let index = bus.index().await.unwrap();
    assert_eq!(index.objects[&handle.view][&key].1, version(3));
    let (_, fence) = bus.lease(leadership.group).await.unwrap().unwrap();
    assert_eq!(fence, leadership.fence.now());
}

/// A way that loses large packets lets heartbeats, leases and API calls through.
#[tokio::test(start_paused = true)]
async fn a_writer_whose_batches_are_lost_makes_way_for_another_watcher_until_one_is_written() {
    let bus = LocalBus::new();
    let members = Members::new("w");
    members.stand(true);
    let candidate = Beat {
        incarnation: Incarnation::default(),
        group: Group::NONE,
        term: 1,
        holder: "another".into(),
        page: 0,
        sent_ms: None,
        views: Vec::new(),
    };
    members.take_beat(&candidate);
    let is_own = |group: &Group| members.preferred_leader(*group) == "w";
    let group = Group::all().find(is_own).unwrap();
    let leadership = Leadership::of_new_log(&bus, group).await;
    let (publisher, handle) = opened();
    bus.faults().fail_appends(true);
    put(&publisher, &handle, Bytes::from_static(b"x"));
    let metrics = BatchMetrics::register(&Service::new("test").metrics);
    let begun = Instant::now();
    let hears = async {
        while begun.elapsed() < UNWRITTEN_MAX * 4 {
            members.take_beat(&candidate);
            tokio::time::sleep(TICK).await;
        }
    };
    let yields = async {
        members.better_placed(group).await;
        assert!(begun.elapsed() >= UNWRITTEN_MAX);
        bus.faults().fail_appends(false);
        publisher.drained().await;
        assert!(is_own(&group));
    };
    tokio::select! {
        end = publisher.run(&bus, &leadership, &members, &metrics) => panic!("{end:?}"),
        () = hears => panic!("no other watcher may take over"),
        () = yields => {}
    }
}

/// Other groups may have filled the log since it was looked at.
#[tokio::test(start_paused = true)]
async fn what_a_full_log_refuses_of_the_cluster_is_written_in_the_room_of_a_tenants_view() {
    let bus = LocalBus::new();
    let leadership = Leadership::of_new_log(&bus, Group::COORDINATOR).await;
    let publisher = Publisher::new(1);
    let [cluster, tenant] = [Vec::new(), vec!["n".to_owned()]].map(|namespaces| {
        let gvr = GroupVersionResource::new("", "v1", "configmaps");
        let info = SourceInfo {
            source: Source::Collection(Collection {
                namespaces,
                ..Collection::all(gvr)
            }),
            kind: String::new(),
            namespaced: true,
        };
        publisher.with(|queue| queue.open(info, HashMap::new()))
    });
    publisher.with(|queue| queue.set_in_quota(&tenant.view, true));
    let metrics = BatchMetrics::register(&Service::new("test").metrics);
    let members = Members::new("w");
    let fills = async {
        for handle in [&cluster, &tenant] {
            put(&publisher, handle, Bytes::from(vec![0; 64 * 1024]));
            publisher.with(|queue| queue.listed(handle, &version(2), Instant::now()));
        }
        publisher.drained().await;
        let size = bus.log_size().await.unwrap();
        bus.faults().limit_log(Some(size.bytes + 512));
        let (key, body) = (ObjectKey::new("n", "y"), Bytes::from(vec![0; 1024]));
        let (now, origin) = (Instant::now(), ChangeOrigin::List);
        publisher.with(|queue| queue.put(&cluster, key, version(3), body, now, origin));
        publisher.drained().await;
    };
    tokio::select! {
        end = publisher.run(&bus, &leadership, &members, &metrics) => panic!("{end:?}"),
        () = fills => {}
    }
    let states = publisher.read(|queue| queue.stats(Instant::now()));
    let state = |handle: &WriteHandle| {
        let stats = states.iter().find(|stats| stats.view == handle.view);
        stats.and_then(|stats| stats.reported_state.clone())
    };
    assert_eq!(state(&cluster), Some(ViewState::Synced));
    assert!(matches!(
        state(&tenant),
        Some(ViewState::Failed { failure }) if failure.reason == "LogFull"
    ));
}

/// A log that lost its last records may have objects of a view without the view's control record. Readers free objects
/// of before the view's origin.
#[tokio::test(start_paused = true)]
async fn a_view_whose_control_record_is_lost_begins_behind_all_of_its_objects() {
    let bus = LocalBus::new();
    let before = Leadership::of_new_log(&bus, Group::COORDINATOR).await;
    let source = Source::System { name: "a".into() };
    let view = source.view_id();
    let left = Record::Delta {
        view: view.clone(),
        delta: Delta {
            key: ObjectKey::new("n", "left"),
            epoch: Epoch::new(before.term, 9),
            version: version(1),
            op: Op::Put(Bytes::from_static(b"x")),
        },
    };
    let (record, trace) = (left, None);
    let batch = vec![Envelope { record, trace }];
    bus.append(before.fence.now(), batch).await.unwrap();

    let index = bus.index().await.unwrap();
    let term = index.term_max + 1;
    let lease = Lease {
        term,
        holder: before.holder.clone(),
    };
    let taken = bus.take_lease(before.group, lease, Some(before.fence.now()));
    let leadership = Leadership {
        term,
        fence: TermFence::new(taken.await.unwrap()),
        ..before.clone()
    };
    let mut snapshots = LogSnapshot::by_group(index);
    let mut snapshot = snapshots.remove(&Group::COORDINATOR).unwrap();
    let inherited = snapshot.take(&view);
    let info = SourceInfo {
        source,
        kind: String::new(),
        namespaced: true,
    };
    let opening = Opening {
        origin: inherited.origin,
        ..Opening::default()
    };
    let publisher = Publisher::new(term);
    publisher.with(|queue| {
        let handle = queue.open_with(info, inherited.objects, opening);
        queue.listed(&handle, &version(1), Instant::now());
    });
    let metrics = BatchMetrics::register(&Service::new("test").metrics);
    let members = Members::new("w");
    tokio::select! {
        end = publisher.run(&bus, &leadership, &members, &metrics) => panic!("{end:?}"),
        () = publisher.drained() => {}
    }
    let written = bus.index().await.unwrap();
    let record = &written.views[&view];
    assert_eq!(
        (record.state.clone(), record.objects),
        (ViewState::Synced, 0)
    );
    let mut objects = written.objects[&view].values();
    assert!(objects.all(|(epoch, _)| *epoch < record.origin));
}

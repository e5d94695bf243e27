//! Tests of a real server's own behaviour, beyond the contract that both buses share.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{
    Address, AppendError, Bus, BusError, BusExt as _, Connection, Fence, Lease, LogScope,
    RequestError, RestartCause,
    nats::{Credentials, NatsBus, NatsConfig, NatsConfigError},
    testing::NatsServer,
};
use anteroom_model::{Epoch, FactError, Group, Revision, ViewState};
use anteroom_wire::{WireError, envelope::Record, query, status::LogFaults, subject::Subjects};
use anteroom_wire::{beat::Beat, replica_beat::ReplicaBeat, webhook_beat::WebhookBeat};
use async_nats::jetstream::{self, stream};

use crate::{
    calls::{answer, at, call, heard, replica_beat, signal_heard, webhook_beat},
    deployed::deployed,
    harness::{Harness, until},
    server::{CLUSTER, Nats},
    support::{Reader, Writer, control, delete, put, put_of, view, within},
};

const STREAM: &str = "anteroom-test";

/// Updates `objects` objects, version after version, until told to stop; retries what is unknown,
/// as the watcher does. The last version of all.
async fn write_on(
    writer: Writer,
    objects: usize,
    stop: tokio_util::sync::CancellationToken,
) -> u64 {
    let mut version = 1;
    loop {
        let update = |n| put("a", &format!("object-{n}"), version);
        let batch: Vec<_> = (0..objects).map(update).collect();
        match writer.bus.append(writer.fence, batch).await {
            Ok(_) if stop.is_cancelled() => return version,
            Ok(_) => version += 1,
            Err(anteroom_bus::AppendError::Fenced) => panic!("fenced"),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_in_mid_stream_loses_nothing() {
    const OBJECTS: usize = 100;
    let mut harness = Nats::start().await;
    let writer = Writer::new(harness.client().await).await;
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    let stop = tokio_util::sync::CancellationToken::new();
    let writing = tokio::spawn(write_on(writer.clone(), OBJECTS, stop.clone()));
    for _ in 0..3 {
        let before = reader.last;
        reader
            .until(|reader| reader.last.0 > before.0 + 500 && reader.caught_up.is_some())
            .await;
        let away = reader.away;
        harness.server.kill().unwrap();
        reader.until(|reader| reader.away > away).await;
        harness.restart().await;
        reader.until(|reader| reader.caught_up.is_some()).await;
    }
    stop.cancel();
    let version = within(writing).await.unwrap().to_string();
    let last = writer.bus.head().await.unwrap().last;
    reader.until(|reader| reader.last >= last).await;
    assert_eq!(reader.objects.len(), OBJECTS);
    assert!(reader.objects.values().all(|held| *held == version));
    assert_eq!(reader.restarts, [RestartCause::Start]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_consumer_is_detected_and_repaired() {
    const OBJECTS: usize = 3_000;
    let harness = Nats::start().await;
    let writer = Writer::new(harness.client().await).await;
    let mut last = Revision(0);
    for chunk in (0..OBJECTS).collect::<Vec<_>>().chunks(250) {
        let put = |n: &usize| put_of("a", &format!("object-{n}"), 1, 500);
        last = writer.append(chunk.iter().map(put).collect()).await;
    }
    // The client holds far fewer messages than it asks for, and drops the others.
    let config = NatsConfig {
        subscription_messages_max: 16,
        pull_records_max: 1024,
        ..harness.config()
    };
    let bus = harness.bus(config).await;
    let mut reader = Reader::new(&bus, LogScope::All);
    reader.caught_up_at(last).await;
    assert_eq!(reader.objects.len(), OBJECTS);
    assert_eq!(
        reader.restarts,
        [RestartCause::Start],
        "it goes on where it was"
    );
    assert!(reader.away > 0, "and says that it was away");
    let counters = bus.counters();
    assert!(counters.resumes > 0 && counters.dropped > 0, "{counters:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_absent_is_waited_for() {
    let mut server = NatsServer::absent().await.unwrap();
    let config = NatsConfig::new([server.url()], CLUSTER);
    let bus: Arc<dyn Bus> = Arc::new(NatsBus::connect(config).await.unwrap());
    assert_eq!(*bus.connection().borrow(), Connection::Down);
    let mut reader = Reader::new(&*bus, LogScope::All);
    reader.until(|reader| reader.away == 1).await;
    let mut serving = bus.serve(&at("a")).await.unwrap();
    let refused = bus.head().await;
    assert!(
        matches!(refused, Err(BusError::Unavailable { .. })),
        "{refused:?}"
    );

    server.restart().await.unwrap();
    until(&*bus, Connection::Up).await;
    let writer = Writer::new(Arc::clone(&bus)).await;
    let last = writer.append(vec![put("a", "x", 1)]).await;
    reader.caught_up_at(last).await;
    let to = at("a");
    let asked = bus.request(&to, call(b""), Duration::from_secs(20));
    let answered = async {
        let incoming = serving.next().await.unwrap().unwrap();
        incoming.answer("here".into()).await.unwrap();
    };
    let (reply, ()) = within(async { tokio::join!(asked, answered) }).await;
    assert_eq!(reply.unwrap(), "here");
}

/// Between two verifications, while the reader's connection stays up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_made_anew_that_grew_past_the_old_one_is_noticed() {
    let mut harness = Nats::start().await;
    let writer = Writer::new(harness.client().await).await;
    let last = writer.append(vec![put("a", "old", 1)]).await;
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    reader.caught_up_at(last).await;
    harness.delete_log().await;
    let writer = Writer::new(harness.client().await).await;
    let mut last = Revision(0);
    for n in 0..50 {
        last = writer.append(vec![put("a", &format!("new-{n}"), 1)]).await;
    }
    reader
        .until(|reader| reader.restarts.contains(&RestartCause::NewIncarnation))
        .await;
    reader.caught_up_at(last).await;
    assert_eq!(reader.objects.len(), 50);
    assert_eq!(reader.version("a", "old"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_is_not_skipped_over() {
    let harness = Nats::start().await;
    let writer = Writer::new(harness.client().await).await;
    let stranger = jetstream::new(harness.stranger().await);
    let subject = format!("ar.{CLUSTER}.obj.a=2Ev1=2Eexample=2Ecom.ns.broken");
    let published = stranger.publish(subject, "not a record".into()).await;
    published.unwrap().await.unwrap();
    let last = writer.append(vec![put("a", "x", 1)]).await;
    let mut reader = Reader::new(&*writer.bus, LogScope::All);
    reader.caught_up_at(last).await;
    assert_eq!((reader.unreadable, reader.objects.len()), (1, 1));
    assert_eq!(reader.unreadable_of, Some(view("a")), "its view is known");
    // A new writer sees that the key is taken by something that no source has.
    let index = writer.bus.index().await.unwrap();
    let objects = index.objects.values().next().unwrap();
    assert_eq!(objects.len(), 2);
    assert!(objects.values().any(|(_, version)| version.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_cannot_be_decoded_is_free_and_of_the_last_term_in_the_log() {
    let harness = Nats::start().await;
    let writer = Writer::new(harness.client().await).await;
    let bus = &*writer.bus;
    let incarnation = bus.head().await.unwrap().incarnation;
    let subjects = Subjects::new(CLUSTER).unwrap();
    let subject = subjects.lease(&incarnation, Group::COORDINATOR);
    let stranger = jetstream::new(harness.stranger().await);
    let overwrite = async || {
        let published = stranger
            .publish(subject.clone(), "not a lease".into())
            .await;
        Revision(published.unwrap().await.unwrap().sequence)
    };
    for term in [0, 7] {
        if term > 0 {
            let mut record = control("a", ViewState::Syncing);
            if let Record::Control(record) = &mut record.record {
                record.epoch = Epoch::new(term, 1);
            }
            let (_, fence) = bus.lease(Group::COORDINATOR).await.unwrap().unwrap();
            bus.append(fence, vec![record]).await.unwrap();
        }
        let at = overwrite().await;
        let group = Group::COORDINATOR;
        let (lease, fence) = bus.lease(group).await.unwrap().unwrap();
        let holder = String::new();
        assert_eq!(lease, Lease { term, holder });
        assert_eq!(fence, Fence { group, at });
        let taken = Lease {
            term: term + 1,
            holder: "next".into(),
        };
        let next = bus.take_lease(group, taken.clone(), Some(fence)).await;
        let held = bus.lease(group).await.unwrap();
        assert_eq!(held, Some((taken, next.unwrap())));
    }
    let stale = writer.bus.append(writer.fence, vec![put("a", "x", 1)]);
    assert!(matches!(stale.await, Err(AppendError::Fenced)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn awaited_records_that_are_purged_do_not_delay_a_reader_for_ever() {
    let harness = Nats::start().await;
    let writer = Writer::new(harness.client().await).await;
    let names: Vec<_> = (0..2_000).map(|n| format!("object-{n}")).collect();
    for chunk in names.chunks(100) {
        let put = |name: &String| put_of("a", name, 1, 2_000);
        writer.append(chunk.iter().map(put).collect()).await;
    }
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    reader.until(|reader| reader.last > Revision(10)).await;
    let stream = jetstream::new(harness.stranger().await);
    let stream = stream.get_stream(STREAM).await.unwrap();
    stream.purge().await.unwrap();
    reader.until(|reader| reader.caught_up.is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_consumer_somebody_changes_misses_nothing() {
    let harness = Nats::start().await;
    let writer = Writer::new(harness.client().await).await;
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    let first = writer.append(vec![put("a", "x", 1)]).await;
    reader.caught_up_at(first).await;
    let stranger = harness.stranger().await;
    let list = format!("$JS.API.CONSUMER.LIST.{STREAM}");
    let listed = within(stranger.request(list, "{}".into())).await.unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed.payload).unwrap();
    let mut changed = 0;
    for consumer in listed["consumers"].as_array().unwrap() {
        let mut config = consumer["config"].clone();
        config["filter_subjects"] = serde_json::json!([format!("ar.{CLUSTER}.ctl.none")]);
        let name = config["name"].as_str().unwrap();
        let subject = format!("$JS.API.CONSUMER.CREATE.{STREAM}.{name}");
        let update = serde_json::json!({ "stream_name": STREAM, "config": config });
        let updated = within(stranger.request(subject, update.to_string().into())).await;
        let updated: serde_json::Value = serde_json::from_slice(&updated.unwrap().payload).unwrap();
        assert!(updated["error"].is_null(), "{updated}");
        changed += 1;
    }
    assert!(changed > 0);
    let second = writer.append(vec![put("a", "y", 1)]).await;
    let told = reader.until(|reader| reader.last >= second && reader.objects.len() == 2);
    tokio::time::timeout(Duration::from_secs(12), told)
        .await
        .unwrap();
    // A consumer that nobody changes is no reason to begin again.
    let restarts = reader.restarts.len();
    let quiet = reader.until(|reader| reader.restarts.len() > restarts || reader.away > 0);
    let quiet = tokio::time::timeout(Duration::from_secs(10), quiet).await;
    assert!(quiet.is_err(), "{:?}", reader.restarts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_leave_nothing_behind() {
    let harness = Nats::start().await;
    let bus = harness.bus(harness.config()).await;
    let mut serving = bus.serve(&at("silent")).await.unwrap();
    let _swallowing = tokio::spawn(async move { while serving.next().await.is_some() {} });
    for _ in 0..50 {
        let refused = bus
            .request(&at("silent"), call(b""), Duration::from_millis(2))
            .await;
        assert!(
            matches!(refused, Err(RequestError::TimedOut { .. })),
            "{refused:?}"
        );
        let refused = bus
            .request(&at("nobody"), call(b""), Duration::from_secs(20))
            .await;
        assert!(
            matches!(refused, Err(RequestError::NoResponders)),
            "{refused:?}"
        );
        let to = at("silent");
        let dropped = bus.request(&to, call(b""), Duration::from_secs(3600));
        drop(tokio::time::timeout(Duration::from_millis(2), dropped).await);
    }
    assert_eq!(bus.requests_waiting(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_ends_requests_that_wait_for_a_reply() {
    let mut harness = Nats::start().await;
    let bus = harness.bus(harness.config()).await;
    let mut serving = bus.serve(&at("a")).await.unwrap();
    let to = at("a");
    let asked = bus.request(&to, call(b""), Duration::from_secs(3600));
    let arrived = async {
        let incoming = serving.next().await;
        harness.server.kill().unwrap();
        incoming
    };
    let (reply, _incoming) = within(async { tokio::join!(asked, arrived) }).await;
    assert!(
        matches!(reply, Err(RequestError::Bus(BusError::Unavailable { .. }))),
        "{reply:?}"
    );
    assert_eq!(bus.requests_waiting(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_cannot_be_read_is_answered_as_such() {
    let harness = Nats::start().await;
    let bus = harness.bus(harness.config()).await;
    let mut serving = bus.serve(&at("a")).await.unwrap();
    let stranger = harness.stranger().await;
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Anteroom-Protocol", "99");
    headers.insert("Anteroom-Deadline-Ms", "100");
    let subject = format!("ar.{CLUSTER}.q.a=2Ev1=2Eexample=2Ecom");
    let of_another_version = stranger.request_with_headers(subject.clone(), headers, "".into());
    let (reply, seen) = within(async { tokio::join!(of_another_version, serving.next()) }).await;
    let refused = |reply: &[u8]| {
        let outcome = query::decode_outcome(reply).unwrap();
        matches!(outcome, Err(FactError::RequestInvalid { .. }))
    };
    assert!(refused(&reply.unwrap().payload));
    let seen = seen.unwrap();
    assert!(matches!(seen, Err(WireError::Protocol { .. })), "{seen:?}");
    // Neither headers nor a prefix: of no version at all.
    let of_none = stranger.request(subject, "body".into());
    let (reply, seen) = within(async { tokio::join!(of_none, serving.next()) }).await;
    assert!(refused(&reply.unwrap().payload));
    let seen = seen.unwrap();
    assert!(matches!(seen, Err(WireError::Header { .. })), "{seen:?}");
    assert_eq!(bus.counters().calls_unreadable, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_is_made_as_designed_and_brought_up_to_date() {
    let harness = Nats::start().await;
    let bus = harness.bus(harness.config()).await;
    let head = bus.ensure_log().await.unwrap();
    let jetstream = jetstream::new(harness.stranger().await);
    let found = || async {
        let stream = jetstream.get_stream(STREAM).await.unwrap();
        stream.cached_info().config.clone()
    };
    let made = found().await;
    assert_eq!(made.max_messages_per_subject, 1);
    assert_eq!(made.discard, stream::DiscardPolicy::New);
    assert_eq!(made.storage, stream::StorageType::File);
    assert!(made.allow_atomic_publish && made.allow_message_ttl && made.allow_direct);
    let changed = stream::Config {
        max_bytes: 1024 * 1024,
        allow_direct: false,
        ..made.clone()
    };
    jetstream.update_stream(&changed).await.unwrap();
    let again = bus.ensure_log().await.unwrap();
    assert_eq!(again.incarnation, head.incarnation);
    assert_eq!(found().await, made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_stream_that_somebody_changes_are_told() {
    let harness = Nats::start().await;
    let bus = harness.bus(harness.config()).await;
    bus.ensure_log().await.unwrap();
    let told = async || bus.log_storage().await.unwrap();
    let made = told().await;
    assert_eq!(made.faults, LogFaults::default());
    assert_eq!(made.size, bus.log_size().await.unwrap());
    let jetstream = jetstream::new(harness.stranger().await);
    let stream = jetstream.get_stream(STREAM).await.unwrap();
    let changed = stream::Config {
        max_bytes: 8 * 1024 * 1024,
        max_age: Duration::from_secs(3_600),
        ..stream.cached_info().config.clone()
    };
    jetstream.update_stream(&changed).await.unwrap();
    let expected = [
        "max_bytes is 8388608, and should be 268435456",
        "max_age is limited, and should not be",
    ];
    assert_eq!(told().await.faults.settings, expected);
    // The next coordinator sets them again.
    bus.ensure_log().await.unwrap();
    assert_eq!(told().await.faults, LogFaults::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_refuses_and_forgets_nothing() {
    let harness = Nats::start().await;
    let of_size = |log_bytes_max| NatsConfig {
        log_bytes_max,
        ..harness.config()
    };
    let bus = harness.bus(of_size(4 * 1024 * 1024)).await;
    let writer = Writer::new(Arc::new(bus)).await;
    let mut written = 0;
    let refused = loop {
        let batch = vec![put_of("a", &format!("object-{written}"), 1, 500_000)];
        match writer.bus.append(writer.fence, batch).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    let is_full = |error: &AppendError| matches!(error, AppendError::Bus(BusError::Full { .. }));
    assert!(is_full(&refused), "{refused:?}");
    let two = ["x", "y"]
        .map(|name| put_of("b", name, 1, 300_000))
        .to_vec();
    let refused = writer.bus.append(writer.fence, two.clone()).await;
    assert!(is_full(&refused.clone().unwrap_err()), "{refused:?}");
    let index = writer.bus.index().await.unwrap();
    assert_eq!(index.objects.values().next().unwrap().len(), written);
    let full = writer.bus.log_size().await.unwrap();
    assert_eq!(full.bytes_max, Some(4 * 1024 * 1024));
    assert!(full.bytes > 3_500_000, "{full:?}");

    // What deletes has room, and makes some.
    writer.append(vec![delete("a", "object-0", 2)]).await;
    writer.append(vec![control("a", ViewState::Dropped)]).await;
    writer.bus.purge(writer.fence, &view("a")).await.unwrap();
    let purged = writer.bus.log_size().await.unwrap();
    assert!(purged.bytes < 10_000, "{purged:?}");
    writer.append(two).await;

    // A larger limit makes some, too.
    while writer
        .bus
        .append(
            writer.fence,
            vec![put_of("c", &format!("{written}"), 1, 500_000)],
        )
        .await
        .is_ok()
    {
        written += 1;
    }
    let larger = harness.bus(of_size(16 * 1024 * 1024)).await;
    larger.ensure_log().await.unwrap();
    let size = writer.bus.log_size().await.unwrap();
    assert_eq!(size.bytes_max, Some(16 * 1024 * 1024));
    writer.append(vec![put_of("c", "last", 1, 500_000)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permissions_that_are_deployed_suffice() {
    let server = deployed().await;
    let connect = async |user: &str, service: &str| {
        let bus = NatsBus::connect(server.login(user, service)).await;
        let bus: Arc<dyn Bus> = Arc::new(bus.unwrap());
        until(&*bus, Connection::Up).await;
        bus
    };
    let watcher = connect("watcher", "watcher").await;
    let replica = connect("replica", "cache_replica").await;
    let webhook = connect("webhook", "webhook").await;

    // Two watchers with the same user lead two different groups.
    let other = Writer::of(connect("watcher", "watcher").await, Group(1)).await;
    other.append(vec![put("b", "x", 1)]).await;
    let writer = Writer::new(watcher).await;
    let batch = vec![
        put("a", "x", 1),
        control("a", ViewState::Dropped),
        delete("b", "x", 2),
    ];
    writer.append(batch).await;
    let index = writer.bus.index().await.unwrap();
    assert_eq!((index.views.len(), index.objects.len()), (1, 1));
    writer.bus.purge(writer.fence, &view("a")).await.unwrap();
    let last = writer.append(vec![put("a", "y", 2)]).await;
    for bus in [&replica, &webhook, &other.bus] {
        let scope = LogScope::Views(vec![view("a")]);
        for scope in [LogScope::All, scope] {
            let mut reader = Reader::new(&**bus, scope);
            reader.caught_up_at(last).await;
            assert_eq!(reader.objects.len(), 1);
        }
        let mut beats = bus.signals::<Beat>().await.unwrap();
        heard(&*writer.bus, &mut beats, 1).await;
        let mut beats = bus.signals::<ReplicaBeat>().await.unwrap();
        signal_heard(&*replica, &mut beats, replica_beat()).await;
    }
    // A webhook's beat is for the watchers.
    for bus in [&writer.bus, &other.bus] {
        let mut beats = bus.signals::<WebhookBeat>().await.unwrap();
        signal_heard(&*webhook, &mut beats, webhook_beat()).await;
    }
    let own = Address::Replica {
        replica: "replica-1".into(),
        view: view("a"),
    };
    for (to, server) in [
        (at("a"), &replica),
        (own, &replica),
        (Address::Fallback(view("a")), &replica),
        (Address::Live, &other.bus),
        (Address::Write, &other.bus),
    ] {
        let serving = server.serve(&to).await.unwrap();
        tokio::spawn(answer(serving, "one"));
        let reply = within(webhook.request(&to, call(b""), Duration::from_secs(20))).await;
        assert_eq!(reply.unwrap(), "one");
    }
    // A replica and a webhook may not write: on NATS, what is not permitted is silence.
    for bus in [&replica, &webhook] {
        let refused = within(bus.append(writer.fence, vec![put("a", "x", 9)])).await;
        assert!(refused.is_err());
    }
    assert_eq!(writer.bus.head().await.unwrap().last, last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_makes_the_bus_unavailable() {
    let server = deployed().await;
    let mut config = server.login("webhook", "webhook");
    config.credentials = Credentials::Password {
        user: "webhook".into(),
        password: "wrong".into(),
    };
    let bus = NatsBus::connect(config).await.unwrap();
    let refused = bus.head().await;
    assert!(
        matches!(refused, Err(BusError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(*bus.connection().borrow(), Connection::Down);
}

/// As after `anteroom init` has made all keys anew. The clients run on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_key_and_authority_are_read_at_the_next_connection() {
    let mut deployed = deployed().await;
    let login = deployed.login("watcher", "watcher");
    let bus: Arc<dyn Bus> = Arc::new(NatsBus::connect(login).await.unwrap());
    until(&*bus, Connection::Up).await;
    let writer = Writer::new(bus).await;
    let last = writer.append(vec![put("a", "x", 1)]).await;
    deployed.server.kill().unwrap();
    until(&*writer.bus, Connection::Down).await;
    deployed.replace_keys().await;
    until(&*writer.bus, Connection::Up).await;
    assert_eq!(writer.bus.head().await.unwrap().last, last);
}

#[tokio::test]
async fn a_bad_cluster_name_or_missing_seed_file_fails_at_connect() {
    let config = NatsConfig::new(["nats://127.0.0.1:4222"], "no.such.name");
    let refused = NatsBus::connect(config).await;
    assert!(
        matches!(refused, Err(NatsConfigError::Cluster(_))),
        "{refused:?}"
    );
    let mut config = NatsConfig::new(["nats://127.0.0.1:4222"], CLUSTER);
    config.credentials = Credentials::NkeySeed("/no/such/file".into());
    let refused = NatsBus::connect(config).await;
    assert!(
        matches!(refused, Err(NatsConfigError::File { .. })),
        "{refused:?}"
    );
}

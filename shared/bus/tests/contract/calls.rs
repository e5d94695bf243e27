//! Request and reply, and heartbeats.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anteroom_bus::{
    Address, Bus, BusError, BusExt as _, Call, RequestError, Serving, Signal, Signals,
    ViolationEvent,
};
use anteroom_model::{
    Epoch, Group, Incarnation, Revision,
    limits::{MESSAGE_BYTES_MAX, RESULT_BYTES_MAX},
};
use anteroom_wire::{
    beat::{Beat, ViewBeat},
    envelope::TraceContext,
    replica_beat::ReplicaBeat,
    tap::{Tap, Tapped},
    violation::Violation,
    webhook_beat::WebhookBeat,
};
use bytes::Bytes;
use futures::poll;

use crate::{
    harness::Harness,
    support::{view, within},
};

/// Longer than any reply takes.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn at(name: &str) -> Address {
    Address::View(view(name))
}

pub(crate) fn call(body: &'static [u8]) -> Call {
    Call {
        body: Bytes::from_static(body),
        deadline: Duration::from_millis(1500),
        trace: None,
    }
}

/// Answers every call with `name` until there are no more; how many there were.
pub(crate) async fn answer(mut serving: Serving, name: &'static str) -> usize {
    let mut answered = 0;
    while let Some(incoming) = serving.next().await {
        answered += usize::from(incoming.unwrap().answer(Bytes::from(name)).await.is_ok());
    }
    answered
}

pub(crate) async fn a_call_is_answered_with_what_travelled_beside_it(harness: impl Harness) {
    let (caller, server) = (harness.client().await, harness.client().await);
    let mut serving = server.serve(&at("a")).await.unwrap();
    let trace = TraceContext {
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
        tracestate: "vendor=data".into(),
    };
    for trace in [Some(trace), None] {
        let sent = Call {
            trace: trace.clone(),
            ..call(b"question")
        };
        let to = at("a");
        let asked = caller.request(&to, sent, TIMEOUT);
        let answered = async {
            let incoming = serving.next().await.unwrap().unwrap();
            assert_eq!(incoming.call.body, "question");
            assert_eq!(incoming.call.deadline, Duration::from_millis(1500));
            assert_eq!(incoming.call.trace, trace);
            incoming
                .answer(Bytes::from_static(b"answer"))
                .await
                .unwrap();
        };
        let (reply, ()) = within(async { tokio::join!(asked, answered) }).await;
        assert_eq!(reply.unwrap(), "answer");
    }
}

pub(crate) async fn nobody_there_is_known_at_once(harness: impl Harness) {
    let bus = harness.client().await;
    // Longer than this test may take: the answer does not wait for it.
    let forever = Duration::from_secs(3600);
    let refused = within(bus.request(&at("a"), call(b""), forever)).await;
    assert!(
        matches!(refused, Err(RequestError::NoResponders)),
        "{refused:?}"
    );
}

pub(crate) async fn an_unanswered_call_times_out(harness: impl Harness) {
    let bus = harness.client().await;
    let mut serving = bus.serve(&at("a")).await.unwrap();
    let to = at("a");
    let asked = bus.request(&to, call(b""), Duration::from_millis(50));
    // Dropped, not answered.
    let dropped = async { drop(serving.next().await.unwrap().unwrap()) };
    let (reply, ()) = within(async { tokio::join!(asked, dropped) }).await;
    assert!(
        matches!(reply, Err(RequestError::TimedOut { timeout_ms: 50 })),
        "{reply:?}"
    );
}

pub(crate) async fn each_call_reaches_one_server(harness: impl Harness) {
    const CALLS: usize = 200;
    let caller = harness.client().await;
    let mut servers = Vec::new();
    for name in ["one", "two"] {
        let serving = harness.client().await.serve(&at("a")).await.unwrap();
        servers.push((serving, name));
    }
    let answered = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for (mut serving, name) in servers {
        let answered = Arc::clone(&answered);
        tasks.push(tokio::spawn(async move {
            let mut mine = 0;
            while let Some(incoming) = serving.next().await {
                incoming.unwrap().answer(Bytes::from(name)).await.unwrap();
                mine += 1;
                if answered.fetch_add(1, Ordering::SeqCst) + 1 == CALLS {
                    break;
                }
                if answered.load(Ordering::SeqCst) >= CALLS {
                    break;
                }
            }
            mine
        }));
    }
    let mut by_name = [0_usize; 2];
    for _ in 0..CALLS {
        let reply = within(caller.request(&at("a"), call(b""), TIMEOUT)).await;
        by_name[usize::from(reply.unwrap() == "two")] += 1;
    }
    assert!(by_name.iter().all(|calls| *calls > 0), "{by_name:?}");
    assert_eq!(answered.load(Ordering::SeqCst), CALLS, "none reached two");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

pub(crate) async fn a_replica_has_an_address_of_its_own(harness: impl Harness) {
    let caller = harness.client().await;
    let direct = |replica: &str| Address::Replica {
        replica: replica.into(),
        view: view("a"),
    };
    for name in ["replica-1", "replica-2"] {
        let serving = harness.client().await.serve(&direct(name)).await.unwrap();
        tokio::spawn(answer(serving, name));
    }
    for name in ["replica-1", "replica-2", "replica-1"] {
        let reply = within(caller.request(&direct(name), call(b""), TIMEOUT)).await;
        assert_eq!(reply.unwrap(), name);
    }
    let nobody = within(caller.request(&direct("replica-3"), call(b""), TIMEOUT)).await;
    assert!(
        matches!(nobody, Err(RequestError::NoResponders)),
        "{nobody:?}"
    );
}

/// A replica that does not serve a view still says why, at an address of its own.
pub(crate) async fn the_addresses_of_one_view_are_apart(harness: impl Harness) {
    let (caller, server) = (harness.client().await, harness.client().await);
    let fallback = Address::Fallback(view("a"));
    let why = tokio::spawn(answer(server.serve(&fallback).await.unwrap(), "why not"));
    let refused = within(caller.request(&at("a"), call(b""), TIMEOUT)).await;
    assert!(matches!(refused, Err(RequestError::NoResponders)));
    let reply = within(caller.request(&fallback, call(b""), TIMEOUT)).await;
    assert_eq!(reply.unwrap(), "why not");

    let serving = server.serve(&at("a")).await.unwrap();
    tokio::spawn(answer(serving, "the view"));
    for (to, expected) in [(at("a"), "the view"), (fallback, "why not")] {
        let reply = within(caller.request(&to, call(b""), TIMEOUT)).await;
        assert_eq!(reply.unwrap(), expected);
    }
    let other = Address::Fallback(view("b"));
    let refused = within(caller.request(&other, call(b""), TIMEOUT)).await;
    assert!(matches!(refused, Err(RequestError::NoResponders)));
    server.close().await;
    assert_eq!(within(why).await.unwrap(), 2);
}

pub(crate) async fn live_reads_reach_one_watcher(harness: impl Harness) {
    const CALLS: usize = 20;
    let caller = harness.client().await;
    let nobody = within(caller.request(&Address::Live, call(b""), TIMEOUT)).await;
    assert!(matches!(nobody, Err(RequestError::NoResponders)));
    let (mut watchers, mut tasks) = (Vec::new(), Vec::new());
    for name in ["one", "two"] {
        let watcher = harness.client().await;
        let serving = watcher.serve(&Address::Live).await.unwrap();
        tasks.push(tokio::spawn(answer(serving, name)));
        watchers.push(watcher);
    }
    for _ in 0..CALLS {
        let asked = caller.request(&Address::Live, call(b""), TIMEOUT);
        within(asked).await.unwrap();
    }
    let mut answered = 0;
    for (watcher, task) in watchers.iter().zip(tasks) {
        watcher.close().await;
        answered += within(task).await.unwrap();
    }
    assert_eq!(answered, CALLS, "each by one of them");
}

/// Three addresses of each of a thousand views, taken up side by side: every place holds at once.
pub(crate) async fn a_thousand_views_are_served_at_once(harness: impl Harness) {
    let (caller, server) = (harness.client().await, harness.client().await);
    let addresses: Vec<_> = (0..1_000)
        .map(|number| view(&format!("v{number}")))
        .flat_map(|view| {
            let replica = "replica-1".to_owned();
            [
                Address::View(view.clone()),
                Address::Fallback(view.clone()),
                Address::Replica { replica, view },
            ]
        })
        .collect();
    let places = addresses.iter().map(|address| server.serve(address));
    let places = within(futures::future::join_all(places)).await;
    for place in places {
        tokio::spawn(answer(place.unwrap(), "here"));
    }
    for address in &addresses {
        let reply = within(caller.request(address, call(b""), TIMEOUT)).await;
        assert_eq!(reply.unwrap(), "here");
    }
}

/// Servers come and go under load, and no call is lost: each is answered, or finds nobody there.
pub(crate) async fn draining_loses_no_call(harness: impl Harness) {
    const CALLERS: usize = 16;
    const ROUNDS: usize = 40;
    let server = harness.client().await;
    let stop = tokio_util::sync::CancellationToken::new();
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let (caller, stop) = (harness.client().await, stop.clone());
        callers.push(tokio::spawn(async move {
            let (mut answered, mut nobody) = (0_usize, 0_usize);
            while !stop.is_cancelled() {
                match caller.request(&at("a"), call(b""), TIMEOUT).await {
                    Ok(_) => answered += 1,
                    Err(RequestError::NoResponders) => {
                        nobody += 1;
                        tokio::task::yield_now().await;
                    }
                    Err(error) => panic!("a call was lost: {error}"),
                }
            }
            (answered, nobody)
        }));
    }
    let mut served = 0;
    for _ in 0..ROUNDS {
        let mut serving = server.serve(&at("a")).await.unwrap();
        for _ in 0..25 {
            let incoming = within(serving.next()).await.unwrap().unwrap();
            incoming.answer(Bytes::from_static(b"one")).await.unwrap();
            served += 1;
        }
        serving.drain();
        served += within(answer(serving, "last")).await;
    }
    stop.cancel();
    let (mut answered, mut nobody) = (0, 0);
    for caller in callers {
        let (a, n) = within(caller).await.unwrap();
        answered += a;
        nobody += n;
    }
    assert_eq!(answered, served);
    assert!(nobody > 0, "between two rounds there is nobody");
}

/// More calls wait at a place that is left than a task may take at one turn: none of them is lost.
pub(crate) async fn leaving_a_full_place_loses_no_call(harness: impl Harness) {
    const WAITING: usize = 300;
    let (caller, server) = (harness.client().await, harness.client().await);
    let mut full = server.serve(&at("a")).await.unwrap();
    let beside = tokio::spawn(answer(server.serve(&at("b")).await.unwrap(), "beside"));
    let mut callers = Vec::new();
    for _ in 0..WAITING {
        let caller_a = caller.clone();
        let mut waits =
            Box::pin(async move { caller_a.request(&at("a"), call(b""), TIMEOUT).await });
        // A task may begin later than what follows: it is sent here.
        assert!(poll!(&mut waits).is_pending());
        callers.push(tokio::spawn(waits));
        // The reply proves that all calls sent before have arrived.
        let reply = within(caller.request(&at("b"), call(b""), TIMEOUT)).await;
        assert_eq!(reply.unwrap(), "beside");
    }
    full.drain();
    let mut taken = Vec::new();
    while let Some(incoming) = full.next().await {
        taken.push(incoming.unwrap());
    }
    assert_eq!(taken.len(), WAITING);
    for incoming in taken {
        incoming.answer(Bytes::from_static(b"one")).await.unwrap();
    }
    for caller in callers {
        assert_eq!(within(caller).await.unwrap().unwrap(), "one");
    }
    beside.abort();
}

pub(crate) async fn leaving_leaves_the_others(harness: impl Harness) {
    let caller = harness.client().await;
    let staying = harness.client().await;
    let stays = tokio::spawn(answer(staying.serve(&at("a")).await.unwrap(), "stays"));
    let leaving = harness.client().await.serve(&at("a")).await.unwrap();
    leaving.drain();
    assert_eq!(within(answer(leaving, "leaves")).await, 0);
    for _ in 0..20 {
        let reply = within(caller.request(&at("a"), call(b""), TIMEOUT)).await;
        assert_eq!(reply.unwrap(), "stays");
    }
    staying.close().await;
    assert_eq!(within(stays).await.unwrap(), 20);
}

pub(crate) async fn oversized_calls_and_replies_are_refused(harness: impl Harness) {
    let (caller, server) = (harness.client().await, harness.client().await);
    let mut serving = server.serve(&at("a")).await.unwrap();
    let too_large = Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]);
    let sent = Call {
        body: too_large.clone(),
        ..call(b"")
    };
    let refused = within(caller.request(&at("a"), sent, TIMEOUT)).await;
    assert!(
        matches!(refused, Err(RequestError::Bus(BusError::TooLarge { .. }))),
        "{refused:?}"
    );
    let largest = Bytes::from(vec![7; RESULT_BYTES_MAX]);
    for (body, fits) in [(too_large, false), (largest, true)] {
        let to = at("a");
        let asked = caller.request(&to, call(b""), TIMEOUT);
        let answered = async {
            let incoming = serving.next().await.unwrap().unwrap();
            incoming.answer(body).await
        };
        if fits {
            let (reply, answered) = within(async { tokio::join!(asked, answered) }).await;
            answered.unwrap();
            assert_eq!(reply.unwrap().len(), RESULT_BYTES_MAX);
        } else {
            let answered = within(async {
                tokio::select! {
                    _ = asked => unreachable!("there is no reply"),
                    answered = answered => answered,
                }
            });
            let refused = answered.await;
            assert!(
                matches!(refused, Err(BusError::TooLarge { .. })),
                "{refused:?}"
            );
        }
    }
}

pub(crate) fn beat(term: u32) -> Beat {
    Beat {
        incarnation: Incarnation("log".into()),
        group: Group::COORDINATOR,
        term,
        holder: "watcher".into(),
        page: 0,
        sent_ms: None,
        views: vec![ViewBeat {
            view: view("a"),
            epoch: Epoch::new(term, 0),
            revision: Revision(9),
            news_age_ms: 12,
            objects: 0,
            bytes: 0,
            skipped: 0,
            trouble: None,
        }],
    }
}

/// Sends beats until one is heard: what is sent before a listener is there is lost, as it should be.
pub(crate) async fn heard(from: &dyn Bus, beats: &mut anteroom_bus::Signals<Beat>, term: u32) {
    within(async {
        loop {
            from.send(&beat(term)).await.unwrap();
            let next = tokio::time::timeout(Duration::from_millis(100), beats.next());
            match next.await {
                Ok(heard) if heard == Some(beat(term)) => return,
                Ok(None) => panic!("the beats ended"),
                // An older one, or none yet.
                Ok(Some(_)) | Err(_) => {}
            }
        }
    })
    .await;
}

pub(crate) async fn beats_reach_whoever_listens(harness: impl Harness) {
    let writer = harness.client().await;
    writer.send(&beat(1)).await.unwrap();
    let readers = [harness.client().await, harness.client().await];
    for reader in &readers {
        let mut beats = reader.signals::<Beat>().await.unwrap();
        heard(&*writer, &mut beats, 2).await;
    }
}

/// Sends a signal until it is heard.
pub(crate) async fn signal_heard<S>(from: &dyn Bus, listener: &mut Signals<S>, sent: S)
where
    S: Signal + Debug + PartialEq,
{
    within(async {
        loop {
            from.send(&sent).await.unwrap();
            let next = tokio::time::timeout(Duration::from_millis(100), listener.next());
            if let Ok(heard) = next.await {
                assert_eq!(heard.as_ref(), Some(&sent));
                return;
            }
        }
    })
    .await;
}

pub(crate) fn replica_beat() -> ReplicaBeat {
    ReplicaBeat {
        replica: "replica-1".into(),
        bytes: 5,
        ..ReplicaBeat::default()
    }
}

pub(crate) fn webhook_beat() -> WebhookBeat {
    WebhookBeat {
        webhook: "webhook-1".into(),
        compiled: Revision(5),
        ..WebhookBeat::default()
    }
}

/// What each listener hears first is of its own type: none of another came there before.
pub(crate) async fn a_signal_reaches_who_listens_to_its_type_and_nobody_else(
    harness: impl Harness,
) {
    let (sender, reader) = (harness.client().await, harness.client().await);
    let mut writers = reader.signals::<Beat>().await.unwrap();
    let mut replicas = reader.signals::<ReplicaBeat>().await.unwrap();
    let mut webhooks = reader.signals::<WebhookBeat>().await.unwrap();
    let mut taps = reader.signals::<Tap>().await.unwrap();
    let mut tapped = reader.signals::<Tapped>().await.unwrap();
    let (tap, told) = (Tap::default(), Tapped::default());
    signal_heard(&*sender, &mut replicas, replica_beat()).await;
    signal_heard(&*sender, &mut tapped, told).await;
    signal_heard(&*sender, &mut webhooks, webhook_beat()).await;
    signal_heard(&*sender, &mut taps, tap).await;
    heard(&*sender, &mut writers, 3).await;
}

pub(crate) async fn violations_are_heard_too(harness: impl Harness) {
    let (webhook, reader) = (harness.client().await, harness.client().await);
    let mut violations = reader.violations().await.unwrap();
    let sent = Violation {
        kind: "Pod".into(),
        name: "a".into(),
        ..Violation::default()
    };
    within(async {
        loop {
            // One may be lost.
            webhook.send(&sent).await.unwrap();
            let next = tokio::time::timeout(Duration::from_millis(100), violations.next());
            if let Ok(heard) = next.await {
                assert_eq!(
                    heard,
                    Some(ViolationEvent::Violation(Box::new(sent.clone())))
                );
                return;
            }
        }
    })
    .await;
}

//! The faults that can be asked for do what they say.

use crate::BusExt as _;
use anteroom_model::{Delta, Epoch, Incarnation, ObjectKey, Op, ResourceVersion};
use anteroom_wire::beat::Beat;
use anteroom_wire::envelope::Record;

use super::*;
use crate::{LogEvent, RestartCause};

const TTL: Duration = Duration::from_secs(60);

fn put(name: &str) -> Envelope {
    Envelope {
        record: Record::Delta {
            view: ViewId::new("a.v1"),
            delta: Delta {
                key: ObjectKey::new("ns", name),
                epoch: Epoch::new(1, 0),
                version: ResourceVersion::new("1"),
                op: Op::Put(Bytes::from_static(b"body")),
            },
        },
        trace: None,
    }
}

/// A bus with one client, which holds the lease.
async fn writer() -> (LocalBus, Fence) {
    let bus = LocalBus::with_options(LocalOptions {
        tombstone_ttl: TTL,
        ..LocalOptions::default()
    });
    bus.ensure_log().await.unwrap();
    let lease = Lease {
        term: 1,
        holder: "test".into(),
    };
    let fence = bus
        .take_lease(Group::COORDINATOR, lease, None)
        .await
        .unwrap();
    (bus, fence)
}

/// The causes of beginning again, up to and with `cause`; every other event is passed over.
async fn restarted(follower: &mut Follower, wanted: RestartCause) {
    loop {
        match follower.next().await.unwrap() {
            LogEvent::Restart { cause, .. } if cause == wanted => return,
            _ => {}
        }
    }
}

async fn caught_up(follower: &mut Follower) -> Revision {
    loop {
        if let LogEvent::CaughtUp { revision } = follower.next().await.unwrap() {
            return revision;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_batch_and_a_lost_acknowledgement_look_the_same() {
    let (bus, fence) = writer().await;
    let always = |append_lost, ack_lost| Chances {
        append_lost,
        ack_lost,
        ..Chances::default()
    };
    for (chances, written) in [(always(1.0, 0.0), 0), (always(0.0, 1.0), 1)] {
        bus.faults().set_chances(chances);
        let unknown = bus.append(fence, vec![put("x")]).await;
        assert!(
            matches!(unknown, Err(AppendError::Unknown { .. })),
            "{unknown:?}"
        );
        let index = bus.index().await.unwrap();
        assert_eq!(
            index.objects.values().map(|of| of.len()).sum::<usize>(),
            written
        );
    }
    bus.faults().set_chances(Chances::default());
    assert_eq!(
        bus.append(fence, vec![put("x")]).await.unwrap(),
        Revision(3)
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_held_up_arrives_later_while_its_fence_holds() {
    let (bus, fence) = writer().await;
    let hold_up = async || {
        bus.faults().set_chances(Chances {
            append_late: 1.0,
            ..Chances::default()
        });
        let unknown = bus.append(fence, vec![put("x")]).await;
        assert!(
            matches!(unknown, Err(AppendError::Unknown { .. })),
            "{unknown:?}"
        );
        bus.faults().set_chances(Chances::default());
    };
    hold_up().await;
    let written = bus.append(fence, vec![put("y")]).await.unwrap();
    tokio::time::sleep(APPEND_LATE_MAX).await;
    assert_eq!(bus.head().await.unwrap().last.0, written.0 + 1);
    hold_up().await;
    let (lease, _) = bus.lease(fence.group).await.unwrap().unwrap();
    let renewed = bus.take_lease(fence.group, lease, Some(fence)).await;
    tokio::time::sleep(APPEND_LATE_MAX).await;
    assert_eq!(bus.head().await.unwrap().last, renewed.unwrap().at);
}

#[tokio::test(start_paused = true)]
async fn lost_calls_and_lost_replies_end_in_the_timeout() {
    let bus = LocalBus::new();
    let at = Address::View(ViewId::new("a.v1"));
    let mut serving = bus.serve(&at).await.unwrap();
    let answered = tokio::spawn(async move {
        let mut answered = 0;
        while let Some(incoming) = serving.next().await {
            incoming.unwrap().answer(Bytes::new()).await.unwrap();
            answered += 1;
        }
        answered
    });
    let chances = |call_lost, reply_lost| Chances {
        call_lost,
        reply_lost,
        delay_max: Duration::from_millis(5),
        ..Chances::default()
    };
    for (chances, arrives) in [
        (chances(1.0, 0.0), false),
        (chances(0.0, 1.0), false),
        (chances(0.0, 0.0), true),
    ] {
        bus.faults().set_chances(chances);
        let call = Call {
            body: Bytes::new(),
            deadline: Duration::from_secs(1),
            trace: None,
        };
        let reply = bus.request(&at, call, Duration::from_secs(1)).await;
        match reply {
            Ok(_) => assert!(arrives),
            Err(RequestError::TimedOut { timeout_ms: 1000 }) => assert!(!arrives),
            Err(error) => panic!("{error}"),
        }
    }
    bus.close().await;
    assert_eq!(answered.await.unwrap(), 2, "a lost call reaches nobody");
}

#[tokio::test(start_paused = true)]
async fn cutting_off_one_client_leaves_the_others_connected() {
    let (bus, fence) = writer().await;
    let other = bus.join();
    let mut follower = other.follow(LogScope::All);
    caught_up(&mut follower).await;
    other.faults().cut();
    assert!(matches!(follower.next().await, Some(LogEvent::Away { .. })));
    let last = bus.append(fence, vec![put("x")]).await.unwrap();
    assert!(other.head().await.is_err());
    other.faults().mend();
    assert!(matches!(
        follower.next().await,
        Some(LogEvent::Record { .. })
    ));
    assert_eq!(caught_up(&mut follower).await, last);
}

#[tokio::test(start_paused = true)]
async fn a_follower_away_for_longer_than_the_ttl_restarts() {
    let (bus, fence) = writer().await;
    let other = bus.join();
    let mut follower = other.follow(LogScope::All);
    caught_up(&mut follower).await;
    // Idle is not away.
    tokio::time::sleep(TTL).await;
    bus.append(fence, vec![put("x")]).await.unwrap();
    let next = follower.next().await;
    assert!(matches!(next, Some(LogEvent::Record { .. })), "{next:?}");

    other.faults().cut();
    tokio::time::sleep(TTL / 2 + Duration::from_secs(1)).await;
    other.faults().mend();
    restarted(&mut follower, RestartCause::AwayTooLong).await;
    caught_up(&mut follower).await;
}

#[tokio::test(start_paused = true)]
async fn lost_messages_and_lost_records_are_noticed() {
    let (bus, fence) = writer().await;
    let last = bus.append(fence, vec![put("x"), put("y")]).await.unwrap();
    let mut follower = bus.follow(LogScope::All);
    assert_eq!(caught_up(&mut follower).await, last);
    bus.faults().gap();
    restarted(&mut follower, RestartCause::Gap).await;
    assert_eq!(caught_up(&mut follower).await, last);
    bus.faults().truncate_log(Revision(last.0 - 1));
    restarted(&mut follower, RestartCause::Truncated).await;
    assert_eq!(caught_up(&mut follower).await, Revision(last.0 - 1));
    bus.faults().remake_log();
    restarted(&mut follower, RestartCause::NewIncarnation).await;
    assert_eq!(caught_up(&mut follower).await, Revision(0));
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_a_copy_that_lags_is_not_at_the_end_that_the_leader_tells() {
    let (bus, fence) = writer().await;
    let other = bus.join();
    let mut follower = other.follow(LogScope::All);
    let read = caught_up(&mut follower).await;
    other.faults().lag_copy();
    assert_eq!(caught_up(&mut follower).await, read, "it has read all");
    let last = bus.append(fence, vec![put("x")]).await.unwrap();
    // It is connected anew meanwhile, and no record waits for it.
    let behind = tokio::time::timeout(Duration::from_secs(10), caught_up(&mut follower)).await;
    assert!(behind.is_err(), "{behind:?}");
    other.faults().catch_copy_up();
    assert_eq!(caught_up(&mut follower).await, last);
}

/// The name of the object that the next record is about.
async fn name_of_next(follower: &mut Follower) -> String {
    match follower.next().await {
        Some(LogEvent::Record {
            envelope: Ok(envelope),
            ..
        }) => match envelope.record {
            Record::Delta { delta, .. } => delta.key.name.to_string(),
            Record::Control(record) => panic!("{record:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_lost_in_silence_is_missing_for_its_reader_alone() {
    let (bus, fence) = writer().await;
    let other = bus.join();
    let (mut whole, mut losing) = (bus.follow(LogScope::All), other.follow(LogScope::All));
    for follower in [&mut whole, &mut losing] {
        caught_up(follower).await;
    }
    other.faults().lose(1);
    for name in ["x", "y"] {
        bus.append(fence, vec![put(name)]).await.unwrap();
    }
    assert_eq!(name_of_next(&mut whole).await, "x");
    assert_eq!(name_of_next(&mut losing).await, "y");
}

#[tokio::test(start_paused = true)]
async fn another_history_has_the_same_numbers_and_frees_the_lease() {
    let (bus, fence) = writer().await;
    let batch = vec![put("x"), put("y"), put("z")];
    let last = bus.append(fence, batch).await.unwrap();
    let mut follower = bus.follow(LogScope::All);
    assert_eq!(caught_up(&mut follower).await, last);
    bus.faults().replace_history(Revision(2));
    assert_eq!(bus.head().await.unwrap().last, last);
    let refused = bus.append(fence, vec![put("x")]).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    let (free, at) = bus.lease(Group::COORDINATOR).await.unwrap().unwrap();
    assert_eq!((free.term, free.holder.as_str()), (2, ""));
    let lease = Lease {
        term: 3,
        holder: "test".into(),
    };
    let taken = bus.take_lease(Group::COORDINATOR, lease, Some(at)).await;
    let appended = bus.append(taken.unwrap(), vec![put("new")]).await;
    assert!(appended.unwrap() > last);
    assert_eq!(
        name_of_next(&mut follower).await,
        "new",
        "the reader is told nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_witnessed_with_its_fence_and_the_lease_at_that_moment() {
    let (bus, fence) = writer().await;
    let mut batches = bus.faults().watch_appends();
    let last = bus.append(fence, vec![put("x"), put("y")]).await.unwrap();
    let batch = batches.try_recv().unwrap();
    assert_eq!((batch.fence, batch.last), (fence, last));
    assert_eq!(batch.lease.map(|(_, at)| at), Some(fence));
    assert_eq!(batch.epochs, [Epoch::new(1, 0); 2]);
    let stale = Fence {
        at: Revision(99),
        ..fence
    };
    bus.append(stale, vec![put("x")]).await.unwrap_err();
    assert!(batches.try_recv().is_err(), "nothing was appended");
}

/// A beat of the coordinator's group.
fn beat(term: u32) -> Beat {
    Beat {
        incarnation: Incarnation::default(),
        group: Group::COORDINATOR,
        term,
        holder: String::new(),
        page: 0,
        sent_ms: None,
        views: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn beats_are_lost_for_one_listener_at_a_time() {
    let bus = LocalBus::new();
    let mut beats = bus.signals::<Beat>().await.unwrap();
    for (beat_lost, term) in [(1.0, 1), (0.0, 2)] {
        let chances = Chances {
            beat_lost,
            ..Chances::default()
        };
        bus.faults().set_chances(chances);
        bus.send(&beat(term)).await.unwrap();
    }
    assert_eq!(beats.next().await, Some(beat(2)));
}

#[tokio::test(start_paused = true)]
async fn delayed_beats_of_a_sender_arrive_in_order_and_together() {
    let bus = LocalBus::new();
    let mut beats = bus.signals::<Beat>().await.unwrap();
    let send = async |term| bus.send(&beat(term)).await.unwrap();
    let chances = |beat_delayed| Chances {
        beat_delayed,
        beat_delay_max: Duration::from_secs(50),
        ..Chances::default()
    };
    bus.faults().set_chances(chances(1.0));
    for term in 1..=20 {
        send(term).await;
    }
    for term in 1..=20 {
        assert_eq!(beats.next().await.map(|beat| beat.term), Some(term));
    }
    // Those on their way arrive as soon as nothing is delayed, and before later ones.
    send(21).await;
    bus.faults().set_chances(chances(0.0));
    send(22).await;
    let begun = Instant::now();
    for term in [21, 22] {
        assert_eq!(beats.next().await.map(|beat| beat.term), Some(term));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

//! The log: order, what is kept, and who may write.

use anteroom_bus::{AppendError, BusError, Fence, Lease, LogScope};
use anteroom_model::{
    Group, Revision, ViewState,
    limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, MESSAGE_BYTES_MAX},
};

use crate::{
    harness::Harness,
    support::{Reader, Writer, control, delete, in_term, key, put, put_of, put_raw, view},
};

fn lease(term: u32) -> Lease {
    Lease {
        term,
        holder: format!("holder-{term}"),
    }
}

pub(crate) async fn one_total_order_with_growing_positions(harness: impl Harness) {
    let bus = harness.client().await;
    let first_head = bus.ensure_log().await.unwrap();
    assert_eq!(bus.ensure_log().await.unwrap(), first_head, "made once");
    let writer = Writer::new(bus.clone()).await;
    assert!(writer.fence.at >= Revision(1), "positions start at 1");

    let single = writer.append(vec![put("a", "x", 1)]).await;
    assert!(single > writer.fence.at);
    let batch = vec![
        put("a", "y", 1),
        put("b", "x", 1),
        control("a", ViewState::Synced),
    ];
    let last = writer.append(batch).await;
    assert_eq!(last, Revision(single.0 + 3), "a batch stands together");
    let head = harness.client().await.head().await.unwrap();
    assert_eq!(head.last, last);
    assert_eq!(head.incarnation, first_head.incarnation);

    let mut readers = [
        Reader::new(&*bus, LogScope::All),
        Reader::new(&*harness.client().await, LogScope::All),
    ];
    for reader in &mut readers {
        reader.caught_up_at(last).await;
        assert_eq!(reader.objects.len(), 3);
        assert_eq!(reader.controls.len(), 1);
    }
}

pub(crate) async fn the_last_record_of_every_key_is_kept(harness: impl Harness) {
    let bus = harness.client().await;
    let writer = Writer::new(bus.clone()).await;
    for version in 1..=20 {
        let states = [ViewState::Syncing, ViewState::Synced];
        let state = states[usize::from(version == 20)].clone();
        let batch = vec![
            put("a", "x", version),
            put("a", "y", version),
            control("a", state),
        ];
        writer.append(batch).await;
    }
    let last = writer.append(vec![put("a", "x", 21)]).await;
    let mut reader = Reader::new(&*bus, LogScope::All);
    let mut records = 0;
    while reader.caught_up.is_none() {
        let before = reader.last;
        reader.step().await;
        records += usize::from(reader.last > before);
    }
    assert_eq!(records, 3, "what was superseded is gone");
    assert_eq!(reader.last, last);
    assert_eq!(reader.version("a", "x"), Some("21"));
    assert_eq!(reader.version("a", "y"), Some("20"));
    assert_eq!(reader.controls[0].state, ViewState::Synced);
}

pub(crate) async fn a_stale_writer_writes_nothing(harness: impl Harness) {
    let old = Writer::new(harness.client().await).await;
    let last = old.append(vec![put("a", "x", 1)]).await;
    let new = Writer::new(harness.client().await).await;
    assert!(new.fence.at > last);
    for batch in [
        vec![put("a", "x", 2)],
        vec![put("a", "x", 2), put("a", "y", 2)],
    ] {
        let refused = old.bus.append(old.fence, batch).await;
        assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    }
    let refused = old.bus.purge(old.fence, &view("a")).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    assert_eq!(new.bus.head().await.unwrap().last, new.fence.at);
    new.append(vec![put("a", "x", 3)]).await;
    let index = new.bus.index().await.unwrap();
    assert_eq!(index.objects[&view("a")].len(), 1);
    assert_eq!(index.objects[&view("a")][&key("x")].1.as_str(), "3");
}

/// A writer that does not know where a batch is takes its lease once more, within the term.
pub(crate) async fn a_batch_under_the_fence_before_a_renewal_is_refused(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let (lease, held) = writer.bus.lease(Group::COORDINATOR).await.unwrap().unwrap();
    assert_eq!(held, writer.fence);
    let renewed = writer.bus.take_lease(held.group, lease.clone(), Some(held));
    let renewed = renewed.await.unwrap();
    assert!(renewed.at > held.at);
    let found = writer.bus.lease(held.group).await.unwrap();
    assert_eq!(found, Some((lease, renewed)));
    for batch in [
        vec![put("a", "x", 1)],
        vec![put("a", "x", 1), put("a", "y", 1)],
    ] {
        let late = writer.bus.append(held, batch.clone()).await;
        assert!(matches!(late, Err(AppendError::Fenced)), "{late:?}");
        writer.bus.append(renewed, batch).await.unwrap();
    }
}

pub(crate) async fn a_batch_is_all_or_nothing(harness: impl Harness) {
    let old = Writer::new(harness.client().await).await;
    let new = Writer::new(harness.client().await).await;
    let batch = (0..BATCH_MESSAGES_MAX).map(|n| put("a", &format!("object-{n}"), 1));
    let refused = old.bus.append(old.fence, batch.clone().collect()).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    assert!(new.bus.index().await.unwrap().objects.is_empty());
    let last = new.append(batch.collect()).await;
    assert_eq!(last.0, new.fence.at.0 + BATCH_MESSAGES_MAX as u64);
    let index = new.bus.index().await.unwrap();
    assert_eq!(index.objects[&view("a")].len(), BATCH_MESSAGES_MAX);
}

pub(crate) async fn the_lease_is_compare_and_swap(harness: impl Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    one.ensure_log().await.unwrap();
    assert!(one.lease(Group::COORDINATOR).await.unwrap().is_none());
    let wrong = Some(Fence {
        group: Group::COORDINATOR,
        at: Revision(7),
    });
    let refused = one.take_lease(Group::COORDINATOR, lease(1), wrong).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");

    let first = one
        .take_lease(Group::COORDINATOR, lease(1), None)
        .await
        .unwrap();
    let refused = two.take_lease(Group::COORDINATOR, lease(1), None).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    assert_eq!(
        two.lease(Group::COORDINATOR).await.unwrap(),
        Some((lease(1), first))
    );

    let second = two
        .take_lease(Group::COORDINATOR, lease(2), Some(first))
        .await
        .unwrap();
    assert!(second.at > first.at);
    let refused = one
        .take_lease(Group::COORDINATOR, lease(2), Some(first))
        .await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    assert_eq!(
        one.lease(Group::COORDINATOR).await.unwrap(),
        Some((lease(2), second))
    );
}

pub(crate) async fn a_fence_of_a_deleted_log_does_not_hold(mut harness: impl Harness) {
    let old = Writer::new(harness.client().await).await;
    harness.delete_log().await;
    let new = Writer::new(harness.client().await).await;
    assert_eq!(old.fence, new.fence, "the same position, in another log");
    let refused = old.bus.append(old.fence, vec![put("a", "x", 1)]).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    new.append(vec![control("a", ViewState::Dropped)]).await;
    let refused = old.bus.purge(old.fence, &view("a")).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
}

pub(crate) async fn a_dropped_view_is_purged(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let batch = vec![put("a", "x", 1), put("a", "y", 1), put("b", "x", 1)];
    writer.append(batch).await;
    writer.append(vec![control("a", ViewState::Dropped)]).await;
    writer.bus.purge(writer.fence, &view("a")).await.unwrap();
    writer.bus.purge(writer.fence, &view("a")).await.unwrap();
    // Wanted again: what is written behind the purge stays.
    let last = writer.append(vec![put("a", "z", 2)]).await;

    let mut reader = Reader::new(&*writer.bus, LogScope::All);
    reader.caught_up_at(last).await;
    assert_eq!(reader.objects.len(), 2);
    assert_eq!(reader.version("a", "z"), Some("2"));
    assert_eq!(reader.version("b", "x"), Some("1"));
    assert_eq!(reader.controls.len(), 1, "the control record stays");
}

pub(crate) async fn a_view_that_is_not_dropped_is_not_purged(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    writer.append(vec![put("a", "x", 1)]).await;
    for batch in [vec![], vec![control("a", ViewState::Synced)]] {
        if !batch.is_empty() {
            writer.append(batch).await;
        }
        let refused = writer.bus.purge(writer.fence, &view("a")).await;
        assert!(
            matches!(refused, Err(AppendError::Bus(BusError::Refused { .. }))),
            "{refused:?}"
        );
    }
    let index = writer.bus.index().await.unwrap();
    assert_eq!(index.objects[&view("a")].len(), 1);
}

pub(crate) async fn the_index_has_live_objects_and_control_records(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let empty = writer.bus.index().await.unwrap();
    assert!(empty.objects.is_empty() && empty.views.is_empty());
    let head = writer.bus.head().await.unwrap();
    assert_eq!(empty.incarnation, head.incarnation);

    let batch = vec![
        put("a", "x", 1),
        put("a", "gone", 1),
        put("b", "x", 5),
        control("a", ViewState::Syncing),
        control("b", ViewState::Synced),
    ];
    writer.append(batch).await;
    writer
        .append(vec![delete("a", "gone", 2), put("a", "x", 3)])
        .await;
    let index = writer.bus.index().await.unwrap();
    assert_eq!(index.views.len(), 2);
    assert_eq!(index.views[&view("a")].state, ViewState::Syncing);
    assert_eq!(index.views[&view("b")].state, ViewState::Synced);
    assert_eq!(index.objects.len(), 2);
    assert_eq!(index.objects[&view("a")].len(), 1, "no tombstones");
    assert_eq!(index.objects[&view("a")][&key("x")].1.as_str(), "3");
    assert_eq!(index.objects[&view("b")][&key("x")].1.as_str(), "5");
}

/// A new writer's control record replaces the view's earlier one, so objects of a term may be left alone.
pub(crate) async fn the_index_has_the_highest_term_of_any_record(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    assert_eq!(writer.bus.index().await.unwrap().term_max, 0);
    let records = [
        control("a", ViewState::Synced),
        put("b", "x", 1),
        delete("b", "x", 2),
    ];
    for (term, record) in (2..).zip(records) {
        writer.append(vec![in_term(term, record)]).await;
        assert_eq!(writer.bus.index().await.unwrap().term_max, term);
    }
}

pub(crate) async fn limits_are_refused_before_anything_is_written(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let many = (0..=BATCH_MESSAGES_MAX).map(|n| put("a", &n.to_string(), 1));
    let half = BATCH_BYTES_MAX / 2;
    let heavy = vec![put_of("a", "x", 1, half), put_of("a", "y", 1, half)];
    for batch in [many.collect(), vec![]] {
        let refused = writer.bus.append(writer.fence, batch).await;
        assert!(
            matches!(refused, Err(AppendError::Bus(BusError::Refused { .. }))),
            "{refused:?}"
        );
    }
    for batch in [heavy, vec![put_raw("a", "x", MESSAGE_BYTES_MAX + 1)]] {
        let refused = writer.bus.append(writer.fence, batch).await;
        assert!(
            matches!(refused, Err(AppendError::Bus(BusError::TooLarge { .. }))),
            "{refused:?}"
        );
    }
    assert_eq!(writer.bus.head().await.unwrap().last, writer.fence.at);
    // The largest object that the watcher lets through.
    let largest = anteroom_model::limits::OBJECT_BYTES_MAX - 1024;
    let last = writer.append(vec![put_of("a", "x", 1, largest)]).await;
    let mut reader = Reader::new(&*writer.bus, LogScope::All);
    reader.caught_up_at(last).await;
    assert_eq!(reader.objects.len(), 1);
}

pub(crate) async fn without_a_log_everything_says_so(harness: impl Harness) {
    let bus = harness.client().await;
    assert!(matches!(bus.head().await, Err(BusError::NoLog)));
    assert!(matches!(
        bus.lease(Group::COORDINATOR).await,
        Err(BusError::NoLog)
    ));
    assert!(matches!(bus.index().await, Err(BusError::NoLog)));
    let fence = Fence {
        group: Group::COORDINATOR,
        at: Revision(1),
    };
    for refused in [
        bus.take_lease(Group::COORDINATOR, lease(1), None)
            .await
            .map(drop),
        bus.append(fence, vec![put("a", "x", 1)]).await.map(drop),
        bus.purge(fence, &view("a")).await,
    ] {
        assert!(
            matches!(refused, Err(AppendError::Bus(BusError::NoLog))),
            "{refused:?}"
        );
    }
}

//! Groups of views: each has a writer of its own, and all of them write one log.

use anteroom_bus::{AppendError, Lease, LogScope};
use anteroom_model::{Group, Revision};

use crate::{
    harness::Harness,
    support::{Reader, Writer, put, view, within},
};

const ONE: Group = Group(1);
const TWO: Group = Group(2);

fn lease(holder: &str) -> Lease {
    Lease {
        term: 1,
        holder: holder.into(),
    }
}

pub(crate) async fn leases_of_groups_are_apart(harness: impl Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    one.ensure_log().await.unwrap();
    let first = one.take_lease(ONE, lease("one"), None).await.unwrap();
    assert!(two.lease(TWO).await.unwrap().is_none(), "nobody took it");
    let second = two.take_lease(TWO, lease("two"), None).await.unwrap();
    assert_eq!((first.group, second.group), (ONE, TWO));
    for (group, holder, fence) in [(ONE, "one", first), (TWO, "two", second)] {
        let held = one.lease(group).await.unwrap();
        assert_eq!(held, Some((lease(holder), fence)));
    }
    // A position of another group's lease proves nothing.
    let stolen = two.take_lease(ONE, lease("two"), Some(second)).await;
    assert!(matches!(stolen, Err(AppendError::Fenced)), "{stolen:?}");
    assert_eq!(one.lease(ONE).await.unwrap(), Some((lease("one"), first)));
}

/// A writer that lost the lease of one group goes on in its remaining groups.
pub(crate) async fn a_fence_holds_in_its_own_group_alone(harness: impl Harness) {
    let bus = harness.client().await;
    let (one, two) = (
        Writer::of(bus.clone(), ONE).await,
        Writer::of(bus.clone(), TWO).await,
    );
    let successor = Writer::of(harness.client().await, ONE).await;
    for batch in [
        vec![put("a", "x", 1)],
        vec![put("a", "x", 1), put("a", "y", 1)],
    ] {
        let refused = bus.append(one.fence, batch).await;
        assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    }
    let refused = bus.purge(one.fence, &view("a")).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");

    two.append(vec![put("b", "x", 1), put("b", "y", 1)]).await;
    let last = successor.append(vec![put("a", "x", 2)]).await;
    let mut reader = Reader::new(&*bus, LogScope::All);
    reader.caught_up_at(last).await;
    assert_eq!(reader.objects.len(), 3);
    assert_eq!(reader.version("a", "x"), Some("2"));
}

/// Batches of two writers, single records and long ones, stand whole in one order.
pub(crate) async fn writers_of_two_groups_share_one_total_order(harness: impl Harness) {
    const ROUNDS: u64 = 30;
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    let mut tasks = Vec::new();
    for (group, of) in [(ONE, "a"), (TWO, "b")] {
        let writer = Writer::of(harness.client().await, group).await;
        tasks.push(tokio::spawn(async move {
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for round in 1..=ROUNDS {
                let records = 1 + round % 3;
                let batch = (0..records).map(|n| put(of, &format!("{round}-{n}"), round));
                let last = writer.append(batch.collect()).await.0;
                taken.push((last + 1 - records, last));
            }
            taken
        }));
    }
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(within(task).await.unwrap());
    }
    taken.sort_unstable();
    for pair in taken.windows(2) {
        assert!(pair[0].1 < pair[1].0, "two batches share a position");
    }
    let last = taken.last().unwrap().1;
    // The reader checks that positions grow.
    reader.caught_up_at(Revision(last)).await;
    let written: u64 = taken.iter().map(|(first, last)| last - first + 1).sum();
    assert_eq!(reader.objects.len() as u64, written);
}

pub(crate) async fn one_client_writes_for_all_groups_at_once(harness: impl Harness) {
    let bus = harness.client().await;
    let mut writers = Vec::new();
    for group in Group::all() {
        writers.push(Writer::of(bus.clone(), group).await);
    }
    let writes = writers.iter().map(|writer| async move {
        let of = format!("g{}", writer.fence.group);
        for round in 1..=10 {
            let batch = (0..20).map(|n| put(&of, &format!("x{n}"), round)).collect();
            writer.append(batch).await;
        }
    });
    within(futures::future::join_all(writes)).await;
    let index = bus.index().await.unwrap();
    assert_eq!(index.objects.len(), Group::all().count());
    for objects in index.objects.values() {
        assert_eq!(objects.len(), 20);
        assert!(
            objects
                .values()
                .all(|(_, version)| version.as_str() == "10")
        );
    }
}

/// A successor is not kept from its own group by how busy the others are.
pub(crate) async fn the_index_is_read_while_another_group_is_written(harness: impl Harness) {
    const OBJECTS: usize = 300;
    let one = Writer::of(harness.client().await, ONE).await;
    let two = Writer::of(harness.client().await, TWO).await;
    for batch in 0..OBJECTS / 100 {
        let names = (0..100).map(|n| format!("x{}", batch * 100 + n));
        one.append(names.map(|name| put("a", &name, 1)).collect())
            .await;
    }
    two.append((0..50).map(|n| put("b", &format!("y{n}"), 1)).collect())
        .await;
    let busy = tokio::spawn(async move {
        for version in 2_u64.. {
            tokio::task::yield_now().await;
            two.append(vec![put("b", &format!("y{}", version % 50), version)])
                .await;
        }
    });
    let successor = Writer::of(harness.client().await, ONE).await;
    for _ in 0..3 {
        // It ends in a log that grows.
        let index = within(successor.bus.index()).await.unwrap();
        assert_eq!(index.objects[&view("a")].len(), OBJECTS);
    }
    assert!(
        !busy.is_finished(),
        "the other group is written all the while"
    );
    busy.abort();
}

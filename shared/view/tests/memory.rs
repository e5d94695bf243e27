//! The memory of a view, by the allocator's own count. The only test of its process.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::time::Duration;

use anteroom_model::{
    Collection, Delta, Digest, Epoch, GroupVersionResource, ObjectKey, Op, ResourceVersion,
    Revision, Source, SourceInfo, ViewRecord, ViewState,
};
use anteroom_view::View;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const OBJECTS: u64 = 50_000;

/// The most that a re-list may take beside the objects that are served, as a share of them.
const STAGED_SHARE_MAX: f64 = 0.5;

/// The largest error of the accounts.
const ERROR_SHARE_MAX: f64 = 0.05;

fn allocated() -> f64 {
    tikv_jemalloc_ctl::epoch::advance().unwrap();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap() as f64
}

fn info() -> SourceInfo {
    let gvr = GroupVersionResource::new("", "v1", "pods");
    SourceInfo {
        source: Source::Collection(Collection::all(gvr)),
        kind: "Pod".into(),
        namespaced: true,
    }
}

/// Writes every object, in an order of its own.
fn write(view: &mut View, first: u64, epoch: Epoch) {
    for n in 0..OBJECTS {
        let of = n.wrapping_mul(7_919) % OBJECTS;
        let body_bytes = 300 + (of % 5) as usize * 60;
        let delta = Delta {
            key: ObjectKey::new(format!("ns-{}", of % 40), format!("pod-{of}")),
            epoch,
            version: ResourceVersion::new((of + 1).to_string()),
            op: Op::Put(vec![0xC0; body_bytes]),
        };
        view.apply(Revision(first + n), &delta);
    }
    let record = ViewRecord {
        view: info().source.view_id(),
        info: info(),
        epoch,
        state: ViewState::Synced,
        version: ResourceVersion::new("1"),
        objects: OBJECTS,
        digest: Digest::EMPTY,
        origin: Epoch::default(),
        age_max_ms: None,
    };
    view.control(Revision(first + OBJECTS), record);
}

fn check_accounts(view: &View, before: f64, when: &str) -> f64 {
    let (taken, accounted) = (allocated() - before, view.bytes().total() as f64);
    let error = (accounted - taken).abs() / taken;
    assert!(
        error < ERROR_SHARE_MAX,
        "{when}: {accounted} accounted, {taken} taken"
    );
    taken
}

/// The accounts are what the allocator says, and a whole re-list beside what is
/// served stays within half of it.
#[test]
fn a_views_memory_matches_its_accounts_and_a_relist_adds_half_at_most() {
    let before = allocated();
    let mut view = View::reading(info().source.view_id());
    write(&mut view, 1, Epoch::new(1, 0));
    view.caught_up();
    let settled = check_accounts(&view, before, "settled");

    // Every body once more, and nothing has changed.
    view.restart();
    write(&mut view, 1, Epoch::new(2, 0));
    let peak = check_accounts(&view, before, "read again");
    assert!(
        peak < settled * (1.0 + STAGED_SHARE_MAX),
        "{peak} {settled}"
    );
    view.caught_up();
    check_accounts(&view, before, "settled again");

    // A slow reader holds the objects of its snapshot, and no copy for each update.
    let snapshot = view.snapshot(0, Duration::MAX.as_secs()).unwrap();
    let held = allocated();
    for n in 0..200 {
        let delta = Delta {
            key: ObjectKey::new("ns-1", "pod-1"),
            epoch: Epoch::new(2, 0),
            version: ResourceVersion::new((OBJECTS + n).to_string()),
            op: Op::Put(vec![0xC0; 400]),
        };
        view.apply(Revision(2 * OBJECTS + n), &delta);
    }
    let beside = allocated() - held;
    assert!(beside < 0.01 * settled, "{beside} beside {settled}");
    assert_eq!(snapshot.read().len() as u64, OBJECTS);
    drop(snapshot);
    view.evict();
    let left = allocated() - before;
    // The allocator keeps some of each size at hand.
    assert!(left < 0.03 * settled, "{left} left of {settled}");
}

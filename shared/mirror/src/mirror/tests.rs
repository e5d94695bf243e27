//! A mirror on the in-process bus, with the faults of a real one.

use anteroom_bus::local::{Chances, LocalBus};
use anteroom_model::{ObjectKey, ResourceVersion, ViewState, system};
use anteroom_view::LifeState;
use serde_json::{Value, json};

use super::*;
use crate::{
    ServedFrom,
    testing::{ViewWriter, collection},
};

struct Harness {
    bus: LocalBus,
    writer: ViewWriter,
    view: ViewId,
    mirror: Mirror,
    metrics: MirrorMetrics,
    _shutdown: DropGuard,
}

impl Harness {
    async fn with_objects(objects: usize) -> Self {
        let bus = LocalBus::new();
        let mut writer = ViewWriter::with_system_views(Arc::new(bus.join())).await;
        let view = writer.open(collection("ingresses", "Ingress"));
        let object = |n: usize| (ObjectKey::new("ns", format!("i{n}")), json!({"n": n}));
        writer
            .put_all(&view, (0..objects).map(object).collect())
            .await;
        writer.synced(&view).await;
        let shutdown = CancellationToken::new();
        let metrics = MirrorMetrics::default();
        let mirror = Mirror::start(
            Arc::new(bus.join()),
            LogScope::All,
            MirrorConfig::default(),
            metrics.clone(),
            &shutdown,
        );
        let harness = Self {
            bus,
            writer,
            view,
            mirror,
            metrics,
            _shutdown: shutdown.drop_guard(),
        };
        harness.until_ready().await;
        harness
    }

    async fn until_ready(&self) {
        let mut readiness = self.mirror.readiness();
        tokio::select! {
            ready = readiness.wait_for(|now| *now == MirrorReadiness::Ready) => {
                ready.unwrap();
            }
            () = self.beating() => {}
        }
    }

    async fn beating(&self) {
        loop {
            self.writer.beat().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn view(&self) -> ViewHandle {
        self.mirror.view(&self.view).unwrap()
    }

    fn items(&self) -> Option<Vec<Value>> {
        let items = self.view().read(None, |read, _| {
            let bodies = read.objects().map(|object| object.body());
            bodies
                .map(|body| anteroom_wire::body::to_json(body).unwrap())
                .collect()
        });
        items.ok()
    }

    /// Waits until the mirror answers with all that was written.
    async fn until_equal(&self) {
        let expected = self.writer.model(&self.view).items();
        let equal = async {
            while self.items().as_ref() != Some(&expected) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = equal => {}
            () = self.beating() => {}
        }
    }

    async fn write(&mut self, n: usize) {
        let view = self.view.clone();
        self.writer
            .put(&view, "ns", &format!("i{n}"), json!({"n": n, "new": true}))
            .await;
        self.writer.synced(&view).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_change_does_not_wake_those_who_wait_for_a_view_to_serve() {
    let mut harness = Harness::with_objects(3).await;
    let (mut serving, mut status) = (harness.view().serving(), harness.view().status());
    assert!(*serving.borrow_and_update());
    status.borrow_and_update();
    let view = harness.view.clone();
    let at = harness.writer.put(&view, "ns", "i1", json!({"n": 9})).await;
    status
        .wait_for(|status| status.revision >= at)
        .await
        .unwrap();
    assert!(!serving.has_changed().unwrap());
    harness.mirror.evict(&view);
    serving.wait_for(|serves| !serves).await.unwrap();
    assert_eq!(harness.view().status().borrow().state, LifeState::Evicted);
}

#[tokio::test(start_paused = true)]
async fn records_missed_in_a_gap_are_read_again() {
    let mut harness = Harness::with_objects(20).await;
    for n in 15..25 {
        harness.bus.faults().gap();
        harness.write(n).await;
        harness.until_equal().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_stops_leaves_last_good_data_that_says_its_age() {
    let mut harness = Harness::with_objects(3).await;
    let faults = harness.bus.faults();
    faults.stop();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        harness.items().map(|items| items.len()),
        Some(3),
        "it is young enough"
    );
    tokio::time::sleep(Duration::from_millis(MirrorConfig::default().age_max_ms)).await;
    assert_eq!(harness.view().status().borrow().state, LifeState::Stale);
    assert_eq!(harness.items(), None, "nobody who names no age gets it");
    let last_good = harness
        .view()
        .read(Some(u64::MAX), |read, at| (read.len(), at.age_ms));
    let (objects, age_ms) = last_good.unwrap();
    assert_eq!(objects, 3);
    assert!(age_ms >= 70_000, "{age_ms}");
    faults.start();
    harness.write(3).await;
    harness.until_equal().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_writer_is_told_while_its_views_still_answer() {
    let harness = Harness::with_objects(3).await;
    let mut readiness = harness.mirror.readiness();
    let is_told = |now: &MirrorReadiness| matches!(now, MirrorReadiness::ReadyBut(note) if note.contains("watcher of group 0, "));
    readiness.wait_for(is_told).await.unwrap();
    assert_eq!(harness.items().map(|items| items.len()), Some(3));
    harness.until_ready().await;
}

#[tokio::test(start_paused = true)]
async fn a_log_made_anew_or_cut_short_is_read_anew() {
    let mut harness = Harness::with_objects(5).await;
    let before = harness.bus.head().await.unwrap().last;
    harness.write(5).await;
    harness.until_equal().await;
    harness.bus.faults().truncate_log(before);
    // The writer notices the loss, and writes its objects again.
    harness.write(5).await;
    harness.until_equal().await;

    harness.bus.faults().remake_log();
    harness.writer = ViewWriter::with_system_views(Arc::new(harness.bus.join())).await;
    harness.writer.open(collection("ingresses", "Ingress"));
    harness.write(1).await;
    harness.until_equal().await;
}

/// Whoever has read of the new log elsewhere is not answered from the old one.
#[tokio::test(start_paused = true)]
async fn data_of_the_log_before_meets_no_demand_of_the_current_log() {
    let mut harness = Harness::with_objects(5).await;
    let (view, id) = (harness.view(), harness.view.clone());
    harness.bus.faults().remake_log();
    harness.writer = ViewWriter::with_system_views(Arc::new(harness.bus.join())).await;
    harness.writer.open(collection("ingresses", "Ingress"));
    harness.writer.put(&id, "ns", "only", json!({})).await;
    let log = harness.bus.head().await.unwrap().incarnation;
    let read = async {
        while view.serves_from(&log) == ServedFrom::Another {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = read => {}
        () = harness.beating() => {}
    }
    assert_eq!(view.serves_from(&log), ServedFrom::ThisSoon);
    let (first, patience) = (Revision(1), Duration::from_secs(1));
    view.wait_for(first, patience).await.unwrap();
    let refused = view.wait_for_log(&log, first, patience).await.unwrap_err();
    assert!(
        matches!(refused, anteroom_model::FactError::RevisionNotReached { want, .. } if want == first)
    );
    let waited = view.wait_for_log(&log, first, patience);
    let (waited, _) = tokio::join!(waited, harness.writer.synced(&id));
    waited.unwrap();
    assert_eq!(view.serves_from(&log), ServedFrom::This);
}

#[tokio::test(start_paused = true)]
async fn a_slow_bus_that_loses_beats_only_takes_longer() {
    let mut harness = Harness::with_objects(10).await;
    harness.bus.faults().set_chances(Chances {
        beat_lost: 0.5,
        delay_max: Duration::from_millis(40),
        ..Chances::default()
    });
    for n in 0..30 {
        harness.write(n).await;
    }
    harness.until_equal().await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_digest_is_counted_and_its_view_read_again() {
    let mut harness = Harness::with_objects(3).await;
    let mut record = harness
        .writer
        .model(&harness.view)
        .control(harness.writer.epoch(), ViewState::Synced);
    record
        .digest
        .add(&ObjectKey::new("ns", "more"), &ResourceVersion::new("1"));
    harness.writer.control_record(record).await;
    let mut status = harness.view().status();
    status
        .wait_for(|status| status.state == LifeState::Unsynced)
        .await
        .unwrap();
    let mismatches = harness.metrics.digest_mismatches_of(&harness.view);
    assert!(mismatches >= 1);
    assert_eq!(harness.metrics.digest_mismatches(), mismatches);
    let view = harness.view.clone();
    harness.writer.synced(&view).await;
    harness.until_equal().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_read_holds_up_neither_the_log_nor_other_reads() {
    let mut harness = Harness::with_objects(3).await;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (end, may_end) = std::sync::mpsc::channel::<()>();
    let (view, runtime) = (harness.view(), tokio::runtime::Handle::current());
    let long = std::thread::spawn(move || {
        let _runtime = runtime.enter();
        // The clock is turned on while the thread starts, so any age will do.
        view.read(Some(u64::MAX), |read, _| {
            begun.send(()).unwrap();
            may_end.recv().unwrap();
            read.len()
        })
    });
    has_begun.await.unwrap();
    harness.write(3).await;
    harness.until_equal().await;
    end.send(()).unwrap();
    let seen = long.join().unwrap();
    assert_eq!(seen, Ok(3), "it saw what there was when it began");
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_a_revision_and_no_longer_than_it_says() {
    let mut harness = Harness::with_objects(1).await;
    let (view, last) = (harness.view(), *harness.mirror.complete_to().borrow());
    let patience = Duration::from_secs(5);
    view.wait_for(last, patience).await.unwrap();
    let next = Revision(last.0 + 1);
    let refused = view.wait_for(next, patience).await.unwrap_err();
    assert!(
        matches!(refused, anteroom_model::FactError::RevisionNotReached { want, .. } if want == next)
    );
    let (waited, ()) = tokio::join!(view.wait_for(next, patience), harness.write(1));
    waited.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_mirror_of_some_views_waits_for_those() {
    let bus = LocalBus::new();
    let shutdown = CancellationToken::new();
    let mirror = Mirror::start(
        Arc::new(bus.join()),
        LogScope::Views(vec![system::entries(), system::policies()]),
        MirrorConfig::default(),
        MirrorMetrics::default(),
        &shutdown,
    );
    bus.ensure_log().await.unwrap();
    let mut readiness = mirror.readiness();
    let waits = |now: &MirrorReadiness| matches!(now, MirrorReadiness::Waiting(why) if why.contains("entries, which"));
    readiness.wait_for(waits).await.unwrap();
    let writer = ViewWriter::with_system_views(Arc::new(bus.join())).await;
    let beating = async {
        loop {
            writer.beat().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        ready = readiness.wait_for(|now| *now == MirrorReadiness::Ready) => {
            ready.unwrap();
        }
        () = beating => {}
    }
    assert!(
        mirror.view(&system::kinds()).is_none(),
        "it is out of scope"
    );
    shutdown.cancel();
    mirror.ended().await;
}

impl Harness {
    async fn until_evicted(&self) {
        let mut status = self.view().status();
        let evicted = status.wait_for(|status| status.state == LifeState::Evicted);
        evicted.await.unwrap();
    }
}

/// A view that was freed is whole again, whatever happens to the bus meanwhile.
#[tokio::test(start_paused = true)]
async fn a_view_evicted_and_loaded_beside_updates_ends_equal_to_the_log() {
    let mut harness = Harness::with_objects(20).await;
    let faults = harness.bus.faults();
    faults.set_chances(Chances {
        beat_lost: 0.2,
        delay_max: Duration::from_millis(5),
        ..Chances::default()
    });
    for n in 0..24 {
        harness.mirror.evict(&harness.view);
        harness.until_evicted().await;
        let refused = harness.view().read(Some(u64::MAX), |_, _| ()).unwrap_err();
        assert!(matches!(refused, anteroom_model::FactError::Evicted { .. }));
        assert_eq!(harness.view().bytes(), 0);
        harness.write(n).await;
        harness.mirror.load(&harness.view);
        match n % 4 {
            1 => faults.gap(),
            2 => {
                faults.stop();
                tokio::time::sleep(Duration::from_millis(300)).await;
                faults.start();
            }
            _ => {}
        }
        harness.write(n + 24).await;
        harness.until_equal().await;
    }
}

/// A view that another replica held is loaded once it is to be held here.
#[tokio::test(start_paused = true)]
async fn a_view_that_is_given_away_is_gone_and_one_that_is_taken_over_comes() {
    let mut harness = Harness::with_objects(5).await;
    let (given_away, handle) = (harness.view.clone(), harness.view());
    harness
        .mirror
        .hold(crate::HeldViewFilter::new(move |view| *view != given_away));
    let mut views = harness.mirror.views();
    let gone = views.wait_for(|views| !views.contains_key(&harness.view));
    gone.await.unwrap();
    assert!(handle.read(Some(u64::MAX), |_, _| ()).is_err());
    harness.write(7).await;
    assert!(harness.mirror.view(&harness.view).is_none());
    harness.mirror.hold(crate::HeldViewFilter::all());
    let come = views.wait_for(|views| views.contains_key(&harness.view));
    come.await.unwrap();
    harness.until_equal().await;
}

/// The views that are followed already are served while the log is read again.
#[tokio::test(start_paused = true)]
async fn views_that_are_followed_from_now_on_come_and_others_go() {
    let bus = LocalBus::new();
    let mut writer = ViewWriter::with_system_views(Arc::new(bus.join())).await;
    let views = ["ingresses", "services"].map(|plural| writer.open(collection(plural, "Thing")));
    for view in &views {
        writer.put(view, "ns", "a", json!({})).await;
        writer.synced(view).await;
    }
    let shutdown = CancellationToken::new();
    let mirror = Mirror::start(
        Arc::new(bus.join()),
        LogScope::Views(views[..1].to_vec()),
        MirrorConfig::default(),
        MirrorMetrics::default(),
        &shutdown,
    );
    let served = async |view: &ViewId| {
        let mut seen = mirror.views();
        seen.wait_for(|seen| seen.contains_key(view)).await.unwrap();
        let handle = mirror.view(view).unwrap();
        let mut serving = handle.serving();
        serving.wait_for(|serves| *serves).await.unwrap();
        handle
    };
    let story = async {
        let first = served(&views[0]).await;
        assert!(mirror.view(&views[1]).is_none());
        let mut serving = first.serving();
        serving.mark_unchanged();
        mirror.follow(views.to_vec());
        served(&views[1]).await;
        assert!(!serving.has_changed().unwrap());
        assert!(mirror.view(&views[0]).unwrap().is(&first));
        mirror.follow(views[1..].to_vec());
        let mut seen = mirror.views();
        seen.wait_for(|seen| !seen.contains_key(&views[0]))
            .await
            .unwrap();
        assert!(first.read(Some(u64::MAX), |_, _| ()).is_err());
    };
    let beating = async {
        loop {
            writer.beat().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = story => {}
        () = beating => {}
    }
}

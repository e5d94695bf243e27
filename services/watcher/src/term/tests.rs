use std::collections::HashMap;

use anteroom_bus::{BusExt as _, Fence, local::LocalBus};
use anteroom_model::{
    Collection, GroupVersionResource, Incarnation, ResourceVersion, Revision, Source, SourceInfo,
    limits::BEAT_VIEWS_MAX,
};
use anteroom_runtime::Service;

use super::*;
use crate::log_writer::{lead::TermFence, metrics::BatchMetrics};

/// Between two beats on time: a reader that waited for the next of them would see the clock move by
/// more than what a beat gathers. The clock stands still but for what is slept.
#[tokio::test(start_paused = true)]
async fn a_view_that_was_just_read_is_in_a_beat_at_once() {
    let bus = Arc::new(LocalBus::new());
    let source = Source::Collection(Collection::all(GroupVersionResource::new("", "v1", "pods")));
    let leadership = Leadership::of_new_log(&*bus, Group::of(&source)).await;
    let publisher = Publisher::new(1);
    let (writer, to, led) = (publisher.clone(), Arc::clone(&bus), leadership.clone());
    let _write = tokio::spawn(async move {
        let metrics = BatchMetrics::register(&Service::new("test").metrics);
        let members = Members::new("w");
        writer.run(&*to, &led, &members, &metrics).await
    });
    let mut beats = bus.signals::<Beat>().await.unwrap();
    let to: Arc<dyn Bus> = bus.clone();
    let _beat = tokio::spawn(beat(
        to,
        publisher.clone(),
        leadership,
        LogMetrics::register(&Service::new("test").metrics),
    ));
    // The regular beats; views that become ready together get one beat more.
    assert!(beats.next().await.unwrap().views.is_empty());
    let begun = tokio::time::Instant::now();
    for resource in ["pods", "services"] {
        let source = Source::Collection(Collection::all(GroupVersionResource::new(
            "", "v1", resource,
        )));
        let info = SourceInfo {
            source,
            kind: resource.into(),
            namespaced: true,
        };
        publisher.with(|queue| {
            let handle = queue.open(info, HashMap::new());
            queue.begin_list(&handle);
            queue.listed(&handle, &ResourceVersion::new("1"), Instant::now());
        });
    }
    let beat = beats.next().await.unwrap();
    assert_eq!(beat.views.len(), 2);
    assert!(beat.views.iter().all(|view| view.news_age_ms != u64::MAX));
    assert!(begun.elapsed() < Duration::from_millis(BEAT_INTERVAL_MS));
}

fn leading(incarnation: Incarnation) -> Leadership {
    let group = Group(1);
    Leadership {
        group,
        term: 1,
        fence: TermFence::new(Fence {
            group,
            at: Revision(1),
        }),
        incarnation,
        holder: "w".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn many_views_are_told_of_in_pages() {
    let bus = Arc::new(LocalBus::new());
    let head = bus.ensure_log().await.unwrap();
    let publisher = Publisher::new(1);
    for n in 0..=BEAT_VIEWS_MAX {
        let gvr = GroupVersionResource::new("", "v1", format!("kind{n}"));
        let info = SourceInfo {
            source: Source::Collection(Collection::all(gvr)),
            kind: String::new(),
            namespaced: true,
        };
        publisher.with(|queue| queue.open(info, HashMap::new()));
    }
    let mut beats = bus.signals::<Beat>().await.unwrap();
    let leadership = leading(head.incarnation);
    let metrics = LogMetrics::register(&Service::new("test").metrics);
    let _beat = tokio::spawn(beat(bus.clone(), publisher, leadership, metrics));
    let mut views = std::collections::HashSet::new();
    for page in 0..2 {
        let heard = beats.next().await.unwrap();
        assert_eq!((heard.page, heard.term), (page, 1));
        views.extend(heard.views.into_iter().map(|view| view.view));
    }
    assert_eq!(views.len(), BEAT_VIEWS_MAX + 1);
}

#[tokio::test(start_paused = true)]
async fn a_beat_that_cannot_be_sent_is_counted() {
    let bus = Arc::new(LocalBus::new());
    let head = bus.ensure_log().await.unwrap();
    bus.faults().cut();
    let service = Service::new("watcher");
    let metrics = LogMetrics::register(&service.metrics);
    let (leadership, publisher) = (leading(head.incarnation), Publisher::new(1));
    let _beat = tokio::spawn(beat(bus.clone(), publisher, leadership, metrics));
    tokio::time::sleep(Duration::from_millis(3 * BEAT_INTERVAL_MS + 10)).await;
    let text = service.metrics.encode();
    assert!(
        text.contains("anteroom_writer_beats_unsent_total 4"),
        "{text}"
    );
}

#[test]
fn the_count_of_views_to_be_read_leaves_system_views_out() {
    let publisher = Publisher::new(1);
    let pods = Source::Collection(Collection::all(GroupVersionResource::new("", "v1", "pods")));
    for source in [pods.clone(), anteroom_model::system::policies_source()] {
        let info = SourceInfo {
            source,
            kind: String::new(),
            namespaced: true,
        };
        publisher.with(|queue| queue.open(info, HashMap::new()));
    }
    let mut stats = publisher.read(|queue| queue.stats(Instant::now()));
    let waits = "1 of 1 views to be read, the first is pods.v1";
    assert_eq!(views_to_be_read(&stats).as_deref(), Some(waits));
    for stats in &mut stats {
        if stats.view == pods.view_id() {
            stats.reported_state = Some(ViewState::Synced);
        }
    }
    assert_eq!(views_to_be_read(&stats), None);
}

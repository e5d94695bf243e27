use std::collections::HashMap;

use anteroom_bus::{Lease, local::LocalBus};
use anteroom_model::{Collection, GroupVersionResource, ResourceVersion, Source, SourceInfo};

use super::*;
use crate::log_writer::metrics::BatchMetrics;

/// Between two beats on time: a reader that waited for the next of them would see the clock move by
/// more than what a beat gathers. The clock stands still but for what is slept.
#[tokio::test(start_paused = true)]
async fn a_view_that_was_just_read_is_in_a_beat_at_once() {
    let bus = Arc::new(LocalBus::new());
    let head = bus.ensure_log().await.unwrap();
    let source = Source::Collection(Collection::all(GroupVersionResource::new("", "v1", "pods")));
    let group = Group::of(&source);
    let lease = Lease {
        term: 1,
        holder: "w".into(),
    };
    let fence = bus.take_lease(group, lease, None).await.unwrap();
    let leadership = Leadership {
        group,
        term: 1,
        fence,
        incarnation: head.incarnation.clone(),
        holder: "w".into(),
    };
    let publisher = Publisher::new(1);
    let (writer, to) = (publisher.clone(), Arc::clone(&bus));
    let _write = tokio::spawn(async move {
        let metrics = BatchMetrics::default();
        writer.run(&*to, fence, &head.incarnation, &metrics).await
    });
    let mut beats = bus.beats().await.unwrap();
    let to: Arc<dyn Bus> = bus.clone();
    let _beat = tokio::spawn(beat(to, publisher.clone(), leadership));
    // Those that are on time; of several views that are read together there is one more.
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
            let mut lease = queue.open(info, HashMap::new());
            queue.begin_list(&mut lease, false);
            queue.listed(&lease, &ResourceVersion::new("1"), Instant::now());
        });
    }
    let beat = beats.next().await.unwrap();
    assert_eq!(beat.views.len(), 2);
    assert!(beat.views.iter().all(|view| view.news_age_ms != u64::MAX));
    assert!(begun.elapsed() < Duration::from_millis(BEAT_INTERVAL_MS));
}

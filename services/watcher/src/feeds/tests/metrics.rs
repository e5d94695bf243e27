//! The life of metrics whose labels end before the process does.

use super::*;

/// Waits until as many lines of the metrics as wanted begin with `start`.
async fn until_lines(world: &World, start: &str, count: usize) {
    for _ in 0..500 {
        let text = world.service.metrics.encode();
        if text.lines().filter(|line| line.starts_with(start)).count() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let text = world.service.metrics.encode();
    panic!("waited in vain for {count} of {start}: {text}");
}

/// The watch of one object is named otherwise than the view that the object is in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_a_referenced_objects_watch_end_with_the_reference() {
    let world = World::start(FeedOptions::default()).await;
    world.want(Source::Objects { gvr: gvr() });
    let of_objects = "anteroom_watch_lists_total{view=\"configmaps.v1~";
    let of_type = "anteroom_watch_lists_total{view=\"configmaps.v1\"}";
    world.refer("a");
    until_lines(&world, of_objects, 1).await;
    world.refer("b"); // One watch of the whole type costs less than two.
    until_lines(&world, of_type, 1).await;
    until_lines(&world, of_objects, 0).await;
    world.unrefer("a");
    world.unrefer("b");
    until_lines(&world, of_type, 0).await;
}

/// Another watcher may lead the group by then, and report the same watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_a_feeder_end_with_its_term() {
    let world = World::start(FeedOptions::default()).await;
    world.want(Source::Collection(Collection::all(gvr())));
    let planned = "anteroom_watches_planned{resource=\"configmaps.v1\"}";
    until_lines(&world, planned, 1).await;
    until_lines(&world, "anteroom_watch_lists_total{", 1).await;
    world.tasks.iter().for_each(JoinHandle::abort);
    until_lines(&world, planned, 0).await;
    until_lines(&world, "anteroom_watch_lists_total{", 0).await;
}

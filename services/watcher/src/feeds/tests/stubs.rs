//! Objects of which the log has stubs, for want of room in the parts of their namespaces.

use super::*;

/// Refers to an object as policies of its namespace do.
fn refer_in_quota(world: &World, name: &str) {
    let reference = ObjectReference {
        gvr: gvr(),
        object: ObjectKey::new("default", name),
        in_quota: true,
    };
    world.order(move |feeder| feeder.refer(&reference));
}

/// Otherwise one tenant could have the watches of a type list again and again, and the views of that type would lag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_object_for_which_there_is_room_again_is_read_alone() {
    let world = World::start(FeedOptions {
        namespace_log_bytes_max: Some(8 * 1024),
        ..FeedOptions::default()
    })
    .await;
    let large = json!({"data": {"text": "x".repeat(5 * 1024)}});
    for name in ["a", "b"] {
        world.put("default", name, "x", &large);
    }
    let all = world.want(Source::Collection(Collection::all(gvr())));
    world
        .until("all", |index| holds(index, &all, world.truth(|_, _| true)))
        .await;
    world.want(Source::Objects { gvr: gvr() });
    let is_found = |name: &'static str| {
        move |index: &anteroom_bus::LogIndex| {
            state_of(index, name).is_some_and(|state| state.parse::<u64>().is_ok())
        }
    };
    refer_in_quota(&world, "a");
    world.until("one object", is_found("a")).await;
    refer_in_quota(&world, "b");
    let is_stub = |index: &anteroom_bus::LogIndex| {
        state_of(index, "b").is_some_and(|state| state.ends_with("~stub"))
    };
    world.until("a stub of the other", is_stub).await;
    let before = world.sim.stats().count("list", CONFIGMAPS);
    world.sim.delete(CONFIGMAPS, "default", "a").unwrap();
    world.until("the other", is_found("b")).await;
    let lists = world.sim.stats().count("list", CONFIGMAPS) - before;
    assert_eq!(lists, 1, "of that object: {:#?}", world.sim.stats());
}

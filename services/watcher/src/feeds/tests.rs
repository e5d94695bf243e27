mod metrics;
mod stubs;

use std::collections::BTreeMap;

use anteroom_bus::{Bus as _, local::LocalBus};
use anteroom_model::{Collection, Digest, Group, ResourceVersion, ViewState};
use anteroom_runtime::Service;
use anteroom_simapi::{Fault, SimApi, SimConfig};
use kube::{Client, Config};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};

use super::*;
use crate::log_writer::{lead::Leadership, members::Members, metrics::BatchMetrics};

const CONFIGMAPS: &str = "configmaps";

/// Objects that are referenced, a hundred of them there.
const REFERENCES: usize = 20_000;

type Order = Box<dyn FnOnce(&mut Feeder) + Send>;

/// A feeder between the simulated API server and an in-process log.
struct World {
    sim: SimApi,
    bus: Arc<LocalBus>,
    orders: mpsc::UnboundedSender<Order>,
    service: Service,
    tasks: Vec<JoinHandle<()>>,
}

fn gvr() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", CONFIGMAPS)
}

fn wanted(source: Source) -> (ViewId, DesiredView) {
    let info = SourceInfo {
        source,
        kind: "ConfigMap".into(),
        namespaced: true,
    };
    let options = ViewOptions::default();
    (info.source.view_id(), DesiredView { info, options })
}

impl World {
    async fn start(options: FeedOptions) -> Self {
        let config = SimConfig {
            bookmark_interval: Duration::from_millis(200),
            ..SimConfig::default()
        };
        let sim = SimApi::start(config).await.unwrap();
        let bus = Arc::new(LocalBus::new());
        let group = Group::of(&Source::Objects { gvr: gvr() });
        let leadership = Leadership::of_new_log(&*bus, group).await;
        let publisher = Publisher::new(1);
        let service = Service::new("test");
        let batches = BatchMetrics::register(&service.metrics);
        let mut config = Config::new(sim.url().parse().unwrap());
        config.default_retry = false;
        let tools = FeedTools {
            api: ApiServer::new(Client::try_from(config).unwrap()),
            publisher: publisher.clone(),
            metrics: FeedMetrics::register(&service.metrics),
            source_metrics: SourceMetrics::register(&service.metrics),
            served: watch::Sender::new(()),
            options,
        };
        let members = Members::new("w");
        let (writer, to) = (publisher, Arc::clone(&bus));
        let write = tokio::spawn(async move {
            writer.run(&*to, &leadership, &members, &batches).await;
        });
        let (orders, mut taken) = mpsc::unbounded_channel::<Order>();
        let mut feeder = Feeder::new(tools, LogSnapshot::default());
        feeder.settled();
        let drive = tokio::spawn(async move {
            loop {
                tokio::select! {
                    error = feeder.drive() => panic!("{error}"),
                    Some(order) = taken.recv() => order(&mut feeder),
                }
            }
        });
        Self {
            sim,
            bus,
            orders,
            service,
            tasks: vec![write, drive],
        }
    }

    fn order(&self, order: impl FnOnce(&mut Feeder) + Send + 'static) {
        self.orders.send(Box::new(order)).ok().unwrap();
    }

    fn want(&self, source: Source) -> ViewId {
        let (view, wanted) = wanted(source);
        let id = view.clone();
        self.order(move |feeder| feeder.desire(&view, wanted));
        id
    }

    fn refer(&self, name: &str) {
        let reference = ObjectReference {
            gvr: gvr(),
            object: ObjectKey::new("default", name),
            in_quota: false,
        };
        self.order(move |feeder| feeder.refer(&reference));
    }

    fn unrefer(&self, name: &str) {
        let reference = ObjectReference {
            gvr: gvr(),
            object: ObjectKey::new("default", name),
            in_quota: false,
        };
        self.order(move |feeder| feeder.unrefer(&reference));
    }

    /// Times that watches were planned so far.
    async fn plans(&self) -> u64 {
        let (tell, told) = tokio::sync::oneshot::channel();
        self.order(move |feeder| tell.send(feeder.plans).unwrap());
        told.await.unwrap()
    }

    fn put(&self, namespace: &str, name: &str, app: &str, more: &Value) {
        let metadata = json!({"name": name, "namespace": namespace, "labels": {"app": app}});
        let mut object = json!({"metadata": metadata});
        object
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.sim.put(CONFIGMAPS, object).unwrap();
    }

    /// Waits until the log is as wanted.
    async fn until(&self, what: &str, found: impl Fn(&anteroom_bus::LogIndex) -> bool) {
        for _ in 0..1_500 {
            if found(&self.bus.index().await.unwrap()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let index = self.bus.index().await.unwrap();
        let views: BTreeMap<_, _> = index
            .views
            .iter()
            .map(|(view, record)| (view.as_str(), (&record.state, record.objects)))
            .collect();
        panic!(
            "waited in vain for {what}: {views:#?}, {:#?}",
            self.sim.stats()
        );
    }

    /// Returns the objects of the API server that `selected` picks by namespace and label.
    fn truth(&self, selected: impl Fn(&str, &str) -> bool) -> Digest {
        let mut digest = Digest::EMPTY;
        for body in self.sim.objects(CONFIGMAPS).unwrap() {
            let object: Value = serde_json::from_slice(&body).unwrap();
            let text = |pointer: &str| {
                object
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            if selected(text("/metadata/namespace"), text("/metadata/labels/app")) {
                let key = ObjectKey::new(text("/metadata/namespace"), text("/metadata/name"));
                digest.add(
                    &key,
                    &ResourceVersion::new(text("/metadata/resourceVersion")),
                );
            }
        }
        digest
    }
}

fn holds(index: &anteroom_bus::LogIndex, view: &ViewId, truth: Digest) -> bool {
    let mut digest = Digest::EMPTY;
    for (key, (_, version)) in index.objects.get(view).into_iter().flatten() {
        digest.add(key, version);
    }
    digest == truth && is_synced(index, view)
}

fn is_synced(index: &anteroom_bus::LogIndex, view: &ViewId) -> bool {
    let record = index.views.get(view);
    record.is_some_and(|record| record.state == ViewState::Synced)
}

fn state_of(index: &anteroom_bus::LogIndex, name: &str) -> Option<String> {
    let view = Source::Objects { gvr: gvr() }.view_id();
    let (_, version) = index
        .objects
        .get(&view)?
        .get(&ObjectKey::new("default", name))?;
    Some(version.as_str().split('-').next()?.to_owned())
}

/// Views on one type come and go while its objects change, on one watch, and each ends up
/// with what the API server has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn derived_views_are_what_the_api_server_has_whatever_comes_between() {
    let world = World::start(FeedOptions::default()).await;
    let mut random = StdRng::seed_from_u64(7);
    let mut churn = |world: &World, count: usize| {
        for _ in 0..count {
            let (namespace, name) = (
                ["default", "kube-system"][random.random_range(0..2)],
                random.random_range(0..60),
            );
            if random.random_bool(0.3) {
                world
                    .sim
                    .delete(CONFIGMAPS, namespace, &format!("c{name}"))
                    .unwrap();
            } else {
                let app = format!("a{}", random.random_range(0..20));
                world.put(namespace, &format!("c{name}"), &app, &json!({}));
            }
        }
    };
    churn(&world, 100);
    let mut views = Vec::new();
    for n in 0..20 {
        let collection = Collection {
            label_selector: format!("app=a{n}"),
            ..Collection::all(gvr())
        };
        views.push((world.want(Source::Collection(collection)), n, ""));
        churn(&world, 20);
        tokio::time::sleep(Duration::from_millis(15)).await;
        if n % 7 == 3 {
            let resource = Some(CONFIGMAPS.into());
            world
                .sim
                .fault(Fault::CutWatches {
                    resource: resource.clone(),
                    clean: false,
                })
                .unwrap();
            world.sim.fault(Fault::Compact { resource }).unwrap();
        }
    }
    let one = Collection::in_namespace(gvr(), "default");
    views.push((world.want(Source::Collection(one)), 99, "default"));
    churn(&world, 100);
    let all_hold = |index: &anteroom_bus::LogIndex| {
        views.iter().all(|(view, n, namespace)| {
            let app = format!("a{n}");
            let truth = world.truth(|within, label| {
                if namespace.is_empty() {
                    label == app
                } else {
                    within == *namespace
                }
            });
            holds(index, view, truth)
        })
    };
    world.until("every view", all_hold).await;
    let watches =
        |count| move |stats: &anteroom_simapi::Stats| stats.watches_on(CONFIGMAPS) == count;
    let alone =
        tokio::time::timeout(Duration::from_secs(30), world.sim.wait_until(watches(1))).await;
    assert!(alone.is_ok(), "{:#?}", world.sim.stats());
    churn(&world, 100);
    world.until("every view after it", all_hold).await;

    // Until few are left, which are watched by themselves again.
    for (view, ..) in views.drain(1..) {
        world.order(move |feeder| feeder.undesire(&view));
    }
    churn(&world, 50);
    let first = views[0].0.clone();
    let left =
        |index: &anteroom_bus::LogIndex| holds(index, &first, world.truth(|_, app| app == "a0"));
    world.until("the last view", left).await;
}

/// 20,000 references, registered by the hundred, are one watch and few lists; each says what
/// the API server said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_references_are_one_watch_and_each_tells_what_is_so() {
    let world = World::start(FeedOptions::default()).await;
    for n in 0..100 {
        world.put("default", &format!("c{n}"), "x", &json!({}));
    }
    let view = world.want(Source::Objects { gvr: gvr() });
    world
        .until("a view whose references are all known", |index| {
            is_synced(index, &view)
        })
        .await;
    for n in 0..REFERENCES {
        world.refer(&format!("c{n}"));
        if n % 100 == 99 {
            tokio::task::yield_now().await;
        }
    }
    let told = |index: &anteroom_bus::LogIndex| {
        let is =
            |n: usize, wanted: &str| state_of(index, &format!("c{n}")).is_some_and(|s| s == wanted);
        (100..REFERENCES).all(|n| is(n, "absent"))
            && (0..100).all(|n| {
                state_of(index, &format!("c{n}")).is_some_and(|s| s.parse::<u64>().is_ok())
            })
    };
    world.until("every reference", told).await;
    assert_eq!(world.sim.stats().watches_on(CONFIGMAPS), 1);
    assert!(
        world.sim.stats().count("list", CONFIGMAPS) < REFERENCES as u64 / 500,
        "{:#?}",
        world.sim.stats()
    );
    world.put("default", "c400", "x", &json!({}));
    let found =
        |index: &anteroom_bus::LogIndex| state_of(index, "c400").is_some_and(|s| s != "absent");
    world.until("one that is made", found).await;

    let count = |index: &anteroom_bus::LogIndex| index.objects.get(&view).map_or(0, HashMap::len);
    let (lists, plans) = (
        world.sim.stats().count("list", CONFIGMAPS),
        world.plans().await,
    );
    let more = REFERENCES..REFERENCES + 1_000;
    more.clone().for_each(|n| world.refer(&format!("c{n}")));
    let told = |index: &anteroom_bus::LogIndex| {
        let mut more = more.clone();
        more.all(|n| state_of(index, &format!("c{n}")).is_some_and(|s| s == "absent"))
    };
    world.until("a thousand more", told).await;
    more.clone().for_each(|n| world.unrefer(&format!("c{n}")));
    world
        .until("a thousand less", |index| count(index) == REFERENCES)
        .await;
    assert_eq!(
        world.plans().await,
        plans,
        "nothing is planned anew for them"
    );
    let stats = world.sim.stats();
    assert!(stats.count("list", CONFIGMAPS) < lists + 8, "{stats:#?}");
    assert_eq!(stats.watches_on(CONFIGMAPS), 1);

    (0..REFERENCES).for_each(|n| world.unrefer(&format!("c{n}")));
    world
        .until("the last to go", |index| count(index) == 0)
        .await;
    let none = |stats: &anteroom_simapi::Stats| stats.watches_on(CONFIGMAPS) == 0;
    tokio::time::timeout(Duration::from_secs(30), world.sim.wait_until(none))
        .await
        .unwrap();
    let planned = world.plans().await - plans;
    assert!(planned < 20, "{planned} plans for {REFERENCES} that went");
}

/// An idle object is not watched until it is asked for. `immutable` changes nothing: the object may be deleted, and its owner
/// may write what is called so into a custom resource.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_object_is_not_watched_and_an_immutable_one_is() {
    let reference_idle_after = Duration::from_secs(3);
    let world = World::start(FeedOptions {
        reference_idle_after,
        ..FeedOptions::default()
    })
    .await;
    world.put("default", "fixed", "x", &json!({"immutable": true}));
    // 600 more objects cost more than a watch saved, so the planner gives each reference its own watch.
    for n in 0..600 {
        world.put("kube-system", &format!("c{n}"), "x", &json!({}));
    }
    world.want(Source::Objects { gvr: gvr() });
    world.refer("fixed");
    let found = |name: &'static str| {
        move |index: &anteroom_bus::LogIndex| {
            state_of(index, name).is_some_and(|s| s.parse::<u64>().is_ok())
        }
    };
    world.until("the object", found("fixed")).await;
    world.sim.delete(CONFIGMAPS, "default", "fixed").unwrap();
    world
        .until("its deletion", |index| {
            state_of(index, "fixed").is_some_and(|s| s.starts_with("absent"))
        })
        .await;
    let none = |stats: &anteroom_simapi::Stats| stats.watches_on(CONFIGMAPS) == 0;
    world.put("default", "free", "x", &json!({}));
    world.refer("free");
    world.until("the other", found("free")).await;
    world
        .until("its rest", |index| {
            state_of(index, "free").is_some_and(|s| s == "idle")
        })
        .await;
    tokio::time::timeout(Duration::from_secs(30), world.sim.wait_until(none))
        .await
        .unwrap();
    let view = Source::Objects { gvr: gvr() }.view_id();
    world.order(move |feeder| feeder.read(&view, &ObjectKey::new("default", "free")));
    world.until("it again", found("free")).await;
}

/// A forbidden view fails with the API server's message, and recovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_taken_away_and_given_back() {
    let world = World::start(FeedOptions::default()).await;
    world.put("default", "a", "x", &json!({}));
    let view = world.want(Source::Collection(Collection::all(gvr())));
    let synced = |index: &anteroom_bus::LogIndex| holds(index, &view, world.truth(|_, _| true));
    world.until("the view", synced).await;
    let resource = anteroom_simapi::ResourceName::from(CONFIGMAPS);
    world
        .sim
        .fault(Fault::Forbid {
            resource: resource.clone(),
        })
        .unwrap();
    world
        .sim
        .fault(Fault::CutWatches {
            resource: Some(resource.clone()),
            clean: true,
        })
        .unwrap();
    let failed = |index: &anteroom_bus::LogIndex| {
        let state = index.views.get(&view).map(|record| record.state.clone());
        matches!(state, Some(ViewState::Failed { failure }) if failure.reason == "Forbidden"
            && failure.message.contains("is forbidden: User"))
    };
    world.until("a failure", failed).await;
    world.sim.fault(Fault::Allow { resource }).unwrap();
    world.until("recovery", synced).await;
}

/// Views that the memory limit stopped come back by themselves, and with them what a watch brought meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_that_the_memory_limit_stopped_are_fed_again_once_there_is_room() {
    let memory = Memory::default();
    let entries = memory.account();
    let world = World::start(FeedOptions {
        memory_bytes_max: Some(LIMIT_MIN),
        memory,
        ..FeedOptions::default()
    })
    .await;
    world.put("default", "a", "x", &json!({}));
    world.put("default", "b", "y", &json!({}));
    let collection = world.want(Source::Collection(Collection::all(gvr())));
    let objects = world.want(Source::Objects { gvr: gvr() });
    world.refer("a");
    let served = |index: &anteroom_bus::LogIndex| {
        holds(index, &collection, world.truth(|_, _| true))
            && is_synced(index, &objects)
            && state_of(index, "a").is_some_and(|state| state.parse::<u64>().is_ok())
    };
    world.until("both views", served).await;

    entries.keeps(10_000);
    let failed = |index: &anteroom_bus::LogIndex, view: &ViewId| {
        let state = index.views.get(view).map(|record| &record.state);
        matches!(state, Some(ViewState::Failed { failure }) if failure.reason == "MemoryLimit")
    };
    let both_failed = |index: &anteroom_bus::LogIndex| {
        failed(index, &collection)
            && failed(index, &objects)
            && index.objects.values().all(HashMap::is_empty)
    };
    world.until("both to fail", both_failed).await;
    world.put("default", "c", "x", &json!({}));

    entries.keeps(0);
    world.until("both again", served).await;
}

/// More objects than watches may run for one by one, and no rights: each says so, and
/// all of them come back soon after the one watch is allowed that serves them together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_references_than_watches_come_back_with_the_rights() {
    const MANY: usize = plan::WATCHES_PER_TYPE_MAX + 30;
    let world = World::start(FeedOptions::default()).await;
    let resource = anteroom_simapi::ResourceName::from(CONFIGMAPS);
    let forbid = Fault::Forbid {
        resource: resource.clone(),
    };
    world.sim.fault(forbid).unwrap();
    world.want(Source::Objects { gvr: gvr() });
    for n in 0..MANY {
        world.put("default", &format!("c{n}"), "x", &json!({}));
        world.refer(&format!("c{n}"));
    }
    let all = |index: &anteroom_bus::LogIndex, is: fn(&str) -> bool| {
        (0..MANY).all(|n| state_of(index, &format!("c{n}")).is_some_and(|state| is(&state)))
    };
    let failed = |index: &anteroom_bus::LogIndex| all(index, |state| state == "failed");
    world.until("all to fail", failed).await;
    world.sim.fault(Fault::Allow { resource }).unwrap();
    let found = |index: &anteroom_bus::LogIndex| all(index, |state| state.parse::<u64>().is_ok());
    world.until("all to be found", found).await;
}

/// A view that is derived from a watch which runs lists what it holds itself; the watch of
/// thousands goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_that_comes_to_a_running_watch_lists_only_its_own() {
    let world = World::start(FeedOptions::default()).await;
    for n in 0..3_000 {
        world.put(
            "default",
            &format!("c{n}"),
            &format!("a{}", n % 100),
            &json!({}),
        );
    }
    let all = world.want(Source::Collection(Collection::all(gvr())));
    world
        .until("all", |index| holds(index, &all, world.truth(|_, _| true)))
        .await;
    let watches = |stats: &anteroom_simapi::Stats| stats.watches_on(CONFIGMAPS) == 1;
    world.sim.wait_until(watches).await;
    let before = world.sim.stats();
    let few = world.want(Source::Collection(Collection {
        label_selector: "app=a7".into(),
        ..Collection::all(gvr())
    }));
    let own =
        |index: &anteroom_bus::LogIndex| holds(index, &few, world.truth(|_, app| app == "a7"));
    world.until("the view", own).await;
    let after = world.sim.stats();
    let asked = |verb| after.count(verb, CONFIGMAPS) - before.count(verb, CONFIGMAPS);
    assert_eq!((asked("list"), asked("watch")), (1, 0), "{after:#?}");

    world.want(Source::Objects { gvr: gvr() });
    world.refer("c7");
    world.refer("none");
    world
        .until("the references", |index| {
            state_of(index, "c7").is_some_and(|s| s.parse::<u64>().is_ok())
                && state_of(index, "none").is_some_and(|s| s == "absent")
        })
        .await;
    world.put("default", "none", "a7", &json!({}));
    world.sim.delete(CONFIGMAPS, "default", "c7").unwrap();
    world
        .until("what comes later", |index| {
            own(index)
                && state_of(index, "c7").is_some_and(|s| s == "absent")
                && state_of(index, "none").is_some_and(|s| s.parse::<u64>().is_ok())
        })
        .await;
}

/// More than a few views that join a running watch together make it list once for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_views_that_come_together_cost_one_list() {
    let world = World::start(FeedOptions::default()).await;
    for n in 0..2_000 {
        let (name, app) = (format!("c{n}"), format!("a{}", n % 100));
        world.put("default", &name, &app, &json!({}));
    }
    let all = world.want(Source::Collection(Collection::all(gvr())));
    let whole = |index: &anteroom_bus::LogIndex| holds(index, &all, world.truth(|_, _| true));
    world.until("all", whole).await;
    let before = world.sim.stats();
    let views: Vec<_> = (0..100)
        .map(|n| {
            wanted(Source::Collection(Collection {
                label_selector: format!("app=a{n}"),
                ..Collection::all(gvr())
            }))
        })
        .collect();
    let ids: Vec<_> = views.iter().map(|(view, _)| view.clone()).collect();
    world.order(move |feeder| {
        views
            .into_iter()
            .for_each(|(view, wanted)| feeder.desire(&view, wanted));
    });
    let synced = |index: &anteroom_bus::LogIndex| ids.iter().all(|view| is_synced(index, view));
    world.until("every view", synced).await;
    let index = world.bus.index().await.unwrap();
    for (n, view) in ids.iter().enumerate() {
        let app = format!("a{n}");
        assert!(holds(&index, view, world.truth(|_, label| label == app)));
    }
    let after = world.sim.stats();
    let asked = |verb| after.count(verb, CONFIGMAPS) - before.count(verb, CONFIGMAPS);
    let pages = 2_000_u64.div_ceil(500) + 1;
    assert!(asked("list") <= pages, "{after:#?}");
    assert!(asked("watch") <= 1, "it goes on after the list: {after:#?}");
}

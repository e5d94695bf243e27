use std::collections::VecDeque;

use anteroom_model::{Collection, GroupVersionResource, Op, Source, SourceInfo};
use anteroom_runtime::Service;
use anteroom_seal::Keys;
use anteroom_wire::envelope::Record;
use kube::Client;
use proptest::prelude::*;
use serde_json::json;
use tokio::{runtime::Runtime, sync::Notify};

use super::*;
use crate::{
    apiserver::ApiServer,
    feeds::{
        assign::assign,
        join::{Join, Joins},
        plan::{Plan, Wants},
        sink::FeedSink,
    },
    metrics::WatcherMetrics,
    publish::Work,
    reflect::{Note, Sink as _},
};

const KEYS: u8 = 4;

/// What became of an object: its label, or that it went.
type Became = Option<bool>;

/// All that ever happened at the API server; the version of a change is its place, from 1 on.
#[derive(Default)]
struct History(Vec<(u8, Became)>);

impl History {
    fn now(&self) -> usize {
        self.0.len()
    }

    /// The object at this version: the version of its last change, and what it became.
    fn at(&self, key: u8, version: usize) -> (usize, Became) {
        let mut changes = self.0[..version].iter().enumerate();
        let last = changes.rfind(|(_, (of, _))| *of == key);
        last.map_or((0, None), |(at, (_, became))| (at + 1, *became))
    }

    /// Whether the object was so at or after `since`, and when first.
    fn was(&self, key: u8, since: usize, is: impl Fn((usize, Became)) -> bool) -> Option<usize> {
        (since..=self.now()).find(|version| is(self.at(key, *version)))
    }
}

fn selects(scope: &Scope, became: Became) -> bool {
    became.is_some_and(|labelled| labelled || scope.is_wide())
}

fn key(key: u8) -> ObjectKey {
    ObjectKey::new("n", format!("k{key}"))
}

fn rv(version: usize) -> ResourceVersion {
    ResourceVersion::new(version.to_string())
}

fn object(of: u8, version: usize, became: Became) -> RawObject {
    let app = if became == Some(true) { "a" } else { "b" };
    let metadata = json!({"name": format!("k{of}"), "namespace": "n", "labels": {"app": app},
        "resourceVersion": version.to_string()});
    RawObject {
        key: key(of),
        version: rv(version),
        json: json!({"metadata": metadata}).to_string().into(),
    }
}

fn gvr() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "things")
}

fn narrow() -> Scope {
    Scope {
        labels: "app=a".into(),
        ..Scope::default()
    }
}

/// A list that is on its way: what it holds is settled, and comes object by object.
struct Listing {
    at: usize,
    left: VecDeque<(u8, usize, Became)>,
}

impl Listing {
    fn of(scope: &Scope, history: &History) -> Self {
        let at = history.now();
        let all = (0..KEYS).map(|key| (key, history.at(key, at)));
        let selected = all.filter(|(_, (_, became))| selects(scope, *became));
        Self {
            at,
            left: selected
                .map(|(key, (of, became))| (key, of, became))
                .collect(),
        }
    }
}

enum Phase {
    Idle,
    Asked(Listing),
    Lists(Listing),
    Watches(usize),
}

/// A watch, which goes on one step at a time and may be as far behind as it likes.
struct Watch {
    sink: FeedSink,
    phase: Phase,
    relist: watch::Receiver<u64>,
}

impl Watch {
    /// Says whether there was anything to do.
    async fn advance(&mut self, history: &History) -> bool {
        let scope = self.sink.scope.clone();
        let asked = self.relist.has_changed().unwrap_or_default();
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        self.phase = match phase {
            Phase::Watches(_) if asked => {
                self.relist.mark_unchanged();
                Phase::Idle
            }
            Phase::Idle => Phase::Asked(Listing::of(&scope, history)),
            Phase::Asked(listing) => {
                self.sink.note(Note::Begin { afresh: false }).await;
                Phase::Lists(listing)
            }
            Phase::Lists(mut listing) => match listing.left.pop_front() {
                Some((key, version, became)) => {
                    let (object, span) = (object(key, version, became), Span::none());
                    self.sink.note(Note::Put { object, span }).await;
                    Phase::Lists(listing)
                }
                None => {
                    let version = rv(listing.at);
                    self.sink.note(Note::Listed { version }).await;
                    Phase::Watches(listing.at)
                }
            },
            Phase::Watches(at) if at == history.now() => {
                self.phase = Phase::Watches(at);
                return false;
            }
            Phase::Watches(at) => {
                self.event(history, at + 1).await;
                Phase::Watches(at + 1)
            }
        };
        true
    }

    async fn event(&mut self, history: &History, at: usize) {
        let scope = &self.sink.scope;
        let (of, became) = history.0[at - 1];
        let (_, before) = history.at(of, at - 1);
        let span = tracing::info_span!("event");
        let note = if selects(scope, became) {
            let object = object(of, at, became);
            Note::Put { object, span }
        } else if selects(scope, before) {
            let (key, version) = (key(of), rv(at));
            Note::Gone { key, version, span }
        } else {
            return;
        };
        self.sink.note(note).await;
        let version = Some(rv(at));
        self.sink.note(Note::Heard { version }).await;
    }
}

/// A list beside a watch.
struct Beside {
    join: Join,
    joins: Joins,
    listing: Option<Listing>,
}

impl Beside {
    /// Says whether it goes on.
    async fn advance(&mut self, history: &History) -> bool {
        match &self.joins {
            Joins::View {
                tenure,
                begun,
                lists,
            } => {
                let listing = self
                    .listing
                    .get_or_insert_with(|| Listing::of(&lists[0], history));
                if let Some((key, version, became)) = listing.left.pop_front() {
                    let page = vec![object(key, version, became)];
                    return self.join.page(tenure, *begun, page).await;
                }
                let listed = [(&lists[0], rv(listing.at))];
                self.join.finish(tenure, *begun, &listed);
                false
            }
            Joins::Object { object: of, era } => {
                let of = (0..KEYS).find(|n| key(*n) == *of).unwrap();
                let now = history.now();
                let (version, became) = history.at(of, now);
                let found = became.map(|_| object(of, version, became));
                self.join.referenced(&key(of), *era, found, Some(&rv(now)));
                false
            }
        }
    }
}

/// What readers of the log have, with how far along the API server's history that is known to be.
#[derive(Default)]
struct Readers {
    view: HashMap<ObjectKey, usize>,
    objects: HashMap<ObjectKey, String>,
    view_at: HashMap<u8, usize>,
    objects_at: HashMap<u8, usize>,
}

struct World {
    runtime: Runtime,
    history: History,
    hub: std::sync::Arc<parking_lot::Mutex<Hub>>,
    publisher: Publisher,
    watches: BTreeMap<Scope, Watch>,
    besides: Vec<Beside>,
    view: ViewId,
    referenced: BTreeSet<u8>,
    at: Scope,
    served: bool,
    readers: Readers,
}

fn tenure_of(publisher: &Publisher, source: Source) -> Tenure {
    let info = SourceInfo {
        source,
        kind: "Thing".into(),
        namespaced: true,
    };
    publisher.with(|book| book.open(info, HashMap::new()))
}

impl World {
    fn new() -> Self {
        let publisher = Publisher::new(1);
        let collection = Collection {
            label_selector: "app=a".into(),
            ..Collection::all(gvr())
        };
        let tenure = tenure_of(&publisher, Source::Collection(collection.clone()));
        let view = tenure.view.clone();
        let mut hub = Hub::default();
        hub.insert(Member {
            tenure,
            lens: Lens::new(&collection),
            sealed: false,
            kept: None,
            feeds: BTreeSet::new(),
            old: BTreeSet::new(),
            done: BTreeSet::new(),
            refused: BTreeMap::new(),
            joins: BTreeMap::new(),
        });
        let mut objects = tenure_of(&publisher, Source::Objects { gvr: gvr() });
        publisher.with(|book| book.begin_list(&mut objects, false));
        hub.references.opened(objects, false, &publisher);
        let mut world = Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap(),
            history: History::default(),
            hub: std::sync::Arc::new(parking_lot::Mutex::new(hub)),
            publisher,
            watches: BTreeMap::new(),
            besides: Vec::new(),
            view,
            referenced: BTreeSet::new(),
            at: narrow(),
            served: false,
            readers: Readers::default(),
        };
        world.plan();
        world
    }

    fn sink(&self, scope: &Scope) -> FeedSink {
        let metrics = WatcherMetrics::register(&Service::new("test").metrics);
        FeedSink {
            scope: scope.clone(),
            hub: std::sync::Arc::clone(&self.hub),
            publisher: self.publisher.clone(),
            keys: Keys::none(),
            metrics: metrics.of_watch(&self.view),
            api_version: "v1".into(),
            kind: "Thing".into(),
            planned: std::sync::Arc::new(Notify::new()),
        }
    }

    /// As a feeder plans, with the view at `self.at` and references at the watch of all.
    fn plan(&mut self) {
        let mut scopes = BTreeSet::from([self.at.clone()]);
        if !self.referenced.is_empty() {
            scopes.insert(Scope::all());
        }
        let mut hub = self.hub.lock();
        for scope in &scopes {
            if !hub.feeds.contains_key(scope) {
                let (relist, asked) = watch::channel(0);
                let stop = self
                    .runtime
                    .spawn(std::future::pending::<()>())
                    .abort_handle();
                hub.feeds.insert(scope.clone(), Feed::new(relist, stop));
                let watch = Watch {
                    sink: self.sink(scope),
                    phase: Phase::Idle,
                    relist: asked,
                };
                self.watches.insert(scope.clone(), watch);
            }
        }
        let plan = Plan {
            views: HashMap::from([(self.view.clone(), BTreeSet::from([self.at.clone()]))]),
            unfit: BTreeSet::new(),
            scopes,
        };
        let wants = Wants {
            references: self.referenced.iter().map(|of| key(*of)).collect(),
            ..Wants::default()
        };
        let moves = assign(&mut hub, &plan, &wants, &self.publisher);
        for (scope, joins) in moves.joins {
            let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
                Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("not asked"))
            });
            let api = {
                let _guard = self.runtime.enter();
                ApiServer::new(Client::new(service, "default"))
            };
            let join = Join {
                api,
                gvr: gvr(),
                sink: self.sink(&scope),
            };
            self.besides.push(Beside {
                join,
                joins,
                listing: None,
            });
        }
        let Hub { feeds, members, .. } = &mut *hub;
        feeds.retain(|scope, _| {
            let heard = members.values().any(|of| of.hears(scope));
            heard || plan.scopes.contains(scope)
        });
        self.watches.retain(|scope, _| feeds.contains_key(scope));
    }

    /// The watches that are left are stopped, as the feeder is told to.
    fn leave(&mut self) {
        let left = {
            let hub = self.hub.lock();
            let used = |scope: &Scope| hub.members.values().any(|of| of.hears(scope));
            let needed = |scope: &Scope| scope.is_wide() && !self.referenced.is_empty();
            self.watches
                .keys()
                .any(|scope| !used(scope) && !needed(scope))
        };
        if left {
            self.plan();
        }
    }

    fn advance(&mut self, scope: &Scope) -> bool {
        let Some(watch) = self.watches.get_mut(scope) else {
            return false;
        };
        let moved = self.runtime.block_on(watch.advance(&self.history));
        self.leave();
        moved
    }

    fn advance_beside(&mut self) -> bool {
        let Some(beside) = self.besides.first_mut() else {
            return false;
        };
        if !self.runtime.block_on(beside.advance(&self.history)) {
            let ended = self.besides.remove(0);
            let mut hub = self.hub.lock();
            if let Some(feed) = hub.feeds.get_mut(&ended.join.sink.scope) {
                feed.joining = feed.joining.saturating_sub(1);
            }
        }
        self.leave();
        true
    }

    fn refer(&mut self, of: u8) {
        let now = Instant::now();
        let new = self.referenced.insert(of);
        if new {
            self.hub
                .lock()
                .references
                .refer(&key(of), now, &self.publisher);
            self.plan();
        }
    }

    /// What was written since goes to the readers, who must not see time go back.
    fn read(&mut self) -> Result<(), TestCaseError> {
        let hub = self.hub.lock();
        let member = &hub.members[&self.view];
        self.served |= member.feeds.is_subset(&member.done);
        drop(hub);
        let Readers {
            view,
            objects,
            view_at,
            objects_at,
        } = &mut self.readers;
        self.publisher.with(|book| {
            while let Some(Work::Append(batch)) = book.next_work(Instant::now()) {
                for (record, _) in batch.records {
                    let Record::Delta { view: of, delta } = record else {
                        continue;
                    };
                    let version = delta.version.as_str().to_owned();
                    match (of == self.view, delta.op) {
                        (true, Op::Put(_)) => {
                            view.insert(delta.key, version.parse().unwrap());
                        }
                        (true, Op::Delete) => {
                            view.remove(&delta.key);
                        }
                        (false, _) => {
                            objects.insert(delta.key, version);
                        }
                    }
                }
            }
        });
        for of in 0..KEYS {
            let (history, key) = (&self.history, key(of));
            if self.served {
                let since = view_at.entry(of).or_default();
                let found = match view.get(&key) {
                    Some(has) => history.was(of, *since, |(version, _)| version == *has),
                    None => history.was(of, *since, |(_, became)| became != Some(true)),
                };
                prop_assert!(
                    found.is_some(),
                    "{key} of the view goes back before {since}"
                );
                *since = found.unwrap_or_default();
            }
            let Some(has) = objects.get(&key).filter(|has| *has != "pending") else {
                continue;
            };
            let since = objects_at.entry(of).or_default();
            let found = match has.parse::<usize>() {
                Ok(has) => history.was(of, *since, |(version, _)| version == has),
                Err(_) => history.was(of, *since, |(_, became)| became.is_none()),
            };
            prop_assert!(
                found.is_some(),
                "{key}, referenced, goes back before {since}"
            );
            *since = found.unwrap_or_default();
        }
        Ok(())
    }

    /// Until all that happened was heard.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..10_000 {
            let scopes: Vec<Scope> = self.watches.keys().cloned().collect();
            let mut moved = self.advance_beside();
            for scope in scopes {
                moved |= self.advance(&scope);
            }
            self.read()?;
            if !moved {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("it never comes to rest"))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Change(u8, Became),
    Watch(bool),
    Beside,
    Move,
    Relist(bool),
    Refer(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let became = prop_oneof![Just(None), any::<bool>().prop_map(Some)];
    prop_oneof![
        6 => (0..KEYS, became).prop_map(|(key, became)| Step::Change(key, became)),
        12 => any::<bool>().prop_map(Step::Watch),
        4 => Just(Step::Beside),
        2 => Just(Step::Move),
        1 => any::<bool>().prop_map(Step::Relist),
        1 => (0..KEYS).prop_map(Step::Refer),
    ]
}

fn scope(wide: bool) -> Scope {
    if wide { Scope::all() } else { narrow() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// While a view moves from watch to watch, each as far behind as it likes, no
    /// object of it and no referenced one ever goes back to what it was, or is missing while it is
    /// there; and in the end all is as the API server has it, without another list.
    #[test]
    fn watches_that_take_each_others_place_never_turn_time_back(
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Change(key, became) => world.history.0.push((key, became)),
                Step::Watch(wide) => {
                    world.advance(&scope(wide));
                }
                Step::Beside => {
                    world.advance_beside();
                }
                Step::Move => {
                    world.at = scope(!world.at.is_wide());
                    world.plan();
                }
                Step::Relist(wide) => {
                    if let Some(feed) = world.hub.lock().feeds.get_mut(&scope(wide)) {
                        feed.ask();
                    }
                }
                Step::Refer(key) => world.refer(key),
            }
            world.read()?;
        }
        world.settle()?;
        let now = world.history.now();
        for of in 0..KEYS {
            let (version, became) = world.history.at(of, now);
            let selected = (became == Some(true)).then_some(version);
            prop_assert_eq!(world.readers.view.get(&key(of)).copied(), selected, "{}", of);
            let told = world.readers.objects.get(&key(of)).map(String::as_str);
            if world.referenced.contains(&of) {
                let found = told.and_then(|told| told.parse::<usize>().ok());
                prop_assert_eq!(found, became.map(|_| version), "{} {:?}", of, told);
            }
        }
    }
}

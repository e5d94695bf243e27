//! Views that change their watches, against a model of the API server and of the readers of the log.

mod older_lists;
mod source;

use anteroom_model::{Collection, Op, Source, SourceInfo, ViewRecord, ViewState};
use anteroom_runtime::Service;
use anteroom_seal::Keys;
use anteroom_wire::envelope::Record;
use kube::Client;
use proptest::prelude::*;
use tokio::{runtime::Runtime, sync::Notify, sync::watch};

use super::*;
use crate::{
    feeds::{
        assign::assign,
        join::{Join, Joining},
        plan::{Plan, PlanInput, ViewFilter},
        shared_hub::SharedHub,
        sink::WatchSink,
    },
    log_writer::publish::{Publisher, Work, WriteHandle},
    source::{apiserver::ApiServer, metrics::SourceMetrics},
};
use source::{Became, History, KEYS, Listing, Phase, Watch, gvr, key, object, rv};

/// A list beside a watch.
struct Beside {
    join: Join,
    joining: Joining,
    listed: Vec<(WatchScope, Listing)>,
}

impl Beside {
    /// Returns whether it goes on.
    async fn advance(&mut self, history: &History) -> bool {
        match &self.joining {
            Joining::View { handle, list, own } => {
                if let Some((_, listing)) = self.listed.last_mut()
                    && let Some((key, version, became)) = listing.left.pop_front()
                {
                    let page = vec![object(key, version, became)];
                    return self.join.page(handle, *list, page).await;
                }
                if let Some(scope) = own.get(self.listed.len()) {
                    let listing = Listing::of(scope, history);
                    self.listed.push((scope.clone(), listing));
                    return true;
                }
                let listed = self.listed.iter();
                let listed: Vec<_> = listed
                    .map(|(scope, listing)| (scope, rv(listing.at)))
                    .collect();
                self.join.finish(handle, *list, &listed);
                false
            }
            Joining::Object {
                object: joining,
                era,
            } => {
                let number = (0..KEYS).find(|n| key(*n) == *joining).unwrap();
                let now = history.now();
                let (version, became) = history.at(number, now);
                let found = became.map(|_| object(number, version, became));
                self.join
                    .referenced(&key(number), *era, found, Some(&rv(now)));
                false
            }
        }
    }
}

/// A view as a replica has it, by the rules of `anteroom_view`.
#[derive(Default)]
struct ReaderView {
    /// The objects that answer readers; `None`: the view does not answer.
    served: Option<HashMap<ObjectKey, usize>>,
    /// The objects by all deltas: a `Synced` record makes them the served objects.
    gathered: HashMap<ObjectKey, usize>,
    gathers: bool,
    failed: bool,
    /// For each object, the known position in the API server's history.
    since: HashMap<u8, usize>,
}

impl ReaderView {
    fn delta(&mut self, key: &ObjectKey, put: Option<usize>) {
        let live = self.served.as_mut().filter(|_| !self.gathers);
        for objects in live.into_iter().chain([&mut self.gathered]) {
            match put {
                Some(version) => objects.insert(key.clone(), version),
                None => objects.remove(key),
            };
        }
    }

    fn control(&mut self, record: &ViewRecord) {
        match &record.state {
            ViewState::Synced => {
                self.served = Some(self.gathered.clone());
                (self.gathers, self.failed) = (false, false);
                let version: usize = record.version.as_str().parse().unwrap_or_default();
                for number in 0..KEYS {
                    let since = self.since.entry(number).or_default();
                    *since = version.max(*since);
                }
            }
            ViewState::Syncing => self.gathers = true,
            ViewState::Failed { .. } => {
                (self.served, self.failed) = (None, true);
            }
            ViewState::Dropped => unreachable!("no view is dropped"),
        }
    }
}

/// A view with its selection, and its choice of watches: the wide watch, or the narrow watches.
struct TestView {
    id: ViewId,
    selects: fn(u8, Became) -> bool,
    narrow: BTreeSet<WatchScope>,
    is_wide: bool,
    reader: ReaderView,
    /// When it was last heard, as of when it last was complete.
    heard: Option<Instant>,
}

impl TestView {
    fn watches(&self) -> BTreeSet<WatchScope> {
        match self.is_wide {
            true => BTreeSet::from([WatchScope::all()]),
            false => self.narrow.clone(),
        }
    }
}

struct World {
    runtime: Runtime,
    history: History,
    hub: SharedHub,
    publisher: Publisher,
    watches: BTreeMap<WatchScope, Watch>,
    besides: Vec<Beside>,
    views: [TestView; 2],
    referenced: BTreeSet<u8>,
    objects: HashMap<ObjectKey, String>,
    objects_since: HashMap<u8, usize>,
}

fn lease_of(publisher: &Publisher, source: Source) -> WriteHandle {
    let info = SourceInfo {
        source,
        kind: "Thing".into(),
        namespaced: true,
    };
    publisher.with(|queue| queue.open(info, HashMap::new()))
}

fn add(
    hub: &mut Hub,
    publisher: &Publisher,
    collection: &Collection,
    selects: fn(u8, Became) -> bool,
) -> TestView {
    let handle = lease_of(publisher, Source::Collection(collection.clone()));
    let filter = ViewFilter::new(collection);
    let (id, narrow) = (handle.view.clone(), filter.own());
    hub.insert(Member {
        handle,
        filter,
        sealed: false,
        retained: None,
        since: ResourceVersion::default(),
        watches: BTreeMap::new(),
        is_refused: false,
    });
    TestView {
        id,
        selects,
        narrow,
        is_wide: false,
        reader: ReaderView::default(),
        heard: None,
    }
}

impl World {
    fn new() -> Self {
        let publisher = Publisher::new(1);
        let mut hub = Hub::default();
        let labelled = Collection {
            label_selector: "app=a".into(),
            ..Collection::all(gvr())
        };
        let namespaces = Collection {
            namespaces: vec!["m".into(), "n".into()],
            ..Collection::all(gvr())
        };
        let views = [
            add(&mut hub, &publisher, &labelled, |_, became| {
                became == Some(true)
            }),
            add(&mut hub, &publisher, &namespaces, |_, became| {
                became.is_some()
            }),
        ];
        let objects = lease_of(&publisher, Source::Objects { gvr: gvr() });
        publisher.with(|queue| {
            queue.begin_list(&objects);
            hub.references.opened(objects, false, queue);
        });
        let mut world = Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap(),
            history: History::default(),
            hub: SharedHub::new(hub, publisher.clone()),
            publisher,
            watches: BTreeMap::new(),
            besides: Vec::new(),
            views,
            referenced: BTreeSet::new(),
            objects: HashMap::new(),
            objects_since: HashMap::new(),
        };
        world.plan();
        world
    }

    fn sink(&self, scope: &WatchScope) -> WatchSink {
        let metrics = SourceMetrics::register(&Service::new("test").metrics);
        WatchSink {
            scope: scope.clone(),
            hub: self.hub.clone(),
            keys: Keys::none(),
            metrics: metrics.of_watch(&self.views[0].id),
            api_version: "v1".into(),
            kind: "Thing".into(),
            planned: std::sync::Arc::new(Notify::new()),
        }
    }

    /// Plans as a feeder does, with references at the watch of all.
    fn plan(&mut self) {
        let mut scopes: BTreeSet<_> = self.views.iter().flat_map(TestView::watches).collect();
        if !self.referenced.is_empty() {
            scopes.insert(WatchScope::all());
        }
        let mut hub = self.hub.lock();
        for scope in &scopes {
            if !hub.watches.contains_key(scope) {
                let (relist, asked) = watch::channel(0);
                let stop = self
                    .runtime
                    .spawn(std::future::pending::<()>())
                    .abort_handle();
                let running = RunningWatch::new(relist, stop);
                hub.watches.insert(scope.clone(), running);
                let watch = Watch {
                    sink: self.sink(scope),
                    phase: Phase::Idle,
                    relist: asked,
                };
                self.watches.insert(scope.clone(), watch);
            }
        }
        let views = self.views.iter();
        let plan = Plan {
            views: views
                .map(|view| (view.id.clone(), view.watches()))
                .collect(),
            unfit: BTreeSet::new(),
            scopes,
        };
        let input = PlanInput {
            references: self.referenced.iter().map(|number| key(*number)).collect(),
            ..PlanInput::default()
        };
        let joining = hub.with_queue(|hub, queue| assign(hub, &plan, &input, queue));
        for (scope, joining) in joining {
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
                joining,
                listed: Vec::new(),
            });
        }
        hub.watches.retain(|scope, _| plan.scopes.contains(scope));
        self.watches.retain(|scope, _| plan.scopes.contains(scope));
    }

    fn advance(&mut self, scope: &WatchScope) -> bool {
        match self.watches.get_mut(scope) {
            Some(watch) => self.runtime.block_on(watch.advance(&self.history)),
            None => false,
        }
    }

    /// Goes on with a list beside a watch, or has it fail.
    fn advance_beside(&mut self, nth: u8, fails: bool) -> bool {
        if self.besides.is_empty() {
            return false;
        }
        let nth = usize::from(nth) % self.besides.len();
        let beside = &mut self.besides[nth];
        if fails || !self.runtime.block_on(beside.advance(&self.history)) {
            let ended = self.besides.remove(nth);
            ended.join.end(&ended.joining, fails);
        }
        true
    }

    fn refer(&mut self, number: u8) {
        if self.referenced.insert(number) {
            let now = Instant::now();
            self.hub
                .locked(|hub, queue| hub.references.refer(&key(number), false, now, queue));
            self.plan();
        }
    }

    /// Everything that waits is written, and the readers take it in.
    fn write(&mut self) {
        let Self {
            views,
            objects,
            publisher,
            ..
        } = self;
        publisher.with(|queue| {
            while let Some(Work::Append(batch)) = queue.next_work(Instant::now()) {
                for (record, _) in &batch.records {
                    let view = views.iter_mut().find(|view| view.id == *record.view());
                    match (record, view) {
                        (Record::Delta { delta, .. }, Some(view)) => {
                            let version = delta.version.as_str().parse().ok();
                            let put = version.filter(|_| delta.op != Op::Delete);
                            view.reader.delta(&delta.key, put);
                        }
                        (Record::Delta { delta, .. }, None) => {
                            let version = delta.version.as_str().to_owned();
                            objects.insert(delta.key.clone(), version);
                        }
                        (Record::Control(record), Some(view)) => view.reader.control(record),
                        (Record::Control(_), None) => {}
                    }
                }
                let last = anteroom_model::Revision(batch.records.len() as u64);
                queue.written(&batch, last);
            }
        });
    }

    /// Whoever reads now must not see time go back, nor a view that is served no more, nor one that seems
    /// fresher than it is.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let history = &self.history;
        let hub = self.hub.lock();
        for view in &mut self.views {
            let stats = self.publisher.read(|queue| queue.stats(Instant::now()));
            let heard = stats
                .iter()
                .find(|stats| stats.view == view.id)
                .unwrap()
                .heard;
            if hub.members[&view.id].is_complete() {
                view.heard = heard;
            } else {
                prop_assert_eq!(heard, view.heard, "{} is not heard while it lists", view.id);
            }
            let Some(served) = &view.reader.served else {
                continue;
            };
            for number in 0..KEYS {
                let since = view.reader.since.entry(number).or_default();
                let found = match served.get(&key(number)) {
                    Some(has) => history.was(number, *since, |(version, became)| {
                        version == *has && (view.selects)(number, became)
                    }),
                    None => history.was(number, *since, |(_, became)| {
                        !(view.selects)(number, became)
                    }),
                };
                prop_assert!(
                    found.is_some(),
                    "k{number} of {} is not what it was at {since} or later: {served:?}",
                    view.id
                );
                *since = found.unwrap_or_default();
            }
        }
        for number in 0..KEYS {
            let Some(has) = self
                .objects
                .get(&key(number))
                .filter(|has| *has != "pending")
            else {
                continue;
            };
            if has.starts_with("failed") {
                continue;
            }
            let since = self.objects_since.entry(number).or_default();
            let found = match has.parse::<usize>() {
                Ok(has) => history.was(number, *since, |(version, _)| version == has),
                Err(_) => history.was(number, *since, |(_, became)| became.is_none()),
            };
            prop_assert!(
                found.is_some(),
                "k{number}, referenced, goes back before {since}"
            );
            *since = found.unwrap_or_default();
        }
        Ok(())
    }

    /// Until all that happened was heard.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..10_000 {
            let scopes: Vec<WatchScope> = self.watches.keys().cloned().collect();
            let mut moved = self.advance_beside(0, false);
            self.check()?;
            for scope in scopes {
                moved |= self.advance(&scope);
                self.check()?;
            }
            self.write();
            self.check()?;
            if !moved {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("it never comes to rest"))
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Change(key, became) => self.history.0.push((key, became)),
            Step::Watch(nth) => {
                let count = self.watches.len().max(1);
                let scope = self.watches.keys().nth(usize::from(nth) % count).cloned();
                scope.map(|scope| self.advance(&scope));
            }
            Step::Beside(nth, fails) => {
                self.advance_beside(nth, fails);
            }
            Step::Move(nth) => {
                let view = &mut self.views[usize::from(nth) % 2];
                view.is_wide = !view.is_wide;
                self.plan();
            }
            Step::Relist(nth) => {
                let mut hub = self.hub.lock();
                let count = hub.watches.len().max(1);
                let nth = usize::from(nth) % count;
                hub.watches.values_mut().nth(nth).map(RunningWatch::ask);
            }
            Step::Bookmark(nth) => {
                let count = self.watches.len().max(1);
                let watch = self.watches.values_mut().nth(usize::from(nth) % count);
                if let Some(watch) = watch {
                    self.runtime.block_on(watch.bookmark());
                }
            }
            Step::Fail(nth, refused) => {
                let count = self.watches.len().max(1);
                let watch = self.watches.values_mut().nth(usize::from(nth) % count);
                if let Some(watch) = watch {
                    self.runtime.block_on(watch.fail(refused));
                }
            }
            Step::Rewrite(nth) => {
                let view = &self.views[usize::from(nth) % 2];
                self.hub.locked(|hub, queue| hub.reread(&view.id, queue));
            }
            Step::Refer(key) => self.refer(key),
            Step::Write => self.write(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Change(u8, Became),
    Watch(u8),
    Beside(u8, bool),
    Move(u8),
    Relist(u8),
    Bookmark(u8),
    Fail(u8, bool),
    Rewrite(u8),
    Refer(u8),
    Write,
}

fn step() -> impl Strategy<Value = Step> {
    let became = prop_oneof![Just(None), any::<bool>().prop_map(Some)];
    prop_oneof![
        8 => (0..KEYS, became).prop_map(|(key, became)| Step::Change(key, became)),
        24 => (0..4_u8).prop_map(Step::Watch),
        6 => (0..4_u8, proptest::bool::weighted(0.1)).prop_map(|(nth, fails)| Step::Beside(nth, fails)),
        3 => (0..2_u8).prop_map(Step::Move),
        1 => (0..4_u8).prop_map(Step::Relist),
        1 => (0..4_u8).prop_map(Step::Bookmark),
        1 => (0..4_u8, any::<bool>()).prop_map(|(nth, refused)| Step::Fail(nth, refused)),
        1 => (0..2_u8).prop_map(Step::Rewrite),
        1 => (0..KEYS).prop_map(Step::Refer),
        8 => Just(Step::Write),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    /// Views change their watches, each watch as far behind as it likes, lists and watches fail, and what
    /// is written lags. A view that says that it is synced at a version holds each object as it was then
    /// or later, and none that was gone. No object of it, and no referenced one, goes back to what it was.
    /// A view that was served is served until its source is refused, and is not heard while it lists. In
    /// the end all is as the API server has it.
    #[test]
    fn views_that_change_their_watches_are_served_and_never_wrong(
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let mut world = World::new();
        for step in steps {
            let answers = world.views.each_ref().map(|view| view.reader.served.is_some());
            world.step(step);
            world.check()?;
            for (view, answers) in world.views.iter().zip(answers) {
                let serves = view.reader.served.is_some() || view.reader.failed;
                prop_assert!(serves || !answers, "{} is not served any more", view.id);
            }
        }
        world.settle()?;
        let now = world.history.now();
        for number in 0..KEYS {
            let (version, became) = world.history.at(number, now);
            for view in &world.views {
                let selected = (view.selects)(number, became).then_some(version);
                let served = view.reader.served.as_ref();
                prop_assert!(served.is_some(), "{} is served", view.id);
                let has = served.and_then(|served| served.get(&key(number)).copied());
                prop_assert_eq!(has, selected, "k{} of {}", number, view.id);
            }
            let told = world.objects.get(&key(number)).map(String::as_str);
            if world.referenced.contains(&number) {
                let found = told.and_then(|told| told.parse::<usize>().ok());
                prop_assert_eq!(found, became.map(|_| version), "{} {:?}", number, told);
            }
        }
    }
}

//! Structures within the limits of their number and bytes.

use anteroom_bus::{LogScope, local::LocalBus};
use anteroom_mirror::{
    Mirror, MirrorConfig, MirrorMetrics,
    testing::{ViewWriter, collection},
};
use anteroom_model::ObjectKey;
use anteroom_view::testing::TestView;
use serde_json::json;

use super::*;

/// Something that is derived from a state of a view: the state itself, and the bytes that each object counts.
#[derive(Debug)]
struct State(Snapshot, usize);

impl Derive for State {
    /// The bytes that each object counts.
    type Key = u8;

    fn derive(
        object_bytes: u8,
        _: Language,
        at: &Snapshot,
        bytes_max: usize,
    ) -> Result<Option<Self>, ParseError> {
        let state = Self(at.clone(), usize::from(object_bytes));
        Ok((state.bytes() <= bytes_max).then_some(state))
    }

    fn follow(&mut self, changes: &Changes) {
        self.0 = changes.to().clone();
    }

    fn at(&self) -> &Snapshot {
        &self.0
    }

    fn bytes(&self) -> usize {
        self.0.read().len() * self.1
    }
}

#[test]
fn a_namespace_has_a_quarter_of_a_views_indexes_and_the_cluster_has_the_rest() {
    let held = |counts: &[(&'static str, usize)]| {
        let each = |&(namespace, count)| std::iter::repeat_n(namespace, count);
        counts.iter().flat_map(each).collect::<Vec<_>>()
    };
    for (counts, asks, expected) in [
        (&[("a", 15)][..], "a", true),
        (&[("a", 16)], "a", false),
        (&[("a", 16)], "b", true),
        (&[("a", 16), ("b", 16), ("c", 15)], "c", true),
        (&[("a", 16), ("b", 16), ("c", 16)], "d", false),
        (&[("a", 16), ("b", 16), ("c", 16)], "", true),
        (&[("", 63)], "a", true),
        (&[("", 64)], "", false),
        (&[("", 60), ("a", 4)], "b", false),
    ] {
        let held = held(counts);
        assert_eq!(
            has_room(held.into_iter(), asks),
            expected,
            "{counts:?} {asks}"
        );
    }
}

#[test]
fn a_long_lookup_holds_up_those_of_another_state_alone() {
    let mut view = TestView::new("", "pods", "Pod");
    let before = view.snapshot();
    view.put("ns", "a", &json!({"metadata": {"name": "a"}}));
    let after = view.snapshot();
    let slot = DerivedSlot {
        derived: RwLock::new(Some(State(before.clone(), 1))),
        charge: Charge::new(ByteLimit::new(0), &ViewId::new("pods"), ""),
        used_ms: AtomicU64::new(0),
    };
    let wait_max = Duration::from_millis(1);
    let objects = |state: &Snapshot| {
        let advance = |derived: &mut State| derived.0 = state.clone();
        slot.ask(state, wait_max, advance, |it| it.at().read().len())
    };
    let lookup = |_: &State| (objects(&before), objects(&after));
    let beside = slot.ask(&before, wait_max, |_| (), lookup);
    assert_eq!(beside, Some((Some(0), None)));
    assert_eq!((objects(&after), objects(&before)), (Some(1), Some(0)));
    *slot.derived.write() = None;
    assert_eq!(objects(&after), None, "it is built");
}

/// A view in a mirror, and a cache of what is derived from its states.
struct Harness {
    writer: ViewWriter,
    id: ViewId,
    mirror: Mirror,
    cache: Arc<DerivedCache<State>>,
}

impl Harness {
    /// A view of so many objects.
    async fn new(objects: usize, bytes_max: usize) -> Self {
        let bus = LocalBus::new();
        let mut writer = ViewWriter::with_system_views(Arc::new(bus.join())).await;
        let id = writer.open(collection("ingresses", "Ingress"));
        let mirror = Mirror::start(
            Arc::new(bus.join()),
            LogScope::All,
            MirrorConfig::default(),
            MirrorMetrics::default(),
            &CancellationToken::new(),
        );
        let language = Language {
            functions: anteroom_functions::query_functions(),
            matches: anteroom_functions::wildcard::matches,
        };
        let (changes, limit) = (Arc::default(), ByteLimit::new(bytes_max));
        let cache = Arc::new(DerivedCache::new(language, changes, limit));
        writer.synced(&id).await;
        let mut harness = Self {
            writer,
            id,
            mirror,
            cache,
        };
        harness.grow(0..objects).await;
        harness
    }

    /// Adds objects, and waits until the view has them.
    async fn grow(&mut self, objects: std::ops::Range<usize>) {
        let end = objects.end;
        let objects = objects.map(|n| (ObjectKey::new("ns", format!("i{n:03}")), json!({"n": n})));
        self.writer.put_all(&self.id, objects.collect()).await;
        self.writer.synced(&self.id).await;
        while self.state().is_none_or(|state| state.read().len() < end) {
            self.writer.beat().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn state(&self) -> Option<Snapshot> {
        let view = self.mirror.view(&self.id)?;
        Some(view.snapshot(Some(u64::MAX)).ok()?.0)
    }

    /// Asks a structure for its number of objects. `None`: the query has to look through all objects.
    fn ask(&self, namespace: &str, key: u8) -> Option<usize> {
        let (view, state) = (self.mirror.view(&self.id).unwrap(), self.state().unwrap());
        let asked = AskedState {
            view: &view,
            state: &state,
            namespace,
        };
        self.cache.ask(asked, key, WAIT_MAX, |it| it.0.read().len())
    }

    /// Asks, and asks again once a build that the query began is over.
    async fn built(&self, namespace: &str, key: u8) -> Option<usize> {
        assert_eq!(self.ask(namespace, key), None, "it is not built yet");
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let views = self.cache.views.lock();
            let slot = views[&self.id].slots.get(&key).map(|owned| &owned.slot);
            let is_over = |slot: &Arc<DerivedSlot<State>>| {
                slot.charge.refusal().is_some() || slot.derived.read().is_some()
            };
            if slot.is_none_or(is_over) {
                break;
            }
        }
        self.ask(namespace, key)
    }

    fn taken(&self) -> usize {
        self.cache.limit.taken()
    }

    /// Returns true if no structure of the view is in memory.
    fn holds_none(&self) -> bool {
        let views = self.cache.views.lock();
        let mut slots = views[&self.id].slots.values();
        slots.all(|owned| owned.slot.derived.read().is_none())
    }
}

#[tokio::test]
async fn a_structure_beyond_its_owners_bytes_is_not_built_and_holds_up_nobody_else() {
    // A namespace has 100 bytes.
    let harness = Harness::new(6, 400).await;
    assert_eq!(harness.built("a", 10).await, Some(6));
    assert_eq!(harness.built("a", 11).await, None, "a has 40 left");
    assert_eq!((harness.cache.count(), harness.taken()), (1, 60));
    assert_eq!(harness.ask("a", 11), None, "it is not tried again");
    assert_eq!(harness.cache.count(), 1);
    assert_eq!(harness.built("b", 11).await, Some(6), "it is another's");
    assert_eq!(harness.built("b", 12).await, None, "b has 34 left");
    assert_eq!(harness.built("", 12).await, Some(6), "it is the cluster's");
    assert_eq!((harness.cache.count(), harness.taken()), (3, 198));
    // What the cluster uses as well is not the namespace's.
    assert_eq!(harness.ask("", 10), Some(6));
    let other = ViewId::new("services");
    assert_eq!(harness.cache.limit.left("a", &other), 100);
    assert_eq!(harness.built("a", 5).await, Some(6));
}

#[tokio::test]
async fn a_structure_that_grows_beyond_its_owners_bytes_is_dropped() {
    let mut harness = Harness::new(10, 400).await;
    assert_eq!(harness.built("a", 10).await, Some(10));
    assert_eq!(harness.built("", 5).await, Some(10));
    assert_eq!(harness.taken(), 150);
    harness.grow(10..11).await;
    assert!(harness.cache.is_behind());
    harness.cache.keep_up();
    assert_eq!(harness.taken(), 55, "the cluster's alone");
    assert_eq!((harness.ask("a", 10), harness.ask("", 5)), (None, Some(11)));

    // A query that brings the structure up has an answer. The structure goes afterwards.
    harness.grow(11..81).await;
    assert_eq!(harness.ask("", 5), Some(81));
    assert_eq!((harness.taken(), harness.ask("", 5)), (0, None));
    assert!(harness.cache.is_behind());
    harness.cache.keep_up();
    assert!(harness.holds_none());
}

#[tokio::test]
async fn a_structure_that_fills_the_memory_is_dropped_and_no_other() {
    let mut harness = Harness::new(6, 400).await;
    assert_eq!(harness.built("", 60).await, Some(6));
    assert_eq!(harness.built("", 6).await, Some(6));
    harness.grow(6..7).await;
    // The small one grows first, beyond what the large one has left.
    assert_eq!(harness.ask("", 6), Some(7));
    assert_eq!((harness.taken(), harness.ask("", 60)), (42, None));
    assert!(harness.cache.is_behind());
    harness.cache.keep_up();
    assert_eq!((harness.taken(), harness.ask("", 6)), (42, Some(7)));
}

#[tokio::test(start_paused = true)]
async fn a_refused_structure_may_be_tried_after_a_while_or_with_clearly_more_bytes() {
    let slot = DerivedSlot::<State> {
        derived: RwLock::new(None),
        charge: Charge::new(ByteLimit::new(0), &ViewId::new("pods"), ""),
        used_ms: AtomicU64::new(0),
    };
    tokio::time::advance(Duration::from_secs(1)).await;
    slot.charge.refuse(100);
    assert_eq!(
        [125, 126].map(|left| slot.may_try_again(left)),
        [false, true]
    );
    assert_eq!(
        [60_999, 61_000].map(|now_ms| slot.is_idle(now_ms)),
        [false, true]
    );
}

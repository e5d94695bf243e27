//! Keeping the catalog in step with the system views.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Bus, Connection, LogScope};
use anteroom_mirror::{ChangeMarks, ContentStamp, Mirror, MirrorConfig, MirrorMetrics};
use anteroom_model::{KindRecord, ObjectKey, Revision, ViewId, system};
use anteroom_runtime::{Check, Service};
use anteroom_view::{Object, Read};
use anteroom_wire::replica_beat::CONTRADICTED_VIEWS_MAX;
use anyhow::bail;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::{sync::watch, time::Instant};

use super::{
    Catalog, EntrySet, LogPosition,
    position::{WaitingPolicies, claimed, position, waiting_since},
};
use crate::{
    compile_turns::CompileTurns, exceptions::Exceptions, kinds::Kinds, off_thread::off_thread,
    policies::PolicySet, recorder::SharedRecorder,
};

/// The least time between two catalogs: entries that are created by the hundred are taken in
/// together.
const PACE_MIN: Duration = Duration::from_millis(20);

/// The least time between two catalogs, as a multiple of the last build's time: a large catalog that changes often takes a
/// bounded share of the processor.
const PACE: u32 = 4;

/// The same while policies or exceptions wait to be compiled.
const PACE_WAITING: u32 = 2;

/// The time for which changed policies, and then changed exceptions, are compiled before a catalog is published. Further ones
/// of namespaces wait for the next catalog.
const COMPILE_TIME: Duration = Duration::from_millis(200);

/// The receivers of news of the system views, while these are followed.
#[derive(Debug)]
pub struct CatalogOutlets {
    /// The catalog in force.
    pub catalogs: watch::Sender<Option<Arc<Catalog>>>,
    /// The views of which the log contradicts their writer, at most [`CONTRADICTED_VIEWS_MAX`].
    pub contradicted: watch::Sender<Vec<ViewId>>,
    /// Ready once there is a catalog.
    pub check: Check,
}

/// Follows the system views until shutdown.
pub async fn follow(
    bus: Arc<dyn Bus>,
    service: Service,
    recorder: SharedRecorder,
    outlets: CatalogOutlets,
) -> anyhow::Result<()> {
    let CatalogOutlets {
        catalogs,
        contradicted,
        check,
    } = outlets;
    let shutdown = service.shutdown.token();
    let connection = bus.connection();
    let mut connected = connection.clone();
    let mirror = Mirror::start(
        bus,
        LogScope::Views(vec![
            system::entries(),
            system::kinds(),
            system::policies(),
            system::exceptions(),
        ]),
        MirrorConfig::default(),
        MirrorMetrics::register(&service.metrics),
        &shutdown,
    );
    let mut reader = CatalogReader::new(mirror);
    loop {
        let begun = Instant::now();
        // Policies are compiled there, which reviews do not wait for.
        if let Some(catalog) = off_thread(|| reader.read()) {
            log_changes(&catalog, catalogs.borrow().as_deref());
            let before = catalogs.borrow().clone();
            if before.is_none_or(|before| !Arc::ptr_eq(&before.policies, &catalog.policies)) {
                recorder.policies(&catalog.policies);
            }
            catalogs.send_replace(Some(Arc::new(catalog)));
            check.ready();
        } else if catalogs.borrow().is_none() {
            check.not_ready(match *connection.borrow() {
                Connection::Up => reader.waiting_for(),
                Connection::Down => "the bus, which is out of reach".to_owned(),
            });
        }
        tell_contradicted(&reader.mirror, &contradicted);
        let pace = match reader.has_turns {
            true => PACE_WAITING,
            false => PACE,
        };
        let pace = PACE_MIN.max(begun.elapsed() * pace);
        tokio::select! {
            biased; // Shutdown ends the mirror too.
            () = shutdown.cancelled() => return Ok(()),
            changed = reader.changed() => changed?,
            Ok(()) = connected.changed() => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(begun + pace) => {}
        }
    }
}

/// Tells which views the log contradicts, if that has changed.
fn tell_contradicted(mirror: &Mirror, told: &watch::Sender<Vec<ViewId>>) {
    let contradicted = mirror.contradicted(CONTRADICTED_VIEWS_MAX);
    told.send_if_modified(|last| {
        let is_news = *last != contradicted;
        *last = contradicted;
        is_news
    });
}

/// Logs the policies, exceptions and entries in force, if they have changed.
fn log_changes(catalog: &Catalog, before: Option<&Catalog>) {
    let (ready, unready) = catalog.policies.counts();
    let entries = catalog.entries.count();
    let exceptions = catalog.exceptions.count();
    if before.is_some_and(|before| !Arc::ptr_eq(&before.exceptions, &catalog.exceptions)) {
        tracing::info!(exceptions, "exceptions put in force");
    }
    if before.is_some_and(|before| Arc::ptr_eq(&before.policies, &catalog.policies)) {
        tracing::debug!(entries, "entries or kinds changed");
        return;
    }
    tracing::info!(
        policies = ready,
        policies_not_ready = unready,
        entries,
        "policies put in force"
    );
}

/// The system views as they were last read.
struct CatalogReader {
    mirror: Mirror,
    entries: SystemViewCopy<EntrySet>,
    kinds: SystemViewCopy<Kinds>,
    policies: SystemViewCopy<PolicySet>,
    exceptions: SystemViewCopy<Exceptions>,
    /// The position up to which all parts but the exceptions were read last.
    read_to: LogPosition,
    /// The position up to which all parts but the exceptions are in the catalog: policies that wait to be compiled are
    /// not.
    position: LogPosition,
    turns: CompileTurns,
    exception_turns: CompileTurns,
    /// The policies that wait to be compiled, with a position before their first version that waits.
    waiting: WaitingPolicies,
    /// Policies or exceptions wait to be compiled, and their view can be read.
    has_turns: bool,
    /// See [`Mirror::shortened`].
    shortened: u64,
    /// The log has lost records that were read, and not all views have been read since.
    begins_anew: bool,
    /// Set before each reading.
    marks: Option<CatalogMarks>,
}

/// A copy of one view, read as a whole.
struct SystemViewCopy<T> {
    id: ViewId,
    value: Arc<T>,
    /// The state of the view that `value` was read from; `None`: it was never whole.
    content: Option<ContentStamp>,
    /// The position of the last record in it.
    position: LogPosition,
}

impl<T: Default> SystemViewCopy<T> {
    fn new(id: ViewId) -> Self {
        Self {
            id,
            value: Arc::default(),
            content: None,
            position: LogPosition::default(),
        }
    }

    /// Returns whether every record of the view that is read takes effect in it at once.
    fn is_live(&self, mirror: &Mirror) -> bool {
        let view = mirror.view(&self.id);
        view.is_some_and(|view| view.status().borrow().live)
    }

    /// Reads the view again if it is whole and has changed. Returns whether it did.
    fn refresh(&mut self, mirror: &Mirror, parse: impl FnOnce(&T, Read<'_>) -> T) -> bool {
        let Some((content, value)) = self.read(mirror, false, parse) else {
            return false;
        };
        self.value = Arc::new(value);
        self.content = Some(content);
        true
    }

    /// Compiles the manifests that have changed, or waited for that. Returns whether there were any. The first catalog has
    /// all manifests.
    fn compile(
        &mut self,
        mirror: &Mirror,
        turns: &mut CompileTurns,
        build: impl FnOnce(&T, Vec<(ObjectKey, Bytes)>, &mut CompileTurns, &dyn Fn() -> bool) -> T,
    ) -> bool {
        let (is_first, begun) = (self.content.is_none(), Instant::now());
        let again = turns.has_waiting();
        let copy = |_: &T, view: Read<'_>| objects(view);
        let Some((content, manifests)) = self.read(mirror, again, copy) else {
            return false;
        };
        let goes_on = || is_first || begun.elapsed() < COMPILE_TIME;
        self.value = Arc::new(build(&self.value, manifests, turns, &goes_on));
        self.content = Some(content);
        true
    }

    /// Reads the view if it is whole, and has changed or is to be read `again`.
    fn read<R>(
        &mut self,
        mirror: &Mirror,
        again: bool,
        read: impl FnOnce(&T, Read<'_>) -> R,
    ) -> Option<(ContentStamp, R)> {
        let before = self.content;
        // Last-good data of any age: see the module's documentation.
        let found = mirror
            .view(&self.id)?
            .read(Some(u64::MAX), |view, position| {
                self.position = LogPosition {
                    incarnation: position.incarnation.clone(),
                    revision: position.revision,
                    ..LogPosition::default()
                };
                let content = position.content;
                let is_wanted = again || Some(content) != before;
                is_wanted.then(|| (content, read(&self.value, view)))
            });
        found.ok()?
    }
}

fn objects(view: Read<'_>) -> Vec<(ObjectKey, Bytes)> {
    let copy = |object: &Object| {
        let key = ObjectKey::new(object.namespace(), object.name());
        (key, Bytes::copy_from_slice(object.body()))
    };
    view.objects().map(copy).collect()
}

impl CatalogReader {
    fn new(mirror: Mirror) -> Self {
        Self {
            mirror,
            entries: SystemViewCopy::new(system::entries()),
            kinds: SystemViewCopy::new(system::kinds()),
            policies: SystemViewCopy::new(system::policies()),
            exceptions: SystemViewCopy::new(system::exceptions()),
            read_to: LogPosition::default(),
            position: LogPosition::default(),
            turns: CompileTurns::default(),
            exception_turns: CompileTurns::default(),
            waiting: WaitingPolicies::new(),
            has_turns: false,
            shortened: 0,
            begins_anew: false,
            marks: None,
        }
    }

    /// Returns a catalog if all parts are known and any of them has changed, even if only the log position has.
    fn read(&mut self) -> Option<Catalog> {
        self.mark();
        self.take_in()
    }

    /// A change that comes while the views are read, which may take long, is one to read.
    fn mark(&mut self) {
        let ids = [
            &self.entries.id,
            &self.kinds.id,
            &self.policies.id,
            &self.exceptions.id,
        ];
        let marks = CatalogMarks::set(&self.mirror, |id| ids.contains(&id));
        self.marks = Some(marks);
    }

    fn take_in(&mut self) -> Option<Catalog> {
        let shortened = self.mirror.shortened();
        self.begins_anew |= std::mem::replace(&mut self.shortened, shortened) != shortened;
        let live = self.entries.is_live(&self.mirror)
            && self.kinds.is_live(&self.mirror)
            && self.policies.is_live(&self.mirror);
        // Before the views: what has been read is in every one that is live.
        let complete_to = *self.mirror.complete_to().borrow();
        let changed = [
            self.entries.refresh(&self.mirror, |before, view| {
                let object = |o| (Object::namespace(o), Object::name(o), Object::body(o));
                EntrySet::build(before, view.objects().map(object))
            }),
            self.kinds.refresh(&self.mirror, |_, view| {
                let records: Vec<KindRecord> = records(&system::kinds(), objects(view));
                Kinds::new(records)
            }),
            self.policies
                .compile(&self.mirror, &mut self.turns, |before, new, turns, on| {
                    PolicySet::build_while(before, new, turns, on)
                }),
            self.exceptions.compile(
                &self.mirror,
                &mut self.exception_turns,
                |before, new, turns, on| Exceptions::build_while(before, new, turns, on),
            ),
        ];
        // Without a view that can be read, only a change of it leads on.
        let [_, _, policies, exceptions] = changed;
        self.has_turns = policies && self.turns.has_waiting()
            || exceptions && self.exception_turns.has_waiting();
        let known = self.entries.content.is_some()
            && self.kinds.content.is_some()
            && self.policies.content.is_some()
            && self.exceptions.content.is_some();
        let parts = [
            &self.entries.position,
            &self.kinds.position,
            &self.policies.position,
        ];
        self.begins_anew &= !live;
        let read_to = self.next_position(parts, complete_to, live);
        if read_to.incarnation != self.read_to.incarnation {
            // How far another log has been read counts from the next reading on, which no record may lead to.
            self.marks = None;
        }
        self.waiting = waiting_since(&self.waiting, self.turns.waiting(), &self.read_to);
        self.read_to = read_to;
        let position = claimed(&self.read_to, &self.waiting);
        let moved = position != self.position;
        self.position = position;
        (known && (moved || changed.contains(&true))).then(|| Catalog {
            entries: Arc::clone(&self.entries.value),
            kinds: Arc::clone(&self.kinds.value),
            policies: Arc::clone(&self.policies.value),
            exceptions: Arc::clone(&self.exceptions.value),
            position: self.position.clone(),
        })
    }

    /// Returns the position of the parts. While the log that lost records is read again, what is served may be of what it
    /// has lost, so no position is known.
    fn next_position(
        &self,
        parts: [&LogPosition; 3],
        complete_to: Revision,
        live: bool,
    ) -> LogPosition {
        let mut before = self.read_to.clone();
        if before.shortened != self.shortened {
            before.revision = Revision(0);
            before.shortened = self.shortened;
        }
        if self.begins_anew {
            before.revision = Revision(0);
            return before;
        }
        position(&before, parts, complete_to, live)
    }

    fn waiting_for(&self) -> String {
        let parts = [
            (&self.entries.id, self.entries.content),
            (&self.kinds.id, self.kinds.content),
            (&self.policies.id, self.policies.content),
            (&self.exceptions.id, self.exceptions.content),
        ];
        let missing: Vec<_> = parts
            .into_iter()
            .filter(|(_, content)| content.is_none())
            .map(|(id, _)| id.as_str())
            .collect();
        format!("the views {}, which the watcher writes", missing.join(", "))
    }

    /// Waits until any of the views may have changed since it was read last, and be it while it was read. Policies and
    /// exceptions that wait are a reason to read on.
    ///
    /// # Errors
    /// The bus was closed.
    async fn changed(&mut self) -> anyhow::Result<()> {
        if self.has_turns {
            return Ok(());
        }
        let Some(marks) = &mut self.marks else {
            return Ok(()); // It is to be read in any case.
        };
        tokio::select! {
            biased;
            () = self.mirror.ended() => bail!("the bus was closed"),
            () = marks.passed() => Ok(()),
        }
    }
}

/// The parts of a catalog as they stood before they were read, to notice a change.
struct CatalogMarks {
    views: ChangeMarks,
    /// The position up to which the log was read. The catalog's goes with it, also where no view changes.
    complete_to: watch::Receiver<Revision>,
}

impl CatalogMarks {
    fn set(mirror: &Mirror, is_one: impl Fn(&ViewId) -> bool) -> Self {
        let mut complete_to = mirror.complete_to();
        complete_to.mark_unchanged();
        let views = ChangeMarks::set(mirror, is_one);
        Self { views, complete_to }
    }

    async fn passed(&mut self) {
        tokio::select! {
            () = self.views.passed() => {}
            // An error means that the mirror has ended, which is waited for elsewhere.
            Ok(()) = self.complete_to.changed() => {}
        }
    }
}

/// The records of a view. One that cannot be read is a watcher's mistake, or was written by a
/// newer watcher. It is logged and left out, as if the view did not have it.
fn records<T: DeserializeOwned>(view: &ViewId, objects: Vec<(ObjectKey, Bytes)>) -> Vec<T> {
    objects
        .into_iter()
        .filter_map(|(key, body)| match anteroom_wire::body::decode(&body) {
            Ok(record) => Some(record),
            Err(error) => {
                tracing::error!(
                    %view,
                    %key,
                    %error,
                    "record of a watcher not decoded: left out; check that all services have the same version"
                );
                None
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use anteroom_bus::local::LocalBus;
    use anteroom_mirror::testing::ViewWriter;
    use anteroom_model::ViewState;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::recorder::NoRecorder;

    /// A policy is not in force before the catalog claims its position, and a quiet log brings nothing more.
    #[tokio::test(start_paused = true)]
    async fn a_log_that_was_read_to_its_end_is_claimed_to_its_end() {
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new());
        let mut writer = ViewWriter::with_system_views(Arc::clone(&bus)).await;
        let entry = serde_json::json!({"kind": "Cached", "name": "a"});
        let end = writer.put(&system::entries(), "", "a", entry).await;
        let shutdown = CancellationToken::new();
        let (config, metrics) = (MirrorConfig::default(), MirrorMetrics::default());
        let mirror = Mirror::start(bus, LogScope::All, config, metrics, &shutdown);
        let mut complete_to = mirror.complete_to();
        complete_to.wait_for(|read| *read >= end).await.unwrap();
        let mut reader = CatalogReader::new(mirror);
        let claimed = async {
            while reader
                .read()
                .is_none_or(|catalog| catalog.position.revision < end)
            {
                reader.changed().await.unwrap();
            }
        };
        timeout(Duration::from_secs(1), claimed).await.unwrap();
        shutdown.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn a_system_view_that_the_log_contradicts_is_told_until_both_agree() {
        const PATIENCE: Duration = Duration::from_secs(60);
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new());
        let mut writer = ViewWriter::with_system_views(Arc::clone(&bus)).await;
        let view = system::policies();
        let mut record = writer
            .model(&view)
            .control(writer.epoch(), ViewState::Synced);
        record.objects += 1;
        writer.control_record(record).await;
        let service = Service::new("test");
        let (contradicted_in, mut contradicted) = watch::channel(Vec::new());
        let outlets = CatalogOutlets {
            catalogs: watch::Sender::new(None),
            contradicted: contradicted_in,
            check: service.readiness.check("policies", "the log"),
        };
        let follow = follow(bus, service.clone(), Arc::new(NoRecorder), outlets);
        let following = tokio::spawn(follow);
        let named = contradicted.wait_for(|views| *views == [view.clone()]);
        timeout(PATIENCE, named).await.unwrap().unwrap();
        writer.control(&view, ViewState::Synced).await;
        let mended = contradicted.wait_for(Vec::is_empty);
        timeout(PATIENCE, mended).await.unwrap().unwrap();
        following.abort();
    }

    /// The positions of records that the log has lost are claimed no more.
    #[tokio::test(start_paused = true)]
    async fn a_log_that_lost_records_is_claimed_from_its_begin_on() {
        let bus = Arc::new(LocalBus::new());
        let mut writer = ViewWriter::with_system_views(Arc::clone(&bus) as _).await;
        let entry = serde_json::json!({"kind": "Cached", "name": "a"});
        let end = writer.put(&system::entries(), "", "a", entry).await;
        let shutdown = CancellationToken::new();
        let (config, metrics) = (MirrorConfig::default(), MirrorMetrics::default());
        let follows = Arc::clone(&bus) as Arc<dyn Bus>;
        let mirror = Mirror::start(follows, LogScope::All, config, metrics, &shutdown);
        let mut reader = CatalogReader::new(mirror);
        let position = read_until(&mut reader, |position| position.revision >= end).await;
        bus.faults().truncate_log(Revision(end.0 - 1));
        let anew = read_until(&mut reader, |position| position.shortened == 1).await;
        assert!(anew.revision < end, "{anew:?}");
        assert_eq!(anew.incarnation, position.incarnation);
        assert!(!anew.is_comparable_to(&position));
        shutdown.cancel();
    }

    async fn read_until(
        reader: &mut CatalogReader,
        is_meant: impl Fn(&LogPosition) -> bool,
    ) -> LogPosition {
        let read = async {
            loop {
                match reader.read() {
                    Some(catalog) if is_meant(&catalog.position) => return catalog.position,
                    _ => reader.changed().await.unwrap(),
                }
            }
        };
        timeout(Duration::from_secs(1), read).await.unwrap()
    }

    /// A catalog waits for changes, and misses none that comes while it is read.
    #[tokio::test(start_paused = true)]
    async fn a_change_during_a_catalog_read_is_not_missed() {
        const QUIET: Duration = Duration::from_secs(1);
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new());
        let mut writer = ViewWriter::with_system_views(Arc::clone(&bus)).await;
        let shutdown = CancellationToken::new();
        let (config, metrics) = (MirrorConfig::default(), MirrorMetrics::default());
        let mirror = Mirror::start(bus, LogScope::All, config, metrics, &shutdown);
        let mut reader = CatalogReader::new(mirror);
        while reader.read().is_none() {
            reader.changed().await.unwrap();
        }
        let mut is_quiet = false;
        for _ in 0..20 {
            reader.read();
            is_quiet |= timeout(QUIET, reader.changed()).await.is_err();
        }
        assert!(is_quiet, "with nothing to read it waits");
        reader.mark();
        let entry = serde_json::json!({"kind": "Cached", "name": "a"});
        let at = writer.put(&system::entries(), "", "a", entry).await;
        let mut complete_to = reader.mirror.complete_to();
        complete_to.wait_for(|read| *read >= at).await.unwrap();
        assert!(reader.take_in().is_some(), "it is read already");
        let again = timeout(QUIET, reader.changed()).await;
        assert!(again.is_ok(), "and it may have come too late for that");
        shutdown.cancel();
    }
}

//! Keeps up with one collection of the API server, for ever: lists it, watches it, and passes objects and events to a
//! [`Sink`]. [`machine`] decides the next step, and this module carries it out.
//!
//! # Proofs in an API server's answers
//!
//! - A watch that was accepted is not news. After a restore from a backup, an API server accepts a watch from
//!   a version in its future, and stays silent. So a watch that ended without an event is followed by a list.
//! - A starting API server forbids everything until it has read its own rules, and serves fewer kinds than it
//!   will. So a first refusal, or a missing kind, is believed only of a server that says that it is ready,
//!   and says it again.
//! - Only a list proves that an object is gone. Each object records which list delivered it. A list that a
//!   view did not receive completely never deletes.

pub(crate) mod forbidden_check;
pub(crate) mod fuzzing;
mod machine;
mod parse;
mod paths;
mod single;
mod sinks;

use std::ops::Range;
use std::time::Duration;

use anteroom_model::{
    Collection, Failure, GroupVersionResource, ObjectKey, ResourceVersion, limits::OBJECT_BYTES_MAX,
};
use async_trait::async_trait;
use tokio::{sync::watch, time::Instant};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, Span};

use crate::source::{
    apiserver::{ApiServer, Fault, Line, PagePermit},
    metrics::WatchMetrics,
};
use forbidden_check::{ForbiddenCheck, RefusalVerdict};
use machine::{Input, Machine, ReflectorCommand, ReflectorEffect};
use parse::{Malformed, Page, WatchEvent};

pub(crate) use parse::{RawObject, content_version};
pub(crate) use paths::escape;
pub(crate) use single::{once, probe, size};
pub(crate) use sinks::NudgeSink;

/// The largest page that is read at once; a larger one is asked for in halves. See
/// [`PAGES_MAX`](crate::source::apiserver::PAGES_MAX).
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The longest line of a watch. An object's JSON, managed fields included, is longer than its body. A longer line is
/// skipped, and the collection is listed again to get its object.
const LINE_BYTES_MAX: usize = 2 * OBJECT_BYTES_MAX;

/// The longest silence of a source, unless an option changes it.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// The shortest limit for the silence of a source: a watch has to live longer than the time after which it counts as
/// faulty.
const STALE_AFTER_MIN: Duration = Duration::from_secs(20);

/// The shortest life of a quiet watch. The API server sends a bookmark two seconds before its end, and a watch that
/// ends within five seconds counts as a fault.
const LIFE_MIN: Duration = Duration::from_secs(6);

/// The time between two watches that are opened anew, if there are many.
const OPENED_EVERY: Duration = Duration::from_millis(200);

const JSON: &str = "application/json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A collection to keep up with.
#[derive(Clone, Debug)]
pub(crate) struct WatchedCollection {
    /// The collection.
    pub collection: Collection,
    /// The version at which an earlier watch ended, if known.
    pub left_at: ResourceVersion,
    /// Only the metadata of its objects is wanted.
    pub metadata_only: bool,
}

/// Requests to a reflector while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    /// Changes when the collection has to be listed again, although nothing failed.
    pub relist: watch::Receiver<u64>,
    /// The longest silence of the source. A quiet watch is opened anew long before that (see [`lives`]), which makes the
    /// API server send a bookmark, or a list is asked for. A watch that does not end in time is taken for dead.
    pub stale_after: Duration,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            relist: watch::channel(0).1,
            stale_after: STALE_AFTER,
        }
    }
}

/// The way by which an object came from the API server.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A list has it. It may have changed at any time since the source was last heard from before.
    List,
    /// A watch event brings the change now, within this span.
    Event(Span),
}

/// News of a collection, in order.
#[derive(Debug)]
pub(crate) enum Note {
    /// A list begins.
    Begin {
        /// The source's history restarted: a version known from before says nothing now.
        afresh: bool,
        /// The collection's version that the list shows.
        version: ResourceVersion,
    },
    /// The object is now this.
    Put {
        /// The object.
        object: RawObject,
        /// The way by which it came.
        origin: Origin,
    },
    /// The object is gone.
    Gone {
        /// The key of the object.
        key: ObjectKey,
        /// The version of its going.
        version: ResourceVersion,
        /// The span of the event.
        span: Span,
    },
    /// An object that cannot even be named was passed over.
    Skipped,
    /// The list is complete: objects that it did not bring are gone.
    Listed {
        /// The collection's version.
        version: ResourceVersion,
    },
    /// The source was heard from.
    Heard {
        /// The collection's version, if the API server sent one.
        version: Option<ResourceVersion>,
    },
    /// The source cannot be read.
    Refused(Failure),
    /// The source cannot be heard right now.
    Troubled(Failure),
}

impl Origin {
    /// Returns whether a list brought it.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::List)
    }

    /// Returns the span of the event. Objects of a list have no span: there are thousands of them, and nobody waits
    /// for a single one.
    pub(crate) fn span(&self) -> Span {
        match self {
            Self::List => Span::none(),
            Self::Event(span) => span.clone(),
        }
    }
}

/// A keeper of objects.
#[async_trait]
pub(crate) trait Sink: Send {
    /// Takes a note. Waiting here makes the API server wait.
    async fn note(&mut self, note: Note);

    /// Returns whether to watch after the list. It is called before each watch.
    fn wants_watch(&self) -> bool {
        true
    }
}

/// Runs [`run_with`] with the default control.
#[cfg(test)]
pub(crate) async fn run(
    api: ApiServer,
    watched: WatchedCollection,
    sink: impl Sink,
    metrics: WatchMetrics,
    served: watch::Receiver<()>,
) {
    run_with(api, watched, sink, metrics, served, Control::default()).await;
}

/// Runs until it is dropped. `served` changes whenever the API server begins or ceases to serve
/// something: a resource that was not there is then asked for at once.
pub(crate) async fn run_with(
    api: ApiServer,
    watched: WatchedCollection,
    sink: impl Sink,
    metrics: WatchMetrics,
    mut served: watch::Receiver<()>,
    mut control: Control,
) {
    let machine = Machine::new(watched.left_at.clone());
    control.stale_after = control.stale_after.max(STALE_AFTER_MIN);
    control.relist.mark_unchanged();
    let mut reflector = Reflector {
        api,
        watched,
        sink,
        metrics,
        machine,
        control,
        heard_at: Instant::now(),
        forbidden_check: ForbiddenCheck::default(),
        ahead: None,
    };
    loop {
        if reflector.control.relist.has_changed().unwrap_or_default() {
            reflector.control.relist.mark_unchanged();
            reflector.step(Input::Relist).await;
        }
        match reflector.machine.command() {
            ReflectorCommand::Wait { wait, absent } => {
                served.mark_unchanged();
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    Ok(()) = served.changed(), if absent => {}
                }
                reflector.step(Input::Waited).await;
            }
            ReflectorCommand::List { token, limit } => reflector.list(token, limit).await,
            ReflectorCommand::Probe => reflector.list(None, 1).await,
            ReflectorCommand::Watch { .. } if !reflector.sink.wants_watch() => {
                if reflector.control.relist.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                reflector.step(Input::Relist).await;
            }
            ReflectorCommand::Watch { .. } if reflector.is_quiet() => {
                reflector.step(Input::Relist).await;
            }
            ReflectorCommand::Watch { from } => reflector.watch(&from).await,
        }
    }
}

struct Reflector<S> {
    api: ApiServer,
    watched: WatchedCollection,
    sink: S,
    metrics: WatchMetrics,
    machine: Machine,
    control: Control,
    /// The time of the source's last news.
    heard_at: Instant,
    forbidden_check: ForbiddenCheck,
    ahead: Option<Ahead>,
}

/// A page that is requested ahead of its use. Dropping it cancels the request.
struct Ahead {
    path: String,
    page: AbortOnDropHandle<Result<HeldPage, Fault>>,
}

/// A page, with its permit.
type HeldPage = (Page, PagePermit);

/// Returns the shortest and the longest time for which a quiet watch stays open. A view's news may be as old as its
/// watch, and the rest of `stale_after` is how long an outage may last without a refusal. So few watches are opened
/// anew after a tenth of `stale_after`. With many watches the time is longer, so that five are opened in a second,
/// but it is 0.4 of `stale_after` at most. The time is drawn at random, so that watches that began together do not
/// end together.
fn lives(stale_after: Duration, watches: usize) -> Range<Duration> {
    let paced = OPENED_EVERY * u32::try_from(watches).unwrap_or(u32::MAX);
    let least = LIFE_MIN.max(stale_after.mul_f64(0.1));
    let least = paced.clamp(least, stale_after.mul_f64(0.4));
    least..least.mul_f64(1.25)
}

impl<S: Sink> Reflector<S> {
    /// Returns whether watches that were opened again and again have brought no news: then only a list can.
    fn is_quiet(&self) -> bool {
        self.heard_at.elapsed() > self.control.stale_after.mul_f64(0.6)
    }

    async fn list(&mut self, token: Option<String>, limit: u32) {
        let path = paths::list(&self.watched.collection, token.as_deref(), limit);
        let ahead = self.ahead.take().filter(|ahead| ahead.path == path);
        let page = match ahead {
            Some(ahead) => ahead
                .page
                .await
                .unwrap_or_else(|e| Err(Fault::transport(e))),
            None => fetch(self.api.clone(), self.gvr(), path, self.accept()).await,
        };
        let page = match page {
            Ok(page) => page,
            Err(fault) => return self.fail(fault).await,
        };
        // The next list has the place once the objects are delivered.
        let (page, _place) = page;
        let Page {
            version,
            next,
            objects,
        } = page;
        let complete = next.is_none();
        let mut objects = Some(objects);
        let input = Input::Page {
            version: version.clone(),
            next,
        };
        let effects = self.machine.step(input, rand::random());
        self.ask_ahead();
        for effect in effects {
            match effect {
                ReflectorEffect::Begin { afresh } => {
                    let version = version.clone();
                    self.sink.note(Note::Begin { afresh, version }).await;
                }
                ReflectorEffect::Deliver => self.deliver(objects.take().unwrap_or_default()).await,
                effect => self.apply_effect(effect).await,
            }
        }
        self.forbidden_check.allowed();
        if complete && limit > 1 {
            self.heard_at = Instant::now();
        }
    }

    async fn deliver(&mut self, objects: Vec<Result<RawObject, Malformed>>) {
        for object in objects {
            match object {
                Ok(object) => {
                    let origin = Origin::List;
                    self.sink.note(Note::Put { object, origin }).await;
                }
                Err(malformed) => self.skip(&malformed.0).await,
            }
        }
    }

    /// Asks for the page that comes next, if there is one: the API server makes it while the objects of
    /// the page before are handed on.
    fn ask_ahead(&mut self) {
        if let ReflectorCommand::List {
            token: Some(token),
            limit,
        } = self.machine.command()
        {
            let path = paths::list(&self.watched.collection, Some(&token), limit);
            let page = fetch(self.api.clone(), self.gvr(), path.clone(), self.accept());
            let page = AbortOnDropHandle::new(tokio::spawn(page));
            self.ahead = Some(Ahead { path, page });
        }
    }

    fn gvr(&self) -> GroupVersionResource {
        self.watched.collection.gvr.clone()
    }

    /// The options with which a page is asked for.
    fn accept(&self) -> &'static str {
        match self.watched.metadata_only {
            true => METADATA_LIST,
            false => JSON,
        }
    }

    async fn watch(&mut self, from: &ResourceVersion) {
        let stale_after = self.control.stale_after;
        let lives = lives(stale_after, self.metrics.open_count());
        let seconds = rand::random_range(lives).as_secs();
        let path = paths::watch(&self.watched.collection, from, seconds);
        let accept = if self.watched.metadata_only {
            METADATA
        } else {
            JSON
        };
        let mut lines = match self.api.watch(&path, accept, LINE_BYTES_MAX).await {
            Ok(lines) => lines,
            Err(fault) => return self.fail(fault).await,
        };
        self.forbidden_check.allowed();
        let _open = self.metrics.open();
        let opened = Instant::now();
        let life_max = Duration::from_secs(seconds) + stale_after / 12;
        self.step(Input::Opened).await;
        while matches!(self.machine.command(), ReflectorCommand::Watch { .. }) {
            let open_for = life_max.saturating_sub(opened.elapsed());
            let line = tokio::select! {
                line = tokio::time::timeout(open_for, lines.next()) => line,
                Ok(()) = self.control.relist.changed() => {
                    return self.step(Input::Relist).await;
                }
            };
            let outcome = match line {
                Err(_) => Err(Fault::Silent { after: life_max }),
                Ok(None) => {
                    return self
                        .step(Input::Ended {
                            lived: opened.elapsed(),
                        })
                        .await;
                }
                Ok(Some(Err(fault))) => Err(fault),
                Ok(Some(Ok(Line::TooLong))) => Err(Fault::unreadable(format!(
                    "an event over {LINE_BYTES_MAX} bytes"
                ))),
                Ok(Some(Ok(Line::Text(line)))) => match parse::event(&line) {
                    Ok(event) => self.event(event).await,
                    Err(fault) => Err(fault),
                },
            };
            if let Err(fault) = outcome {
                return self.fail(fault).await;
            }
        }
    }

    async fn event(&mut self, event: WatchEvent) -> Result<(), Fault> {
        let (gone, object) = match event {
            WatchEvent::Failed(fault) => return Err(fault),
            WatchEvent::Bookmark(version) => {
                let bookmark = version.clone();
                if self.goes_on(Input::Bookmark { version: bookmark }).await {
                    self.heard(Some(version)).await;
                }
                return Ok(());
            }
            WatchEvent::Put(object) => (false, object),
            WatchEvent::Gone(object) => (true, object),
        };
        self.metrics.event();
        match object {
            Ok(object) => self.change(object, gone).await,
            Err(malformed) => {
                self.skip(&malformed.0).await;
                self.goes_on(Input::Heard { version: None }).await;
                self.heard(None).await;
            }
        }
        Ok(())
    }

    async fn change(&mut self, object: RawObject, gone: bool) {
        let version = Some(object.version.clone());
        if !self.goes_on(Input::Heard { version }).await {
            return; // Of another history: the list brings it.
        }
        let span = tracing::info_span!(
            "watch event",
            otel.kind = "consumer",
            resource = %self.watched.collection.gvr,
            key = %object.key,
            version = %object.version,
            gone,
        );
        let RawObject { key, version, .. } = object.clone();
        let heard = Some(version.clone()).filter(machine::is_of_the_source);
        let event = span.clone();
        let note = if gone {
            Note::Gone {
                key,
                version,
                span: event,
            }
        } else {
            let origin = Origin::Event(event);
            Note::Put { object, origin }
        };
        self.sink.note(note).instrument(span).await;
        self.heard(heard).await;
    }

    /// Returns whether the watch goes on after it brought this.
    async fn goes_on(&mut self, input: Input) -> bool {
        self.step(input).await;
        matches!(self.machine.command(), ReflectorCommand::Watch { .. })
    }

    /// Called only after the news was passed on: a view must not seem newer than it is.
    async fn heard(&mut self, version: Option<ResourceVersion>) {
        self.heard_at = Instant::now();
        self.sink.note(Note::Heard { version }).await;
    }

    /// An object without a name can be neither asked for nor missed.
    async fn skip(&mut self, problem: &str) {
        self.metrics.malformed();
        tracing::warn!(
            resource = %self.watched.collection.gvr,
            problem,
            "malformed object of the API server left out"
        );
        self.sink.note(Note::Skipped).await;
    }

    async fn fail(&mut self, fault: Fault) {
        self.metrics.error(fault.code());
        let fault = match &fault {
            Fault::Refused { code: 403, .. } if !self.forbidden_check.is_over() => {
                self.check_refusal(fault).await
            }
            Fault::Refused { .. } => fault,
            _ => {
                self.forbidden_check.interrupted();
                fault
            }
        };
        tracing::warn!(
            resource = %self.watched.collection.gvr,
            %fault,
            "list or watch failed: tried again; check the API server"
        );
        self.step(Input::Failed(fault)).await;
    }

    /// Handles a refusal, which may come from an API server that has not read its rules yet.
    async fn check_refusal(&mut self, fault: Fault) -> Fault {
        let said = self.api.readiness().await;
        let verdict = self.forbidden_check.judge(said, Instant::now());
        let fault = match verdict {
            RefusalVerdict::AskAgain => match self.ask_again().await {
                Err(fault @ Fault::Refused { .. }) => fault,
                Err(other) => return other,
                Ok(()) => return not_ready(&fault),
            },
            RefusalVerdict::Confirmed => fault,
            RefusalVerdict::Unconfirmed => return not_ready(&fault),
        };
        self.forbidden_check.confirm();
        fault
    }

    /// Repeats the request that failed, for the metadata of one object at most, and drops the answer.
    async fn ask_again(&self) -> Result<(), Fault> {
        let WatchedCollection { collection, .. } = &self.watched;
        if let ReflectorCommand::Watch { from } = self.machine.command() {
            let path = paths::watch(collection, &from, 1);
            return self
                .api
                .watch(&path, METADATA, LINE_BYTES_MAX)
                .await
                .map(drop);
        }
        let path = paths::list(collection, None, 1);
        let bytes = self.api.get_as(&path, METADATA_LIST, PAGE_BYTES_MAX).await;
        bytes.map(drop)
    }

    async fn step(&mut self, input: Input) {
        for effect in self.machine.step(input, rand::random()) {
            self.apply_effect(effect).await;
        }
    }

    async fn apply_effect(&mut self, effect: ReflectorEffect) {
        let note = match effect {
            ReflectorEffect::Listed(version) => {
                self.metrics.listed();
                Note::Listed { version }
            }
            ReflectorEffect::Refused(failure) => Note::Refused(failure),
            ReflectorEffect::Troubled(failure) => Note::Troubled(failure),
            ReflectorEffect::Begin { .. } | ReflectorEffect::Deliver => return, // Only a page does that.
        };
        self.sink.note(note).await;
    }
}

/// A refusal by an API server that is not ready says nothing of rights.
fn not_ready(refused: &Fault) -> Fault {
    Fault::Server {
        code: 403,
        message: format!("{refused}. It is not ready itself"),
    }
}

/// Reads one page of a list, once there is room for it.
async fn fetch(
    api: ApiServer,
    gvr: GroupVersionResource,
    path: String,
    accept: &'static str,
) -> Result<HeldPage, Fault> {
    let permit = api.page_permit(&gvr).await?;
    let bytes = api.get_page(&path, accept, PAGE_BYTES_MAX).await?;
    Ok((parse::page(&bytes)?, permit))
}

#[cfg(test)]
mod tests;

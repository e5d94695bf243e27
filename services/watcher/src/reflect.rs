//! Keeps up with one collection of the API server, for ever: lists it, watches it, and tells a
//! [`Sink`] what it hears. What to do when is [`machine`]'s to say; this does it.

mod machine;
mod parse;
mod paths;

use std::time::{Duration, Instant};

use anteroom_model::{Collection, Failure, ObjectKey, ResourceVersion, limits::OBJECT_BYTES_MAX};
use async_trait::async_trait;
use tokio::sync::watch;
use tracing::{Instrument as _, Span};

use crate::{
    apiserver::{ApiServer, Fault, Line},
    metrics::WatchMetrics,
};
use machine::{Command, Effect, Input, Machine};
use parse::WatchEvent;

pub(crate) use parse::{RawObject, content_version};

/// The largest page that is read at once; a larger one is asked for in halves.
const PAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The longest line of a watch. An object's JSON, managed fields included, is longer than its body.
/// A longer line is skipped, and the collection is listed again to learn what it was.
const LINE_BYTES_MAX: usize = 2 * OBJECT_BYTES_MAX;

/// How long the API server is asked to keep a watch open, in seconds, drawn anew each time so that
/// watches that began together do not end together.
const WATCH_SECONDS: std::ops::Range<u64> = 45..54;

/// How much later than asked for a watch may end before it is taken for dead. With
/// [`WATCH_SECONDS`], a watch that went silent is noticed within 60 s.
const WATCH_GRACE: Duration = Duration::from_secs(5);

const JSON: &str = "application/json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// What is kept up with, and as what.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The collection.
    pub collection: Collection,
    /// The version at which it was left before, if that is known.
    pub left_at: ResourceVersion,
    /// Only the metadata of its objects is wanted.
    pub metadata_only: bool,
}

/// What a reflector hears, in order.
#[derive(Debug)]
pub(crate) enum Note {
    /// A list begins.
    Begin {
        /// The source's history restarted: a version known from before says nothing now.
        afresh: bool,
    },
    /// The object is now this.
    Put {
        /// The object.
        object: RawObject,
        /// The span of the event; disabled for an object of a list.
        span: Span,
    },
    /// The object is gone.
    Gone {
        /// Which.
        key: ObjectKey,
        /// The version of its going.
        version: ResourceVersion,
        /// The span of the event.
        span: Span,
    },
    /// An object that cannot even be named was passed over.
    Skipped,
    /// The list is complete: what it did not have is gone.
    Listed {
        /// The collection's version.
        version: ResourceVersion,
    },
    /// The source was heard from.
    Heard {
        /// The collection's version, if one was said.
        version: Option<ResourceVersion>,
    },
    /// The source cannot be read.
    Refused(Failure),
    /// The source cannot be heard right now.
    Troubled(Failure),
}

/// Whoever keeps the objects.
#[async_trait]
pub(crate) trait Sink: Send {
    /// Takes a note. Waiting here makes the API server wait.
    async fn note(&mut self, note: Note);
}

/// Runs until it is dropped. `served` changes whenever the API server begins or ceases to serve
/// something: a resource that was not there is then asked for at once.
pub(crate) async fn run(
    api: ApiServer,
    target: Target,
    sink: impl Sink,
    metrics: WatchMetrics,
    mut served: watch::Receiver<()>,
) {
    let machine = Machine::new(target.left_at.clone());
    let mut reflector = Reflector {
        api,
        target,
        sink,
        metrics,
        machine,
    };
    loop {
        match reflector.machine.command() {
            Command::Wait { wait, absent } => {
                served.mark_unchanged();
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    Ok(()) = served.changed(), if absent => {}
                }
                reflector.step(Input::Waited).await;
            }
            Command::List { token, limit } => reflector.list(token, limit).await,
            Command::Probe => reflector.list(None, 1).await,
            Command::Watch { from } => reflector.watch(&from).await,
        }
    }
}

struct Reflector<S> {
    api: ApiServer,
    target: Target,
    sink: S,
    metrics: WatchMetrics,
    machine: Machine,
}

impl<S: Sink> Reflector<S> {
    async fn list(&mut self, token: Option<String>, limit: u32) {
        let path = paths::list(&self.target.collection, token.as_deref(), limit);
        let accept = if self.target.metadata_only {
            METADATA_LIST
        } else {
            JSON
        };
        let bytes = self.api.get_as(&path, accept, PAGE_BYTES_MAX).await;
        let page = match bytes.and_then(|bytes| parse::page(&bytes)) {
            Ok(page) => page,
            Err(fault) => return self.fail(fault).await,
        };
        let input = Input::Page {
            version: page.version.clone(),
            next: page.next,
        };
        let mut objects = Some(page.objects);
        for effect in self.machine.step(input, rand::random()) {
            if effect == Effect::Deliver {
                for object in objects.take().into_iter().flatten() {
                    match object {
                        Ok(object) => {
                            let span = Span::none();
                            self.sink.note(Note::Put { object, span }).await;
                        }
                        Err(malformed) => self.skip(&malformed.0).await,
                    }
                }
            } else {
                self.tell(effect).await;
            }
        }
    }

    async fn watch(&mut self, from: &ResourceVersion) {
        let seconds = rand::random_range(WATCH_SECONDS);
        let path = paths::watch(&self.target.collection, from, seconds);
        let accept = if self.target.metadata_only {
            METADATA
        } else {
            JSON
        };
        let mut lines = match self.api.watch(&path, accept, LINE_BYTES_MAX).await {
            Ok(lines) => lines,
            Err(fault) => return self.fail(fault).await,
        };
        let _open = self.metrics.open();
        let opened = Instant::now();
        let life_max = Duration::from_secs(seconds) + WATCH_GRACE;
        self.step(Input::Opened).await;
        while matches!(self.machine.command(), Command::Watch { .. }) {
            let left = life_max.saturating_sub(opened.elapsed());
            let outcome = match tokio::time::timeout(left, lines.next()).await {
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
                if self.goes_on_at(Some(&version)).await {
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
                self.goes_on_at(None).await;
                self.heard(None).await;
            }
        }
        Ok(())
    }

    async fn change(&mut self, object: RawObject, gone: bool) {
        if !self.goes_on_at(Some(&object.version)).await {
            return; // Of another history: the list brings it.
        }
        let span = tracing::info_span!(
            "watch event",
            otel.kind = "consumer",
            resource = %self.target.collection.gvr,
            key = %object.key,
            version = %object.version,
            gone,
        );
        let RawObject { key, version, .. } = object.clone();
        let heard = Some(version.clone());
        let event = span.clone();
        let note = if gone {
            Note::Gone {
                key,
                version,
                span: event,
            }
        } else {
            Note::Put {
                object,
                span: event,
            }
        };
        self.sink.note(note).instrument(span).await;
        self.heard(heard).await;
    }

    /// Whether the watch goes on after it brought this version.
    async fn goes_on_at(&mut self, version: Option<&ResourceVersion>) -> bool {
        let version = version.cloned();
        self.step(Input::Heard { version }).await;
        matches!(self.machine.command(), Command::Watch { .. })
    }

    /// Only after what was heard was handed on: a view must not seem newer than it is.
    async fn heard(&mut self, version: Option<ResourceVersion>) {
        self.sink.note(Note::Heard { version }).await;
    }

    /// An object without a name can be neither asked for nor missed.
    async fn skip(&mut self, problem: &str) {
        self.metrics.malformed();
        tracing::warn!(resource = %self.target.collection.gvr, problem, "malformed object skipped");
        self.sink.note(Note::Skipped).await;
    }

    async fn fail(&mut self, fault: Fault) {
        self.metrics.error(fault.code());
        tracing::warn!(resource = %self.target.collection.gvr, %fault, "list or watch failed");
        self.step(Input::Failed(fault)).await;
    }

    async fn step(&mut self, input: Input) {
        for effect in self.machine.step(input, rand::random()) {
            self.tell(effect).await;
        }
    }

    async fn tell(&mut self, effect: Effect) {
        let note = match effect {
            Effect::Begin { afresh } => Note::Begin { afresh },
            Effect::Listed(version) => {
                self.metrics.listed();
                Note::Listed { version }
            }
            Effect::Refused(failure) => Note::Refused(failure),
            Effect::Troubled(failure) => Note::Troubled(failure),
            Effect::Deliver => return, // Only a page delivers.
        };
        self.sink.note(note).await;
    }
}

#[cfg(test)]
mod tests;

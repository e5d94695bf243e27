//! The watches of one group: from the views that are wanted and the objects that are referenced to
//! what the log has of them.

use std::{collections::HashMap, time::Duration};

use anteroom_model::{ObjectKey, ObjectReference, Source, ViewId, WantedView};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use crate::{
    apiserver::ApiServer,
    left::Left,
    metrics::WatcherMetrics,
    publish::Publisher,
    reflect::{self, Target},
    sinks::ViewSink,
};

/// What a feeder works with.
#[derive(Clone)]
pub(crate) struct FeedTools {
    /// Reads.
    pub api: ApiServer,
    /// Writes the log.
    pub publisher: Publisher,
    /// Counts.
    pub metrics: WatcherMetrics,
    /// Changes whenever the API server begins or ceases to serve something.
    pub served: watch::Sender<()>,
    /// How it works.
    pub options: FeedOptions,
}

/// How a feeder works, as the command line has it.
#[derive(Clone, Debug)]
pub(crate) struct FeedOptions {
    /// `--stale-after`: a watch that was silent for so long is taken for dead.
    pub stale_after: Duration,
    /// `--reference-idle-after`: an object that is watched by itself and that nobody read for so
    /// long is no longer watched.
    pub reference_idle_after: Duration,
    /// `--memory-limit`: bytes that what is kept of all views may take; `None`: there is no limit.
    pub memory_bytes_max: Option<u64>,
}

impl Default for FeedOptions {
    fn default() -> Self {
        Self {
            stale_after: Duration::from_secs(60),
            reference_idle_after: Duration::from_secs(10 * 60),
            memory_bytes_max: None,
        }
    }
}

/// Runs the watches of one group for one term. Every method but [`Feeder::drive`] only notes what
/// is wanted; work is done while `drive` is awaited.
pub(crate) struct Feeder {
    tools: FeedTools,
    /// What the log has of views that were not started in this term.
    left: Left,
    watches: JoinSet<()>,
    running: HashMap<ViewId, AbortHandle>,
}

impl Feeder {
    /// At the start of a term, with what the log has of the group.
    pub(crate) fn new(tools: FeedTools, left: Left) -> Self {
        Self {
            tools,
            left,
            watches: JoinSet::new(),
            running: HashMap::new(),
        }
    }

    /// The view is wanted, or what is asked of it changed.
    pub(crate) fn want(&mut self, view: ViewId, wanted: WantedView) {
        if self.running.contains_key(&view) {
            return;
        }
        let Source::Collection(collection) = wanted.info.source.clone() else {
            return;
        };
        let left = self.left.take(&view);
        tracing::info!(%view, known = left.objects.len(), "view started");
        let FeedTools {
            api,
            publisher,
            metrics,
            served,
            ..
        } = &self.tools;
        let tenure = publisher.with(|book| {
            left.unpurged
                .into_iter()
                .for_each(|record| book.free(record));
            book.open(wanted.info.clone(), left.objects)
        });
        let metrics = metrics.of_watch(&view);
        let sink = ViewSink::new(publisher.clone(), tenure, wanted.info, metrics.clone());
        let target = Target {
            collection,
            left_at: left.version,
            metadata_only: false,
        };
        let watch = reflect::run(api.clone(), target, sink, metrics, served.subscribe());
        self.running.insert(view, self.watches.spawn(watch));
    }

    /// The view is not wanted any more.
    pub(crate) fn unwant(&mut self, view: &ViewId) {
        let Some(watch) = self.running.remove(view) else {
            return;
        };
        tracing::info!(%view, "view stopped: nobody needs it any more");
        watch.abort();
        self.tools.publisher.with(|book| book.close(view));
        self.tools.metrics.forget(view);
    }

    /// The object is referenced. Its view is wanted too, before or after.
    pub(crate) fn refer(&mut self, _reference: ObjectReference) {}

    /// The object is not referenced any more.
    pub(crate) fn unrefer(&mut self, _reference: &ObjectReference) {}

    /// A reader asked for a referenced object that is idle.
    pub(crate) fn asked(&mut self, _view: &ViewId, _object: &ObjectKey) {}

    /// A referenced object was read.
    pub(crate) fn read(&mut self, _view: &ViewId, _object: &ObjectKey) {}

    /// All that is wanted is known: what the log has of other views is freed.
    pub(crate) fn settled(&mut self) {
        for record in self.left.drain() {
            tracing::info!(view = %record.view, "view of an earlier term freed: nobody needs it");
            self.tools.publisher.with(|book| book.free(record));
        }
    }

    /// Works for ever; returns only when a part of it ended that should not have, which ends the
    /// term. Dropping the future loses nothing.
    pub(crate) async fn drive(&mut self) -> anyhow::Error {
        loop {
            match self.watches.join_next().await {
                Some(Err(stopped)) if stopped.is_cancelled() => {}
                Some(Err(panic)) => return anyhow::anyhow!("a watch panicked: {panic}"),
                Some(Ok(())) => return anyhow::anyhow!("a watch ended by itself"),
                None => std::future::pending().await,
            }
        }
    }
}

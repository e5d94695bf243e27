//! The start of a type's watches, and of the lists beside them.

use std::sync::Arc;

use anteroom_model::{GroupVersionResource, ResourceVersion, Source};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use super::{Done, TypeFeed};
use crate::{
    feeds::{
        FeedTools,
        join::{Join, Joining},
        plan::WatchScope,
        running_watch::RunningWatch,
        shared_hub::SharedHub,
        sink::WatchSink,
    },
    source::reflect::{self, Control, WatchedCollection},
};

/// The parts of a type and of its feeder that a watch is started with.
pub(super) struct WatchContext<'a> {
    gvr: &'a GroupVersionResource,
    kind: &'a str,
    inherited_version: &'a ResourceVersion,
    hub: &'a SharedHub,
    tools: &'a FeedTools,
    planned: &'a Arc<Notify>,
}

impl TypeFeed {
    pub(super) fn watch_context<'a>(
        &'a self,
        tools: &'a FeedTools,
        planned: &'a Arc<Notify>,
    ) -> WatchContext<'a> {
        WatchContext {
            gvr: &self.gvr,
            kind: &self.kind,
            inherited_version: &self.inherited_version,
            hub: &self.hub,
            tools,
            planned,
        }
    }
}

impl WatchContext<'_> {
    /// Starts a watch.
    pub(super) fn start(&self, scope: &WatchScope, tasks: &mut JoinSet<Done>) -> RunningWatch {
        let sink = self.sink(scope);
        let metrics = sink.metrics.clone();
        let watched = WatchedCollection {
            collection: scope.collection(self.gvr).canonical(),
            left_at: self.inherited_version.clone(),
            metadata_only: false,
        };
        let (relist, asked) = watch::channel(0);
        let control = Control {
            relist: asked,
            stale_after: self.tools.options.stale_after,
        };
        let served = self.tools.served.subscribe();
        let view = Source::Collection(watched.collection.clone()).view_id();
        let api = self.tools.api.clone();
        let run = reflect::run_with(api, watched, sink, metrics, served, control);
        let stop = tasks.spawn(async move {
            run.await;
            Done::Watched(view)
        });
        RunningWatch::new(relist, stop)
    }

    /// Starts these lists, each beside its watch.
    pub(super) fn join(&self, joining: Vec<(WatchScope, Joining)>, tasks: &mut JoinSet<Done>) {
        for (scope, joining) in joining {
            let join = Join {
                api: self.tools.api.clone(),
                gvr: self.gvr.clone(),
                sink: self.sink(&scope),
            };
            let gvr = self.gvr.clone();
            tasks.spawn(async move {
                join.run(joining).await;
                Done::Joined(gvr)
            });
        }
    }

    fn sink(&self, scope: &WatchScope) -> WatchSink {
        let collection = scope.collection(self.gvr).canonical();
        let view = Source::Collection(collection).view_id();
        WatchSink {
            scope: scope.clone(),
            hub: self.hub.clone(),
            keys: self.tools.options.keys.clone(),
            metrics: self.tools.source_metrics.of_watch(&view),
            api_version: self.gvr.api_version(),
            kind: self.kind.to_owned(),
            planned: Arc::clone(self.planned),
        }
    }
}

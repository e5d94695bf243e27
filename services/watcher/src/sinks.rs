//! Who listens to a reflector: a view, the controller, or the discovery.

use std::{sync::Arc, time::Instant};

use anteroom_model::SourceInfo;
use async_trait::async_trait;
use tokio::sync::{Notify, mpsc};
use tracing::Span;

use crate::{
    metrics::WatchMetrics,
    prune,
    publish::{Publisher, Tenure},
    reflect::{Note, RawObject, Sink},
};

/// Publishes a collection as a view.
pub(crate) struct ViewSink {
    publisher: Publisher,
    tenure: Tenure,
    info: SourceInfo,
    api_version: String,
    metrics: WatchMetrics,
}

impl ViewSink {
    /// For the view that `tenure` was opened for.
    pub(crate) fn new(
        publisher: Publisher,
        tenure: Tenure,
        info: SourceInfo,
        metrics: WatchMetrics,
    ) -> Self {
        let api_version = info.gvr().map(|gvr| gvr.api_version()).unwrap_or_default();
        Self {
            publisher,
            tenure,
            info,
            api_version,
            metrics,
        }
    }

    async fn put(&mut self, object: RawObject, event: Span) {
        let RawObject { key, version, json } = object;
        if self
            .publisher
            .with(|book| book.is_known(&self.tenure, &key, &version))
        {
            return;
        }
        self.publisher.room().await;
        match prune::body(&json, &self.api_version, &self.info.kind) {
            Ok(body) => {
                let span = self.publish_span(&event);
                let now = Instant::now();
                self.publisher
                    .with(|book| book.put(&self.tenure, key, version, body, now, span));
            }
            Err(error) => {
                self.metrics.malformed();
                tracing::error!(view = %self.tenure.view, %key, %error, "object cannot be published");
                let problem = error.to_string();
                self.publisher
                    .with(|book| book.unusable(&self.tenure, key, problem));
            }
        }
    }

    /// From the event until its change is in the log. Objects of a list have none: there are
    /// thousands of them, and nobody waits for one.
    fn publish_span(&self, event: &Span) -> Span {
        if event.is_none() {
            return Span::none();
        }
        let view = &self.tenure.view;
        tracing::info_span!(parent: event, "publish", otel.kind = "producer", %view)
    }
}

#[async_trait]
impl Sink for ViewSink {
    async fn note(&mut self, note: Note) {
        let now = Instant::now();
        match note {
            Note::Put { object, span } => self.put(object, span).await,
            Note::Gone { key, version, span } => {
                let span = self.publish_span(&span);
                self.publisher
                    .with(|book| book.delete(&self.tenure, &key, version, now, span));
            }
            Note::Begin { afresh } => {
                let tenure = &mut self.tenure;
                self.publisher.with(|book| book.begin_list(tenure, afresh));
            }
            Note::Skipped => self.publisher.with(|book| book.skipped(&self.tenure)),
            Note::Listed { version } => {
                self.publisher
                    .with(|book| book.listed(&self.tenure, &version, now));
            }
            Note::Heard { version } => {
                self.publisher
                    .with(|book| book.heard(&self.tenure, version, now));
            }
            Note::Refused(failure) => {
                self.publisher
                    .with(|book| book.refused(&self.tenure, failure));
            }
            Note::Troubled(failure) => {
                self.publisher
                    .with(|book| book.troubled(&self.tenure, failure));
            }
        }
    }
}

/// Passes everything on, with whose it is.
pub(crate) struct ForwardSink<T> {
    /// Whose.
    pub of: T,
    /// To whom. When nobody takes it any more, it is dropped: the term has ended.
    pub to: mpsc::Sender<(T, Note)>,
}

#[async_trait]
impl<T: Copy + Send + Sync + 'static> Sink for ForwardSink<T> {
    async fn note(&mut self, note: Note) {
        let _ = self.to.send((self.of, note)).await;
    }
}

/// Says only that something changed.
pub(crate) struct NudgeSink(pub Arc<Notify>);

#[async_trait]
impl Sink for NudgeSink {
    async fn note(&mut self, note: Note) {
        if matches!(
            note,
            Note::Put { .. } | Note::Gone { .. } | Note::Listed { .. }
        ) {
            self.0.notify_one();
        }
    }
}

//! Holding some of the views' answers to API calls against the API server's own.
//!
//! A live answer may be newer than the view's, so a difference counts only if it lasts. A moment later the view still
//! differs from the live answer, and a second read of both differs too.

use std::{sync::Arc, time::Duration};

use anteroom_model::{FactError, Revision};
use anteroom_wire::live::LiveCall;
use serde_json::{Map, Value};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    live::Live,
    route::{LiveRead, ViewRead},
    views::{Question, Views},
};
use crate::{
    recorder::{AuditResult, SharedRecorder},
    rule::RuleRef,
};

/// Comparisons at once. One more is skipped, and counted as such.
const AUDITS_MAX: usize = 8;

/// The longest time for one read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time for a view to catch up with a live read.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Written by `kubectl apply`; views do not hold it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Compares a sample. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Audit {
    views: Views,
    live: Live,
    recorder: SharedRecorder,
    ratio: f64,
    permits: Arc<Semaphore>,
}

/// An answer of a view, with the question that it answers.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) reader: RuleRef,
    pub(super) review_namespace: String,
    pub(super) variable: String,
    pub(super) view: ViewRead,
    pub(super) live: LiveRead,
    pub(super) answer: Result<Value, FactError>,
    pub(super) revision: Revision,
}

/// One side of a comparison: a result, or the absence of the object.
#[derive(Debug, PartialEq)]
enum ComparedAnswer {
    Value(Value),
    Absent,
}

impl ComparedAnswer {
    /// `None`: an error, which says nothing of the data.
    fn of(answer: Result<Value, FactError>) -> Option<Self> {
        match answer {
            Ok(value) => Some(Self::Value(as_kept(value))),
            Err(error) => error.class().subject.is_absence().then_some(Self::Absent),
        }
    }
}

impl Audit {
    pub(super) fn new(views: Views, live: Live, recorder: SharedRecorder, ratio: f64) -> Self {
        Self {
            views,
            live,
            recorder,
            ratio,
            permits: Arc::new(Semaphore::new(AUDITS_MAX)),
        }
    }

    /// Compares a random sample of the answers, in the background. An answer that is large is skipped: there is no memory
    /// for copies of it.
    pub(super) fn consider(&self, is_large: bool, sample: impl FnOnce() -> Sample) {
        if self.ratio <= 0.0 || rand::random::<f64>() >= self.ratio {
            return;
        }
        if is_large {
            self.recorder.audit(AuditResult::Skipped);
            return;
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.recorder.audit(AuditResult::Skipped);
            return;
        };
        let sample = sample();
        let Some(by_view) = ComparedAnswer::of(sample.answer.clone()) else {
            return;
        };
        let this = self.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let result = this.compare(&sample, by_view).await;
            this.recorder.audit(result);
            this.log(&sample, result);
        });
    }

    async fn compare(&self, sample: &Sample, by_view: ComparedAnswer) -> AuditResult {
        let Some(live) = self.read_live(sample).await else {
            return AuditResult::Error;
        };
        if by_view == live {
            return AuditResult::Same;
        }
        let moved_on = self.catch_up(sample, &live).await;
        match moved_on {
            None => AuditResult::Error,
            Some(by_view) if by_view == live => AuditResult::Same,
            Some(by_view) => match self.read_live(sample).await {
                None => AuditResult::Error,
                Some(live) if by_view == live => AuditResult::Same,
                Some(_) => AuditResult::Different,
            },
        }
    }

    /// Returns the view's answer once it is the same, or after a while.
    async fn catch_up(&self, sample: &Sample, live: &ComparedAnswer) -> Option<ComparedAnswer> {
        const PAUSE: Duration = Duration::from_millis(100);
        let until = Instant::now() + CATCH_UP;
        loop {
            tokio::time::sleep(PAUSE).await;
            let by_view = self.read_view(sample).await?;
            if by_view == *live || Instant::now() >= until {
                return Some(by_view);
            }
        }
    }

    async fn read_view(&self, sample: &Sample) -> Option<ComparedAnswer> {
        let question = Question::single(&sample.view, &sample.reader, &sample.review_namespace);
        let deadline = Instant::now() + READ_TIMEOUT;
        let answer = self.views.ask(question, deadline, false).await.ok()?;
        let answer = self.views.read(answer, None, deadline).await.ok()?;
        ComparedAnswer::of(answer.results.into_iter().next()?)
    }

    async fn read_live(&self, sample: &Sample) -> Option<ComparedAnswer> {
        let deadline = Instant::now() + READ_TIMEOUT;
        let live = sample.live.clone();
        let read = self
            .live
            .read(&sample.reader, &sample.variable, live, deadline);
        ComparedAnswer::of(read.await.map(|(value, _)| value))
    }

    /// Logs the result of a comparison, with the place of the read and without values.
    fn log(&self, sample: &Sample, result: AuditResult) {
        let LiveCall::Api { path, .. } = &sample.live.call else {
            return;
        };
        let Sample {
            reader, variable, ..
        } = sample;
        if result == AuditResult::Different {
            tracing::error!(
                policy = %reader.policy,
                rule = reader.rule,
                variable,
                path,
                view = %sample.view.view,
                revision = sample.revision.0,
                "answer of a view differs from the API server's; please report this bug"
            );
        } else {
            tracing::debug!(
                policy = %reader.policy,
                path,
                ?result,
                "answer of a view compared with the API server's"
            );
        }
    }
}

/// Removes the parts that views leave out of objects, and the resource version of a list, which moves with every
/// change anywhere in it.
fn as_kept(mut value: Value) -> Value {
    if let Value::Object(list) = &mut value
        && list.contains_key("items")
    {
        list.remove("metadata");
    }
    prune(&mut value);
    value
}

fn prune(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Object(fields) => {
            prune_metadata(fields);
            fields.values_mut().for_each(prune);
        }
        _ => {}
    }
}

/// Metadata is pruned at any depth, since an expression may have moved the metadata out of its object.
fn prune_metadata(fields: &mut Map<String, Value>) {
    fields.remove("managedFields");
    let emptied = match fields.get_mut("annotations") {
        Some(Value::Object(annotations)) => {
            annotations.remove(LAST_APPLIED);
            annotations.is_empty()
        }
        _ => false,
    };
    if emptied {
        fields.remove("annotations");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_fields_that_views_leave_out_may_differ_in_an_audit() {
        let live = json!({
            "kind": "PodList", "metadata": {"resourceVersion": "7"},
            "items": [{"metadata": {
                "name": "a", "managedFields": [{}], "annotations": {LAST_APPLIED: "{}"},
            }}],
        });
        let kept = |name: &str| {
            json!({
                "kind": "PodList", "metadata": {"resourceVersion": "5"},
                "items": [{"metadata": {"name": name}}],
            })
        };
        assert_eq!(as_kept(live.clone()), as_kept(kept("a")));
        assert_ne!(as_kept(live), as_kept(kept("b")));
        assert_ne!(as_kept(json!([1, 2])), as_kept(json!([2, 1])));
    }

    #[test]
    fn an_absent_object_is_absent_by_either_way_and_an_error_is_neither() {
        let absent = FactError::ObjectNotFound {
            resource: "pods".into(),
            namespace: "a".into(),
            name: "b".into(),
        };
        let live = |code| FactError::LiveReadFailed {
            code,
            message: String::new(),
        };
        assert_eq!(
            ComparedAnswer::of(Err(absent)),
            Some(ComparedAnswer::Absent)
        );
        assert_eq!(
            ComparedAnswer::of(Err(live(404))),
            Some(ComparedAnswer::Absent)
        );
        assert_eq!(ComparedAnswer::of(Err(live(403))), None);
        assert_eq!(
            ComparedAnswer::of(Ok(Value::Null)),
            Some(ComparedAnswer::Value(Value::Null))
        );
    }
}

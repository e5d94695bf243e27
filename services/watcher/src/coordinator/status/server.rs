//! Answers operators who ask how policies and entries are.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus, Incoming, LogSize};
use anteroom_model::Incarnation;
use anteroom_wire::{
    WireError,
    status::{
        LogFaults, MESSAGE_BYTES_MAX, OBJECTS_MAX, ObjectStatus, StatusReply, decode_request,
        encode_reply,
    },
    violation::cut,
};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::writer::{DesiredStatus, StatusOwner};

/// The wait before a failed subscription is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The time for which an encoded answer is given again. A question is a few bytes, and its answer up to 1.6 MB.
const REUSED_MAX: Duration = Duration::from_millis(500);

/// Answers that are sent in a second. Further questions get none.
const ANSWERS_PER_SECOND_MAX: u32 = 20;

/// The statuses of a term as they were found last: also those that a shadow does not write. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statuses(Arc<Mutex<BTreeMap<StatusKey, ObjectStatus>>>);

type StatusKey = (&'static str, String, String);

impl Statuses {
    /// Notes a status.
    pub(crate) fn put(&self, owner: &StatusOwner, desired: &DesiredStatus) {
        let figures = desired.figures.as_ref();
        let status = ObjectStatus {
            kind: owner.kind.to_owned(),
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
            ready: desired.ready.status.to_owned(),
            reason: desired.ready.reason.clone(),
            message: cut(&desired.ready.message, MESSAGE_BYTES_MAX),
            view: figures.and_then(|figures| figures.view.clone()),
        };
        self.0.lock().insert(key(owner), status);
    }

    /// The object is gone.
    pub(crate) fn forget(&self, owner: &StatusOwner) {
        self.0.lock().remove(&key(owner));
    }

    /// Returns the objects, not-ready ones first, and the number of objects left out.
    fn list(&self) -> (Vec<ObjectStatus>, u64) {
        let all = self.0.lock();
        let is_ready = |status: &&ObjectStatus| status.ready == "True";
        let (ready, not_ready): (Vec<_>, Vec<_>) = all.values().partition(is_ready);
        let listed = not_ready.into_iter().chain(ready).take(OBJECTS_MAX);
        let listed: Vec<_> = listed.cloned().collect();
        let left_out = (all.len() - listed.len()) as u64;
        (listed, left_out)
    }
}

fn key(owner: &StatusOwner) -> StatusKey {
    (owner.kind, owner.namespace.clone(), owner.name.clone())
}

/// The parts that answers are made of.
pub(crate) struct StatusServer {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) statuses: Statuses,
    pub(crate) coordinator: String,
    pub(crate) incarnation: Incarnation,
    pub(crate) log_size: watch::Receiver<LogSize>,
    pub(crate) log_faults: watch::Receiver<Option<LogFaults>>,
}

/// The last answer, and the number of times that one was sent lately.
#[derive(Debug, Default)]
struct LastAnswer {
    encoded: Option<(Instant, Bytes)>,
    /// The begin of the present second, and the answers in it.
    second: Option<(Instant, u32)>,
}

impl LastAnswer {
    /// Returns what a question is answered with now, encoded if the last answer is old; `None`: with nothing.
    fn take(&mut self, now: Instant, encode: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let (begun, answers) = match self.second {
            Some((begun, answers)) if now.duration_since(begun) < Duration::from_secs(1) => {
                (begun, answers)
            }
            _ => (now, 0),
        };
        if answers >= ANSWERS_PER_SECOND_MAX {
            return None;
        }
        self.second = Some((begun, answers + 1));
        if let Some((at, body)) = &self.encoded
            && now.duration_since(*at) < REUSED_MAX
        {
            return Some(body.clone());
        }
        let body = encode()?;
        self.encoded = Some((now, body.clone()));
        Some(body)
    }
}

impl StatusServer {
    /// Answers, for ever.
    pub(crate) async fn run(self) {
        let mut last = LastAnswer::default();
        loop {
            match self.bus.serve(&Address::Status).await {
                Ok(mut serving) => {
                    while let Some(call) = serving.next().await {
                        match call {
                            Ok(call) => self.answer(call, &mut last).await,
                            Err(error) => tracing::debug!(
                                %error,
                                "question of an operator not decoded: it gets no answer"
                            ),
                        }
                    }
                }
                Err(error) => tracing::debug!(
                    %error,
                    "address for operators not subscribed yet: tried again"
                ),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn answer(&self, call: Incoming, last: &mut LastAnswer) {
        if decode_request(&call.call.body).is_err() {
            return; // The caller's wait ends by itself.
        }
        let Some(body) = last.take(Instant::now(), || self.encoded()) else {
            return;
        };
        if let Err(error) = call.answer(body).await {
            tracing::debug!(%error, "statuses not sent to the operator who asked");
        }
    }

    fn encoded(&self) -> Option<Bytes> {
        let (objects, left_out) = self.statuses.list();
        let size = *self.log_size.borrow();
        let reply = StatusReply {
            coordinator: self.coordinator.clone(),
            incarnation: self.incarnation.clone(),
            log_bytes: Some(size.bytes),
            log_bytes_max: size.bytes_max,
            objects,
            left_out,
            log_faults: self.log_faults.borrow().clone(),
        };
        let log_error = |error: &WireError| {
            tracing::warn!(
                %error,
                "statuses not encoded: the operator who asked gets no answer; please report this bug"
            );
        };
        encode_reply(&reply).inspect_err(log_error).ok()
    }
}

#[cfg(test)]
mod tests {
    use anteroom_bus::{Call, local::LocalBus};
    use anteroom_model::Failure;
    use anteroom_wire::status::{StatusRequest, decode_reply, encode_request};

    use super::*;
    use crate::coordinator::status::{conditions::Ready, writer::Figures};

    fn owner(name: String) -> StatusOwner {
        StatusOwner {
            api_version: "kyverno.io/v1",
            kind: "ClusterPolicy",
            plural: "clusterpolicies",
            namespace: String::new(),
            name,
            uid: "u".into(),
        }
    }

    fn desired(status: &'static str) -> DesiredStatus {
        DesiredStatus {
            ready: Ready::new(status, Failure::new("Reason", "m".repeat(1_000)), 1),
            figures: None,
            rules: None,
            rules_now: None,
            global: false,
            cel: None,
            conditions: Vec::new(),
            figures_now: Figures::default(),
        }
    }

    #[test]
    fn a_flood_of_questions_costs_few_answers_and_fewer_encodings() {
        let (mut last, begun) = (LastAnswer::default(), Instant::now());
        let mut encodings = 0;
        let mut ask = |ms| {
            let encode = || {
                encodings += 1;
                Some(Bytes::from(encodings.to_string()))
            };
            last.take(begun + Duration::from_millis(ms), encode)
        };
        let answers = (0..1_000).filter_map(|_| ask(0)).count();
        assert_eq!(answers, 20);
        assert_eq!(ask(999), None);
        assert_eq!(ask(1_000).unwrap(), "2");
        assert_eq!(ask(1_499).unwrap(), "2");
        assert_eq!(ask(1_500).unwrap(), "3");
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_is_told_first_of_what_is_not_ready() {
        let bus = LocalBus::new();
        let operator = bus.join();
        let statuses = Statuses::default();
        let faults = LogFaults {
            settings: vec!["discard is Old, and should be New".into()],
            ..LogFaults::default()
        };
        for number in 0..=OBJECTS_MAX {
            statuses.put(&owner(format!("p{number:04}")), &desired("True"));
        }
        statuses.put(&owner("z".into()), &desired("False"));
        statuses.forget(&owner("p0000".into()));
        let server = StatusServer {
            bus: Arc::new(bus),
            statuses,
            coordinator: "w-1".into(),
            incarnation: Incarnation("i".into()),
            log_size: watch::channel(LogSize::default()).1,
            log_faults: watch::channel(Some(faults.clone())).1,
        };
        let serving = tokio::spawn(server.run());
        let call = Call {
            body: encode_request(&StatusRequest {}).unwrap(),
            deadline: RETRY,
            trace: None,
        };
        let reply = loop {
            match operator
                .request(&Address::Status, call.clone(), RETRY)
                .await
            {
                Ok(reply) => break decode_reply(&reply).unwrap(),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        serving.abort();
        assert_eq!((&*reply.coordinator, reply.left_out), ("w-1", 1));
        assert_eq!(reply.log_faults, Some(faults));
        assert_eq!(reply.objects.len(), OBJECTS_MAX);
        let first = &reply.objects[0];
        assert_eq!((&*first.name, &*first.ready), ("z", "False"));
        assert!(first.message.len() <= MESSAGE_BYTES_MAX);
    }
}

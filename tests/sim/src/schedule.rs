//! Runs a schedule: users work, faults come and go, and every answer is judged. At its end everything is mended, and
//! has to be right again within [`SETTLED_AFTER`].

mod faults;
mod settled;
mod told;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{Bus as _, LogEvent, LogScope, local::WitnessedBatch};
use anteroom_load::{Answer, ingress};
use anteroom_model::ViewId;
use anteroom_webhook::Webhook;
use anteroom_wire::envelope::Record;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    ask::{ask, ask_replica},
    cluster::{Cluster, POLICIES, Process},
    judge::{Judge, Owners},
    manifests::{NO_BAD, UNIQUE_HOST, config_map, host_of, name_of, no_bad, unique_host},
    plan::{Fault, Id, Kind, Plan, TimedFault, Work},
    writers::Writers,
};
use told::Told;

const INGRESSES: &str = "ingresses.networking.k8s.io";

/// The time after which everything must be right again once it was mended.
const SETTLED_AFTER: Duration = Duration::from_secs(75);

/// The time between two looks at what is told of policies.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The outcome of a schedule.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) trace: u64,
    pub(crate) violations: Vec<String>,
    pub(crate) decided: u32,
    pub(crate) failed: u32,
    pub(crate) excused: u32,
}

/// Runs a schedule on this thread.
pub(crate) async fn run(
    seed: u64,
    plan: &Plan,
    definitions: &[Value],
    prints: bool,
) -> anyhow::Result<Outcome> {
    let cluster = Cluster::new(seed, definitions)?;
    let mut run = Run {
        judge: Arc::new(Mutex::new(Judge::new(
            prints,
            plan.has(|fault| matches!(fault, Fault::Truncate { .. } | Fault::OtherHistory { .. })),
        ))),
        plan,
        base_version: 0,
        witness: cluster.bus.faults().watch_appends(),
        writers: Writers::default(),
        reader: None,
        cluster,
        generation: 0,
        told: Told::default(),
        asked: JoinSet::new(),
        rests_until: Instant::now(),
        looked: Instant::now(),
        gone: Vec::new(),
    };
    run.begin()?;
    run.go_through().await?;
    run.mend();
    run.settle().await;
    run.finish().await;
    let judge = run.judge.lock();
    Ok(Outcome {
        trace: judge.trace(),
        violations: judge.violations.clone(),
        decided: judge.decided,
        failed: judge.failed,
        excused: judge.excused,
    })
}

struct Run<'a> {
    judge: Arc<Mutex<Judge>>,
    plan: &'a Plan,
    cluster: Cluster,
    /// The API server's version before anything happened.
    base_version: u64,
    /// The generation of the policy; 0: it is deleted.
    generation: u64,
    told: Told,
    /// Every batch that is appended to the log.
    witness: mpsc::UnboundedReceiver<WitnessedBatch>,
    writers: Writers,
    /// [`read_log`].
    reader: Option<JoinHandle<()>>,
    asked: JoinSet<()>,
    /// Users write nothing before.
    rests_until: Instant,
    /// When [`Run::look`] looked.
    looked: Instant,
    /// Processes that were killed or stopped, while they end.
    gone: Vec<Process>,
}

/// The next thing that happens.
enum Next {
    Work(Work),
    Fault(usize),
    Mend(usize),
}

impl Run<'_> {
    fn note(&self, event: &str) {
        self.judge.lock().note(event);
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.change_policy()?;
        self.cluster.api.put(POLICIES, no_bad())?;
        self.base_version = self.cluster.api.version();
        self.cluster.start_all(self.plan.sizes);
        let (bus, judge) = (self.cluster.bus.join(), Arc::clone(&self.judge));
        let reader = tokio::spawn(async move { read_log(&bus, &judge).await });
        self.reader = Some(reader);
        Ok(())
    }

    async fn go_through(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut events: Vec<_> = (self.plan.work.iter())
            .map(|(at, work)| (*at, Next::Work(*work)))
            .collect();
        for (at, timed) in self.plan.faults.iter().enumerate() {
            events.push((timed.at, Next::Fault(at)));
            events.push((timed.at + timed.lasts, Next::Mend(at)));
        }
        events.retain(|(at, _)| *at <= self.plan.length);
        events.sort_by_key(|(at, _)| *at);
        for (at, next) in events {
            sleep_until(begun + at).await;
            self.hold_writers();
            self.take_asked();
            self.look();
            match next {
                Next::Work(work) => self.work(work)?,
                Next::Fault(at) => self.fault(&self.plan.faults[at]).await?,
                Next::Mend(at) => self.mend_one(&self.plan.faults[at]),
            }
        }
        Ok(())
    }

    /// Looks what is told of the policies, and whether all processes live.
    fn look(&mut self) {
        if self.looked.elapsed() < LOOK_INTERVAL {
            return;
        }
        self.looked = Instant::now();
        for policy in [UNIQUE_HOST, NO_BAD] {
            let object = self.cluster.api.get(POLICIES, "", policy);
            let Some(object) = object else {
                self.told.deleted(policy);
                continue;
            };
            let ready = ready_condition(&object);
            let ready = ready.filter(|ready| ready["status"] == "True");
            let generation = ready.and_then(|ready| ready["observedGeneration"].as_u64());
            if let Some(generation) = generation
                && self.told.ready(policy, generation)
            {
                self.note(&format!(
                    "{policy} is told as ready in generation {generation}"
                ));
            }
        }
        if let Some(ended) = self.cluster.ended() {
            self.judge.lock().violation(&ended);
        }
        if self.reader.as_ref().is_some_and(JoinHandle::is_finished) {
            self.judge.lock().violation("the log is read no more");
        }
    }

    /// Looks at the batches that were appended, and at their writers.
    fn hold_writers(&mut self) {
        while let Ok(batch) = self.witness.try_recv() {
            for wrong in self.writers.take(&batch) {
                self.judge.lock().violation(&wrong);
            }
        }
    }

    /// Looks at the requests that have ended: a webhook that panics has decided nothing.
    fn take_asked(&mut self) {
        while let Some(ended) = self.asked.try_join_next() {
            self.ended(ended);
        }
    }

    fn ended(&self, request: Result<(), JoinError>) {
        if let Err(error) = request {
            let what = panicked(error);
            let text = format!("a request was not answered: {what}");
            self.judge.lock().violation(&text);
        }
    }

    /// Waits for the last requests, which each have a time limit.
    async fn finish(&mut self) {
        while let Some(ended) = self.asked.join_next().await {
            self.ended(ended);
        }
        self.hold_writers();
    }

    fn work(&mut self, work: Work) -> anyhow::Result<()> {
        match work {
            Work::Put { .. } | Work::Delete { .. } | Work::ChangePolicy | Work::DeletePolicy
                if Instant::now() < self.rests_until => {}
            Work::Put { name, host } => {
                let object = ingress("default", &name_of(name), &host_of(host));
                self.cluster.api.put(INGRESSES, object)?;
                self.owners_changed();
            }
            Work::Delete { name } => {
                if self
                    .cluster
                    .api
                    .delete(INGRESSES, "default", &name_of(name))?
                {
                    self.owners_changed();
                }
            }
            Work::Ask { webhook, host } => self.ask(webhook, host_of(host)),
            Work::AskWithoutFacts { webhook, bad } => self.ask_without_facts(webhook, bad),
            Work::ChangePolicy => self.change_policy()?,
            Work::DeletePolicy => {
                if self.cluster.api.delete(POLICIES, "", UNIQUE_HOST)? {
                    self.judge.lock().unsay("the policy is deleted");
                    self.told.deleted(UNIQUE_HOST);
                    self.generation = 0;
                }
            }
        }
        Ok(())
    }

    fn owners_changed(&self) {
        let owners = owners(&self.cluster);
        self.judge.lock().owners(owners);
    }

    fn change_policy(&mut self) -> anyhow::Result<()> {
        self.generation += 1;
        self.note(&format!("the policy is of generation {}", self.generation));
        self.cluster
            .api
            .put(POLICIES, unique_host(self.generation))?;
        Ok(())
    }

    /// The webhook, if its Service would send it a request.
    fn webhook(&self, number: u8) -> Option<(Id, &Process, Arc<Webhook>)> {
        let id = Id(Kind::Webhook, number);
        let process = self.cluster.processes.get(&id)?;
        let webhook = process.webhook.clone()?;
        process.is_ready().then_some((id, process, webhook))
    }

    fn ask(&mut self, number: u8, host: String) {
        let Some((id, process, webhook)) = self.webhook(number) else {
            return;
        };
        let told = self.told.binds(id, UNIQUE_HOST, self.generation);
        let name = process.name.clone();
        let judge = Arc::clone(&self.judge);
        self.asked.spawn(async move {
            let object = ingress("default", "somebody-else", &host);
            let Some(answered) = ask(&judge, name, &webhook, &object, told).await else {
                return;
            };
            judge.lock().answered(&host, &answered);
        });
    }

    fn ask_without_facts(&mut self, number: u8, bad: bool) {
        let Some((id, process, webhook)) = self.webhook(number) else {
            return;
        };
        let told = self.told.binds(id, NO_BAD, self.generation);
        let name = process.name.clone();
        let judge = Arc::clone(&self.judge);
        self.asked.spawn(async move {
            let Some(answered) = ask(&judge, name, &webhook, &config_map(bad), told).await else {
                return;
            };
            let mut judge = judge.lock();
            let (webhook, answer) = (&answered.webhook, &answered.answer);
            judge.note(&format!("{webhook} bad={bad}: {answer:?}"));
            let is_right = match answer {
                Answer::Allowed => !bad || answered.told.is_none(),
                Answer::Denied { .. } => bad,
                Answer::Failed { .. } => false,
            };
            if !is_right {
                judge.violation(&format!(
                    "{webhook} on what needs no fact, bad={bad}: {answer:?}"
                ));
            }
        });
    }
}

/// Reads the log for the trace, and checks that a view's writers come one after the other.
async fn read_log(bus: &anteroom_bus::local::LocalBus, judge: &Mutex<Judge>) {
    let mut follower = bus.follow(LogScope::All);
    let mut terms: BTreeMap<ViewId, u32> = BTreeMap::new();
    while let Some(event) = follower.next().await {
        let mut judge = judge.lock();
        match event {
            LogEvent::Restart { incarnation, cause } => {
                judge.note(&format!("log {incarnation} is read: {cause:?}"));
                terms.clear();
            }
            LogEvent::Record { revision, envelope } => {
                let Ok(envelope) = envelope else {
                    judge.violation("a record cannot be read");
                    continue;
                };
                let (epoch, what) = match &envelope.record {
                    Record::Delta { delta, .. } => (delta.epoch, delta.key.to_string()),
                    Record::Control(record) => (record.epoch, format!("{:?}", record.state)),
                };
                let view = envelope.record.view();
                judge.note(&format!("{} {view} {} {what}", revision.0, epoch.term()));
                let before = terms.insert(view.clone(), epoch.term());
                if before > Some(epoch.term()) {
                    judge.violation(&format!("a writer of an earlier term has written {view}"));
                }
            }
            LogEvent::Superseded { .. } | LogEvent::CaughtUp { .. } | LogEvent::Away { .. } => {}
        }
    }
}

/// What a task said when it panicked.
fn panicked(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "its task was cancelled".to_owned();
    };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

fn ready_condition(policy: &Value) -> Option<&Value> {
    let conditions = policy["status"]["conditions"].as_array()?;
    conditions.iter().find(|of| of["type"] == "Ready")
}

fn owners(cluster: &Cluster) -> Owners {
    let objects = cluster.api.objects(INGRESSES).unwrap_or_default();
    let parsed = objects
        .iter()
        .filter_map(|object| serde_json::from_slice::<Value>(object).ok());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    parsed
        .map(|object| {
            let host = text(&object["spec"]["rules"][0]["host"]);
            (text(&object["metadata"]["name"]), host)
        })
        .collect()
}

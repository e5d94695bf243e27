//! Runs a schedule: users work, faults come and go, and every answer is judged. At its end everything is mended, and
//! has to be right again within [`SETTLED_AFTER`].

mod faults;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{Bus as _, LogEvent, LogScope};
use anteroom_load::{Answer, ingress};
use anteroom_model::ViewId;
use anteroom_webhook::Webhook;
use anteroom_wire::envelope::Record;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    ask::{ask, ask_replica},
    cluster::{Cluster, POLICIES, Process},
    judge::{Judge, Owners},
    manifests::{NO_BAD, UNIQUE_HOST, config_map, host_of, name_of, no_bad, unique_host},
    plan::{Fault, Id, Kind, Plan, TimedFault, Work},
};

const INGRESSES: &str = "ingresses.networking.k8s.io";

/// The time after which everything must be right again once it was mended.
const SETTLED_AFTER: Duration = Duration::from_secs(75);

/// The time between two looks at what is told of policies.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A webhook that the bus does not reach for so long is not waited for.
const UNHEARD_AFTER: Duration = Duration::from_secs(4);

/// The time within which a webhook reads missed records.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(2);

/// The outcome of a schedule.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) trace: u64,
    pub(crate) violations: Vec<String>,
    pub(crate) decided: u32,
    pub(crate) failed: u32,
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
            plan.has(|fault| matches!(fault, Fault::Truncate { .. })),
        ))),
        plan,
        base_version: 0,
        cluster,
        generation: 0,
        told: BTreeMap::new(),
        cut: BTreeMap::new(),
        reached: BTreeMap::new(),
        asked: JoinSet::new(),
        rests_until: Instant::now(),
        looked: Instant::now(),
        gone: Vec::new(),
    };
    run.begin()?;
    run.go_through().await?;
    run.mend();
    run.settle().await;
    let judge = run.judge.lock();
    Ok(Outcome {
        trace: judge.trace(),
        violations: judge.violations.clone(),
        decided: judge.decided,
        failed: judge.failed,
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
    /// The generations of policies that were told as ready.
    told: BTreeMap<&'static str, u64>,
    /// Since when the ways of processes to the bus are cut.
    cut: BTreeMap<Id, Instant>,
    /// When webhooks were last reached again, which the bus did not reach for long.
    reached: BTreeMap<Id, Instant>,
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
        tokio::spawn(async move { read_log(&bus, &judge).await });
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
                self.told.remove(policy);
                continue;
            };
            let ready = ready_condition(&object);
            let ready = ready.filter(|ready| ready["status"] == "True");
            let generation = ready.and_then(|ready| ready["observedGeneration"].as_u64());
            if let Some(generation) = generation {
                let before = self.told.insert(policy, generation);
                if before != Some(generation) {
                    self.note(&format!(
                        "{policy} is told as ready in generation {generation}"
                    ));
                }
            }
        }
        if let Some(ended) = self.cluster.ended() {
            self.judge.lock().violation(&ended);
        }
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
                    self.judge.lock().policy_deleted();
                    self.told.remove(UNIQUE_HOST);
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

    /// The generation that this webhook has to decide by.
    fn told_to(&self, id: Id, policy: &str) -> Option<u64> {
        // After a restore, what is told may be of before it; and beats may be lost for long.
        let excused = |fault: &Fault| matches!(fault, Fault::Restore { .. } | Fault::Lossy);
        let is_unheard = self
            .cut
            .get(&id)
            .is_some_and(|at| at.elapsed() > UNHEARD_AFTER);
        let reached = self.reached.get(&id);
        let catches_up = is_unheard || reached.is_some_and(|at| at.elapsed() < CATCHES_UP_WITHIN);
        let told = self.told.get(policy).copied();
        told.filter(|_| !catches_up && !self.plan.has(excused))
    }

    fn ask(&mut self, number: u8, host: String) {
        let Some((id, process, webhook)) = self.webhook(number) else {
            return;
        };
        let (name, told) = (process.name.clone(), self.told_to(id, UNIQUE_HOST));
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
        let (name, told) = (process.name.clone(), self.told_to(id, NO_BAD));
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

    /// Waits until everything is right.
    async fn settle(&mut self) {
        let begun = Instant::now();
        loop {
            self.look();
            let wrong = self.wrong().await;
            match wrong {
                None => return self.note(&format!("right after {:?}", begun.elapsed())),
                Some(wrong) if begun.elapsed() > SETTLED_AFTER => {
                    let text =
                        format!("not right {SETTLED_AFTER:?} after everything was mended: {wrong}");
                    return self.judge.lock().violation(&text);
                }
                Some(wrong) => self.note(&format!("waits: {wrong}")),
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Returns the first thing that is not right.
    async fn wrong(&mut self) -> Option<String> {
        while self.asked.try_join_next().is_some() {}
        if self.generation > 0 && self.told.get(UNIQUE_HOST) != Some(&self.generation) {
            let policy = self.cluster.api.get(POLICIES, "", UNIQUE_HOST);
            let policy = policy.unwrap_or_default();
            let message = ready_condition(&policy).map(|ready| &ready["message"]);
            let generation = self.generation;
            return Some(format!(
                "the policy's generation {generation} is not told as ready: {message:?}"
            ));
        }
        let owners = self.judge.lock().owners_now();
        let processes = std::mem::take(&mut self.cluster.processes);
        let mut wrong = None;
        for (id, process) in &processes {
            if !process.is_ready() {
                wrong = Some(format!(
                    "{} waits for {}",
                    process.name,
                    process.waits_for()
                ));
            } else if id.0 == Kind::Replica {
                wrong = self.wrong_replica(&process.name, &owners).await;
            } else if let Some(webhook) = &process.webhook {
                wrong = self.wrong_webhook(&process.name, webhook).await;
            }
            if wrong.is_some() {
                break;
            }
        }
        self.cluster.processes = processes;
        wrong
    }

    async fn wrong_replica(&self, name: &str, owners: &Owners) -> Option<String> {
        match ask_replica(&self.cluster, name).await {
            Ok(found) if found == *owners => None,
            Ok(found) => Some(format!("{name} has {found:?}, the API server {owners:?}")),
            Err(error) => Some(format!("{name}: {error}")),
        }
    }

    async fn wrong_webhook(&self, name: &str, webhook: &Webhook) -> Option<String> {
        for host in 0..crate::plan::HOSTS {
            let host = host_of(host);
            let object = ingress("default", "somebody-else", &host);
            let answered = ask(&self.judge, name.to_owned(), webhook, &object, None).await?;
            let is_taken = self.judge.lock().is_taken(&host);
            let is_right = match &answered.answer {
                Answer::Allowed => !is_taken || self.generation == 0,
                Answer::Denied { .. } => is_taken && self.generation > 0,
                Answer::Failed { .. } => false,
            };
            if !is_right {
                return Some(format!(
                    "{name} on {host}, taken={is_taken}: {:?}",
                    answered.answer
                ));
            }
        }
        None
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
            LogEvent::CaughtUp { .. } | LogEvent::Away { .. } => {}
        }
    }
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

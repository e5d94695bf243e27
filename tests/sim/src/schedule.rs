//! Runs a schedule: users work, faults come and go, and every answer is judged. At its end everything is mended, and
//! has to be right again within [`SETTLED_AFTER`].

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus as _, Call, LogEvent, Scope, local::Chances};
use anteroom_load::{Answer, ingress, review};
use anteroom_model::{Revision, ViewId};
use anteroom_simapi::{Fault as ApiFault, Matching};
use anteroom_webhook::Webhook;
use anteroom_wire::{
    body,
    envelope::Record,
    query::{Query, QueryRequest, decode_outcome, encode_request},
};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    cluster::{Cluster, POLICIES, Process},
    judge::{Answered, Judge, Owners},
    plan::{Fault, Id, Kind, Plan, TimedFault, Work},
};

/// The policy that reads a view.
pub(crate) const UNIQUE_HOST: &str = "unique-ingress-host";

/// The policy that reads nothing.
const NO_BAD: &str = "no-bad-config-maps";

const INGRESSES: &str = "ingresses.networking.k8s.io";
const VIEW: &str = "ingresses.v1.networking.k8s.io";

/// The time that a request has.
const DEADLINE: Duration = Duration::from_secs(10);

/// The time after which a request must have been answered, whatever has gone wrong.
const ANSWERED_AFTER: Duration = Duration::from_millis(10_500);

/// The time after which everything must be right again once it was mended.
const SETTLED_AFTER: Duration = Duration::from_secs(75);

/// The time between two looks at what is told of policies.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A webhook that the bus does not reach for so long is not waited for.
const UNHEARD_AFTER: Duration = Duration::from_secs(4);

/// The part by which versions are raised after a restore.
const RAISED_BY: u64 = 1_000_000;

/// The time for which users rest after a restore that did not raise the versions. If the API server hands out a version
/// twice before a watcher looks, no client can tell.
const RESTS_AFTER_RESTORE: Duration = Duration::from_secs(5);

/// A webhook reads what it missed within this time.
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

    async fn fault(&mut self, timed: &TimedFault) -> anyhow::Result<()> {
        self.note(&format!("{:?} for {:?}", timed.fault, timed.lasts));
        let faults = self.cluster.bus.faults();
        match timed.fault {
            Fault::Cut(id) => {
                if let Some(process) = self.cluster.processes.get(&id) {
                    process.faults().cut();
                    self.cut.entry(id).or_insert_with(Instant::now);
                }
            }
            Fault::BusAway => faults.stop(),
            Fault::Kill { id, .. } => self.gone.extend(self.cluster.kill(id)),
            Fault::Stop { id, .. } => self.gone.extend(self.cluster.stop(id)),
            Fault::LogDeleted => faults.delete_log(),
            Fault::LogRemade => faults.remake_log(),
            Fault::Truncate { records } => {
                if let Ok(head) = self.cluster.bus.head().await {
                    faults.truncate_log(Revision(head.last.0.saturating_sub(records)));
                }
            }
            Fault::Gap(id) => {
                if let Some(process) = self.cluster.processes.get(&id) {
                    process.faults().gap();
                }
            }
            Fault::Lossy => faults.set_chances(self.plan.chances),
            Fault::Full => {
                let size = self.cluster.bus.log_size().await;
                faults.limit_log(Some(size.map_or(4_096, |size| size.bytes + 512)));
            }
            Fault::ApiCut(number) => self.cut_api(number, true),
            _ => {
                for fault in self.api_faults(timed.fault) {
                    self.cluster.api.fault(fault)?;
                }
                if let Fault::Restore { back, raised } = timed.fault {
                    self.restore(back, raised)?;
                }
            }
        }
        Ok(())
    }

    fn cut_api(&self, number: u8, cut: bool) {
        let process = self.cluster.processes.get(&Id(Kind::Watcher, number));
        if let Some(way) = process.and_then(|process| process.way.as_ref()) {
            way.send_replace(cut);
        }
    }

    fn api_faults(&self, fault: Fault) -> Vec<ApiFault> {
        let matching = Matching::default();
        match fault {
            Fault::ApiFails { status } => vec![ApiFault::Fail {
                matching,
                status,
                retry_after_seconds: None,
                count: None,
            }],
            Fault::ApiSlow { delay_ms } => vec![ApiFault::Delay { matching, delay_ms }],
            Fault::CutWatches { clean } => vec![ApiFault::CutWatches {
                resource: None,
                clean,
            }],
            Fault::StallWatches => vec![ApiFault::StallWatches { resource: None }],
            // Whoever watches has to notice.
            Fault::Compact => vec![
                ApiFault::Compact { resource: None },
                ApiFault::CutWatches {
                    resource: None,
                    clean: false,
                },
            ],
            Fault::Forbid => vec![ApiFault::Forbid {
                resource: INGRESSES.into(),
            }],
            _ => Vec::new(),
        }
    }

    fn restore(&mut self, back: u64, raised: bool) -> anyhow::Result<()> {
        let version = self.cluster.api.version().saturating_sub(back);
        if version >= self.base_version {
            let restored = self.cluster.api.fault(ApiFault::Restore {
                resource_version: version,
                raised_by: if raised { RAISED_BY } else { 0 },
            });
            if restored.is_ok() {
                if !raised {
                    self.rests_until = Instant::now() + RESTS_AFTER_RESTORE;
                }
                self.owners_changed();
                let policy = self.cluster.api.get(POLICIES, "", UNIQUE_HOST);
                let generation = policy.and_then(|of| of["metadata"]["generation"].as_u64());
                self.generation = generation.unwrap_or_default();
            }
        }
        Ok(())
    }

    fn mend_one(&mut self, timed: &TimedFault) {
        self.note(&format!("{:?} ends", timed.fault));
        let faults = self.cluster.bus.faults();
        match timed.fault {
            Fault::Cut(id) => {
                if let Some(process) = self.cluster.processes.get(&id) {
                    process.faults().mend();
                }
                let cut = self.cut.remove(&id);
                if cut.is_some_and(|at| at.elapsed() > UNHEARD_AFTER) {
                    self.reached.insert(id, Instant::now());
                }
            }
            Fault::BusAway => faults.start(),
            Fault::Kill { id, renamed } | Fault::Stop { id, renamed } => self.restart(id, renamed),
            Fault::Lossy => faults.set_chances(Chances::default()),
            Fault::Full => faults.limit_log(None),
            Fault::ApiCut(number) => self.cut_api(number, false),
            Fault::ApiFails { .. } | Fault::ApiSlow { .. } | Fault::Forbid => {
                let _ = self.cluster.api.fault(ApiFault::Clear {});
            }
            Fault::StallWatches => {
                let _ = self
                    .cluster
                    .api
                    .fault(ApiFault::ResumeWatches { resource: None });
            }
            _ => {}
        }
    }

    fn restart(&mut self, id: Id, renamed: bool) {
        if self.cluster.processes.contains_key(&id) {
            return;
        }
        let name = self.gone.iter().rev().find(|gone| gone.id == id);
        let name = name.map(|gone| gone.name.clone()).filter(|_| !renamed);
        self.cluster.start(id, name);
    }

    /// Ends every fault.
    fn mend(&mut self) {
        self.note("everything is mended");
        let faults = self.cluster.bus.faults();
        faults.start();
        faults.set_chances(Chances::default());
        faults.limit_log(None);
        let _ = self.cluster.api.fault(ApiFault::Clear {});
        for process in self.cluster.processes.values() {
            process.faults().mend();
            if let Some(way) = &process.way {
                way.send_replace(false);
            }
        }
        for timed in &self.plan.faults {
            if let Fault::Kill { id, renamed } | Fault::Stop { id, renamed } = timed.fault {
                self.restart(id, renamed);
            }
        }
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

/// Sends a review, and waits for its answer.
async fn ask(
    judge: &Mutex<Judge>,
    webhook: String,
    to: &Webhook,
    object: &Value,
    told: Option<u64>,
) -> Option<Answered> {
    let sent = Instant::now();
    let uid = "00000000-0000-0000-0000-000000000000";
    let request = http::Request::post(format!("/validate?timeout={}s", DEADLINE.as_secs()))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(axum::body::Body::from(review_of(uid, object)));
    let Ok(request) = request else { return None };
    let Ok(response) = timeout(ANSWERED_AFTER, to.answer(request)).await else {
        let text = format!("{webhook} has not answered within {ANSWERED_AFTER:?}");
        judge.lock().violation(&text);
        return None;
    };
    let body = response.into_body().collect().await.ok()?.to_bytes();
    let answer = match Answer::parse(uid, &body) {
        Ok(answer) => answer,
        Err(problem) => {
            judge.lock().violation(&format!("{webhook}: {problem}"));
            return None;
        }
    };
    let answered: Value = serde_json::from_slice(&body).unwrap_or_default();
    let record = answered["response"]["auditAnnotations"]["decision"].as_str();
    let record = record.and_then(|record| serde_json::from_str(record).ok());
    Some(Answered {
        webhook,
        sent,
        answer,
        record: record.unwrap_or_default(),
        told,
    })
}

/// Asks a replica for the whole view.
async fn ask_replica(cluster: &Cluster, replica: &str) -> Result<Owners, String> {
    let query = Query {
        expression: "items[].[metadata.name, spec.rules[0].host]".to_owned(),
        parameters: BTreeMap::new(),
        missing_key_is_error: false,
        selection: None,
    };
    let request = QueryRequest {
        entry: String::new(),
        queries: vec![query],
        age_max_ms: None,
        revision_min: None,
        revision_min_of: None,
    };
    let address = Address::Replica {
        replica: replica.to_owned(),
        view: ViewId::new(VIEW),
    };
    let call = Call {
        body: encode_request(&request).map_err(|e| e.to_string())?,
        deadline: DEADLINE,
        trace: None,
    };
    let reply = cluster.bus.request(&address, call, DEADLINE).await;
    let reply = decode_outcome(&reply.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    let results = reply.map_err(|e| e.to_string())?.results;
    let result = results.into_iter().next().ok_or("no result")?;
    let result = body::to_json(&result.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    serde_json::from_value::<Vec<(String, String)>>(result)
        .map(|pairs| pairs.into_iter().collect())
        .map_err(|e| e.to_string())
}

/// Reads the log for the trace, and checks that a view's writers come one after the other.
async fn read_log(bus: &anteroom_bus::local::LocalBus, judge: &Mutex<Judge>) {
    let mut follower = bus.follow(Scope::All);
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

fn name_of(name: u8) -> String {
    format!("ingress-{name}")
}

fn host_of(host: u8) -> String {
    format!("host-{host}.example")
}

fn config_map(bad: bool) -> Value {
    let labels = if bad {
        json!({"bad": "yes"})
    } else {
        json!({})
    };
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "any", "labels": labels},
    })
}

fn review_of(uid: &str, object: &Value) -> bytes::Bytes {
    let body = review(uid, object);
    if object["kind"] != "ConfigMap" {
        return body;
    }
    let mut parsed: Value = serde_json::from_slice(&body).unwrap_or_default();
    let request = &mut parsed["request"];
    for (field, value) in [
        (
            "kind",
            json!({"group": "", "version": "v1", "kind": "ConfigMap"}),
        ),
        (
            "resource",
            json!({"group": "", "version": "v1", "resource": "configmaps"}),
        ),
    ] {
        request[field] = value.clone();
        request[&format!("request{}{}", field[..1].to_uppercase(), &field[1..])] = value;
    }
    parsed.to_string().into()
}

/// A host has one owner. The message names the generation.
fn unique_host(generation: u64) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": UNIQUE_HOST},
        "spec": {"failurePolicy": "Fail", "background": false, "rules": [{
            "name": "host-is-free",
            "match": {"any": [{"resources": {
                "kinds": ["networking.k8s.io/v1/Ingress"], "operations": ["CREATE", "UPDATE"],
            }}]},
            "context": [{"name": "hosts", "cachedContextEntry": {
                "name": "ingresses",
                "jmespath": "items[?metadata.name != '{{ request.name }}'].spec.rules[].host",
            }}],
            "validate": {
                "failureAction": "Enforce",
                "message": format!("taken, says generation {generation}"),
                "deny": {"conditions": {"any": [{
                    "key": "{{ request.object.spec.rules[].host }}",
                    "operator": "AnyIn",
                    "value": "{{ hosts }}",
                }]}},
            },
        }]},
    })
}

fn no_bad() -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": NO_BAD},
        "spec": {"failurePolicy": "Fail", "background": false, "rules": [{
            "name": "not-bad",
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "validate": {
                "failureAction": "Enforce",
                "message": "bad",
                "pattern": {"metadata": {"=(labels)": {"=(bad)": "!yes"}}},
            },
        }]},
    })
}

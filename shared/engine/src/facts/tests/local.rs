//! Views of this process, which are asked before replicas.

use std::collections::VecDeque;

use anteroom_model::{Incarnation, Revision};
use anteroom_wire::query::{QueryOutcome, QueryRequest};
use futures::{FutureExt as _, future::BoxFuture};

use super::{
    together::{pods_of, request},
    *,
};

/// Views of this process that say what a test wants them to say.
#[derive(Debug, Default)]
struct Fake {
    /// The answers at once, in turn; `None`: the query takes long.
    at_once: Mutex<VecDeque<Option<QueryOutcome>>>,
    /// The later answers, in turn.
    at_length: Mutex<VecDeque<QueryOutcome>>,
    /// The positions that were demanded.
    demanded: Mutex<Vec<Option<(Incarnation, Revision)>>>,
    /// It has the Pods too.
    holds_pods: bool,
}

impl LocalViews for Fake {
    fn holds(&self, view: &ViewId) -> bool {
        self.holds_pods || view.as_str() != "pods.v1"
    }

    fn answer_at_once(
        &self,
        _view: &ViewId,
        request: &QueryRequest,
        _time: Duration,
    ) -> Option<QueryOutcome> {
        let demand = request.revision_min_of.clone().zip(request.revision_min);
        self.demanded.lock().push(demand);
        self.at_once.lock().pop_front().unwrap()
    }

    fn answer<'a>(
        &'a self,
        _view: &'a ViewId,
        _request: &'a QueryRequest,
        _time: Duration,
    ) -> BoxFuture<'a, QueryOutcome> {
        let outcome = self.at_length.lock().pop_front().unwrap();
        std::future::ready(outcome).boxed()
    }
}

fn says(value: &str) -> QueryOutcome {
    outcome(vec![Ok(json!(value))])
}

/// A reply like that of [`says`], at a position of a log.
fn says_at(value: &str, log: &str, revision: u64) -> QueryOutcome {
    says(value).map(|mut reply| {
        reply.incarnation = Incarnation(log.into());
        reply.revision = Revision(revision);
        reply
    })
}

fn world(
    at_once: impl IntoIterator<Item = Option<QueryOutcome>>,
    at_length: impl IntoIterator<Item = QueryOutcome>,
) -> (World, Arc<Fake>) {
    let fake = Arc::new(Fake {
        at_once: Mutex::new(at_once.into_iter().collect()),
        at_length: Mutex::new(at_length.into_iter().collect()),
        ..Fake::default()
    });
    let mut world = World::new(0.0);
    let local = Arc::clone(&fake);
    world.facts = world.facts.clone().with_local(local);
    (world, fake)
}

#[tokio::test(start_paused = true)]
async fn a_local_view_is_asked_before_replicas_and_alone() {
    let (world, _fake) = world([Some(says("here"))], []);
    let services = world
        .replica(view("services.v1"), |_, _| Some(Ok(json!("there"))))
        .await;
    let pods = world
        .replica(view("pods.v1"), |_, _| Some(Ok(json!("pods"))))
        .await;
    let fact = world.answer(entry("services")).await;
    assert_eq!(fact.got().unwrap(), Ok(json!("here")));
    assert_eq!(from(&fact)["from"], "view");
    let fact = world.answer(pod_list(true)).await;
    assert_eq!(fact.got().unwrap(), Ok(json!("pods")));
    assert_eq!((services.calls(), pods.calls()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn secrets_are_never_asked_for_in_this_process() {
    let (world, fake) = world([], []);
    let fact = world.answer(entry("secrets")).await;
    assert!(fact.got().unwrap().is_err(), "no replica is there");
    assert!(fake.demanded.lock().is_empty());
}

/// In this process nobody gives it a share, and its queries would take the threads that decide reviews.
#[tokio::test(start_paused = true)]
async fn a_policy_of_a_namespace_never_asks_in_this_process() {
    let fake = Arc::new(Fake {
        at_once: Mutex::new([Some(says("here"))].into()),
        holds_pods: true,
        ..Fake::default()
    });
    let mut world = World::new(0.0);
    let local = Arc::clone(&fake);
    world.facts = world.facts.clone().with_local(local);
    let _pods = world
        .replica(view("pods.v1"), |_, _| Some(Ok(json!("there"))))
        .await;
    for (namespace, expected) in [("a", "there"), ("", "here")] {
        let reader = RuleRef {
            policy: ObjectKey::new(namespace, "p"),
            rule: "r".into(),
        };
        let asked = RuleRequests {
            asker: 0,
            reader: &reader,
            review_namespace: "a",
            requests: vec![request(0, pods_of(namespace), false)],
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        let facts = world.ask(vec![asked], deadline).await;
        assert_eq!(facts[0].got().unwrap(), Ok(json!(expected)), "{namespace}");
    }
    assert_eq!(fake.demanded.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn replicas_are_asked_for_what_a_local_view_cannot_answer() {
    let over_budget = FactError::BudgetExceeded {
        message: "m".into(),
    };
    for said in [
        Some(Err(evicted())),
        Some(Err(not_synced())),
        Some(outcome(vec![Err(over_budget)])),
        None,
    ] {
        let (world, _fake) = world([said.clone()], []);
        let _replica = world
            .replica(view("services.v1"), |_, _| Some(Ok(json!("there"))))
            .await;
        let fact = world.answer(entry("services")).await;
        assert_eq!(fact.got().unwrap(), Ok(json!("there")), "{said:?}");
    }
    // An error of the query is the answer of whoever is asked.
    let bad = FactError::EvaluationFailed {
        message: "m".into(),
    };
    let (world, _fake) = world([Some(outcome(vec![Err(bad)]))], []);
    assert_eq!(code(&world.answer(entry("services")).await), "AR202");
}

#[tokio::test(start_paused = true)]
async fn what_takes_long_is_answered_here_where_no_replica_answers() {
    let (world, _fake) = world([None, None], [says("here"), Err(evicted())]);
    let begun = Instant::now();
    let fact = world.answer(entry("services")).await;
    assert_eq!(fact.got().unwrap(), Ok(json!("here")));
    assert!(begun.elapsed() < Duration::from_secs(1), "nobody waits");
    assert_eq!(code(&world.answer(entry("services")).await), "AR106");
}

#[tokio::test(start_paused = true)]
async fn what_takes_long_is_begun_here_once_replicas_have_had_half_of_the_time() {
    let late = FactError::DeadlineExceeded {
        deadline_ms: 1,
        over_part: false,
    };
    let (world, _fake) = world([None, None], [says("here"), outcome(vec![Err(late)])]);
    let replica = world.replica(view("services.v1"), |_, _| None).await;
    let fact = world.answer(entry("services")).await;
    assert_eq!(fact.got().unwrap(), Ok(json!("here")));
    assert!(replica.calls() >= 1);
    // A late result is late for its query alone. The others of the same reply count.
    assert_eq!(code(&world.answer(entry("services")).await), "AR204");
}

/// Neither a replica nor this process answers from before the other's last answer.
#[tokio::test(start_paused = true)]
async fn no_answer_goes_back_in_time_between_replicas_and_this_process() {
    let (world, fake) = world(
        [
            Some(says_at("here 40", "i", 40)),
            None,
            Some(says_at("here 50", "i", 50)),
            Some(says_at("here 60", "left", 60)),
        ],
        [],
    );
    let demands = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&demands);
    let _replica = world
        .serve(view("services.v1"), move |call, body| {
            let request = query::decode_request(body).unwrap();
            heard.lock().push(request.revision_min.unwrap().0);
            let log = if call == 0 { "i" } else { "new" };
            Some(query::encode_outcome(&says_at("there", log, 45)).unwrap())
        })
        .await;
    let mut values = Vec::new();
    for _ in 0..3 {
        let fact = world.answer(entry("services")).await;
        values.push(fact.got().unwrap().unwrap());
    }
    assert_eq!(values, ["here 40", "there", "here 50"]);
    let demand = |revision| Some((Incarnation("i".into()), Revision(revision)));
    assert_eq!(*fake.demanded.lock(), [None, demand(40), demand(45)]);
    assert_eq!(*demands.lock(), [40]);
    // Every replica has left the log for another one, and this process has not noticed.
    for (log, revision) in [("left", 7), ("new", 1)] {
        let log = Incarnation(log.into());
        world
            .facts
            .expect(&ViewId::new("services.v1"), &log, Revision(revision));
    }
    let fact = world.answer(entry("services")).await;
    assert_eq!(fact.got().unwrap(), Ok(json!("there")));
}

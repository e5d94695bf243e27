//! Several rules that query at once.

use super::*;

pub(super) fn request(id: u32, subject: FactSubject, is_pushed_down: bool) -> FactRequest {
    FactRequest {
        id,
        variable: "v".into(),
        subject,
        expression: format!("items[{id}]"),
        parameters: Default::default(),
        missing_key_is_error: true,
        age_max_ms: None,
        is_pushed_down,
        cel: None,
    }
}

fn reader(policy: &str) -> RuleRef {
    RuleRef {
        policy: ObjectKey::new("", policy),
        rule: "r".into(),
    }
}

async fn ask(
    world: &World,
    rules: Vec<Vec<FactRequest>>,
) -> Vec<(usize, u32, Option<QueryResult>)> {
    let readers: Vec<_> = (0..rules.len())
        .map(|at| reader(&format!("p{at}")))
        .collect();
    let needs = rules
        .into_iter()
        .enumerate()
        .map(|(asker, requests)| RuleRequests {
            asker,
            reader: &readers[asker],
            review_namespace: "",
            requests,
        });
    let deadline = Instant::now() + Duration::from_secs(10);
    let facts = world.ask(needs.collect(), deadline).await;
    let mut facts: Vec<_> = facts
        .into_iter()
        .map(|fact| (fact.asker, fact.id, fact.got()))
        .collect();
    facts.sort_by_key(|(asker, id, _)| (*asker, *id));
    facts
}

/// Queries of several rules to one view travel in one request; requests to other views go out at the same time.
#[tokio::test]
async fn queries_of_several_rules_to_a_view_share_a_request() {
    let world = World::new(0.0);
    let said = |_: usize, query: &query::Query| Some(Ok(json!(query.expression)));
    let services = world.replica(view("services.v1"), said).await;
    let pods = world.replica(view("pods.v1"), said).await;
    let found = ask(
        &world,
        vec![
            vec![
                request(0, entry("services"), true),
                request(1, pod_list(true), true),
            ],
            vec![request(0, entry("services"), false)],
            vec![
                request(7, entry("nobody"), false),
                request(8, entry("services"), true),
            ],
        ],
    )
    .await;
    let text = |text: &str| Some(Ok(json!(text)));
    assert_eq!(found.len(), 5);
    for (asker, id, answer) in found {
        match (asker, id) {
            (2, 7) => assert!(answer.unwrap().is_err()),
            (_, id) => assert_eq!(answer, text(&format!("items[{id}]")), "{asker}"),
        }
    }
    assert_eq!((services.calls(), pods.calls()), (1, 1));
}

/// The Pods of a namespace; empty: of all.
pub(super) fn pods_of(namespace: &str) -> FactSubject {
    let FactSubject::Api(mut of_all) = pod_list(true) else {
        panic!("it is a call");
    };
    if !namespace.is_empty() {
        of_all.path = format!("/api/v1/namespaces/{namespace}/pods");
    }
    if let Some(read) = &mut of_all.by_view {
        namespace.clone_into(&mut read.namespace);
    }
    FactSubject::Api(of_all)
}

/// Each namespace has its own share of a replica.
#[tokio::test]
async fn policies_of_different_namespaces_ask_a_view_apart() {
    let world = World::new(0.0);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    let _pods = world
        .serve(view("pods.v1"), move |_, body| {
            let request = query::decode_request(body).unwrap();
            let said = request.queries.iter().map(|_| Ok(json!(1))).collect();
            asked
                .lock()
                .push((request.namespace, request.queries.len()));
            Some(query::encode_outcome(&outcome(said)).unwrap())
        })
        .await;
    let readers = ["", "a", "b", "a", ""].map(|namespace| RuleRef {
        policy: ObjectKey::new(namespace, "p"),
        rule: "r".into(),
    });
    let needs = readers
        .iter()
        .enumerate()
        .map(|(asker, reader)| RuleRequests {
            asker,
            reader,
            review_namespace: "",
            requests: vec![request(0, pods_of(&reader.policy.namespace), false)],
        });
    let deadline = Instant::now() + Duration::from_secs(10);
    let facts = world.ask(needs.collect(), deadline).await;
    let got: Vec<_> = facts.iter().map(FactAnswer::got).collect();
    assert_eq!(got, vec![Some(Ok(json!(1))); 5]);
    let mut seen = seen.lock().clone();
    seen.sort();
    let expected = [("", 2), ("a", 2), ("b", 1)].map(|(of, count)| (of.to_owned(), count));
    assert_eq!(seen, expected);
}

/// If the results are too large together, each rule has its own.
#[tokio::test]
async fn one_rules_too_large_result_does_not_fail_the_other_rules() {
    let world = World::new(0.0);
    let too_large = || FactError::BudgetExceeded {
        message: "m".into(),
    };
    let server = world
        .serve(view("services.v1"), move |_, body| {
            let request = query::decode_request(body).unwrap();
            let is_large = request
                .queries
                .iter()
                .any(|query| query.expression == "items[1]");
            let said = request.queries.iter().map(|_| Ok(json!(1))).collect();
            let outcome = if is_large {
                Err(too_large())
            } else {
                outcome(said)
            };
            Some(query::encode_outcome(&outcome).unwrap())
        })
        .await;
    let rules = vec![
        vec![request(0, entry("services"), true)],
        vec![request(1, entry("services"), true)],
    ];
    let found = ask(&world, rules).await;
    assert_eq!(found[0].2, Some(Ok(json!(1))));
    assert_eq!(found[1].2, Some(Err(too_large())));
    assert_eq!(server.calls(), 3);
}

/// A part is not worth a live read: the fact is read once, for all that is made of it.
#[tokio::test]
async fn a_partial_query_that_needs_a_live_read_is_declined() {
    let world = World::new(0.0);
    let watcher = world.watcher(|_, _| Ok(json!("live"))).await;
    let both = || {
        vec![
            vec![request(0, pod_list(false), true)],
            vec![request(0, pod_list(false), false)],
        ]
    };
    // Nobody serves the view, or it is not there yet.
    let found = ask(&world, both()).await;
    assert_eq!(
        (&found[0].2, &found[1].2),
        (&None, &Some(Ok(json!("live"))))
    );
    let _replica = world
        .replica(view("pods.v1"), |_, _| Some(Err(not_synced())))
        .await;
    let found = ask(&world, both()).await;
    assert_eq!(
        (&found[0].2, &found[1].2),
        (&None, &Some(Ok(json!("live"))))
    );
    assert_eq!(watcher.calls(), 2);
    // A declared call has the view's error.
    let declared = vec![vec![request(0, pod_list(true), true)]];
    assert_eq!(ask(&world, declared).await[0].2, Some(Err(not_synced())));
}

/// A policy that accepts no age must not cost others what the view has for them.
#[tokio::test(start_paused = true)]
async fn a_view_that_is_too_old_for_one_reader_answers_another_at_once() {
    let world = World::new(0.0);
    let _replica = world
        .serve(view("services.v1"), |_, body| {
            let asked = query::decode_request(body).unwrap();
            let said = match asked.age_max_ms {
                Some(_) => Err(stale()),
                None => Ok(json!(1)),
            };
            Some(query::encode_outcome(&outcome(vec![said])).unwrap())
        })
        .await;
    let ask_for = |age_max_ms| {
        let asked = FactRequest {
            age_max_ms,
            ..request(0, entry("services"), false)
        };
        ask(&world, vec![vec![asked]])
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(15) {
        let answers = ask_for(Some(1)).await;
        assert_eq!(answers[0].2, Some(Err(stale())));
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    let asked = Instant::now();
    assert_eq!(ask_for(None).await[0].2, Some(Ok(json!(1))));
    assert!(asked.elapsed() < Duration::from_millis(50));
}

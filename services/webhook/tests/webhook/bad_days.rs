//! Replicas that are away, slow or wrong; a log that is not there; a process that has to stop.

use anteroom_model::FactError;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    client::ingress,
    cluster::{Cluster, taken, unique_host},
};

fn failure_policy(name: &str) -> impl Fn(&mut Value) {
    move |policy| policy["spec"]["failurePolicy"] = name.into()
}

fn entry(name: &str) -> impl Fn(&mut Value) {
    move |policy| {
        policy["spec"]["rules"][0]["context"][0]["cachedContextEntry"]["name"] = name.into();
    }
}

#[tokio::test]
async fn an_error_denies_admits_or_warns_as_the_policy_says() {
    let policies = [
        unique_host("a-fail", entry("nowhere")),
        unique_host("b-ignore", |policy| {
            entry("nowhere")(policy);
            failure_policy("Ignore")(policy);
        }),
        unique_host("c-audit", |policy| {
            entry("nowhere")(policy);
            policy["spec"]["validationFailureAction"] = "Audit".into();
        }),
    ];
    let cluster = Cluster::with(&policies).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = ingress("CREATE", "shop", "a.example");
    let text = "AR101 context entry `hosts`: entry `nowhere` not found: create a \
                CachedContextEntry with this name";

    let denied = client.review("/validate", &review).await;
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["status"]["code"], 500);
    assert_eq!(
        denied["status"]["message"],
        format!(
            "\n\nresource Ingress/shop/shop was blocked due to the following policies\n\n\
             a-fail:\n  unique-host: {text}\n"
        )
    );
    let told = ["b-ignore", "c-audit"].map(|name| format!("policy {name}.unique-host: {text}"));
    assert_eq!(denied["warnings"], json!(told));
    let metrics = cluster.service.metrics.encode();
    let line = "anteroom_admission_decisions_total{decision=\"denied\",cause=\"error\",phase=\"validate\"} 1";
    assert!(metrics.contains(line), "{metrics}");

    // The remaining policies admit the request without the failing policy.
    let others = Cluster::with(&policies[1..]).await;
    let (_webhook, client) = others.webhook().await;
    let admitted = client.review("/validate", &review).await;
    assert_eq!(admitted["allowed"], true);
    assert_eq!(admitted["warnings"], json!(told));
}

#[tokio::test]
async fn a_view_without_a_replica_denies_at_once() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = ingress("CREATE", "shop", "a.example");
    let denied = client.review("/validate?timeout=30s", &review).await;
    let message = denied["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("AR106 context entry `hosts`: no replica serves view"),
        "{message}"
    );

    let _replica = cluster.replica(taken(&["b.example"])).await;
    let admitted = client.review("/validate", &review).await;
    assert_eq!(admitted["allowed"], true);
}

/// Otherwise a flood of requests would get one past every policy that ignores errors.
#[tokio::test]
async fn a_request_whose_own_namespace_keeps_replicas_busy_is_refused_whatever_the_failure_policy()
{
    for (over_part, allowed) in [(false, true), (true, false)] {
        let cluster = Cluster::with(&[unique_host("hosts", failure_policy("Ignore"))]).await;
        let busy = FactError::Busy {
            limit: 1,
            over_part,
        };
        let _replica = cluster
            .replica_that(move |_, _| Some(Err(busy.clone())))
            .await;
        let (_webhook, client) = cluster.webhook().await;
        let review = ingress("CREATE", "shop", "a.example");
        let decided = client.review("/validate", &review).await;
        assert_eq!(decided["allowed"], allowed, "{decided}");
        assert!(decided.to_string().contains("AR205"), "{decided}");
    }
}

#[tokio::test]
async fn a_replica_that_hangs_or_is_busy_is_asked_around() {
    let busy = FactError::Busy {
        limit: 1,
        over_part: false,
    };
    for first in [None, Some(Err(busy))] {
        let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
        let replica = cluster
            .replica_that(move |call, _| match call {
                0 => first.clone(),
                _ => Some(Ok(json!(["a.example"]))),
            })
            .await;
        let (_webhook, client) = cluster.webhook().await;
        let denied = client
            .review("/validate", &ingress("CREATE", "shop", "a.example"))
            .await;
        assert_eq!(denied["status"]["code"], 403, "{denied}");
        assert!(replica.calls() >= 2);
    }
}

#[tokio::test]
async fn no_answer_in_time_is_an_error_and_never_an_empty_list() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let replica = cluster.replica_that(|_, _| None).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = ingress("CREATE", "shop", "free.example");
    let denied = client.review("/validate?timeout=1s", &review).await;
    let message = denied["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("AR204 context entry `hosts`: deadline exceeded"),
        "{message}"
    );
    assert!(replica.calls() <= 3, "attempts are bounded");
}

#[tokio::test]
async fn a_webhook_that_has_not_read_its_policies_goes_by_the_failure_policy() {
    let cluster = Cluster::new().await;
    let (_webhook, client) = cluster.webhook_at_once(&[]).await;
    let review = ingress("CREATE", "shop", "a.example");
    let denied = client.review("/validate/fail", &review).await;
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["status"]["code"], 503);
    let message = denied["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("AR404 the webhook has not read its policies yet"),
        "{message}"
    );
    let admitted = client.review("/validate/ignore", &review).await;
    assert_eq!(admitted["allowed"], true);
    assert!(admitted["warnings"][0].as_str().unwrap().contains("AR404"));
    let report = cluster.service.readiness.report();
    assert!(!report.ready);
    let policies = report.checks.iter().find(|check| check.name == "policies");
    assert!(policies.unwrap().waiting_for.is_some());

    cluster.write_all(&[]).await;
    cluster.service.readiness.wait_ready().await;
    let admitted = client.review("/validate/fail", &review).await;
    assert_eq!(admitted["allowed"], true);
}

#[tokio::test]
async fn a_policy_that_is_not_ready_is_not_in_force_and_never_silent() {
    let unknown = |policy: &mut Value| {
        policy["spec"]["rules"][0]["validate"] =
            json!({ "message": "m", "manifests": { "attestors": [] } });
    };
    let policies = [
        unique_host("hosts", |_| ()),
        unique_host("unready", unknown),
    ];
    let cluster = Cluster::with(&policies).await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let answer = client
        .review("/validate", &ingress("CREATE", "shop", "b.example"))
        .await;
    assert_eq!(answer["allowed"], true);
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("policy unready is not ready, and not in force: AR301 spec.rules[0]"),
        "{warning}"
    );
    let metrics = cluster.service.metrics.encode();
    assert!(
        metrics.contains("anteroom_policies{state=\"not_ready\"} 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_policy_deleted_during_a_review_leaves_no_error_in_the_answer() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let (asked_in, mut asked) = watch::channel(false);
    // Nobody answers, and then there is nobody.
    let replica = cluster
        .replica_that(move |_, _| {
            asked_in.send_replace(true);
            None
        })
        .await;
    let (_webhook, client) = cluster.webhook().await;
    let review = ingress("CREATE", "shop", "a.example");
    let answer = tokio::spawn(async move { client.review("/validate?timeout=2s", &review).await });
    asked.wait_for(|asked| *asked).await.unwrap();
    cluster.remove_policy("hosts").await;
    let in_force = "anteroom_policies{state=\"ready\"} 0";
    while !cluster.service.metrics.encode().contains(in_force) {
        tokio::task::yield_now().await;
    }
    drop(replica);
    let answer = answer.await.unwrap();
    assert_eq!(answer["allowed"], true, "{answer}");
}

#[tokio::test]
async fn a_received_review_is_answered_before_the_process_stops() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let (asked_in, mut asked) = watch::channel(false);
    let service = cluster.service.clone();
    // The replica answers the second attempt, and by then the process has been asked to stop.
    let _replica = cluster
        .replica_that(move |call, _| {
            if call == 0 {
                service.shutdown.trigger("the test says so");
                asked_in.send_replace(true);
                return None;
            }
            Some(Ok(json!(["a.example"])))
        })
        .await;
    let (webhook, client) = cluster.webhook().await;
    let review = ingress("CREATE", "shop", "a.example");
    let answer = tokio::spawn(async move { client.review("/validate", &review).await });
    asked.wait_for(|asked| *asked).await.unwrap();
    webhook.join().await.unwrap();
    assert_eq!(answer.await.unwrap()["status"]["code"], 403);
}

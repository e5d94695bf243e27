//! The webhook's objects at the API server: its configuration, and the Secret with its certificate.

use std::sync::Arc;

use anteroom_bus::Bus;
use anteroom_engine::exemptions::ExemptionRules;
use anteroom_seal::MacKey;
use anteroom_simapi::{SimApi, SimConfig};
use anteroom_webhook::Webhook;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{
    client::{Client, Http, ingress},
    cluster::{Cluster, args, exemptions, ingresses, taken, unique_host},
};

const CONFIGURATIONS: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const CHANGING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";

fn kube_client(api: &SimApi) -> kube::Client {
    anteroom_runtime::process::install_crypto_provider();
    let config = kube::Config::new(api.url().parse().unwrap());
    kube::Client::try_from(config).unwrap()
}

fn start(cluster: &Cluster, api: &SimApi) -> Webhook {
    start_with(&args(&[]), cluster, api)
}

fn start_with(args: &anteroom_webhook::Args, cluster: &Cluster, api: &SimApi) -> Webhook {
    let bus: Arc<dyn Bus> = Arc::new(cluster.bus.join());
    Webhook::start(args, bus, Some(kube_client(api)), &cluster.service).unwrap()
}

async fn configuration(api: &SimApi, has: impl Fn(&Value) -> bool) -> Value {
    configuration_of(CONFIGURATIONS, api, has).await
}

async fn configuration_of(kind: &str, api: &SimApi, has: impl Fn(&Value) -> bool) -> Value {
    let mut stats = api.subscribe();
    loop {
        let objects = api.objects(kind).unwrap();
        let found = objects
            .first()
            .map(|body| serde_json::from_slice(body).unwrap());
        if let Some(found) = found.filter(|found| has(found)) {
            return found;
        }
        stats.changed().await.unwrap();
    }
}

/// The path of a webhook, which names a configuration and the webhook.
fn path(webhook: &Value, prefix: &str) -> String {
    let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
    let (configuration, name) = path[token_of(webhook).len()..]
        .strip_prefix(prefix)
        .and_then(|rest| rest.split_once('/'))
        .unwrap_or_else(|| panic!("{path}"));
    assert_eq!(configuration.len(), 32, "{path}");
    let full = webhook["name"].as_str().unwrap();
    assert!(full.starts_with(&format!("{name}.")), "{path} {full}");
    path.to_owned()
}

/// What stands before the paths of a webhook: `/r/TOKEN`.
fn token_of(webhook: &Value) -> &str {
    let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
    let token = path
        .strip_prefix("/r/")
        .and_then(|rest| rest.split_once('/'));
    let (token, _) = token.unwrap_or_else(|| panic!("{path}"));
    assert_eq!(token.len(), 32, "{path}");
    &path[.."/r/".len() + token.len()]
}

#[tokio::test]
async fn the_configuration_follows_the_policies() {
    let api = SimApi::start(SimConfig::default()).await.unwrap();
    api.put(
        "namespaces",
        serde_json::json!({ "metadata": { "name": "anteroom" } }),
    )
    .unwrap();
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let webhook = start(&cluster, &api);
    let _beats = cluster.beats(&[ingresses().as_str()]);
    cluster.service.readiness.wait_ready().await;

    let webhooks = |found: &Value| found["webhooks"].as_array().map_or(0, Vec::len);
    // The last two are for policies themselves, and for the proof.
    let found = configuration(&api, |found| webhooks(found) == 3).await;
    let only = &found["webhooks"][0];
    let path = path(only, "/validate/");
    assert_eq!(
        only["rules"][0]["resources"],
        serde_json::json!(["ingresses"])
    );
    let client = Client::of(&webhook).await;
    let denied = client
        .review(&path, &ingress("CREATE", "s", "a.example"))
        .await;
    assert_eq!(denied["allowed"], false);

    cluster.remove_policy("hosts").await;
    configuration(&api, |found| webhooks(found) == 2).await;
    let mut policy = ingress("CREATE", "s", "a.example");
    policy["request"]["object"] = serde_json::json!({
        "apiVersion": "kyverno.io/v1", "kind": "Policy", "metadata": { "namespace": "s", "name": "p" },
        "spec": { "rules": [{ "name": "r", "match": { "any": [{ "resources": { "kinds": ["Pod"] } }] },
            "context": [{ "name": "c", "configMap": { "namespace": "other", "name": "x" } }],
            "validate": { "deny": {} } }] },
    });
    let policies = format!("{}/policies", token_of(only));
    let refused = client.review(&policies, &policy).await;
    assert_eq!(
        (
            refused["allowed"].as_bool(),
            refused["status"]["code"].as_u64()
        ),
        (Some(false), Some(403))
    );
    policy["request"]["object"]["kind"] = "ClusterPolicy".into();
    assert_eq!(client.review(&policies, &policy).await["allowed"], true);
    api.shutdown().await;
}

#[tokio::test]
async fn the_configuration_follows_the_exempt_namespaces() {
    let api = SimApi::start(SimConfig::default()).await.unwrap();
    let namespace = serde_json::json!({ "metadata": { "name": "anteroom" } });
    api.put("namespaces", namespace).unwrap();
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let mut args = args(&[]);
    args.exemptions = exemptions("resourceFilters: []");
    let _webhook = start_with(&args, &cluster, &api);
    let _beats = cluster.beats(&[ingresses().as_str()]);
    cluster.service.readiness.wait_ready().await;
    for (rules, expected) in [
        ("resourceFilters: []", vec!["anteroom", "kube-system"]),
        (
            "{resourceFilters: ['[*/*,ci,*]'], exemptNamespaces: [legacy]}",
            vec!["anteroom", "ci", "legacy"],
        ),
        (
            "{resourceFilters: [], exemptNamespaces: []}",
            vec!["anteroom"],
        ),
    ] {
        let rules = ExemptionRules::parse(rules).unwrap();
        args.exemptions.replace(rules);
        let is_there = |found: &Value| {
            let selector = &found["webhooks"][0]["namespaceSelector"];
            selector["matchExpressions"][0]["values"] == serde_json::json!(expected)
        };
        configuration(&api, is_there).await;
    }
    api.shutdown().await;
}

/// Without policies only the proof is left of it.
#[tokio::test]
async fn mutate_rules_are_registered_beside_validate_rules() {
    let api = SimApi::start(SimConfig::default()).await.unwrap();
    let namespace = serde_json::json!({ "metadata": { "name": "anteroom" } });
    api.put("namespaces", namespace).unwrap();
    let changes = unique_host("changes", |policy| {
        let rule = &mut policy["spec"]["rules"][0];
        rule.as_object_mut().unwrap().remove("validate");
        rule["mutate"]["patchStrategicMerge"]["metadata"]["labels"]["a"] = "b".into();
    });
    let cluster = Cluster::with(&[unique_host("hosts", |_| ()), changes]).await;
    let webhook = start(&cluster, &api);
    let _beats = cluster.beats(&[ingresses().as_str()]);
    cluster.service.readiness.wait_ready().await;

    let webhooks = |found: &Value| found["webhooks"].as_array().map_or(0, Vec::len);
    let found = configuration_of(CHANGING, &api, |found| webhooks(found) == 2).await;
    let only = &found["webhooks"][0];
    let changing = path(only, "/mutate/");
    assert_eq!(only["reinvocationPolicy"], "IfNeeded");
    let operations = &only["rules"][0]["operations"];
    assert_eq!(operations, &serde_json::json!(["CREATE", "UPDATE"]));
    let judging = configuration(&api, |found| webhooks(found) == 3).await;
    let only = &judging["webhooks"][0];
    path(only, "/validate/");
    assert_eq!(only.get("reinvocationPolicy"), None);
    for of in [&found, &judging] {
        assert!(of["metadata"]["annotations"]["anteroom.dev/position"].is_string());
    }

    let client = Client::of(&webhook).await;
    let review = ingress("CREATE", "s", "a.example");
    let answer = client.review(&changing, &review).await;
    let made = crate::mutations::patched(&answer, review["request"]["object"].clone());
    assert_eq!(made["metadata"]["labels"]["a"], "b");
    cluster.remove_policy("changes").await;
    configuration_of(CHANGING, &api, |found| webhooks(found) == 1).await;
    api.shutdown().await;
}

#[tokio::test]
async fn webhooks_share_a_certificate() {
    let api = SimApi::start(SimConfig::default()).await.unwrap();
    api.put(
        "namespaces",
        serde_json::json!({ "metadata": { "name": "anteroom" } }),
    )
    .unwrap();
    let clusters = [Cluster::with(&[]).await, Cluster::with(&[]).await];
    let mut webhooks = Vec::new();
    for cluster in &clusters {
        webhooks.push(start(cluster, &api));
    }
    let mut trusted = Vec::new();
    for (cluster, webhook) in clusters.iter().zip(&webhooks) {
        cluster.service.readiness.wait_ready().await;
        let found = configuration(&api, |_| true).await;
        let path = format!("{}/validate", token_of(&found["webhooks"][0]));
        let (client, review) = (
            Client::of(webhook).await,
            ingress("CREATE", "s", "a.example"),
        );
        assert_eq!(client.review(&path, &review).await["allowed"], true);
        trusted.push(webhook.trust().borrow().clone());
    }
    assert_eq!(trusted[0], trusted[1]);
    assert_eq!(api.objects("secrets").unwrap().len(), 1);
    api.shutdown().await;
}

/// A pod reaches the webhook, but not the webhook configurations.
#[tokio::test]
async fn a_review_without_the_token_is_neither_read_nor_decided() {
    let api = SimApi::start(SimConfig::default()).await.unwrap();
    let namespace = serde_json::json!({ "metadata": { "name": "anteroom" } });
    api.put("namespaces", namespace).unwrap();
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let replica = cluster.replica(taken(&["a.example"])).await;
    let webhook = start(&cluster, &api);
    let _beats = cluster.beats(&[ingresses().as_str()]);
    cluster.service.readiness.wait_ready().await;
    let client = Client::of(&webhook).await;
    let token = "/r/0123456789abcdef0123456789abcdef";
    for path in ["/validate", "/mutate", "/policies", "/probe", "/none"] {
        for path in [path.to_owned(), format!("{token}{path}")] {
            let review = ingress("CREATE", "s", "a.example").to_string();
            let (status, answer) = client.post(Http::One, &path, review.into()).await;
            assert_eq!(status, 403, "{path}");
            assert_eq!(answer["code"], "AR405", "{path}");
        }
    }
    assert_eq!(replica.calls(), 0);
    let counted = "anteroom_admission_review_errors_total{code=\"AR405\"} 10";
    let metrics = cluster.service.metrics.encode();
    assert!(metrics.contains(counted), "{metrics}");
    api.shutdown().await;
}

/// Its clock is years ahead, which is no reason for anybody to refuse reviews.
#[tokio::test]
async fn the_token_of_a_webhook_with_a_wrong_clock_is_taken_and_kept() {
    let api = SimApi::start(SimConfig::default()).await.unwrap();
    let namespace = serde_json::json!({ "metadata": { "name": "anteroom" } });
    api.put("namespaces", namespace).unwrap();
    let clusters = [Cluster::with(&[]).await, Cluster::with(&[]).await];
    let _one = start(&clusters[0], &api);
    clusters[0].service.readiness.wait_ready().await;
    let mut found = configuration(&api, |_| true).await;

    let secret: Value = serde_json::from_slice(&api.objects("secrets").unwrap()[0]).unwrap();
    let key = STANDARD.decode(secret["data"]["review.key"].as_str().unwrap());
    let period = 1_000_000_u64;
    let purpose = b"anteroom review path";
    let tag = MacKey::new(&key.unwrap()).tag(&[purpose, &period.to_be_bytes()]);
    let token = format!("/r/{}", &tag[..32]);
    let before = token_of(&found["webhooks"][0]).to_owned();
    let text = found.to_string().replace(&before, &token);
    found = serde_json::from_str(&text).unwrap();
    found["metadata"]["annotations"]["anteroom.dev/path-period"] = period.to_string().into();
    api.put(CONFIGURATIONS, found).unwrap();

    let other = start(&clusters[1], &api);
    clusters[1].service.readiness.wait_ready().await;
    let found = configuration(&api, |_| true).await;
    assert_eq!(token_of(&found["webhooks"][0]), token);
    let (client, review) = (
        Client::of(&other).await,
        ingress("CREATE", "s", "a.example"),
    );
    let answer = client.review(&format!("{token}/validate"), &review).await;
    assert_eq!(answer["allowed"], true);
    api.shutdown().await;
}

use std::sync::atomic::{AtomicUsize, Ordering};

use anteroom_bus::{Call, RequestError, local::LocalBus};
use anteroom_mirror::testing::ViewWriter;
use anteroom_model::{ObjectKey, system};
use anteroom_runtime::{Readiness, Service};
use anteroom_seal::AskedOf;
use anteroom_wire::{
    live::{LiveCall, LiveOutcome, LiveRequest},
    query::Query,
};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinHandle};

use super::*;
use crate::gateway::calls::testing::{Endpoint, api_server, caller_of, ok, status};

mod compiled_once;
mod images;
mod large_requests;

/// A timeout for steps that end at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// A watcher for live reads, with its policies and its API server.
pub(super) struct Rig {
    bus: Arc<dyn Bus>,
    tools: LiveTools,
    pub(super) writer: ViewWriter,
    /// Requests that the API server has had.
    asked: Arc<AtomicUsize>,
    readiness: Readiness,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Rig {
    async fn new(args: LiveArgs) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let api = api_server(move |request| {
            counted.fetch_add(1, Ordering::SeqCst);
            api(request.method().as_str(), &request.uri().to_string())
        });
        Self::with(args, caller_of(api, 1_000), asked).await
    }

    pub(super) async fn with(args: LiveArgs, caller: Caller, asked: Arc<AtomicUsize>) -> Self {
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new());
        let writer = ViewWriter::with_system_views(Arc::clone(&bus)).await;
        let tools = LiveTools {
            bus: Arc::clone(&bus),
            caller,
            metrics: LiveMetrics::register(&Service::new("test").metrics),
            mirrored: MirrorMetrics::default(),
            watcher: "watcher-0".into(),
            args,
            may_read_secrets: Arc::new(|policy| *policy == ObjectKey::new("", "allowed")),
            may_write: Arc::new(|policy| policy.namespace.is_empty()),
            asker_keys: Keys::ephemeral().unwrap(),
        };
        let (readiness, stop) = (Readiness::default(), CancellationToken::new());
        let checks = LiveChecks {
            reads: readiness.check("live-reads", "a place"),
            writes: readiness.check("writes", "a place"),
        };
        let served = tokio::spawn(serve(tools.clone(), checks, stop.clone()));
        Self {
            bus,
            tools,
            writer,
            asked,
            readiness,
            stop,
            served,
        }
    }

    /// Applies a policy with one rule `r` of these context entries.
    async fn policy(&mut self, namespace: &str, name: &str, context: Value) {
        let kind = if namespace.is_empty() {
            "ClusterPolicy"
        } else {
            "Policy"
        };
        let manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"rules": [{
                "name": "r",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "context": context,
                "validate": {"message": "no", "deny": {"conditions": {"all": []}}},
            }]},
        });
        anteroom_policy::compile(&manifest).unwrap();
        self.writer
            .put(&system::policies(), namespace, name, manifest)
            .await;
        self.writer.beat().await;
    }

    /// Returns a second reader with the same tools, to which the bus leads no requests.
    fn reader(&self) -> LiveReader {
        let mirror = policies::mirror(Arc::clone(&self.bus), MirrorMetrics::default(), &self.stop);
        LiveReader::new(self.tools.clone(), Arc::new(mirror))
    }

    pub(super) async fn ask(&self, request: &LiveRequest) -> LiveOutcome {
        self.ask_within(request, PATIENCE).await
    }

    async fn ask_within(&self, request: &LiveRequest, deadline: Duration) -> LiveOutcome {
        let at = match &request.call {
            LiveCall::Write { .. } => Address::Write,
            _ => Address::Live,
        };
        self.ask_by(&at, request, deadline).await
    }

    pub(super) async fn ask_at(&self, at: &Address, request: &LiveRequest) -> LiveOutcome {
        self.ask_by(at, request, PATIENCE).await
    }

    async fn ask_by(&self, at: &Address, request: &LiveRequest, deadline: Duration) -> LiveOutcome {
        let body = live::encode_request(request).unwrap();
        live::decode_outcome(&self.send(at, body, deadline).await).unwrap()
    }

    /// Asks by this message, as it is.
    async fn send(&self, at: &Address, body: Bytes, deadline: Duration) -> Bytes {
        let call = Call {
            body,
            deadline,
            trace: None,
        };
        let asked = async {
            // The gateway subscribes once it knows the policies, and is ready then.
            self.readiness.wait_ready().await;
            let answered = self.bus.request(at, call, PATIENCE).await;
            answered.unwrap()
        };
        tokio::time::timeout(PATIENCE, asked).await.unwrap()
    }
}

/// The API server's answers.
fn api(method: &str, uri: &str) -> Response<String> {
    let (code, answer) = match (method, uri) {
        ("GET", "/version") => (200, json!({"gitVersion": "v1.33.0"})),
        ("GET", "/api/v1/namespaces/a/pods/x") => (200, json!({"metadata": {"name": "x"}})),
        ("GET", "/api/v1/namespaces/a/secrets/x") => (200, json!({"data": {"key": "hidden"}})),
        ("GET", "/api/v1/namespaces/a/configmaps/x") => {
            let managed = json!({"name": "x", "managedFields": [1]});
            (
                200,
                json!({"data": {"k": "v"}, "metadata": managed, "binaryData": {}}),
            )
        }
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews") => {
            (201, json!({"status": {"allowed": true}}))
        }
        _ => (
            404,
            json!({"kind": "Status", "message": "pods \"gone\" not found"}),
        ),
    };
    let response = Response::builder().status(code);
    response.body(answer.to_string()).unwrap()
}

fn get(policy: &str, variable: &str, path: &str) -> LiveRequest {
    LiveRequest {
        policy: ObjectKey::new("", policy),
        rule: "r".into(),
        variable: variable.into(),
        call: LiveCall::Api {
            path: path.into(),
            data: None,
        },
        query: Query {
            expression: String::new(),
            parameters: Default::default(),
            missing_key_is_error: true,
            selection: None,
            cel: None,
        },
        review_namespace: String::new(),
        review: 0,
        of_scan: false,
    }
}

fn result(outcome: LiveOutcome) -> Value {
    anteroom_wire::body::to_json(&outcome.unwrap().result).unwrap()
}

fn reads() -> Value {
    json!([
        {"name": "version", "apiCall": {"urlPath": "/version"}},
        {"name": "pod", "apiCall": {
            "urlPath": "/api/v1/namespaces/{{ request.namespace }}/pods/{{ request.name }}",
        }},
        {"name": "secret", "apiCall": {"urlPath": "/api/v1/namespaces/a/secrets/x"}},
        {"name": "cm", "configMap": {"name": "x", "namespace": "a"}},
        {"name": "sar", "apiCall": {
            "urlPath": "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            "method": "POST",
            "data": [{"key": "kind", "value": "SubjectAccessReview"}],
        }},
    ])
}

/// A read is evaluated here, and an error of the API server keeps its words.
#[tokio::test]
async fn a_policys_own_reads_are_made() {
    let mut rig = Rig::new(LiveArgs::default()).await;
    rig.policy("", "p", reads()).await;
    let mut version = get("p", "version", "/version");
    version.query.expression = "gitVersion".into();
    assert_eq!(result(rig.ask(&version).await), json!("v1.33.0"));
    let pod = get("p", "pod", "/api/v1/namespaces/a/pods/x");
    assert_eq!(
        result(rig.ask(&pod).await),
        json!({"metadata": {"name": "x"}})
    );
    let gone = get("p", "pod", "/api/v1/namespaces/a/pods/gone");
    let expected = FactError::LiveReadFailed {
        code: 404,
        message: "pods \"gone\" not found".into(),
    };
    assert_eq!(rig.ask(&gone).await, Err(expected));
    let mut review = get("p", "sar", "");
    review.call = LiveCall::Api {
        path: "/apis/authorization.k8s.io/v1/subjectaccessreviews".into(),
        data: Some(json!({"kind": "SubjectAccessReview"})),
    };
    review.query.expression = "status.allowed".into();
    assert_eq!(result(rig.ask(&review).await), json!(true));
    let mut unknown = get("p", "version", "/version");
    unknown.query.expression = "gitVersion[".into();
    let unknown = rig.ask(&unknown).await.unwrap_err();
    assert!(
        matches!(unknown, FactError::ExpressionInvalid { .. }),
        "{unknown}"
    );
}

/// `{data, metadata}` of a ConfigMap, as a view has them.
#[tokio::test]
async fn a_config_map_is_its_data_and_metadata() {
    let mut rig = Rig::new(LiveArgs::default()).await;
    rig.policy("", "p", reads()).await;
    let mut request = get("p", "cm", "");
    let object = ObjectKey::new("a", "x");
    request.call = LiveCall::ConfigMap { object };
    let expected = json!({"data": {"k": "v"}, "metadata": {"name": "x"}});
    assert_eq!(result(rig.ask(&request).await), expected);
}

/// Whoever can ask can read nothing that no policy reads.
#[tokio::test]
async fn a_path_that_the_policy_does_not_contain_is_refused() {
    let mut rig = Rig::new(LiveArgs::default()).await;
    rig.policy("", "p", reads()).await;
    let home = json!([{"name": "pod", "apiCall": {
        "urlPath": "/api/v1/namespaces/{{ request.namespace }}/pods/x",
    }}]);
    rig.policy("own", "q", home).await;
    let mut refused = vec![
        get("p", "version", "/api/v1/secrets"),
        get("p", "pod", "/api/v1/namespaces/a/pods/x/log"),
        get("p", "pod", "/api/v1/namespaces/a/pods/x?watch=true"),
        get("p", "pod", "/api/v1/namespaces/a/pods/%2e%2e"),
        get("p", "pod", "/api/v1/namespaces/a/pods/.."),
        get("p", "pod", "/api/v1/namespaces/a/pods/x%2Flog"),
        get("p", "pod", "/api/v1/namespaces/a//x"),
        get("p", "none", "/version"),
        get("none", "version", "/version"),
    ];
    let mut posted = get("p", "version", "");
    posted.call = LiveCall::Api {
        path: "/version".into(),
        data: Some(json!({})),
    };
    refused.push(posted);
    let mut other = get("p", "cm", "");
    other.call = LiveCall::ConfigMap {
        object: ObjectKey::new("a", "other"),
    };
    refused.push(other);
    let mut outside = get("q", "pod", "/api/v1/namespaces/a/pods/x");
    outside.policy = ObjectKey::new("own", "q");
    refused.push(outside);
    let asked = refused.iter().map(|request| rig.ask(request));
    for (outcome, request) in futures::future::join_all(asked).await.iter().zip(&refused) {
        let refused = matches!(outcome, Err(FactError::LiveReadFailed { code: 0, .. }));
        assert!(refused, "{:?}: {outcome:?}", request.call);
    }
    assert_eq!(rig.asked.load(Ordering::SeqCst), 0);
}

/// Secrets are read for those alone that an administrator has allowed to, and sealed.
#[tokio::test]
async fn secrets_are_read_for_those_who_may_and_sealed() {
    let mut rig = Rig::new(LiveArgs::default()).await;
    for name in ["p", "allowed"] {
        rig.policy("", name, reads()).await;
    }
    let path = "/api/v1/namespaces/a/secrets/x";
    let forbidden = rig.ask(&get("p", "secret", path)).await.unwrap_err();
    let reader = "ClusterPolicy p".to_owned();
    assert_eq!(forbidden, FactError::SecretForbidden { reader });
    let open = rig.ask(&get("allowed", "secret", path)).await.unwrap_err();
    assert!(matches!(open, FactError::AskerUnknown { .. }), "{open}");
    let strange = Keys::ephemeral().unwrap();
    let request = live::encode_request(&get("allowed", "secret", path)).unwrap();
    let (question, _) = strange.ask(AskedOf::Live, &request).unwrap();
    let stranger =
        live::decode_outcome(&rig.send(&Address::Live, question, PATIENCE).await).unwrap();
    let stranger = stranger.unwrap_err();
    assert!(
        matches!(stranger, FactError::AskerUnknown { .. }),
        "{stranger}"
    );
    assert_eq!(rig.asked.load(Ordering::SeqCst), 0);
    let sealed = async |request: &LiveRequest| {
        let request = live::encode_request(request).unwrap();
        let (question, asked) = rig.tools.asker_keys.ask(AskedOf::Live, &request).unwrap();
        let answer = rig.send(&Address::Live, question, PATIENCE).await;
        assert!(!answer.windows(6).any(|bytes| bytes == b"hidden"));
        live::decode_outcome(&asked.open(&answer).unwrap()).unwrap()
    };
    let mut request = get("allowed", "secret", path);
    let reply = sealed(&request).await.unwrap();
    let result = anteroom_wire::body::to_json(&reply.result).unwrap();
    assert_eq!(result, json!({"data": {"key": "hidden"}}));
    request.query.expression = "add(data.key, '1')".into();
    let error = sealed(&request).await.unwrap_err();
    assert!(
        matches!(error, FactError::EvaluationFailed { .. }),
        "{error}"
    );
    assert!(!error.to_string().contains("hidden"), "{error}");
}

/// Starts a service that answers only when the test allows.
async fn gated() -> (Endpoint, Arc<Semaphore>, String) {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let endpoint = Endpoint::start_held(held, |_, _| ok("[1]")).await;
    let url = format!("http://{}/", endpoint.address);
    (endpoint, gate, url)
}

fn service(policy: &str, url: &str) -> LiveRequest {
    let mut request = get(policy, "service", "");
    request.call = LiveCall::Service {
        url: url.into(),
        data: None,
    };
    request
}

/// In Kyverno's kinds in CEL an answer of any status is one, and a body that is no JSON is null.
#[tokio::test]
async fn an_answer_of_any_status_is_one_where_the_policy_looks_at_the_status() {
    let long = "x".repeat(100_000);
    let endpoint = Endpoint::start(move |_, request| match request.uri().path() {
        "/no" => status(404, r#"{"reason": "none"}"#),
        "/list" => status(500, "[1]"),
        "/text" => status(200, "hello"),
        "/long" => status(500, &long),
        "/deep" => ok(&"[".repeat(10_000)),
        _ => ok("{}"),
    })
    .await;
    let at = format!("http://{}/", endpoint.address);
    let caller = crate::gateway::calls::testing::caller(1_000);
    let args = LiveArgs {
        live_read_bytes_max: 50_000,
        ..LiveArgs::default()
    };
    let mut rig = Rig::with(args, caller, Arc::default()).await;
    let expression = format!("http.get('{at}' + object.path) != null");
    let manifest = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
            ]},
            "validations": [{"expression": expression}],
        },
    });
    let policy = anteroom_policy::compile(&manifest).unwrap();
    let rule = &policy.rules()[0];
    rig.writer
        .put(&system::policies(), "", "validatingpolicy:p", manifest)
        .await;
    rig.writer.beat().await;
    let ask = async |path: &str| {
        let mut request = service("validatingpolicy:p", &format!("{at}{path}"));
        request.rule = rule.name().to_owned();
        request.variable = format!("http.get(\"{at}\" + _)");
        rig.ask(&request).await
    };
    for (path, expected) in [
        ("no", json!({"reason": "none", "statusCode": 404})),
        ("list", json!({"body": [1], "statusCode": 500})),
        ("text", json!({"body": null, "statusCode": 200})),
        ("", json!({"statusCode": 200})),
    ] {
        assert_eq!(result(ask(path).await), expected, "{path}");
    }
    // Over a limit it is unknown, and not null.
    for (path, says) in [("long", "limit of"), ("deep", "not usable JSON")] {
        let error = ask(path).await.unwrap_err();
        assert!(error.to_string().contains(says), "{path}: {error}");
    }
}

async fn service_rig(args: LiveArgs, url: &str) -> Rig {
    let caller = crate::gateway::calls::testing::caller(1_000);
    let mut rig = Rig::with(args, caller, Arc::default()).await;
    let context = json!([{"name": "service", "apiCall": {"service": {"url": url}}}]);
    rig.policy("", "p", context).await;
    rig
}

/// Equal reads that are under way at the same time are one at their source.
#[tokio::test]
async fn equal_reads_at_the_same_time_are_one_at_their_source() {
    let (endpoint, gate, url) = gated().await;
    let rig = service_rig(LiveArgs::default(), &url).await;
    let request = service("p", &url);
    let first = rig.ask(&request);
    let later = async {
        while endpoint.served() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let asked = (0..20).map(|_| rig.ask(&request));
        let opened = async {
            // They have been asked for by then; one that comes late is one more at the source.
            tokio::time::sleep(Duration::from_millis(200)).await;
            gate.add_permits(1_000);
        };
        futures::future::join(futures::future::join_all(asked), opened)
            .await
            .0
    };
    let (first, later) = futures::future::join(first, later).await;
    assert_eq!(result(first), json!([1]));
    // The first call may not know what was written before the later reads were asked for.
    assert!(endpoint.served() >= 2);
    let shared = later
        .iter()
        .filter(|reply| reply.as_ref().unwrap().shared)
        .count();
    assert_eq!(endpoint.served(), 1 + later.len() - shared);
    assert!(shared > 0);
    // Nothing is kept.
    let before = endpoint.served();
    assert!(!rig.ask(&request).await.unwrap().shared);
    assert_eq!(endpoint.served(), before + 1);
}

/// The deadline is kept, whatever the source does.
#[tokio::test]
async fn the_deadline_is_kept() {
    let (_endpoint, _gate, url) = gated().await;
    let rig = service_rig(LiveArgs::default(), &url).await;
    let outcome = rig
        .ask_within(&service("p", &url), Duration::from_millis(300))
        .await;
    let exceeded = FactError::DeadlineExceeded {
        deadline_ms: 300,
        over_part: false,
    };
    assert_eq!(outcome, Err(exceeded));
}

/// A watcher beyond its limits answers `LiveReadBusy`.
#[tokio::test]
async fn a_watcher_over_its_limits_answers_that_it_is_busy() {
    let mut rig = Rig::new(LiveArgs {
        live_reads_per_second: 1,
        ..LiveArgs::default()
    })
    .await;
    rig.policy("", "p", reads()).await;
    let request = get("p", "version", "/version");
    rig.ask(&request).await.unwrap();
    let busy = rig
        .ask_within(&request, Duration::from_millis(100))
        .await
        .unwrap_err();
    assert!(matches!(busy, FactError::LiveReadBusy { .. }), "{busy}");
    assert_eq!(rig.asked.load(Ordering::SeqCst), 1);
}

/// Scans and admission have separate limits, also for policies of a namespace.
#[tokio::test]
async fn scans_have_limits_of_their_own() {
    for (namespace, variable, path) in [
        ("", "version", "/version"),
        ("a", "pod", "/api/v1/namespaces/a/pods/x"),
    ] {
        let args = LiveArgs {
            live_reads_per_second: 1,
            ..LiveArgs::default()
        };
        let mut rig = Rig::new(args).await;
        let context = json!([{"name": variable, "apiCall": {"urlPath": path}}]);
        rig.policy(namespace, "p", context).await;
        let of_admission = LiveRequest {
            policy: ObjectKey::new(namespace, "p"),
            ..get("p", variable, path)
        };
        let of_scan = LiveRequest {
            of_scan: true,
            ..of_admission.clone()
        };
        let soon = Duration::from_millis(100);
        rig.ask(&of_scan).await.unwrap();
        let busy = rig.ask_within(&of_scan, soon).await.unwrap_err();
        assert!(matches!(busy, FactError::LiveReadBusy { .. }), "{busy}");
        rig.ask_within(&of_admission, PATIENCE).await.unwrap();
        assert_eq!(rig.asked.load(Ordering::SeqCst), 2, "{namespace}");
    }
}

/// An answer over the limit of size is an error.
#[tokio::test]
async fn a_huge_answer_is_an_error() {
    let args = LiveArgs {
        live_read_bytes_max: 10,
        ..LiveArgs::default()
    };
    let mut rig = Rig::new(args).await;
    rig.policy("", "p", reads()).await;
    let error = rig.ask(&get("p", "version", "/version")).await.unwrap_err();
    assert!(
        error.to_string().contains("over the limit of 10 bytes"),
        "{error}"
    );
}

/// A stopping gateway leaves no request unanswered.
#[tokio::test]
async fn a_gateway_that_stops_leaves_its_bus_address() {
    let mut rig = Rig::new(LiveArgs::default()).await;
    rig.policy("", "p", reads()).await;
    let request = get("p", "version", "/version");
    rig.ask(&request).await.unwrap();
    rig.stop.cancel();
    tokio::time::timeout(PATIENCE, &mut rig.served)
        .await
        .unwrap()
        .unwrap();
    let call = Call {
        body: live::encode_request(&request).unwrap(),
        deadline: PATIENCE,
        trace: None,
    };
    let outcome = rig.bus.request(&Address::Live, call, PATIENCE).await;
    assert!(
        matches!(outcome, Err(RequestError::NoResponders)),
        "{outcome:?}"
    );
}

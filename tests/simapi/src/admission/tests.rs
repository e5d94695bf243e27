use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    SimApi, SimConfig,
    admission::{CONFIGURATIONS, change},
    conformance::Target,
};

/// A webhook that denies every object whose name begins with `bad`, over TLS of its own: its URL,
/// and its CA for a configuration.
async fn webhook() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca = BASE64_STANDARD.encode(made.cert.pem());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}/validate",
        listener.local_addr().unwrap().port()
    );
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            let answer = answer(&read_body(&mut stream).await).to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            stream.write_all((head + &answer).as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
    });
    (url, ca)
}

/// The body of an HTTP request that says its length.
async fn read_body(stream: &mut (impl AsyncReadExt + Unpin)) -> Value {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if body.len() >= length {
                return serde_json::from_slice(&request[request.len() - length..]).unwrap();
            }
        }
        assert!(
            stream.read_buf(&mut request).await.unwrap() > 0,
            "the request ended early"
        );
    }
}

fn answer(review: &Value) -> Value {
    let request = &review["request"];
    let name = request["name"].as_str().unwrap();
    let mut response = json!({"uid": request["uid"], "allowed": !name.starts_with("bad"),
        "warnings": [format!("{} {}", request["operation"].as_str().unwrap(), name)]});
    // Of what changes an object: how often it was asked.
    if let Some(at) = name.strip_prefix("count-") {
        let pointer = format!("/data/{at}");
        let asked = request["object"].pointer(&pointer).and_then(Value::as_str);
        let patch = json!([{"op": "add", "path": pointer, "value": format!("{}x", asked.unwrap_or_default())}]);
        response["patchType"] = "JSONPatch".into();
        response["patch"] = BASE64_STANDARD.encode(patch.to_string()).into();
    }
    if name.starts_with("bad") {
        response["status"] = json!({"code": 403, "message": format!("{name} is bad")});
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn configuration(url: &str, ca: &str, failure_policy: &str) -> Value {
    json!({"metadata": {"name": "test"}, "webhooks": [{
        "name": "test.a.dev", "clientConfig": {"url": url, "caBundle": ca}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": failure_policy, "timeoutSeconds": 5,
        "rules": [{"operations": ["CREATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]}]})
}

async fn start() -> (SimApi, Target) {
    let sim = SimApi::start(SimConfig::default()).await.unwrap();
    let target = Target {
        url: sim.url(),
        headers: http::HeaderMap::new(),
        tls: None,
        compact: None,
    };
    (sim, target)
}

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_webhook_allows_denies_and_warns() {
    let (sim, target) = start().await;
    let (url, ca) = webhook().await;
    sim.put(CONFIGURATIONS, configuration(&url, &ca, "Fail"))
        .unwrap();
    let post = async |name: &str| {
        target
            .post(CONFIGMAPS, &json!({"metadata": {"name": name}}))
            .await
            .unwrap()
    };
    let good = post("good").await;
    assert_eq!(good.code, 201, "{good:?}");
    assert_eq!(good.headers["warning"], "299 - \"CREATE good\"");
    let bad = post("bad-1").await;
    let message = "admission webhook \"test.a.dev\" denied the request: bad-1 is bad";
    assert_eq!(
        (bad.code, bad.body["message"].as_str()),
        (403, Some(message))
    );
    assert!(sim.get("configmaps", "default", "bad-1").is_none());
    // An update is not in its rules; a deletion is.
    sim.put(
        "configmaps",
        json!({"metadata": {"namespace": "default", "name": "bad-2"}}),
    )
    .unwrap();
    let item = format!("{CONFIGMAPS}/bad-2");
    let patched = target
        .patch(&item, "merge-patch+json", &json!({"data": {"a": "b"}}))
        .await
        .unwrap();
    assert_eq!(patched.code, 200);
    assert_eq!(target.delete(&item).await.unwrap().code, 403);
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_fails_as_its_policy_says() {
    let (sim, target) = start().await;
    let (url, ca) = webhook().await;
    let (_, other_ca) = webhook().await;
    let create = async |name: &str| {
        target
            .post(CONFIGMAPS, &json!({"metadata": {"name": name}}))
            .await
            .unwrap()
    };
    // Nobody listens on port 1; a certificate of another CA is no answer either.
    for (index, (url, ca)) in [("https://localhost:1/", &ca), (&url, &other_ca)]
        .into_iter()
        .enumerate()
    {
        sim.put(CONFIGURATIONS, configuration(url, ca, "Fail"))
            .unwrap();
        let failed = create(&format!("fail-{index}")).await;
        assert_eq!(failed.code, 500, "{failed:?}");
        assert!(
            failed.body["message"]
                .as_str()
                .unwrap()
                .contains("failed calling webhook")
        );
        sim.put(CONFIGURATIONS, configuration(url, ca, "Ignore"))
            .unwrap();
        assert_eq!(create(&format!("ignore-{index}")).await.code, 201);
    }
}

#[tokio::test]
async fn a_mutating_webhook_is_reinvoked_after_another_changed_the_object() {
    let (sim, target) = start().await;
    let (url, ca) = webhook().await;
    let webhook = |name: &str, again: &str| {
        let mut configuration = configuration(&url, &ca, "Fail");
        configuration["metadata"]["name"] = name.into();
        configuration["webhooks"][0]["reinvocationPolicy"] = again.into();
        configuration
    };
    for (name, again) in [("a", "IfNeeded"), ("b", "Never"), ("c", "IfNeeded")] {
        sim.put(change::CONFIGURATIONS, webhook(name, again))
            .unwrap();
    }
    let object = json!({"metadata": {"name": "count-n"}, "data": {}});
    let made = target.post(CONFIGMAPS, &object).await.unwrap();
    // Three, and once more the first; then the last, which the first changed it after.
    assert_eq!(made.body["data"]["n"], "xxxxx", "{made:?}");
}

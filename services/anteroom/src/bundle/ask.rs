//! Collects the contents of the archive, request by request.

use anteroom_runtime::wall_clock;
use kube::Client;
use serde_json::{Value, json};

use super::{BundleArgs, archive::Archive, redact};
use crate::{
    asker::{Asker, ReadResult},
    check,
};

/// The most pods whose logs and metrics are taken.
const PODS_MAX: usize = 100;

/// The most bytes of one log that are asked for.
const LOG_BYTES_MAX: usize = 16 << 20;

/// Returns what is taken of an object.
type Picked = fn(&Value) -> Value;

/// Objects of the namespace: name in the archive, path, and what is taken of each.
const OBJECTS: [(&str, &str, Picked); 8] = [
    (
        "deployments",
        "apis/apps/v1/{}/deployments",
        redact::workload,
    ),
    (
        "statefulsets",
        "apis/apps/v1/{}/statefulsets",
        redact::workload,
    ),
    ("jobs", "apis/batch/v1/{}/jobs", redact::workload),
    ("pods", "api/v1/{}/pods", redact::pod),
    ("services", "api/v1/{}/services", redact::other),
    ("claims", "api/v1/{}/persistentvolumeclaims", redact::other),
    (
        "budgets",
        "apis/policy/v1/{}/poddisruptionbudgets",
        redact::other,
    ),
    ("events", "api/v1/{}/events", |event| {
        redact::event(event).unwrap_or_default()
    }),
];

/// Objects of the whole cluster. Of webhook configurations those that are Anteroom's are taken.
const STATUSES: [(&str, &str); 10] = [
    ("clusterpolicies", "apis/kyverno.io/v1/clusterpolicies"),
    ("policies", "apis/kyverno.io/v1/policies"),
    (
        "cachedcontextentries",
        "apis/kyverno.io/v2alpha1/cachedcontextentries",
    ),
    (
        "globalcontextentries",
        "apis/kyverno.io/v2alpha1/globalcontextentries",
    ),
    ("policyexceptions", "apis/kyverno.io/v2/policyexceptions"),
    (
        "validatingpolicies",
        "apis/policies.kyverno.io/v1/validatingpolicies",
    ),
    (
        "namespacedvalidatingpolicies",
        "apis/policies.kyverno.io/v1/namespacedvalidatingpolicies",
    ),
    (
        "mutatingpolicies",
        "apis/policies.kyverno.io/v1/mutatingpolicies",
    ),
    (
        "namespacedmutatingpolicies",
        "apis/policies.kyverno.io/v1/namespacedmutatingpolicies",
    ),
    (
        "policyexceptions-in-cel",
        "apis/policies.kyverno.io/v1/policyexceptions",
    ),
];

/// Asks for everything.
///
/// # Errors
/// The API server does not answer at all.
pub(super) async fn everything(
    client: &Client,
    args: &BundleArgs,
    archive: &mut Archive,
) -> anyhow::Result<()> {
    let asker = Asker(client);
    let version = client.apiserver_version().await?;
    archive.json(
        "versions.json",
        Ok(
            json!({ "anteroom": env!("CARGO_PKG_VERSION"), "kubernetes": version.git_version,
            "time": wall_clock::now().to_string(), "namespace": args.namespace }),
        ),
    );
    let (checks, heard) = check::of_installation(client, &args.namespace, &args.nats).await?;
    archive.json("checks.json", Ok(checks));
    archive.json("system.json", heard);
    let mut pods = Vec::new();
    for (name, path, picked) in OBJECTS {
        let path = path.replace("{}", &format!("namespaces/{}", args.namespace));
        let objects = asker.all(&format!("/{path}")).await;
        if let ("pods", Ok(found)) = (name, &objects) {
            pods.clone_from(found);
        }
        archive.json(&format!("objects/{name}.json"), listed(objects, picked));
    }
    for kind in ["validating", "mutating"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
        let is_ours = |of: &Value| {
            of["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "anteroom-webhook"
        };
        let mut found = asker.all(&path).await;
        if let Ok(found) = &mut found {
            found.retain(is_ours);
        }
        archive.json(
            &format!("objects/{kind}.json"),
            listed(found, redact::configuration),
        );
    }
    for (name, path) in STATUSES {
        let objects = asker.all(&format!("/{path}")).await;
        archive.json(
            &format!("statuses/{name}.json"),
            listed(objects, redact::status),
        );
    }
    for pod in pods.iter().take(PODS_MAX) {
        of_pod(&asker, args, pod, archive).await;
    }
    Ok(())
}

fn listed(objects: ReadResult<Vec<Value>>, picked: Picked) -> ReadResult<Value> {
    let mut document = redact::all(&objects?, picked);
    if let Some(items) = document["items"].as_array_mut() {
        items.retain(|item| !item.is_null());
    }
    Ok(document)
}

/// Takes logs, metrics and readiness of a pod.
async fn of_pod(asker: &Asker<'_>, args: &BundleArgs, pod: &Value, archive: &mut Archive) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{}/pods/{name}", args.namespace);
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let statuses = pod["status"]["containerStatuses"].as_array();
    for container in containers {
        let container_name = container["name"].as_str().unwrap_or_default();
        let status = statuses
            .into_iter()
            .flatten()
            .find(|status| status["name"] == container_name);
        let restarts = status.and_then(|status| status["restartCount"].as_u64());
        let log = format!(
            "{path}/log?container={container_name}&tailLines={}&limitBytes={LOG_BYTES_MAX}",
            args.log_lines
        );
        let text = asker.text(&log).await;
        archive.text(&format!("pods/{name}/{container_name}.log"), text);
        if restarts.unwrap_or_default() > 0 {
            let text = asker.text(&format!("{log}&previous=true")).await;
            archive.text(&format!("pods/{name}/{container_name}.previous.log"), text);
        }
        let ports = container["ports"].as_array().into_iter().flatten();
        for port in ports {
            let number = port["containerPort"].as_u64().unwrap_or_default();
            let pages: &[_] = match port["name"].as_str() {
                Some("admin") => &["metrics", "readyz"],
                Some("monitor") => &["varz", "jsz"],
                _ => &[],
            };
            for page in pages {
                let query = if *page == "readyz" { "?verbose" } else { "" };
                let text = asker
                    .text(&format!("{path}:{number}/proxy/{page}{query}"))
                    .await;
                archive.text(&format!("pods/{name}/{page}.txt"), text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// An API server with one pod, which logs a secret, and has started again once.
    async fn answer(request: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
        let uri = request.uri().to_string();
        let pod = json!({
            "metadata": { "name": "w" },
            "spec": { "containers": [{ "name": "webhook",
                "ports": [{ "name": "https", "containerPort": 9443 }, { "name": "admin", "containerPort": 9090 }] }] },
            "status": { "containerStatuses": [{ "name": "webhook", "restartCount": 1 }] },
        });
        let body = match uri.split_once('?').map_or(&*uri, |(path, _)| path) {
            "/api/v1/namespaces/ours/pods" => json!({ "items": [pod] }).to_string(),
            "/api/v1/namespaces/ours/pods/w/log" if uri.ends_with("&previous=true") => "before\n".into(),
            "/api/v1/namespaces/ours/pods/w/log" => "token=CANARY\nlast\n".into(),
            "/api/v1/namespaces/ours/pods/w:9090/proxy/metrics" => "up 1\n".into(),
            "/version" => json!({ "major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": "" }).to_string(),
            _ => {
                let status = json!({ "status": "Failure", "code": 403, "message": "no", "reason": "Forbidden" });
                let refused = Response::builder().status(403).body(status.to_string().into_bytes().into());
                return Ok(refused.unwrap());
            }
        };
        Ok(Response::new(body.into_bytes().into()))
    }

    #[tokio::test]
    async fn logs_and_metrics_of_pods_are_taken_and_what_is_forbidden_is_named() {
        let client = Client::new(tower::service_fn(answer), "ours");
        let args = <ParsedArgs as clap::Parser>::parse_from(["a", "--namespace", "ours"]).args;
        let mut archive = Archive::new();
        everything(&client, &args, &mut archive).await.unwrap();
        let text = |name: &str| {
            archive
                .texts()
                .find(|(of, _)| *of == name)
                .map(|(_, text)| text)
        };
        assert_eq!(text("pods/w/webhook.log"), Some("token=…\nlast\n"));
        assert_eq!(text("pods/w/webhook.previous.log"), Some("before\n"));
        assert_eq!(text("pods/w/metrics.txt"), Some("up 1\n"));
        assert!(text("versions.json").unwrap().contains("v1.33.0"));
        let missing = archive.missing();
        let reason = |name: &str| {
            missing
                .iter()
                .find(|(of, _)| of == name)
                .map(|(_, reason)| &**reason)
        };
        assert_eq!(reason("system.json"), Some("no login to NATS was given"));
        let readyz = "you may not read /api/v1/namespaces/ours/pods/w:9090/proxy/readyz?…";
        assert_eq!(reason("pods/w/readyz.txt"), Some(readyz));
    }

    #[derive(clap::Parser)]
    struct ParsedArgs {
        #[command(flatten)]
        args: BundleArgs,
    }
}

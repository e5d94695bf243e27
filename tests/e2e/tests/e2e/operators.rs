//! Operators look at a system by a login of their own: what it decides, why, and how its parts are.
//!
//! `ANTEROOM_CHECK_LOOKS=100` looks 100 times whether a healthy system has no finding.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::time::{Duration, Instant};

use anteroom_e2e::{
    check::{ENTRY, POLICY, entry_is_ready, is_denied},
    cluster::Identity,
    manifests,
    process::workspace_binary,
    wait,
    world::{World, host, ingress},
};
use anyhow::{Context, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::process::Command;

const INGRESSES: usize = 200;

/// The longest time of one `anteroom check` on a healthy system. The goal is 5 s, of which it listens for 3; the machine of
/// the tests is busy.
const CHECK_MAX: Duration = Duration::from_secs(15);

/// Requests that are denied while somebody looks.
const DENIALS: u64 = 25;

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_what_is_decided_and_why_and_reads_no_object() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    world.fill(0, INGRESSES).await?;
    world.create(&serde_saphyr::from_str(ENTRY)?).await?;
    world.create(&serde_saphyr::from_str(POLICY)?).await?;
    world.system.ready().await?;
    entry_is_ready(world, "ingresses", INGRESSES).await?;
    is_denied(world, &host(7)).await?;

    counts_are_exact(world).await?;
    denials_are_explained_after_they_have_happened(world).await?;
    views_and_parts_are_shown(world).await?;
    no_object_is_read(world).await?;
    a_bundle_for_support_holds_no_secret(world).await?;
    faults_are_found(world).await
}

/// Returns a command that logs in as an operator.
fn operator(world: &World, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(workspace_binary("anteroom")?);
    command
        .args(args)
        .envs(world.nats.logins().env("operator"))
        .kill_on_drop(true);
    Ok(command)
}

/// Returns the lines of JSON that a command prints.
async fn lines(world: &World, args: &[&str]) -> anyhow::Result<Vec<Value>> {
    let output = operator(world, args)?.output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{args:?}: {said}");
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| Ok(serde_json::from_slice(line)?))
        .collect()
}

async fn denials_are_explained_after_they_have_happened(world: &World) -> anyhow::Result<()> {
    let all = (DENIALS + 1).to_string();
    let args = ["tap", "--denied", "--past", "--max", &all, "-o", "json"];
    let told = lines(world, &args).await?;
    ensure!(told.len() as u64 == DENIALS + 1, "{} denials", told.len());
    let denial = told.last().context("a denial")?;
    ensure!(
        denial["verdict"] == "denied" && denial["kind"] == "Ingress",
        "{denial}"
    );
    let rules = denial["rules"].as_array().into_iter().flatten();
    let failed = rules.clone().find(|rule| rule["result"] == "fail");
    let failed = failed.context("the rule that failed")?;
    let fact = &failed["facts"][0];
    // One of 200 was looked at: an index finds it, once there is one.
    ensure!(
        fact["from"] == "view" && fact["objects"] == INGRESSES && fact["examined"] == 1,
        "{failed}"
    );
    let text = operator(world, &["tap", "--denied", "--past", "--max", "1", "--why"])?;
    let text = String::from_utf8({ text }.output().await?.stdout)?;
    ensure!(text.contains("  fail  unique-ingress-host"), "{text}");
    ensure!(text.contains("of 200 objects)"), "{text}");
    Ok(())
}

async fn counts_are_exact(world: &World) -> anyhow::Result<()> {
    let policy = "unique-ingress-host";
    let args = ["top", "-o", "json", "--policy", policy, "--for", "9s"];
    let looking = lines(world, &args);
    let deny = async {
        wait::until("the webhook to be looked at", async || {
            let leases = world
                .system
                .webhook
                .metric("anteroom_webhook_taps_open", &[])
                .await?;
            ensure!(leases >= 1.0, "{leases} leases");
            Ok(())
        })
        .await?;
        // At once, so that all are within the time of the look.
        let denials = (0..DENIALS).map(|number| async move {
            let number = INGRESSES + 1 + usize::try_from(number)?;
            let refused = world.create(&ingress(number, &host(7))).await;
            ensure!(refused.is_err(), "number {number} was admitted");
            anyhow::Ok(())
        });
        try_join_all(denials).await.map(drop)
    };
    let (looked, denied) = tokio::join!(looking, deny);
    denied?;
    let last = looked?.pop().context("a line")?;
    let rules = last["rules"].as_array().into_iter().flatten();
    let denials = rules
        .filter_map(|rule| rule["denied"].as_u64())
        .sum::<u64>();
    ensure!(denials == DENIALS && last["lost"] == 0, "{last}");
    // The lease was ended.
    wait::until("nobody to look", async || {
        let leases = world
            .system
            .webhook
            .metric("anteroom_webhook_taps_open", &[])
            .await?;
        ensure!(leases == 0.0, "{leases} leases");
        Ok(())
    })
    .await
}

async fn views_and_parts_are_shown(world: &World) -> anyhow::Result<()> {
    wait::until("the view to be shown", async || {
        let told = lines(world, &["top", "views", "-o", "json", "--for", "4s"]).await?;
        let last = told.last().context("a line")?;
        let mut views = last["views"].as_array().into_iter().flatten();
        let ingresses = views
            .find(|view| view["view"] == "ingresses.v1.networking.k8s.io")
            .with_context(|| last.to_string())?;
        ensure!(
            ingresses["state"] == "synced" && ingresses["objects"] == INGRESSES,
            "{ingresses}"
        );
        ensure!(ingresses["servedBy"].as_u64() >= Some(1), "{ingresses}");
        Ok(())
    })
    .await?;
    let output = operator(world, &["top", "replicas", "--for", "3s"])?
        .output()
        .await?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        text.contains("REPLICA") && !text.contains('\u{1b}'),
        "{text}"
    );
    Ok(())
}

/// Returns the checks over NATS that failed, or that could not be asked.
async fn failed_checks(world: &World) -> anyhow::Result<Vec<String>> {
    let kubeconfig = world.cluster.kubeconfig_file(Identity::Admin)?;
    let mut command = operator(world, &["check", "-o", "json", "--kubeconfig"])?;
    let output = command.arg(kubeconfig).output().await?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let categories = said["categories"].as_array().into_iter().flatten();
    let checks = categories.filter_map(|category| category["checks"].as_array());
    let bad = checks.flatten().filter(|check| {
        let id = check["id"].as_str().unwrap_or_default();
        let over_nats = [
            "nats-",
            "watchers-",
            "views-",
            "decisions-",
            "webhooks-called",
        ];
        let is_bad = check["result"] == "error" || check["result"] == "not asked";
        is_bad && over_nats.iter().any(|start| id.starts_with(start))
    });
    let ids = bad.filter_map(|check| Some(check["id"].as_str()?.to_owned()));
    Ok(ids.collect())
}

/// Parts that are gone are found, each by the checks about it; nothing is found while all run.
async fn faults_are_found(world: &mut World) -> anyhow::Result<()> {
    wait::until("no finding", async || {
        let failed = failed_checks(world).await?;
        ensure!(failed.is_empty(), "{failed:?}");
        Ok(())
    })
    .await?;
    a_healthy_system_has_no_finding(world).await?;
    world
        .system
        .replicas
        .iter_mut()
        .for_each(|replica| drop(replica.take()));
    wait::until("a view without a replica", async || {
        let failed = failed_checks(world).await?;
        ensure!(failed == ["views-served"], "{failed:?}");
        Ok(())
    })
    .await?;
    drop(world.system.watcher.take());
    world.system.other_watchers.clear();
    wait::until("no watcher", async || {
        let failed = failed_checks(world).await?;
        let has = |id: &str| failed.iter().any(|failed| failed == id);
        ensure!(
            has("watchers-coordinator") && has("watchers-groups"),
            "{failed:?}"
        );
        // Nobody is there who knows it.
        ensure!(has("nats-room"), "{failed:?}");
        Ok(())
    })
    .await
}

/// Each look finds nothing, and is short: nobody acts on alarms that are often false, nor waits for them.
async fn a_healthy_system_has_no_finding(world: &World) -> anyhow::Result<()> {
    let looks = wait::setting("ANTEROOM_CHECK_LOOKS", 3)?;
    let mut took = Vec::new();
    for look in 0..looks {
        let begun = Instant::now();
        let failed = failed_checks(world).await?;
        took.push(begun.elapsed());
        ensure!(failed.is_empty(), "look {look}: {failed:?}");
    }
    took.sort_unstable();
    let longest = took.last().copied().unwrap_or_default();
    let middle = took.get(took.len() / 2).copied().unwrap_or_default();
    println!("{looks} looks found nothing: {middle:.1?} each, {longest:.1?} at most");
    ensure!(longest <= CHECK_MAX, "a look took {longest:.1?}");
    Ok(())
}

/// A text that stands wherever an installation may hold a secret.
const CANARY: &str = "canary7f3a9";

/// Objects of an installation that hold secrets, and an entry whose source has one in its URL.
fn with_canaries() -> Vec<Value> {
    let metadata = json!({ "namespace": "anteroom", "name": "with-canaries",
        "annotations": { "note": CANARY }, "labels": { "note": CANARY } });
    let pod = json!({
        "containers": [{
            "name": "c", "image": "none.invalid/image",
            "command": [CANARY],
            "args": [format!("--nats-url=nats://user:{CANARY}@nats:4222"), CANARY],
            "env": [{ "name": "PASSWORD", "value": CANARY }],
            "ports": [{ "name": "admin", "containerPort": 9090 }],
        }],
    });
    let selector = json!({ "app": "with-canaries" });
    let template = json!({ "metadata": { "labels": selector }, "spec": pod });
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": metadata, "type": "Warning", "reason": "FailedCreate",
        "involvedObject": { "kind": "Pod", "namespace": "anteroom", "name": "with-canaries" },
        "message": format!("failed calling webhook: Post https://anteroom-webhook.anteroom.svc/validate/{CANARY}?timeout=10s"),
    });
    let entry = json!({
        "apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry", "metadata": { "name": "with-canaries" },
        "spec": { "apiCall": { "refreshInterval": "1h",
            "service": { "url": format!("http://127.0.0.1:9/{CANARY}?token={CANARY}") } } },
    });
    vec![
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": { "key": CANARY } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "key": CANARY } }),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": { "replicas": 0, "selector": { "matchLabels": selector }, "template": template } }),
        event,
        entry,
    ]
}

async fn a_bundle_for_support_holds_no_secret(world: &World) -> anyhow::Result<()> {
    for object in with_canaries() {
        manifests::apply(&world.client, &object).await?;
    }
    wait::until("what the watcher says of the entry", async || {
        let path = "/apis/kyverno.io/v2alpha1/globalcontextentries/with-canaries";
        let request = http::Request::get(path).body(Vec::new())?;
        let entry: Value = world.client.request(request).await?;
        ensure!(
            entry["status"]["conditions"][0]["message"].is_string(),
            "{entry}"
        );
        Ok(())
    })
    .await?;
    let file = world.folder.path().join("bundle.tar.gz");
    let bundle = async |agreed: &[&str]| {
        let mut command = operator(world, &["support-bundle", "--file"])?;
        let kubeconfig = world.cluster.kubeconfig_file(Identity::Admin)?;
        command
            .arg(&file)
            .args(agreed)
            .arg("--kubeconfig")
            .arg(kubeconfig);
        anyhow::Ok(command.stdin(std::process::Stdio::null()).output().await?)
    };
    let asked = bundle(&[]).await?;
    let said = String::from_utf8(asked.stdout)?;
    ensure!(
        !asked.status.success() && said.contains("Never:\n  - Secrets"),
        "{said}"
    );
    ensure!(!file.exists(), "it was written without a yes");

    let written = bundle(&["--yes"]).await?;
    let said = String::from_utf8(written.stderr)?;
    ensure!(written.status.success(), "{said}");
    // There is no kubelet.
    ensure!(
        said.contains("pods/with-canaries/metrics.txt is left out"),
        "{said}"
    );
    let mut unpack = Command::new("tar");
    unpack.args(["--extract", "--gzip", "--to-stdout", "--file"]);
    let unpacked = unpack.arg(&file).output().await?;
    let text = String::from_utf8(unpacked.stdout)?;
    for expected in [
        "\"with-canaries\"",
        "\"--nats-url=…\"",
        "\"PASSWORD=…\"",
        "https://anteroom-webhook.anteroom.svc/…",
        "\"unique-ingress-host\"",
        "\"ingresses.v1.networking.k8s.io\"",
        "\"failurePolicy\"",
        "\"id\": \"views-served\"",
    ] {
        ensure!(text.contains(expected), "there is no {expected} in {text}");
    }
    let leaked = text.lines().find(|line| line.contains(CANARY));
    ensure!(leaked.is_none(), "{leaked:?}");
    // No replica serves it, which the checks would find.
    let objects = with_canaries();
    manifests::delete(&world.client, objects.last().context("the entry")?).await
}

/// The login is for looking: a query is not even sent on.
async fn no_object_is_read(world: &World) -> anyhow::Result<()> {
    let args = [
        "query",
        "ingresses",
        "length(items)",
        "--deadline-ms",
        "2000",
    ];
    let asked = operator(world, &args)?;
    let output = tokio::time::timeout(Duration::from_secs(30), { asked }.output()).await??;
    ensure!(!output.status.success() && output.stdout.is_empty());
    Ok(())
}

//! One trace for a decision, one for a change, each across processes.
//!
//! Every service is a process of its own and exports to a receiver in this one.

use anteroom_e2e::{
    folder::Folder,
    manifests,
    nats::{Nats, NatsPlan},
    system::{SYSTEM_NAMESPACE, System, target},
    turn, wait,
};
use anteroom_load::{Answer, Client as Reviewer, ingress, review};
use anteroom_runtime::testing::{OtlpReceiver, ReceivedSpan};
use anteroom_simapi::{SimApi, SimConfig};
use anyhow::{Context, ensure};
use kube::{Client, Config};

const ENTRY: &str = include_str!("../../../demo/manifests/entry.yaml");
const POLICY: &str = include_str!("../../../demo/manifests/policy.yaml");

const HOST: &str = "traced.example.com";

#[tokio::test(flavor = "multi_thread")]
async fn decisions_and_changes_are_one_trace_each_across_processes() -> anyhow::Result<()> {
    anteroom_runtime::process::install_crypto_provider();
    let _turn = turn::take().await?;
    let receiver = OtlpReceiver::start().await?;
    let folder = Folder::new()?;
    let sim = SimApi::start(SimConfig::default()).await?;
    let client = Client::try_from(Config::new(sim.url().parse()?))?;
    manifests::apply_crds(&client).await?;
    manifests::apply_namespace(&client, SYSTEM_NAMESPACE).await?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sim.kubeconfig_yaml())?;
    let nats = Nats::start(NatsPlan::default(), folder.path()).await?;
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint()),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
    ];
    let mut system = System::start_with(
        folder.path(),
        &nats.logins(),
        &kubeconfig,
        &kubeconfig,
        &env,
    )?;
    for text in [ENTRY, POLICY] {
        manifests::apply(&client, &serde_saphyr::from_str(text)?).await?;
    }
    system.ready().await?;
    let mut reviewer = Reviewer::new(target(&client).await?)?;
    sim.put(
        "ingresses.networking.k8s.io",
        ingress("shop", "owner", HOST),
    )?;
    wait::until("the host to be denied to others", async || {
        let body = reviewer
            .post(review("uid", &ingress("shop", "other", HOST)))
            .await?;
        let answer = Answer::parse("uid", &body).map_err(anyhow::Error::msg)?;
        ensure!(matches!(answer, Answer::Denied { .. }), "{answer:?}");
        Ok(())
    })
    .await?;

    let spans = receiver
        .wait_until(|spans| decision(spans).is_some() && change(spans).is_some())
        .await;
    let (admission, asked, answered) = decision(&spans).context("a decision's trace")?;
    assert_eq!(
        [&*admission.service, &*asked.service, &*answered.service],
        [
            "anteroom-webhook",
            "anteroom-webhook",
            "anteroom-cache-replica"
        ]
    );
    assert_eq!(
        [admission.kind, asked.kind, answered.kind],
        ["SPAN_KIND_SERVER", "SPAN_KIND_CLIENT", "SPAN_KIND_SERVER"]
    );
    let (event, published, applied) = change(&spans).context("a change's trace")?;
    assert_eq!(
        [&*event.service, &*published.service, &*applied.service],
        [
            "anteroom-watcher",
            "anteroom-watcher",
            "anteroom-cache-replica"
        ]
    );
    Ok(())
}

/// The admission, the webhook's query, and the replica's part of it: each the parent of the next.
fn decision(spans: &[ReceivedSpan]) -> Option<(&ReceivedSpan, &ReceivedSpan, &ReceivedSpan)> {
    chain(spans, ["admission", "query", "query"])
}

/// The watch event, its publishing, and a replica's taking it in.
fn change(spans: &[ReceivedSpan]) -> Option<(&ReceivedSpan, &ReceivedSpan, &ReceivedSpan)> {
    chain(spans, ["watch event", "publish", "process"])
        .filter(|(.., applied)| applied.service == "anteroom-cache-replica")
}

/// Three spans of those names in one trace, each the parent of the next; the last in another process
/// than the first.
fn chain<'a>(
    spans: &'a [ReceivedSpan],
    names: [&str; 3],
) -> Option<(&'a ReceivedSpan, &'a ReceivedSpan, &'a ReceivedSpan)> {
    let parent = |child: &ReceivedSpan, name: &str| {
        spans.iter().find(|span| {
            span.name == name
                && span.span_id == child.parent_span_id
                && span.trace_id == child.trace_id
        })
    };
    spans
        .iter()
        .filter(|span| span.name == names[2])
        .find_map(|last| {
            let middle = parent(last, names[1])?;
            let first = parent(middle, names[0])?;
            (first.service != last.service).then_some((first, middle, last))
        })
}

//! One trace for a decision, one for a change, each across processes; and the searches of `docs/traces.md` find them.
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

/// The page whose searches are held here.
const PAGE: &str = include_str!("../../../../docs/traces.md");

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

    // A review that cannot be decided.
    let review = String::from_utf8(review("uid", &ingress("shop", "other", HOST)).to_vec())?;
    let unknown = review.replace("admission.k8s.io/v1", "admission.k8s.io/v9");
    ensure!(reviewer.post(unknown.into()).await.is_err(), "it was read");

    let searches = searches();
    assert_eq!(searches.len(), 14, "{searches:?}");
    let enough = |spans: &[ReceivedSpan]| {
        let is_found = |search: &Search| search.finds(spans);
        decision(spans).is_some() && change(spans).is_some() && searches.iter().all(is_found)
    };
    let waited = tokio::time::timeout(wait::PATIENCE, receiver.wait_until(enough)).await;
    let spans = waited.unwrap_or_else(|_| receiver.spans());
    let unfound = searches.iter().filter(|search| !search.finds(&spans));
    let unfound: Vec<_> = unfound.collect();
    assert!(unfound.is_empty(), "{unfound:?}");
    a_denial_is_described(&spans)?;
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

/// A denial names its policy, and neither who asked nor what the user was told.
fn a_denial_is_described(spans: &[ReceivedSpan]) -> anyhow::Result<()> {
    let is_denial = |span: &&ReceivedSpan| {
        let decision = span.attributes.get("anteroom.decision");
        decision.is_some_and(|decision| decision == "denied")
    };
    let denial = spans.iter().find(is_denial).context("a denial")?;
    for (attribute, expected) in [
        ("allowed", "false"),
        ("kind", "Ingress"),
        ("namespace", "shop"),
        ("anteroom.phase", "validate"),
        ("anteroom.policy", "unique-ingress-host"),
        ("anteroom.rule", "host-is-free"),
        ("anteroom.policies", "unique-ingress-host"),
        ("anteroom.facts", "view"),
    ] {
        assert_eq!(denial.attributes[attribute], expected, "{attribute}");
    }
    let tells = |span: &&ReceivedSpan| {
        let mut values = span.attributes.values();
        values.any(|value| value.contains("alice") || value.contains("another Ingress"))
    };
    assert_eq!(spans.iter().find(tells), None);
    Ok(())
}

/// A part of a search: a span, and the attributes that it has to have.
#[derive(Debug)]
struct Search {
    service: Option<&'static str>,
    name: &'static str,
    attributes: Vec<&'static str>,
}

impl Search {
    /// Reads what is in braces in TraceQL.
    fn in_trace_ql(selector: &'static str) -> Option<Self> {
        let (selector, _) = selector.split_once('}')?;
        let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_' || c == '.';
        let attributes = selector.split("span.").skip(1);
        let attributes = attributes.filter_map(|rest| rest.split(|c: char| !is_of_name(c)).next());
        Some(Self {
            service: None,
            name: selector.strip_prefix(" name = \"")?.split('"').next()?,
            attributes: attributes.collect(),
        })
    }

    /// Reads what is to be filled in at Jaeger's page.
    fn in_jaeger(line: &'static str) -> Option<Self> {
        let mut values = line.split('`').skip(1).step_by(2);
        let (service, name, tags) = (values.next()?, values.next()?, values.next()?);
        let attributes = tags.split(' ').filter_map(|tag| tag.split('=').next());
        Some(Self {
            service: Some(service),
            name,
            attributes: attributes.collect(),
        })
    }

    fn finds(&self, spans: &[ReceivedSpan]) -> bool {
        spans.iter().any(|span| {
            let has = |attribute: &&str| span.attributes.contains_key(*attribute);
            span.name == self.name
                && self.service.is_none_or(|service| span.service == service)
                && self.attributes.iter().all(has)
        })
    }
}

/// The searches of the page, in both forms.
fn searches() -> Vec<Search> {
    let blocks = PAGE.split("```traceql").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let selectors = blocks.flat_map(|block| block.split('{').skip(1));
    let lines = PAGE.lines().filter(|line| line.starts_with("Jaeger: "));
    let in_trace_ql = selectors.filter_map(Search::in_trace_ql);
    in_trace_ql
        .chain(lines.filter_map(Search::in_jaeger))
        .collect()
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

//! What is measured, and what for.

use serde_json::{Value, json};

use crate::{
    Settings,
    ask::{Rule, questions},
    decisions,
    ground::{Ground, Layout},
    say, spent,
};

/// One thing to measure, with a world of its own.
pub(crate) struct Scenario {
    /// As `--only` names it.
    pub(crate) name: &'static str,
    /// The goal that it serves.
    pub(crate) serves: &'static str,
    what: What,
}

enum What {
    /// Decisions by a policy over 3,000 Ingresses and 4,000 Services.
    Decisions {
        rule: Rule,
        manifests: &'static [&'static str],
    },
}

const UNIQUE_CALL: &str = include_str!("policies/unique-call.yaml");
const UNIQUE_ENTRY: &str = include_str!("policies/unique-entry.yaml");
const HOSTS_CALL: &str = include_str!("policies/hosts-call.yaml");
const HOSTS_ENTRY: &str = include_str!("policies/hosts-entry.yaml");
const HOSTS_PROJECTION: &str = include_str!("policies/hosts-projection.yaml");
const COUNT_CALL: &str = include_str!("policies/count-call.yaml");
const COUNT_ENTRY: &str = include_str!("policies/count-entry.yaml");
const COUNT_PROJECTION: &str = include_str!("policies/count-projection.yaml");
const NO_CONTEXT: &str = include_str!("policies/no-context.yaml");
const INGRESSES: &str = include_str!("policies/entry-ingresses.yaml");
const INGRESSES_HOSTS: &str = include_str!("policies/entry-ingresses-hosts.yaml");
const SERVICES: &str = include_str!("policies/entry-services.yaml");

const INGRESSES_USUAL: usize = 3_000;
const SERVICES_USUAL: usize = 4_000;

/// All scenarios, in the order in which they run.
pub(crate) const ALL: &[Scenario] = &[
    decisions_of(
        "no-context",
        "the floor: a policy that asks about no other object",
        Rule::NoContext,
        &[SERVICES, NO_CONTEXT],
    ),
    decisions_of(
        "unique-call",
        "unique-ingress-host-and-path at 3,000 Ingresses, an unchanged apiCall served from a view",
        Rule::HostAndPath,
        &[SERVICES, UNIQUE_CALL],
    ),
    decisions_of(
        "unique-entry",
        "unique-ingress-host-and-path at 3,000 Ingresses, a GlobalContextEntry",
        Rule::HostAndPath,
        &[SERVICES, INGRESSES, UNIQUE_ENTRY],
    ),
    decisions_of(
        "hosts-call",
        "host in a list, an unchanged apiCall served from a view",
        Rule::Host,
        &[SERVICES, HOSTS_CALL],
    ),
    decisions_of(
        "hosts-entry",
        "host in a list, a GlobalContextEntry",
        Rule::Host,
        &[SERVICES, INGRESSES, HOSTS_ENTRY],
    ),
    decisions_of(
        "hosts-projection",
        "host in a list, with a projection",
        Rule::Host,
        &[SERVICES, INGRESSES_HOSTS, HOSTS_PROJECTION],
    ),
    decisions_of(
        "count-call",
        "filter and count, an unchanged apiCall served from a view",
        Rule::Host,
        &[SERVICES, COUNT_CALL],
    ),
    decisions_of(
        "count-entry",
        "filter and count, a GlobalContextEntry",
        Rule::Host,
        &[SERVICES, INGRESSES, COUNT_ENTRY],
    ),
    decisions_of(
        "count-projection",
        "filter and count, with a projection",
        Rule::Host,
        &[SERVICES, INGRESSES_HOSTS, COUNT_PROJECTION],
    ),
];

/// Reviews at once, where a scenario has nothing else in mind.
const AT_ONCE: &[usize] = &[1, 8, 16];

const fn decisions_of(
    name: &'static str,
    serves: &'static str,
    rule: Rule,
    manifests: &'static [&'static str],
) -> Scenario {
    let what = What::Decisions { rule, manifests };
    Scenario { name, serves, what }
}

/// Runs one.
pub(crate) async fn run(scenario: &Scenario, settings: &Settings) -> anyhow::Result<Value> {
    match &scenario.what {
        What::Decisions { rule, manifests } => decide(*rule, manifests, settings).await,
    }
}

async fn decide(
    rule: Rule,
    manifests: &[&'static str],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let layout = Layout {
        ingresses: INGRESSES_USUAL,
        services: SERVICES_USUAL,
        manifests: manifests.to_vec(),
        ..Layout::default()
    };
    let ground = Ground::start(&layout, settings).await?;
    let questions = questions(rule, &ground.hosts);
    decisions::in_force(&ground, &questions).await?;
    say("in force");
    let mut rows = Vec::new();
    for row in decisions::rows(settings, AT_ONCE) {
        rows.push(decisions::measure(&ground, row, &questions, settings).await?);
    }
    let result = json!({
        "ingresses": layout.ingresses,
        "services": layout.services,
        "rows": rows,
        "memory": spent::memory(&ground)?,
    });
    ground.end().await?;
    Ok(result)
}

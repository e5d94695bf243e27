//! The scenarios that are measured, and their purpose.

use anteroom_simapi::generate;
use serde_json::{Value, json};

use crate::{
    Settings,
    ask::{self, Rule, questions},
    attacked, beside, compiled,
    decisions::{self, Deciding},
    floor::Floor,
    ground::{Ground, Layout},
    indexed,
    peer::Turn,
    real::{self, Timed},
    say, scans,
    sides::{self, Side},
    size::{self, Held, INGRESSES, PODS, PODS_REFERENCED, SERVICES},
    spent,
};

/// One thing to measure, with a world of its own.
pub(crate) struct Scenario {
    /// The name that `--only` takes.
    pub(crate) name: &'static str,
    /// The subject: in a goal's words, where there is a goal for it.
    pub(crate) about: &'static str,
    measurement: Measurement,
}

/// The measurement that a scenario makes.
enum Measurement {
    /// Decisions by a policy.
    Decisions { rule: Rule, layout: Layout },
    /// Compiling so many policies.
    Compiled(usize),
    /// Decisions over few Ingresses and over many.
    Scale,
    /// Decisions by a policy, and by what says the same in CEL.
    InCel {
        rule: Rule,
        ingresses: usize,
        half_have_hosts: bool,
        policies: [&'static [&'static str]; 2],
    },
    /// Decisions while deltas arrive.
    Beside,
    /// Decisions while scans go on.
    Scans,
    /// Decisions while somebody posts large reviews.
    Attacked,
    /// Decisions with NATS in the clear, and over TLS.
    OverTls,
    /// The cost of one delta with ten indexes.
    Indexed,
    /// Memory at rest.
    Size {
        layout: Layout,
        held: &'static [Held],
    },
    /// A replica's start.
    Start {
        layout: Layout,
        held: &'static [Held],
    },
    /// Entries on a real API server's Pods.
    Real {
        pods: usize,
        entries: &'static [Timed],
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
const COUNT_PODS: &str = include_str!("policies/count-pods.yaml");
const NO_CONTEXT: &str = include_str!("policies/no-context.yaml");
const SIXTEEN: &str = include_str!("policies/sixteen.yaml");
const HOSTS_CEL: &str = include_str!("policies/hosts-cel.yaml");
const HOSTS_ENTRY_CEL: &str = include_str!("policies/hosts-entry-cel.yaml");
const PATHS_CALL: &str = include_str!("policies/paths-call.yaml");
const PATHS_CEL: &str = include_str!("policies/paths-cel.yaml");
const NO_CONTEXT_CEL: &str = include_str!("policies/no-context-cel.yaml");
const ENTRY_INGRESSES: &str = include_str!("policies/entry-ingresses.yaml");
const ENTRY_HOSTS: &str = include_str!("policies/entry-ingresses-hosts.yaml");
const ENTRY_SERVICES: &str = include_str!("policies/entry-services.yaml");
const ENTRY_PODS_REFERENCED: &str = include_str!("policies/entry-pods-referenced.yaml");
const LABEL_PODS: &str = include_str!("policies/label-pods.yaml");
const ENTRY_PODS: &str = include_str!("policies/entry-pods.yaml");

/// The cluster that most goals speak of.
const USUAL: Layout = Layout {
    ingresses: 3_000,
    half_have_hosts: false,
    services: 4_000,
    pods: 0,
    is_encrypted: false,
    manifests: &[],
};

/// Nothing but Pods.
const ONLY_PODS: Layout = Layout {
    ingresses: 0,
    half_have_hosts: false,
    services: 0,
    pods: 0,
    is_encrypted: false,
    manifests: &[ENTRY_PODS],
};

/// All scenarios, in the order in which they run.
pub(crate) const ALL: &[Scenario] = &[
    usual(
        "no-context",
        "a policy that asks about no other object",
        Rule::NoContext,
        &[ENTRY_SERVICES, NO_CONTEXT],
    ),
    usual(
        "unique-call",
        "unique-ingress-host-and-path, an unchanged apiCall served from a view",
        Rule::HostAndPath,
        &[ENTRY_SERVICES, UNIQUE_CALL],
    ),
    usual(
        "unique-entry",
        "unique-ingress-host-and-path, a GlobalContextEntry",
        Rule::HostAndPath,
        &[ENTRY_SERVICES, ENTRY_INGRESSES, UNIQUE_ENTRY],
    ),
    usual(
        "hosts-call",
        "host in a list, an unchanged apiCall served from a view",
        Rule::Host,
        &[ENTRY_SERVICES, HOSTS_CALL],
    ),
    usual(
        "hosts-entry",
        "host in a list, a GlobalContextEntry",
        Rule::Host,
        &[ENTRY_SERVICES, ENTRY_INGRESSES, HOSTS_ENTRY],
    ),
    usual(
        "hosts-projection",
        "host in a list, with a projection",
        Rule::Host,
        &[ENTRY_SERVICES, ENTRY_HOSTS, HOSTS_PROJECTION],
    ),
    usual(
        "count-call",
        "filter and count, an unchanged apiCall served from a view",
        Rule::Host,
        &[ENTRY_SERVICES, COUNT_CALL],
    ),
    usual(
        "count-entry",
        "filter and count, a GlobalContextEntry",
        Rule::Host,
        &[ENTRY_SERVICES, ENTRY_INGRESSES, COUNT_ENTRY],
    ),
    usual(
        "count-projection",
        "filter and count, with a projection",
        Rule::Host,
        &[ENTRY_SERVICES, ENTRY_HOSTS, COUNT_PROJECTION],
    ),
    Scenario {
        name: "count-pods",
        about: "40,000 Pods, filter and count, a GlobalContextEntry",
        measurement: Measurement::Decisions {
            rule: Rule::PodName,
            layout: Layout {
                pods: 40_000,
                manifests: &[ENTRY_PODS, COUNT_PODS],
                ..ONLY_PODS
            },
        },
    },
    usual(
        "sixteen",
        "a Pod of 5 KB through 16 usual policies without context",
        Rule::Pods,
        &[SIXTEEN],
    ),
    Scenario {
        name: "compiled",
        about: "300 policies compiled",
        measurement: Measurement::Compiled(300),
    },
    Scenario {
        name: "scale",
        about: "unique-ingress-host-and-path over 1,000 Ingresses and over 100,000",
        measurement: Measurement::Scale,
    },
    in_cel(
        "cel-no-context",
        "a policy that asks about no other object, and the same in CEL",
        Rule::NoContext,
        USUAL.ingresses,
        [&[NO_CONTEXT], &[NO_CONTEXT_CEL]],
    ),
    in_cel(
        "cel-hosts",
        "unique hosts over 3,000 Ingresses, and the same in CEL",
        Rule::Host,
        USUAL.ingresses,
        HOSTS,
    ),
    in_cel(
        "cel-hosts-many",
        "unique hosts over 100,000 Ingresses, and the same in CEL",
        Rule::Host,
        MANY,
        HOSTS,
    ),
    in_cel(
        "cel-entry",
        "unique hosts over 3,000 Ingresses of a GlobalContextEntry, and the same in CEL",
        Rule::Host,
        USUAL.ingresses,
        [
            &[ENTRY_INGRESSES, HOSTS_ENTRY],
            &[ENTRY_INGRESSES, HOSTS_ENTRY_CEL],
        ],
    ),
    half_have_hosts(
        "cel-hosts-half",
        "unique hosts over 3,000 Ingresses, half of them without a host, and the same in CEL",
        USUAL.ingresses,
    ),
    half_have_hosts(
        "cel-hosts-half-many",
        "unique hosts over 100,000 Ingresses, half of them without a host, and the same in CEL",
        MANY,
    ),
    in_cel(
        "cel-paths",
        "unique paths over 3,000 Ingresses, and the same in CEL",
        Rule::Path,
        USUAL.ingresses,
        PATHS,
    ),
    in_cel(
        "cel-paths-many",
        "unique paths over 100,000 Ingresses, and the same in CEL",
        Rule::Path,
        MANY,
        PATHS,
    ),
    Scenario {
        name: "beside",
        about: "unique-ingress-host-and-path, quiet and while 500 deltas a second arrive",
        measurement: Measurement::Beside,
    },
    Scenario {
        name: "scans",
        about: "unique-ingress-host-and-path over 100,000 Ingresses, quiet and beside long scans",
        measurement: Measurement::Scans,
    },
    Scenario {
        name: "attacked",
        about: "host in a list, quiet and beside four reviews of 20,000 wildcard hosts at once",
        measurement: Measurement::Attacked,
    },
    Scenario {
        name: "tls",
        about: "unique-ingress-host-and-path, NATS in the clear and over TLS",
        measurement: Measurement::OverTls,
    },
    Scenario {
        name: "delta",
        about: "one delta with 10 indexed expressions, over 1,000 Ingresses and over 100,000",
        measurement: Measurement::Indexed,
    },
    Scenario {
        name: "size-7000",
        about: "memory of 7,000 objects of 2 KB",
        measurement: Measurement::Size {
            layout: Layout {
                manifests: &[ENTRY_SERVICES, ENTRY_INGRESSES],
                ..USUAL
            },
            held: &[SERVICES, INGRESSES],
        },
    },
    Scenario {
        name: "size-pods",
        about: "memory of 40,000 Pods of 5.2 KB JSON",
        measurement: Measurement::Size {
            layout: Layout {
                pods: 40_000,
                ..ONLY_PODS
            },
            held: &[PODS],
        },
    },
    Scenario {
        name: "size-pods-referenced",
        about: "memory of 40,000 Pods with `retain: Referenced` for a label policy",
        measurement: Measurement::Size {
            layout: Layout {
                pods: 40_000,
                manifests: &[ENTRY_PODS_REFERENCED, LABEL_PODS],
                ..ONLY_PODS
            },
            held: &[PODS_REFERENCED],
        },
    },
    Scenario {
        name: "start",
        about: "a replica's start over 200,000 Pods of 3.7 KB MessagePack",
        measurement: Measurement::Start {
            layout: Layout {
                pods: 200_000,
                ..ONLY_PODS
            },
            held: &[PODS],
        },
    },
    Scenario {
        name: "real-pods",
        about: "an entry on 40,000 Pods of a real API server: to its first answer, and memory",
        measurement: Measurement::Real {
            pods: 40_000,
            entries: &[
                Timed {
                    name: "whole",
                    before: &[],
                    entry: ENTRY_PODS,
                    view: PODS.view,
                },
                Timed {
                    name: "referenced",
                    before: &[LABEL_PODS],
                    entry: ENTRY_PODS_REFERENCED,
                    view: PODS_REFERENCED.view,
                },
            ],
        },
    },
];

/// Policies on unique hosts and paths, as a classic one and in CEL.
const HOSTS: [&[&str]; 2] = [&[HOSTS_CALL], &[HOSTS_CEL]];
const PATHS: [&[&str]; 2] = [&[PATHS_CALL], &[PATHS_CEL]];

/// As many Ingresses as large clusters have.
const MANY: usize = 100_000;

/// Over how few and how many Ingresses.
const SCALES: [usize; 2] = [1_000, 100_000];
const SCALES_QUICK: [usize; 2] = [1_000, 20_000];

/// The factor by which `--quick` has fewer objects.
const QUICK_FEWER: usize = 10;

/// Deltas that arrive beside decisions.
const DELTAS_PER_SECOND: u32 = 500;

/// Reviews at once, in decisions.
const AT_ONCE: &[usize] = &[1, 8, 16];

const fn usual(
    name: &'static str,
    about: &'static str,
    rule: Rule,
    manifests: &'static [&'static str],
) -> Scenario {
    let layout = Layout { manifests, ..USUAL };
    let measurement = Measurement::Decisions { rule, layout };
    Scenario {
        name,
        about,
        measurement,
    }
}

const fn in_cel(
    name: &'static str,
    about: &'static str,
    rule: Rule,
    ingresses: usize,
    policies: [&'static [&'static str]; 2],
) -> Scenario {
    let measurement = Measurement::InCel {
        rule,
        ingresses,
        half_have_hosts: false,
        policies,
    };
    Scenario {
        name,
        about,
        measurement,
    }
}

const fn half_have_hosts(name: &'static str, about: &'static str, ingresses: usize) -> Scenario {
    let measurement = Measurement::InCel {
        rule: Rule::Host,
        ingresses,
        half_have_hosts: true,
        policies: HOSTS,
    };
    Scenario {
        name,
        about,
        measurement,
    }
}

/// Runs one.
pub(crate) async fn run(scenario: &Scenario, settings: &Settings) -> anyhow::Result<Value> {
    let entry = &[ENTRY_INGRESSES, UNIQUE_ENTRY];
    let scales = match settings.quick {
        true => SCALES_QUICK,
        false => SCALES,
    };
    match &scenario.measurement {
        Measurement::Decisions { rule, layout } => {
            decide(scenario.name, *rule, fewer(layout, settings), settings).await
        }
        Measurement::Compiled(count) => compiled::run(SIXTEEN, *count),
        Measurement::Scale => {
            let side = |ingresses| Side {
                rule: Rule::HostAndPath,
                ingresses,
                half_have_hosts: false,
                is_encrypted: false,
                manifests: entry,
            };
            sides::run(scales.map(side), settings).await
        }
        Measurement::InCel {
            rule,
            ingresses,
            half_have_hosts,
            policies,
        } => {
            let side = |manifests| Side {
                rule: *rule,
                ingresses: *ingresses.min(&scales[1]),
                half_have_hosts: *half_have_hosts,
                is_encrypted: false,
                manifests,
            };
            sides::run(policies.map(side), settings).await
        }
        Measurement::Beside => {
            beside::run(USUAL.ingresses, DELTAS_PER_SECOND, entry, settings).await
        }
        Measurement::Scans => scans::run(scales[1], entry, settings).await,
        Measurement::Attacked => {
            attacked::run(USUAL.ingresses, &[ENTRY_INGRESSES, HOSTS_ENTRY], settings).await
        }
        Measurement::OverTls => {
            let side = |is_encrypted| Side {
                rule: Rule::HostAndPath,
                ingresses: USUAL.ingresses,
                half_have_hosts: false,
                is_encrypted,
                manifests: entry,
            };
            sides::run([false, true].map(side), settings).await
        }
        Measurement::Indexed => {
            indexed::run(scales, DELTAS_PER_SECOND, &[ENTRY_INGRESSES], settings).await
        }
        Measurement::Size { layout, held } => {
            size::at_rest(fewer(layout, settings), held, settings).await
        }
        Measurement::Start { layout, held } => {
            size::start(fewer(layout, settings), held, settings).await
        }
        Measurement::Real { pods, entries } => {
            let fewer = if settings.quick { QUICK_FEWER } else { 1 };
            real::run(pods / fewer, entries, settings).await
        }
    }
}

/// With `--quick`, fewer of what there are many.
fn fewer(layout: &Layout, settings: &Settings) -> Layout {
    let mut layout = *layout;
    if settings.quick {
        layout.pods /= QUICK_FEWER;
    }
    layout
}

async fn decide(
    name: &str,
    rule: Rule,
    layout: Layout,
    settings: &Settings,
) -> anyhow::Result<Value> {
    let ground = Ground::start(layout, settings).await?;
    let taken: Vec<String> = match rule {
        Rule::PodName => (0..layout.pods)
            .map(|index| format!("pod-{index}"))
            .collect(),
        _ => (0..layout.ingresses)
            .map(|index| generate::ingress_host(index, 0))
            .collect(),
    };
    let floor = match ask::look_up(rule, &taken) {
        Some(look_up) => Some(Floor::start(&ground, &look_up, settings).await?),
        None => None,
    };
    let questions = questions(rule, taken);
    let ours = Deciding::Ground(&ground);
    decisions::in_force(ours, &questions).await?;
    say("in force");
    if let Some(floor) = &floor {
        decisions::in_force(Deciding::Floor(floor), &questions).await?;
    }
    let mut turn = match &settings.peer {
        Some(peer) => Turn::begin(peer, name, &layout, &questions).await?,
        None => None,
    };
    let mut rows = Vec::new();
    for row in decisions::rows(settings, AT_ONCE) {
        rows.push(match &floor {
            Some(floor) => floor.beside(ours, row, &questions, settings).await?,
            None => decisions::measure(ours, row, None, &questions, settings).await?,
        });
        if let Some(turn) = &mut turn {
            turn.measure(row, &questions, settings).await?;
        }
    }
    let mut result = json!({
        "objects": layout.ingresses + layout.services + layout.pods,
        "rows": rows,
        "memory": spent::memory(&ground)?,
    });
    if let Some(floor) = floor {
        result["floor"] = json!({ "memory": floor.memory()? });
    }
    if let Some(turn) = turn {
        result["peer"] = turn.end(&questions).await?;
    }
    ground.end().await?;
    Ok(result)
}

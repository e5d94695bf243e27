//! The pages, from what was heard. Pure but for the clock.

use std::time::Instant;

use anteroom_runtime::wall_clock;
use anteroom_wire::{
    status::{ObjectStatus, StatusReply},
    tap::DecisionRecord,
};
use askama::Template;
use serde::Deserialize;

use super::{
    listen::{Console, ConsoleState, SPAN},
    rows::{DecisionRow, ObjectRow, Rule, RuleSaid, TablePage, View, link, name_of, sparkline},
};
use crate::{
    check,
    operator::{
        table::{bytes, count, micros},
        window::{By, Decisions, RuleRow},
    },
};

/// Denials on the page that has more than them.
const LAST_DENIALS: usize = 10;

/// Objects on the first page that are not ready.
const ATTENTION_MAX: usize = 20;

/// The parameters of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PageQuery {
    filter: String,
    trouble: String,
    page: String,
    kind: String,
    name: String,
    id: String,
}

impl PageQuery {
    fn page(&self) -> usize {
        self.page.parse().unwrap_or(1)
    }

    fn trouble(&self) -> bool {
        self.trouble == "on"
    }

    fn table_page<T>(&self, path: &str, rows: &mut Vec<T>) -> TablePage {
        TablePage::to(rows, self.page(), |page| {
            let page = page.to_string();
            let given = [
                ("filter", &*self.filter),
                ("trouble", &self.trouble),
                ("page", &page),
            ];
            link(path, &given)
        })
    }

    fn query(&self, has_trouble_box: bool) -> Filter {
        Filter {
            filter: self.filter.clone(),
            trouble: self.trouble(),
            has_trouble_box,
        }
    }
}

/// The form above a table.
struct Filter {
    filter: String,
    trouble: bool,
    has_trouble_box: bool,
}

/// The parts that every page has.
struct PageHead {
    cluster: String,
    path: &'static str,
    notices: Vec<String>,
}

impl PageHead {
    fn of(console: &Console, state: &ConsoleState, path: &'static str) -> Self {
        let mut notices = Vec::new();
        if state.system.webhooks().is_empty() && state.system.watchers().is_empty() {
            notices.push("Nothing was heard of any part yet.".to_owned());
        }
        for (webhook, reason) in &state.window.refused {
            notices.push(format!("Webhook {webhook} tells nothing: {reason}."));
        }
        if let Some(Err(error)) = &state.statuses {
            notices.push(format!("Policies and entries are not known: {error}."));
        }
        Self {
            cluster: console.cluster.to_string(),
            path,
            notices,
        }
    }

    fn pages(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("/", "Overview"),
            ("/views", "Views"),
            ("/policies", "Policies"),
            ("/denials", "Denials"),
            ("/tap", "Tap"),
            ("/checks", "Checks"),
        ]
    }
}

fn objects(state: &ConsoleState) -> &[ObjectStatus] {
    match &state.statuses {
        Some(Ok(StatusReply { objects, .. })) => objects,
        _ => &[],
    }
}

fn is_ready(status: &ObjectStatus) -> bool {
    status.ready == "True"
}

/// A part of the system.
struct PartRow {
    name: &'static str,
    running: usize,
    note: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
pub(super) struct Overview {
    head: PageHead,
    decisions: Decisions,
    sparkline: String,
    p50: String,
    p99: String,
    failed: Vec<&'static str>,
    parts: Vec<PartRow>,
    attention: Vec<ObjectRow>,
    denials: Vec<DecisionRow>,
}

pub(super) fn overview(console: &Console) -> Overview {
    let mut state = console.state();
    let now = Instant::now();
    let decisions = state.window.decisions(By::default(), now);
    let latency = |us: Option<u64>| us.map_or("-".to_owned(), micros);
    let bad = objects(&state).iter().filter(|status| !is_ready(status));
    Overview {
        head: PageHead::of(console, &state, "/"),
        sparkline: sparkline(state.rates.iter().copied()),
        p50: latency(decisions.p50_us),
        p99: latency(decisions.p99_us),
        failed: found(&state, &decisions, now)
            .into_iter()
            .filter(|row| row.class == "bad")
            .map(|row| row.id)
            .collect(),
        parts: parts(&state),
        attention: bad
            .take(ATTENTION_MAX)
            .map(|status| ObjectRow::of(status, &[]))
            .collect(),
        denials: last_denials(&state, |_| true),
        decisions,
    }
}

fn parts(state: &ConsoleState) -> Vec<PartRow> {
    let system = &state.system;
    let watchers = system.watchers();
    let (replicas, webhooks) = (system.replicas(), system.webhooks());
    let held = replicas
        .iter()
        .map(|replica| replica.bytes)
        .max()
        .unwrap_or_default();
    let limit = replicas
        .iter()
        .filter_map(|replica| replica.bytes_max)
        .min();
    let enforced = webhooks.iter().map(|webhook| webhook.enforced).min();
    let troubled = webhooks
        .iter()
        .filter_map(|webhook| webhook.trouble.clone())
        .next();
    let log = match &state.statuses {
        Some(Ok(reply)) => match (reply.log_bytes, reply.log_bytes_max) {
            (Some(size), Some(limit)) => {
                format!("the log takes {} of {}", bytes(size), bytes(limit))
            }
            (Some(size), None) => format!("the log takes {}", bytes(size)),
            _ => String::new(),
        },
        _ => String::new(),
    };
    vec![
        PartRow {
            name: "Watchers",
            running: watchers.len(),
            note: match system.coordinator() {
                Some(name) => format!("{name} coordinates; {log}"),
                None => "nobody coordinates".to_owned(),
            },
        },
        PartRow {
            name: "Replicas",
            running: replicas.len(),
            note: match limit {
                Some(limit) => format!("the fullest holds {} of {}", bytes(held), bytes(limit)),
                None => format!("the fullest holds {}", bytes(held)),
            },
        },
        PartRow {
            name: "Webhooks",
            running: webhooks.len(),
            note: match (troubled, enforced) {
                (Some(trouble), _) => trouble,
                (None, Some(enforced)) => format!("all enforce revision {}", count(enforced)),
                (None, None) => String::new(),
            },
        },
    ]
}

fn last_denials(state: &ConsoleState, is_meant: impl Fn(&DecisionRow) -> bool) -> Vec<DecisionRow> {
    let newest = state.denials.iter().rev().map(DecisionRow::of);
    newest.filter(is_meant).take(LAST_DENIALS).collect()
}

#[derive(Template)]
#[template(path = "views.html")]
pub(super) struct Views {
    head: PageHead,
    query: Filter,
    rows: Vec<View>,
    table_page: TablePage,
}

pub(super) fn views(console: &Console, asked: &PageQuery) -> Views {
    let state = console.state();
    let rows = state.system.views(Instant::now()).into_iter();
    let mut rows: Vec<_> = rows
        .map(|row| View::of(row, objects(&state)))
        .filter(|row| row.view.contains(&asked.filter) || row.entries.contains(&asked.filter))
        .filter(|row| !asked.trouble() || !row.is_good)
        .collect();
    Views {
        head: PageHead::of(console, &state, "/views"),
        query: asked.query(true),
        table_page: asked.table_page("/views", &mut rows),
        rows,
    }
}

#[derive(Template)]
#[template(path = "policies.html")]
pub(super) struct Policies {
    head: PageHead,
    query: Filter,
    rows: Vec<ObjectRow>,
    table_page: TablePage,
    left_out: u64,
}

pub(super) fn policies(console: &Console, asked: &PageQuery) -> Policies {
    let mut state = console.state();
    let decisions = state.window.decisions(By::default(), Instant::now());
    let rows = objects(&state).iter();
    let mut rows: Vec<_> = rows
        .map(|status| ObjectRow::of(status, &decisions.rules))
        .filter(|row| row.name.contains(&asked.filter) || row.kind.contains(&asked.filter))
        .filter(|row| !asked.trouble() || !row.is_ready)
        .collect();
    let left_out = match &state.statuses {
        Some(Ok(reply)) => reply.left_out,
        _ => 0,
    };
    Policies {
        head: PageHead::of(console, &state, "/policies"),
        query: asked.query(true),
        table_page: asked.table_page("/policies", &mut rows),
        rows,
        left_out,
    }
}

#[derive(Template)]
#[template(path = "policy.html")]
pub(super) struct Policy {
    head: PageHead,
    row: ObjectRow,
    view: Option<String>,
    rules: Vec<Rule>,
    span_seconds: u64,
    denials: Vec<DecisionRow>,
}

pub(super) fn policy(console: &Console, asked: &PageQuery) -> Result<Policy, Absent> {
    let by = By {
        kind: true,
        namespace: false,
    };
    let mut state = console.state();
    let decisions = state.window.decisions(by, Instant::now());
    let is_meant =
        |status: &&ObjectStatus| status.kind == asked.kind && name_of(status) == asked.name;
    let status = objects(&state).iter().find(is_meant).cloned();
    let Some(status) = status else {
        drop(state);
        let what = format!(
            "{} {} is not known to the coordinator.",
            asked.kind, asked.name
        );
        return Err(absent(console, &what));
    };
    let row = ObjectRow::of(&status, &decisions.rules);
    let own = |rule: &&RuleRow| row.is_policy && rule.policy == row.name;
    let rules = decisions.rules.iter().filter(own).map(Rule::of).collect();
    let start = format!("{} / ", row.name);
    Ok(Policy {
        head: PageHead::of(console, &state, "/policies"),
        view: status.view,
        rules,
        span_seconds: SPAN.as_secs(),
        denials: last_denials(&state, |denial| denial.rule.starts_with(&start)),
        row,
    })
}

#[derive(Template)]
#[template(path = "denials.html")]
pub(super) struct Denials {
    head: PageHead,
    query: Filter,
    denials: Vec<DecisionRow>,
    table_page: TablePage,
}

pub(super) fn denials(console: &Console, asked: &PageQuery) -> Denials {
    let state = console.state();
    let rows = state.denials.iter().rev().map(DecisionRow::of);
    let mut rows: Vec<_> = rows.filter(|row| row.holds(&asked.filter)).collect();
    Denials {
        head: PageHead::of(console, &state, "/denials"),
        query: asked.query(false),
        table_page: asked.table_page("/denials", &mut rows),
        denials: rows,
    }
}

#[derive(Template)]
#[template(path = "denial.html")]
pub(super) struct Denial {
    head: PageHead,
    row: DecisionRow,
    webhook: String,
    shadow: bool,
    dry_run: bool,
    took: String,
    uid: String,
    rules: Vec<RuleSaid>,
    left_out: u64,
}

pub(super) fn denial(console: &Console, asked: &PageQuery) -> Result<Denial, Absent> {
    let state = console.state();
    let Some(seen) = state.denials.iter().find(|seen| seen.id == asked.id) else {
        drop(state);
        let what = "This denial is not kept any more. The API server's audit log has it.";
        return Err(absent(console, what));
    };
    Ok(Denial {
        head: PageHead::of(console, &state, "/denials"),
        row: DecisionRow::of(seen),
        webhook: seen.webhook.clone(),
        shadow: seen.shadow,
        dry_run: seen.record.dry_run,
        took: micros(seen.record.took_us),
        uid: seen.record.uid.clone(),
        rules: seen.record.rules.iter().map(RuleSaid::of).collect(),
        left_out: seen.record.rules_left_out,
    })
}

#[derive(Template)]
#[template(path = "tap.html")]
pub(super) struct Tap {
    head: PageHead,
    query: Filter,
    rows: Vec<DecisionRow>,
    left_out: u64,
}

pub(super) fn tap(console: &Console, asked: &PageQuery) -> Tap {
    let state = console.state();
    let rows = state.decisions.iter().rev().map(DecisionRow::of);
    Tap {
        head: PageHead::of(console, &state, "/tap"),
        query: asked.query(false),
        rows: rows.filter(|row| row.holds(&asked.filter)).collect(),
        left_out: state.decisions_left_out,
    }
}

#[derive(Template)]
#[template(path = "checks.html")]
pub(super) struct Checks {
    head: PageHead,
    rows: Vec<check::Row>,
}

pub(super) fn checks(console: &Console) -> Checks {
    let mut state = console.state();
    let now = Instant::now();
    let decisions = state.window.decisions(By::default(), now);
    Checks {
        head: PageHead::of(console, &state, "/checks"),
        rows: found(&state, &decisions, now),
    }
}

fn found(state: &ConsoleState, decisions: &Decisions, now: Instant) -> Vec<check::Row> {
    let statuses = match &state.statuses {
        None => Err("not asked yet".to_owned()),
        Some(said) => said.clone(),
    };
    let clock = wall_clock::now();
    let aged = state.denials.iter().map(|seen| DecisionRecord {
        age_ms: u64::try_from(clock.duration_since(seen.at).as_millis()).unwrap_or_default(),
        ..seen.record.clone()
    });
    check::of_system(check::NatsMessages {
        system: state.system.clone(),
        at: now,
        statuses,
        decisions: decisions.clone(),
        records: aged.collect(),
    })
}

#[derive(Template)]
#[template(path = "absent.html")]
pub(super) struct Absent {
    head: PageHead,
    what: String,
}

pub(super) fn absent(console: &Console, what: &str) -> Absent {
    let state = console.state();
    Absent {
        head: PageHead::of(console, &state, ""),
        what: what.to_owned(),
    }
}

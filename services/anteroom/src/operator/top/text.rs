//! The output of `anteroom top`, as text and JSON. Pure.

use std::time::Instant;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::{
    super::{
        screen::KeyPress,
        system::System,
        table::{bytes, count, micros, millis, table},
        window::{By, Decisions, RuleRead, RuleRow},
    },
    OperatorState, TopTable,
};
use crate::output::counted;

/// Columns that rows can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The most decisions first.
    #[default]
    Rate,
    /// The most denials first.
    Denied,
    /// The most errors first.
    Errors,
    /// The slowest first.
    P99,
    /// By policy and rule.
    Name,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Rate => Self::Denied,
            Self::Denied => Self::Errors,
            Self::Errors => Self::P99,
            Self::P99 => Self::Name,
            Self::Name => Self::Rate,
        }
    }

    fn sort(self, rows: &mut [RuleRow]) {
        // Rows arrive sorted by name, and the sort is stable.
        match self {
            Self::Rate => rows.sort_by_key(|row| std::cmp::Reverse(row.decided)),
            Self::Denied => rows.sort_by_key(|row| std::cmp::Reverse(row.denied)),
            Self::Errors => rows.sort_by_key(|row| std::cmp::Reverse(row.errors)),
            Self::P99 => rows.sort_by_key(|row| std::cmp::Reverse(row.p99_us)),
            Self::Name => {}
        }
    }
}

/// The content of the screen.
pub(crate) struct Shown {
    table: TopTable,
    by: By,
    sort: Sort,
    is_paused: bool,
    /// Rows that contain this text.
    text: String,
    is_typing: bool,
    /// Views that the system needs itself are left out.
    hides_system: bool,
}

impl Shown {
    /// Begins without a filter.
    pub(crate) fn new(table: TopTable, by: By, sort: Sort) -> Self {
        Self {
            table,
            by,
            sort,
            is_paused: false,
            text: String::new(),
            is_typing: false,
            hides_system: false,
        }
    }

    /// Leaves out the views that the system needs itself.
    #[must_use]
    pub(crate) fn without_system(self) -> Self {
        Self {
            hides_system: true,
            ..self
        }
    }

    pub(super) fn table(&self) -> TopTable {
        self.table
    }

    pub(super) fn is_typing(&self) -> bool {
        self.is_typing
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(super) fn press(&mut self, key: KeyPress) {
        match key {
            KeyPress::Escape => (self.is_typing, self.text) = (false, String::new()),
            KeyPress::Enter => self.is_typing = false,
            KeyPress::Backspace => drop(self.text.pop()),
            KeyPress::Character(typed) if self.is_typing => self.text.push(typed),
            KeyPress::Quit if self.is_typing => self.text.push('q'),
            KeyPress::Character('/') => self.is_typing = true,
            KeyPress::Character('p' | ' ') => self.is_paused = !self.is_paused,
            KeyPress::Character('s') => self.sort = self.sort.next(),
            KeyPress::Character(_) | KeyPress::Quit | KeyPress::Resized => {}
        }
    }

    fn holds(&self, names: &[&str]) -> bool {
        self.text.is_empty() || names.iter().any(|name| name.contains(&self.text))
    }

    /// Returns the page.
    pub(crate) fn text(&self, heard: &mut OperatorState) -> String {
        let now = Instant::now();
        heard.system.forget_silent(now);
        match self.table {
            TopTable::Policies => {
                let mut decisions = heard.window.decisions(self.by, now);
                self.sort.sort(&mut decisions.rules);
                policies(self, &decisions, heard)
            }
            TopTable::Views => views(self, &heard.system, now),
            TopTable::Replicas => replicas(self, &heard.system),
            TopTable::Webhooks => webhooks(self, &heard.system),
        }
    }

    /// Returns the same for machines.
    pub(super) fn json(&self, heard: &mut OperatorState) -> Value {
        let now = Instant::now();
        heard.system.forget_silent(now);
        let system = &heard.system;
        match self.table {
            TopTable::Policies => {
                let mut decisions = heard.window.decisions(self.by, now);
                self.sort.sort(&mut decisions.rules);
                let mut all = json!(decisions);
                all["lost"] = heard.lost.into();
                all["refused"] = json!(heard.window.refused);
                all
            }
            TopTable::Views => json!({ "views": system.views(now), "groups": system.groups() }),
            TopTable::Replicas => json!({ "replicas": system.replicas() }),
            TopTable::Webhooks => json!({ "webhooks": system.webhooks() }),
        }
    }

    /// The choices made by keys, for the end of the first line.
    fn state(&self) -> String {
        let mut state = String::new();
        if self.is_paused {
            state.push_str("  paused");
        }
        if self.is_typing || !self.text.is_empty() {
            state.push_str(&format!("  /{}", self.text));
        }
        state
    }
}

fn policies(shown: &Shown, all: &Decisions, heard: &OperatorState) -> String {
    let latency = |us: Option<u64>| us.map_or("-".to_owned(), micros);
    let mut head = format!(
        "{} decisions/s  {} denied/s  {} errors/s  p50 {}  p99 {}  {}{}{}",
        all.per_second,
        all.denied_per_second,
        all.errors_per_second,
        latency(all.p50_us),
        latency(all.p99_us),
        counted(all.webhooks, "webhook"),
        match all.shadows {
            0 => String::new(),
            shadows => format!(" ({shadows} in shadow mode: nothing is denied)"),
        },
        shown.state(),
    );
    for (webhook, reason) in &heard.window.refused {
        head.push_str(&format!("\n{webhook} tells nothing: {reason}"));
    }
    if heard.lost > 0 {
        head.push_str(&format!(
            "\n{} lost: counts are too low",
            counted(heard.lost, "message")
        ));
    }
    if all.left_out > 0 {
        head.push_str(&format!(
            "\n{} without a row: filter, to see all",
            counted(all.left_out, "result")
        ));
    }
    let mut columns = vec![("POLICY / RULE", false)];
    if shown.by.kind {
        columns.push(("KIND", false));
    }
    if shown.by.namespace {
        columns.push(("NAMESPACE", false));
    }
    columns.extend([
        ("RATE", true),
        ("DENIED", true),
        ("ERRORS", true),
        ("P50", true),
        ("P99", true),
        ("WORST", true),
        ("READS (OBJECTS LOOKED AT, AGE)", false),
    ]);
    let held = all.rules.iter().filter(|row| {
        shown.holds(&[
            &row.policy,
            &row.rule,
            row.kind.as_deref().unwrap_or_default(),
            row.namespace.as_deref().unwrap_or_default(),
        ])
    });
    let rows: Vec<_> = held.map(rule_cells).collect();
    format!("{head}\n\n{}", table(&columns, &rows))
}

fn rule_cells(row: &RuleRow) -> Vec<String> {
    let mut cells = vec![format!("{} / {}", row.policy, row.rule)];
    cells.extend(row.kind.clone());
    cells.extend(row.namespace.clone());
    let errors = match &row.error {
        Some(code) => format!("{} {code}", count(row.errors)),
        None => count(row.errors),
    };
    let reads: Vec<_> = row.reads.iter().map(read_text).collect();
    cells.extend([
        format!("{}/s", row.per_second),
        count(row.denied),
        errors,
        micros(row.p50_us),
        micros(row.p99_us),
        micros(row.worst_us),
        reads.join("; "),
    ]);
    cells
}

/// Formats a read, as in `ingresses 1 of 3,010, 0.2 s`.
pub(crate) fn read_text(read: &RuleRead) -> String {
    let age = millis(read.age_ms);
    match &*read.from {
        "" => format!("{} not answered", read.entry),
        "live" => format!("{} live, {age}", read.entry),
        from => {
            let last_good = if from == "fallback" {
                " last good,"
            } else {
                ""
            };
            let (examined, objects) = (count(read.examined), count(read.objects));
            format!("{}{last_good} {examined} of {objects}, {age}", read.entry)
        }
    }
}

fn views(shown: &Shown, system: &System, now: Instant) -> String {
    let columns = [
        ("VIEW", false),
        ("STATE", false),
        ("OBJECTS", true),
        ("BYTES", true),
        ("AGE", true),
        ("REPLICAS", true),
        ("LEADER", false),
        ("TROUBLE", false),
    ];
    let rows = system.views(now);
    let held = rows
        .iter()
        .filter(|row| !(shown.hides_system && row.is_system))
        .filter(|row| shown.holds(&[&row.view, &row.state]));
    let rows: Vec<_> = held
        .map(|row| {
            vec![
                row.view.clone(),
                row.state.clone(),
                count(row.objects),
                bytes(row.bytes),
                row.age_ms.map_or("-".to_owned(), millis),
                row.served_by.to_string(),
                row.leader.clone(),
                row.trouble.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let coordinator = system.coordinator().unwrap_or("nobody");
    let head = format!(
        "{}, {coordinator} coordinates  {}{}",
        counted(system.watchers().len(), "watcher"),
        counted(system.replicas().len(), "replica"),
        shown.state()
    );
    format!("{head}\n\n{}", table(&columns, &rows))
}

fn replicas(shown: &Shown, system: &System) -> String {
    let columns = [
        ("REPLICA", false),
        ("MEMORY OF VIEWS", true),
        ("LIMIT", true),
        ("VIEWS", true),
        ("NOT SERVED", false),
    ];
    let rows = system.replicas();
    let held = rows.iter().filter(|row| shown.holds(&[&row.replica]));
    let rows: Vec<_> = held
        .map(|row| {
            let unserved = row
                .unserved
                .iter()
                .map(|(view, state)| format!("{view} {state}"));
            vec![
                row.replica.clone(),
                bytes(row.bytes),
                row.bytes_max.map_or("-".to_owned(), bytes),
                row.views.to_string(),
                unserved.collect::<Vec<_>>().join(", "),
            ]
        })
        .collect();
    format!(
        "{}{}\n\n{}",
        counted(rows.len(), "replica"),
        shown.state(),
        table(&columns, &rows)
    )
}

fn webhooks(shown: &Shown, system: &System) -> String {
    let columns = [
        ("WEBHOOK", false),
        ("COMPILED", true),
        ("ENFORCED", true),
        ("TROUBLE", false),
    ];
    let rows = system.webhooks();
    let held = rows.iter().filter(|row| shown.holds(&[&row.webhook]));
    let rows: Vec<_> = held
        .map(|row| {
            vec![
                row.webhook.clone(),
                count(row.compiled),
                count(row.enforced),
                row.trouble.clone().unwrap_or_default(),
            ]
        })
        .collect();
    format!(
        "{}{}\n\n{}",
        counted(rows.len(), "webhook"),
        shown.state(),
        table(&columns, &rows)
    )
}

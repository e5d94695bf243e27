//! The report of a move, as Markdown. Pure.

use std::fmt::Write as _;

use super::{
    Move,
    verdicts::{Runs, Verdict},
};
use crate::explain::{Plan, ReadPlan};

/// The numbers of the summary, by their names in JSON.
const NUMBERS: [(&str, &str); 10] = [
    ("policies", "policies"),
    ("policies that run", "runs"),
    ("policies that run in part", "partly"),
    ("policies that do not run", "not"),
    ("exceptions", "exceptions"),
    ("exceptions that do not count", "exceptionsNot"),
    ("policies of kinds that are not run", "kindsNotRun"),
    ("reads of the cluster", "reads"),
    ("reads by index", "byIndex"),
    ("reads that scan all objects of a view", "scans"),
];

/// Returns the numbers, as text or as a table.
pub(super) fn numbers(plan: &Move, is_table: bool) -> String {
    let counts = plan.verdicts.counts();
    let lines = NUMBERS.iter().map(|(words, name)| {
        let count = counts.get(name).copied().unwrap_or_default();
        match is_table {
            true => format!("| {words} | {count} |\n"),
            false => format!("{words}: {count}\n"),
        }
    });
    lines.collect()
}

/// Returns the whole report.
pub(super) fn page(plan: &Move) -> String {
    let mut page = format!(
        "# From Kyverno to Anteroom\n\n| what | number |\n|---|---|\n{}",
        numbers(plan, true)
    );
    let steps = steps(plan);
    section(&mut page, "## Next steps", "", steps);
    let verdicts = &plan.verdicts;
    for (title, judged) in [
        ("## Policies", &verdicts.policies),
        ("## Exceptions", &verdicts.exceptions),
    ] {
        let head = "| kind | name | runs | codes | reads | scans | differs |\n|---|---|---|---|---|---|---|\n";
        section(&mut page, title, head, judged.iter().map(row));
        judged.iter().for_each(|one| details(&mut page, one));
    }
    let not_run = verdicts
        .not_run
        .iter()
        .map(|one| format!("- {}", code(one)));
    let head = "Keep Kyverno for these, or do without them.\n\n";
    section(&mut page, "## Kinds that are not run", head, not_run);
    let taken = plan.settings.taken.iter();
    let taken = taken.map(|one| format!("| `{}` | {} |", one.key, plain(&one.from)));
    section(
        &mut page,
        "## Settings",
        "| key of the chart | from |\n|---|---|\n",
        taken,
    );
    let without = plan.settings.without_like.iter();
    let without = without.map(|one| format!("- {}: {}", plain(&one.from), plain(&one.why)));
    section(&mut page, "## Settings without a like", "", without);
    let by_hand = plan
        .rights
        .by_hand
        .iter()
        .map(|one| format!("- {}", plain(one)));
    section(&mut page, "## Rights to look at", "", by_hand);
    page
}

/// Writes a section, unless nothing is in it.
fn section(page: &mut String, title: &str, head: &str, lines: impl IntoIterator<Item = String>) {
    let lines: Vec<_> = lines.into_iter().collect();
    if !lines.is_empty() {
        let _ = write!(page, "\n{title}\n\n{head}{}\n", lines.join("\n"));
    }
}

fn steps(plan: &Move) -> Vec<String> {
    let scans = plan.verdicts.policies.iter().flat_map(Verdict::reads);
    let has_scans = scans.into_iter().any(|read| read.is_scan());
    let steps = [
        (
            true,
            "Make your policies survive: [docs/kyverno.md](docs/kyverno.md#1-make-your-policies-survive).",
        ),
        (
            !plan.verdicts.all_run(),
            "Look at what does not run, below. Change it, or keep Kyverno for it.",
        ),
        (
            has_scans,
            "Look at the reads that scan, below. Few objects may be scanned, many are slow.",
        ),
        (
            !plan.rights.roles().is_empty(),
            "Read `roles.yaml`, and apply it: `kubectl apply -f roles.yaml`.",
        ),
        (
            !plan.rights.by_hand.is_empty(),
            "Grant by hand what is listed under *Rights to look at*.",
        ),
        (
            true,
            "Read `values.yaml`, and give it to the chart after `values-beside-kyverno.yaml`: \
            [docs/kyverno.md](docs/kyverno.md#2-run-it-beside-kyverno).",
        ),
        (
            true,
            "Compare, and take over: [docs/kyverno.md](docs/kyverno.md#3-compare).",
        ),
    ];
    let steps = steps.into_iter().filter(|(is_due, _)| *is_due).enumerate();
    steps
        .map(|(at, (_, step))| format!("{}. {step}", at + 1))
        .collect()
}

fn row(one: &Verdict) -> String {
    let mut codes: Vec<_> = one.reasons.iter().map(|reason| link(reason.code)).collect();
    codes.sort_unstable();
    codes.dedup();
    format!(
        "| {} | {} | {} | {} | {} | {} | {} |",
        one.kind,
        code(&one.name),
        one.runs.word(),
        codes.join(", "),
        one.reads().count(),
        one.reads().filter(|read| read.is_scan()).count(),
        one.differences.len(),
    )
}

fn details(page: &mut String, one: &Verdict) {
    let title = |what: &str| format!("### {} {}: {what}", one.kind, code(&one.name));
    let reasons = one.reasons.iter().map(|reason| {
        let (link, path) = (link(reason.code), code(&reason.path));
        format!("- {link} {path}: {}", plain(&reason.message))
    });
    let runs = match one.runs {
        Runs::Partly => "runs in part",
        Runs::Fully | Runs::Not => "does not run",
    };
    section(page, &title(runs), "", reasons);
    let differences = one.differences.iter().map(|difference| {
        let rule = difference.rule.as_ref();
        let rule = rule
            .map(|rule| format!("rule {}: ", code(rule)))
            .unwrap_or_default();
        // The page's own words, which are Markdown.
        format!(
            "- {rule}{} ([docs/differences.md](docs/differences.md))",
            difference.what
        )
    });
    section(page, &title("differs from Kyverno"), "", differences);
    let reads = one.rules.iter().flat_map(|rule| {
        rule.reads.iter().map(|read| {
            let view = code(&format!("{} <- {}", read.variable, read.source));
            format!("| {} | {view} | {} |", code(&rule.rule), found_by(read))
        })
    });
    let mut reads: Vec<_> = reads.collect();
    // One fact may be used in several fields of a rule.
    reads.dedup();
    section(
        page,
        &title("reads"),
        "| rule | read | found by |\n|---|---|---|\n",
        reads,
    );
}

/// Describes how a read is answered; of a scan also why, and what would be better.
fn found_by(read: &ReadPlan) -> String {
    let words = match &read.plan {
        Plan::Scan { part, why, better } => format!(
            "scan: all objects are looked through, since {} {}. {}",
            code(part),
            plain(why),
            plain(better)
        ),
        plan => plain(&plan.words()),
    };
    match read.in_message {
        true => format!("{words} (only to tell a violation)"),
        false => words,
    }
}

/// The section of a code.
fn link(code: &str) -> String {
    format!("[{code}](docs/errors.md#{})", code.to_lowercase())
}

/// A text on one line, which ends no cell of a table and begins no HTML.
fn plain(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|").replace('<', "&lt;")
}

/// A text as code, whatever is in it. The rule of a policy in CEL has no name.
fn code(text: &str) -> String {
    let text = text.replace(char::is_control, " ").replace('|', "\\|");
    match (text.is_empty(), text.contains('`')) {
        (true, _) => text,
        (false, false) => format!("`{text}`"),
        // Two backticks are a fence that one does not end.
        (false, true) => format!("`` {} ``", text.replace("``", "` `")),
    }
}

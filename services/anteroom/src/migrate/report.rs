//! The report of a move, as Markdown. Pure.

use std::fmt::Write as _;

use super::{
    Plan,
    verdicts::{Reason, Runs, Verdict},
};
use crate::explain;

/// Returns the numbers, in a line.
pub(super) fn summary(plan: &Plan) -> String {
    let counts = plan.verdicts.counts();
    let count = |name: &str| counts.get(name).copied().unwrap_or_default();
    format!(
        "policies: {}; run {}, partly {}, not {}; exceptions {}, of which not {}; of kinds that are not run {}; \
         reads {}, by index {}, scans {}",
        count("policies"),
        count("runs"),
        count("partly"),
        count("not"),
        count("exceptions"),
        count("exceptionsNot"),
        count("kindsNotRun"),
        count("reads"),
        count("byIndex"),
        count("scans"),
    )
}

/// Returns the whole report.
pub(super) fn page(plan: &Plan) -> String {
    let mut page = "# From Kyverno to Anteroom\n\n".to_owned();
    numbers(&mut page, plan);
    steps(&mut page, plan);
    policies(&mut page, plan);
    if !plan.verdicts.exceptions.is_empty() {
        page.push_str("## Exceptions\n\n");
        table(&mut page, &plan.verdicts.exceptions);
        let exceptions = plan.verdicts.exceptions.iter();
        exceptions.for_each(|one| reasons(&mut page, one));
    }
    if !plan.verdicts.not_run.is_empty() {
        page.push_str(
            "## Kinds that are not run\n\nKeep Kyverno for these, or do without them.\n\n",
        );
        items(&mut page, plan.verdicts.not_run.iter().map(|one| code(one)));
    }
    settings(&mut page, plan);
    rights(&mut page, plan);
    page
}

fn numbers(page: &mut String, plan: &Plan) {
    let counts = plan.verdicts.counts();
    page.push_str("| what | number |\n|---|---|\n");
    for (words, name) in [
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
    ] {
        let _ = writeln!(
            page,
            "| {words} | {} |",
            counts.get(name).copied().unwrap_or_default()
        );
    }
    page.push('\n');
}

fn steps(page: &mut String, plan: &Plan) {
    page.push_str("## Next steps\n\n");
    let mut steps = vec!["Make your policies survive: [docs/kyverno.md](docs/kyverno.md#1-make-your-policies-survive).".to_owned()];
    if !plan.verdicts.all_run() {
        steps.push(
            "Look at what does not run, below. Change it, or keep Kyverno for it.".to_owned(),
        );
    }
    if plan
        .verdicts
        .policies
        .iter()
        .flat_map(Verdict::reads)
        .any(explain::ReadPlan::is_scan)
    {
        steps.push(
            "Look at the reads that scan, below. Few objects may be scanned, many are slow."
                .to_owned(),
        );
    }
    steps.push("Read `values.yaml`, and give it to the chart after `values-beside-kyverno.yaml`: [docs/kyverno.md](docs/kyverno.md#2-run-it-beside-kyverno).".to_owned());
    if !plan.rights.roles().is_empty() {
        steps.push("Read `roles.yaml`, and apply it: `kubectl apply -f roles.yaml`.".to_owned());
    }
    if !plan.rights.by_hand.is_empty() {
        steps.push("Grant what is listed under *Rights* by hand.".to_owned());
    }
    steps.push("Compare, and take over: [docs/kyverno.md](docs/kyverno.md#3-compare).".to_owned());
    for (at, step) in steps.iter().enumerate() {
        let _ = writeln!(page, "{}. {step}", at + 1);
    }
    page.push('\n');
}

fn policies(page: &mut String, plan: &Plan) {
    page.push_str("## Policies\n\n");
    if plan.verdicts.policies.is_empty() {
        page.push_str("There is none among the input.\n\n");
        return;
    }
    table(page, &plan.verdicts.policies);
    for policy in &plan.verdicts.policies {
        reasons(page, policy);
        differences(page, policy);
        reads(page, policy);
    }
}

fn table(page: &mut String, all: &[Verdict]) {
    page.push_str(
        "| kind | name | runs | codes | reads | scans | differs |\n|---|---|---|---|---|---|---|\n",
    );
    for one in all {
        let mut codes: Vec<_> = one.reasons.iter().map(|reason| reason.code).collect();
        codes.sort_unstable();
        codes.dedup();
        let codes: Vec<_> = codes.into_iter().map(link).collect();
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} |",
            one.kind,
            code(&one.name),
            one.runs.word(),
            codes.join(", "),
            one.reads().count(),
            one.reads().filter(|read| read.is_scan()).count(),
            one.differences.len(),
        );
    }
    page.push('\n');
}

fn reasons(page: &mut String, one: &Verdict) {
    if one.reasons.is_empty() {
        return;
    }
    let words = match one.runs {
        Runs::Partly => "runs in part",
        _ => "does not run",
    };
    let _ = writeln!(page, "### {} {}: {words}\n", one.kind, code(&one.name));
    let line = |reason: &Reason| {
        let (link, path) = (link(reason.code), code(&reason.path));
        format!("{link} {path}: {}", plain(&reason.message))
    };
    items(page, one.reasons.iter().map(line));
}

fn differences(page: &mut String, one: &Verdict) {
    if one.differences.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "### {} {}: differs from Kyverno\n",
        one.kind,
        code(&one.name)
    );
    let line = |difference: &super::differences::Difference| {
        let rule = difference
            .rule
            .as_ref()
            .map(|rule| format!("rule {}: ", code(rule)));
        // The page's own words, which are Markdown.
        format!(
            "{}{} ([docs/differences.md](docs/differences.md))",
            rule.unwrap_or_default(),
            difference.what
        )
    };
    items(page, one.differences.iter().map(line));
}

fn reads(page: &mut String, one: &Verdict) {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for rule in &one.rules {
        for read in &rule.reads {
            let view = code(&format!("{} <- {}", read.variable, read.source));
            let row = format!("{view} | {}", plain(&read.plan.words()));
            match rows.iter_mut().find(|(known, _)| *known == row) {
                Some((_, rules)) if rules.contains(&&*rule.rule) => {}
                Some((_, rules)) => rules.push(&rule.rule),
                None => rows.push((row, vec![&rule.rule])),
            }
        }
    }
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(page, "### {} {}: reads\n", one.kind, code(&one.name));
    page.push_str("| rules | read | found by |\n|---|---|---|\n");
    for (row, rules) in rows {
        let rules: Vec<_> = rules
            .into_iter()
            .filter(|rule| !rule.is_empty())
            .map(code)
            .collect();
        let _ = writeln!(page, "| {} | {row} |", rules.join(", "));
    }
    page.push('\n');
}

fn settings(page: &mut String, plan: &Plan) {
    page.push_str("## Settings\n\n");
    let settings = &plan.settings;
    if settings.taken.is_empty() && settings.without_like.is_empty() {
        page.push_str("Nothing was found that differs from the chart's own values. Is Kyverno's ConfigMap among the input?\n\n");
        return;
    }
    if !settings.taken.is_empty() {
        page.push_str("| key of the chart | from |\n|---|---|\n");
        for taken in &settings.taken {
            let _ = writeln!(page, "| `{}` | {} |", taken.key, plain(&taken.from));
        }
        page.push('\n');
    }
    let without = settings.without_like.iter();
    items(
        page,
        without.map(|one| format!("without a like: {}. {}", plain(&one.from), plain(&one.why))),
    );
}

fn rights(page: &mut String, plan: &Plan) {
    page.push_str("## Rights\n\n");
    let roles = plan.rights.roles();
    let names = roles
        .iter()
        .filter_map(|role| role["metadata"]["name"].as_str());
    let names: Vec<_> = names.map(code).collect();
    match names.is_empty() {
        true => page.push_str("The chart's own roles are enough for what is listed here.\n\n"),
        false => {
            let _ = writeln!(page, "`roles.yaml` has {}.\n", names.join(", "));
        }
    }
    items(
        page,
        plan.rights.by_hand.iter().map(|sentence| plain(sentence)),
    );
}

fn items(page: &mut String, lines: impl Iterator<Item = String>) {
    let before = page.len();
    for line in lines {
        let _ = writeln!(page, "- {line}");
    }
    if page.len() > before {
        page.push('\n');
    }
}

/// The section of a code.
fn link(code: &str) -> String {
    format!("[{code}](docs/errors.md#{})", code.to_lowercase())
}

/// A text on one line, which ends no cell of a table and begins no HTML.
fn plain(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|").replace('<', "&lt;")
}

/// A text as code, whatever is in it.
fn code(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() || c == '`' { '\'' } else { c })
        .collect();
    format!("`{}`", text.replace('|', "\\|"))
}

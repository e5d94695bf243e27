//! Plans, for people.

use std::fmt::Write as _;

use super::{
    Explained,
    plan::{Plan, ReadPlan},
};
use crate::output::counted;

/// All of it.
pub(super) fn page(explained: &[Explained]) -> String {
    let mut page = String::new();
    for policy in explained {
        let _ = writeln!(page, "{} {}", policy.kind, policy.name);
        for problem in &policy.problems {
            let _ = writeln!(page, "  cannot be compiled: {problem}");
        }
        for rule in &policy.rules {
            let _ = writeln!(page, "{}", format!("  rule {}", rule.rule).trim_end());
            if rule.reads.is_empty() {
                let _ = writeln!(page, "    reads nothing but the request");
            }
            for read in &rule.reads {
                write_read(&mut page, read);
            }
        }
        for one in &policy.not_run {
            let _ = writeln!(page, "  rule {}", one.rule);
            let _ = writeln!(page, "    not run: {} is not supported", one.field);
        }
        page.push('\n');
    }
    summary(&mut page, explained);
    page
}

fn write_read(page: &mut String, read: &ReadPlan) {
    let _ = writeln!(page, "    {} <- {}", read.variable, read.source);
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(page, "      {name:<8}{text}");
    };
    line("used in", &format!("{} as `{}`", read.field, read.written));
    if read.in_message {
        line("", "(only to tell a violation)");
    }
    line(
        "asks",
        if read.asks.is_empty() {
            "the data whole"
        } else {
            &read.asks
        },
    );
    line("gets", &read.gets);
    match &read.plan {
        Plan::Index { words, .. } | Plan::Kept { words } => {
            let mut names = std::iter::once("plan").chain(std::iter::repeat(""));
            words
                .lines()
                .for_each(|words| line(names.next().unwrap_or_default(), words));
        }
        plan @ (Plan::Object | Plan::Response | Plan::Live | Plan::Unknown { .. }) => {
            line("plan", &plan.words());
        }
        Plan::Scan { part, why, better } => {
            line("plan", &read.plan.words());
            line("why", &format!("`{part}` {why}"));
            line("better", better);
        }
    }
    if let Some(why) = &read.why_whole
        && matches!(read.plan, Plan::Scan { .. })
    {
        line("fetched", why);
    }
    if let Some(rows) = &read.rows {
        line(
            "rows",
            &format!(
                "about {} of {}",
                rows.looked_at,
                counted(rows.objects, "object")
            ),
        );
    }
}

fn summary(page: &mut String, explained: &[Explained]) {
    let reads = || {
        explained
            .iter()
            .flat_map(|policy| &policy.rules)
            .flat_map(|rule| &rule.reads)
    };
    let count = |is: fn(&Plan) -> bool| reads().filter(|read| is(&read.plan)).count();
    let _ = writeln!(
        page,
        "policies: {}; reads: {}; by index {}; kept {}; one object {}; kept answers {}; live {}; scans \
         {}; not known {}",
        explained.len(),
        reads().count(),
        count(|plan| matches!(plan, Plan::Index { .. })),
        count(|plan| matches!(plan, Plan::Kept { .. })),
        count(|plan| matches!(plan, Plan::Object)),
        count(|plan| matches!(plan, Plan::Response)),
        count(|plan| matches!(plan, Plan::Live)),
        count(|plan| matches!(plan, Plan::Scan { .. })),
        count(|plan| matches!(plan, Plan::Unknown { .. })),
    );
}

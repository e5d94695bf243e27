//! Rows of the pages' tables. Pure.

use std::fmt::Write as _;

use anteroom_wire::{status::ObjectStatus, tap::RuleDecision};

use super::listen::{POINTS_MAX, SeenDecision};
use crate::operator::{
    system::ViewRow,
    table::{bytes, count, micros, millis},
    tap::{coded_message, fact_text, object_of, verdict_of},
    top::text::read_text,
    window::RuleRow,
};

/// Rows of one page.
const PAGE_ROWS: usize = 100;

/// A decision.
pub(super) struct DecisionRow {
    pub(super) id: String,
    pub(super) time: String,
    pub(super) verdict: &'static str,
    pub(super) operation: String,
    pub(super) object: String,
    pub(super) user: String,
    pub(super) took: String,
    /// The first rule that failed.
    pub(super) rule: String,
    pub(super) message: String,
    /// All rules, with their results.
    pub(super) rules: String,
}

impl DecisionRow {
    pub(super) fn of(seen: &SeenDecision) -> Self {
        let record = &seen.record;
        let name = |rule: &RuleDecision| format!("{} / {}", rule.policy, rule.rule);
        let bad = |rule: &&RuleDecision| matches!(&*rule.result, "fail" | "error");
        let first = record.rules.iter().find(bad);
        let rules = record.rules.iter();
        let rules: Vec<_> = rules
            .map(|rule| format!("{} {}", name(rule), rule.result))
            .collect();
        Self {
            id: seen.id.clone(),
            time: seen.at.strftime("%H:%M:%S").to_string(),
            verdict: verdict_of(record),
            operation: record.operation.clone(),
            object: object_of(record),
            user: record.user.clone(),
            took: micros(record.took_us),
            rule: first.map(name).unwrap_or_default(),
            message: first.map(coded_message).unwrap_or_default(),
            rules: rules.join(", "),
        }
    }

    /// Returns true if the row matches a search for this text.
    pub(super) fn holds(&self, text: &str) -> bool {
        let texts = [
            &self.operation,
            &self.object,
            &self.user,
            &self.message,
            &self.rules,
        ];
        text.is_empty() || texts.iter().any(|of| of.contains(text))
    }
}

/// One rule of a decision.
pub(super) struct RuleSaid {
    pub(super) policy: String,
    pub(super) rule: String,
    pub(super) result: String,
    pub(super) message: String,
    pub(super) took: String,
    pub(super) facts: Vec<String>,
}

impl RuleSaid {
    pub(super) fn of(rule: &RuleDecision) -> Self {
        let mut facts: Vec<_> = rule.facts.iter().map(fact_text).collect();
        if rule.facts_left_out > 0 {
            facts.push(format!("{} more", count(rule.facts_left_out)));
        }
        Self {
            policy: rule.policy.clone(),
            rule: rule.rule.clone(),
            result: rule.result.clone(),
            message: coded_message(rule),
            took: micros(rule.took_us),
            facts,
        }
    }
}

/// A view.
pub(super) struct View {
    pub(super) view: String,
    pub(super) state: String,
    pub(super) is_good: bool,
    pub(super) trouble: Option<String>,
    pub(super) objects: String,
    pub(super) bytes: String,
    pub(super) age: String,
    pub(super) served_by: usize,
    pub(super) leader: String,
    pub(super) entries: String,
}

impl View {
    pub(super) fn of(row: ViewRow, objects: &[ObjectStatus]) -> Self {
        let of_view = objects
            .iter()
            .filter(|object| object.view.as_ref() == Some(&row.view));
        let entries: Vec<_> = of_view.map(|object| object.name.as_str()).collect();
        Self {
            is_good: row.state == "synced" && row.trouble.is_none(),
            state: row.state,
            trouble: row.trouble,
            objects: count(row.objects),
            bytes: bytes(row.bytes),
            age: row.age_ms.map_or("-".to_owned(), millis),
            served_by: row.served_by,
            leader: row.leader,
            entries: entries.join(", "),
            view: row.view,
        }
    }
}

/// A policy or an entry.
pub(super) struct ObjectRow {
    pub(super) link: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) is_policy: bool,
    pub(super) is_ready: bool,
    pub(super) ready: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) per_second: String,
    pub(super) denied: String,
    pub(super) errors: String,
}

impl ObjectRow {
    pub(super) fn of(status: &ObjectStatus, rules: &[RuleRow]) -> Self {
        let name = name_of(status);
        let is_policy = status.kind.ends_with("Policy");
        let own = || rules.iter().filter(|row| is_policy && row.policy == name);
        let sum = |of: fn(&RuleRow) -> u64| match is_policy {
            true => count(own().map(of).sum()),
            false => String::new(),
        };
        let busiest = own().map(|row| row.per_second).fold(0.0, f64::max);
        Self {
            link: link("/policy", &[("kind", &status.kind), ("name", &name)]),
            kind: status.kind.clone(),
            is_policy,
            is_ready: status.ready == "True",
            ready: status.ready.clone(),
            reason: status.reason.clone(),
            message: status.message.clone(),
            per_second: if is_policy {
                busiest.to_string()
            } else {
                String::new()
            },
            denied: sum(|row| row.denied),
            errors: sum(|row| row.errors),
            name,
        }
    }
}

/// `name`, or `namespace/name`.
pub(super) fn name_of(status: &ObjectStatus) -> String {
    match &*status.namespace {
        "" => status.name.clone(),
        namespace => format!("{namespace}/{}", status.name),
    }
}

/// One rule of a policy, by the kind of objects.
pub(super) struct Rule {
    pub(super) rule: String,
    pub(super) kind: String,
    pub(super) per_second: f64,
    pub(super) denied: String,
    pub(super) errors: String,
    pub(super) p50: String,
    pub(super) p99: String,
    pub(super) worst: String,
    pub(super) reads: String,
}

impl Rule {
    pub(super) fn of(row: &RuleRow) -> Self {
        let errors = match &row.error {
            Some(code) => format!("{} {code}", count(row.errors)),
            None => count(row.errors),
        };
        let reads: Vec<_> = row.reads.iter().map(read_text).collect();
        Self {
            rule: row.rule.clone(),
            kind: row.kind.clone().unwrap_or_default(),
            per_second: row.per_second,
            denied: count(row.denied),
            errors,
            p50: micros(row.p50_us),
            p99: micros(row.p99_us),
            worst: micros(row.worst_us),
            reads: reads.join("; "),
        }
    }
}

/// The part of a long table that one page shows.
pub(super) struct TablePage {
    pub(super) shown: String,
    pub(super) all: usize,
    pub(super) page: usize,
    pub(super) pages: usize,
    pub(super) previous: Option<String>,
    pub(super) next: Option<String>,
}

impl TablePage {
    /// Keeps the rows of this page. `link` makes the address of a page.
    pub(super) fn to<T>(rows: &mut Vec<T>, page: usize, link: impl Fn(usize) -> String) -> Self {
        let all = rows.len();
        let pages = all.div_ceil(PAGE_ROWS).max(1);
        let page = page.clamp(1, pages);
        let start = (page - 1) * PAGE_ROWS;
        *rows = rows.drain(start..all.min(start + PAGE_ROWS)).collect();
        Self {
            shown: format!("{} to {}", start + 1, start + rows.len()),
            all,
            page,
            pages,
            previous: (page > 1).then(|| link(page - 1)),
            next: (page < pages).then(|| link(page + 1)),
        }
    }
}

/// Returns an address with the parameters that are not empty.
pub(super) fn link(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut link = path.to_owned();
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    for (at, (name, value)) in given.enumerate() {
        link.push(if at == 0 { '?' } else { '&' });
        let _ = write!(link, "{name}=");
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    link.push(char::from(byte));
                }
                _ => drop(write!(link, "%{byte:02X}")),
            }
        }
    }
    link
}

/// A line of the decisions each second, as SVG, with its greatest value as its text.
pub(super) fn sparkline(rates: impl ExactSizeIterator<Item = f64> + Clone) -> String {
    const HEIGHT: f64 = 20.0;
    let greatest = rates.clone().fold(0.0, f64::max);
    let scale = if greatest > 0.0 {
        HEIGHT / greatest
    } else {
        0.0
    };
    let mut points = String::new();
    for (at, rate) in rates.enumerate() {
        let _ = write!(points, "{},{:.1} ", at * 2, HEIGHT - rate * scale + 1.0);
    }
    format!(
        "<svg role=\"img\" aria-label=\"the last minute, at most {greatest} a second\" width=\"{width}\" height=\"22\" \
         viewBox=\"0 0 {width} 22\"><polyline points=\"{}\"/></svg>",
        points.trim_end(),
        width = POINTS_MAX * 2,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_table_is_turned_page_by_page() {
        let page_of = |page: &usize| page.to_string();
        for (all, page, first, rows, next) in [
            (0, 1, None, 0, None),
            (100, 1, Some(0), 100, None),
            (101, 1, Some(0), 100, Some(2)),
            (101, 2, Some(100), 1, None),
            (101, 9, Some(100), 1, None),
            (101, 0, Some(0), 100, Some(2)),
        ] {
            let mut table: Vec<usize> = (0..all).collect();
            let table_page = TablePage::to(&mut table, page, |page| page_of(&page));
            assert_eq!((table.first().copied(), table.len()), (first, rows));
            assert_eq!(table_page.next, next.as_ref().map(page_of), "{all} {page}");
        }
    }

    #[test]
    fn links_escape_the_characters_of_a_name() {
        let address = link(
            "/policy",
            &[("kind", "Policy"), ("none", ""), ("name", "a/b c&d")],
        );
        assert_eq!(address, "/policy?kind=Policy&name=a%2Fb%20c%26d");
    }

    #[test]
    fn a_line_is_as_high_as_its_greatest_value() {
        let line = sparkline([0.0, 5.0, 10.0].into_iter());
        assert!(line.contains("points=\"0,21.0 2,11.0 4,1.0\""), "{line}");
        assert!(line.contains("at most 10 a second"));
        assert!(sparkline([0.0].into_iter()).contains("0,21.0"));
    }
}

//! The findings of all checks, as text and as JSON. Pure.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    cluster::Cluster,
    finding::{Check, Finding},
};
use crate::output::{Output, counted};

/// The page with an anchor for each check.
const PAGE: &str = "docs/checks.md";

/// The finding of each check.
pub(super) struct Report(Vec<(Check, Finding)>);

impl Report {
    pub(super) fn new(checks: &[Check], cluster: &Cluster) -> Self {
        Self(
            checks
                .iter()
                .map(|check| (*check, (check.find)(cluster)))
                .collect(),
        )
    }

    /// Returns true if no check has failed.
    pub(super) fn is_success(&self) -> bool {
        let failed = |finding: &Finding| matches!(finding, Finding::Failed(_));
        !self.0.iter().any(|(_, finding)| failed(finding))
    }

    pub(super) fn show(&self, output: Output) -> anyhow::Result<String> {
        match output {
            Output::Text => Ok(self.text()),
            Output::Json => Ok(serde_json::to_string_pretty(&self.json())?),
        }
    }

    /// Returns the categories in the order of their first checks, each with its own.
    fn categories(&self) -> Vec<(&str, Vec<&(Check, Finding)>)> {
        let mut categories: Vec<(&str, Vec<_>)> = Vec::new();
        for item in &self.0 {
            let category = item.0.category;
            match categories.iter_mut().find(|(name, _)| *name == category) {
                Some((_, items)) => items.push(item),
                None => categories.push((category, vec![item])),
            }
        }
        categories
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut counts = [0; 4];
        for (category, checks) in self.categories() {
            let _ = writeln!(text, "{category}\n{}", "-".repeat(category.len()));
            for (check, finding) in checks {
                let (sign, count, said) = match finding {
                    Finding::Good => ("√", 0, ""),
                    Finding::Warning(said) => ("‼", 1, &**said),
                    Finding::Failed(said) => ("×", 2, &**said),
                    Finding::NotAsked(said) => ("?", 3, &**said),
                };
                counts[count] += 1;
                let _ = writeln!(text, "{sign} {}", check.fact);
                for line in said.lines() {
                    let _ = writeln!(text, "    {line}");
                }
                if matches!(finding, Finding::Warning(_) | Finding::Failed(_)) {
                    let _ = writeln!(text, "    see {PAGE}#{}", check.id);
                }
            }
            text.push('\n');
        }
        let [good, warnings, failed, not_asked] = counts;
        let _ = write!(
            text,
            "Status: {good} ok, {}, {failed} failed, {not_asked} not asked",
            counted(warnings, "warning")
        );
        text
    }

    pub(super) fn json(&self) -> Value {
        let checks = |checks: Vec<&(Check, Finding)>| -> Vec<Value> {
            let one = |(check, finding): &&(Check, Finding)| {
                let (result, error) = match finding {
                    Finding::Good => ("success", None),
                    Finding::Warning(said) => ("warning", Some(said)),
                    Finding::Failed(said) => ("error", Some(said)),
                    Finding::NotAsked(said) => ("not asked", Some(said)),
                };
                let hint = error.map(|_| format!("{PAGE}#{}", check.id));
                json!({ "id": check.id, "description": check.fact, "result": result, "error": error, "hint": hint })
            };
            checks.iter().map(one).collect()
        };
        let categories = self.categories().into_iter();
        let categories =
            categories.map(|(name, of)| json!({ "categoryName": name, "checks": checks(of) }));
        json!({ "success": self.is_success(), "categories": categories.collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests;

//! The page of metrics: it names every metric of the code, and no other.

use std::{collections::BTreeSet, path::Path};

/// Prefixes of the names of metrics.
const PREFIXES: [&str; 3] = ["anteroom_", "kyverno_", "process_"];

/// The page, below the root.
pub(super) const PAGE: &str = "docs/metrics.md";

/// Returns the names of metrics that a source file holds as texts, tests apart.
pub(super) fn names<'t>(file: &Path, text: &'t str) -> BTreeSet<&'t str> {
    let is_test = file
        .components()
        .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "benches")
        || file.ends_with("tests.rs");
    let code = match is_test {
        true => "",
        false => text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(""),
    };
    code.split('"').filter(|text| is_name(text)).collect()
}

/// Returns the complaints about a page that describes other metrics than these.
pub(super) fn check(page: &str, names: &BTreeSet<String>) -> Vec<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let described = cells.filter_map(|cell| cell.split('`').next());
    let described: BTreeSet<_> = described.filter(|text| is_name(text)).collect();
    let missing = names
        .iter()
        .filter(|name| !described.contains(name.as_str()));
    let missing = missing.map(|name| format!("{PAGE}: has no row for the metric `{name}`"));
    let unknown = described.iter().filter(|name| !names.contains(**name));
    let unknown = unknown.map(|name| format!("{PAGE}: describes `{name}`, which no service has"));
    missing.chain(unknown).collect()
}

fn is_name(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    PREFIXES.iter().any(|prefix| text.starts_with(prefix)) && text.chars().all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_tests_are_no_metrics_of_the_service() {
        let code = "register(\"anteroom_a\", \"x\"); #[cfg(test)]\nmod tests { \"anteroom_b\" }";
        let of = |file: &str| names(Path::new(file), code).into_iter().collect::<Vec<_>>();
        assert_eq!(of("services/x/src/metrics.rs"), ["anteroom_a"]);
        assert!(of("services/x/tests/x/metrics.rs").is_empty());
        assert!(of("services/x/src/metrics/tests.rs").is_empty());
    }

    #[test]
    fn page_and_code_name_the_same_metrics() {
        let names = ["anteroom_a", "anteroom_b"].map(str::to_owned).into();
        let problems = check("| `anteroom_a` | x |\n| `anteroom_c` | y |", &names);
        assert!(problems[0].contains("no row for the metric `anteroom_b`"));
        assert!(problems[1].contains("describes `anteroom_c`"));
        assert_eq!(problems.len(), 2);
    }
}

//! Merging the OpenMetrics texts of several registries.

/// One text in which every family stands once, as OpenMetrics demands, with the series of all
/// `texts`; closed by `# EOF`.
///
/// A family is a run of lines that starts at a `# HELP` (as `prometheus-client` writes it); its
/// comment lines are taken from the first text that has it.
pub(super) fn families(texts: impl Iterator<Item = String>) -> String {
    let mut families: Vec<(String, String)> = Vec::new();
    for text in texts {
        let mut at = None;
        let mut seen = false;
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let name = help.split(' ').next().unwrap_or_default();
                let found = families.iter().position(|(family, _)| family == name);
                seen = found.is_some();
                at = Some(found.unwrap_or_else(|| {
                    families.push((name.to_owned(), String::new()));
                    families.len() - 1
                }));
            }
            let Some(at) = at else { continue };
            if !(seen && line.starts_with('#')) {
                families[at].1.push_str(line);
                families[at].1.push('\n');
            }
        }
    }
    let mut merged: String = families.into_iter().map(|(_, text)| text).collect();
    merged.push_str("# EOF\n");
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_family_in_two_texts_is_merged_into_one() {
        let one = "# HELP a A.\n# TYPE a gauge\na{s=\"1\"} 1\n# HELP b B.\n# TYPE b gauge\nb 1\n";
        let two = "# HELP a A.\n# TYPE a gauge\na{s=\"2\"} 2\n";
        let merged = families([one, two, ""].into_iter().map(str::to_owned));
        assert_eq!(
            merged,
            "# HELP a A.\n# TYPE a gauge\na{s=\"1\"} 1\na{s=\"2\"} 2\n\
             # HELP b B.\n# TYPE b gauge\nb 1\n# EOF\n"
        );
    }
}

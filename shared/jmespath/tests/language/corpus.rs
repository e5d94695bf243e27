//! Every JMESPath expression in Kyverno's published policies parses, read from beside the workspace.

use std::fs;
use std::path::{Path, PathBuf};

use anteroom_jmespath::Expression;

/// Written as if there were a ternary operator, which Kyverno's parser refuses as well.
const NOT_JMESPATH: [&str; 2] = [
    "isBusinessHours ? '20' : '10'",
    "isBusinessHours ? '40Gi' : '20Gi'",
];

#[test]
fn published_policies_parse() {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/kyverno-policies");
    if !directory.is_dir() {
        let required = std::env::var_os("ANTEROOM_CORPUS_REQUIRED").is_some();
        assert!(!required, "no policies at {}", directory.display());
        println!(
            "SKIPPED: no policies at {}; no expression was parsed",
            directory.display()
        );
        return;
    }
    let mut files = Vec::new();
    yaml_files(&directory, &mut files);
    let (mut parsed, mut failures) = (0, Vec::new());
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        for expression in text.lines().flat_map(expressions) {
            if NOT_JMESPATH.contains(&expression.as_str()) {
                continue;
            }
            match Expression::parse(&expression) {
                Ok(_) => parsed += 1,
                Err(error) => failures.push(format!("{}: {error:#}", file.display())),
            }
        }
    }
    println!(
        "{parsed} expressions of published policies parse, {} do not",
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(parsed > 0, "{} holds no expression", directory.display());
}

fn yaml_files(directory: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            yaml_files(&path, files);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            files.push(path);
        }
    }
}

/// What stands between `{{` and `}}` on a line, and what a `jmesPath` key has as its value. They are
/// resolved from the inside out, so what is inside stands for a name in what is outside.
fn expressions(line: &str) -> Vec<String> {
    let line = line.trim();
    if line.starts_with('#') {
        return Vec::new();
    }
    let mut line = unquoted(line);
    let mut found = Vec::new();
    while let Some(end) = line.find("}}") {
        let Some(start) = line[..end].rfind("{{") else {
            break;
        };
        found.push(line[start + 2..end].trim().to_owned());
        let name = if line[..start].ends_with('`') {
            "0"
        } else {
            "substituted"
        };
        line.replace_range(start..end + 2, name);
    }
    if let Some(("jmesPath" | "- jmesPath", value)) = line.split_once(": ")
        && !value.starts_with(['|', '>'])
    {
        found.push(value.to_owned());
    }
    found
}

/// The line with the value of its key as YAML reads it.
fn unquoted(line: &str) -> String {
    let (key, value) = line.split_once(": ").unwrap_or(("", line));
    let value = value.trim();
    // A comment may follow a quoted value.
    let value = match (value.chars().next(), value.rfind(" #")) {
        (Some('"' | '\''), Some(comment)) => value[..comment].trim_end(),
        _ => value,
    };
    let double = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    let single = value
        .strip_prefix('\'')
        .and_then(|value| value.strip_suffix('\''));
    let value = match (double, single) {
        (Some(value), _) => value.replace("\\\"", "\"").replace("\\\\", "\\"),
        (None, Some(value)) => value.replace("''", "'"),
        (None, None) => value.to_owned(),
    };
    format!("{key}: {value}")
}

//! The output of `anteroom apply`: lines, reports and files.

use std::{collections::BTreeMap, fs, path::Path};

use anteroom_offline::{Applied, junit, markdown, table};
use anyhow::Context;
use serde_json::Value;

use super::{Format, apply::ApplyArgs, yaml, yaml_documents};
use crate::output::{print, warn};

/// Prints what policies said, and what they made of resources.
pub(super) fn print_outcome(args: &ApplyArgs, told: &Applied) -> anyhow::Result<()> {
    if let Some(path) = &args.patched {
        write(path, told.patched())?;
    }
    let text = page(args, told)?;
    match text.trim_end() {
        "" => Ok(()),
        text => print(text),
    }
}

pub(super) fn page(args: &ApplyArgs, told: &Applied) -> anyhow::Result<String> {
    let patched = match args.patched {
        Some(_) => String::new(),
        None => yaml_documents(told.patched())?,
    };
    if args.stdin {
        return Ok(patched);
    }
    if args.policy_report {
        let reports = told.policy_reports();
        return match args.output {
            Format::Json => Ok(serde_json::to_string_pretty(&reports)?),
            _ => yaml_documents(&reports),
        };
    }
    let suites = told.suites();
    let rows = suites.iter().flat_map(|suite| &suite.rows);
    Ok(match args.output {
        Format::Text if args.table => {
            let table = table(rows, args.detailed_results);
            format!("{patched}{table}{}", told.summary())
        }
        Format::Text => match told.text(args.detailed_results) {
            text if patched.is_empty() => text,
            text => format!("{patched}\n{text}"),
        },
        Format::Json => serde_json::to_string_pretty(&told.json())?,
        Format::Yaml => yaml(&told.json())?,
        Format::Junit => junit(&suites),
        Format::Markdown => markdown(rows, args.detailed_results),
    })
}

/// Returns whether the page names the policies that do not compile and the rules that are not run.
pub(super) fn shows_left_out(args: &ApplyArgs) -> bool {
    let is_whole = match args.output {
        Format::Text => !args.table,
        Format::Json | Format::Yaml => true,
        Format::Junit | Format::Markdown => false,
    };
    is_whole && !args.stdin && !args.policy_report
}

/// Writes one file of all of them, or a file for each into a folder.
fn write(path: &Path, patched: &[Value]) -> anyhow::Result<()> {
    let wrote = |path: &Path, text: String| {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let is_folder = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if !is_folder {
        return wrote(path, yaml_documents(patched)?);
    }
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
    for (name, states) in files(patched) {
        let name = path.join(name);
        match &*states {
            [object] => wrote(&name, format!("{}\n", yaml(object)?))?,
            _ => {
                warn(&format!(
                    "{} holds {} documents: none of them knows of the others' changes, as where more than one rule \
                     changed a target, or one rule for more than one resource",
                    name.display(),
                    states.len(),
                ));
                wrote(&name, yaml_documents(&states)?)?;
            }
        }
    }
    Ok(())
}

/// The objects by the name of the file that each stands in. An object is there once for each change of it that
/// began with what was given.
fn files(patched: &[Value]) -> BTreeMap<String, Vec<Value>> {
    let mut files: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for object in patched {
        let states = files.entry(file_name(object)).or_default();
        if !states.contains(object) {
            states.push(object.clone());
        }
    }
    files
}

/// Names a file after an object, as in `default-pod-web.yaml`. What a name could not be in a path is left out of it.
fn file_name(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"]
        .as_str()
        .or(metadata["generateName"].as_str());
    let parts = [
        metadata["namespace"].as_str(),
        object["kind"].as_str(),
        name,
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = parts
        .join("-")
        .to_lowercase()
        .chars()
        .filter(is_plain)
        .collect();
    format!("{name}.yaml")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_written_to_a_file_or_into_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "n"}});
        let file = folder.path().join("all.yaml");
        write(&file, &[pod("a"), pod("b")]).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(
            anteroom_offline::yaml(&text).unwrap(),
            [pod("a"), pod("b")],
            "{text}"
        );
        let within = folder.path().join("each/");
        write(&within, &[pod("a"), pod("../../b")]).unwrap();
        assert!(within.join("n-pod-a.yaml").is_file());
        assert!(within.join("n-pod-....b.yaml").is_file());
        // Two rules that change a target give two documents in its file; equal documents are written once.
        let marked = |by: &str| {
            let mut pod = pod("a");
            pod["metadata"]["labels"] = json!({ "by": by });
            pod
        };
        let twice = folder.path().join("twice/");
        write(&twice, &[marked("x"), marked("y"), marked("x")]).unwrap();
        let text = fs::read_to_string(twice.join("n-pod-a.yaml")).unwrap();
        assert_eq!(
            anteroom_offline::yaml(&text).unwrap(),
            [marked("x"), marked("y")],
            "{text}"
        );
        assert!(write(Path::new("/nowhere/at/all"), &[]).is_err());
    }
}

//! Documents that a user hands in.

use std::{
    fs::{self, File},
    io::{IsTerminal, Read, stdin},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use serde::de::IgnoredAny;
use serde_json::Value;

/// The largest document that is read.
const DOCUMENT_BYTES_MAX: u64 = anteroom_offline::DOCUMENT_BYTES_MAX;

/// Reads a JSON or YAML document from `file`, or from standard input if there is none.
pub(crate) fn document(file: Option<&PathBuf>) -> anyhow::Result<Value> {
    let (name, text) = text(file.map_or(Path::new("-"), |path| path.as_path()))?;
    parse(&text).with_context(|| format!("{name} cannot be read as a JSON or YAML document"))
}

/// Reads all JSON or YAML documents of `file`, or of standard input (`-`).
pub(crate) fn documents(file: &Path) -> anyhow::Result<Vec<Value>> {
    let (name, text) = text(file)?;
    let documents = anteroom_offline::yaml(&text).map_err(|message| anyhow!(message));
    documents.with_context(|| format!("{name} cannot be read as JSON or YAML"))
}

/// Documents of all files together: all are held at once.
const DOCUMENTS_MAX: usize = 100_000;

/// The documents of several files.
#[derive(Debug, Default)]
pub(crate) struct InputDocuments {
    pub(crate) documents: Vec<Value>,
    /// Files in folders that could not be read.
    pub(crate) passed_over: Vec<String>,
}

/// Reads files, folders with all files of manifests below them that are not hidden, and standard
/// input (`-`). The items of a `List` stand in its place.
///
/// # Errors
/// A file that is named cannot be read, or there are more than [`DOCUMENTS_MAX`] documents.
pub(crate) fn manifests(paths: &[PathBuf]) -> anyhow::Result<InputDocuments> {
    let mut found = InputDocuments::default();
    for path in paths {
        if path == Path::new("-") {
            found.take(documents(path)?)?;
            continue;
        }
        let mut files = Vec::new();
        gather(path, path.is_file(), &mut files)?;
        for file in files {
            match documents(&file) {
                Ok(documents) => found.take(documents)?,
                // A folder may hold other things than manifests.
                Err(error) if path.is_dir() => found.passed_over.push(format!("{error:#}")),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

impl InputDocuments {
    fn take(&mut self, documents: Vec<Value>) -> anyhow::Result<()> {
        self.documents.extend(anteroom_offline::listed(documents));
        if self.documents.len() > DOCUMENTS_MAX {
            bail!("there are more than {DOCUMENTS_MAX} documents: name fewer files");
        }
        Ok(())
    }
}

/// The file, or the files of manifests below the folder, in order.
fn gather(path: &Path, named: bool, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if named || matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(path.to_owned());
        }
        if !path.exists() {
            bail!("there is no {}", path.display());
        }
        return Ok(());
    }
    let list = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut inside = list
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    inside.sort();
    for path in inside {
        // What is hidden is no manifest of its folder, and a link may lead back up.
        let is_hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
        let is_link = path.is_symlink() && path.is_dir();
        if !is_link && !path.file_name().is_some_and(is_hidden) {
            gather(&path, false, files)?;
        }
    }
    Ok(())
}

/// Reads `file`, or standard input for `-`, and returns its text and its name for messages.
pub(crate) fn text(file: &Path) -> anyhow::Result<(String, String)> {
    if file != Path::new("-") {
        let name = file.display().to_string();
        let open = File::open(file).with_context(|| format!("cannot open {name}"))?;
        let text = read(open, &name)?;
        return Ok((name, text));
    }
    let stdin = stdin();
    if stdin.is_terminal() {
        bail!("no input: name a file, or pipe a document into the command");
    }
    let name = "standard input".to_owned();
    let text = read(stdin.lock(), &name)?;
    Ok((name, text))
}

fn read(from: impl Read, name: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    from.take(DOCUMENT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {name}"))?;
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        bail!("{name} is larger than {DOCUMENT_BYTES_MAX} bytes: divide it into smaller files");
    }
    Ok(text)
}

/// Returns the one document of a text. Where the text is neither JSON nor YAML, the errors of JSON are the ones meant if it
/// looks like JSON.
fn parse(text: &str) -> anyhow::Result<Value> {
    // YAML reads it as null. More likely the command before the pipe has failed.
    if text.trim().is_empty() {
        bail!("it is empty");
    }
    match anteroom_offline::yaml(text) {
        Ok(documents) if documents.len() > 1 => {
            bail!("it has {} documents, and one is read", documents.len())
        }
        Ok(mut documents) => Ok(documents.pop().unwrap_or_default()),
        Err(message) => {
            let is_like_json = text.trim_start().starts_with(['{', '[', '"']);
            let json = is_like_json.then(|| serde_json::from_str::<IgnoredAny>(text));
            match json {
                Some(Err(error)) => Err(error.into()),
                Some(Ok(_)) | None => Err(anyhow!(message)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_yaml_are_read() {
        assert_eq!(
            parse("{\"a\": 9007199254740993}").unwrap(),
            json!({ "a": 9_007_199_254_740_993_u64 })
        );
        assert_eq!(
            parse("a:\n  - 1\n  - b\n").unwrap(),
            json!({ "a": [1, "b"] })
        );
        assert_eq!(parse("null").unwrap(), Value::Null);
        assert_eq!(parse("{a: [b, 1]}").unwrap(), json!({ "a": ["b", 1] }));
        let error = parse("{\"a\": ").unwrap_err().to_string();
        assert!(error.starts_with("EOF"), "{error}");
        let nested = format!("{}{}", "[".repeat(128), "]".repeat(128));
        let error = parse(&nested).unwrap_err().to_string();
        assert!(error.starts_with("recursion limit exceeded"), "{error}");
        let error = parse("a: 1\n---\na: 2").unwrap_err().to_string();
        assert!(error.contains("2 documents"), "{error}");
        assert!(parse(" \n").is_err(), "nothing is not null");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = document(Some(&PathBuf::from("no/such/file"))).unwrap_err();
        assert!(error.to_string().contains("no/such/file"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let error = document(Some(&folder.path().to_owned())).unwrap_err();
        assert!(error.to_string().starts_with("cannot read /"), "{error}");
    }

    #[test]
    fn more_documents_than_the_limit_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many.json");
        for (count, is_taken) in [(DOCUMENTS_MAX, true), (DOCUMENTS_MAX + 1, false)] {
            let items = vec!["{}"; count].join(",");
            fs::write(&path, format!(r#"{{"kind":"List","items":[{items}]}}"#)).unwrap();
            let found = manifests(std::slice::from_ref(&path));
            assert_eq!(found.is_ok(), is_taken, "{:?}", found.err());
        }
    }
}

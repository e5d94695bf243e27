//! Documents that a user hands in.

use std::{
    fs::File,
    io::{IsTerminal, Read, stdin},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

/// The largest document that is read.
const DOCUMENT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Reads a JSON or YAML document from `file`, or from standard input if there is none.
pub(crate) fn document(file: Option<&PathBuf>) -> anyhow::Result<Value> {
    let (name, text) = text(file.map_or(Path::new("-"), |path| path.as_path()))?;
    parse(&text).with_context(|| format!("{name} is not a JSON or YAML document"))
}

/// Reads all JSON or YAML documents of `file`, or of standard input (`-`).
pub(crate) fn documents(file: &Path) -> anyhow::Result<Vec<Value>> {
    let (name, text) = text(file)?;
    if let Ok(document) = serde_json::from_str(&text) {
        return Ok(vec![document]);
    }
    let documents = anteroom_offline::yaml(&text).map_err(|message| anyhow!(message));
    documents.with_context(|| format!("{name} is not a JSON or YAML document"))
}

/// Reads `file`, or standard input for `-`, and returns its text and its name for messages.
pub(crate) fn text(file: &Path) -> anyhow::Result<(String, String)> {
    if file != Path::new("-") {
        let open = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        return Ok((file.display().to_string(), read(open)?));
    }
    let stdin = stdin();
    if stdin.is_terminal() {
        bail!("no input: name a file, or pipe a document into the command");
    }
    Ok(("standard input".to_owned(), read(stdin.lock())?))
}

fn read(from: impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    from.take(DOCUMENT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .context("cannot read the input")?;
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        bail!("the input is larger than {DOCUMENT_BYTES_MAX} bytes");
    }
    Ok(text)
}

/// JSON first: it keeps every number as it came, and its errors are the ones meant where the text
/// looks like JSON.
fn parse(text: &str) -> anyhow::Result<Value> {
    // YAML reads it as null. More likely the command before the pipe has failed.
    if text.trim().is_empty() {
        bail!("it is empty");
    }
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) if text.trim_start().starts_with(['{', '[', '"']) => Err(error.into()),
        Err(_) => Ok(anteroom_functions::yaml::read(text)?),
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
        assert!(parse("{\"a\": ").is_err());
        assert!(parse(" \n").is_err(), "nothing is not null");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = document(Some(&PathBuf::from("no/such/file"))).unwrap_err();
        assert!(error.to_string().contains("no/such/file"), "{error}");
    }
}

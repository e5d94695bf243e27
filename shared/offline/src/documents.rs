//! Reading documents from files.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde_json::Value;
use thiserror::Error;

/// The largest file that is read.
pub const DOCUMENT_BYTES_MAX: u64 = anteroom_functions::yaml::FILE_BYTES_MAX as u64;

/// Files below one folder that are read; more is an error.
pub const FILES_MAX: usize = 10_000;

/// The reason why an input cannot be used.
#[derive(Debug, Error)]
pub enum InputError {
    /// The file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A document is larger than [`DOCUMENT_BYTES_MAX`].
    #[error("{} is larger than {DOCUMENT_BYTES_MAX} bytes: divide it into smaller files", path.display())]
    TooLarge {
        /// The file or folder.
        path: PathBuf,
    },
    /// The document is no JSON and no YAML, or has not the shape that is read.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// The file or folder.
        path: PathBuf,
        /// The position in the file, and the fault there.
        message: String,
    },
    /// A folder has more files than [`FILES_MAX`].
    #[error("{} has more than {FILES_MAX} files: name fewer", path.display())]
    TooMany {
        /// The file or folder.
        path: PathBuf,
    },
}

/// All JSON or YAML documents of a file. Documents that are null are left out, and the items of a
/// `List` stand in its place.
///
/// # Errors
/// It cannot be read, or is no JSON and no YAML.
pub fn documents(path: &Path) -> Result<Vec<Value>, InputError> {
    let text = text(path)?;
    let parsed = yaml(&text).map_err(|message| InputError::Malformed {
        path: path.to_owned(),
        message: format!("it cannot be read as JSON or YAML: {message}"),
    })?;
    Ok(listed(parsed))
}

/// All documents of a text that have anything in them, read as `kubectl` and Kyverno read them: one of JSON, or any number
/// of YAML.
///
/// # Errors
/// The place and the reason why it is no YAML, or the limit that it is beyond.
pub fn yaml(text: &str) -> Result<Vec<Value>, String> {
    anteroom_functions::yaml::read_file(text).map_err(|error| error.to_string())
}

/// The manifests of a file, or of all files of manifests below a folder that are not hidden, in the order
/// of their names.
///
/// # Errors
/// Those of [`documents`].
pub fn manifests(path: &Path) -> Result<Vec<Value>, InputError> {
    let mut found = Vec::new();
    for file in files(path)? {
        found.extend(documents(&file)?);
    }
    Ok(found)
}

/// Documents with the items of a `List` in its place, and without those that are null.
pub fn listed(documents: Vec<Value>) -> Vec<Value> {
    documents.into_iter().flat_map(items).collect()
}

fn items(document: Value) -> Vec<Value> {
    match document {
        Value::Null => Vec::new(),
        Value::Object(mut list) if list.get("kind").and_then(Value::as_str) == Some("List") => {
            match list.remove("items") {
                Some(Value::Array(listed)) => self::listed(listed),
                _ => Vec::new(),
            }
        }
        document => vec![document],
    }
}

/// Checks that a document which names its kind is of the first of `kinds`, or of another name for that. A document without
/// a kind is taken as it is.
///
/// # Errors
/// The document is of another kind, in words.
pub(crate) fn check_kind(document: &Value, kinds: &[&str]) -> Result<(), String> {
    let wanted = kinds.first().copied().unwrap_or_default();
    match document["kind"].as_str() {
        Some(kind) if !kinds.contains(&kind) => Err(format!(
            "it is a `{kind}`, and a `{wanted}` of cli.kyverno.io is needed here"
        )),
        Some(_) | None => Ok(()),
    }
}

/// Returns the message of a document that has not the shape which is read. YAML takes some words for booleans.
pub(crate) fn shape_message(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.starts_with("invalid type: boolean") && message.contains("expected a string") {
        true => {
            format!(
                "{message}: words such as `y`, `no` and `on` are booleans in YAML, so quote them"
            )
        }
        false => message,
    }
}

fn files(path: &Path) -> Result<Vec<PathBuf>, InputError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    gather(path, &mut files)?;
    Ok(files)
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    for path in inside(folder)? {
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            // A link may lead back up.
            if !path.is_symlink() {
                gather(&path, files)?;
            }
        } else if matches!(
            path.extension().and_then(|extension| extension.to_str()),
            Some("yaml" | "yml" | "json")
        ) {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            let path = folder.to_owned();
            return Err(InputError::TooMany { path });
        }
    }
    Ok(())
}

/// Returns the files and folders in a folder, in the order of names.
pub(crate) fn inside(folder: &Path) -> Result<Vec<PathBuf>, InputError> {
    let read = |source| InputError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut inside = fs::read_dir(folder)
        .map_err(read)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(read)?;
    inside.sort();
    Ok(inside)
}

fn text(path: &Path) -> Result<String, InputError> {
    let read = |source| InputError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    File::open(path)
        .map_err(read)?
        .take(DOCUMENT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(read)?;
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        let path = path.to_owned();
        return Err(InputError::TooLarge { path });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_documents_of_all_files_are_read_and_lists_taken_apart() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "b.yaml",
            "a: 1\n---\n---\nkind: List\nitems: [{b: 2}, null]\n",
        );
        write("a/c.json", "{\"c\": 3}");
        write("a/notes.txt", "no manifest");
        write(".hidden/d.yaml", "d: 4");
        let found = manifests(folder.path()).unwrap();
        assert_eq!(found, [json!({"c": 3}), json!({"a": 1}), json!({"b": 2})]);
        assert!(manifests(&folder.path().join("nowhere")).is_err());
        assert_eq!(
            yaml("a: 1\nb: {c: 1, c: 2}\na: 3"),
            Ok(vec![json!({"a": 3, "b": {"c": 2}})])
        );
        let kind = |text: &str| check_kind(&yaml(text).unwrap()[0], &["Values", "Value"]);
        assert_eq!((kind("kind: Value"), kind("a: 1")), (Ok(()), Ok(())));
        let refused = kind("kind: Pod").unwrap_err();
        assert!(
            refused.contains("`Pod`") && refused.contains("`Values`"),
            "{refused}"
        );
        let error = serde_json::from_str::<String>("true").unwrap_err();
        assert!(shape_message(&error).ends_with("so quote them"));
        let error = serde_json::from_str::<String>("1").unwrap_err();
        assert_eq!(shape_message(&error), error.to_string());
        write("bad.yaml", "a: [");
        let error = manifests(folder.path()).unwrap_err().to_string();
        assert!(error.contains("bad.yaml"), "{error}");
    }
}

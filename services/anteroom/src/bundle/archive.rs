//! The archive: texts by name, and a list of what is missing.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
};

use anteroom_runtime::wall_clock;
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use super::clean;

/// The most bytes of one text. Logs are cut at their beginning, everything else is left out.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// The folder that everything is in.
const FOLDER: &str = "anteroom-support";

/// Texts that are clean.
#[derive(Debug, Default)]
pub(super) struct Archive {
    texts: Vec<(String, String)>,
    missing: Vec<(String, String)>,
}

impl Archive {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Takes a document, or the reason why there is none.
    pub(super) fn json(&mut self, name: &str, document: Result<Value, String>) {
        let text = document.and_then(|mut document| {
            clean::value(&mut document);
            serde_json::to_string_pretty(&document).map_err(|error| error.to_string())
        });
        match text {
            Ok(text) if text.len() <= TEXT_BYTES_MAX => self.texts.push((name.to_owned(), text)),
            Ok(_) => self.lacks(name, &format!("it is longer than {TEXT_BYTES_MAX} bytes")),
            Err(reason) => self.lacks(name, &reason),
        }
    }

    /// Takes a text, or the reason why there is none. Of a long one the end is taken.
    pub(super) fn text(&mut self, name: &str, text: Result<String, String>) {
        match text {
            Ok(text) => {
                let at = text.len().saturating_sub(TEXT_BYTES_MAX);
                let from = (at..=text.len()).find(|at| text.is_char_boundary(*at));
                let text = clean::text(&text[from.unwrap_or_default()..]);
                self.texts.push((name.to_owned(), text));
            }
            Err(reason) => self.lacks(name, &reason),
        }
    }

    fn lacks(&mut self, name: &str, reason: &str) {
        self.missing.push((name.to_owned(), clean::text(reason)));
    }

    /// Returns the parts that the archive lacks, with reasons.
    pub(super) fn missing(&self) -> Vec<(String, String)> {
        self.missing.clone()
    }

    /// The texts, by their names.
    #[cfg(test)]
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(name, text)| (&**name, &**text))
    }

    /// Writes it to a new file that its owner alone may read, and returns the file's size.
    ///
    /// # Errors
    /// The file is there already, or cannot be written.
    pub(super) fn write(mut self, file: &Path) -> std::io::Result<u64> {
        let missing = self.missing.iter();
        let missing: String = missing
            .map(|(name, reason)| format!("{name}: {reason}\n"))
            .collect();
        self.texts.push(("missing.txt".to_owned(), missing));
        let mut archive = tar::Builder::new(GzEncoder::new(create(file)?, Compression::default()));
        let seconds = u64::try_from(wall_clock::now().as_second()).unwrap_or_default();
        for (name, text) in &self.texts {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(seconds);
            archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
        }
        let mut written = archive.into_inner()?.finish()?;
        written.flush()?;
        Ok(written.metadata()?.len())
    }
}

fn create(file: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(file)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn an_archive_holds_clean_texts_and_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.tar.gz");
        let mut archive = Archive::new();
        archive.json(
            "a.json",
            Ok(json!({ "said": "at https://user:CANARY@host/CANARY" })),
        );
        archive.json("b.json", Err("you may not".into()));
        archive.text("c.log", Ok("Authorization: Bearer CANARYCANARY\n".into()));
        assert_eq!(
            archive.missing(),
            [("b.json".to_owned(), "you may not".to_owned())]
        );
        let bytes = archive.write(&file).unwrap();
        assert_eq!(bytes, std::fs::metadata(&file).unwrap().len());
        assert!(Archive::new().write(&file).is_err());

        let mut read = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&file).unwrap()));
        let mut texts = Vec::new();
        for entry in read.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert!(!text.contains("CANARY"), "{name}: {text}");
            texts.push((name, text));
        }
        let names: Vec<_> = texts.iter().map(|(name, _)| &**name).collect();
        let expected = ["a.json", "c.log", "missing.txt"].map(|name| format!("{FOLDER}/{name}"));
        assert_eq!(names, expected);
        assert_eq!(texts[2].1, "b.json: you may not\n");
    }
}

//! The messages of every release: this release reads them, and writes every field that their readers know.
//!
//! `releases/VERSION.txt` has a line for each message: its kind, its subject and headers where it is a record of the log, and
//! its bytes. The file of the present version is written anew with `ANTEROOM_UPDATE=1`; those of earlier ones never change.

mod samples;

use std::{collections::BTreeMap, fs, path::PathBuf};

use bytes::Bytes;
use rmpv::Value as Packed;
use serde_json::{Value, json};

use crate::{
    WireError, beat,
    envelope::{self, Envelope, Record, TraceContext},
    lease, live, query, replica_beat, status,
    subject::Subjects,
    tap, violation, webhook_beat,
};
use samples::samples;

/// The version whose messages the code writes.
const PRESENT: &str = env!("CARGO_PKG_VERSION");

/// A message as a file has it.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    kind: String,
    /// The subject and the headers, as JSON; null where it is no record.
    head: Value,
    body: Bytes,
}

impl Sample {
    fn new(kind: &str, body: Bytes) -> Self {
        Self {
            kind: kind.into(),
            head: Value::Null,
            body,
        }
    }

    fn record(record: Record, trace: Option<TraceContext>) -> Self {
        let encoded = envelope::encode(&Envelope { record, trace }, &subjects()).unwrap();
        let headers: BTreeMap<_, _> = encoded.headers.into_iter().collect();
        Self {
            kind: "record".into(),
            head: json!({"subject": encoded.subject, "headers": headers}),
            body: encoded.body,
        }
    }

    fn line(&self) -> String {
        let shown = crate::golden::shown(&self.body);
        format!("{}\t{}\t{shown}\n", self.kind, self.head)
    }

    fn parse(line: &str) -> Self {
        let mut columns = line.splitn(3, '\t');
        let mut column = || columns.next().unwrap();
        Self {
            kind: column().into(),
            head: serde_json::from_str(column()).unwrap(),
            body: unshown(column()),
        }
    }

    /// Decodes the sample, and returns the bytes that the present version writes for the same message.
    fn rewritten(&self) -> Result<Bytes, WireError> {
        let bytes = &self.body;
        match self.kind.as_str() {
            "record" => self.record_rewritten(),
            "beat" => beat::encode(&beat::decode(bytes)?),
            "replica_beat" => replica_beat::encode(&replica_beat::decode(bytes)?),
            "webhook_beat" => webhook_beat::encode(&webhook_beat::decode(bytes)?),
            "violation" => violation::encode(&violation::decode(bytes)?),
            "lease" => lease::decode(bytes).and_then(|(term, holder)| lease::encode(term, &holder)),
            "query" => query::encode_request(&query::decode_request(bytes)?),
            "query_outcome" => query::encode_outcome(&query::decode_outcome(bytes)?),
            "live" => live::encode_request(&live::decode_request(bytes)?),
            "live_outcome" => live::encode_outcome(&live::decode_outcome(bytes)?),
            "tap" => tap::encode(&tap::decode(bytes)?),
            "tapped" => tap::encode_tapped(&tap::decode_tapped(bytes)?),
            "status" => status::encode_request(&status::decode_request(bytes)?),
            "status_reply" => status::encode_reply(&status::decode_reply(bytes)?),
            kind => panic!("no message is a {kind}"),
        }
    }

    fn record_rewritten(&self) -> Result<Bytes, WireError> {
        let header = |name: &str| self.head["headers"][name].as_str();
        let subject = self.head["subject"].as_str().unwrap();
        let envelope = envelope::decode(subject, header, self.body.clone(), &subjects())?;
        let encoded = envelope::encode(&envelope, &subjects())?;
        assert_eq!(
            encoded.subject, subject,
            "older readers ask for this subject"
        );
        let headers: BTreeMap<_, _> = encoded.headers.into_iter().collect();
        for (name, value) in self.head["headers"].as_object().unwrap() {
            assert_eq!(
                headers.get(name.as_str()).map(String::as_str),
                value.as_str(),
                "{name}"
            );
        }
        Ok(encoded.body)
    }
}

/// The inverse of [`crate::golden::shown`].
fn unshown(text: &str) -> Bytes {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at(2);
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap());
        rest = after;
    }
    bytes.into()
}

fn subjects() -> Subjects {
    Subjects::new("test").unwrap()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("releases")
}

/// Any MessagePack, binary data included.
fn parsed(bytes: &[u8]) -> Packed {
    let mut rest = bytes;
    let value = rmpv::decode::read_value(&mut rest).unwrap();
    assert!(rest.is_empty());
    value
}

fn packed(value: &Packed) -> Bytes {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes.into()
}

/// Asserts that `new` has all that `old` has: fields may come, and none goes or changes its meaning.
fn keeps(old: &Packed, new: &Packed, place: &str) {
    match (old, new) {
        (Packed::Map(old), Packed::Map(new)) => {
            for (name, old) in old {
                let place = format!("{place}.{name}");
                let found = new.iter().find(|(of, _)| of == name);
                let (_, new) = found.unwrap_or_else(|| panic!("{place} is written no more"));
                keeps(old, new, &place);
            }
        }
        (Packed::Array(old), Packed::Array(new)) if old.len() == new.len() => {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                keeps(old, new, &format!("{place}[{at}]"));
            }
        }
        (old, new) => assert_eq!(old, new, "{place}"),
    }
}

/// Adds an unknown field to every struct. A map whose keys are data is none, nor is a variant's name.
fn with_new_fields(value: &mut Packed) {
    match value {
        Packed::Array(items) => items.iter_mut().for_each(with_new_fields),
        Packed::Map(fields) => {
            let is = |name: &Packed, one_of: &[&str]| {
                name.as_str().is_some_and(|name| one_of.contains(&name))
            };
            let is_variant = fields.iter().all(|(name, _)| is(name, &["Ok", "Err"]));
            let of_data = ["parameters", "data", "object", "failed", "documents"];
            let structs = fields.iter_mut().filter(|(name, _)| !is(name, &of_data));
            structs.for_each(|(_, value)| with_new_fields(value));
            if !is_variant {
                fields.push(("of_a_later_release".into(), Packed::Array(vec![1.into()])));
            }
        }
        _ => {}
    }
}

#[test]
fn the_file_of_this_version_has_its_messages() {
    let path = folder().join(format!("{PRESENT}.txt"));
    let lines: String = samples().iter().map(Sample::line).collect();
    if std::env::var_os("ANTEROOM_UPDATE").is_some() {
        fs::write(&path, &lines).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == lines,
        "{} is not what this version writes. If no release has it yet, write it with ANTEROOM_UPDATE=1",
        path.display()
    );
}

#[test]
fn messages_of_every_release_are_read_and_keep_their_fields() {
    let mut files = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        for line in fs::read_to_string(&path).unwrap().lines() {
            let sample = Sample::parse(line);
            let place = format!("{} {}", path.display(), sample.kind);
            let rewritten = sample.rewritten();
            let rewritten = rewritten.unwrap_or_else(|error| panic!("{place}: {error}"));
            if !sample.body.is_empty() {
                keeps(&parsed(&sample.body), &parsed(&rewritten), &place);
            }
        }
        files += 1;
    }
    assert!(files >= 1);
}

#[test]
fn fields_of_later_releases_are_passed_over() {
    for sample in samples() {
        let is_message = !sample.body.is_empty() && sample.head["headers"]["Anteroom-Op"] != "put";
        if !is_message {
            continue;
        }
        let mut later = parsed(&sample.body);
        with_new_fields(&mut later);
        let later = Sample {
            body: packed(&later),
            ..sample.clone()
        };
        assert_eq!(later.rewritten(), sample.rewritten(), "{}", sample.kind);
    }
}

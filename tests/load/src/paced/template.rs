//! A review that is written once, with gaps for what differs.

use serde_json::Value;

/// A part that differs from one review to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The request's UID.
    Uid,
    /// The object's name, a new one each time.
    Name,
    /// The host that is asked about.
    Host,
    /// The path that is asked about.
    Path,
}

impl Slot {
    const ALL: [Self; 4] = [Self::Uid, Self::Name, Self::Host, Self::Path];

    /// Returns the mark that stands for it in a document that a template is made from.
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Uid => "@uid@",
            Self::Name => "@name@",
            Self::Host => "@host@",
            Self::Path => "@path@",
        }
    }
}

/// The pieces of a body, and what stands between them.
#[derive(Clone, Debug)]
pub struct Template {
    pieces: Vec<(String, Slot)>,
    end: String,
}

/// The texts that go into the gaps. No part may need escaping in JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling<'a> {
    pub(crate) uid: &'a str,
    pub(crate) name: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
}

impl Template {
    /// A template from a document in which [`Slot::mark`]s stand, within strings.
    pub fn new(document: &Value) -> Self {
        let text = document.to_string();
        let mut rest = text.as_str();
        let mut pieces = Vec::new();
        while let Some((at, slot)) = first_mark(rest) {
            pieces.push((rest[..at].to_owned(), slot));
            rest = &rest[at + slot.mark().len()..];
        }
        Self {
            pieces,
            end: rest.to_owned(),
        }
    }

    /// Appends a whole body.
    pub(crate) fn write(&self, filling: Filling<'_>, body: &mut Vec<u8>) {
        for (piece, slot) in &self.pieces {
            body.extend_from_slice(piece.as_bytes());
            let value = match slot {
                Slot::Uid => filling.uid,
                Slot::Name => filling.name,
                Slot::Host => filling.host,
                Slot::Path => filling.path,
            };
            body.extend_from_slice(value.as_bytes());
        }
        body.extend_from_slice(self.end.as_bytes());
    }
}

fn first_mark(text: &str) -> Option<(usize, Slot)> {
    let found = Slot::ALL
        .into_iter()
        .filter_map(|slot| Some((text.find(slot.mark())?, slot)));
    found.min_by_key(|(at, _)| *at)
}

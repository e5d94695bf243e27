//! Entries by kind and name. A new set shares unchanged entries with the one before, so that it costs only the
//! changes.
//!
//! There may be a hundred thousand entries, most of them implicit, and each change of one entry makes a new catalog.
//! So a new catalog shares unchanged entries with the catalog before, and each record is decoded once.

use std::{fmt::Display, sync::Arc};

use anteroom_model::{EntryKind, EntryRecord, EntryState, ObjectKey, ViewId};
use xxhash_rust::xxh3::xxh3_64;

/// Entries by kind and name. Immutable.
#[derive(Debug, Default)]
pub struct EntrySet {
    /// Every object of the view, in its order.
    items: Vec<Arc<Item>>,
    /// The entries that can be read, in order of kind and name.
    named: Vec<Arc<Item>>,
}

#[derive(Debug)]
struct Item {
    key: ObjectKey,
    /// The hash of the body.
    hash: u64,
    /// `None`: it cannot be read.
    record: Option<EntryRecord>,
}

impl Item {
    fn name(&self) -> Option<(EntryKind, &str)> {
        let record = self.record.as_ref()?;
        Some((record.kind, &record.name))
    }
}

impl EntrySet {
    /// Builds the set from the objects of the view (namespace, name and body), decoding only those that `before` does
    /// not have.
    pub fn build<'a>(
        before: &Self,
        objects: impl Iterator<Item = (&'a str, &'a str, &'a [u8])>,
    ) -> Self {
        let mut next = 0;
        let item = |(namespace, name, body): (&str, &str, &[u8])| {
            let hash = xxh3_64(body);
            let at = before.find(next, namespace, name);
            let known = at.map(|at| &before.items[at]);
            next = at.map_or(next, |at| at + 1);
            match known {
                Some(item) if item.hash == hash => Arc::clone(item),
                _ => {
                    let key = ObjectKey::new(namespace, name);
                    let record = read(&key, body);
                    Arc::new(Item { key, hash, record })
                }
            }
        };
        let items: Vec<_> = objects.map(item).collect();
        let readable = items.iter().filter(|item| item.record.is_some());
        let mut named: Vec<_> = readable.cloned().collect();
        // A view is in order of its keys, which need not be the order of kinds and names.
        named.sort_by(|a, b| a.name().cmp(&b.name()));
        Self { items, named }
    }

    /// The position of an object, which is most likely at `guess`.
    fn find(&self, guess: usize, namespace: &str, name: &str) -> Option<usize> {
        let key =
            |item: &Arc<Item>| (&*item.key.namespace, &*item.key.name).cmp(&(namespace, name));
        match self.items.get(guess) {
            Some(item) if key(item).is_eq() => Some(guess),
            _ => self.items.binary_search_by(key).ok(),
        }
    }

    /// The entry of this name.
    pub fn get(&self, kind: EntryKind, name: &str) -> Option<&EntryRecord> {
        let of = |item: &Arc<Item>| item.name().cmp(&Some((kind, name)));
        let at = self.named.binary_search_by(of).ok()?;
        self.named[at].record.as_ref()
    }

    /// All of this kind.
    pub fn of_kind(&self, kind: EntryKind) -> impl Iterator<Item = &EntryRecord> {
        let records = self.named.iter().filter_map(|item| item.record.as_ref());
        records.filter(move |record| record.kind == kind)
    }

    /// The views that entries are bound to, some of them several times.
    pub fn views(&self) -> impl Iterator<Item = &ViewId> {
        let records = self.named.iter().filter_map(|item| item.record.as_ref());
        records.filter_map(|record| match &record.state {
            EntryState::Bound(binding) => Some(&binding.view),
            EntryState::Invalid { .. } => None,
        })
    }

    /// The number of entries that can be read.
    pub(crate) fn count(&self) -> usize {
        self.named.len()
    }
}

/// Decodes a record. If that fails, the watcher made a mistake or has a newer version, and policies that read the
/// entry learn that there is none.
fn read(key: &ObjectKey, body: &[u8]) -> Option<EntryRecord> {
    let log_unreadable = |error: &dyn Display| {
        tracing::error!(
            %key,
            %error,
            "record of the entry not decoded: policies see no such entry; check that all services have the same version"
        );
    };
    anteroom_wire::body::decode(body)
        .inspect_err(|error| log_unreadable(error))
        .ok()
}

#[cfg(test)]
mod tests {
    use anteroom_model::Binding;

    use super::*;
    use crate::testing;

    fn record(kind: EntryKind, name: &str, view: &str) -> EntryRecord {
        EntryRecord {
            kind,
            name: name.into(),
            uid: String::new(),
            generation: 1,
            state: EntryState::Bound(Binding::whole(ViewId::new(view))),
            projections: Vec::new(),
        }
    }

    fn view(entries: &EntrySet, kind: EntryKind, name: &str) -> Option<String> {
        let binding = entries.get(kind, name)?.binding().unwrap();
        Some(binding.view.as_str().to_owned())
    }

    #[test]
    fn an_entry_is_found_by_kind_and_name() {
        use EntryKind::{Cached, Global, Implicit};
        let entries = testing::entries(&[
            record(Implicit, "a", "1"),
            record(Cached, "b", "2"),
            record(Global, "b", "3"),
            record(Cached, "a", "4"),
        ]);
        assert_eq!(entries.count(), 4);
        for (kind, name, found) in [
            (Implicit, "a", Some("1")),
            (Cached, "b", Some("2")),
            (Global, "b", Some("3")),
            (Cached, "a", Some("4")),
            (Implicit, "b", None),
            (Cached, "", None),
        ] {
            assert_eq!(view(&entries, kind, name).as_deref(), found, "{name}");
        }
    }

    /// The keys are in another order than the names.
    #[test]
    fn only_changed_entries_are_read_again() {
        let body = |name: &str, view: &str| {
            anteroom_wire::body::encode(&record(EntryKind::Cached, name, view)).unwrap()
        };
        let (a, b, c, other) = (
            body("a", "1"),
            body("b", "1"),
            body("c", "1"),
            body("b", "2"),
        );
        let before = [
            ("", "a", &*a),
            ("", "b", &*b),
            ("x", "c", &*c),
            ("x", "d", b"?"),
        ];
        let before = EntrySet::build(&EntrySet::default(), before.into_iter());
        let after = [
            ("", "0", &*a),
            ("", "b", &*other),
            ("x", "c", &*c),
            ("x", "d", b"?"),
        ];
        let after = EntrySet::build(&before, after.into_iter());
        let shared = |at: usize| {
            let item = &after.items[at];
            before.items.iter().any(|known| Arc::ptr_eq(known, item))
        };
        assert_eq!([0, 1, 2, 3].map(shared), [false, false, true, true]);
        assert_eq!(view(&after, EntryKind::Cached, "b").as_deref(), Some("2"));
        assert_eq!(after.count(), 3, "what cannot be read is not there");
    }
}

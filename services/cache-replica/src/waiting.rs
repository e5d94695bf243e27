//! Names the entries whose views a replica waits for.

use std::collections::BTreeSet;

use anteroom_mirror::Mirror;
use anteroom_model::{EntryKind, EntryRecord, ViewId, system};
use anteroom_view::{LifeState, Object};

/// The most entries that are searched. Declared entries come before implicit ones, of which there may be a hundred
/// thousand.
const LOOKED_AT_MAX: usize = 10_000;

/// Entries that are named.
const NAMED_MAX: usize = 8;

/// `reason`, and the entries on the views that are not there, where they are known.
pub(crate) fn with_entries(reason: &str, mirror: &Mirror) -> String {
    let views = mirror.views().borrow().clone();
    let missing = views.iter().filter(|(_, view)| {
        let state = view.status().borrow().state.clone();
        matches!(
            state,
            LifeState::Unsynced | LifeState::Syncing | LifeState::Stale
        )
    });
    let missing: BTreeSet<&ViewId> = missing.map(|(id, _)| id).collect();
    let names = mirror.view(&system::entries()).and_then(|entries| {
        // The age does not matter, since names do not change.
        let read = entries.read(Some(u64::MAX), |view, _| {
            let bodies = view.objects().take(LOOKED_AT_MAX).map(Object::body);
            let records = bodies.filter_map(|body| anteroom_wire::body::decode(body).ok());
            names(&missing, records)
        });
        read.ok()
    });
    match names.filter(|names| !names.is_empty()) {
        Some(names) => format!("{reason} (of {names})"),
        None => reason.to_owned(),
    }
}

/// Returns the names of the entries bound to the missing views, for people.
fn names(missing: &BTreeSet<&ViewId>, records: impl Iterator<Item = EntryRecord>) -> String {
    let bound = records.filter(|record| {
        let binding = record.binding();
        binding.is_ok_and(|binding| missing.contains(&binding.view))
    });
    let mut named: Vec<_> = bound
        .take(NAMED_MAX + 1)
        .map(|record| match record.kind {
            EntryKind::Implicit => format!("`{}`", record.name),
            kind => format!("{} `{}`", kind.name(), record.name),
        })
        .collect();
    if named.len() > NAMED_MAX {
        named.truncate(NAMED_MAX);
        named.push("others".to_owned());
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use anteroom_model::{Binding, EntryState, Failure};

    use super::*;

    #[test]
    fn entries_on_missing_views_are_named() {
        let record = |kind, name: &str, view: Option<&str>| EntryRecord {
            kind,
            name: name.into(),
            uid: String::new(),
            generation: 1,
            state: match view {
                Some(view) => EntryState::Bound(Binding::whole(ViewId::new(view))),
                None => EntryState::Invalid {
                    failure: Failure::new("X", "x"),
                },
            },
            projections: Vec::new(),
        };
        let (a, b) = (ViewId::new("a"), ViewId::new("b"));
        let missing = BTreeSet::from([&a, &b]);
        let some = [
            record(EntryKind::Cached, "one", Some("a")),
            record(EntryKind::Cached, "invalid", None),
            record(EntryKind::Global, "two", Some("b")),
            record(EntryKind::Cached, "there", Some("c")),
            record(EntryKind::Implicit, "GET /api/v1/pods", Some("a")),
        ];
        assert_eq!(
            names(&missing, some.into_iter()),
            "CachedContextEntry `one`, GlobalContextEntry `two`, `GET /api/v1/pods`"
        );
        let many =
            (0..NAMED_MAX + 1).map(|n| record(EntryKind::Implicit, &n.to_string(), Some("a")));
        let said = names(&missing, many);
        assert!(said.ends_with("`7`, others"), "{said}");
        assert_eq!(names(&missing, std::iter::empty()), "");
    }
}

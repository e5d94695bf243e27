//! The order in which listed reports that are not remembered get their turn. Pure.

use std::{cmp::Ordering, sync::Arc};

use crate::store::ReportKey;

/// The position at which one list ended, so that the next list goes on there.
///
/// It is kept by key and not by count: the remembered reports change between lists, and so does the number of
/// forgotten reports before each key.
#[derive(Debug, Default)]
pub(super) struct RevisitCursor {
    /// The last report that had its turn; `None`: the next list begins with the first.
    last: Option<Arc<ReportKey>>,
    /// A report behind `last` found no room, and so had no turn.
    is_cut: bool,
}

impl RevisitCursor {
    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.is_cut = false;
    }

    /// Returns whether the report `key`, the next of the list, has its turn. `has_room`: there is room for the
    /// report.
    pub(super) fn take(&mut self, key: &Arc<ReportKey>, has_room: bool) -> bool {
        let is_behind = |last: &Arc<ReportKey>| as_listed(key, last).is_gt();
        if !self.last.as_ref().is_none_or(is_behind) {
            return false;
        }
        match has_room {
            true => self.last = Some(Arc::clone(key)),
            false => self.is_cut = true,
        }
        has_room
    }

    /// Ends the list: if all forgotten reports behind the last one had their turn, the next list begins with the
    /// first.
    pub(super) fn end(&mut self) {
        if !self.is_cut {
            self.last = None;
        }
    }
}

/// The order of a list: reports in namespaces first, and then by their keys in etcd.
fn as_listed(one: &ReportKey, other: &ReportKey) -> Ordering {
    let of_cluster = |key: &ReportKey| key.0.is_empty();
    let kinds = of_cluster(one).cmp(&of_cluster(other));
    kinds.then_with(|| path(one).cmp(path(other)))
}

fn path((namespace, name): &ReportKey) -> impl Iterator<Item = u8> {
    namespace.bytes().chain([b'/']).chain(name.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Arc<ReportKey> {
        Arc::new((namespace.to_owned(), name.to_owned()))
    }

    #[test]
    fn keys_are_sorted_as_the_api_server_lists_them() {
        let listed = [
            key("a", "z"),
            // In etcd's keys a dash comes before the slash.
            key("a-b", "a"),
            key("a-b", "b"),
            key("b", "a"),
            key("", "a"),
            key("", "b"),
        ];
        let mut sorted = listed.to_vec();
        sorted.sort_by(|one, other| as_listed(one, other));
        let dashed = sorted.iter().position(|key| key.0 == "a-b");
        assert_eq!(dashed, Some(0), "{sorted:?}");
        assert_eq!(sorted[2..], [&listed[..1], &listed[3..]].concat());
    }

    #[test]
    fn a_report_that_becomes_remembered_takes_no_other_reports_turn() {
        let names = ["a", "b", "c", "d"];
        let mut turns = RevisitCursor::default();
        let mut had = Vec::new();
        // In each round one report is remembered, and one of the rest has its turn.
        for remembered in ["d", "d", "a", "a", "b"] {
            turns.begin();
            let mut has_room = true;
            for name in names.iter().filter(|name| **name != remembered) {
                if turns.take(&key("n", name), has_room) {
                    had.push(*name);
                    has_room = false;
                }
            }
            turns.end();
        }
        assert_eq!(had, ["a", "b", "c", "d", "a"]);
    }

    #[test]
    fn the_cursor_passes_over_no_report_while_there_is_no_room() {
        let mut turns = RevisitCursor::default();
        for (has_room, has_turn) in [
            (true, [true, false]),
            (false, [false; 2]),
            (true, [false, true]),
        ] {
            turns.begin();
            let first = turns.take(&key("n", "a"), has_room);
            let second = turns.take(&key("n", "b"), has_room && !first);
            turns.end();
            assert_eq!([first, second], has_turn);
        }
    }
}

//! The position in the log up to which a catalog has everything.

use std::collections::HashMap;

use anteroom_model::{ObjectKey, Revision};

use super::LogPosition;

/// Policies with positions.
pub(super) type WaitingPolicies = HashMap<ObjectKey, LogPosition>;

/// Returns the log position up to which the parts have everything. The log was read up to `complete_to` before the parts
/// were looked at, and all parts take in what is read if they are `live`.
///
/// While the parts are of two logs, the position is unknown. After a change to another log, `complete_to` may still be a
/// position of the log before, so the first look at the parts tells nothing.
pub(super) fn position(
    before: &LogPosition,
    parts: [&LogPosition; 3],
    complete_to: Revision,
    live: bool,
) -> LogPosition {
    let [first, ..] = parts;
    if parts
        .iter()
        .any(|part| part.incarnation != first.incarnation)
    {
        return LogPosition::default();
    }
    let same_log = before.incarnation == first.incarnation;
    let of_parts = parts.iter().map(|part| part.revision).min();
    let revision = match (same_log, live) {
        (false, _) => Revision::default(),
        (true, true) => complete_to,
        // A part may have a record at its position, and lack what superseded an earlier one.
        (true, false) => complete_to.min(of_parts.unwrap_or_default()),
    };
    LogPosition {
        incarnation: first.incarnation.clone(),
        // What was known once does not become unknown: a catalog is only replaced by a newer one.
        revision: match same_log {
            true => revision.max(before.revision),
            false => revision,
        },
        shortened: before.shortened,
    }
}

/// Returns the policies that wait now. Whatever a policy waits for that did not wait before came after `read_to`, the
/// position of the reading before.
pub(super) fn waiting_since<'k>(
    before: &WaitingPolicies,
    waiting: impl IntoIterator<Item = &'k ObjectKey>,
    read_to: &LogPosition,
) -> WaitingPolicies {
    let since = |key: &ObjectKey| before.get(key).unwrap_or(read_to).clone();
    waiting
        .into_iter()
        .map(|key| (key.clone(), since(key)))
        .collect()
}

/// Returns the position up to which everything is compiled that was read up to `read_to`.
pub(super) fn claimed(read_to: &LogPosition, waiting: &WaitingPolicies) -> LogPosition {
    let revisions = waiting.values().map(|since| {
        // Nothing is known of positions in another log, or in the lost part of this log.
        match since.is_comparable_to(read_to) {
            true => since.revision,
            false => Revision::default(),
        }
    });
    let revision = revisions.chain([read_to.revision]).min();
    LogPosition {
        revision: revision.unwrap_or_default(),
        ..read_to.clone()
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::Incarnation;

    use super::*;

    #[test]
    fn a_catalog_claims_only_a_position_that_all_its_views_have() {
        let at = |log: &str, revision| LogPosition {
            incarnation: Incarnation(log.into()),
            revision: Revision(revision),
            ..LogPosition::default()
        };
        let two_logs = [at("b", 3), at("a", 9), at("b", 3)];
        let of_a = [at("a", 3), at("a", 9), at("a", 7)];
        let of_b = [at("b", 3), at("b", 4), at("b", 5)];
        for (before, parts, complete_to, live, expected) in [
            // Nothing is known of three views in two logs.
            (at("a", 9), &two_logs, 9, true, LogPosition::default()),
            // Every view takes in what is read.
            (at("a", 5), &of_a, 12, true, at("a", 12)),
            // Records up to 9 were read, and not all that superseded others.
            (at("a", 1), &of_a, 2, true, at("a", 2)),
            (at("a", 1), &of_a, 2, false, at("a", 2)),
            // A view that is built anew does not take in the reading.
            (at("a", 2), &of_a, 12, false, at("a", 3)),
            (at("a", 5), &of_a, 12, false, at("a", 5)),
            // What was read may be of the log before.
            (at("a", 90), &of_b, 90, true, at("b", 0)),
            (at("b", 0), &of_b, 5, true, at("b", 5)),
        ] {
            let [one, two, three] = parts;
            let found = position(&before, [one, two, three], Revision(complete_to), live);
            assert_eq!(found, expected, "{before:?} {parts:?} {complete_to}");
        }
    }

    /// A webhook tells the position, and a policy is ready once all webhooks have passed it.
    #[test]
    fn a_catalog_claims_no_position_that_a_policy_waits_at() {
        let at = |log: &str, revision| LogPosition {
            incarnation: Incarnation(log.into()),
            revision: Revision(revision),
            ..LogPosition::default()
        };
        let key = |name: &str| ObjectKey::new("a", name);
        let none = WaitingPolicies::new();
        assert_eq!(claimed(&at("l", 9), &none), at("l", 9));
        // Both were changed after 9, and `p` once more after 12.
        let first = waiting_since(&none, &[key("p"), key("q")], &at("l", 9));
        assert_eq!(claimed(&at("l", 12), &first), at("l", 9));
        let second = waiting_since(&first, &[key("p"), key("q"), key("r")], &at("l", 12));
        assert_eq!(claimed(&at("l", 15), &second), at("l", 9));
        // One that changes in a loop does not hold the position for ever.
        let third = waiting_since(&second, &[key("r")], &at("l", 15));
        assert_eq!(claimed(&at("l", 18), &third), at("l", 12));
        let fourth = waiting_since(&third, &[key("p")], &at("l", 18));
        assert_eq!(claimed(&at("l", 21), &fourth), at("l", 18));
        assert_eq!(claimed(&at("other", 4), &fourth), at("other", 0));
        assert_eq!(waiting_since(&fourth, &[], &at("l", 21)), none);
    }
}

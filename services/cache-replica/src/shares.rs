//! The views that a replica holds: the views named by its options, or its share of all views.

mod keeper;

use anteroom_mirror::HeldViewFilter;
use anteroom_model::ViewId;

pub(crate) use keeper::Keeper;

/// Views by name, with `*` for any text: as in `ingresses.*,apicall:*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patterns(Vec<String>);

impl Patterns {
    /// Reads patterns that are separated by commas. A plural alone stands for all views of that
    /// resource.
    pub(crate) fn new(texts: &[String]) -> Self {
        let patterns = texts.iter().flat_map(|text| text.split(','));
        let patterns = patterns.map(str::trim).filter(|text| !text.is_empty());
        Self(patterns.map(str::to_owned).collect())
    }

    /// Returns true if one of the patterns matches `view`.
    pub(crate) fn hold(&self, view: &ViewId) -> bool {
        let name = view.as_str();
        let plural = name.split('.').next().unwrap_or(name);
        self.0
            .iter()
            .any(|pattern| pattern == plural || matches(pattern, name))
    }
}

/// The views that a replica holds from its start on. With a replication factor these are the system's
/// own, until it has heard which other replicas there are.
pub(crate) fn held_at_start(patterns: &[String], factor: usize) -> HeldViewFilter {
    if factor > 0 {
        return HeldViewFilter::new(ViewId::is_system);
    }
    if patterns.is_empty() {
        return HeldViewFilter::all();
    }
    let patterns = Patterns::new(patterns);
    HeldViewFilter::new(move |view| view.is_system() || patterns.hold(view))
}

/// Returns true if `pattern`, in which `*` stands for any text, matches `name`.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty(); // No `*` in it.
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns the weight of a replica for a view, by rendezvous hashing: the replicas with the highest weights hold the
/// view. Every replica computes the same weights. A replica that joins or leaves moves only the views that it holds.
///
/// FNV-1a over both names, mixed once more, since names differ in their last bytes mostly.
pub(crate) fn weight(replica: &str, view: &ViewId) -> u64 {
    let bytes = replica.bytes().chain([0]).chain(view.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Returns the replicas that should hold `view`: `factor` of them, or all if there are fewer.
pub(crate) fn owners<'r>(
    view: &ViewId,
    replicas: impl IntoIterator<Item = &'r str>,
    factor: usize,
) -> Vec<&'r str> {
    let mut weighed: Vec<_> = replicas
        .into_iter()
        .map(|replica| (weight(replica, view), replica))
        .collect();
    weighed.sort_unstable_by(|one, other| other.cmp(one));
    weighed.truncate(factor);
    weighed.into_iter().map(|(_, replica)| replica).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn patterns_name_views() {
        for (patterns, name, expected) in [
            ("ingresses", "ingresses.v1.networking.k8s.io", true),
            ("ingresses", "ingresses.v1.networking.k8s.io~0123", true),
            ("ingress", "ingresses.v1.networking.k8s.io", false),
            ("services.v1", "services.v1", true),
            ("services.v1", "services.v1~objects", false),
            (
                "*.networking.k8s.io",
                "ingresses.v1.networking.k8s.io",
                true,
            ),
            ("*.v1.*", "ingresses.v1.networking.k8s.io", true),
            ("*.v2.*", "ingresses.v1.networking.k8s.io", false),
            ("pods, apicall:*", "apicall:1", true),
            ("*", "anything", true),
            ("a*a", "a", false),
            ("", "a", false),
        ] {
            let patterns_read = Patterns::new(&[patterns.to_owned()]);
            let held = patterns_read.hold(&ViewId::new(name));
            assert_eq!(held, expected, "{patterns} {name}");
        }
    }

    fn views() -> impl Iterator<Item = ViewId> {
        (0..3_000).map(|n| ViewId::new(format!("things-{n}.v1.example.com")))
    }

    /// Each view at as many as are asked for, and about as many views at each.
    #[test]
    fn views_are_divided_evenly() {
        let replicas = ["r-0", "r-1", "r-2"];
        let mut counts = BTreeMap::new();
        for view in views() {
            let owners = owners(&view, replicas, 2);
            assert_eq!(owners.len(), 2);
            assert_ne!(owners[0], owners[1]);
            for owner in owners {
                *counts.entry(owner).or_insert(0) += 1;
            }
        }
        for (replica, count) in &counts {
            assert!((1_800..2_200).contains(count), "{replica}: {count}");
        }
        assert_eq!(owners(&ViewId::new("v"), ["only"], 2), ["only"]);
    }

    /// The departure of a replica moves only the views of this replica.
    #[test]
    fn a_change_of_replicas_moves_as_little_as_possible() {
        for view in views() {
            let before = owners(&view, ["r-0", "r-1", "r-2", "r-3"], 2);
            let after = owners(&view, ["r-0", "r-2", "r-3"], 2);
            let kept = before.iter().filter(|owner| **owner != "r-1");
            for owner in kept {
                assert!(after.contains(owner), "{view}: {before:?}, {after:?}");
            }
        }
    }
}

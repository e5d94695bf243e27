//! The rule of eviction and return, case by case.

use super::*;

fn held(bytes: u64, used_at: u64) -> EvictableView {
    EvictableView {
        bytes,
        bytes_max: None,
        stays: false,
        tenant: None,
        used_at,
        tie: 0,
        phase: Phase::Held,
    }
}

fn of(tenant: &str, view: EvictableView) -> EvictableView {
    EvictableView {
        tenant: Some(tenant.into()),
        ..view
    }
}

fn pinned(bytes: u64) -> EvictableView {
    EvictableView {
        stays: true,
        ..held(bytes, 0)
    }
}

fn evicted(bytes: u64, used_at: u64, since: u64, why: EvictionReason) -> EvictableView {
    let phase = Phase::Evicted {
        since,
        why,
        times: 1,
    };
    EvictableView {
        phase,
        ..held(bytes, used_at)
    }
}

const NOW: u64 = 1_000_000;

/// The rule, case by case.
#[test]
fn views_are_evicted_by_their_use_size_and_limits() {
    let own = EvictableView {
        bytes_max: Some(10),
        ..held(11, 9)
    };
    let tied = |tie| EvictableView { tie, ..held(40, 5) };
    type Case = (
        &'static str,
        Vec<EvictableView>,
        Vec<(usize, EvictionReason)>,
        bool,
    );
    let cases: Vec<Case> = vec![
        ("all fit", vec![held(50, 1), held(50, 2)], vec![], false),
        (
            "the least recently used goes",
            vec![held(40, 3), held(40, 1), held(40, 2)],
            vec![(1, EvictionReason::Oldest)],
            false,
        ),
        (
            "as many as it takes",
            vec![held(45, 3), held(40, 1), held(40, 2), held(50, 4)],
            vec![(1, EvictionReason::Oldest), (2, EvictionReason::Oldest)],
            false,
        ),
        (
            "a huge one goes before older ones",
            vec![held(90, 9), held(10, 1), held(10, 2)],
            vec![(0, EvictionReason::Huge)],
            false,
        ),
        (
            "huge is more than half of what is left beside what stays",
            vec![pinned(60), held(25, 9), held(10, 1), held(10, 2)],
            vec![(1, EvictionReason::Huge)],
            false,
        ),
        (
            "pinned ones stay, and that is said",
            vec![pinned(70), pinned(40), held(10, 9)],
            vec![(2, EvictionReason::Huge)],
            true,
        ),
        (
            "one over its own limit goes alone",
            vec![own.clone(), held(10, 1)],
            vec![(0, EvictionReason::OwnLimit)],
            false,
        ),
        (
            "a pinned one does not go for its own limit",
            vec![EvictableView { stays: true, ..own }],
            vec![],
            false,
        ),
        (
            "a tie is told by each replica for itself",
            vec![tied(2), tied(1), tied(3)],
            vec![(1, EvictionReason::Oldest)],
            false,
        ),
    ];
    for (name, views, expected, over) in cases {
        let decision = decide(NOW, Some(100), &views);
        assert_eq!(decision.evict, expected, "{name}");
        assert_eq!(decision.over, over, "{name}");
        assert_eq!(decision.load, None, "{name}");
    }
}

#[test]
fn views_come_back_where_there_is_room() {
    let since = NOW - 100_000;
    let asked = NOW - 10;
    let rested = NOW - REST_MS;
    let coming = EvictableView {
        phase: Phase::Coming,
        ..held(1, 0)
    };
    let again = EvictableView {
        phase: Phase::Evicted {
            since: NOW - 3_999,
            why: EvictionReason::Oldest,
            times: 3,
        },
        ..held(10, 0)
    };
    let own = EvictableView {
        bytes_max: Some(10),
        ..evicted(20, asked, since, EvictionReason::OwnLimit)
    };
    let unasked = EvictableView {
        used_at: 0,
        ..own.clone()
    };
    let raised = EvictableView {
        bytes_max: Some(30),
        ..unasked.clone()
    };
    let gone = |bytes, used_at| evicted(bytes, used_at, since, EvictionReason::Oldest);
    type Case = (&'static str, Vec<EvictableView>, Option<usize>, Vec<usize>);
    let cases: Vec<Case> = vec![
        (
            "there is room",
            vec![held(50, 1), gone(40, 1)],
            Some(1),
            vec![],
        ),
        ("not quite", vec![held(51, 1), gone(40, 1)], None, vec![]),
        (
            "the most recently used first",
            vec![held(50, 1), gone(40, 1), gone(40, 2)],
            Some(2),
            vec![],
        ),
        (
            "one that was asked for before any other",
            vec![held(50, 1), gone(10, since), gone(40, asked)],
            Some(2),
            vec![],
        ),
        ("one at a time", vec![coming, gone(10, asked)], None, vec![]),
        (
            "older ones go for one that was asked for",
            vec![held(50, rested), held(40, rested - 1), gone(30, asked)],
            Some(2),
            vec![1],
        ),
        (
            "not those that were used lately",
            vec![held(50, rested + 1), held(40, rested + 1), gone(30, asked)],
            None,
            vec![],
        ),
        (
            "nor one that was used since the look began",
            vec![held(50, rested), held(40, NOW + 1), gone(60, NOW + 2)],
            None,
            vec![],
        ),
        (
            "not for one that nobody asked for",
            vec![held(50, 1), held(40, 1), gone(30, 2)],
            None,
            vec![],
        ),
        (
            "not for a huge one",
            vec![held(25, 1), held(25, 1), gone(60, asked)],
            None,
            vec![],
        ),
        (
            "one that goes and comes waits longer",
            vec![again],
            None,
            vec![],
        ),
        (
            "over its own limit, tried for who asks",
            vec![own],
            Some(0),
            vec![],
        ),
        ("and for nobody else", vec![unasked], None, vec![]),
        ("until that is raised", vec![raised], Some(0), vec![]),
    ];
    for (name, views, expected, evicted) in cases {
        let decision = decide(NOW, Some(100), &views);
        assert_eq!(decision.load, expected, "{name}");
        let went: Vec<_> = decision.evict.iter().map(|(at, _)| *at).collect();
        assert_eq!(went, evicted, "{name}");
    }
}

#[test]
fn tenants_views_are_evicted_for_the_clusters_and_by_the_bytes_of_their_namespace() {
    use EvictionReason::{Huge, Oldest};
    type Case = (
        &'static str,
        Vec<EvictableView>,
        Vec<(usize, EvictionReason)>,
    );
    let cases: Vec<Case> = vec![
        (
            "a tenant's view goes before a less recently used one of the cluster",
            vec![held(40, 1), of("a", held(40, 9)), held(40, 2)],
            vec![(1, Oldest)],
        ),
        (
            "the namespace that takes most gives its least recently used view",
            vec![
                of("a", held(40, 1)),
                of("b", held(25, 3)),
                of("b", held(25, 2)),
                held(20, 0),
            ],
            vec![(2, Oldest)],
        ),
        (
            "views of several namespaces count together",
            vec![
                of("", held(30, 9)),
                of("", held(31, 8)),
                of("a", held(40, 1)),
            ],
            vec![(1, Oldest)],
        ),
        (
            "a tenant's huge view goes before those of a namespace that takes more",
            vec![
                of("a", held(51, 9)),
                of("b", held(40, 1)),
                of("b", held(40, 2)),
            ],
            vec![(0, Huge)],
        ),
        (
            "a huge view of the cluster stays if the tenants' views make room",
            vec![held(90, 1), of("a", held(11, 9))],
            vec![(1, Oldest)],
        ),
        (
            "a tenant's view stays if the cluster's views do not fit without it",
            vec![held(40, 1), held(40, 2), held(40, 3), of("a", held(20, 0))],
            vec![(0, Oldest)],
        ),
        (
            "a tenant's view that is pinned stays",
            vec![of("a", pinned(60)), of("b", held(20, 2)), held(21, 1)],
            vec![(1, Oldest)],
        ),
    ];
    for (name, views, expected) in cases {
        let decision = decide(NOW, Some(100), &views);
        assert_eq!(decision.evict, expected, "{name}");
        assert!(!decision.over, "{name}");
    }
}

#[test]
fn tenants_views_come_back_in_the_place_of_no_view_of_the_cluster() {
    let (since, asked, rested) = (NOW - 100_000, NOW - 10, NOW - REST_MS);
    let gone = |bytes, used_at| evicted(bytes, used_at, since, EvictionReason::Oldest);
    type Case = (&'static str, Vec<EvictableView>, Option<usize>, Vec<usize>);
    let cases: Vec<Case> = vec![
        (
            "a tenant's view brings back nothing in place of one of the cluster",
            vec![held(80, 0), of("a", gone(20, asked))],
            None,
            vec![],
        ),
        (
            "one of the cluster comes back in place of a tenant's, used or not",
            vec![of("a", held(80, asked)), gone(20, 0)],
            Some(1),
            vec![0],
        ),
        (
            "not if it would not fit then",
            vec![of("a", held(20, 1)), held(70, asked), gone(30, asked)],
            None,
            vec![],
        ),
        (
            "one of the cluster comes first",
            vec![held(50, 1), of("a", gone(20, asked)), gone(20, 0)],
            Some(2),
            vec![],
        ),
        (
            "a namespace that takes more makes way, whenever it was used",
            vec![
                of("a", held(40, asked)),
                of("a", held(40, asked - 1)),
                of("b", gone(30, asked)),
            ],
            Some(2),
            vec![1],
        ),
        (
            "not for a view that nobody asked for",
            vec![of("a", held(80, 0)), of("b", gone(30, 0))],
            None,
            vec![],
        ),
        (
            "nor if the view would make its own namespace take as much",
            vec![
                of("a", held(70, asked)),
                of("b", held(20, asked)),
                of("b", gone(50, asked)),
            ],
            None,
            vec![],
        ),
        (
            "an older view makes way for a namespace that takes no more",
            vec![
                of("a", held(40, rested)),
                of("b", held(40, asked)),
                of("b", gone(30, asked)),
            ],
            Some(2),
            vec![0],
        ),
        (
            "and not for one that takes more",
            vec![
                of("a", held(39, rested)),
                of("b", held(40, asked)),
                of("b", gone(30, asked)),
            ],
            None,
            vec![],
        ),
    ];
    for (name, views, expected, victims) in cases {
        let decision = decide(NOW, Some(100), &views);
        assert_eq!(decision.load, expected, "{name}");
        let went: Vec<_> = decision.evict.iter().map(|(at, _)| *at).collect();
        assert_eq!(went, victims, "{name}");
    }
}

#[test]
fn without_a_limit_only_limits_of_their_own_hold() {
    let own = EvictableView {
        bytes_max: Some(1),
        ..held(2, 0)
    };
    let decision = decide(NOW, None, &[held(u64::MAX / 2, 0), own]);
    assert_eq!(decision.evict, [(1, EvictionReason::OwnLimit)]);
}

//! Structures within the parts of a limit, and the structure that goes where a part is full.

use super::*;

fn charge(limit: &Arc<ByteLimit>, view: &str, owner: &str, bytes: usize) -> Charge {
    let charge = Charge::new(Arc::clone(limit), &ViewId::new(view), owner);
    charge.set(bytes);
    charge
}

#[test]
fn a_namespace_has_a_quarter_of_the_bytes_and_the_cluster_has_the_rest() {
    let limit = ByteLimit::new(100);
    let left = |owner: &str, view: &str| limit.left(owner, &ViewId::new(view));
    assert_eq!((left("a", "v"), left("", "v")), (25, 100));
    let of_a = [charge(&limit, "v", "a", 20), charge(&limit, "w", "a", 5)];
    assert_eq!((of_a[0].left(), left("b", "v")), (0, 25));
    let others = [charge(&limit, "w", "b", 25), charge(&limit, "x", "c", 25)];
    assert_eq!(left("d", "y"), 0);
    // Namespaces would give way with 50.
    assert_eq!(left("", "y"), 75);

    of_a[0].move_to_cluster();
    assert_eq!((limit.taken(), left("a", "y")), (75, 20));
    drop((of_a, others));
    let taken = limit.taken.lock();
    assert_eq!((taken.all, taken.of_namespaces), (0, 0));
    assert!(taken.by_namespace.is_empty() && taken.by_view.is_empty() && taken.charges.is_empty());
}

#[test]
fn a_view_gives_way_to_others_beyond_half() {
    let limit = ByteLimit::new(100);
    let _held = charge(&limit, "v", "", 90);
    let left = |owner: &str, view: &str| limit.left(owner, &ViewId::new(view));
    assert_eq!([left("", "v"), left("", "w")], [10, 50]);
    assert_eq!([left("a", "v"), left("a", "w")], [10, 25]);
}

/// Views, owners and bytes of structures out of 100 bytes. One of them grows to so many bytes.
#[test]
fn the_largest_structure_of_a_full_part_goes_and_no_other() {
    type Held = &'static [(&'static str, &'static str, usize)];
    type Case = (&'static str, Held, (usize, usize), Option<usize>);
    let cases: [Case; 9] = [
        (
            "an index that fills the memory goes itself",
            &[("v", "", 30), ("w", "", 20), ("x", "", 49)],
            (2, 51),
            Some(2),
        ),
        (
            "it goes if a small one grows",
            &[("v", "", 40), ("w", "", 10), ("x", "", 45)],
            (1, 16),
            Some(2),
        ),
        (
            "a view may take more than half where there is room",
            &[("v", "", 60), ("v", "", 15), ("w", "", 20)],
            (1, 20),
            None,
        ),
        (
            "a view with more than half gives its largest",
            &[("v", "", 30), ("v", "", 25), ("w", "", 40)],
            (2, 46),
            Some(0),
        ),
        (
            "a namespace has a quarter",
            &[("v", "a", 15), ("w", "a", 9), ("x", "b", 25)],
            (1, 10),
            None,
        ),
        (
            "a namespace over its quarter gives its largest",
            &[("v", "a", 15), ("w", "a", 9), ("x", "b", 25)],
            (1, 11),
            Some(0),
        ),
        (
            "of all namespaces, the one that takes most gives its largest",
            &[
                ("v", "a", 20),
                ("w", "b", 25),
                ("x", "c", 15),
                ("y", "d", 15),
            ],
            (3, 16),
            Some(1),
        ),
        (
            "namespaces give way to the cluster beyond a quarter",
            &[("v", "a", 20), ("w", "b", 15), ("x", "", 50), ("y", "", 15)],
            (3, 16),
            Some(0),
        ),
        (
            "namespaces keep a quarter",
            &[("v", "a", 25), ("x", "", 40), ("y", "", 35)],
            (2, 36),
            Some(1),
        ),
    ];
    for (name, held, (grown, bytes), expected) in cases {
        let limit = ByteLimit::new(100);
        let charges = held.iter();
        let charges: Vec<_> = charges
            .map(|(view, owner, bytes)| charge(&limit, view, owner, *bytes))
            .collect();
        let refused = || {
            let charges = charges.iter().enumerate();
            let refused = charges.filter(|(_, charge)| charge.refusal().is_some());
            refused.map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert!(refused().is_empty(), "{name}");
        charges[grown].set(bytes);
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(refused(), expected, "{name}");
        let before = limit.taken();
        expected.iter().for_each(|at| charges[*at].set(1));
        assert_eq!(limit.taken(), before, "a refused one takes none: {name}");
    }
}

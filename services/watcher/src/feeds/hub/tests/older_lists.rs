//! Lists that were asked for before a view came, and begin afterwards: the view takes none that is older than what
//! it knows. The property found the last three cases.

use super::{
    Step::{Beside, Change, Move, Refer, Relist, Rewrite, Watch, Write},
    *,
};

fn settled(steps: &[Step]) -> World {
    let mut world = World::new();
    for step in steps {
        world.step(*step);
        world.check().unwrap();
    }
    world.settle().unwrap();
    world
}

/// The watch of all asks for its list, an object goes, and a view joins the watch with a younger list.
#[test]
fn a_view_that_joined_takes_no_list_older_than_its_own() {
    let world = settled(&[
        Refer(0),
        Change(2, Some(true)),
        // The first list, which has the object.
        Watch(0),
        Watch(0),
        Watch(0),
        Watch(0),
        Relist(0),
        // The second is asked for.
        Watch(0),
        Watch(0),
        Change(2, None),
        Move(0),
    ]);
    let served = world.views[0].reader.served.as_ref();
    assert_eq!(served.map(HashMap::len), Some(0));
}

/// The same while the view's own list is still read.
#[test]
fn a_view_that_joins_takes_no_list_older_than_what_it_knows() {
    settled(&[
        Move(0),
        Move(1),
        Move(0),
        Watch(0),
        Watch(2),
        Watch(0),
        Move(0),
        Change(3, None),
        Move(0),
        Watch(1),
        Change(0, Some(true)),
        Watch(0),
        Rewrite(1),
        Watch(1),
        Rewrite(0),
        Watch(1),
        Watch(0),
        Change(1, Some(false)),
        Watch(0),
        Change(0, None),
        Watch(1),
        Watch(1),
        Watch(1),
        Watch(1),
        Move(0),
        Change(0, None),
        Change(0, None),
        Change(0, None),
        Change(0, None),
        Refer(0),
    ]);
}

/// The same of a view whose objects are all written again.
#[test]
fn a_view_that_is_written_again_takes_no_list_older_than_what_it_knows() {
    settled(&[
        Refer(0),
        Watch(0),
        Move(1),
        Watch(2),
        Watch(0),
        Move(0),
        Change(3, Some(true)),
        Relist(0),
        Move(0),
        Watch(2),
        Watch(0),
        Watch(0),
        Move(1),
        Move(1),
        Watch(0),
        Watch(2),
        Watch(2),
        Watch(1),
        Watch(0),
        Watch(1),
        Watch(1),
        Watch(1),
        Change(3, None),
        Beside(0, false),
        Watch(1),
        Write,
        Move(0),
        Change(0, None),
        Change(0, None),
        Change(0, None),
        Rewrite(0),
    ]);
}

/// A view of two namespaces joins a watch, which is just asked to list. Of one namespace its own list is older than that
/// list, of the other it is younger.
#[test]
fn a_list_between_a_views_own_lists_is_not_the_last() {
    let world = settled(&[
        Move(0),
        Move(1),
        Refer(0),
        Watch(0),
        Move(1),
        Watch(0),
        Watch(3),
        Move(1),
        Relist(0),
        Change(3, Some(false)),
        Beside(0, false),
        Change(3, None),
        Watch(0),
        Watch(0),
        Change(0, None),
        Beside(0, false),
        Beside(0, false),
        Beside(0, false),
    ]);
    let served = world.views[1].reader.served.as_ref();
    assert_eq!(
        served.map(|served| served.contains_key(&key(3))),
        Some(false)
    );
}

/// A view lists again and has heard of a deletion, when it changes to a watch whose list was asked for before that.
#[test]
fn a_view_that_lists_again_takes_no_older_list_of_another_watch() {
    settled(&[
        // The first list of the labelled watch, which is the second of two.
        Watch(3),
        Move(1),
        Watch(1),
        Watch(1),
        Change(0, None),
        Change(2, Some(true)),
        Watch(1),
        // The watch of all asks for its list, which has the object.
        Watch(0),
        Change(2, None),
        Watch(1),
        Write,
        Watch(1),
        Relist(1),
        Write,
        Watch(1),
        Watch(1),
        Watch(1),
        Move(0),
    ]);
}

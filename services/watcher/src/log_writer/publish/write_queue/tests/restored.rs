//! Lists that contradict the known history of their source.

use super::*;

#[test]
fn a_list_shows_no_object_as_it_cannot_be_in_the_history_that_is_known() {
    let mut queue = WriteQueue::new(1);
    let known = HashMap::from([(key("early"), rv(3)), (key("late"), rv(9))]);
    let mut handle = queue.open(info("a"), known);
    // Everything was known up to version 10, and the list shows the source at 20.
    let cases = [
        ("early", 3, false, "as it is known"),
        ("early", 12, false, "it has changed since"),
        ("early", 2, true, "it was younger before"),
        ("early", 5, true, "this version would be known"),
        ("new", 11, false, "it was made since"),
        ("new", 7, true, "it would be known"),
    ];
    for (name, version, contradicts, why) in cases {
        let found = queue.contradicts(&handle, &key(name), &rv(version), &rv(10), &rv(20));
        assert_eq!(found, contradicts, "{name} at {version}: {why}");
    }
    let (late, version) = (&key("late"), &rv(4));
    let unknown = ResourceVersion::default();
    assert!(queue.contradicts(&handle, late, version, &unknown, &rv(9)));
    assert!(
        !queue.contradicts(&handle, late, version, &unknown, &rv(8)),
        "a list that was asked for before"
    );
    queue.reread(&mut handle);
    assert!(
        !queue.contradicts(&handle, late, version, &unknown, &rv(9)),
        "what was known counts no more"
    );
}

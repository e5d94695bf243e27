//! Parts in CEL.

use super::*;

/// A part in CEL of an entry goes to its view where that is an array. Anything else is read whole: an object that is not
/// there would be null in CEL, and is an error of the entry.
#[test]
fn a_part_of_an_entry_is_evaluated_by_a_view_that_is_an_array() {
    let of_shape = |name: &str, shape| {
        let binding = Binding {
            shape,
            ..Binding::whole(ViewId::new(name))
        };
        entry(EntryKind::Global, name, binding)
    };
    let catalog = catalog(&[
        of_shape("array", Shape::Array),
        of_shape("list", Shape::List),
        of_shape("object", Shape::Object),
        of_shape("response", Shape::Response),
    ]);
    let asked = |name: &str, projection: &str| {
        let subject = FactSubject::Entry {
            kind: EntryKind::Global,
            name: name.into(),
            projection: projection.into(),
        };
        let part = CelRequest {
            expression: "view.exists(x, x.a == p0)".to_owned(),
            variables: Vec::new(),
            failed: BTreeMap::new(),
            documents: BTreeMap::new(),
        };
        let need = FactRequest {
            is_pushed_down: true,
            cel: Some(Arc::new(part)),
            ..need(subject)
        };
        route(need, &by(None), &catalog).unwrap().backends
    };
    let backends = asked("array", "");
    let (Some(Backend::View(read)), 1) = (backends.front(), backends.len()) else {
        panic!("{backends:?}");
    };
    assert_eq!(read.view, ViewId::new("array"));
    let cel = read.query.cel.as_deref().map(|cel| &*cel.expression);
    assert_eq!(cel, Some("view.exists(x, x.a == p0)"));
    let selection = read.query.selection.as_ref().map(|of| of.shape);
    assert_eq!(selection, Some(Shape::Array));
    for (name, projection) in [
        ("array", "names"),
        ("list", ""),
        ("object", ""),
        ("response", ""),
    ] {
        assert!(asked(name, projection).is_empty(), "{name} {projection}");
    }
}

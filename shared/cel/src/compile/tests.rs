use crate::{Names, Program};

#[test]
fn the_result_type_of_an_expression_is_inferred() {
    for (source, can_be_bool, can_be_text, can_be_null) in [
        ("true", true, false, false),
        ("'a' + 'b'", false, true, false),
        ("object.spec", true, true, true),
        ("1 < 2 && object.a", true, false, false),
        ("size(object.a)", false, false, false),
        ("null", false, false, true),
        ("object.a ? 'x' : 'y'", false, true, false),
        ("object.a ? 'x' : null", true, true, true),
        ("request.operation", false, true, false),
        ("object.a.map(x, x)", false, false, false),
        ("[object.a].min()", true, true, true),
    ] {
        let program = Program::compile(source, &Names::default()).unwrap();
        let found = (
            program.can_be_bool(),
            program.can_be_text(),
            program.can_be_null(),
        );
        assert_eq!(found, (can_be_bool, can_be_text, can_be_null), "{source}");
    }
}

#[test]
fn the_types_of_variables_are_known_too() {
    let mut names = Names::default();
    let text = Program::compile("'a'", &names).unwrap();
    names.define("text", &text);
    assert!(names.is_defined("text") && !names.is_defined("other"));
    assert!(Program::compile("variables.text + 1 == 2", &names).is_err());
    assert!(Program::compile("has(variables.text) && variables.text == 'a'", &names).is_ok());
}

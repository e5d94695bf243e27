//! A null in a list is compared as the text `<nil>`, in the object and in the request.

use std::collections::{BTreeMap, HashMap};

use anteroom_jmespath::Expression;
use anteroom_model::Shape;
use anteroom_wire::query::Selection;
use serde_json::json;

use crate::{
    question::Question,
    world::{Step, World},
};

#[test]
fn a_null_in_a_list_is_found_by_its_text_as_in_a_scan() {
    let mut world = World::new("apps");
    for (name, element) in (0..).zip([json!(null), json!("<nil>"), json!("null"), json!("x")]) {
        world.step(Step {
            key: (0, name),
            object: Some(json!({"list": [element], "n": name})),
        });
    }
    let state = world.states.last().unwrap();
    let text = "items[?any_in($keys, list)].n";
    let expression = Expression::parse(text).unwrap();
    for (key, objects) in [
        (json!(null), 2),
        (json!("<nil>"), 2),
        (json!("<n*"), 2),
        (json!("*l>"), 2),
        (json!("?nil*"), 2),
        (json!("null"), 1),
        (json!("nul?"), 1),
    ] {
        let question = Question {
            expression: text.to_owned(),
            parameters: BTreeMap::from([("keys".into(), json!([key]))]),
            missing_key_is_error: false,
            selection: Selection {
                shape: Shape::List,
                ..Selection::default()
            },
            way: 0,
        };
        let found = question.looked_up(&expression, state, &mut HashMap::new());
        let found = found.unwrap();
        assert_eq!(found.objects, objects, "{key}");
        assert_eq!(found.value, question.scanned(&expression, state), "{key}");
    }
}

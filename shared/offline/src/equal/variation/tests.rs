use super::*;
use crate::equal::{guide::Guide, vocabulary::Vocabulary};

fn titles(policy: &Value, object: &Value, rank: Rank, is_invalid: bool) -> Vec<String> {
    let mut vocabulary = Vocabulary::default();
    vocabulary.add(policy);
    let changes = Guide::new(&vocabulary).changes(object, false);
    let changes = changes
        .iter()
        .filter(|one| one.rank == rank && one.is_invalid == is_invalid);
    changes.map(Variation::title).collect()
}

#[test]
fn every_path_is_removed_emptied_mistyped_and_given_each_literal() {
    let policy =
        json!({"spec": {"rules": [{"validate": {"pattern": {"spec": {"replicas": ">1"}}}}]}});
    let object = json!({"kind": "Deployment", "spec": {"replicas": 1}});
    assert_eq!(
        titles(&policy, &object, Rank::Shape, false),
        ["without spec.replicas"]
    );
    let invalid = titles(&policy, &object, Rank::Shape, true);
    let expected = [
        "without spec",
        "spec = null",
        "spec = {}",
        "spec = \"x\"",
        "spec.replicas = null",
        "spec.replicas = \"x\"",
    ];
    assert_eq!(invalid, expected);
    let near = titles(&policy, &object, Rank::Near, false);
    assert_eq!(
        near,
        [
            "spec.replicas = 1",
            "spec.replicas = 0",
            "spec.replicas = 2"
        ]
    );
}

#[test]
fn lists_are_varied_in_length_and_in_one_element() {
    let policy =
        json!({"spec": {"validations": [{"expression": "object.spec.c.all(x, x.image != 'a')"}]}});
    let object = json!({"spec": {"c": [{"name": "n", "image": "b"}]}});
    let shapes = titles(&policy, &object, Rank::Shape, false);
    let second = r#"{"image":"b","name":"n-2"}"#;
    for expected in [
        "spec.c = []".to_owned(),
        format!(r#"spec.c = [{{"image":"b","name":"n"}},{second}]"#),
        format!("spec.c[1] = {second}, without spec.c[1].image"),
    ] {
        assert!(shapes.contains(&expected), "{expected}: {shapes:#?}");
    }
    let near = titles(&policy, &object, Rank::Near, false);
    for expected in ["\"a\"", "\"ax\"", "\"xa\"", "\"ba\"", "\"ab\""] {
        let expected = format!("spec.c[0].image = {expected}");
        assert!(near.contains(&expected), "{expected}: {near:#?}");
    }
}

#[test]
fn keys_of_maps_are_those_that_policies_mention() {
    let policy = json!({"spec": {"validations": [
        {"expression": "!object.metadata.annotations.exists(k, k.startsWith('a.io/'))"},
    ]}});
    let object = json!({"metadata": {"annotations": {"b": "c"}}});
    let near = titles(&policy, &object, Rank::Near, false);
    assert!(
        near.contains(&"metadata.annotations[\"a.io/x\"] = \"x\"".to_owned()),
        "{near:?}"
    );
}

use super::*;

fn collection(group: Option<&str>, resource: &str) -> Reference {
    Reference::Collection(CollectionReference {
        group: group.map(str::to_owned),
        resource: resource.into(),
        ..CollectionReference::default()
    })
}

/// What one policy was allowed to read is found by no other.
#[test]
fn what_may_be_secrets_is_named_for_each_policy() {
    let policies = [
        ObjectKey::new("", "p"),
        ObjectKey::new("", "q"),
        ObjectKey::new("a", "p"),
    ];
    let object = Reference::Object(NamedObject {
        version: "v1".into(),
        resource: "secrets".into(),
        namespace: "a".into(),
        name: "s".into(),
        ..NamedObject::default()
    });
    let secrets = [
        collection(None, "Secret"),
        collection(Some(""), "secrets"),
        collection(Some(" core "), "secret"),
        object,
    ];
    let mut names = std::collections::BTreeSet::new();
    for reference in &secrets {
        assert!(reference.may_be_secrets());
        for policy in &policies {
            let name = reference.name_for(policy);
            assert_ne!(name, reference.name());
            names.insert(name);
        }
    }
    assert_eq!(names.len(), secrets.len() * policies.len());
    for shared in [
        collection(Some(""), "pods"),
        collection(None, "SecretStore"),
        Reference::LabelledConfigMaps,
    ] {
        assert_eq!(shared.name_for(&policies[0]), shared.name());
    }
}

use super::*;

fn collection(group: Option<&str>, resource: &str) -> Reference {
    Reference::Collection(CollectionReference {
        group: group.map(str::to_owned),
        resource: resource.into(),
        ..CollectionReference::default()
    })
}

/// No policy finds data that only a different policy was allowed to read.
#[test]
fn a_reference_to_secrets_is_named_per_policy() {
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

/// A name is a key of the log: what a policy's author writes never makes one that cannot be written.
#[test]
fn a_long_reference_name_is_cut_and_stays_unique() {
    let selecting = |selector: &str| {
        Reference::Collection(CollectionReference {
            resource: "pods".into(),
            label_selector: selector.into(),
            ..CollectionReference::default()
        })
    };
    let rest = selecting("").name().len();
    let edge = "=".repeat(REFERENCE_NAME_BYTES_MAX - rest);
    assert_eq!(selecting(&edge).name(), format!("*/*/pods/?{edge}&"));
    let long = |last: &str| selecting(&format!("{edge}{last}"));
    let names = [long("a"), long("b"), long(&"ä".repeat(2_000))].map(|of| of.name());
    for (at, name) in names.iter().enumerate() {
        assert!(
            name.len() > REFERENCE_NAME_BYTES_MAX,
            "as no name that is whole"
        );
        assert!(!names[at + 1..].contains(name));
        // Escaped for the log, a byte may become three.
        assert!(3 * name.len() < 3_500, "{}", name.len());
    }
    assert_eq!(names[0], long("a").name(), "the same for every reader");
    assert_eq!(long("a").name_for(&ObjectKey::new("", "p")), names[0]);
    let secrets = Reference::Collection(CollectionReference {
        resource: "secrets".into(),
        label_selector: edge,
        ..CollectionReference::default()
    });
    let of = |policy: &str| secrets.name_for(&ObjectKey::new("", policy));
    assert_ne!(of("p"), of("q"), "cut, too, for each policy");
}

#[test]
fn a_target_shows_no_query_and_no_user() {
    let service = |url: &str| FactSubject::Service {
        url: url.to_owned(),
        data: None,
    };
    let api = |path: &str| {
        FactSubject::Api(ResolvedApiCall {
            path: path.to_owned(),
            data: None,
            by_view: None,
        })
    };
    for (subject, shown) in [
        (service("http://s/?key=abc"), "http://s/"),
        (service("http://s?key=abc"), "http://s"),
        (
            service("https://u:abc@s:8443/a/b?k=/@x#f"),
            "https://s:8443/a/b",
        ),
        (service("https://s/a@b"), "https://s/a@b"),
        (api("/api/v1/pods?fieldSelector=abc"), "/api/v1/pods"),
        (api("/api/v1/pods"), "/api/v1/pods"),
    ] {
        assert_eq!(subject.to_string(), shown);
    }
}

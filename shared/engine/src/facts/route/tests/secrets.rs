//! The readers of Secrets, and the views that they may read.

use super::*;

fn secret_binding(view: &str) -> Binding {
    Binding {
        secret: true,
        ..Binding::whole(ViewId::new(view))
    }
}

/// A Secret by its path, an inline entry on one, and on all of them, as a policy may spell them.
fn secrets() -> Vec<(Reference, FactSubject)> {
    let object = |declared, resource: &str| {
        let reference = Reference::Object(NamedObject {
            version: "v1".into(),
            resource: resource.into(),
            namespace: "own".into(),
            name: "p".into(),
            declared,
            ..NamedObject::default()
        });
        let subject = api(Some(ViewBackedRead {
            object: Some(ObjectKey::new("own", "p")),
            ..kept(reference.clone())
        }));
        (reference, subject)
    };
    let collection = |group: Option<&str>, resource: &str| {
        let collection = CollectionReference {
            group: group.map(str::to_owned),
            resource: resource.into(),
            ..pods(true)
        };
        let subject = FactSubject::Collection(collection.clone());
        (Reference::Collection(collection), subject)
    };
    let (call, _) = collection(Some(""), "secrets");
    let of_call = api(Some(kept(call.clone())));
    vec![
        object(true, "secrets"),
        object(false, "secrets"),
        object(true, "secret"),
        collection(None, "Secret"),
        collection(Some(" core"), "secrets"),
        collection(Some(""), "secret"),
        (call, of_call),
    ]
}

/// A view that is kept for a policy that may read Secrets is read by no other policy, whatever
/// other views the log has of them.
#[test]
fn views_of_secrets_are_found_by_the_policy_that_they_are_kept_for_alone() {
    let allowed = ObjectKey::new("", "allowed");
    for (reference, subject) in secrets() {
        let text = format!("{subject:?}");
        let own = entry(
            EntryKind::Implicit,
            &reference.name_for(&allowed),
            secret_binding("mine"),
        );
        // The same reference, under the name that it has for all readers.
        let shared = entry(
            EntryKind::Implicit,
            &reference.name(),
            secret_binding("all"),
        );
        let refused = EntryRecord {
            state: EntryState::Invalid {
                failure: Failure::new(SECRETS_FORBIDDEN, "AR115"),
            },
            ..entry(
                EntryKind::Implicit,
                &reference.name_for(&ObjectKey::new("", "refused")),
                secret_binding("none"),
            )
        };
        let catalog = catalog(&[own, shared, refused]);
        let way = |policy: &str| {
            let reader = RuleRef {
                policy: ObjectKey::new("", policy),
                rule: "r".into(),
            };
            Ok(route(need(subject.clone()), &reader, &catalog)?.backends)
        };
        let found: Result<_, FactError> = way("allowed");
        match &found.unwrap()[0] {
            Backend::View(read) => {
                assert!(read.secret && read.view == ViewId::new("mine"), "{text}");
            }
            Backend::Live(_) => panic!("{text}"),
        }
        for (other, code) in [("attacker", "AR103"), ("refused", "AR115")] {
            match way(other) {
                Ok(found) => assert!(
                    found
                        .iter()
                        .all(|backend| matches!(backend, Backend::Live(_))),
                    "a live read is allowed by the watcher: {text}"
                ),
                Err(error) => assert_eq!(error.code().as_str(), code, "{text}"),
            }
        }
    }
    // Whatever an entry that is shared is said to hold.
    let odd = entry(
        EntryKind::Implicit,
        &Reference::Collection(pods(true)).name(),
        secret_binding("s"),
    );
    let error = backends(FactSubject::Collection(pods(true)), None, &catalog(&[odd])).unwrap_err();
    assert_eq!(error.code().as_str(), "AR115");
}

/// An entry on Secrets is a `ClusterPolicy`'s to read.
#[test]
fn a_namespaced_policy_reads_no_entry_on_secrets() {
    let binding = Binding {
        namespace: "own".into(),
        ..secret_binding("s")
    };
    let catalog = catalog(&[entry(EntryKind::Cached, "e", binding)]);
    let subject = || FactSubject::Entry {
        kind: EntryKind::Cached,
        name: "e".into(),
        projection: String::new(),
    };
    assert!(backends(subject(), None, &catalog).is_ok());
    let error = backends(subject(), Some("own"), &catalog).unwrap_err();
    assert_eq!(error.code().as_str(), "AR115");
}

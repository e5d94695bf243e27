//! The quotas of namespaces: which views and objects count, by those that need them.

use super::*;

fn needs(uid: &str, in_quota: bool, reference: &Reference) -> Event {
    let references = vec![Referred::by(&ObjectKey::new("", uid), reference)];
    let needed = Needed {
        references,
        in_quota,
    };
    Event::Policy(Dependent(uid.into()), needed)
}

#[test]
fn a_view_is_in_the_quota_of_its_namespace_while_only_policies_of_it_read_it() {
    let pods = collection("pods", false);
    let needs = |uid: &str, in_quota| needs(uid, in_quota, &pods);
    let leaves = |uid: &str| Event::PolicyGone(Dependent(uid.into()));
    let mut registry = Registry::default();
    let mut told = |event| {
        let effects = settle(&mut registry, event);
        effects.into_iter().find_map(|effect| match effect {
            RegistryEffect::OpenView(desired) => Some(desired.options.in_quota),
            _ => None,
        })
    };
    assert_eq!(told(needs("tenant", true)), Some(true));
    assert_eq!(told(needs("neighbour", true)), None, "nothing changes");
    assert_eq!(told(needs("cluster", false)), Some(false));
    assert_eq!(told(leaves("neighbour")), None);
    assert_eq!(told(leaves("cluster")), Some(true));
    assert_eq!(told(claim("entry", "1", 1, found("pods"))), Some(false));
    assert_eq!(told(gone("entry")), Some(true));
}

#[test]
fn an_object_counts_in_the_quota_of_its_namespace_while_only_policies_of_namespaces_refer_to_it() {
    let leaves = |uid: &str| Event::PolicyGone(Dependent(uid.into()));
    let mut registry = Registry::default();
    let mut told = |event| {
        let effects = settle(&mut registry, event).into_iter();
        let of_objects = effects.filter_map(|effect| match effect {
            RegistryEffect::Refer(reference) => Some(Some(reference.in_quota)),
            RegistryEffect::Unrefer(_) => Some(None),
            _ => None,
        });
        of_objects.collect::<Vec<_>>()
    };
    let object = object("a");
    assert_eq!(told(needs("tenant", true, &object)), [Some(true)]);
    assert_eq!(told(needs("neighbour", true, &object)), []);
    assert_eq!(told(needs("cluster", false, &object)), [Some(false)]);
    assert_eq!(told(leaves("neighbour")), []);
    assert_eq!(told(leaves("cluster")), [Some(true)]);
    let Resolution::Found(entry) = meaning(&object) else {
        panic!("an object");
    };
    let entry = claim("entry", "1", 1, Resolution::Found(entry));
    assert_eq!(told(entry), [Some(false)]);
    assert_eq!(told(leaves("tenant")), []);
    assert_eq!(told(gone("entry")), [None]);
}

/// A policy of the cluster reads single labelled ConfigMaps too, and an entry needs all of them.
#[test]
fn namespaces_are_limited_in_a_view_until_somebody_needs_it_whole() {
    let mut registry = Registry::default();
    let mut told = |event| {
        let effects = settle(&mut registry, event);
        effects.into_iter().find_map(|effect| match effect {
            RegistryEffect::OpenView(desired) => Some(desired.options.namespaces_limited),
            _ => None,
        })
    };
    let pods = collection("pods", false);
    assert_eq!(told(needs("tenant", true, &pods)), Some(true));
    assert_eq!(told(needs("cluster", false, &pods)), Some(false));
    let labelled = Reference::LabelledConfigMaps;
    assert_eq!(told(needs("cluster", false, &labelled)), Some(true));
    assert_eq!(told(claim("entry", "1", 1, found("labelled"))), Some(false));
    assert_eq!(told(gone("entry")), Some(true));
}

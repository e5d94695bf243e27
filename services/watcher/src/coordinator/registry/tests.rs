mod quotas;

use std::collections::{BTreeMap, BTreeSet};

use anteroom_model::{Collection, Failure, GroupVersionResource, ObjectKey, Source, system};
use anteroom_policy::{CollectionReference, NamedObject};
use anteroom_wire::subject::check_object;
use proptest::prelude::*;

use super::*;

fn info(resource: &str) -> SourceInfo {
    SourceInfo {
        source: Source::Collection(Collection::all(GroupVersionResource::new(
            "", "v1", resource,
        ))),
        kind: resource.into(),
        namespaced: true,
    }
}

fn claim(name: &str, uid: &str, generation: i64, resolution: Resolution) -> Event {
    Event::Entry(Box::new(Claim {
        kind: EntryKind::Cached,
        name: name.into(),
        uid: uid.into(),
        generation,
        resolution,
        given_up: None,
    }))
}

fn gone(name: &str) -> Event {
    Event::EntryGone((EntryKind::Cached, name.into()))
}

fn found(resource: &str) -> Resolution {
    Resolution::Found(Box::new(Resolved::whole(info(resource))))
}

fn failure() -> Failure {
    Failure::new("ResourceNotFound", "no such resource")
}

fn kinds(effects: &[RegistryEffect]) -> Vec<&'static str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            RegistryEffect::OpenView(_) => Some("start"),
            RegistryEffect::CloseView(_) => Some("stop"),
            RegistryEffect::Call(..) => Some("call"),
            RegistryEffect::EndCall(_) => Some("end call"),
            RegistryEffect::Refer(_) => Some("refer"),
            RegistryEffect::Unrefer(_) => Some("unrefer"),
            RegistryEffect::Publish(_) => Some("publish"),
            RegistryEffect::Remove(_) => Some("remove"),
            RegistryEffect::Resolve(_) => Some("resolve"),
            RegistryEffect::Changed(_) => None,
        })
        .collect()
}

#[test]
fn two_entries_on_one_source_are_one_view_and_the_last_frees_it() {
    let mut registry = Registry::default();
    assert_eq!(
        kinds(&registry.apply(claim("a", "1", 1, found("pods")))),
        ["start", "publish"]
    );
    assert_eq!(
        kinds(&registry.apply(claim("b", "2", 1, found("pods")))),
        ["publish"]
    );
    assert_eq!(kinds(&registry.apply(gone("a"))), ["remove"]);
    assert_eq!(kinds(&registry.apply(gone("b"))), ["remove", "stop"]);
    assert!(kinds(&registry.apply(gone("b"))).is_empty());
}

#[test]
fn a_repeated_event_has_no_effect() {
    let mut registry = Registry::default();
    registry.apply(claim("a", "1", 1, found("pods")));
    assert!(registry.apply(claim("a", "1", 1, found("pods"))).is_empty());
}

#[test]
fn a_changed_source_starts_the_new_before_it_stops_the_old() {
    let mut registry = Registry::default();
    registry.apply(claim("a", "1", 1, found("pods")));
    let effects = registry.apply(claim("a", "1", 2, found("nodes")));
    assert_eq!(kinds(&effects), ["start", "publish", "stop"]);
}

#[test]
fn a_recreated_entry_keeps_the_watch() {
    let mut registry = Registry::default();
    registry.apply(claim("a", "1", 1, found("pods")));
    assert_eq!(
        kinds(&registry.apply(claim("a", "2", 1, found("pods")))),
        ["publish"]
    );
    assert_eq!(kinds(&registry.apply(gone("a"))), ["remove", "stop"]);
}

#[test]
fn an_invalid_entry_lets_go_and_comes_back() {
    let mut registry = Registry::default();
    registry.apply(claim("a", "1", 1, found("pods")));
    let invalid = claim("a", "1", 1, Resolution::Invalid(failure()));
    assert_eq!(kinds(&registry.apply(invalid)), ["publish", "stop"]);
    assert_eq!(
        kinds(&registry.apply(claim("a", "1", 1, found("pods")))),
        ["start", "publish"]
    );
}

#[test]
fn an_api_group_that_does_not_answer_takes_nothing_away() {
    let mut registry = Registry::default();
    registry.apply(claim("a", "1", 1, found("pods")));
    let unknown = |generation| claim("a", "1", generation, Resolution::Unknown(failure()));
    assert!(
        registry.apply(unknown(1)).is_empty(),
        "the same spec keeps its view"
    );
    assert_eq!(
        kinds(&registry.apply(unknown(2))),
        ["publish", "stop"],
        "another spec is not known"
    );
}

/// The naive model: all entries as they are, and from them the set of wanted views.
#[derive(Default)]
struct Model(BTreeMap<String, Option<String>>);

impl Model {
    fn views(&self) -> BTreeSet<ViewId> {
        self.0
            .values()
            .flatten()
            .map(|resource| info(resource).source.view_id())
            .collect()
    }
}

proptest! {
    #[test]
    fn open_views_are_always_the_distinct_sources(
        steps in proptest::collection::vec((0..4_u8, 0..3_u8, 0..5_u8, 0..2_u8), 1..60)
    ) {
        let mut registry = Registry::default();
        let mut model = Model::default();
        let mut running = BTreeSet::new();
        for (generation, (entry, resource, what, uid)) in steps.into_iter().enumerate() {
            let name = format!("e{entry}");
            let event = match what {
                0 => {
                    model.0.remove(&name);
                    gone(&name)
                }
                1 => {
                    model.0.insert(name.clone(), None);
                    claim(&name, &format!("{name}-{uid}"), generation as i64, Resolution::Invalid(failure()))
                }
                _ => {
                    let resource = format!("r{resource}");
                    model.0.insert(name.clone(), Some(resource.clone()));
                    claim(&name, &format!("{name}-{uid}"), generation as i64, found(&resource))
                }
            };
            for effect in registry.apply(event) {
                match effect {
                    RegistryEffect::OpenView(wanted) => prop_assert!(running.insert(wanted.info.source.view_id()), "started twice"),
                    RegistryEffect::CloseView(view) => prop_assert!(running.remove(&view), "stopped, never started"),
                    _ => {}
                }
            }
            prop_assert_eq!(&running, &model.views());
            prop_assert_eq!(
                registry.entries().map(|e| e.name.clone()).collect::<Vec<_>>(),
                model.0.keys().cloned().collect::<Vec<_>>()
            );
        }
    }
}

fn policy(uid: &str, references: &[Reference]) -> Event {
    let own = ObjectKey::new("", uid);
    let references = references.iter().map(|r| Referred::by(&own, r));
    let needed = Needed {
        references: references.collect(),
        in_quota: false,
    };
    Event::Policy(Dependent(uid.into()), needed)
}

fn collection(resource: &str, declared: bool) -> Reference {
    Reference::Collection(CollectionReference {
        resource: resource.into(),
        declared,
        ..CollectionReference::default()
    })
}

fn object(name: &str) -> Reference {
    Reference::Object(NamedObject {
        version: "v1".into(),
        resource: "configmaps".into(),
        namespace: "a".into(),
        name: name.into(),
        ..NamedObject::default()
    })
}

/// Acts as the coordinator: resolves references until no effect is left to handle.
fn settle(registry: &mut Registry, event: Event) -> Vec<RegistryEffect> {
    let mut all = Vec::new();
    let mut next = registry.apply(event);
    while !next.is_empty() {
        let mut then = Vec::new();
        for effect in next {
            if let RegistryEffect::Resolve(reference) = &effect {
                let meaning = meaning(&reference.reference);
                let event = Event::Reference(reference.name.clone(), meaning);
                then.extend(registry.apply(event));
            } else {
                all.push(effect);
            }
        }
        next = then;
    }
    all
}

fn meaning(reference: &Reference) -> Resolution {
    match reference {
        Reference::Collection(collection) => found(&collection.resource),
        Reference::LabelledConfigMaps => {
            let mut resolved = Resolved::whole(info("labelled"));
            resolved.options.namespaces_limited = true;
            Resolution::Found(Box::new(resolved))
        }
        Reference::Object(named) => {
            let gvr = GroupVersionResource::new("", "v1", named.resource.as_str());
            let key = ObjectKey::new(named.namespace.as_str(), named.name.as_str());
            let mut resolved = Resolved::whole(SourceInfo {
                source: Source::Objects { gvr: gvr.clone() },
                kind: "ConfigMap".into(),
                namespaced: true,
            });
            resolved.object = Some(ObjectReference {
                gvr,
                object: key,
                in_quota: false,
            });
            Resolution::Found(Box::new(resolved))
        }
    }
}

#[test]
fn implicit_entries_come_and_go_with_the_policies_that_need_them() {
    let mut registry = Registry::default();
    let pods = collection("pods", false);
    assert_eq!(
        kinds(&settle(
            &mut registry,
            policy("1", std::slice::from_ref(&pods))
        )),
        ["start", "publish"]
    );
    assert!(
        kinds(&settle(
            &mut registry,
            policy("2", std::slice::from_ref(&pods))
        ))
        .is_empty()
    );
    assert!(
        kinds(&settle(
            &mut registry,
            policy("1", std::slice::from_ref(&pods))
        ))
        .is_empty()
    );
    let id = (EntryKind::Implicit, pods.name());
    assert_eq!(registry.dependents(&id).count(), 2);
    let first = Event::PolicyGone(Dependent("1".into()));
    assert!(kinds(&settle(&mut registry, first)).is_empty());
    assert_eq!(
        kinds(&settle(&mut registry, policy("2", &[]))),
        ["remove", "stop"]
    );
    assert!(registry.entry(&id).is_none() && registry.views().next().is_none());
}

/// A record too large for the log would keep every entry from its readers.
#[test]
fn an_entry_of_a_very_long_reference_can_be_written() {
    let mut registry = Registry::default();
    let Reference::Collection(mut long) = collection("pods", true) else {
        panic!("a collection");
    };
    long.label_selector = format!("app in ({})", "a,".repeat(1_500));
    let mut published = Vec::new();
    for (name, reference) in [
        ("long", Reference::Collection(long)),
        ("short", collection("pods", true)),
    ] {
        for effect in settle(&mut registry, policy(name, &[reference])) {
            if let RegistryEffect::Publish(record) = effect {
                published.push(record.kind.key(&record.name));
            }
        }
    }
    assert_eq!(published.len(), 2);
    for key in published {
        assert_eq!(check_object(&system::entries(), &key), Ok(()));
    }
}

#[test]
fn an_entry_and_a_policy_share_a_view_until_both_are_gone() {
    let mut registry = Registry::default();
    registry.apply(claim("a", "1", 1, found("pods")));
    let pods = [collection("pods", true)];
    assert_eq!(
        kinds(&settle(&mut registry, policy("p", &pods))),
        ["publish"]
    );
    assert_eq!(kinds(&registry.apply(gone("a"))), ["remove"]);
    let last = Event::PolicyGone(Dependent("p".into()));
    assert_eq!(kinds(&settle(&mut registry, last)), ["remove", "stop"]);
}

#[test]
fn a_policy_that_reads_something_else_lets_go_of_what_it_read() {
    let mut registry = Registry::default();
    settle(&mut registry, policy("p", &[collection("pods", false)]));
    let effects = settle(&mut registry, policy("p", &[collection("nodes", false)]));
    let mut kinds = kinds(&effects);
    kinds.sort_unstable();
    assert_eq!(kinds, ["publish", "remove", "start", "stop"]);
}

#[test]
fn a_reference_that_is_declared_later_is_resolved_again() {
    let mut registry = Registry::default();
    let undeclared = policy("p", &[collection("pods", false)]);
    registry.apply(undeclared);
    let nothing = Event::Reference(collection("pods", false).name(), Resolution::Nothing);
    assert!(
        kinds(&registry.apply(nothing)).is_empty(),
        "nothing is kept"
    );
    let declared = registry.apply(policy("q", &[collection("pods", true)]));
    assert_eq!(kinds(&declared), ["resolve"]);
    let name = collection("pods", true).name();
    let invalid = Event::Reference(name, Resolution::Invalid(failure()));
    assert_eq!(kinds(&registry.apply(invalid)), ["publish"]);
}

#[test]
fn the_first_reference_to_an_object_starts_and_the_last_one_stops() {
    let mut registry = Registry::default();
    assert_eq!(
        kinds(&settle(&mut registry, policy("1", &[object("x")]))),
        ["start", "refer"]
    );
    let both = [object("x"), object("y")];
    assert_eq!(kinds(&settle(&mut registry, policy("2", &both))), ["refer"]);
    assert!(kinds(&settle(&mut registry, policy("1", &[]))).is_empty());
    assert_eq!(
        kinds(&settle(&mut registry, policy("2", &[object("y")]))),
        ["unrefer"]
    );
    let last = Event::PolicyGone(Dependent("2".into()));
    assert_eq!(kinds(&settle(&mut registry, last)), ["unrefer", "stop"]);
}

/// Counted in effects, of which each is a bounded amount of work.
#[test]
fn a_hundred_thousand_references_cost_one_effect_each() {
    const POLICIES: usize = 1_000;
    const EACH: usize = 100;
    let mut registry = Registry::default();
    let of = |n: usize| -> Vec<_> { (0..EACH).map(|m| object(&format!("o{n}-{m}"))).collect() };
    let mut refers = 0;
    for n in 0..POLICIES {
        let effects = settle(&mut registry, policy(&n.to_string(), &of(n)));
        assert!(effects.len() <= 2 * EACH + 1);
        refers += kinds(&effects)
            .iter()
            .filter(|kind| **kind == "refer")
            .count();
    }
    assert_eq!(refers, POLICIES * EACH);
    assert_eq!(
        registry.views().count(),
        1,
        "one view, whatever their number"
    );
    let again = settle(&mut registry, policy("7", &of(7)));
    assert!(again.is_empty(), "nothing changed");
    let one_less = settle(&mut registry, policy("7", &of(7)[1..]));
    assert_eq!(kinds(&one_less), ["unrefer"]);
}

fn stopping() -> Resolution {
    let Resolution::Found(mut found) = found("pods") else {
        unreachable!()
    };
    found.options.stops_when_forbidden = true;
    Resolution::Found(found)
}

#[test]
fn an_entry_that_stops_when_forbidden_holds_the_error_until_its_spec_changes() {
    let mut registry = Registry::default();
    registry.apply(claim("stops", "1", 1, stopping()));
    registry.apply(claim("retries", "2", 1, found("pods")));
    let view = info("pods").source.view_id();
    let no = Failure::new("Forbidden", "no");
    let forbidden = Event::Forbidden(view.clone(), no.clone());
    assert_eq!(kinds(&registry.apply(forbidden.clone())), ["publish"]);
    assert_eq!(registry.on_view(&view).count(), 1, "the other stays");
    let id = (EntryKind::Cached, "stops".to_owned());
    assert!(registry.entry(&id).unwrap().binding().is_err());
    // The served resources changed: the same generation is resolved again.
    assert!(
        registry
            .apply(claim("stops", "1", 1, stopping()))
            .is_empty()
    );
    assert!(kinds(&registry.apply(forbidden)).is_empty());
    assert_eq!(kinds(&registry.apply(gone("retries"))), ["remove", "stop"]);
    let renewed = registry.apply(claim("stops", "1", 2, stopping()));
    assert_eq!(kinds(&renewed), ["start", "publish"]);
    // A new coordinator learns from the status that the entry was given up.
    let mut registry = Registry::default();
    let Event::Entry(mut taken_over) = claim("stops", "1", 1, stopping()) else {
        unreachable!()
    };
    taken_over.given_up = Some(no);
    assert_eq!(
        kinds(&registry.apply(Event::Entry(taken_over))),
        ["publish"]
    );
    assert!(registry.entry(&id).unwrap().binding().is_err());
}

/// The coordinator knows at once that the view is forbidden only if further entries share the view.
#[test]
fn an_entry_that_stops_knows_the_view_that_it_joins() {
    let mut registry = Registry::default();
    let stops = (EntryKind::Cached, "stops".to_owned());
    let retries = (EntryKind::Cached, "retries".to_owned());
    registry.apply(claim("stops", "1", 1, stopping()));
    assert_eq!(registry.joined_and_stops(&stops), None, "it is alone");
    registry.apply(claim("retries", "2", 1, found("pods")));
    let view = info("pods").source.view_id();
    assert_eq!(registry.joined_and_stops(&stops), Some(&view));
    assert_eq!(registry.joined_and_stops(&retries), None, "it goes on");
    registry.apply(Event::Forbidden(view, Failure::new("Forbidden", "no")));
    assert_eq!(registry.joined_and_stops(&stops), None, "it was released");
}

/// No policy shares what may be Secrets with another, and each lets go of its own.
#[test]
fn references_to_secrets_are_entries_of_each_policy_alone() {
    let mut registry = Registry::default();
    let mut one = object("x");
    if let Reference::Object(object) = &mut one {
        object.resource = "secrets".into();
    }
    let both = [one.clone(), collection("secrets", true)];
    let published = |effects: &[RegistryEffect]| -> Vec<String> {
        let names = effects.iter().filter_map(|effect| match effect {
            RegistryEffect::Publish(record) => Some(record.name.clone()),
            _ => None,
        });
        names.collect()
    };
    let own = |policy: &str| {
        both.each_ref()
            .map(|r| r.name_for(&ObjectKey::new("", policy)))
    };
    for policy_name in ["allowed", "attacker"] {
        let effects = settle(&mut registry, policy(policy_name, &both));
        assert_eq!(published(&effects), own(policy_name));
    }
    // A refusal for one policy does not affect the entry of the second.
    let refused = Event::Reference(
        own("attacker")[0].clone(),
        Resolution::Invalid(Failure::new("SecretsForbidden", "no")),
    );
    assert_eq!(
        published(&registry.apply(refused)),
        [own("attacker")[0].clone()]
    );
    let id = |name: &str| (EntryKind::Implicit, name.to_owned());
    assert!(
        registry
            .entry(&id(&own("allowed")[0]))
            .unwrap()
            .binding()
            .is_ok()
    );
    let gone = settle(
        &mut registry,
        Event::PolicyGone(Dependent("attacker".into())),
    );
    assert_eq!(kinds(&gone), ["remove", "remove"]);
    assert!(registry.entry(&id(&own("allowed")[1])).is_some());
}

#[test]
fn the_options_of_a_view_combine_those_of_its_entries() {
    let with = |pinned, bytes_max| {
        let Resolution::Found(mut found) = found("pods") else {
            unreachable!()
        };
        found.options.pinned = pinned;
        found.options.bytes_max = bytes_max;
        Resolution::Found(found)
    };
    let asked = |effects: Vec<RegistryEffect>| {
        effects.into_iter().find_map(|effect| match effect {
            RegistryEffect::OpenView(wanted) => {
                Some((wanted.options.pinned, wanted.options.bytes_max))
            }
            _ => None,
        })
    };
    let mut registry = Registry::default();
    let mut apply = |event| asked(registry.apply(event));
    assert_eq!(
        apply(claim("a", "1", 1, with(false, Some(5)))),
        Some((false, Some(5)))
    );
    assert_eq!(
        apply(claim("b", "2", 1, with(true, Some(9)))),
        Some((true, Some(9)))
    );
    assert_eq!(
        apply(claim("c", "3", 1, with(false, None))),
        Some((true, None))
    );
    assert_eq!(
        apply(claim("b", "2", 2, with(false, Some(9)))),
        Some((false, None))
    );
    assert_eq!(apply(gone("c")), Some((false, Some(9))));
    assert_eq!(apply(gone("a")), None, "nothing changes");
}

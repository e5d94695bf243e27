use std::collections::{BTreeMap, BTreeSet};

use anteroom_model::{Collection, Failure, GroupVersionResource, Source};
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
        name: name.into(),
        uid: uid.into(),
        generation,
        resolution,
    }))
}

fn found(resource: &str) -> Resolution {
    Resolution::Found(Box::new(Resolved::whole(info(resource))))
}

fn failure() -> Failure {
    Failure::new("ResourceNotFound", "no such resource")
}

fn kinds(effects: &[Effect]) -> Vec<&'static str> {
    effects
        .iter()
        .map(|effect| match effect {
            Effect::StartView(_) => "start",
            Effect::StopView(_) => "stop",
            Effect::PublishEntry(_) => "publish",
            Effect::RemoveEntry(_) => "remove",
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
    assert_eq!(
        kinds(&registry.apply(Event::EntryGone("a".into()))),
        ["remove"]
    );
    assert_eq!(
        kinds(&registry.apply(Event::EntryGone("b".into()))),
        ["remove", "stop"]
    );
    assert!(kinds(&registry.apply(Event::EntryGone("b".into()))).is_empty());
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
    assert_eq!(
        kinds(&registry.apply(Event::EntryGone("a".into()))),
        ["remove", "stop"]
    );
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
    fn watches_are_always_the_distinct_sources(
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
                    Event::EntryGone(name)
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
                    Effect::StartView(info) => prop_assert!(running.insert(info.source.view_id()), "started twice"),
                    Effect::StopView(view) => prop_assert!(running.remove(&view), "stopped, never started"),
                    Effect::PublishEntry(_) | Effect::RemoveEntry(_) => {}
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

use anteroom_model::Source;
use proptest::prelude::*;

use super::*;

fn collection(namespaces: &[&str], labels: &str, fields: &str) -> Collection {
    Collection {
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        label_selector: labels.into(),
        field_selector: fields.into(),
        ..Collection::all(GroupVersionResource::new("", "v1", "things"))
    }
}

fn input(collections: &[Collection], references: usize, objects: Option<u64>) -> PlanInput {
    let views = collections.iter().map(|collection| {
        let source = Source::Collection(collection.clone());
        (source.view_id(), ViewFilter::new(collection))
    });
    PlanInput {
        views: views.collect(),
        references: (0..references)
            .map(|n| ObjectKey::new("r", format!("o{n}")))
            .collect(),
        objects,
        ..PlanInput::default()
    }
}

fn labelled(count: usize) -> Vec<Collection> {
    let each = (0..count).map(|n| collection(&[], &format!("app=a{n}"), ""));
    each.collect()
}

#[test]
fn a_view_within_another_source_is_derived_from_its_watch() {
    let within = [
        collection(&[], "", ""),
        collection(&["a", "b"], "", ""),
        collection(&[], "app=web", ""),
        collection(&["a"], "", "metadata.name=x"),
    ];
    let whole = plan(&input(&within, 3, Some(1_000_000)));
    assert_eq!(whole.scopes, BTreeSet::from([WatchScope::all()]));
    let own = plan(&input(
        &[collection(&[], "", ""), collection(&[], "", "spec.x=1")],
        0,
        None,
    ));
    assert_eq!(
        own.scopes.len(),
        2,
        "a field that only the API server can tell"
    );
    let namespace = plan(&input(
        &[
            collection(&["r"], "", ""),
            collection(&["r"], "app=web", ""),
        ],
        5,
        Some(1_000_000),
    ));
    assert_eq!(
        namespace.scopes,
        BTreeSet::from([WatchScope::of_namespace("r")])
    );
}

/// The rule by which many narrow watches become one, and back.
#[test]
fn many_narrow_watches_become_one_where_that_costs_less_and_back() {
    for (count, objects, watches) in [
        (1, Some(0), 1),
        (2, Some(500), 1),
        (2, Some(501), 2),
        (20, Some(9_500), 1),
        (20, Some(9_501), 20),
        (16, None, 16),
        (17, None, 1),
        (64, Some(u64::MAX), 64),
        (65, Some(u64::MAX), 1),
    ] {
        let wanted = input(&labelled(count), 0, objects);
        assert_eq!(
            plan(&wanted).scopes.len(),
            watches,
            "{count} in {objects:?}"
        );
    }
    let mut few = input(&labelled(11), 0, Some(10_000));
    assert_eq!(plan(&few).scopes.len(), 11);
    few.current = BTreeSet::from([WatchScope::all()]);
    assert_eq!(
        plan(&few).scopes.len(),
        1,
        "what runs goes on until half is left"
    );
    let mut fewer = input(&labelled(10), 0, Some(10_000));
    fewer.current = few.current;
    assert_eq!(plan(&fewer).scopes.len(), 10);
}

fn foreign(namespaces: &[&str], count: usize) -> Vec<Collection> {
    let each = (0..count).map(|n| collection(namespaces, "", &format!("spec.nodeName=x{n}")));
    each.collect()
}

fn watches_of(plan: &Plan, collection: &Collection) -> usize {
    plan.views[&Source::Collection(collection.clone()).view_id()].len()
}

/// One author's field selectors take no other view's place, in whatever order their names are.
#[test]
fn a_view_that_can_be_derived_has_a_watch_beside_any_number_that_cannot() {
    for others in [65, 64, 1_000] {
        let one = collection(&["z"], "app=web", "");
        let mut all = foreign(&["a"], others);
        all.push(one.clone());
        let found = plan(&input(&all, 0, Some(u64::MAX)));
        assert_eq!(watches_of(&found, &one), 1, "{others}");
        assert_eq!(found.scopes.len(), WATCHES_PER_TYPE_MAX);
        let mut forbidden = input(&all, 0, None);
        forbidden.forbidden.insert(WatchScope::all());
        assert_eq!(watches_of(&plan(&forbidden), &one), 1, "{others}");
    }
}

#[test]
fn narrow_watches_become_one_before_a_view_goes_without() {
    let mut all = foreign(&[], 40);
    let narrow = labelled(30);
    all.extend(narrow.iter().cloned());
    let wanted = input(&all, 5, Some(u64::MAX));
    let found = plan(&wanted);
    assert!(all.iter().all(|one| watches_of(&found, one) == 1));
    assert!(found.unfit.is_empty());
    assert!(found.scopes.contains(&WatchScope::all()));
    let mut fewer = wanted;
    fewer.references.clear();
    let drop = Source::Collection(foreign(&[], 40)[0].clone()).view_id();
    fewer
        .views
        .retain(|view, filter| *view == drop || filter.derivable());
    let found = plan(&fewer);
    assert!(!found.scopes.contains(&WatchScope::all()), "all fit again");
}

/// A namespace with many field selectors leaves a place to the others.
#[test]
fn namespaces_take_turns_with_watches_that_cannot_be_derived() {
    let one = &foreign(&["z"], 1)[0];
    let of_all = &foreign(&[], 1)[0];
    let mut all = foreign(&["a"], 100);
    all.extend([one.clone(), of_all.clone()]);
    let found = plan(&input(&all, 0, None));
    assert_eq!(watches_of(&found, one), 1);
    assert_eq!(watches_of(&found, of_all), 1);
    assert_eq!(found.scopes.len(), WATCHES_PER_TYPE_MAX);
}

/// 200,000 references never are as many watches.
#[test]
fn references_by_the_hundred_thousand_are_one_watch() {
    let wanted = input(&[], 200_000, Some(u64::MAX));
    assert_eq!(plan(&wanted).scopes, BTreeSet::from([WatchScope::all()]));
    let mut in_one_namespace = wanted;
    in_one_namespace.forbidden.insert(WatchScope::all());
    let plan_there = plan(&in_one_namespace);
    assert_eq!(
        plan_there.scopes,
        BTreeSet::from([WatchScope::of_namespace("r")])
    );
    let mut forbidden = in_one_namespace;
    forbidden.forbidden.insert(WatchScope::of_namespace("r"));
    let narrow = plan(&forbidden);
    assert_eq!(narrow.scopes.len(), WATCHES_PER_TYPE_MAX);
    assert_eq!(narrow.unfit.len(), 200_000 - WATCHES_PER_TYPE_MAX);
}

/// Thousands of references go, and the watches are planned again only when few are left.
#[test]
fn references_go_without_a_plan_until_few_are_left() {
    for (objects, least) in [(Some(u64::MAX), 65), (Some(10_000), 11), (None, 9)] {
        let wanted = input(&[], 20_000, objects);
        let may_go = watches_to_spare(&wanted, &plan(&wanted));
        assert_eq!(
            may_go,
            BTreeMap::from([(WatchScope::all(), Some(20_000 - least))])
        );
    }
    let wanted = input(&[collection(&[], "", "")], 20_000, None);
    let any = watches_to_spare(&wanted, &plan(&wanted));
    assert_eq!(any, BTreeMap::from([(WatchScope::all(), None)]));
}

#[test]
fn a_forbidden_wide_watch_is_left_to_the_view_that_is_exactly_it() {
    let mut wanted = input(&labelled(20), 0, Some(100));
    wanted.forbidden.insert(WatchScope::all());
    assert_eq!(plan(&wanted).scopes.len(), 20);
    let whole = collection(&[], "", "");
    let view = Source::Collection(whole.clone()).view_id();
    wanted.views.insert(view.clone(), ViewFilter::new(&whole));
    let plan = plan(&wanted);
    assert_eq!(plan.scopes.len(), 21);
    assert_eq!(plan.views[&view], BTreeSet::from([WatchScope::all()]));
}

fn arbitrary() -> impl Strategy<Value = Collection> {
    let namespaces = prop::collection::btree_set("[a-c]", 0..3);
    let labels = prop::sample::select(vec!["", "app=a", "app=b", "x in (a,b)"]);
    let fields = prop::sample::select(vec!["", "", "metadata.name=x", "spec.x=1"]);
    (namespaces, labels, fields).prop_map(|(namespaces, labels, fields)| Collection {
        namespaces: namespaces.into_iter().collect(),
        ..collection(&[], labels, fields)
    })
}

proptest! {
    #[test]
    fn every_view_is_made_of_watches_that_run_and_that_hold_it(
        collections in prop::collection::vec(arbitrary(), 0..30),
        references in 0_usize..100,
        objects in prop::option::of(0_u64..20_000),
        forbidden in prop::collection::btree_set("[a-c]?", 0..3),
    ) {
        let mut wanted = input(&collections, references, objects);
        wanted.forbidden = forbidden.iter().map(|name| WatchScope::of_namespace(name)).collect();
        let found = plan(&wanted);
        prop_assert!(found.scopes.len() <= WATCHES_PER_TYPE_MAX);
        for (view, filter) in &wanted.views {
            let scopes = &found.views[view];
            for own in filter.own() {
                let holds = |scope: &WatchScope| *scope == own || (filter.derivable()
                    && scope.is_wide() && scope.holds_namespace(&own.namespace));
                prop_assert!(scopes.is_empty() || scopes.iter().any(holds), "{own:?} in {scopes:?}");
            }
            prop_assert!(scopes.is_subset(&found.scopes));
        }
        let used: BTreeSet<WatchScope> = found.views.values().flatten().cloned().collect();
        let for_references = found.scopes.difference(&used).count();
        prop_assert!(for_references <= references);
        // What runs is planned again.
        wanted.current = found.scopes.clone();
        prop_assert_eq!(&plan(&wanted).scopes, &found.scopes);
        // A wide watch stays planned while no more references go than `watches_to_spare` counts.
        for (scope, spare) in watches_to_spare(&wanted, &found) {
            let mut left = wanted.clone();
            let mut spare = spare.unwrap_or(usize::MAX);
            left.references.retain(|object| {
                let goes = spare > 0 && scope.holds_namespace(&object.namespace);
                spare -= usize::from(goes);
                !goes
            });
            prop_assert!(plan(&left).scopes.contains(&scope), "{scope:?} is not left early");
        }
    }
}

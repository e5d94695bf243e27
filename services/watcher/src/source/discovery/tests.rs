use super::{parse::parse_legacy_resources, *};

const AGGREGATED: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
  {"metadata":{"name":"apps"},"versions":[{"version":"v1","freshness":"Current","resources":[
    {"resource":"deployments","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},
     "scope":"Namespaced","singularResource":"deployment","verbs":["get","list","watch"],
     "subresources":[{"subresource":"status","verbs":["get"]},{"subresource":"scale","verbs":["get"]}]}]}]},
  {"metadata":{"name":"broken.dev"},"versions":"what"},
  {"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale","resources":[]}]},
  {"metadata":{"name":"two.dev"},"versions":[
    {"version":"v2","resources":[{"resource":"a","responseKind":{"kind":"A"},"scope":"Cluster","verbs":["list"]}]},
    {"version":"v1","resources":[{"resource":"a","responseKind":{"kind":"A"},"scope":"Cluster","verbs":[]},
                                 {"resource":"b","responseKind":{"kind":"B"},"scope":"Cluster","verbs":[]}]}]}]}"#;

fn aggregated(text: &str) -> ServedResources {
    match parse_aggregated(text.as_bytes()).unwrap() {
        DiscoveryDocument::Aggregated(served) => served,
        DiscoveryDocument::Legacy => panic!("not aggregated"),
    }
}

#[test]
fn one_broken_group_takes_nothing_from_the_others() {
    let served = aggregated(AGGREGATED);
    let names: Vec<_> = served
        .resources
        .iter()
        .map(|r| r.record.gvr.to_string())
        .collect();
    assert_eq!(
        names,
        [
            "deployments.v1.apps",
            "a.v2.two.dev",
            "a.v1.two.dev",
            "b.v1.two.dev"
        ]
    );
    let broken: Vec<_> = served.broken.iter().map(|b| b.group.as_str()).collect();
    assert_eq!(broken, ["broken.dev", "metrics.k8s.io"]);
}

#[test]
fn a_resource_is_read_with_scope_subresources_and_preference() {
    let served = aggregated(AGGREGATED);
    let deployments = &served.resources[0];
    assert!(deployments.record.watchable && deployments.record.namespaced);
    assert_eq!(deployments.record.subresources, ["scale", "status"]);
    let preferred: Vec<_> = served
        .resources
        .iter()
        .map(|r| r.record.preferred)
        .collect();
    assert_eq!(preferred, [true, true, false, true]);
    assert!(!served.resources[1].record.watchable);
}

#[test]
fn an_older_api_server_is_recognised() {
    let legacy = br#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#;
    assert!(matches!(
        parse_aggregated(legacy),
        Ok(DiscoveryDocument::Legacy)
    ));
    assert!(parse_aggregated(b"<html>").is_err());
}

#[test]
fn legacy_lists_name_subresources_beside_their_resource() {
    let list = serde_json::from_str(
        r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
        {"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["list","watch"]},
        {"name":"pods/log","singularName":"","namespaced":true,"kind":"Pod","verbs":["get"]},
        {"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]}]}"#,
    );
    let resources = parse_legacy_resources("", "v1", list.unwrap());
    assert_eq!(resources.len(), 2);
    assert_eq!(resources[0].record.subresources, ["log"]);
    assert!(resources[0].record.watchable && !resources[1].record.watchable);
}

#[test]
fn a_group_that_does_not_answer_is_taken_as_it_was() {
    let before = aggregated(AGGREGATED);
    let mut now = ServedResources {
        resources: Vec::new(),
        broken: vec![Broken {
            group: "apps".into(),
            version: "v1".into(),
            problem: "503".into(),
        }],
    };
    now.carry_over(&before);
    assert_eq!(now.resources, before.resources[..1]);
}

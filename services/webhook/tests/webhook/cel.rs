//! Rules in CEL, with parameters out of a view and the object's namespace.

use anteroom_bus::Address;
use anteroom_model::{EntryKind, FactError, ViewId};
use serde_json::{Value, json};

use crate::{
    client::ingress,
    cluster::{Cluster, bound},
};

fn policy() -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": { "name": "hosts", "uid": "hosts" },
        "spec": { "validationFailureAction": "Enforce", "rules": [{
            "name": "suffix",
            "match": { "any": [{ "resources": { "kinds": ["Ingress"] } }] },
            "celPreconditions": [{
                "name": "has-rules", "expression": "has(object.spec.rules) && request.operation != 'DELETE'",
            }],
            "validate": { "cel": {
                "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
                "paramRef": { "name": "suffixes", "namespace": "rules" },
                "variables": [
                    { "name": "env", "expression": "namespaceObject.metadata.labels.env" },
                    { "name": "suffix", "expression": "params.data[variables.env]" },
                ],
                "expressions": [{
                    "expression": "object.spec.rules.all(r, r.host.endsWith(variables.suffix))",
                    "messageExpression": "'a host in ' + variables.env + ' ends in ' + variables.suffix",
                }],
            } },
        }] },
    })
}

const NAMESPACES: &str = "/v1/namespaces/?&";

const PARAMS: &str = "/v1/ConfigMap/rules?&metadata.name=suffixes";

#[tokio::test]
async fn a_rule_in_cel_reads_its_parameters_and_its_namespace() {
    let cluster = Cluster::new().await;
    cluster.write_all(&[]).await;
    cluster
        .entries(&[
            bound(EntryKind::Implicit, PARAMS, ViewId::new("suffixes")),
            bound(EntryKind::Implicit, NAMESPACES, ViewId::new("namespaces")),
        ])
        .await;
    cluster.policies(&[policy()]).await;
    let view = |name: &str| Address::View(ViewId::new(name));
    let _suffixes = cluster
        .replica_at(view("suffixes"), |_, query| {
            assert_eq!(query.parameters["namespace"], "rules");
            let metadata = json!({ "name": "suffixes", "namespace": "rules" });
            Some(Ok(
                json!([{ "metadata": metadata, "data": { "prod": ".example" } }]),
            ))
        })
        .await;
    let _namespaces = cluster
        .replica_at(view("namespaces"), |_, query| {
            assert_eq!(query.expression, "");
            let object = query.selection.as_ref()?.object.as_ref()?;
            Some(match &*object.name {
                "shop" => {
                    Ok(json!({ "metadata": { "name": "shop", "labels": { "env": "prod" } } }))
                }
                name => Err(FactError::ObjectNotFound {
                    resource: "namespaces".into(),
                    namespace: String::new(),
                    name: name.to_owned(),
                }),
            })
        })
        .await;
    // A namespace that the view does not have may have been made a moment ago.
    let watcher = cluster
        .watcher(|request| {
            assert_eq!(
                (&*request.rule, &*request.variable),
                ("suffix", "namespaceObject")
            );
            Err(FactError::LiveReadFailed {
                code: 404,
                message: "namespaces \"other\" not found".to_owned(),
            })
        })
        .await;
    let (_webhook, client) = cluster.webhook_at_once(&[]).await;
    let _beats = cluster.beats(&["suffixes", "namespaces"]);
    cluster.service.readiness.wait_ready().await;
    let review = |namespace: &str, host: &str| {
        let mut review = ingress("CREATE", namespace, host);
        review["request"]["namespace"] = namespace.into();
        review
    };
    let admitted = client
        .review("/validate", &review("shop", "a.example"))
        .await;
    assert_eq!(admitted["allowed"], true, "{admitted}");
    let denied = client.review("/validate", &review("shop", "a.test")).await;
    assert_eq!(denied["allowed"], false, "{denied}");
    let message = denied["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("a host in prod ends in .example"),
        "{message}"
    );
    // What is not known is an error, and so is what a map does not have.
    let unknown = client
        .review("/validate", &review("other", "a.example"))
        .await;
    assert_eq!(unknown["allowed"], false, "{unknown}");
    let message = unknown["status"]["message"].as_str().unwrap();
    assert!(message.contains("namespaceObject"), "{message}");
    assert_eq!(watcher.calls(), 1);
}

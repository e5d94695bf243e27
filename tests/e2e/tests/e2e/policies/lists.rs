//! Lists that are cut, selected and large, and what is in no namespace.

use anteroom_e2e::world::World;
use serde_json::json;

use super::{
    Guard, HOME,
    Verdict::{Admitted, Refused},
    comes_to, deny, install,
    reads::{call, config_map},
    remove, says, tried,
};

pub(crate) async fn every_shape(world: &World) -> anyhow::Result<()> {
    lists_that_are_cut(world).await?;
    a_name_as_a_field(world).await?;
    cluster_scoped_objects_are_read(world).await?;
    results_beyond_the_limit(world).await
}

/// A limit cuts the list as the API server does, and says so.
async fn lists_that_are_cut(world: &World) -> anyhow::Result<()> {
    let path =
        "/api/v1/namespaces/{{ request.namespace }}/services?limit={{ request.object.data.limit }}";
    let expression = "{count: length(items), first: items[0].metadata.name, \
                      more: (metadata.continue || '') != '', left: metadata.remainingItemCount || `0`, \
                      kind: kind, version: apiVersion, bare: items[0].kind == null}";
    let guard = Guard::new(
        "limited",
        json!([call("list", path, expression)]),
        deny(
            "{{ list }}",
            "{{ list.count }}",
            "LessThan",
            &json!("{{ request.object.data.enough }}"),
        ),
    );
    install(world, &guard).await?;
    let ask = |limit: &str, enough: &str| json!({ "limit": limit, "enough": enough });
    let words = "\"count\":1";
    says(world, &guard, &ask("1", "2"), Refused(words)).await?;
    says(world, &guard, &ask("1", "2"), Refused("\"left\":1")).await?;
    says(world, &guard, &ask("1", "2"), Refused("\"more\":true")).await?;
    says(world, &guard, &ask("500", "3"), Refused("\"more\":false")).await?;
    says(world, &guard, &ask("2", "2"), Admitted).await?;
    remove(world, &guard).await
}

/// A field selector on the name, with a variable.
async fn a_name_as_a_field(world: &World) -> anyhow::Result<()> {
    let path = "/api/v1/services?fieldSelector=metadata.name={{ request.object.data.name }},metadata.namespace!=default";
    let guard = Guard::new(
        "field",
        json!([call(
            "found",
            path,
            "items[].join('/', [metadata.namespace, metadata.name])"
        )]),
        deny(
            "{{ found }}",
            "{{ length(found) }}",
            "GreaterThan",
            &json!(0),
        ),
    );
    install(world, &guard).await?;
    let words = format!("[\"{HOME}/web\"]");
    says(world, &guard, &json!({ "name": "web" }), Refused(&words)).await?;
    says(world, &guard, &json!({ "name": "we" }), Admitted).await?;
    // The API server's own is in `default`.
    says(world, &guard, &json!({ "name": "kubernetes" }), Admitted).await?;
    remove(world, &guard).await
}

/// Cluster-scoped objects, one and all.
async fn cluster_scoped_objects_are_read(world: &World) -> anyhow::Result<()> {
    let guard = Guard::new(
        "cluster",
        json!([
            call(
                "role",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/{{ request.object.data.role }}",
                "rules | length(@)"
            ),
            call(
                "named",
                "/api/v1/namespaces?labelSelector=kubernetes.io/metadata.name={{ request.namespace }}",
                "items[0].metadata.name"
            ),
        ]),
        deny(
            "{{ role }} rules, {{ named }}",
            "{{ role }}",
            "GreaterThan",
            &json!(0),
        ),
    );
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "cases:with-a-colon" },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] });
    world.create(&role).await?;
    install(world, &guard).await?;
    let ask = |role: &str| json!({ "role": role });
    let words = format!("1 rules, {HOME}");
    says(world, &guard, &ask("cases:with-a-colon"), Refused(&words)).await?;
    world.delete(&role).await?;
    let words = "clusterroles.rbac.authorization.k8s.io \"cases:with-a-colon\" not found";
    says(world, &guard, &ask("cases:with-a-colon"), Refused(words)).await?;
    remove(world, &guard).await
}

/// A result beyond the size limit is an error that names the limit; a small result of the same list is none.
async fn results_beyond_the_limit(world: &World) -> anyhow::Result<()> {
    const BYTES: usize = 800_000;
    let large = |at: usize| {
        let mut object = config_map(
            HOME,
            &format!("large-{at}"),
            &json!({ "x": "y".repeat(BYTES) }),
        );
        object["metadata"]["labels"] = json!({ "size": "large" });
        object
    };
    for at in 0..6 {
        world.create(&large(at)).await?;
    }
    let path = "/api/v1/namespaces/{{ request.namespace }}/configmaps?labelSelector=size=large";
    let of = |name: &'static str, expression: &str| {
        let validate = deny("{{ x }}", "{{ x | length(@) }}", "LessThan", &json!(6));
        Guard::new(name, json!([call("x", path, expression)]), validate)
    };
    let small = of("small-result", "items[].metadata.name");
    install(world, &small).await?;
    says(world, &small, &json!({}), Admitted).await?;
    remove(world, &small).await?;
    let huge = of("huge-result", "items[].data.x");
    install(world, &huge).await?;
    let object = huge.object(&json!({}));
    comes_to("huge-result", &Refused("AR203"), async || {
        tried(world, &object).await
    })
    .await?;
    remove(world, &huge).await?;
    for at in 0..6 {
        world.delete(&large(at)).await?;
    }
    Ok(())
}

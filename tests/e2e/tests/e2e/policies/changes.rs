//! Every operation: what an update changes, what a deletion takes away.

use anteroom_e2e::world::World;
use serde_json::json;

use super::{
    Guard, HOME,
    Verdict::{Admitted, Refused},
    comes_to, deny, install, remove, tried, tried_change, tried_deletion,
};

pub(crate) async fn every_operation(world: &World) -> anyhow::Result<()> {
    an_update_is_judged_by_what_was_there(world).await?;
    existing_violations_may_be_changed(world).await?;
    a_deletion_is_judged_by_what_is_left(world).await?;
    nothing_comes_of_a_dry_run(world).await
}

/// `oldObject` stands in a path.
async fn an_update_is_judged_by_what_was_there(world: &World) -> anyhow::Result<()> {
    let path =
        "/api/v1/namespaces/{{ request.namespace }}/services/{{ request.oldObject.data.owner }}";
    let mut guard = Guard::new(
        "updated",
        json!([{ "name": "locked", "apiCall": { "urlPath": path,
            "jmesPath": "metadata.labels.tier || ''", "default": "" } }]),
        json!({ "message": "{{ request.oldObject.data.owner }} is of {{ locked }}",
            "deny": { "conditions": { "all": [
                { "key": "{{ request.object.data.owner }}", "operator": "NotEquals",
                    "value": "{{ request.oldObject.data.owner }}" },
                { "key": "{{ locked }}", "operator": "Equals", "value": "front" },
            ] } } }),
    );
    guard.operations = json!(["UPDATE"]);
    install(world, &guard).await?;
    for (owner, to, verdict) in [
        ("web", "db", Refused("web is of front")),
        ("web", "web", Admitted),
        ("db", "web", Admitted),
        ("nope", "web", Admitted),
    ] {
        let object = guard.object(&json!({ "owner": owner }));
        world.create(&object).await?;
        let patch = json!({ "data": { "owner": to } });
        let what = format!("{owner} to {to}");
        comes_to(&what, &verdict, async || {
            tried_change(world, &object, &patch).await
        })
        .await?;
        world.delete(&object).await?;
    }
    remove(world, &guard).await
}

/// `allowExistingViolations`, where both states are judged by the same facts. An old violation excuses no other one.
async fn existing_violations_may_be_changed(world: &World) -> anyhow::Result<()> {
    let path = "/api/v1/namespaces/{{ request.namespace }}/services/{{ request.object.data.of }}";
    let mut guard = Guard::new(
        "existing",
        json!([{ "name": "found", "apiCall": { "urlPath": path, "jmesPath": "metadata.name",
            "default": "nothing" } }]),
        deny("of {{ found }}", "{{ found }}", "Equals", &json!("nothing")),
    );
    let object = guard.object(&json!({ "of": "nope" }));
    world.create(&object).await?;
    guard.operations = json!(["CREATE", "UPDATE"]);
    install(world, &guard).await?;
    let change = |of: &str| json!({ "data": { "of": of, "more": "x" } });
    let fresh = {
        let mut fresh = object.clone();
        fresh["metadata"]["name"] = "guarded-existing-new".into();
        fresh
    };
    comes_to("a new one", &Refused("of nothing"), async || {
        tried(world, &fresh).await
    })
    .await?;
    let (same, right, wrong) = (change("nope"), change("web"), change("nope-2"));
    for (what, patch, verdict) in [
        // It violated the rule before.
        ("the same", &same, Admitted),
        ("a right one", &right, Admitted),
        ("another", &wrong, Refused("of nothing")),
    ] {
        comes_to(what, &verdict, async || {
            tried_change(world, &object, patch).await
        })
        .await?;
    }
    world.delete(&object).await?;
    let object = guard.object(&json!({ "of": "web" }));
    world.create(&object).await?;
    let refused = Refused("of nothing");
    comes_to("now wrong", &refused, async || {
        tried_change(world, &object, &wrong).await
    })
    .await?;
    world.delete(&object).await?;
    remove(world, &guard).await
}

/// On a deletion `request.object` is what is deleted.
async fn a_deletion_is_judged_by_what_is_left(world: &World) -> anyhow::Result<()> {
    let path = "/api/v1/namespaces/{{ request.namespace }}/services?labelSelector=uses={{ request.object.metadata.name }}";
    let mut guard = Guard::new(
        "deleted",
        json!([{ "name": "users", "apiCall": { "urlPath": path, "jmesPath": "items[].metadata.name" } }]),
        deny(
            "used by {{ users }}",
            "{{ length(users) }}",
            "GreaterThan",
            &json!(0),
        ),
    );
    guard.operations = json!(["DELETE"]);
    let object = guard.object(&json!({}));
    world.create(&object).await?;
    install(world, &guard).await?;
    comes_to("unused", &Admitted, async || {
        tried_deletion(world, &object).await
    })
    .await?;
    let user = json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": HOME, "name": "user", "labels": { "uses": "guarded-deleted" } },
        "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } });
    world.create(&user).await?;
    let refused = Refused("used by [\"user\"]");
    comes_to("used", &refused, async || {
        tried_deletion(world, &object).await
    })
    .await?;
    world.delete(&user).await?;
    comes_to("no longer used", &Admitted, async || {
        tried_deletion(world, &object).await
    })
    .await?;
    world.delete(&object).await?;
    remove(world, &guard).await
}

/// Checks that a dry run is judged, and is no fact for the next request.
async fn nothing_comes_of_a_dry_run(world: &World) -> anyhow::Result<()> {
    let path = "/api/v1/namespaces/{{ request.namespace }}/configmaps?labelSelector=guard=once";
    let guard = Guard::new(
        "once",
        json!([{ "name": "there", "apiCall": { "urlPath": path, "jmesPath": "items[].metadata.name" } }]),
        deny(
            "{{ there }} is there",
            "{{ length(there) }}",
            "GreaterThan",
            &json!(0),
        ),
    );
    install(world, &guard).await?;
    let object = guard.object(&json!({}));
    for _ in 0..3 {
        comes_to("tried", &Admitted, async || tried(world, &object).await).await?;
    }
    world.create(&object).await?;
    let mut second = object.clone();
    second["metadata"]["name"] = "guarded-once-more".into();
    let refused = Refused("[\"guarded-once\"] is there");
    comes_to("a second", &refused, async || tried(world, &second).await).await?;
    world.delete(&object).await?;
    comes_to("again", &Admitted, async || tried(world, &second).await).await?;
    remove(world, &guard).await
}

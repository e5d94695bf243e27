//! Every road to a fact, one policy each.

use anteroom_e2e::{manifests, world::World};
use serde_json::{Value, json};

use super::{
    Guard, HOME,
    Verdict::{Admitted, Refused},
    deny, install, remove, says,
};

pub(crate) async fn every_road(world: &World) -> anyhow::Result<()> {
    for object in [
        service("web", &json!({ "app": "web", "tier": "front" })),
        service("db", &json!({ "app": "db" })),
        deployment("web", 3),
    ] {
        world.create(&object).await?;
    }
    config_map_of_the_default_namespace(world).await?;
    labels_and_a_variable_namespace(world).await?;
    a_name_that_is_not_there_and_a_default(world).await?;
    a_name_that_is_not_there_and_no_default(world).await?;
    a_path_that_is_none_and_a_default(world).await?;
    a_post_is_made_for_each_request(world).await?;
    the_servers_version(world).await?;
    subresources(world).await?;
    nested_variables(world).await?;
    a_global_reference_by_a_variable_name(world).await?;
    an_inline_cache(world).await?;
    a_call_for_each_element(world).await?;
    a_call_in_a_precondition(world).await
}

fn service(name: &str, labels: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": HOME, "name": name, "labels": labels },
        "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } })
}

fn deployment(name: &str, replicas: u32) -> Value {
    let labels = json!({ "app": name });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": HOME, "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "main", "image": "nginx" }] } } } })
}

pub(crate) fn config_map(namespace: &str, name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": { "namespace": namespace, "name": name } })
}

pub(crate) fn call(name: &str, path: &str, expression: &str) -> Value {
    json!({ "name": name, "apiCall": { "urlPath": path, "jmesPath": expression } })
}

/// Without a namespace it is `default`; changed and deleted between two requests.
async fn config_map_of_the_default_namespace(world: &World) -> anyhow::Result<()> {
    let guard = Guard::new(
        "settings",
        json!([{ "name": "settings", "configMap": { "name": "settings" } }]),
        deny(
            "{{ request.object.data.colour }} is not among {{ settings.data.colours }}",
            "{{ request.object.data.colour }}",
            "AnyNotIn",
            &json!("{{ settings.data.colours | parse_json(@) }}"),
        ),
    );
    let settings =
        |colours: &str| config_map("default", "settings", &json!({ "colours": colours }));
    // A ConfigMap with the same name in a different namespace is a different object.
    world
        .create(&config_map(
            HOME,
            "settings",
            &json!({ "colours": "[\"red\"]" }),
        ))
        .await?;
    install(world, &guard).await?;
    let red = json!({ "colour": "red" });
    let missing = "failed to get configmap default/settings : ";
    says(world, &guard, &red, Refused(missing)).await?;
    manifests::apply(&world.client, &settings("[\"blue\"]")).await?;
    let words = "red is not among [\"blue\"]";
    says(world, &guard, &red, Refused(words)).await?;
    says(world, &guard, &json!({ "colour": "blue" }), Admitted).await?;
    manifests::apply(&world.client, &settings("[\"red\"]")).await?;
    says(world, &guard, &red, Admitted).await?;
    world.delete(&settings("")).await?;
    says(world, &guard, &red, Refused(missing)).await?;
    remove(world, &guard).await
}

/// A label selector with a variable in it, in a namespace that is one.
async fn labels_and_a_variable_namespace(world: &World) -> anyhow::Result<()> {
    let path = "/api/v1/namespaces/{{ request.namespace }}/services\
                ?labelSelector=app={{ request.object.data.app }},tier!=back";
    let guard = Guard::new(
        "labels",
        json!([call("services", path, "items[].metadata.name | sort(@)")]),
        deny(
            "taken by {{ services }}",
            "{{ services | length(@) }}",
            "GreaterThan",
            &json!(0),
        ),
    );
    install(world, &guard).await?;
    says(
        world,
        &guard,
        &json!({ "app": "web" }),
        Refused("taken by [\"web\"]"),
    )
    .await?;
    says(world, &guard, &json!({ "app": "other" }), Admitted).await?;
    // A value is a value: it adds no requirement.
    let sly = json!({ "app": "other,app=web" });
    says(world, &guard, &sly, Refused("AR3")).await?;
    let back = service("web-2", &json!({ "app": "web", "tier": "back" }));
    let front = service("web-3", &json!({ "app": "web", "tier": "front" }));
    world.create(&back).await?;
    world.create(&front).await?;
    let both = "taken by [\"web\",\"web-3\"]";
    says(world, &guard, &json!({ "app": "web" }), Refused(both)).await?;
    world.delete(&back).await?;
    world.delete(&front).await?;
    remove(world, &guard).await
}

/// A default stands in for a 404, and no expression is applied to it.
async fn a_name_that_is_not_there_and_a_default(world: &World) -> anyhow::Result<()> {
    let path =
        "/api/v1/namespaces/{{ request.namespace }}/services/{{ request.object.data.service }}";
    let mut context = call("port", path, "spec.ports[0].port");
    context["apiCall"]["default"] = 443.into();
    let guard = Guard::new(
        "defaults",
        json!([context]),
        deny(
            "the port is {{ port }}",
            "{{ port }}",
            "NotEquals",
            &json!(443),
        ),
    );
    install(world, &guard).await?;
    says(
        world,
        &guard,
        &json!({ "service": "db" }),
        Refused("the port is 80"),
    )
    .await?;
    says(world, &guard, &json!({ "service": "nope" }), Admitted).await?;
    world.create(&service("nope", &json!({}))).await?;
    says(
        world,
        &guard,
        &json!({ "service": "nope" }),
        Refused("the port is 80"),
    )
    .await?;
    world.delete(&service("nope", &json!({}))).await?;
    says(world, &guard, &json!({ "service": "nope" }), Admitted).await?;
    // No name is no object.
    says(world, &guard, &json!({ "service": "" }), Refused("AR3")).await?;
    says(world, &guard, &json!({ "service": "a/b" }), Refused("AR3")).await?;
    remove(world, &guard).await
}

/// A 404 without a default is the API server's, whoever read it.
async fn a_name_that_is_not_there_and_no_default(world: &World) -> anyhow::Result<()> {
    let path =
        "/api/v1/namespaces/{{ request.namespace }}/services/{{ request.object.data.service }}";
    let guard = Guard::new(
        "missing",
        json!([call("labels", path, "metadata.labels.app || 'none'")]),
        deny("it is {{ labels }}", "{{ labels }}", "Equals", &json!("db")),
    );
    install(world, &guard).await?;
    says(world, &guard, &json!({ "service": "web" }), Admitted).await?;
    says(
        world,
        &guard,
        &json!({ "service": "db" }),
        Refused("it is db"),
    )
    .await?;
    let words = "services \"nope\" not found";
    says(world, &guard, &json!({ "service": "nope" }), Refused(words)).await?;
    remove(world, &guard).await
}

/// An object as a default, for a path that the API server does not know.
async fn a_path_that_is_none_and_a_default(world: &World) -> anyhow::Result<()> {
    let mut context = call("limits", "/invalid", "nothing.of.it");
    context["apiCall"]["default"] = json!({ "most": "{{ request.object.data.most }}" });
    let guard = Guard::new(
        "invalid",
        json!([context]),
        deny(
            "at most {{ limits.most }}",
            "{{ request.object.data.now }}",
            "GreaterThan",
            &json!("{{ limits.most }}"),
        ),
    );
    install(world, &guard).await?;
    let ask = |now: &str| json!({ "now": now, "most": "5" });
    says(world, &guard, &ask("6"), Refused("at most 5")).await?;
    says(world, &guard, &ask("5"), Admitted).await?;
    remove(world, &guard).await
}

/// A POST is asked each time, with variables in its data.
async fn a_post_is_made_for_each_request(world: &World) -> anyhow::Result<()> {
    let context = json!([{ "name": "access", "apiCall": {
        "urlPath": "/apis/authorization.k8s.io/v1/subjectaccessreviews", "method": "POST",
        "data": [
            { "key": "kind", "value": "SubjectAccessReview" },
            { "key": "apiVersion", "value": "authorization.k8s.io/v1" },
            { "key": "spec", "value": {
                "resourceAttributes": { "resource": "namespaces", "verb": "delete", "group": "",
                    "namespace": "{{ request.namespace }}" },
                "user": "{{ request.object.data.user }}" } },
        ] } }]);
    let guard = Guard::new(
        "access",
        context,
        deny(
            "User is not authorized.",
            "{{ access.status.allowed }}",
            "NotEquals",
            &json!(true),
        ),
    );
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "cases-alice" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cluster-admin" },
        "subjects": [{ "kind": "User", "name": "alice",
            "apiGroup": "rbac.authorization.k8s.io" }] });
    install(world, &guard).await?;
    let (alice, bob) = (json!({ "user": "alice" }), json!({ "user": "bob" }));
    says(world, &guard, &alice, Refused("User is not authorized.")).await?;
    world.create(&binding).await?;
    says(world, &guard, &alice, Admitted).await?;
    says(world, &guard, &bob, Refused("User is not authorized.")).await?;
    world.delete(&binding).await?;
    says(world, &guard, &alice, Refused("User is not authorized.")).await?;
    remove(world, &guard).await
}

/// A path that is no resource is read live.
async fn the_servers_version(world: &World) -> anyhow::Result<()> {
    let guard = Guard::new(
        "version",
        json!([call(
            "version",
            "/version",
            "{major: major, minor: to_number(minor)}"
        )]),
        deny(
            "this is {{ version.major }}",
            "{{ version.minor }}",
            "GreaterThanOrEquals",
            &json!("{{ request.object.data.minor }}"),
        ),
    );
    install(world, &guard).await?;
    says(
        world,
        &guard,
        &json!({ "minor": "20" }),
        Refused("this is 1"),
    )
    .await?;
    says(world, &guard, &json!({ "minor": "2000" }), Admitted).await?;
    remove(world, &guard).await
}

/// A subresource is no object of a view.
async fn subresources(world: &World) -> anyhow::Result<()> {
    let base = "/apis/apps/v1/namespaces/{{ request.namespace }}/deployments/{{ request.object.data.name }}";
    let guard = Guard::new(
        "scale",
        json!([
            call("scale", &format!("{base}/scale"), "spec.replicas"),
            call(
                "service",
                "/api/v1/namespaces/{{ request.namespace }}/services/web/status",
                "kind"
            ),
        ]),
        deny(
            "{{ service }} with {{ scale }}",
            "{{ scale }}",
            "GreaterThan",
            &json!(2),
        ),
    );
    install(world, &guard).await?;
    let web = json!({ "name": "web" });
    says(world, &guard, &web, Refused("Service with 3")).await?;
    manifests::apply(&world.client, &deployment("web", 1)).await?;
    says(world, &guard, &web, Admitted).await?;
    let nope = json!({ "name": "nope" });
    says(
        world,
        &guard,
        &nope,
        Refused("deployments.apps \"nope\" not found"),
    )
    .await?;
    remove(world, &guard).await
}

/// A variable that names a key of a fact, whose value names the next one.
async fn nested_variables(world: &World) -> anyhow::Result<()> {
    let tiers = config_map(HOME, "tiers", &json!({ "front": "db", "back": "nope" }));
    world.create(&tiers).await?;
    let path = "/api/v1/namespaces/{{ request.namespace }}/services/{{ tier }}";
    let guard = Guard::new(
        "nested",
        json!([
            { "name": "tiers", "configMap": { "name": "tiers", "namespace": "{{ request.namespace }}" } },
            { "name": "tier", "variable": { "jmesPath": "tiers.data.\"{{ request.object.metadata.labels.tier }}\"" } },
            call("app", path, "metadata.labels.app"),
        ]),
        deny(
            "{{ request.object.metadata.labels.tier }} is {{ tiers.data.\"{{ request.object.metadata.labels.tier }}\" }} of {{ app }}",
            "{{ app }}",
            "Equals",
            &json!("{{ tiers.data.\"{{ request.object.metadata.labels.tier }}\" }}"),
        ),
    );
    install(world, &guard).await?;
    says(world, &guard, &json!({}), Refused("front is db of db")).await?;
    let changed = config_map(HOME, "tiers", &json!({ "front": "web", "back": "db" }));
    manifests::apply(&world.client, &changed).await?;
    says(world, &guard, &json!({}), Refused("front is web of web")).await?;
    remove(world, &guard).await
}

/// The entry and the projection are named by the request.
async fn a_global_reference_by_a_variable_name(world: &World) -> anyhow::Result<()> {
    let entry = json!({ "apiVersion": "kyverno.io/v2beta1", "kind": "GlobalContextEntry",
        "metadata": { "name": "cases-services" },
        "spec": { "kubernetesResource": { "version": "v1", "resource": "services", "namespace": HOME },
            "projections": [{ "name": "apps", "jmesPath": "[].metadata.labels.app" },
                { "name": "names", "jmesPath": "[].metadata.name" }] } });
    world.create(&entry).await?;
    let guard = Guard::new(
        "global",
        json!([{ "name": "found", "globalReference": {
            "name": "cases-{{ request.object.data.of }}.{{ request.object.data.part }}",
            "jmesPath": "sort(@)" } }]),
        deny(
            "{{ request.object.data.value }} is among {{ found }}",
            "{{ request.object.data.value }}",
            "AnyIn",
            &json!("{{ found }}"),
        ),
    );
    install(world, &guard).await?;
    let ask = |of: &str, part: &str, value: &str| json!({ "of": of, "part": part, "value": value });
    let words = "web is among [\"db\",\"web\"]";
    says(
        world,
        &guard,
        &ask("services", "names", "web"),
        Refused(words),
    )
    .await?;
    says(world, &guard, &ask("services", "apps", "other"), Admitted).await?;
    says(
        world,
        &guard,
        &ask("services", "nope", "web"),
        Refused("nope"),
    )
    .await?;
    says(
        world,
        &guard,
        &ask("pods", "names", "web"),
        Refused("cases-pods"),
    )
    .await?;
    world.delete(&entry).await?;
    says(
        world,
        &guard,
        &ask("services", "names", "web"),
        Refused("AR101"),
    )
    .await?;
    remove(world, &guard).await
}

/// A collection that the policy declares, asked with a variable.
async fn an_inline_cache(world: &World) -> anyhow::Result<()> {
    let guard = Guard::new(
        "inline",
        json!([{ "name": "count", "resourceCache": { "version": "v1", "kind": "services",
            "namespace": HOME,
            "jmesPath": "items[?metadata.labels.app=='{{ request.object.data.app }}'] | length(@)" } }]),
        deny(
            "there are {{ count }}",
            "{{ count }}",
            "GreaterThan",
            &json!(0),
        ),
    );
    install(world, &guard).await?;
    says(
        world,
        &guard,
        &json!({ "app": "db" }),
        Refused("there are 1"),
    )
    .await?;
    says(world, &guard, &json!({ "app": "x' || 'y" }), Admitted).await?;
    remove(world, &guard).await
}

/// Each element of a list has a call of its own.
async fn a_call_for_each_element(world: &World) -> anyhow::Result<()> {
    let path = "/api/v1/namespaces/{{ request.namespace }}/services/{{ element }}";
    let mut context = call("found", path, "metadata.name");
    context["apiCall"]["default"] = "".into();
    let guard = Guard::new(
        "each",
        json!([]),
        json!({ "message": "there is no Service {{ element }}", "foreach": [{
            "list": "request.object.data.services | split(@, ' ')",
            "context": [context],
            "deny": { "conditions": { "all": [
                { "key": "{{ found }}", "operator": "NotEquals", "value": "{{ element }}" }] } },
        }] }),
    );
    install(world, &guard).await?;
    says(
        world,
        &guard,
        &json!({ "services": "web db web" }),
        Admitted,
    )
    .await?;
    let words = "there is no Service nope";
    says(
        world,
        &guard,
        &json!({ "services": "web nope db" }),
        Refused(words),
    )
    .await?;
    remove(world, &guard).await
}

/// A fact that decides whether the rule applies; what the rule does not need is not read.
async fn a_call_in_a_precondition(world: &World) -> anyhow::Result<()> {
    let mut guard = Guard::new(
        "precondition",
        json!([
            call(
                "env",
                "/api/v1/namespaces/{{ request.namespace }}",
                "metadata.labels.env || ''"
            ),
            call(
                "nothing",
                "/api/v1/namespaces/{{ request.namespace }}/services/nope",
                "kind"
            ),
        ]),
        deny(
            "{{ nothing }}",
            "{{ nothing }}",
            "Equals",
            &json!("Service"),
        ),
    );
    guard.preconditions =
        json!({ "all": [{ "key": "{{ env }}", "operator": "Equals", "value": "prod" }] });
    install(world, &guard).await?;
    says(world, &guard, &json!({}), Admitted).await?;
    let labelled = |env: &str| {
        json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": HOME, "labels": { "env": env } } })
    };
    manifests::apply(&world.client, &labelled("prod")).await?;
    let words = "services \"nope\" not found";
    says(world, &guard, &json!({}), Refused(words)).await?;
    manifests::apply(&world.client, &labelled("test")).await?;
    says(world, &guard, &json!({}), Admitted).await?;
    remove(world, &guard).await
}

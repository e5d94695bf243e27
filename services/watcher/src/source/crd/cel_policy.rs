//! The definitions of the policies and exceptions of policies.kyverno.io, for clusters that do not have Kyverno's.
//! Each field is typed, so that the API server refuses a value of another type; expressions are checked when they are
//! compiled.

use anteroom_policy::PolicyKind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

/// The API group of these kinds.
const GROUP: &str = "policies.kyverno.io";

/// The versions of exceptions; all say the same. The first is stored.
const EXCEPTION_VERSIONS: &[&str] = &["v1", "v1beta1", "v1alpha1"];

/// The names of a kind.
struct KindNames {
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
}

/// Returns the definition of a kind of policies.kyverno.io.
pub(super) fn policy(kind: PolicyKind) -> CustomResourceDefinition {
    let names = KindNames {
        kind: kind.as_str(),
        plural: kind.plural(),
        short: match kind {
            PolicyKind::Cluster | PolicyKind::Validating => "vpol",
            PolicyKind::Namespaced | PolicyKind::NamespacedValidating => "nvpol",
            PolicyKind::Mutating => "mpol",
            PolicyKind::NamespacedMutating => "nmpol",
        },
    };
    let spec = match kind.is_mutating() {
        true => mutating_spec(),
        false => validating_spec(),
    };
    let schema = object(&["spec"], &json!({"spec": spec, "status": status()}));
    let columns = json!([
        {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "READY", "type": "string", "jsonPath": ".status.conditionStatus.ready"},
    ]);
    let version = json!({
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    });
    definition(&names, kind.is_namespaced(), kind.versions(), &version)
}

/// The definition of `PolicyException`.
pub(super) fn exception() -> CustomResourceDefinition {
    let names = KindNames {
        kind: "PolicyException",
        plural: "policyexceptions",
        short: "polex",
    };
    let policy = object(&["kind", "name"], &json!({"kind": text(), "name": text()}));
    let spec = object(
        &["policyRefs"],
        &json!({
            "allowedValues": list(&text()),
            "evaluationMode": text(),
            "expiresAt": {"type": "string", "format": "date-time"},
            "images": list(&text()),
            "matchConditions": conditions(),
            "policyRefs": list(&policy),
            "properties": {"type": "object", "additionalProperties": text()},
            "reportResult": {"type": "string", "enum": ["skip", "pass"], "default": "skip"},
        }),
    );
    let schema = object(&["spec"], &json!({"spec": spec}));
    let version = json!({"schema": {"openAPIV3Schema": schema}});
    definition(&names, true, EXCEPTION_VERSIONS, &version)
}

/// Returns a definition with the same schema under each of these version names; the first version is stored.
fn definition(
    names: &KindNames,
    is_namespaced: bool,
    versions: &[&str],
    version: &Value,
) -> CustomResourceDefinition {
    let named = versions.iter().enumerate().map(|(at, name)| {
        let mut version = version.clone();
        version["name"] = (*name).into();
        version["served"] = true.into();
        version["storage"] = (at == 0).into();
        if *name == "v1alpha1" {
            version["deprecated"] = true.into();
        }
        let schema = &mut version["schema"]["openAPIV3Schema"]["properties"];
        schema["apiVersion"] = text();
        schema["kind"] = text();
        schema["metadata"] = json!({"type": "object"});
        version
    });
    let KindNames {
        kind,
        plural,
        short,
    } = names;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                "singular": kind.to_lowercase(), "shortNames": [short], "categories": ["kyverno"],
            },
            "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
            "versions": named.collect::<Vec<_>>(),
        },
    });
    #[expect(clippy::expect_used, reason = "a constant, built by the unit test")]
    serde_json::from_value(definition).expect("a definition")
}

fn validating_spec() -> Value {
    let validation = object(
        &["expression"],
        &json!({
            "expression": text(), "message": text(), "messageExpression": text(), "reason": text(),
        }),
    );
    let actions = json!({"type": "string", "enum": ["Deny", "Audit", "Warn"]});
    let own = json!({
        "auditAnnotations": audit_annotations(),
        "autogen": autogen("validatingAdmissionPolicy"),
        "evaluation": object(&[], &json!({
            "admission": enabled(), "background": enabled(), "mode": text(),
        })),
        "validationActions": list(&actions),
        "validations": list(&validation),
    });
    spec(own)
}

fn mutating_spec() -> Value {
    let expression = || object(&["expression"], &json!({"expression": text()}));
    let mutation = object(
        &["patchType"],
        &json!({
            "patchType": {"type": "string", "enum": ["ApplyConfiguration", "JSONPatch"]},
            "applyConfiguration": expression(),
            "jsonPatch": expression(),
        }),
    );
    let mut targets = constraints();
    targets["properties"]["expression"] = text();
    let own = json!({
        "auditAnnotations": audit_annotations(),
        "autogen": autogen("mutatingAdmissionPolicy"),
        "evaluation": object(&[], &json!({
            "admission": enabled(), "background": enabled(), "mode": text(), "mutateExisting": enabled(),
            "skipBackgroundRequests": boolean(), "useServerSideApply": boolean(),
        })),
        "mutations": list(&mutation),
        "reinvocationPolicy": {"type": "string", "enum": ["Never", "IfNeeded"]},
        "targetMatchConditions": conditions(),
        "targetMatchConstraints": targets,
    });
    spec(own)
}

fn audit_annotations() -> Value {
    list(&object(
        &["key", "valueExpression"],
        &json!({"key": text(), "valueExpression": text()}),
    ))
}

/// A spec with the fields that all kinds have, beside its own.
fn spec(mut fields: Value) -> Value {
    for (name, field) in [
        (
            "failurePolicy",
            json!({"type": "string", "enum": ["Ignore", "Fail"]}),
        ),
        ("matchConditions", conditions()),
        ("matchConstraints", constraints()),
        ("variables", conditions()),
        ("webhookConfiguration", webhook()),
    ] {
        fields[name] = field;
    }
    object(&[], &fields)
}

fn webhook() -> Value {
    let seconds = json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 30});
    object(&[], &json!({"timeoutSeconds": seconds}))
}

fn autogen(native: &str) -> Value {
    let controllers = object(&[], &json!({"controllers": list(&text())}));
    let mut fields = Map::new();
    fields.insert("podControllers".to_owned(), controllers);
    fields.insert(native.to_owned(), enabled());
    object(&[], &Value::Object(fields))
}

/// `MatchResources` of Kubernetes.
fn constraints() -> Value {
    let operation = json!({
        "type": "string", "enum": ["CREATE", "UPDATE", "DELETE", "CONNECT", "*"],
    });
    let rule = object(
        &[],
        &json!({
            "apiGroups": list(&text()), "apiVersions": list(&text()), "operations": list(&operation),
            "resourceNames": list(&text()), "resources": list(&text()),
            "scope": {"type": "string", "enum": ["Cluster", "Namespaced", "*"]},
        }),
    );
    object(
        &[],
        &json!({
            "excludeResourceRules": list(&rule),
            "matchPolicy": {"type": "string", "enum": ["Exact", "Equivalent"]},
            "namespaceSelector": selector(),
            "objectSelector": selector(),
            "resourceRules": list(&rule),
        }),
    )
}

fn selector() -> Value {
    let requirement = object(
        &["key", "operator"],
        &json!({"key": text(), "operator": text(), "values": list(&text())}),
    );
    object(
        &[],
        &json!({
            "matchExpressions": list(&requirement),
            "matchLabels": {"type": "object", "additionalProperties": text()},
        }),
    )
}

/// Named expressions: conditions or variables, each name once.
fn conditions() -> Value {
    let condition = object(
        &["name", "expression"],
        &json!({"name": text(), "expression": text()}),
    );
    let mut all = list(&condition);
    all["x-kubernetes-list-type"] = "map".into();
    all["x-kubernetes-list-map-keys"] = json!(["name"]);
    all
}

fn status() -> Value {
    let condition = object(
        &["type", "status", "lastTransitionTime", "reason", "message"],
        &json!({
            "type": text(),
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32768},
        }),
    );
    let condition_status = object(
        &[],
        &json!({"conditions": list(&condition), "message": text(), "ready": boolean()}),
    );
    let target = object(
        &["kind", "resource", "version"],
        &json!({"group": text(), "kind": text(), "resource": text(), "version": text()}),
    );
    // A derived policy, which nobody reads back.
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let config = object(
        &["spec", "targets"],
        &json!({"spec": spec, "targets": list(&target)}),
    );
    let configs = json!({"type": "object", "additionalProperties": config});
    object(
        &[],
        &json!({
            "autogen": object(&[], &json!({"configs": configs})),
            "conditionStatus": condition_status,
            "generated": boolean(),
        }),
    )
}

fn text() -> Value {
    json!({"type": "string"})
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

fn enabled() -> Value {
    object(&[], &json!({"enabled": boolean()}))
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn object(required: &[&str], properties: &Value) -> Value {
    match required {
        [] => json!({"type": "object", "properties": properties}),
        _ => json!({"type": "object", "required": required, "properties": properties}),
    }
}

//! The worker on a `MutatingPolicy`.

use super::*;

/// ConfigMaps that are updated write their `data.a` to the Pods with a label.
fn catalog_in_cel() -> Arc<Catalog> {
    let rules = |plural: &str| json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [plural]}]);
    let manifest = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "MutatingPolicy", "metadata": {"name": "p"},
        "spec": {
            "evaluation": {"mutateExisting": {"enabled": true}},
            "matchConstraints": {"resourceRules": rules("configmaps")},
            "targetMatchConstraints": {"resourceRules": rules("pods")},
            "targetMatchConditions": [
                {"name": "named", "expression": "object.metadata.namespace == 'shop'"},
            ],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
                "[JSONPatch{op: 'add', path: '/spec', value: {'a': request.?object.?data.?a.orValue('none')}}]"}}],
        },
    });
    let body = body::encode_json(&manifest).unwrap();
    let key = ObjectKey::new("", "MutatingPolicy/p");
    let policies = PolicySet::build(&PolicySet::default(), [(key, body)]);
    Arc::new(Catalog {
        policies: Arc::new(policies),
        ..Catalog::default()
    })
}

fn name() -> RuleName {
    RuleName::new(ObjectKey::new("", "MutatingPolicy/p"), "")
}

fn with_resource(object: &Value, kind: &str, plural: &str) -> AdmissionRequest {
    let request = json!({
        "operation": "UPDATE", "kind": {"group": "", "version": "v1", "kind": kind},
        "resource": {"group": "", "version": "v1", "resource": plural},
        "namespace": "shop", "name": object["metadata"]["name"], "object": object, "oldObject": object,
    });
    AdmissionRequest::new(request).unwrap()
}

/// A watcher that says what it was asked for. The first write of a Pod meets a conflict.
fn telling() -> (Arc<Mutex<Vec<String>>>, impl Fn(LiveCall) -> WatcherAnswer) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (into, conflicts) = (Arc::clone(&told), AtomicUsize::new(0));
    let say = move |call| {
        Some(match call {
            LiveCall::Existing { objects } if objects.target.is_none() => {
                into.lock().push(format!("look {objects}"));
                (0, Ok(json!({"items": [with_data("2", "stored")]})))
            }
            LiveCall::Existing { objects } => {
                into.lock().push(format!("read {objects}"));
                (0, Ok(json!({"items": [pod("shop"), pod("other")]})))
            }
            LiveCall::Write { target, object } => {
                let a = object["spec"]["a"].as_str().unwrap();
                into.lock().push(format!("write {target} {a}"));
                let said = match conflicts.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(FactError::WriteFailed {
                        code: 409,
                        message: "no".into(),
                    }),
                    _ => Ok(Value::Null),
                };
                (0, said)
            }
            other => panic!("{other:?}"),
        })
    };
    (told, say)
}

#[tokio::test(start_paused = true)]
async fn a_mutating_policy_writes_its_targets_for_what_is_stored() {
    let (_, catalogs) = watch::channel(Some(catalog_in_cel()));
    let (told, say) = telling();
    let world = World::with_look_ups(catalogs, false, say).await;
    let request = with_resource(&with_data("1", "said"), "ConfigMap", "configmaps");
    assert!(world.work_for(&name(), &request).await);
    let told = told.lock();
    assert_eq!(
        *told,
        [
            "look v1/ConfigMap shop/c",
            "read v1/pods */*",
            "write 0 stored",
            // After the conflict all is evaluated anew.
            "read v1/pods */*",
            "write 0 stored",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_mutating_policy_writes_each_target_by_itself() {
    let (_, catalogs) = watch::channel(Some(catalog_in_cel()));
    let (told, say) = telling();
    let world = World::with_look_ups(catalogs, false, say).await;
    let request = with_resource(&pod("shop"), "Pod", "pods");
    let (worker, name) = (&world.worker, name());
    let is_well = worker.work_on_existing(&name, &request).await;
    assert!(is_well);
    assert_eq!(
        *told.lock(),
        [
            "read v1/Pod shop/x",
            "write 0 none",
            "read v1/Pod shop/x",
            "write 0 none"
        ]
    );
}

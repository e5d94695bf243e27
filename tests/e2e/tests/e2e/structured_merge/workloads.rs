//! Random objects of Kubernetes' own kinds, and random partial ones. Names come from few, so that they meet.

use serde_json::{Value, json};

use super::dice::{Dice, Part};

/// The percentage of partial objects with an atomic field, which the API server refuses.
const ATOMIC: u32 = 1;

/// An atomic field: often in a whole object, seldom in a patch.
fn atomic(part: Part) -> u32 {
    match part {
        Part::Whole => 30,
        Part::Patch => ATOMIC,
    }
}

pub(super) fn metadata(dice: &mut Dice, part: Part) -> Value {
    let mut made = json!({});
    dice.maybe(&mut made, "labels", 50, |dice| {
        dice.map(&["x", "y", "z"], &["1", "2"])
    });
    dice.maybe(&mut made, "annotations", 40, |dice| {
        dice.map(&["example.com/a", "note", "b"], &["1", "2"])
    });
    dice.maybe(&mut made, "finalizers", 30, |dice| {
        let all = [
            "example.com/a",
            "example.com/b",
            "example.com/c",
            "example.com/d",
        ];
        json!(dice.some_twice(&all, part))
    });
    // Each is atomic in itself.
    dice.maybe(&mut made, "ownerReferences", atomic(part), |dice| {
        let owner =
            |name| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name});
        dice.some(&["a", "b", "c"]).into_iter().map(owner).collect()
    });
    made
}

pub(super) fn config_map(dice: &mut Dice, part: Part) -> Value {
    let mut made = json!({});
    dice.maybe(&mut made, "data", 80, |dice| {
        dice.map(&["a", "b", "c.txt"], &["1", "2", ""])
    });
    dice.maybe(&mut made, "binaryData", 30, |dice| {
        dice.map(&["d", "e"], &["AA==", "AQ=="])
    });
    dice.maybe(&mut made, "immutable", 20, |dice| dice.chance(50).into());
    made["metadata"] = metadata(dice, part);
    made
}

pub(super) fn service(dice: &mut Dice, part: Part) -> Value {
    let all: Vec<(u16, &str)> = vec![
        (80, "TCP"),
        (80, "UDP"),
        (81, "TCP"),
        (82, "TCP"),
        (82, "UDP"),
    ];
    let ports = dice
        .some_twice(&all, Part::Patch)
        .into_iter()
        .map(|(port, protocol)| {
            let mut made =
                json!({"port": port, "name": format!("p{port}{}", protocol.to_lowercase())});
            if protocol != "TCP" || dice.chance(50) {
                made["protocol"] = protocol.into();
            }
            dice.maybe(&mut made, "targetPort", 40, |dice| {
                dice.pick(&[json!(8080), json!("http")])
            });
            dice.maybe(&mut made, "appProtocol", 20, |dice| {
                dice.pick(&["http", "tcp"]).into()
            });
            made
        });
    let ports: Vec<Value> = ports.collect();
    let mut spec = json!({});
    match part {
        Part::Whole if ports.is_empty() => spec["ports"] = json!([{"port": 80, "name": "p80tcp"}]),
        Part::Whole => spec["ports"] = ports.into(),
        Part::Patch => dice.maybe(&mut spec, "ports", 80, |_| ports.into()),
    }
    if part == Part::Whole {
        spec["clusterIP"] = "None".into();
    }
    dice.maybe(&mut spec, "selector", atomic(part), |dice| {
        dice.map(&["x", "y"], &["1"])
    });
    if dice.chance(20) {
        spec["sessionAffinity"] = "ClientIP".into();
        dice.maybe(
            &mut spec,
            "sessionAffinityConfig",
            50,
            |_| json!({"clientIP": {"timeoutSeconds": 30}}),
        );
    }
    dice.maybe(&mut spec, "publishNotReadyAddresses", 20, |_| true.into());
    dice.maybe(
        &mut spec,
        "sessionAffinityConfig",
        10,
        |_| json!({"clientIP": {"timeoutSeconds": 30}}),
    );
    dice.maybe(&mut spec, "externalIPs", ATOMIC, |_| json!(["192.0.2.7"]));
    json!({"metadata": metadata(dice, part), "spec": spec})
}

pub(super) fn ingress(dice: &mut Dice, part: Part) -> Value {
    let mut spec = json!({});
    let backend = |dice: &mut Dice| {
        let port = dice.pick(&[
            json!({"number": 80}),
            json!({"number": 81}),
            json!({"name": "http"}),
        ]);
        json!({"service": {"name": dice.pick(&["a", "b"]), "port": port}})
    };
    match part {
        Part::Whole => spec["defaultBackend"] = backend(dice),
        Part::Patch => dice.maybe(&mut spec, "defaultBackend", 40, backend),
    }
    dice.maybe(&mut spec, "ingressClassName", 40, |dice| {
        dice.pick(&["a", "b"]).into()
    });
    dice.maybe(
        &mut spec,
        "rules",
        atomic(part),
        |_| json!([{"host": "a.example.com"}]),
    );
    dice.maybe(
        &mut spec,
        "tls",
        atomic(part),
        |_| json!([{"hosts": ["a.example.com"]}]),
    );
    json!({"metadata": metadata(dice, part), "spec": spec})
}

pub(super) fn pod(dice: &mut Dice, part: Part) -> Value {
    json!({"metadata": metadata(dice, part), "spec": pod_spec(dice, part)})
}

pub(super) fn deployment(dice: &mut Dice, part: Part) -> Value {
    let mut template = json!({"spec": pod_spec(dice, part)});
    template["metadata"] = json!({"labels": dice.map(&["x", "y"], &["1", "2"])});
    let mut spec = json!({});
    match part {
        Part::Whole => {
            template["metadata"]["labels"]["app"] = "it".into();
            spec["selector"] = json!({"matchLabels": {"app": "it"}});
            spec["template"] = template;
        }
        Part::Patch => {
            dice.maybe(&mut spec, "template", 85, |_| template);
            dice.maybe(
                &mut spec,
                "selector",
                ATOMIC,
                |_| json!({"matchLabels": {"app": "it"}}),
            );
        }
    }
    dice.maybe(&mut spec, "replicas", 40, |dice| dice.below(4).into());
    dice.maybe(&mut spec, "paused", 20, |dice| dice.chance(50).into());
    dice.maybe(&mut spec, "minReadySeconds", 20, |dice| {
        dice.below(9).into()
    });
    dice.maybe(&mut spec, "strategy", 40, |dice| {
        let mut update = json!({});
        for name in ["maxSurge", "maxUnavailable"] {
            dice.maybe(&mut update, name, 60, |dice| {
                dice.pick(&[json!(1), json!(2), json!("50%")])
            });
        }
        json!({"type": "RollingUpdate", "rollingUpdate": update})
    });
    json!({"metadata": metadata(dice, part), "spec": spec})
}

fn pod_spec(dice: &mut Dice, part: Part) -> Value {
    let mut spec = json!({});
    let named = |dice: &mut Dice, all: &[&str]| {
        let mut names = dice.some(all);
        if names.is_empty() {
            names.extend(all.first());
        }
        let made = names.into_iter().map(|name| container(dice, part, name));
        Value::from(made.collect::<Vec<_>>())
    };
    if part == Part::Whole || dice.chance(75) {
        spec["containers"] = named(dice, &["a", "b", "c", "d"]);
    }
    if dice.chance(25) {
        spec["initContainers"] = named(dice, &["i", "j", "k"]);
    }
    let volume = |dice: &mut Dice, name: &str| {
        let mut source = json!({});
        dice.maybe(&mut source, "medium", 40, |_| "Memory".into());
        dice.maybe(&mut source, "sizeLimit", 40, |dice| {
            dice.pick(&["1Mi", "2Mi"]).into()
        });
        json!({"name": name, "emptyDir": source})
    };
    let volumes: Vec<&str> = match part {
        Part::Whole => vec!["v", "w"],
        Part::Patch => dice.some(&["u", "v", "w", "z"]),
    };
    if !volumes.is_empty() {
        spec["volumes"] = volumes.into_iter().map(|name| volume(dice, name)).collect();
    }
    dice.maybe(&mut spec, "imagePullSecrets", 35, |dice| {
        let some = dice.some_twice(&["s", "t", "u"], part);
        some.into_iter().map(|name| json!({"name": name})).collect()
    });
    dice.maybe(&mut spec, "hostAliases", 20, |dice| {
        let some = dice.some(&["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
        let alias = |ip| {
            let mut made = json!({"ip": ip});
            dice.maybe(&mut made, "hostnames", atomic(part), |_| {
                json!(["a.example.com"])
            });
            made
        };
        some.into_iter().map(alias).collect()
    });
    dice.maybe(&mut spec, "topologySpreadConstraints", 20, |dice| {
        let keys = ["zone", "host"].map(|key| ["DoNotSchedule", "ScheduleAnyway"].map(|unsatisfiable| (key, unsatisfiable)));
        let some = dice.some(&keys.concat());
        let constraint = |(key, unsatisfiable)| {
            json!({"topologyKey": key, "whenUnsatisfiable": unsatisfiable, "maxSkew": 1 + dice.below(3)})
        };
        some.into_iter().map(constraint).collect()
    });
    dice.maybe(&mut spec, "terminationGracePeriodSeconds", 30, |dice| {
        (1 + dice.below(60)).into()
    });
    dice.maybe(&mut spec, "hostNetwork", 10, |_| false.into());
    dice.maybe(&mut spec, "securityContext", 30, |dice| {
        let mut made = json!({});
        dice.maybe(&mut made, "runAsUser", 50, |dice| {
            (1 + dice.below(9)).into()
        });
        dice.maybe(&mut made, "fsGroup", 50, |dice| (1 + dice.below(9)).into());
        dice.maybe(
            &mut made,
            "seccompProfile",
            30,
            |_| json!({"type": "RuntimeDefault"}),
        );
        made
    });
    dice.maybe(&mut spec, "nodeSelector", atomic(part), |dice| {
        dice.map(&["x", "y"], &["1"])
    });
    dice.maybe(
        &mut spec,
        "tolerations",
        atomic(part),
        |_| json!([{"key": "a", "operator": "Exists"}]),
    );
    spec
}

fn container(dice: &mut Dice, part: Part, name: &str) -> Value {
    let mut made = json!({ "name": name });
    let image = match part {
        Part::Whole => 100,
        Part::Patch => 85,
    };
    dice.maybe(&mut made, "image", image, |dice| {
        dice.pick(&["one:1", "two:2", "three"]).into()
    });
    dice.maybe(&mut made, "imagePullPolicy", 20, |dice| {
        dice.pick(&["Always", "Never"]).into()
    });
    dice.maybe(&mut made, "env", 50, |dice| {
        let some = dice.some_twice(&["A", "B", "C", "D"], part);
        let variable = |name| json!({"name": name, "value": dice.pick(&["1", "2"])});
        some.into_iter().map(variable).collect()
    });
    dice.maybe(&mut made, "ports", 50, |dice| {
        let all = [
            (80, None),
            (80, Some("TCP")),
            (80, Some("UDP")),
            (81, None),
            (82, Some("TCP")),
        ];
        let some = match part {
            Part::Whole => dice.some_twice(&all, part),
            // These two are one port.
            Part::Patch => dice.some(&all[1..]),
        };
        let port = |(port, protocol): (u16, Option<&str>)| {
            let mut made = json!({"containerPort": port});
            if let Some(protocol) = protocol {
                made["protocol"] = protocol.into();
            }
            dice.maybe(&mut made, "hostIP", 20, |_| "192.0.2.9".into());
            made
        };
        some.into_iter().map(port).collect()
    });
    dice.maybe(&mut made, "volumeMounts", 40, |dice| {
        let some = dice.some(&["/v", "/w", "/x"]);
        let mount = |path| {
            let mut made = json!({"mountPath": path, "name": dice.pick(&["v", "w"])});
            dice.maybe(&mut made, "readOnly", 40, |dice| dice.chance(50).into());
            made
        };
        some.into_iter().map(mount).collect()
    });
    dice.maybe(&mut made, "resources", 40, |dice| {
        let mut made = json!({});
        dice.maybe(&mut made, "limits", 70, |dice| {
            dice.map(&["cpu", "memory"], &["1", "2"])
        });
        made
    });
    dice.maybe(&mut made, "securityContext", 25, |dice| {
        let mut made = json!({});
        dice.maybe(&mut made, "runAsNonRoot", 50, |dice| dice.chance(50).into());
        dice.maybe(&mut made, "capabilities", 30, |dice| {
            let mut made = json!({});
            dice.maybe(&mut made, "add", atomic(part), |_| json!(["CHOWN"]));
            made
        });
        made
    });
    // An init container has none.
    let probe = if ["i", "j", "k"].contains(&name) {
        0
    } else {
        20
    };
    dice.maybe(&mut made, "livenessProbe", probe, |dice| {
        let port = dice.pick(&[json!(80), json!("http")]);
        let mut made = json!({"httpGet": {"path": dice.pick(&["/a", "/b"]), "port": port}});
        dice.maybe(&mut made, "periodSeconds", 50, |dice| {
            (1 + dice.below(9)).into()
        });
        made
    });
    dice.maybe(&mut made, "command", atomic(part), |_| json!(["run"]));
    made
}

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::any_json;

mod forms;
mod hostile;

fn security(level: Level, version: Option<u32>) -> PodSecurity {
    PodSecurity {
        level,
        version: Version(version),
        exclusions: Vec::new(),
    }
}

/// Control, path and values of each violation, in one line.
fn found(security: &PodSecurity, pod: &Value) -> Vec<String> {
    let pod = Pod::of(pod).unwrap();
    let shown = |v: &Violation| format!("{}: {} [{}]", v.control, v.path, v.values.join(" "));
    security.violations(&pod).iter().map(shown).collect()
}

/// Returns a compliant Pod with these fields in its spec and in its only container.
fn pod(spec: &Value, container: &Value) -> Value {
    let mut whole = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "reg/app:1", "securityContext":
            {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
    });
    merge(&mut whole["containers"][0], container);
    merge(&mut whole, spec);
    json!({"kind": "Pod", "metadata": {}, "spec": whole})
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A case: a container's security context, or the Pod's spec.
struct Row {
    level: Level,
    version: Option<u32>,
    spec: Value,
    container: Value,
    expected: &'static [&'static str],
}

fn row(
    level: Level,
    version: impl Into<Option<u32>>,
    spec: Value,
    context: impl Into<Value>,
    expected: &'static [&'static str],
) -> Row {
    Row {
        level,
        version: version.into(),
        spec,
        container: json!({"securityContext": context.into()}),
        expected,
    }
}

fn check(rows: Vec<Row>) {
    for row in rows {
        let pod = pod(&row.spec, &row.container);
        let (spec, container) = (&row.spec, &row.container);
        let found = found(&security(row.level, row.version), &pod);
        assert_eq!(found, row.expected, "{:?} {spec} {container}", row.level);
    }
}

#[test]
fn a_good_pod_has_no_violations_at_any_level() {
    let good = pod(&json!({}), &json!({}));
    for level in [Level::Privileged, Level::Baseline, Level::Restricted] {
        assert_eq!(found(&security(level, None), &good), Vec::<String>::new());
    }
}

#[test]
fn baseline_forbids_fields_of_security_contexts() {
    use Level::Baseline as B;
    let none = || json!({});
    check(vec![
        row(
            B,
            None,
            none(),
            json!({"windowsOptions": {"hostProcess": true}}),
            &["HostProcess: spec.containers[0].securityContext.windowsOptions.hostProcess [true]"],
        ),
        row(
            B,
            None,
            json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
            none(),
            &["HostProcess: spec.securityContext.windowsOptions.hostProcess [true]"],
        ),
        row(
            B,
            None,
            json!({"hostNetwork": true, "hostPID": true, "hostIPC": false}),
            none(),
            &[
                "Host Namespaces: spec.hostNetwork [true]",
                "Host Namespaces: spec.hostPID [true]",
            ],
        ),
        row(
            B,
            None,
            none(),
            json!({"privileged": true}),
            &["Privileged Containers: spec.containers[0].securityContext.privileged [true]"],
        ),
        row(B, None, none(), json!({"privileged": false}), &[]),
        row(
            B,
            None,
            none(),
            json!({"capabilities": {"add": ["KILL", "SYS_ADMIN", "NET_RAW"]}}),
            &[
                "Capabilities: spec.containers[0].securityContext.capabilities.add [SYS_ADMIN NET_RAW]",
            ],
        ),
        row(
            B,
            None,
            json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/x"}}]}),
            none(),
            &["HostPath Volumes: spec.volumes[1].hostPath [/x]"],
        ),
        row(
            B,
            None,
            none(),
            json!({"seLinuxOptions": {"type": "spc_t", "user": "u", "role": ""}}),
            &[
                "SELinux: spec.containers[0].securityContext.seLinuxOptions.type [spc_t]",
                "SELinux: spec.containers[0].securityContext.seLinuxOptions.user [u]",
            ],
        ),
        row(
            B,
            30,
            json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}}),
            none(),
            &["SELinux: spec.securityContext.seLinuxOptions.type [container_engine_t]"],
        ),
        row(
            B,
            31,
            json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}}),
            none(),
            &[],
        ),
        row(
            B,
            None,
            none(),
            json!({"procMount": "Unmasked"}),
            &["/proc Mount Type: spec.containers[0].securityContext.procMount [Unmasked]"],
        ),
        row(B, None, none(), json!({"procMount": "Default"}), &[]),
        row(
            B,
            None,
            none(),
            json!({"seccompProfile": {"type": "Unconfined"}}),
            &["Seccomp: spec.containers[0].securityContext.seccompProfile.type [Unconfined]"],
        ),
        row(
            B,
            None,
            json!({"securityContext": {"seccompProfile": null}}),
            none(),
            &[],
        ),
        row(
            B,
            None,
            none(),
            json!({"appArmorProfile": {"type": "Unconfined"}}),
            &["AppArmor: spec.containers[0].securityContext.appArmorProfile.type [Unconfined]"],
        ),
        row(
            B,
            None,
            json!({"securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced"}, {"name": "kernel.msgmax"}]}}),
            none(),
            &["Sysctls: spec.securityContext.sysctls[1].name [kernel.msgmax]"],
        ),
        row(
            B,
            26,
            json!({"securityContext": {"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports"}]}}),
            none(),
            &["Sysctls: spec.securityContext.sysctls[0].name [net.ipv4.ip_local_reserved_ports]"],
        ),
        row(
            B,
            27,
            json!({"securityContext": {"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports"}]}}),
            none(),
            &[],
        ),
    ]);
}

#[test]
fn baseline_forbids_fields_outside_of_security_contexts() {
    let ports = pod(
        &json!({}),
        &json!({"ports": [{"containerPort": 1}, {"hostPort": 0}, {"hostPort": 80}]}),
    );
    let expected = ["Host Ports: spec.containers[0].ports[2].hostPort [80]"];
    assert_eq!(found(&security(Level::Baseline, None), &ports), expected);

    let probe = pod(
        &json!({}),
        &json!({"livenessProbe": {"httpGet": {"host": "10.0.0.1"}}, "lifecycle": {"preStop": {"tcpSocket": {"host": ""}}}}),
    );
    let expected =
        ["Host Probes / Lifecycle Hooks: spec.containers[0].livenessProbe.httpGet.host [10.0.0.1]"];
    assert_eq!(found(&security(Level::Baseline, None), &probe), expected);
    // Also for a version that is older than the check.
    assert_eq!(
        found(&security(Level::Baseline, Some(33)), &probe),
        expected
    );

    let mut annotated = pod(&json!({}), &json!({}));
    annotated["metadata"]["annotations"] = json!({
        "container.apparmor.security.beta.kubernetes.io/a": "unconfined",
        "container.apparmor.security.beta.kubernetes.io/b": "localhost/x",
        "container.apparmor.security.beta.kubernetes.io/c": "runtime/default",
        "other": "unconfined",
    });
    let expected = [
        "AppArmor: metadata.annotations[container.apparmor.security.beta.kubernetes.io/a] [unconfined]",
    ];
    assert_eq!(
        found(&security(Level::Baseline, None), &annotated),
        expected
    );
}

#[test]
fn restricted_forbids_more_than_baseline() {
    use Level::Restricted as R;
    let none = || json!({});
    let windows = || json!({"os": {"name": "windows"}});
    let open = || json!({"allowPrivilegeEscalation": null, "capabilities": {"drop": []}});
    check(vec![
        row(
            R,
            None,
            json!({"volumes": [{"name": "a", "hostPath": {"path": "/x"}}, {"name": "b", "nfs": {}}, {"name": "c", "secret": {}}]}),
            none(),
            &[
                "HostPath Volumes: spec.volumes[0].hostPath [/x]",
                "Volume Types: spec.volumes[0].hostPath [hostPath]",
                "Volume Types: spec.volumes[1].nfs [nfs]",
            ],
        ),
        row(
            R,
            None,
            none(),
            json!({"allowPrivilegeEscalation": true}),
            &[
                "Privilege Escalation: spec.containers[0].securityContext.allowPrivilegeEscalation [true]",
            ],
        ),
        row(
            R,
            None,
            none(),
            open(),
            &[
                "Privilege Escalation: spec.containers[0].securityContext.allowPrivilegeEscalation [nil]",
                "Capabilities: spec.containers[0].securityContext.capabilities.drop []",
            ],
        ),
        row(R, None, windows(), open(), &[]),
        row(
            R,
            24,
            windows(),
            open(),
            &[
                "Privilege Escalation: spec.containers[0].securityContext.allowPrivilegeEscalation [nil]",
                "Capabilities: spec.containers[0].securityContext.capabilities.drop []",
            ],
        ),
        row(
            R,
            21,
            none(),
            json!({"capabilities": {"drop": []}}),
            &["Capabilities: spec.containers[0].securityContext.capabilities.drop []"],
        ),
        row(
            R,
            21,
            none(),
            json!({"capabilities": {"add": ["KILL", "SYS_ADMIN"]}}),
            &[
                "Capabilities: spec.containers[0].securityContext.capabilities.add [SYS_ADMIN]",
                "Capabilities: spec.containers[0].securityContext.capabilities.add [KILL SYS_ADMIN]",
            ],
        ),
        row(
            R,
            None,
            none(),
            json!({"capabilities": {"add": ["KILL", "NET_BIND_SERVICE"]}}),
            &["Capabilities: spec.containers[0].securityContext.capabilities.add [KILL]"],
        ),
        row(
            R,
            None,
            json!({"securityContext": {"runAsNonRoot": null}}),
            none(),
            &["Running as Non-root: spec.containers[0].securityContext.runAsNonRoot []"],
        ),
        row(
            R,
            None,
            json!({"securityContext": {"runAsNonRoot": null}}),
            json!({"runAsNonRoot": true}),
            &[],
        ),
        row(
            R,
            None,
            json!({"securityContext": {"runAsNonRoot": false}}),
            json!({"runAsNonRoot": false}),
            &[
                "Running as Non-root: spec.securityContext.runAsNonRoot [false]",
                "Running as Non-root: spec.containers[0].securityContext.runAsNonRoot [false]",
            ],
        ),
        row(
            R,
            None,
            none(),
            json!({"runAsUser": 0}),
            &["Running as Non-root user: spec.containers[0].securityContext.runAsUser [0]"],
        ),
        row(
            R,
            22,
            none(),
            json!({"runAsUser": 0}),
            &["Running as Non-root user: spec.containers[0].securityContext.runAsUser [0]"],
        ),
        row(
            R,
            None,
            json!({"securityContext": {"seccompProfile": null}}),
            none(),
            &["Seccomp: spec.containers[0].securityContext.seccompProfile.type []"],
        ),
        row(
            R,
            None,
            json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
            none(),
            &[
                "Seccomp: spec.securityContext.seccompProfile.type [Unconfined]",
                "Seccomp: spec.securityContext.seccompProfile.type [Unconfined]",
            ],
        ),
    ]);
}

#[test]
fn pods_of_controllers_and_all_their_containers() {
    let bad = json!({"initContainers": [{"image": "i", "securityContext": {"privileged": true}}],
        "ephemeralContainers": [{"image": "e", "securityContext": {"privileged": true}}]});
    let expected = [
        "Privileged Containers: spec.initContainers[0].securityContext.privileged [true]",
        "Privileged Containers: spec.ephemeralContainers[0].securityContext.privileged [true]",
    ];
    for object in [
        json!({"kind": "Pod", "spec": bad}),
        json!({"kind": "Deployment", "spec": {"template": {"spec": bad}}}),
        json!({"kind": "PodTemplate", "template": {"spec": bad}}),
        json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": bad}}}}}),
    ] {
        assert_eq!(found(&security(Level::Baseline, None), &object), expected);
    }
    assert!(Pod::of(&json!({"kind": "Service", "spec": {}})).is_none());
}

#[test]
fn exclusions_exempt_controls_images_fields_and_values() {
    let exclusion = |control: &str, images: &[&str], field: &str, values: &[&str]| Exclusion {
        control: control.to_owned(),
        images: images.iter().map(|text| (*text).to_owned()).collect(),
        field: Some(field)
            .filter(|field| !field.is_empty())
            .map(str::to_owned),
        values: values.iter().map(|text| (*text).to_owned()).collect(),
    };
    let bad = pod(
        &json!({"hostNetwork": true, "volumes": [{"hostPath": {"path": "/var/run"}}]}),
        &json!({"securityContext": {"capabilities": {"add": ["SYS_ADMIN", "NET_RAW"]}}}),
    );
    let (caps, net, path) = ("Capabilities", "Host Namespaces", "HostPath Volumes");
    let add = "spec.containers[*].securityContext.capabilities.add";
    let table = [
        (exclusion(caps, &["reg/*"], "", &[]), vec![net, path]),
        (
            exclusion(caps, &["other/*"], "", &[]),
            vec![net, caps, path],
        ),
        // Without images it is about what the Pod itself says.
        (exclusion(caps, &[], "", &[]), vec![net, caps, path]),
        (
            exclusion(caps, &["*"], add, &["SYS_*", "NET_RAW"]),
            vec![net, path],
        ),
        (
            exclusion(caps, &["*"], add, &["SYS_*"]),
            vec![net, caps, path],
        ),
        (
            exclusion(
                caps,
                &["*"],
                "spec.initContainers[*].securityContext.capabilities.add",
                &[],
            ),
            vec![net, caps, path],
        ),
        (
            exclusion(net, &[], "spec.hostNetwork", &["true"]),
            vec![caps, path],
        ),
        (
            exclusion(net, &[], "spec.hostPID", &[]),
            vec![net, caps, path],
        ),
        (
            exclusion(path, &[], "spec.volumes[*].hostPath", &["/var/*"]),
            vec![net, caps],
        ),
        (
            exclusion(path, &[], "spec.volumes[*]", &[]),
            vec![net, caps, path],
        ),
        (
            exclusion(path, &[], "spec.volumes[*].host", &[]),
            vec![net, caps, path],
        ),
        (exclusion("SELinux", &[], "", &[]), vec![net, caps, path]),
    ];
    for (exclusion, expected) in table {
        let shown = format!("{exclusion:?}");
        let security = PodSecurity {
            exclusions: vec![exclusion],
            ..security(Level::Baseline, None)
        };
        let found = security.violations(&Pod::of(&bad).unwrap());
        let found: Vec<_> = found.iter().map(|violation| violation.control).collect();
        assert_eq!(found, expected, "{shown}");
    }
}

#[test]
fn an_exclusion_without_images_exempts_only_a_single_silent_container() {
    let owing = json!({"name": "c", "image": "i", "securityContext": {
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }});
    let exclusion = |control: &str, field: &str, values: &[&str]| PodSecurity {
        exclusions: vec![Exclusion {
            control: control.to_owned(),
            images: Vec::new(),
            field: Some(field.to_owned()).filter(|field| !field.is_empty()),
            values: values.iter().map(|text| (*text).to_owned()).collect(),
        }],
        ..security(Level::Restricted, None)
    };
    let non_root = "Running as Non-root";
    let field = "spec.containers[*].securityContext.runAsNonRoot";
    let of = |containers: usize| {
        let silent = json!({"securityContext": null});
        let mut pod = pod(&silent, &owing);
        pod["spec"]["containers"] = vec![owing.clone(); containers].into();
        pod
    };
    for (containers, security, left) in [
        (1, exclusion(non_root, "", &[]), 0),
        (1, exclusion(non_root, field, &[]), 0),
        // What something should stand in has no value to compare.
        (1, exclusion(non_root, field, &["true"]), 0),
        (2, exclusion(non_root, "", &[]), 1),
        (
            1,
            exclusion(non_root, "spec.securityContext.runAsNonRoot", &[]),
            1,
        ),
        (1, exclusion("Seccomp", "", &[]), 1),
    ] {
        let pod = of(containers);
        let found = security.violations(&Pod::of(&pod).unwrap());
        assert_eq!(found.len(), left, "{containers} {security:?} {found:?}");
    }
}

#[test]
fn kinds_of_volumes_have_no_value_to_compare() {
    let volumes = json!({"volumes": [{"name": "a", "flexVolume": {"driver": "x"}}]});
    let pod = pod(&volumes, &json!({}));
    let excluding = |field: &str| PodSecurity {
        exclusions: vec![Exclusion {
            control: "Volume Types".to_owned(),
            images: Vec::new(),
            field: Some(field.to_owned()),
            values: vec!["driver".to_owned()],
        }],
        ..security(Level::Restricted, None)
    };
    let of_volumes = |security: &PodSecurity| {
        let found = security.violations(&Pod::of(&pod).unwrap());
        let found = found
            .into_iter()
            .filter(|one| one.control == "Volume Types");
        found.count()
    };
    assert_eq!(of_volumes(&excluding("spec.volumes[*].flexVolume")), 0);
    assert_eq!(of_volumes(&excluding("spec.volumes[*].nfs")), 1);
}

#[test]
fn a_message_names_reason_field_and_value() {
    let security = security(Level::Restricted, Some(29));
    let bad = pod(
        &json!({"hostNetwork": true, "hostPID": true}),
        &json!({"securityContext": {"allowPrivilegeEscalation": null, "capabilities": {"add": ["A", "B"]}}}),
    );
    let violations = security.violations(&Pod::of(&bad).unwrap());
    assert_eq!(
        security.message("r", &violations),
        "Validation rule 'r' failed. It violates PodSecurity \"restricted:v1.29\": \
         (Forbidden reason: host namespaces, field error list: \
         [spec.hostNetwork is forbidden, forbidden values found: true, \
         spec.hostPID is forbidden, forbidden values found: true])\
         (Forbidden reason: non-default capabilities, field error list: \
         [spec.containers[0].securityContext.capabilities.add is forbidden, forbidden values found: [A B]])\
         (Forbidden reason: allowPrivilegeEscalation != false, field error list: \
         [spec.containers[0].securityContext.allowPrivilegeEscalation is forbidden, forbidden values found: nil])\
         (Forbidden reason: unrestricted capabilities, field error list: \
         [spec.containers[0].securityContext.capabilities.add is forbidden, forbidden values found: [A B]])"
    );
}

#[test]
fn pod_security_versions_are_parsed() {
    for (text, expected) in [
        ("latest", Some(Version(None))),
        ("v1.29", Some(Version(Some(29)))),
        ("1.29", None),
        ("v1.", None),
        ("v2.1", None),
        ("v1.29.1", None),
    ] {
        assert_eq!(Version::parse(text), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn any_pod_is_judged_without_a_panic(spec in any_json(), container in any_json()) {
        let security = security(Level::Restricted, None);
        for spec in [spec, json!({"containers": [container], "securityContext": container, "volumes": [container]})] {
            let pod = json!({"kind": "Pod", "spec": spec});
            let violations = security.violations(&Pod::of(&pod).unwrap());
            security.message("r", &violations);
        }
    }
}

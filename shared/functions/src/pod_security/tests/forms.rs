//! Forms that a Pod and a rule seldom have.

use super::*;

fn exclusion(control: &str, images: &[&str], field: &str, values: &[&str]) -> Exclusion {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Exclusion {
        control: control.to_owned(),
        images: texts(images),
        field: Some(field.to_owned()).filter(|field| !field.is_empty()),
        values: texts(values),
    }
}

/// The controls that are violated.
fn controls_of(security: &PodSecurity, pod: &Value) -> Vec<&'static str> {
    let found = security.violations(&Pod::of(pod).unwrap());
    found.iter().map(|violation| violation.control).collect()
}

#[test]
fn privileged_asks_for_all_that_is_not_exempted() {
    let bad = pod(
        &json!({"hostNetwork": true}),
        &json!({"securityContext": {"allowPrivilegeEscalation": true}}),
    );
    let mut security = security(Level::Privileged, None);
    let all = ["Host Namespaces", "Privilege Escalation"];
    assert_eq!(controls_of(&security, &bad), all);
    security.exclusions = vec![exclusion("Host Namespaces", &[], "", &[])];
    assert_eq!(controls_of(&security, &bad), all[1..]);
}

#[test]
fn a_profile_without_a_type_is_of_none_that_is_allowed() {
    use Level::{Baseline as B, Restricted as R};
    let none = || json!({});
    let empty = || json!({"seccompProfile": {}, "appArmorProfile": {}});
    check(vec![
        row(
            B,
            None,
            none(),
            empty(),
            &[
                "AppArmor: spec.containers[0].securityContext.appArmorProfile.type []",
                "Seccomp: spec.containers[0].securityContext.seccompProfile.type []",
            ],
        ),
        row(
            B,
            None,
            json!({"securityContext": {"seccompProfile": {"type": null}}}),
            none(),
            &["Seccomp: spec.securityContext.seccompProfile.type []"],
        ),
        // What says nothing at all is of no type either.
        row(
            R,
            None,
            json!({"volumes": [{"name": "a"}, {"name": "b", "emptyDir": {}}]}),
            none(),
            &["Volume Types: spec.volumes[0].unknown [unknown]"],
        ),
    ]);
}

/// A written default counts as an absent one.
#[test]
fn defaults_may_be_written_and_a_container_may_have_no_context() {
    use Level::{Baseline as B, Restricted as R};
    let none = || json!({});
    check(vec![
        row(
            B,
            None,
            none(),
            json!({"seLinuxOptions": {"type": "container_t", "user": "", "role": null}}),
            &[],
        ),
        row(
            B,
            None,
            none(),
            json!({"seLinuxOptions": {"type": null}}),
            &[],
        ),
        row(
            R,
            None,
            none(),
            Value::Null,
            &[
                "Privilege Escalation: spec.containers[0].securityContext.allowPrivilegeEscalation []",
                "Capabilities: spec.containers[0].securityContext.capabilities.drop []",
            ],
        ),
    ]);
}

#[test]
fn a_place_of_several_digits_is_one_star_in_a_field() {
    let volumes: Vec<_> = (0..11)
        .map(|at| json!({"name": format!("v{at}"), "hostPath": {"path": "/x"}}))
        .collect();
    let many = pod(&json!({"volumes": volumes}), &json!({}));
    let mut security = security(Level::Baseline, None);
    assert_eq!(controls_of(&security, &many).len(), 11);
    let field = "spec.volumes[*].hostPath";
    security.exclusions = vec![exclusion("HostPath Volumes", &[], field, &[])];
    assert_eq!(controls_of(&security, &many).len(), 0);
}

#[test]
fn levels_and_controls_are_known_by_their_names() {
    for name in Level::NAMES {
        assert_eq!(Level::parse(name).map(Level::name), Some(*name));
    }
    assert_eq!(Level::parse("Baseline"), None);
    for (control, is_of_containers) in [
        ("Capabilities", true),
        ("Host Namespaces", false),
        ("Nothing", false),
    ] {
        assert_eq!(has_containers(control), is_of_containers, "{control}");
    }
}

/// A message names a missing profile only where no profile has a forbidden type.
#[test]
fn a_missing_seccomp_profile_is_told_only_if_none_is_wrong() {
    let two = |spec: Value, first: Value| {
        let mut made = pod(&spec, &json!({"securityContext": first}));
        let mut second = made["spec"]["containers"][0].clone();
        second["securityContext"] =
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        made["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(second);
        made
    };
    let bare = json!({"securityContext": {"seccompProfile": null}});
    let security = security(Level::Restricted, None);
    let unconfined = two(
        bare.clone(),
        json!({"seccompProfile": {"type": "Unconfined"}}),
    );
    assert_eq!(
        found(&security, &unconfined)[1..],
        [
            "Seccomp: spec.containers[0].securityContext.seccompProfile.type [Unconfined]",
            "Seccomp: spec.containers[1].securityContext.seccompProfile.type []",
        ]
    );
    let violations = security.violations(&Pod::of(&unconfined).unwrap());
    let message = security.message("r", &violations);
    assert!(!message.contains("containers[1]"), "{message}");
    assert_eq!(
        found(&security, &two(bare, json!({}))),
        [
            "Seccomp: spec.containers[0].securityContext.seccompProfile.type []",
            "Seccomp: spec.containers[1].securityContext.seccompProfile.type []",
        ]
    );
    let root = json!({"securityContext": {"runAsNonRoot": false}});
    assert_eq!(
        found(&security, &two(root, json!({"runAsNonRoot": true}))),
        [
            "Running as Non-root: spec.securityContext.runAsNonRoot [false]",
            "Running as Non-root: spec.containers[1].securityContext.runAsNonRoot []",
        ]
    );
}

#[test]
fn older_versions_read_seccomp_from_annotations() {
    let annotated = |annotations: Value| {
        let mut pod = pod(
            &json!({}),
            &json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        );
        pod["metadata"]["annotations"] = annotations;
        pod
    };
    let (of_pod, of_c) = (
        "seccomp.security.alpha.kubernetes.io/pod",
        "container.seccomp.security.alpha.kubernetes.io/c",
    );
    let table = [
        (json!({}), 0),
        (json!({of_pod: "unconfined"}), 1),
        (json!({of_pod: "docker/default", of_c: "localhost/x"}), 0),
        (json!({of_pod: "runtime/default", of_c: ""}), 1),
        (
            json!({"container.seccomp.security.alpha.kubernetes.io/other": "unconfined"}),
            0,
        ),
    ];
    for (annotations, expected) in table {
        let pod = annotated(annotations);
        let found = |minor| controls_of(&security(Level::Baseline, Some(minor)), &pod);
        assert_eq!(found(18).len(), expected, "{pod}");
        assert_eq!(found(19), ["Seccomp"]);
    }
}

#[test]
fn a_restricted_field_is_one_field() {
    let mut bad = pod(
        &json!({}),
        &json!({"securityContext": {"allowPrivilegeEscalation": null}}),
    );
    let key = "container.apparmor.security.beta.kubernetes.io/c1";
    bad["metadata"]["annotations"] = json!({key: "unconfined"});
    let escalation = "spec.containers[*].securityContext.allowPrivilegeEscalation";
    let annotation = "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c*]";
    let table = [
        (exclusion("AppArmor", &[], annotation, &["unconfined"]), 1),
        (
            exclusion("AppArmor", &[], "metadata.annotations", &["unconfined"]),
            2,
        ),
        (
            exclusion("AppArmor", &[], "metadata.annotations[*]", &["unconfined"]),
            2,
        ),
        (
            exclusion("Privilege Escalation", &["*"], escalation, &["true"]),
            2,
        ),
        (
            exclusion("Privilege Escalation", &["*"], escalation, &["true", "nil"]),
            1,
        ),
        (
            exclusion(
                "Privilege Escalation",
                &["*"],
                "spec.containers[*]",
                &["nil"],
            ),
            2,
        ),
    ];
    for (exclusion, left) in table {
        let shown = format!("{exclusion:?}");
        let mut security = security(Level::Restricted, None);
        security.exclusions = vec![exclusion];
        assert_eq!(controls_of(&security, &bad).len(), left, "{shown}");
    }
}

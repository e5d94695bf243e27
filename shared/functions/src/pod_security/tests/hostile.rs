//! Pods of users who try to get around a standard, or to exhaust its judge.

use super::*;

/// Any user may send a Pod with as many volumes as a request has room for.
#[test]
fn violations_are_charged_and_excluded_in_linear_time() {
    let exclusion = Exclusion {
        control: "Volume Types".to_owned(),
        images: Vec::new(),
        field: None,
        values: Vec::new(),
    };
    let security = PodSecurity {
        exclusions: vec![exclusion],
        ..security(Level::Restricted, None)
    };
    let volumes: Vec<_> = (0..2_000)
        .map(|at| json!({"name": format!("v{at}"), "hostPath": {"path": "/"}}))
        .collect();
    let pod = pod(&json!({"volumes": volumes}), &json!({}));
    let (found, left) = meter::within(10_000_000, || found(&security, &pod));
    assert!(
        found.iter().all(|one| !one.starts_with("Volume Types")),
        "{found:?}"
    );
    let taken = 10_000_000 - left;
    assert!((160_000..400_000).contains(&taken), "{taken}");
    let (_, left) = meter::within(10_000, || security.violations(&Pod::of(&pod).unwrap()));
    assert_eq!(left, 0);
}

/// A container of an excluded image must not hide what another container lacks.
#[test]
fn a_missing_profile_is_found_beside_an_excluded_forbidden_one() {
    let trusted = json!({"name": "t", "image": "trusted/x",
        "securityContext": {"seccompProfile": {"type": "Unconfined"}}});
    let other = json!({"name": "o", "image": "other/x"});
    let pod = json!({"kind": "Pod", "metadata": {}, "spec": {"containers": [trusted, other]}});
    let exclusion = Exclusion {
        control: "Seccomp".to_owned(),
        images: vec!["trusted/*".to_owned()],
        field: None,
        values: Vec::new(),
    };
    let mut security = security(Level::Restricted, None);
    let seccomp = |security: &PodSecurity| {
        let violations = security.violations(&Pod::of(&pod).unwrap());
        let message = security.message("r", &violations);
        let missing =
            message.contains("containers[1].securityContext.seccompProfile.type: Required");
        (
            missing,
            message.contains("forbidden values found: Unconfined"),
        )
    };
    assert_eq!(seccomp(&security), (false, true));
    security.exclusions.push(exclusion);
    assert_eq!(seccomp(&security), (true, false));
}

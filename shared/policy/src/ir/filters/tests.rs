use super::*;

/// Reads a subject, as in `Pod/exec ns/name`, of the core group, or `apps/v1:Deployment ns/name`.
fn subject(text: &str) -> Filtered<'_> {
    let (what, place) = text.split_once(' ').unwrap();
    let (version, kind) = what.split_once(':').unwrap_or(("/v1", what));
    let (group, version) = version.split_once('/').unwrap();
    let (kind, subresource) = kind.split_once('/').unwrap_or((kind, ""));
    let (namespace, name) = place.split_once('/').unwrap();
    Filtered {
        group,
        version,
        kind,
        subresource,
        namespace,
        name,
    }
}

fn filters(text: &str, what: &str) -> bool {
    let filters: ResourceFilters = text.parse().unwrap();
    filters.filter(&subject(what))
}

#[test]
fn each_part_of_a_resource_filter_narrows_it() {
    for (text, what, expected) in [
        ("", "Pod a/p", false),
        ("[Pod,*,*]", "Pod a/p", true),
        ("[Pod,*,*]", "Pod a/", true),
        ("[Pod,*,*]", "Service a/p", false),
        ("[Pod,*,*]", "Pod/exec a/p", false),
        ("[Pod,*,*]", "Pod/ephemeralcontainers a/p", false),
        ("[Pod/exec,*,*]", "Pod/exec a/p", true),
        ("[Pod/exec,*,*]", "Pod a/p", false),
        ("[Pod.exec,*,*]", "Pod/exec a/p", true),
        ("[Pod/?*,*,*]", "Pod/exec a/p", true),
        ("[Pod/?*,*,*]", "Pod a/p", false),
        ("[Pod/*,*,*]", "Pod a/p", true),
        ("[Pod/*,*,*]", "Pod/exec a/p", true),
        ("[Pod,a,*]", "Pod a/p", true),
        ("[Pod,a,*]", "Pod b/p", false),
        ("[Pod,a-?,p*]", "Pod a-1/pod", true),
        ("[Pod,a-?,p*]", "Pod a-10/pod", false),
        ("[Pod,a-?,p*]", "Pod a-1/", false),
        ("[Node,,*]", "Node /n", true),
        ("[Node,,*]", "Node a/n", false),
        ("[P?d,a,p]", "Pod a/p", true),
        ("[*,a,*]", "apps/v1:Deployment a/d", true),
        ("[*,a,*]", "apps/v1:Deployment/scale a/d", false),
        ("[*/*,a,*]", "apps/v1:Deployment a/d", true),
        ("[*/*,a,*]", "apps/v1:Deployment/scale a/d", true),
        ("[*/*,a,*]", "Node /a", false),
        ("[*/scale,a,*]", "apps/v1:Deployment/scale a/d", true),
        ("[apps/v1/Deployment,*,*]", "apps/v1:Deployment a/d", true),
        ("[apps/*/Deployment,*,*]", "apps/v1:Deployment a/d", true),
        ("[v1/Deployment,*,*]", "apps/v1:Deployment a/d", true),
        ("[v2/Deployment,*,*]", "apps/v1:Deployment a/d", false),
        (
            "[extensions/v1/Deployment,*,*]",
            "apps/v1:Deployment a/d",
            false,
        ),
        ("[a/v1/Pod/exec,*,*]", "a/v1:Pod/exec a/p", true),
        // One of several is enough.
        ("[Pod,a,*] [Pod,b,*]", "Pod b/p", true),
    ] {
        assert_eq!(filters(text, what), expected, "{text} of {what}");
    }
}

/// A filter of everything in a namespace matches the Namespace too, wherever it is said to live.
#[test]
fn a_filter_of_a_whole_namespace_also_filters_the_namespace_object() {
    for (text, what, expected) in [
        ("[*/*,a,*]", "Namespace a/a", true),
        ("[*/*,a,*]", "Namespace /a", true),
        ("[*,a,*]", "Namespace /a", true),
        ("[Namespace,a,*]", "Namespace /a", true),
        ("[Namespace,*,a]", "Namespace /a", true),
        ("[*/*,a,*]", "Namespace /b", false),
        ("[*,a,*]", "Namespace/finalize /a", false),
        ("[*/*,a,*]", "Namespace/finalize /a", true),
        ("[Pod,a,*]", "Namespace /a", false),
        // A `Namespace` of a different group is a different kind.
        ("[*/*,a,*]", "x.io/v1:Namespace /a", false),
    ] {
        assert_eq!(filters(text, what), expected, "{text} of {what}");
    }
}

#[test]
fn the_usual_filters_cover_only_objects_that_machines_write() {
    let usual = ResourceFilters::usual();
    for (what, expected) in [
        ("Event shop/e", true),
        ("events.k8s.io/v1:Event shop/e", true),
        ("coordination.k8s.io/v1:Lease kube-node-lease/n", true),
        ("coordination.k8s.io/v1:Lease shop/leader", false),
        ("ConfigMap kube-public/cluster-info", true),
        ("Namespace /kube-public", true),
        ("Pod/exec kube-public/p", true),
        ("apiregistration.k8s.io/v1:APIService /v1.x", true),
        ("apiregistration.k8s.io/v1:APIService/status /v1.x", true),
        ("authentication.k8s.io/v1:TokenReview /", true),
        ("authorization.k8s.io/v1:SubjectAccessReview /", true),
        ("authorization.k8s.io/v1:SelfSubjectAccessReview /", true),
        (
            "authorization.k8s.io/v1:LocalSubjectAccessReview shop/",
            false,
        ),
        ("authentication.k8s.io/v1:SelfSubjectReview /", false),
        ("Node /n", false),
        ("apps/v1:ReplicaSet shop/r", false),
        ("Binding shop/b", false),
        ("Pod/binding shop/p", false),
        ("Pod kube-system/p", false),
        ("Namespace /kube-system", false),
    ] {
        assert_eq!(usual.filter(&subject(what)), expected, "{what}");
    }
    assert_ne!(usual, ResourceFilters::default());
}

#[test]
fn only_namespaces_that_are_filtered_whole_and_by_name_are_left_to_others() {
    let long = format!("[*/*,{},*]", "a".repeat(NAMESPACE_BYTES_MAX));
    let too_long = format!("[*/*,{},*]", "a".repeat(NAMESPACE_BYTES_MAX + 1));
    for (text, expected) in [
        (
            ResourceFilters::USUAL,
            &["kube-public", "kube-node-lease"][..],
        ),
        ("[*/*,a,*]", &["a"]),
        ("[*/*/*/*,a-1,*]", &["a-1"]),
        ("[*,a,*]", &[]),
        ("[*/*,a,b]", &[]),
        ("[*/*,a*,*]", &[]),
        ("[*/*,a?,*]", &[]),
        ("[*/*,,*]", &[]),
        ("[*/*,A_b,*]", &[]),
        ("[*/*,a-,*]", &[]),
        ("[*/*,-a,*]", &[]),
        ("[Pod,a,*]", &[]),
        (&too_long, &[]),
    ] {
        let filters = ResourceFilters::parse(text).unwrap();
        let whole: Vec<_> = filters.whole_namespaces().collect();
        assert_eq!(whole, expected, "{text}");
    }
    let filters = ResourceFilters::parse(&long).unwrap();
    assert_eq!(filters.whole_namespaces().count(), 1);
}

#[test]
fn resource_filters_may_be_separated_by_spaces_commas_or_lines() {
    let plain = ResourceFilters::parse("[Pod,*,*][Node,*,*]").unwrap();
    for text in [
        "[Pod,*,*] [Node,*,*]",
        "[Pod,*,*],[Node,*,*]",
        "\n  [Pod,*,*]\n  [Node,*,*]\n",
        "[Pod,*,*] , [Node,*,*] ",
    ] {
        assert_eq!(ResourceFilters::parse(text), Ok(plain.clone()), "{text}");
    }
    for text in ["", " ", "\n"] {
        assert_eq!(ResourceFilters::parse(text), Ok(ResourceFilters::default()));
    }
}

#[test]
fn a_malformed_filter_is_refused_with_its_position() {
    let kind = |kind: &str| FilterProblem::Kind(kind.to_owned());
    for (text, at, problem) in [
        ("Event,*,*", 1, FilterProblem::Outside('E')),
        ("- '[Event,*,*]'", 1, FilterProblem::Outside('-')),
        ("[Event,*,*] x", 13, FilterProblem::Outside('x')),
        ("[Event,*,*]]", 12, FilterProblem::Outside(']')),
        ("[é,*,*]é", 8, FilterProblem::Outside('é')),
        ("[Event,*,*", 1, FilterProblem::Unclosed),
        ("[", 1, FilterProblem::Unclosed),
        ("[Event,*,* [Node,*,*]", 1, FilterProblem::Unclosed),
        ("[Event,*,*][[Node,*,*]]", 12, FilterProblem::Unclosed),
        ("[Event]", 2, FilterProblem::Parts(1)),
        ("[Pod,*,*][Event,*]", 11, FilterProblem::Parts(2)),
        ("[Event,*,*,*]", 2, FilterProblem::Parts(4)),
        ("[]", 2, FilterProblem::Parts(1)),
        ("[,*,*]", 2, kind("")),
        ("[a/b/c/d/e,*,*]", 2, kind("a/b/c/d/e")),
        ("[Pod/,*,*]", 2, kind("Pod/")),
        ("[Pod, a,*]", 6, FilterProblem::Space),
        ("[Pod,a,*\n]", 9, FilterProblem::Space),
    ] {
        let error = ResourceFilters::parse(text).unwrap_err();
        assert_eq!(error, FilterError { at, problem }, "{text}");
        assert!(
            error
                .to_string()
                .starts_with(&format!("AR701: at character {at}: "))
        );
    }
}

#[test]
fn the_number_of_resource_filters_is_limited() {
    let most = "[Pod,*,*]".repeat(FILTERS_MAX);
    assert!(ResourceFilters::parse(&most).is_ok());
    let error = ResourceFilters::parse(&(most.clone() + "[Pod,*,*]")).unwrap_err();
    assert_eq!(
        (error.at, error.problem),
        (most.len() + 1, FilterProblem::TooMany)
    );
}

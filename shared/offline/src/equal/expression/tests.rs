use super::*;

fn text(path: &[PathStep]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            PathStep::Each => text.push_str("[]"),
            PathStep::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
        }
    }
    text.trim_start_matches('.').to_owned()
}

fn paths(source: &str, language: Language) -> Vec<String> {
    let mut scope = NameScope::default();
    let all = read(
        "object.spec.containers + object.spec.?initContainers.orValue([])",
        Language::Cel,
        &scope,
    );
    scope.bind("variables.all".to_owned(), all.reached);
    scope.bind("element".to_owned(), Reached::at(&["spec.containers[]"]));
    let found = read(source, language, &scope);
    found
        .paths
        .iter()
        .map(|path| text(path))
        .filter(|text| !text.is_empty())
        .collect()
}

#[test]
fn fields_are_followed_through_macros_and_variables_of_cel() {
    for (source, expected) in [
        ("object.spec.replicas > 1", &["spec.replicas"][..]),
        (
            "has(object.metadata.labels) && 'a' in object.metadata.labels",
            &["metadata.labels", "metadata.labels[]"],
        ),
        (
            "object.metadata.?labels[?'app/x'].orValue('')",
            &["metadata.labels.app/x"],
        ),
        (
            "object.spec.a.all(c, c.image.endsWith('x')) && c.no",
            &["spec.a", "spec.a[].image"],
        ),
        (
            "variables.all.exists(c, c.?ports.orValue([]).all(p, p.hostPort == 0))",
            &[
                "spec.containers",
                "spec.containers[].ports",
                "spec.containers[].ports[].hostPort",
                "spec.initContainers",
                "spec.initContainers[].ports",
                "spec.initContainers[].ports[].hostPort",
            ],
        ),
        (
            "object.spec.a.map(c, c.x).all(x, x.y)",
            &["spec.a", "spec.a[].x", "spec.a[].x.y"],
        ),
        (
            "object.spec.a.filter(c, c.x).all(d, d.y)",
            &["spec.a", "spec.a[].x", "spec.a[].y"],
        ),
        (
            "request.oldObject.spec.x + request.userInfo.username",
            &["spec.x"],
        ),
        ("image.getMetadata(object.spec.x).config.a", &["spec.x"]),
        ("cel.bind(s, object.spec, s.x)", &["spec", "spec.x"]),
        (
            "Object{spec: Object.spec{x: [Object.spec.y{z: 1}]}}",
            &["spec", "spec.x", "spec.y", "spec.y.z"],
        ),
        (
            "(object.a + object.b).all(x, x.c)",
            &["a", "a[].c", "b", "b[].c"],
        ),
    ] {
        assert_eq!(paths(source, Language::Cel), expected, "{source}");
    }
}

#[test]
fn fields_are_followed_through_projections_of_jmespath() {
    for (source, expected) in [
        (
            "request.object.spec.containers[].image",
            &["spec.containers[].image"][..],
        ),
        ("element.image || ''", &["spec.containers[].image"]),
        (
            "request.object.spec.[a, b][].c",
            &["spec.a", "spec.a[].c", "spec.b", "spec.b[].c"],
        ),
        (
            "request.object.spec.a[?x=='1' && y].z | [0]",
            &["spec.a[].x", "spec.a[].y", "spec.a[].z", "spec.a[].z[]"],
        ),
        (
            "request.object.metadata.labels.\"a/b\"",
            &["metadata.labels.a/b"],
        ),
        ("length(request.object.spec.a || `[]`)", &["spec.a"]),
        (
            "images.containers.*.registry",
            &["spec.containers[].image", "spec.initContainers[].image"],
        ),
        (
            "request.object.spec | {a: x, b: y}",
            &["spec", "spec.x", "spec.y"],
        ),
    ] {
        let found = paths(source, Language::JmesPath);
        assert_eq!(found, expected, "{source}");
    }
}

#[test]
fn text_that_is_no_expression_is_read_without_a_panic() {
    for source in [
        "",
        "((((",
        "a.b[",
        "{",
        "a.all(",
        ")]},",
        "a.?",
        &"(".repeat(10_000),
        &"[?".repeat(10_000),
    ] {
        read(source, Language::Cel, &NameScope::default());
        read(source, Language::JmesPath, &NameScope::default());
    }
}

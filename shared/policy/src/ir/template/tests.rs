use std::collections::BTreeMap;

use anteroom_jmespath::{Environment, MissingKey};
use serde_json::json;

use super::*;
use crate::ir::subquery::ExpressionIds;

/// Evaluates on a document, and keeps what was evaluated.
struct Document {
    document: Value,
    is_delete: bool,
    searched: Vec<(String, BTreeMap<String, Value>)>,
}

impl Document {
    fn new(document: Value) -> Self {
        Self {
            document,
            is_delete: false,
            searched: Vec::new(),
        }
    }
}

impl Resolve for Document {
    type Interrupt = VariableError;

    fn is_delete(&self) -> bool {
        self.is_delete
    }

    fn copy(&mut self, _: &Value) -> Result<(), VariableError> {
        Ok(())
    }

    fn bind_value(&mut self, bytes: u64, beside: u64) -> Result<u64, VariableError> {
        Ok(beside + bytes)
    }

    fn search(&mut self, bound: &Bound, written: &str) -> Result<Arc<Value>, VariableError> {
        let text = bound.expression.as_str().to_owned();
        self.searched.push((text, bound.parameters.clone()));
        let environment = Environment::standard()
            .with_parameters(&bound.parameters)
            .with_missing_key(MissingKey::Error);
        match bound.expression.evaluate_json(&self.document, &environment) {
            Ok(value) => Ok(Arc::new(value)),
            Err(error) => Err(VariableError {
                expression: written.to_owned(),
                message: error.to_string(),
                kind: VariableErrorKind::Failed,
            }),
        }
    }
}

fn document() -> Document {
    Document::new(json!({
        "name": "web", "count": 3, "on": true, "nothing": null, "map": {"a": 1}, "key": "a",
        "list": ["x", "y", "z"], "index": 1, "braces": "{{ name }}", "quote": "it's \"so\" `here`",
        "request": {"object": {"n": "new"}, "oldObject": {"n": "old"}},
        "labels": {"app.io/name": "web", "a\"b": "quoted"}, "label": "app.io/name", "odd": "a\"b",
        "json": "[1, 2]", "port": "80",
    }))
}

fn render(template: &Value) -> Result<Value, String> {
    let parsed = ValueTemplate::parse(template).map_err(|problem| format!("{problem:?}"))?;
    match parsed.value(&mut document()) {
        Ok(value) => Ok(Arc::unwrap_or_clone(value)),
        Err(error) => Err(error.to_string()),
    }
}

/// The only expression of a text, and what its parameters are bound to.
fn bound(text: &str) -> (String, BTreeMap<String, Value>) {
    let mut document = document();
    let prepared = Prepared::parse(text).unwrap();
    let bound = prepared.bind(&mut document).unwrap();
    (bound.expression.as_str().to_owned(), bound.parameters)
}

fn parameters(value: Value) -> BTreeMap<String, Value> {
    BTreeMap::from([("p0".to_owned(), value)])
}

#[test]
fn a_lone_variable_keeps_its_type_and_others_are_text() {
    for (template, value) in [
        (json!("{{ count }}"), json!(3)),
        (json!("{{count}}"), json!(3)),
        (json!("{{- map }}"), json!({"a": 1})),
        (json!("{{ nothing }}"), json!(null)),
        (json!("{{ name }}-{{ count }}"), json!("web-3")),
        (
            json!("is {{ on }}, {{ map }}, {{ nothing }}"),
            json!("is true, {\"a\":1}, null"),
        ),
        (json!(" {{ count }}"), json!(" 3")),
        (json!("plain"), json!("plain")),
        (
            json!(["{{ count }}", {"{{ name }}": "{{ list[0] }}"}, 5]),
            json!([3, {"web": "x"}, 5]),
        ),
        (
            json!(r"\{{ name }} is {{ name }}"),
            json!("{{ name }} is web"),
        ),
        (json!(r"\$(x)"), json!("$(x)")),
        (json!("{{ map.{b: a} }}"), json!({"b": 1})),
    ] {
        assert_eq!(render(&template), Ok(value), "{template}");
    }
}

#[test]
fn a_rendered_value_is_never_a_template_itself() {
    assert_eq!(render(&json!("{{ braces }}")), Ok(json!("{{ name }}")));
    assert_eq!(render(&json!("<{{ braces }}>")), Ok(json!("<{{ name }}>")));
}

#[test]
fn missing_keys_and_malformed_templates_are_errors() {
    let missing = render(&json!("{{ name }} {{ map.b }}")).unwrap_err();
    assert_eq!(missing, "variable `map.b`: Unknown key \"b\" in path");
    for (template, problem) in [
        (json!("{{ name"), "Invalid"),
        (json!("{{ }}"), "Invalid"),
        (json!("{{ a.. }}"), "Invalid"),
        (json!("{{ $p0 }}"), "Invalid"),
        (json!("{{ @ }}"), "Unsupported"),
        (json!("$(./../name)"), "Unsupported"),
        (json!("{{ {{ name }} }}"), "Unsupported"),
    ] {
        assert!(
            render(&template).unwrap_err().starts_with(problem),
            "{template}"
        );
    }
}

#[test]
fn on_a_deletion_the_object_is_the_old_one() {
    let template =
        Template::parse("{{ request.object.n }} {{ join('', ['{{ request.object.n }}']) }}")
            .unwrap();
    let mut document = document();
    assert_eq!(template.text(&mut document).unwrap(), "new new");
    document.is_delete = true;
    assert_eq!(template.text(&mut document).unwrap(), "old old");
}

#[test]
fn a_variable_in_a_raw_string_is_a_text_parameter() {
    for (text, expression, value) in [
        (
            "items[?name == '{{ name }}']",
            "items[?name == $p0]",
            json!("web"),
        ),
        (
            "items[?name == '{{ count }}']",
            "items[?name == $p0]",
            json!("3"),
        ),
        (
            "items[?name == 'a-{{ name }}.{{ count }}']",
            "items[?name == $p0]",
            json!("a-web.3"),
        ),
        (r"x == '\'{{ name }}\' \n'", "x == $p0", json!(r"'web' \n")),
        ("x == '{{ name || 'none' }}'", "x == $p0", json!("web")),
        (
            "x == '{{ quote }}'",
            "x == $p0",
            json!("it's \"so\" `here`"),
        ),
    ] {
        assert_eq!(
            bound(text),
            (expression.to_owned(), parameters(value)),
            "{text}"
        );
    }
}

#[test]
fn a_variable_in_a_json_literal_is_a_json_parameter() {
    for (text, value) in [
        ("x == `{{ map }}`", json!({"a": 1})),
        ("x == `{{ count }}`", json!(3)),
        ("x == `[{{ count }}, {{ map }}]`", json!([3, {"a": 1}])),
        ("x == `\"{{ name }}-{{ count }}\"`", json!("web-3")),
        (
            "x == `{\"k\": \"{{ quote }}\"}`",
            json!({"k": "it's \"so\" `here`"}),
        ),
        (r#"x == `["\"", {{ map }}]`"#, json!(["\"", {"a": 1}])),
        (r#"x == `["\\", {{ map }}]`"#, json!(["\\", {"a": 1}])),
        (r#"x == `{"k": "a\`{{ name }}"}`"#, json!({"k": "a`web"})),
        (r#"x == `["a\`", {{ map }}]`"#, json!(["a`", {"a": 1}])),
        ("x == `{{ json }}`", json!([1, 2])),
        ("x == ` {{ nothing }} `", json!(null)),
    ] {
        assert_eq!(
            bound(text),
            ("x == $p0".to_owned(), parameters(value)),
            "{text}"
        );
    }
    let error = Prepared::parse("`{{ name }}`")
        .unwrap()
        .bind(&mut document())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "variable `name`: its value \"web\" stands in a JSON literal and is not JSON"
    );
}

#[test]
fn a_variable_where_an_expression_can_stand_is_a_parameter() {
    for (text, expression) in [
        ("length({{ list }})", "length($p0)"),
        ("{{ map }}.a", "$p0.a"),
        ("{{ map }} || x", "$p0 || x"),
        ("x[?n == {{ count }}]", "x[?n == $p0]"),
        ("x[?{{ count }} > n]", "x[?$p0 > n]"),
        ("{k: {{ count }}}", "{k: $p0}"),
        ("[{{ count }}, x]", "[$p0, x]"),
        ("{a: list[0], k: {{ count }}}", "{a: list[0], k: $p0}"),
        ("x | {{ count }}", "x | $p0"),
        ("!{{ on }}", "!$p0"),
    ] {
        assert_eq!(bound(text).0, expression, "{text}");
    }
}

#[test]
fn a_variable_outside_expression_position_is_pasted_if_it_is_a_name() {
    for (text, expression) in [
        ("list[{{ index }}]", "list[1]"),
        ("list[{{ index }}:]", "list[1:]"),
        ("list[0:{{ index }}]", "list[0:1]"),
        ("map.{{ key }}", "map.a"),
        ("map_{{ key }}_{{ index }}", "map_a_1"),
        ("labels.\"{{ label }}\"", "labels.\"app.io/name\""),
        ("labels.\"app.io/{{ name }}\"", "labels.\"app.io/web\""),
        ("labels.\"{{ odd }}\"", r#"labels."a\"b""#),
        (r#"labels."a\"{{ label }}""#, r#"labels."a\"app.io/name""#),
    ] {
        assert_eq!(
            bound(text),
            (expression.to_owned(), BTreeMap::new()),
            "{text}"
        );
    }
    for text in [
        "list[{{ name }}]",
        "map.{{ label }}",
        "map.{{ quote }}",
        "map.{{ map }}",
    ] {
        let prepared = Prepared::parse(text).unwrap();
        assert!(prepared.bind(&mut document()).is_err(), "{text}");
    }
}

/// A value that wants to be more than a value, in every place that a variable can stand in.
#[test]
fn no_value_becomes_a_part_of_an_expression() {
    let attacks = [
        "' || 'x",
        "'] | [0",
        "x']|secret|['",
        "` || `1`",
        "\" || secret || \"",
        "\\",
        "\\'",
        "a.b",
        "a[0]",
        "secret",
        "0] | secret | [0",
        "0] && secret || list[0",
        "{{ secret }}",
        "$p0",
        "\n",
        "*",
        "@",
        "\",\"b\":\"",
        "1, \"a\": 2",
        "]",
        "",
    ];
    let places = [
        "'{{ attack }}'",
        "'<{{ attack }}>'",
        "`\"{{ attack }}\"`",
        "`{\"a\": \"{{ attack }}\"}`",
        "`{\"a\": {{ attack }}}`",
        "`[{{ attack }}]`",
        "to_string({{ attack }})",
        "list[{{ attack }}]",
        "map.{{ attack }}",
        "map.\"{{ attack }}\"",
        "list[?@ == '{{ attack }}']",
    ];
    for attack in attacks {
        for place in places {
            let mut document = Document::new(json!({
                "attack": attack, "secret": "leaked", "list": ["a"], "map": {"a": "b"},
            }));
            let template = Template::parse(&format!("{{{{ {place} }}}}")).unwrap();
            let shown = match template.value(&mut document) {
                Ok(value) => value.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(!shown.contains("leaked"), "{attack:?} in {place}: {shown}");
        }
    }
}

#[test]
fn a_variable_in_yaml_is_read_as_it_is_written() {
    let text = "[{{ port }}, '{{ port }}', {{ count }}, '{{ count }}', {{ map }}]";
    let template = ValueTemplate::parse_yaml(text).unwrap();
    let value = template.value(&mut document()).unwrap();
    assert_eq!(*value, json!([80, "80", 3, "3", {"a": 1}]));
    let lone = |text: &str| {
        let template = ValueTemplate::parse_yaml(text).unwrap();
        template.lone_variable().is_some()
    };
    assert!(lone("{{ count }}"));
    assert!(!lone("'{{ count }}'") && !lone("a-{{ count }}"));
}

#[test]
fn a_value_adds_no_step_to_a_json_pointer_unless_it_is_the_pointer() {
    for (text, pointer) in [
        ("/labels/{{ label }}", "/labels/app.io~1name"),
        ("{{ label }}", "app.io/name"),
    ] {
        let template = Template::parse(text).unwrap();
        assert_eq!(template.pointer(&mut document()).unwrap(), pointer);
    }
}

#[test]
fn a_template_can_be_only_what_accepted_values_make_of_it() {
    let can_be = |text: &str, made: &str| {
        let template = Template::parse(text).unwrap();
        template.can_be(made, |value| !value.contains(','))
    };
    for (text, made, expected) in [
        ("a={{ a }},b={{ b }}", "a=1,b=2", true),
        ("a={{ a }},b={{ b }}", "a=1,c=3,b=2", false),
        ("a={{ a }},b={{ b }}", "a=1,b=2,c=3", false),
        ("{{ a }}-x", "1-x", true),
        ("{{ a }}-x", "1,2-x", false),
        ("{{ a }}-x", "1-y", false),
    ] {
        assert_eq!(can_be(text, made), expected, "{text}: {made}");
    }
}

#[test]
fn every_expression_of_a_template_has_a_number_of_its_own() {
    let mut template = ValueTemplate::parse(&json!({
        "{{ key }}": ["{{ name }}-{{ count }}", {"a": "{{ list[?@ == '{{ name }}'] }}"}],
    }))
    .unwrap();
    template.number(&mut ExpressionIds::of_policy());
    let mut ids = Vec::new();
    template.visit(&mut |prepared| ids.push(prepared.id()));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
}

#[test]
fn a_rendered_text_has_a_size_limit() {
    let mut document = Document::new(json!({"long": "x".repeat(TEXT_BYTES_MAX / 2)}));
    assert!(
        Template::parse("{{ long }}{{ long }}")
            .unwrap()
            .text(&mut document)
            .is_ok()
    );
    let error = Template::parse("{{ long }}{{ long }}{{ long }}")
        .unwrap()
        .text(&mut document)
        .unwrap_err();
    assert_eq!(error.kind, VariableErrorKind::OverBudget);
}

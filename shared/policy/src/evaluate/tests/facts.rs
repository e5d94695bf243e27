//! Facts from every source: what is asked for, and what becomes of the answer.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_model::{EntryKind, ObjectKey};

use super::*;
use crate::evaluate::facts::{FactState, Facts, Question};

/// A rule that shows entry `x` in its message.
fn shows(entry: &str) -> String {
    format!(
        r#"
context:
- name: x
  {entry}
validate:
  message: "{{{{ x }}}}"
  deny: {{conditions: {{all: [{{key: "{{{{ x || 'none' }}}}", operator: NotEquals, value: nothing}}]}}}}
"#
    )
}

fn report(
    entry: &str,
    answer: impl FnMut(&FactRequest) -> Result<Value, FactError>,
) -> RuleOutcome {
    let request = create(&ingress("it", &["h"]));
    drive(&policy(&shows(entry)), &request, answer).0.outcome
}

/// Returns the request that an entry leads to.
fn asked(entry: &str) -> FactRequest {
    let mut found = None;
    report(entry, |fact| {
        found = Some(fact.clone());
        Ok(json!("value"))
    });
    found.unwrap()
}

/// Why it cannot be evaluated.
fn error(entry: &str, answer: &FactError) -> String {
    match report(entry, |_| Err(answer.clone())) {
        RuleOutcome::Error(error) => format!("{} {error}", error.code()),
        other => panic!("{other:?}"),
    }
}

fn not_found(name: &str) -> FactError {
    FactError::ObjectNotFound {
        resource: "configmaps".to_owned(),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
    }
}

#[test]
fn a_global_reference_names_an_entry_and_a_projection() {
    for (name, entry, projection) in [
        ("a", "a", ""),
        ("a.b", "a", "b"),
        ("a.b.c", "a", "b.c"),
        (
            "{{ request.namespace }}-x.{{ request.operation }}",
            "ns-x",
            "CREATE",
        ),
        ("{{ 'e.p' }}", "e", "p"),
    ] {
        let fact = asked(&format!("globalReference: {{name: \"{name}\"}}"));
        let expected = FactSubject::Entry {
            kind: EntryKind::Global,
            name: entry.to_owned(),
            projection: projection.to_owned(),
        };
        assert_eq!(
            (fact.subject, fact.expression.as_str()),
            (expected, ""),
            "{name}"
        );
    }
    let fact = asked(
        "globalReference: {name: a.b, jmesPath: \"[?x=='{{ request.namespace }}']\", maxStaleness: 1m}",
    );
    assert_eq!(fact.expression, "[?x==$p0]");
    assert_eq!(
        (json!(fact.parameters), fact.age_max_ms),
        (json!({"p0": "ns"}), Some(60_000))
    );
    for name in ["{{ '' }}", "{{ '.x' }}", "{{ 'a/b' }}"] {
        let entry = format!("globalReference: {{name: \"{name}\"}}");
        let RuleOutcome::Error(error) = report(&entry, nothing) else {
            panic!("{name}")
        };
        assert_eq!(error.code(), ErrorCode::VARIABLE_UNRESOLVED, "{error}");
    }
}

#[test]
fn a_resource_cache_is_a_collection_that_is_declared() {
    let fact = asked(
        "resourceCache: {group: apis/networking.k8s.io, version: v1, kind: ingresses, namespace: apps, labelSelector: a=b, fieldSelector: metadata.name=c, jmesPath: \"ingresses | items[].x\", maxStaleness: 500ms}",
    );
    let FactSubject::Collection(collection) = fact.subject else {
        panic!()
    };
    assert_eq!(
        collection,
        crate::CollectionReference {
            group: Some("networking.k8s.io".to_owned()),
            version: Some("v1".to_owned()),
            resource: "ingresses".to_owned(),
            namespace: "apps".to_owned(),
            label_selector: "a=b".to_owned(),
            field_selector: "metadata.name=c".to_owned(),
            declared: true,
            inline: true,
        }
    );
    assert_eq!(
        (fact.expression.as_str(), fact.age_max_ms),
        ("ingresses | items[].x", Some(500))
    );
    for (group, expected) in [
        ("", None),
        ("group: apps, ", Some("apps")),
        ("group: core, ", Some("")),
        ("group: \"\", ", Some("")),
        ("group: api, ", Some("")),
    ] {
        let fact = asked(&format!("resourceCache: {{{group}kind: pods}}"));
        let FactSubject::Collection(found) = fact.subject else {
            panic!()
        };
        assert_eq!(
            (found.group.as_deref(), found.version),
            (expected, None),
            "{group}"
        );
    }
    let fact = asked("resourceCache: {group: \"\", version: v1, kind: nodes, name: n1}");
    let FactSubject::Api(subject) = fact.subject else {
        panic!()
    };
    assert_eq!(subject.path, "/api/v1/nodes/n1");
    let kept = subject.by_view.unwrap();
    assert!(kept.reference.is_declared() && kept.object == Some(ObjectKey::new("", "n1")));
}

/// The namespace that is left out, and what a rule sees of a ConfigMap.
#[test]
fn a_config_map_is_read_by_name() {
    for (entry, namespace, name, literal) in [
        ("{name: m, namespace: ns1}", "ns1", "m", true),
        ("{name: m}", "default", "m", true),
        ("{name: m, namespace: \"\"}", "default", "m", true),
        (
            "{name: m, namespace: \"{{ request.namespace }}\"}",
            "ns",
            "m",
            false,
        ),
        (
            "{name: \"x-{{ request.operation }}\", namespace: ns1}",
            "ns1",
            "x-CREATE",
            false,
        ),
    ] {
        let fact = asked(&format!("configMap: {entry}"));
        let object = ObjectKey::new(namespace, name);
        assert_eq!(
            fact.subject,
            FactSubject::ConfigMap { object, literal },
            "{entry}"
        );
        assert_eq!(fact.expression, "{data: data, metadata: metadata}");
        assert!(!fact.missing_key_is_error);
    }
    for name in ["{{ `5` }}", "{{ 'a/b' }}", "{{ '..' }}", "{{ '' }}"] {
        let outcome = report(&format!("configMap: {{name: \"{name}\"}}"), nothing);
        assert!(
            matches!(outcome, RuleOutcome::Error(_)),
            "{name}: {outcome:?}"
        );
    }
}

/// In Kyverno's words, as clients match on them.
#[test]
fn a_missing_config_map_is_an_error_in_kyvernos_words() {
    assert_eq!(
        error("configMap: {name: m, namespace: ns}", &not_found("m")),
        "AR110 context entry `x`: failed to get configmap ns/m : configmaps \"m\" not found"
    );
}

const MISSING: &str = "apiCall: {urlPath: /apis/none/v1/x, jmesPath: items, default: DEFAULT}";

/// A default stands in for what the source said, with no query over it; without one
/// it is the rule's error.
#[test]
fn a_default_replaces_a_fact_that_its_source_refuses() {
    let refusals = [
        not_found("m"),
        FactError::LiveReadFailed {
            code: 404,
            message: "the server could not find the requested resource".to_owned(),
        },
        FactError::Failed {
            view: "v".to_owned(),
            failure: Failure::new("Forbidden", "no"),
        },
        FactError::EntryInvalid {
            entry: "e".to_owned(),
            failure: Failure::new("ResourceNotFound", "no"),
        },
    ];
    for refusal in refusals {
        for (default, shown) in [
            ("alt", "alt"),
            ("\"{{ request.namespace }}!\"", "ns!"),
            (
                "{a: [1, \"{{ request.operation }}\"]}",
                r#"{"a":[1,"CREATE"]}"#,
            ),
            ("false", "false"),
            ("\"\"", ""),
        ] {
            let entry = MISSING.replace("DEFAULT", default);
            let outcome = report(&entry, |_| Err(refusal.clone()));
            let expected = if shown.is_empty() {
                "validation error: rule rule failed"
            } else {
                shown
            };
            match (&outcome, shown) {
                // An empty text is a message that is empty.
                (RuleOutcome::Fail { message }, "") => assert!(message.is_empty(), "{message}"),
                _ => assert_eq!(outcome, fail(expected), "{default}"),
            }
        }
        let without = MISSING.replace(", default: DEFAULT", "");
        assert!(error(&without, &refusal).contains("context entry `x`: "));
    }
    assert_eq!(
        report(&MISSING.replace("DEFAULT", "alt"), |_| Ok(json!("found"))),
        fail("found")
    );
}

/// Unknown is never absent: a default does not stand in for it.
#[test]
fn a_default_does_not_replace_an_unknown_fact() {
    let entry = MISSING.replace("DEFAULT", "alt");
    for unknown in [
        unsynced(),
        FactError::NoWatcher,
        FactError::NoReplica {
            view: "v".to_owned(),
        },
        FactError::DeadlineExceeded {
            deadline_ms: 1,
            over_part: false,
        },
        FactError::EvaluationFailed {
            message: "m".to_owned(),
        },
        FactError::Evicted {
            view: "v".to_owned(),
            message: "m".to_owned(),
        },
    ] {
        let code = unknown.code();
        assert!(error(&entry, &unknown).starts_with(code.as_str()));
    }
}

/// A value that cannot stand in a path may have been made so: nothing stands in for it.
#[test]
fn neither_default_nor_variable_replaces_a_refused_path() {
    let rule = r#"
context:
- {name: x, apiCall: {urlPath: "/api/v1/nodes/{{ request.object.metadata.labels.n }}", default: 1}}
- {name: v, variable: {jmesPath: "x.a", default: 2}}
validate: {message: "{{ v }}", deny: {conditions: {all: [{key: "{{ v }}", operator: Equals, value: 2}]}}}
"#;
    let mut object = ingress("it", &["h"]);
    object["metadata"]["labels"] = json!({"n": "../secrets"});
    let RuleOutcome::Error(error) = outcome(rule, &create(&object)) else {
        panic!()
    };
    assert!(error.to_string().contains("urlPath: variable"), "{error}");
}

/// The cases are those of Kyverno's `lazyload`.
#[test]
fn an_api_call_is_made_only_when_its_value_is_needed() {
    let rule = r#"
context:
- {name: x, apiCall: {urlPath: "/api/v1/namespaces/default/configmaps/missing"}}
preconditions: {all: [{key: "{{ request.operation }}", operator: Equals, value: PRE}]}
validate:
  deny:
    conditions:
      any:
      - {key: "{{ request.operation }}", operator: Equals, value: FIRST}
      - {key: "{{ x.data.a }}", operator: Equals, value: b}
"#;
    let request = create(&ingress("it", &[]));
    let stopped = outcome(rule, &request);
    assert!(matches!(stopped, RuleOutcome::Skipped { .. }));
    let met = outcome(
        &rule.replace("PRE", "CREATE").replace("FIRST", "CREATE"),
        &request,
    );
    assert_eq!(met, fail("validation error: rule rule failed"));
    let needed = policy(&rule.replace("PRE", "CREATE"));
    let (report, asked) = drive(&needed, &request, |_| Err(not_found("missing")));
    assert!(matches!(report.outcome, RuleOutcome::Error(_)));
    assert_eq!(asked, [["/api/v1/namespaces/default/configmaps/missing"]]);
}

#[test]
fn a_path_may_be_made_of_another_fact() {
    let rule = r#"
context:
- {name: pod, apiCall: {urlPath: "/api/v1/namespaces/{{ request.namespace }}/pods/{{ request.name }}", jmesPath: spec.nodeName}}
- {name: node, apiCall: {urlPath: "/api/v1/nodes/{{ pod }}", jmesPath: metadata.labels.zone}}
validate: {message: "{{ node }}", deny: {conditions: {all: [{key: "{{ node }}", operator: Equals, value: z}]}}}
"#;
    let (report, asked) = drive(&policy(rule), &create(&ingress("it", &[])), |fact| {
        Ok(json!(if fact.variable == "pod" { "n1" } else { "z" }))
    });
    assert_eq!(report.outcome, fail("z"));
    assert_eq!(
        asked,
        [["/api/v1/namespaces/ns/pods/n"], ["/api/v1/nodes/n1"]]
    );
}

#[test]
fn questions_with_different_ages_are_asked_separately() {
    let rule = r#"
context:
- {name: a, apiCall: {urlPath: /api/v1/pods, maxStaleness: 5s}}
- {name: b, apiCall: {urlPath: /api/v1/pods}}
- {name: c, apiCall: {urlPath: /api/v1/pods}}
validate: {deny: {conditions: {all: [{key: "{{ a }}{{ b }}{{ c }}", operator: Equals, value: x}]}}}
"#;
    let mut ages = Vec::new();
    drive(&policy(rule), &create(&ingress("it", &[])), |fact| {
        ages.push(fact.age_max_ms);
        Ok(json!(1))
    });
    assert_eq!(ages, [Some(5_000), None]);
}

#[test]
fn a_query_that_is_wholly_a_variable_must_be_a_string() {
    let entry =
        |value: &str| format!("cachedContextEntry: {{name: e, jmesPath: \"{{{{ {value} }}}}\"}}");
    let fact = asked(&entry("join('.', ['a', 'b'])"));
    assert_eq!(
        (fact.expression.as_str(), fact.parameters.len()),
        ("a.b", 0)
    );
    for (value, words) in [
        ("request.object.metadata", "jmespath value must be a string"),
        ("`5`", "jmespath value must be a string"),
        ("'a['", "with its variables it is \"a[\""),
    ] {
        let RuleOutcome::Error(error) = report(&entry(value), nothing) else {
            panic!("{value}")
        };
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// A question about an entry of this name.
fn question(name: &str, is_pushed_down: bool) -> Question {
    let subject = FactSubject::Entry {
        kind: EntryKind::Global,
        name: name.to_owned(),
        projection: String::new(),
    };
    Question {
        is_pushed_down,
        ..Question::new(subject, "", BTreeMap::new())
    }
}

/// A part with a text of so many bytes as its parameter.
fn part(name: &str, bytes: usize) -> Question {
    let parameters = BTreeMap::from([("p".to_owned(), json!("x".repeat(bytes)))]);
    Question {
        parameters: Arc::new(parameters),
        ..question(name, true)
    }
}

fn state(facts: &Facts, question: &Question) -> &'static str {
    match facts.answer_to(question) {
        None => "new",
        Some(FactState::Value(_)) => "value",
        Some(FactState::Failed(_)) => "failed",
        Some(FactState::Pending) => "pending",
        Some(FactState::LeftOut) => "left out",
        Some(FactState::Declined) => "declined",
    }
}

/// Only a part that has no answer can be declined: what is declined is never asked for again.
#[test]
fn a_question_has_the_state_that_the_driver_gave_it() {
    type Told = fn(&mut Facts);
    let table: [(bool, Told, &str); 8] = [
        (false, |_| {}, "pending"),
        (false, |facts| facts.supply(0, Ok(json!(1))), "value"),
        (false, |facts| facts.supply(0, Err(unsynced())), "failed"),
        (false, |facts| facts.leave_out(0), "left out"),
        (false, |facts| facts.decline(0), "pending"),
        (true, |facts| facts.decline(0), "declined"),
        (
            true,
            |facts| {
                facts.supply(0, Ok(json!(1)));
                facts.decline(0);
            },
            "value",
        ),
        (false, |facts| facts.supply(1, Ok(json!(1))), "pending"),
    ];
    for (at, (is_pushed_down, tell, expected)) in table.into_iter().enumerate() {
        let (mut facts, asked) = (Facts::default(), question("a", is_pushed_down));
        assert_eq!(state(&facts, &asked), "new");
        facts.look_up("x", asked.clone());
        tell(&mut facts);
        assert_eq!(state(&facts, &asked), expected, "row {at}");
    }
}

#[test]
fn new_questions_come_first_and_then_all_that_have_no_answer() {
    let mut facts = Facts::default();
    let names = |facts: &mut Facts| -> Vec<String> {
        let questions = facts.questions();
        questions.into_iter().map(|asked| asked.variable).collect()
    };
    facts.look_up("a", question("a", false));
    facts.look_up("part", question("part", true));
    assert_eq!(names(&mut facts), ["a", "part"]);
    facts.look_up("b", question("b", false));
    assert_eq!(names(&mut facts), ["b"]);
    assert_eq!(names(&mut facts), ["a", "part", "b"]);
    facts.supply(0, Ok(json!(1)));
    facts.decline(1);
    assert_eq!(names(&mut facts), ["b"]);
}

#[test]
fn questions_that_are_not_kept_are_forgotten_with_their_memory() {
    let large = part("b", 1_000);
    let mut facts = Facts::default();
    facts.look_up("a", question("a", false));
    let before = (facts.count(), facts.question_bytes());
    facts.look_up("b", large.clone());
    facts.look_up("c", question("c", false));
    assert_eq!(facts.count(), 3);
    facts.keep(before.0);
    assert_eq!((facts.count(), facts.question_bytes()), before);
    assert_eq!((state(&facts, &large), before), ("new", (1, 0)));
}

#[test]
fn a_question_with_too_large_values_is_not_taken() {
    for (bytes, is_taken) in [(1_000, true), (PARAMETERS_BYTES_MAX as usize, false)] {
        assert_eq!(
            Facts::default().takes(&part("a", bytes)),
            is_taken,
            "{bytes}"
        );
    }
}

/// In a cluster, what is missing in a name never makes the entry missing: a sender may have left it out.
#[test]
fn an_entry_without_a_name_is_missing_only_for_drivers_without_a_cluster() {
    let (missing, failed) = ("request.object.none", "length(request.object.none || `5`)");
    let given = || [("x".to_owned(), json!("given"))];
    for (name, goes_without, is_given, expected) in [
        (missing, false, false, None),
        (missing, true, false, Some("none")),
        (missing, false, true, Some("given")),
        (failed, true, false, None),
        (failed, true, true, Some("given")),
    ] {
        let rule = shows(&format!("configMap: {{name: \"{{{{ {name} }}}}\"}}"));
        let policy = policy(&rule.replace("{{ x }}", "{{ x || 'none' }}"));
        let request = create(&ingress("it", &["h"]));
        let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
        if goes_without {
            evaluation = evaluation.goes_without();
        }
        if is_given {
            evaluation = evaluation.with_given(given());
        }
        let RuleStep::Done(report) = evaluation.step() else {
            panic!("{name}: it asks for a fact");
        };
        match expected {
            Some(shown) => assert_eq!(report.outcome, fail(shown), "{name}"),
            None => assert!(
                matches!(report.outcome, RuleOutcome::Error(_)),
                "{name}: {report:?}"
            ),
        }
    }
}

/// Neither parts nor answers that were released count.
#[test]
fn a_rule_has_room_for_so_many_whole_facts() {
    use crate::evaluate::facts::Lookup;
    let mut facts = Facts::default();
    let ask = |facts: &mut Facts, name: String, is_pushed_down| {
        matches!(
            facts.look_up("x", question(&name, is_pushed_down)),
            Lookup::Pending
        )
    };
    for at in 0..FACTS_PER_RULE_MAX / 2 {
        assert!(ask(&mut facts, format!("part-{at}"), true));
    }
    for at in 0..10 {
        let name = format!("released-{at}");
        let id = facts.count() as u32;
        assert!(ask(&mut facts, name.clone(), false));
        facts.supply(id, Ok(json!(1)));
        facts.release(&question(&name, false).subject);
    }
    for at in 0..FACTS_PER_RULE_MAX {
        assert!(ask(&mut facts, format!("whole-{at}"), false), "{at}");
    }
    assert!(!ask(&mut facts, "more".to_owned(), false));
}

#[test]
fn only_the_fact_that_cannot_be_read_is_refused() {
    let mut facts = Facts::default();
    let refused = question("a", false);
    facts.refuse(refused.clone(), unsynced());
    assert_eq!(facts.refusal(&refused), Some(&unsynced()));
    let of_age = Question {
        age_max_ms: Some(1),
        ..refused
    };
    for other in [question("b", false), part("a", 1), of_age] {
        assert_eq!(facts.refusal(&other), None);
    }
}

use std::sync::Arc;

use anteroom_model::ObjectKey;
use anteroom_policy::{FailureAction, RuleOutcome};
use serde_json::{Value, json};

use anteroom_engine::{
    rule::RuleName,
    verdict::{CHANGED_MAX, ChangedPlaces},
};

use super::*;

const REVIEW: &str = r#"{
    "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
    "request": {
        "uid": "u", "operation": "CREATE", "NAME": "", "NAMESPACE": "",
        "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": {}
    }
}"#;

fn blocked(policy: &str, message: &str, error: Option<ErrorCode>) -> Blocked {
    Blocked {
        policy: policy.into(),
        rule: "r".into(),
        message: message.into(),
        error,
    }
}

fn answer(body: &str, decision: &Decision) -> Value {
    let review = Review::parse(body.as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&decided(&review, decision)).unwrap();
    answer["response"].clone()
}

fn denied(blocked: Vec<Blocked>) -> Decision {
    Decision {
        blocked,
        ..Decision::default()
    }
}

#[test]
fn a_shadow_webhook_allows_a_denied_request_without_patch_or_warning() {
    let mut decision = denied(vec![blocked("p", "no", None)]);
    decision.warnings = vec!["a warning".to_owned()];
    decision.patch = Some(json!([{ "op": "remove", "path": "/a" }]));
    let review = Review::parse(REVIEW.as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&recorded(&review, &decision)).unwrap();
    assert_eq!(answer["response"], json!({ "uid": "u", "allowed": true }));
}

#[test]
fn a_denial_names_its_object_also_without_name_or_namespace() {
    let decision = denied(vec![blocked("p", "no", None)]);
    for (name, namespace, resource) in [
        ("a", "n", "Pod/n/a"),
        ("a", "", "Pod/a"),
        ("", "n", "Pod/n/*"),
    ] {
        let body = REVIEW
            .replace("\"NAME\": \"\"", &format!("\"name\": \"{name}\""))
            .replace(
                "\"NAMESPACE\": \"\"",
                &format!("\"namespace\": \"{namespace}\""),
            );
        let message = answer(&body, &decision)["status"]["message"].to_string();
        assert!(
            message.contains(&format!("resource {resource} was blocked")),
            "{message}"
        );
    }
}

#[test]
fn reasons_stand_below_their_policy_and_keep_their_shape() {
    let decision = denied(vec![
        blocked("p", "one\ntwo\n", None),
        blocked("p", "three", None),
        blocked("q", "four", Some(ErrorCode::NO_REPLICA)),
    ]);
    let answer = answer(REVIEW, &decision);
    let message = answer["status"]["message"].as_str().unwrap();
    let reasons = message.split_once("policies\n\n").unwrap().1;
    assert_eq!(
        reasons,
        "p:\n  r: one\n    two\n  r: three\nq:\n  r: four\n"
    );
    assert_eq!(answer["status"]["code"], 403, "a violation is the user's");
}

#[test]
fn an_error_alone_may_be_tried_again() {
    for (code, status) in [(ErrorCode::NO_REPLICA, 500), (ErrorCode::NOT_READY, 503)] {
        let decision = denied(vec![blocked("p", "no", Some(code))]);
        assert_eq!(answer(REVIEW, &decision)["status"]["code"], status);
    }
}

#[test]
fn a_message_that_is_too_long_is_cut_and_says_so() {
    let long = "ä".repeat(MESSAGE_BYTES_MAX);
    let many = (0..100).map(|_| blocked("p", &long, None)).collect();
    let answer_ = answer(REVIEW, &denied(many));
    let message = answer_["status"]["message"].as_str().unwrap();
    assert!(message.len() < 3 * MESSAGE_BYTES_MAX);
    assert!(message.ends_with("(further reasons are left out)\n"));

    let decision = Decision {
        warnings: vec!["a\nb".repeat(WARNING_CHARACTERS_MAX); WARNINGS_MAX + 3],
        ..Decision::default()
    };
    let answer_ = answer(REVIEW, &decision);
    let warnings = answer_["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), WARNINGS_MAX + 1);
    assert_eq!(
        warnings[0].as_str().unwrap().chars().count(),
        WARNING_CHARACTERS_MAX
    );
    assert!(!warnings[0].as_str().unwrap().contains('\n'));
    assert_eq!(warnings[WARNINGS_MAX], "and 3 more warnings");

    let decision = Decision {
        rules: vec![passing(&"p".repeat(250)); 100],
        ..Decision::default()
    };
    let record = record(&decision, ARRIVAL);
    assert!(record.len() <= RECORD_BYTES_MAX + 100);
    let record: Value = serde_json::from_str(&record).unwrap();
    let listed = record["rules"].as_array().unwrap().len();
    assert_eq!(record["rulesLeftOut"], 100 - listed);
}

const ARRIVAL: Arrival = Arrival {
    now_ns: 17,
    seed: 4,
};

fn passing(policy: &str) -> RuleRecord {
    RuleRecord {
        took: std::time::Duration::ZERO,
        name: Arc::new(RuleName::new(ObjectKey::new("", policy), "r")),
        action: FailureAction::Enforce,
        ignore_errors: false,
        warn_on_audit: false,
        outcome: RuleOutcome::Pass,
        changed: ChangedPlaces::default(),
        facts: Vec::new(),
        excepted_by: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        depends_on_arrival: false,
        knows_secrets: false,
    }
}

/// A value that chance gave to a Secret follows from the seed.
#[test]
fn time_and_chance_are_recorded_where_a_rule_asked_for_them_and_knows_no_secret() {
    let mut decision = Decision {
        rules: vec![passing("p"), passing("q")],
        ..Decision::default()
    };
    assert!(!record(&decision, ARRIVAL).contains("arrival"));
    decision.rules[1].depends_on_arrival = true;
    assert!(record(&decision, ARRIVAL).ends_with(r#","arrival":{"now_ns":"17","seed":"4"}}"#));
    decision.rules[0].knows_secrets = true;
    assert!(record(&decision, ARRIVAL).contains("arrival"));
    decision.rules[0].depends_on_arrival = true;
    assert!(!record(&decision, ARRIVAL).contains("arrival"));
}

#[test]
fn an_empty_decision_admits_without_a_message() {
    let answer = answer(REVIEW, &Decision::default());
    assert_eq!(answer, json!({ "uid": "u", "allowed": true }));
}

#[test]
fn a_patch_is_answered_as_the_api_server_reads_it_and_where_it_changes_is_recorded() {
    let patch = json!([{ "op": "add", "path": "/a", "value": "ü" }]);
    let rule = |changed: usize| RuleRecord {
        took: std::time::Duration::ZERO,
        name: Arc::new(RuleName::new(ObjectKey::new("", "p"), "r")),
        action: FailureAction::Enforce,
        ignore_errors: false,
        warn_on_audit: false,
        knows_secrets: false,
        outcome: RuleOutcome::Mutated {
            object: Value::Null,
        },
        changed: (0..changed).map(|at| format!("/a/{at}")).collect(),
        facts: Vec::new(),
        excepted_by: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        depends_on_arrival: false,
    };
    let decision = Decision {
        rules: vec![rule(1), rule(CHANGED_MAX), rule(CHANGED_MAX + 1)],
        patch: Some(patch.clone()),
        ..Decision::default()
    };
    let answered = answer(REVIEW, &decision);
    assert_eq!(answered["allowed"], true);
    assert_eq!(answered["patchType"], "JSONPatch");
    let sent = BASE64_STANDARD.decode(answered["patch"].as_str().unwrap());
    assert_eq!(
        serde_json::from_slice::<Value>(&sent.unwrap()).unwrap(),
        patch
    );
    let record = answered["auditAnnotations"]["decision"].as_str().unwrap();
    let record: Value = serde_json::from_str(record).unwrap();
    let rules = record["rules"].as_array().unwrap();
    assert_eq!(
        rules[0],
        json!({ "policy": "p", "rule": "r", "result": "pass", "changed": ["/a/0"] })
    );
    let listed = |rule: &Value| rule["changed"].as_array().unwrap().len();
    assert_eq!((listed(&rules[1]), listed(&rules[2])), (16, 16));
    assert_eq!(rules[1]["changedLeftOut"], Value::Null);
    assert_eq!(rules[2]["changedLeftOut"], 1);

    let unchanged = answer(REVIEW, &Decision::default());
    assert!(unchanged.get("patch").is_none() && unchanged.get("patchType").is_none());
}

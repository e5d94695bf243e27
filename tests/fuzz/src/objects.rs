//! Manifests, requests and patches: JSON from users.

use anteroom_functions::{pattern, yaml};
use anteroom_model::FactError;
use anteroom_patch::{
    Schema, anchors,
    json::{Leniency, Patch},
    merge,
};
use anteroom_policy::{
    AdmissionRequest, Driver, Evaluation, Policy, PolicyException, RuleStep, compile, compile_for,
};
use serde_json::{Value, json};

use crate::{documents, texts};

/// The most steps that a rule takes before it ends.
const STEPS_MAX: usize = 1_000;

/// The manifest of a policy, in YAML.
pub(crate) fn policy(input: &[u8]) {
    let Some([text]) = texts(input) else { return };
    let Ok(manifest) = yaml::read(text) else {
        return;
    };
    for driver in [Driver::ALL, Driver::IN_CLUSTER] {
        if let Err(problems) = compile_for(&manifest, driver) {
            assert!(!problems.is_empty(), "it says why");
        }
    }
}

/// The manifest of an exception, in YAML.
pub(crate) fn exception(input: &[u8]) {
    let Some([text]) = texts(input) else { return };
    let Ok(manifest) = yaml::read(text) else {
        return;
    };
    if let Err(problems) = PolicyException::compile(&manifest, Driver::ALL) {
        assert!(!problems.is_empty(), "it says why");
    }
}

/// A policy in JSON, and the object of a request. Facts cannot be read.
pub(crate) fn decision(input: &[u8]) {
    let Some([manifest, object]) = documents(input) else {
        return;
    };
    let Ok(policy) = compile(&manifest) else {
        return;
    };
    let request = json!({
        "uid": "u", "operation": "CREATE", "namespace": "n", "name": "n",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": "u"},
        "object": object, "oldObject": null,
    });
    let Ok(request) = AdmissionRequest::new(request) else {
        return;
    };
    (0..policy.rules().len()).for_each(|rule| decide(&policy, rule, &request));
}

fn decide(policy: &Policy, rule: usize, request: &AdmissionRequest) {
    let mut evaluation = Evaluation::start(policy, &policy.rules()[rule], request);
    for _ in 0..STEPS_MAX {
        match evaluation.step() {
            RuleStep::Done(_) => return,
            RuleStep::Need(facts) => {
                assert!(!facts.is_empty(), "it would wait for ever");
                for fact in facts {
                    let view = String::new();
                    match fact.is_pushed_down {
                        true => evaluation.decline(fact.id),
                        false => evaluation.supply(fact.id, Err(FactError::NoReplica { view })),
                    }
                }
            }
        }
    }
    panic!("it does not end");
}

/// A document, and a patch of it: as a list of operations, as a strategic merge, and as a pattern.
pub(crate) fn patch(input: &[u8]) {
    let Some([document, patch]) = documents(input) else {
        return;
    };
    if let Ok(patch) = Patch::parse(&patch) {
        for leniency in [Leniency::NONE, Leniency::KYVERNO] {
            let _ = patch.apply(&document, leniency);
        }
    }
    let _ = merge::merge(&document, &patch, Schema::of("v1", "Pod"));
    let _ = pattern::matches(&patch, &document);
    let matches = |pattern: &Value, object: &Value| pattern::matches(pattern, object).is_ok();
    let _ = anchors::resolve(&patch, &document, Schema::of("v1", "Pod"), &matches);
    let same = merge::merge(
        &document,
        &Value::Object(Default::default()),
        Schema::of("v1", "Pod"),
    );
    if document.is_object()
        && let Ok(same) = same
    {
        assert_eq!(same, document, "an empty patch changes nothing");
    }
}

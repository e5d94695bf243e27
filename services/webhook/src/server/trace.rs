//! The span of a review, and the attributes by which its trace is found.
//!
//! Attributes are names, codes and ages. They hold no message of a rule, no user, and no value of an object or a fact: more
//! people read traces than audit logs. Where no trace is exported, there is no span, and no attribute is computed.

use anteroom_engine::{
    facts::Origin,
    phase,
    verdict::{Decision, FactRecord},
};
use anteroom_model::ErrorCode;
use anteroom_policy::{Phase, RuleOutcome};
use anteroom_runtime::telemetry;
use http::HeaderMap;
use tracing::{Span, field::Empty};

/// Policies that a span names.
const POLICIES_MAX: usize = 16;

/// The quality of a fact that a rule asked for, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FactQuality {
    /// A replica answered that serves the view.
    View,
    /// A watcher read it.
    Live,
    /// A replica answered from the last good data.
    LastGood,
    /// Nobody had an answer.
    Missing,
    /// There were data, older than the rule accepts.
    Stale,
}

impl FactQuality {
    /// Returns the quality of a fact; `None`: nobody was asked.
    fn of(fact: &FactRecord) -> Option<Self> {
        match (fact.error, fact.origin.as_deref()) {
            (Some(ErrorCode::VIEW_STALE), _) => Some(Self::Stale),
            (Some(_), _) => Some(Self::Missing),
            (None, Some(Origin::View { last_good, .. })) => match *last_good {
                true => Some(Self::LastGood),
                false => Some(Self::View),
            },
            (None, Some(Origin::Live { .. })) => Some(Self::Live),
            (None, None) => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Live => "live",
            Self::LastGood => "last_good",
            Self::Missing => "missing",
            Self::Stale => "stale",
        }
    }
}

/// Returns the span of a review; its parent is the API server's span, if the request names one.
pub(super) fn span(headers: &HeaderMap) -> Span {
    let span = tracing::info_span!(
        "admission",
        otel.kind = "server",
        otel.status_code = Empty,
        uid = Empty,
        kind = Empty,
        namespace = Empty,
        name = Empty,
        operation = Empty,
        allowed = Empty,
        anteroom.phase = Empty,
        anteroom.decision = Empty,
        anteroom.policy = Empty,
        anteroom.rule = Empty,
        anteroom.policies = Empty,
        anteroom.code = Empty,
        anteroom.facts = Empty,
        anteroom.facts_age_ms = Empty,
    );
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(traceparent) = header("traceparent") {
        telemetry::set_parent(&span, traceparent, header("tracestate").unwrap_or_default());
    }
    span
}

/// Records a decision, and what led to it.
pub(super) fn decided(phase: Phase, decision: &Decision) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    span.record("allowed", decision.allowed());
    if decision.error {
        span.record("otel.status_code", "ERROR");
    }
    span.record("anteroom.phase", phase::verb(phase));
    span.record("anteroom.decision", outcome(decision));
    if let Some((policy, rule)) = blamed(decision) {
        span.record("anteroom.policy", policy);
        span.record("anteroom.rule", rule);
    }
    if !decision.rules.is_empty() {
        span.record("anteroom.policies", policies(decision));
    }
    if let Some(code) = code(decision) {
        span.record("anteroom.code", code.as_str());
    }
    let facts = || decision.rules.iter().flat_map(|rule| &rule.facts);
    if let Some(worst) = facts().filter_map(FactQuality::of).max() {
        span.record("anteroom.facts", worst.as_str());
    }
    if let Some(age_ms) = facts().filter_map(age_ms).max() {
        span.record("anteroom.facts_age_ms", age_ms);
    }
}

/// Records that a review could not be decided on.
pub(super) fn undecided(code: ErrorCode) {
    let span = Span::current();
    if !span.is_disabled() {
        span.record("otel.status_code", "ERROR");
        span.record("anteroom.decision", "error");
        span.record("anteroom.code", code.as_str());
    }
}

/// Returns `error` for a request that errors alone refuse.
fn outcome(decision: &Decision) -> &'static str {
    match &decision.blocked[..] {
        [] => "allowed",
        blocked if blocked.iter().any(|blocked| blocked.error.is_none()) => "denied",
        _ => "error",
    }
}

/// Returns policy and rule of the first refusal; of an admitted request, of its first violation or error.
fn blamed(decision: &Decision) -> Option<(&str, &str)> {
    if let Some(blocked) = decision.blocked.first() {
        return Some((&*blocked.policy, &*blocked.rule));
    }
    let mut rules = decision.rules.iter();
    let blamed = rules.find(|rule| {
        matches!(
            rule.outcome,
            RuleOutcome::Fail { .. } | RuleOutcome::Error(_)
        )
    });
    blamed.map(|rule| (&*rule.name.policy, rule.name.rule()))
}

/// Returns the names of the policies that spoke of the request, with a comma between two.
fn policies(decision: &Decision) -> String {
    let mut names: Vec<&str> = Vec::new();
    for rule in &decision.rules {
        let name = &*rule.name.policy;
        if names.len() < POLICIES_MAX && !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(",")
}

/// Returns the code of the first error, of one that refuses the request before others.
fn code(decision: &Decision) -> Option<ErrorCode> {
    let refusing = decision.blocked.iter().find_map(|blocked| blocked.error);
    refusing.or_else(|| {
        decision.rules.iter().find_map(|rule| match &rule.outcome {
            RuleOutcome::Error(error) => Some(error.code()),
            _ => None,
        })
    })
}

fn age_ms(fact: &FactRecord) -> Option<u64> {
    match fact.origin.as_deref()? {
        Origin::View { age_ms, .. } | Origin::Live { age_ms, .. } => Some(*age_ms),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc, time::Duration};

    use anteroom_engine::{
        rule::RuleName,
        verdict::{self, ChangedPlaces, RuleRecord},
    };
    use anteroom_model::{ObjectKey, Revision, ViewId};
    use anteroom_policy::{FailureAction, RuleError};

    use super::*;

    fn record(policy: &str, action: FailureAction, outcome: RuleOutcome) -> RuleRecord {
        RuleRecord {
            name: Arc::new(RuleName::new(ObjectKey::new("", policy), "r")),
            action,
            ignore_errors: false,
            warn_on_audit: false,
            facts: Vec::new(),
            changed: ChangedPlaces::default(),
            excepted_by: Vec::new(),
            properties: BTreeMap::new(),
            depends_on_arrival: false,
            knows_secrets: false,
            took: Duration::ZERO,
            outcome,
        }
    }

    fn decision(rules: Vec<RuleRecord>) -> Decision {
        verdict::decide(rules, Vec::new())
    }

    fn fail() -> RuleOutcome {
        RuleOutcome::Fail {
            message: "no".into(),
        }
    }

    fn error() -> RuleOutcome {
        RuleOutcome::Error(RuleError::TooManyFacts)
    }

    #[test]
    fn a_refusal_names_its_policy_and_an_error_its_code() {
        use FailureAction::{Audit, Enforce};
        let pass = || record("a", Enforce, RuleOutcome::Pass);
        for (second, expected) in [
            (pass(), ("allowed", None, None)),
            (
                record("b", Enforce, fail()),
                ("denied", Some(("b", "r")), None),
            ),
            (
                record("b", Audit, fail()),
                ("allowed", Some(("b", "r")), None),
            ),
            (
                record("b", Enforce, error()),
                ("error", Some(("b", "r")), Some("AR203")),
            ),
            (
                record("b", Audit, error()),
                ("allowed", Some(("b", "r")), Some("AR203")),
            ),
        ] {
            let decision = decision(vec![pass(), second]);
            let code = code(&decision).map(ErrorCode::as_str);
            assert_eq!((outcome(&decision), blamed(&decision), code), expected);
        }
        let both = decision(vec![
            record("a", Enforce, error()),
            record("b", Enforce, fail()),
        ]);
        assert_eq!(outcome(&both), "denied", "the request violates a rule");
    }

    #[test]
    fn each_policy_is_named_once_and_not_too_many_are() {
        let pass = |name: &str| record(name, FailureAction::Enforce, RuleOutcome::Pass);
        let twice = decision(vec![pass("a"), pass("a"), pass("b")]);
        assert_eq!(policies(&twice), "a,b");
        let many = (0..100).map(|number| pass(&number.to_string())).collect();
        let named = policies(&decision(many));
        assert_eq!(named.split(',').count(), POLICIES_MAX);
    }

    #[test]
    fn the_quality_of_a_fact_says_whether_it_was_stale_or_last_good() {
        let view = |last_good| Origin::View {
            view: ViewId::new("pods.v1"),
            replica: "r-1".into(),
            incarnation: "i".into(),
            revision: Revision(9),
            version: "42".into(),
            age_ms: 7,
            objects: 1,
            examined: 1,
            last_good,
        };
        let live = Origin::Live {
            watcher: "w-1".into(),
            age_ms: 0,
            shared: false,
            secret: false,
            fallback_from: None,
        };
        let fact = |origin: Option<Origin>, error| FactRecord {
            entry: "pods".into(),
            origin: origin.map(Arc::new),
            error,
        };
        let cases = [
            (fact(None, None), None),
            (fact(Some(view(false)), None), Some("view")),
            (fact(Some(live), None), Some("live")),
            (fact(Some(view(true)), None), Some("last_good")),
            (fact(None, Some(ErrorCode::NO_REPLICA)), Some("missing")),
            (fact(None, Some(ErrorCode::VIEW_STALE)), Some("stale")),
        ];
        let mut before = None;
        for (fact, expected) in cases {
            let quality = FactQuality::of(&fact);
            assert_eq!(quality.map(FactQuality::as_str), expected);
            assert!(quality >= before, "from the best on");
            before = quality;
        }
        assert_eq!(age_ms(&fact(Some(view(true)), None)), Some(7));
    }
}

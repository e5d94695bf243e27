//! The webhook's metrics by the names that Kyverno's metrics have, for dashboards and alerts that know those
//! (`--kyverno-metric-names`).
//!
//! The labels of these metrics name kinds and namespaces, so there are far more series. Each rule keeps its own
//! counters, so that a decision looks up none by thirteen labels.

use std::{
    collections::{HashMap, HashSet},
    hash::{Hash, Hasher as _},
    sync::Arc,
    time::Duration,
};

use anteroom_engine::{
    incoming::Incoming as _,
    policies::PolicySet,
    rule::{RuleName, RuleResult},
    verdict::{Decision, RuleRecord},
};
use anteroom_policy::{FailureAction, Operation, Phase, PolicyKind};
use anteroom_runtime::Metrics;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use xxhash_rust::xxh3::Xxh3Default;

use super::{phase_name, recorder::RuleSeries};
use crate::review::Review;

/// The most pairs of kind and namespace with series of their own. Further pairs are counted together.
const SUBJECTS_MAX: usize = 2_000;

/// The most pairs of rule and subject with series of their own. Further pairs share a series.
const RULE_SUBJECTS_MAX: usize = 20_000;

/// Stands for a kind and a namespace beyond that.
const OTHER: &str = "other";

/// Buckets from a rule without facts to a rule that took its whole time.
const SECONDS: [f64; 8] = [0.000_1, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0];

/// Metrics by Kyverno's names. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct KyvernoMetrics {
    requests: Family<RequestLabels, Counter>,
    review_seconds: Family<RequestLabels, Histogram, fn() -> Histogram>,
    results: Family<ResultLabels, Counter>,
    execution_seconds: Family<ResultLabels, Histogram, fn() -> Histogram>,
    rules: Family<RuleLabels, Gauge>,
    /// The series of requests.
    seen: Arc<SeriesCache>,
    requests_known: Arc<Mutex<HashSet<u64>>>,
    results_known: Arc<Mutex<KnownSeries>>,
}

/// The label sets counted for rules: they are bounded, and removed with the rules.
#[derive(Debug, Default)]
struct KnownSeries {
    subjects: usize,
    by_rule: HashMap<RuleKey, KnownRuleSeries>,
}

/// Namespace and name of the policy, and the rule.
type RuleKey = (String, String, String);

#[derive(Debug, Default)]
struct KnownRuleSeries {
    /// Hashes of kinds and namespaces of requests.
    subjects: HashSet<u64>,
    labels: HashSet<ResultLabels>,
}

impl ConstantRuleLabels {
    fn key(&self) -> RuleKey {
        (self.namespace.clone(), self.name.clone(), self.rule.clone())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    resource_kind: String,
    resource_namespace: String,
    resource_request_operation: &'static str,
    request_allowed: &'static str,
    request_webhook: &'static str,
}

/// The labels of a rule that are the same for every request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ConstantRuleLabels {
    validation_mode: &'static str,
    policy_type: &'static str,
    background_mode: &'static str,
    namespace: String,
    name: String,
    rule: String,
    rule_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    policy_validation_mode: &'static str,
    policy_type: &'static str,
    policy_background_mode: &'static str,
    policy_namespace: String,
    policy_name: String,
    resource_kind: String,
    resource_namespace: String,
    resource_request_operation: &'static str,
    rule_name: String,
    rule_result: &'static str,
    rule_type: &'static str,
    rule_execution_cause: &'static str,
    dry_run: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    policy_validation_mode: &'static str,
    policy_type: &'static str,
    policy_background_mode: &'static str,
    policy_namespace: String,
    policy_name: String,
    rule_name: String,
    rule_type: &'static str,
    status_ready: &'static str,
}

impl ConstantRuleLabels {
    pub(super) fn of(rule: &RuleName) -> Self {
        let policy = &rule.reader.policy;
        let (policy_type, namespace) = match &*policy.namespace {
            "" => ("cluster", "-"),
            namespace => ("namespaced", namespace),
        };
        Self {
            validation_mode: mode(rule.action),
            policy_type,
            background_mode: text(rule.for_background),
            namespace: namespace.to_owned(),
            name: PolicyKind::of_key(policy).1.to_owned(),
            rule: rule.rule().to_owned(),
            rule_type: phase_name(rule.phase),
        }
    }
}

impl KyvernoMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        Self {
            requests: metrics.create("kyverno_admission_requests", "Reviews decided"),
            review_seconds: metrics.register(
                "kyverno_admission_review_duration_seconds",
                "From a review's last byte to its answer",
                Family::new_with_constructor(histogram),
            ),
            results: metrics.create(
                "kyverno_policy_results",
                "Rules that matched a request, by result",
            ),
            execution_seconds: metrics.register(
                "kyverno_policy_execution_duration_seconds",
                "From a rule's first step to its result, facts included",
                Family::new_with_constructor(histogram),
            ),
            rules: metrics.create(
                "kyverno_policy_rule_info_total",
                "1 for each rule that there is",
            ),
            seen: Arc::default(),
            requests_known: Arc::default(),
            results_known: Arc::default(),
        }
    }

    /// Counts a decision and all its rules.
    pub(crate) fn decided(
        &self,
        review: &Review<'_>,
        phase: Phase,
        decision: &Decision,
        took: Duration,
    ) {
        let allowed = decision.allowed();
        let whole = CountedRequest::of(review);
        let subject = self.bounded(whole);
        let key = (&subject, phase == Phase::Mutation, allowed);
        let counted = self.seen.get(&key, || {
            let labels = RequestLabels {
                resource_kind: subject.kind.to_owned(),
                resource_namespace: subject.namespace.to_owned(),
                resource_request_operation: subject.operation,
                request_allowed: text(allowed),
                request_webhook: match phase {
                    Phase::Validation => "ValidatingWebhookConfiguration",
                    Phase::Mutation => "MutatingWebhookConfiguration",
                },
            };
            Counted {
                count: self.requests.get_or_create_owned(&labels),
                seconds: self.review_seconds.get_or_create_owned(&labels),
            }
        });
        counted.observe(took);
        for record in &decision.rules {
            RuleSeries::with(&record.name, |RuleSeries { labels, seen, .. }| {
                let subject = self.bounded_for_rule(whole, labels);
                let key = (&subject, record.result() as usize, mode(record.action));
                let counted = seen.get(&key, || self.rule(subject, labels, record));
                counted.observe(record.took);
            });
        }
    }

    fn rule(
        &self,
        subject: CountedRequest<'_>,
        of: &ConstantRuleLabels,
        record: &RuleRecord,
    ) -> Counted {
        let labels = ResultLabels {
            // Namespaces may have actions of their own.
            policy_validation_mode: mode(record.action),
            policy_type: of.policy_type,
            policy_background_mode: of.background_mode,
            policy_namespace: of.namespace.clone(),
            policy_name: of.name.clone(),
            resource_kind: subject.kind.to_owned(),
            resource_namespace: subject.namespace.to_owned(),
            resource_request_operation: subject.operation,
            rule_name: of.rule.clone(),
            rule_result: match record.result() {
                // It is not among a decision's records.
                RuleResult::NotMatched | RuleResult::Skip => "skip",
                RuleResult::Pass => "pass",
                RuleResult::Fail => "fail",
                RuleResult::Error => "error",
            },
            rule_type: of.rule_type,
            rule_execution_cause: "admission_request",
            dry_run: text(subject.dry_run),
        };
        let counted = Counted {
            count: self.results.get_or_create_owned(&labels),
            seconds: self.execution_seconds.get_or_create_owned(&labels),
        };
        let mut known = self.results_known.lock();
        let known_rule = known.by_rule.entry(of.key()).or_default();
        known_rule.labels.insert(labels);
        counted
    }

    /// Returns the subject, or beyond the limit the one that stands for all further subjects.
    fn bounded<'p>(&self, subject: CountedRequest<'p>) -> CountedRequest<'p> {
        let key = hash(&(subject.kind, subject.namespace));
        let mut known = self.requests_known.lock();
        if known.contains(&key) || known.len() < SUBJECTS_MAX {
            known.insert(key);
            return subject;
        }
        subject.other()
    }

    /// Bounds the labels as [`Self::bounded`] does, for one rule.
    fn bounded_for_rule<'p>(
        &self,
        subject: CountedRequest<'p>,
        of: &ConstantRuleLabels,
    ) -> CountedRequest<'p> {
        let key = hash(&(subject.kind, subject.namespace));
        let mut known = self.results_known.lock();
        let has_room = known.subjects < RULE_SUBJECTS_MAX;
        let known_rule = known.by_rule.entry(of.key()).or_default();
        if known_rule.subjects.contains(&key) {
            return subject;
        }
        if !has_room {
            return subject.other();
        }
        known_rule.subjects.insert(key);
        known.subjects += 1;
        subject
    }

    /// Removes the series of all other rules.
    fn forget_all_but(&self, rules: &HashSet<RuleKey>) {
        let mut known = self.results_known.lock();
        let known = &mut *known;
        known.by_rule.retain(|key, known_rule| {
            let stays = rules.contains(key);
            if !stays {
                known.subjects -= known_rule.subjects.len();
                for labels in &known_rule.labels {
                    self.results.remove(labels);
                    self.execution_seconds.remove(labels);
                }
            }
            stays
        });
    }

    /// Takes over the policies in force.
    pub(super) fn policies(&self, policies: &PolicySet) {
        self.rules.clear();
        let mut known = HashSet::new();
        for entry in policies.all() {
            for rule in &entry.names {
                let of = ConstantRuleLabels::of(rule);
                known.insert(of.key());
                let labels = RuleLabels {
                    policy_validation_mode: of.validation_mode,
                    policy_type: of.policy_type,
                    policy_background_mode: of.background_mode,
                    policy_namespace: of.namespace,
                    policy_name: of.name,
                    rule_name: of.rule,
                    rule_type: of.rule_type,
                    status_ready: "true",
                };
                self.rules.get_or_create(&labels).set(1);
            }
        }
        self.forget_all_but(&known);
    }
}

/// The kind, namespace and operation by which a request is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CountedRequest<'a> {
    kind: &'a str,
    namespace: &'a str,
    operation: &'static str,
    dry_run: bool,
}

impl<'a> CountedRequest<'a> {
    /// Returns the labels of a series that stands for many.
    fn other(self) -> Self {
        Self {
            kind: OTHER,
            namespace: OTHER,
            ..self
        }
    }

    fn of(review: &'a Review<'_>) -> Self {
        Self {
            kind: &review.head.kind.kind,
            namespace: &review.head.namespace,
            operation: match review.operation() {
                Operation::Create => "create",
                Operation::Update => "update",
                Operation::Delete => "delete",
                Operation::Connect => "connect",
            },
            dry_run: review.is_dry_run(),
        }
    }
}

/// The series in which a result is counted.
#[derive(Clone, Debug)]
struct Counted {
    count: Counter,
    seconds: Histogram,
}

impl Counted {
    fn observe(&self, took: Duration) {
        self.count.inc();
        self.seconds.observe(took.as_secs_f64());
    }
}

/// Series by a hash of their labels, so that the second result of a kind looks nothing up.
#[derive(Debug, Default)]
pub(super) struct SeriesCache(Mutex<HashMap<u64, Counted>>);

impl SeriesCache {
    fn get(&self, key: &impl Hash, make: impl FnOnce() -> Counted) -> Counted {
        let mut seen = self.0.lock();
        seen.entry(hash(key)).or_insert_with(make).clone()
    }
}

fn hash(key: &impl Hash) -> u64 {
    let mut hasher = Xxh3Default::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn mode(action: FailureAction) -> &'static str {
    match action {
        FailureAction::Enforce => "enforce",
        FailureAction::Audit => "audit",
    }
}

fn text(flag: bool) -> &'static str {
    match flag {
        true => "true",
        false => "false",
    }
}

#[cfg(test)]
mod tests {
    use anteroom_engine::verdict::ChangedPlaces;
    use serde_json::json;

    use super::*;

    fn review(kind: &str, namespace: &str) -> String {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": "x"}, "dryRun": true,
            "namespace": namespace, "operation": "CREATE", "object": {"metadata": {}}}})
        .to_string()
    }

    fn count(metrics: &KyvernoMetrics, kind: &str, namespace: &str) {
        let body = review(kind, namespace);
        let review = Review::parse(body.as_bytes()).unwrap();
        assert!(review.is_dry_run());
        let took = Duration::from_millis(1);
        metrics.decided(&review, Phase::Validation, &Decision::default(), took);
    }

    #[test]
    fn requests_are_counted_by_kyvernos_labels() {
        let metrics = anteroom_runtime::Service::new("webhook").metrics;
        let kyverno = KyvernoMetrics::register(&metrics);
        count(&kyverno, "Pod", "a");
        count(&kyverno, "Pod", "a");
        let text = metrics.encode();
        let line = "kyverno_admission_requests_total{resource_kind=\"Pod\",resource_namespace=\"a\",\
            resource_request_operation=\"create\",request_allowed=\"true\",\
            request_webhook=\"ValidatingWebhookConfiguration\"} 2";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("kyverno_admission_review_duration_seconds_count{"),
            "{text}"
        );
    }

    #[test]
    fn a_rule_is_counted_by_the_action_that_it_had() {
        let metrics = anteroom_runtime::Service::new("webhook").metrics;
        let kyverno = KyvernoMetrics::register(&metrics);
        let name = Arc::new(RuleName::new(anteroom_model::ObjectKey::new("", "p"), "r"));
        let body = review("Pod", "a");
        let review = Review::parse(body.as_bytes()).unwrap();
        for action in [FailureAction::Enforce, FailureAction::Audit] {
            let record = RuleRecord {
                name: Arc::clone(&name),
                action,
                ignore_errors: false,
                warn_on_audit: false,
                took: Duration::ZERO,
                outcome: anteroom_policy::RuleOutcome::Pass,
                changed: ChangedPlaces::default(),
                facts: Vec::new(),
                excepted_by: Vec::new(),
                properties: std::collections::BTreeMap::new(),
                depends_on_arrival: false,
                knows_secrets: false,
            };
            let decision = Decision {
                rules: vec![record],
                ..Decision::default()
            };
            kyverno.decided(&review, Phase::Validation, &decision, Duration::ZERO);
        }
        let of = |namespace: &'static str| CountedRequest {
            namespace,
            ..CountedRequest::of(&review)
        };
        let text = metrics.encode();
        for mode in ["enforce", "audit"] {
            let line = format!("kyverno_policy_results_total{{policy_validation_mode=\"{mode}\"");
            let one = text.lines().filter(|found| found.starts_with(&line));
            assert_eq!(one.count(), 1, "{text}");
        }
        // Beyond the limit, subjects are counted together; what is known stays apart.
        kyverno.results_known.lock().subjects = RULE_SUBJECTS_MAX;
        let labels = &ConstantRuleLabels::of(&name);
        assert_eq!(kyverno.bounded_for_rule(of("b"), labels), of("b").other());
        assert_eq!(kyverno.bounded_for_rule(of("a"), labels), of("a"));
        // And all goes with the rule.
        kyverno.policies(&PolicySet::default());
        let text = metrics.encode();
        assert!(!text.contains("kyverno_policy_results_total{"), "{text}");
        assert!(!text.contains("kyverno_policy_execution_duration_seconds_count{"));
        assert_eq!(kyverno.results_known.lock().subjects, RULE_SUBJECTS_MAX - 1);
    }

    #[test]
    fn beyond_the_limit_places_are_counted_together() {
        let metrics = anteroom_runtime::Service::new("webhook").metrics;
        let kyverno = KyvernoMetrics::register(&metrics);
        for number in 0..SUBJECTS_MAX + 2 {
            count(&kyverno, "Pod", &number.to_string());
        }
        count(&kyverno, "Pod", "0");
        let text = metrics.encode();
        let series = |text: &str| {
            let lines = text.lines();
            lines
                .filter(|line| line.starts_with("kyverno_admission_requests_total{"))
                .count()
        };
        assert_eq!(series(&text), SUBJECTS_MAX + 1);
        assert!(text.contains("resource_kind=\"other\",resource_namespace=\"other\""));
        assert_eq!(kyverno.seen.0.lock().len(), SUBJECTS_MAX + 1);
    }
}

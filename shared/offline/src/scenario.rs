//! Policies held against resources.

use std::{collections::BTreeMap, fmt, sync::Arc};

use anteroom_engine::{
    drive::drive_at_once,
    rule::RuleName,
    rule_run::{NamedRule, RuleRun},
    verdict::Consequence,
};
use anteroom_policy::{
    AdmissionRequest, Arrival, Evaluation, FailureAction, Operation, Policy, PolicyException, Rule,
    RuleOutcome,
};
use serde_json::{Map, Value};

use crate::{
    context::Context,
    crd::CustomKinds,
    declared::DeclaredEntry,
    facts::{Facts, World},
    file_facts::FileFacts,
    loaded_policy::LoadedPolicy,
    request::{self, User},
    resource::Resource,
    values::Variables,
};

/// The result of a rule, in the words of a policy report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The resource complies.
    Pass,
    /// The resource does not comply.
    Fail,
    /// The resource does not comply, and the policy says that this does not count.
    Warn,
    /// It is not known whether the resource complies.
    Error,
    /// The rule does not apply.
    Skip,
}

impl Status {
    /// Its name in files of expected results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Skip => "skip",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The result of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleResponse {
    /// The rule's name; empty for those of policies.kyverno.io.
    pub rule: String,
    /// Its result.
    pub status: Status,
    /// A violation denies, at admission.
    pub is_enforced: bool,
    /// The violation, the error, or why it was skipped.
    pub message: String,
    /// The context entries without given data, which the rule evaluated as absent.
    pub left_out: Vec<String>,
    /// The existing objects that a rule with `mutate.targets` changed, each as it was given but for this
    /// rule.
    pub changed: Vec<Value>,
    /// Further results: audit annotations, and which validation decided (`cel.validationIndex`).
    pub properties: BTreeMap<String, String>,
    /// The consequence for a request at admission; `None` of a policy that is not asked there.
    pub(crate) consequence: Option<Consequence>,
}

/// The results of one policy on one resource: none, if no rule of it speaks of the resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// Its place among the policies.
    pub policy: usize,
    /// Its place among the resources.
    pub resource: usize,
    /// The results of the rules on the resource: first of mutate rules, then of validate rules.
    pub rules: Vec<RuleResponse>,
    /// The resource as rules changed it.
    pub patched: Option<Value>,
}

/// The policies, resources and facts that [`apply`] evaluates.
#[derive(Debug, Default)]
pub struct Scenario {
    /// In the order in which they are asked.
    pub policies: Vec<LoadedPolicy>,
    /// The resources that are asked about.
    pub resources: Vec<Resource>,
    /// The values that rules are given in place of facts.
    pub variables: Variables,
    /// The user who makes the requests.
    pub user: User,
    /// The exceptions of resources from rules.
    pub exceptions: Vec<PolicyException>,
    /// The time of the requests. Without one, a rule that asks what time it is, or for chance, is an error.
    pub arrival: Option<Arrival>,
    /// An entry of a context that nothing was given for is a missing key, and else an error.
    pub leaves_out: bool,
    /// The operation of the requests, whatever values say.
    pub(crate) operation: Option<Operation>,
    /// The object before an update; `None`: see [`Self::before`].
    pub(crate) old: Option<Value>,
    /// Objects before their updates. A missing object was not changed by its update.
    pub(crate) before: Vec<Resource>,
    pub(crate) world: World,
    /// The kinds that definitions among all resources give.
    pub(crate) custom_kinds: CustomKinds,
}

impl Scenario {
    /// With these policies and resources, of which a second one of the same name is left out. The
    /// resources are the cluster that rules read, too.
    pub fn new(policies: Vec<LoadedPolicy>, resources: Vec<Resource>) -> Self {
        let mut kept: Vec<Resource> = Vec::new();
        for resource in resources {
            if !kept.iter().any(|known| known.is(&resource)) {
                kept.push(resource);
            }
        }
        let mut scenario = Self {
            policies,
            world: World {
                resources: kept.clone(),
                ..World::default()
            },
            resources: kept,
            ..Self::default()
        };
        scenario.name_kinds();
        scenario
    }

    /// And with entries that keep some of the resources.
    #[must_use]
    pub fn with_entries(mut self, declared: Vec<DeclaredEntry>) -> Self {
        self.world.declared = declared;
        self
    }

    /// And with resources that rules read, and that are not held against policies; of two of the same name those
    /// before count.
    #[must_use]
    pub fn with_read(mut self, resources: Vec<Resource>) -> Self {
        self.world.cluster.extend(resources.iter().cloned());
        self.world.resources.extend(resources);
        self.name_kinds();
        self
    }

    /// And with the data of a `Context` file.
    #[must_use]
    pub fn with_context(mut self, context: Context) -> Self {
        self.take_context(context);
        self
    }

    /// Takes the data of a `Context` file. Data that are there already count before its own.
    pub(crate) fn take_context(&mut self, mut context: Context) {
        self.world.entries.append(&mut context.entries);
        self.world.responses.append(&mut context.responses);
        self.world.context = Some(context);
        self.name_kinds();
    }

    /// Gives custom kinds what the definitions among all resources say.
    pub(crate) fn name_kinds(&mut self) {
        let World {
            resources,
            cluster,
            targets,
            context,
            ..
        } = &mut self.world;
        let mut of_context = context.as_mut().map(|context| &mut context.resources);
        let of_context = of_context.as_mut().map_or(&mut [][..], |own| &mut own[..]);
        self.custom_kinds = CustomKinds::of(
            resources
                .iter()
                .chain(targets.iter())
                .chain(of_context.iter()),
        );
        let all = resources.iter_mut().chain(cluster).chain(targets);
        let all = all.chain(of_context).chain(&mut self.resources);
        self.custom_kinds.name(all);
    }

    /// And with what rules with `mutate.targets` change, beside the resources.
    #[must_use]
    pub fn with_targets(mut self, targets: Vec<Resource>) -> Self {
        self.world.targets = targets;
        self.name_kinds();
        self
    }

    /// Returns the object before an update; `None`: it was the same.
    fn old_of(&self, resource: &Resource) -> Option<&Value> {
        let before = || self.before.iter().find(|before| before.is(resource));
        self.old
            .as_ref()
            .or_else(|| before().map(|before| &before.value))
    }
}

/// Returns the results of every policy on every resource, resource by resource.
pub fn apply(scenario: &Scenario) -> Vec<Response> {
    let mut responses = Vec::new();
    for (at, resource) in scenario.resources.iter().enumerate() {
        let first = responses.len();
        // The object after the rules applied so far, in the order of the policies.
        let mut patched = None;
        for (policy, loaded) in scenario.policies.iter().enumerate() {
            if let Ok(compiled) = &loaded.outcome {
                responses.push(Response {
                    policy,
                    resource: at,
                    rules: rules(scenario, loaded, compiled, resource, &mut patched, true),
                    patched: patched.clone(),
                });
            }
        }
        // Validate rules see the object after all mutate rules.
        for response in &mut responses[first..] {
            let loaded = &scenario.policies[response.policy];
            if let Ok(compiled) = &loaded.outcome {
                let rules = rules(scenario, loaded, compiled, resource, &mut patched, false);
                response.rules.extend(rules);
            }
        }
    }
    responses
}

/// Returns the results of the rules that change the resource, or of the rules that judge the resource.
fn rules(
    scenario: &Scenario,
    loaded: &LoadedPolicy,
    policy: &Policy,
    resource: &Resource,
    patched: &mut Option<Value>,
    is_mutation: bool,
) -> Vec<RuleResponse> {
    let mut request = request::request(
        &loaded.bare_name,
        resource,
        &scenario.user,
        &scenario.variables,
        scenario.operation,
        namespace_labels(scenario, resource),
    );
    if let Some(schema) = scenario.custom_kinds.schema(resource) {
        request = request.map(|of| of.with_schema(schema));
    }
    if let (Ok(of), Some(arrival)) = (&request, scenario.arrival) {
        request = Ok(of.clone().arrived(arrival));
    }
    if let (Some(old), Ok(of)) = (scenario.old_of(resource), &request)
        && of.operation() == Operation::Update
    {
        request = Ok(of.clone().with_old_object(old.clone()));
    }
    if let (Ok(request), Some(patched)) = (&mut request, &patched) {
        *request = request.with_object(patched.clone());
    }
    let mut respond = |rule: &Rule, told: &mut RuleResponse| {
        let outcome = match &request {
            Ok(request) => judge(scenario, loaded, policy, rule, request, resource, told),
            Err(error) => return Some((Status::Error, error.to_string())),
        };
        match outcome {
            RuleOutcome::NotMatched => None,
            RuleOutcome::Pass => Some((Status::Pass, String::new())),
            RuleOutcome::Mutated { object } => {
                if let Ok(request) = &mut request {
                    *request = request.with_object(object.clone());
                }
                *patched = Some(object);
                Some((Status::Pass, String::new()))
            }
            RuleOutcome::Skipped { reason } => Some((Status::Skip, reason)),
            RuleOutcome::Fail { message } if policy.reporting().unscored => {
                Some((Status::Warn, message))
            }
            RuleOutcome::Fail { message } => Some((Status::Fail, message)),
            RuleOutcome::Error(error) => Some((Status::Error, format!("{} {error}", error.code()))),
        }
    };
    let mut response = |rule: &Rule| {
        let mut told = RuleResponse {
            // Rules of policies in CEL have names for their derivation alone.
            rule: match loaded.kind.is_cel() {
                true => String::new(),
                false => rule.name().to_owned(),
            },
            status: Status::Skip,
            is_enforced: rule.action() == FailureAction::Enforce,
            message: String::new(),
            left_out: Vec::new(),
            changed: Vec::new(),
            properties: BTreeMap::new(),
            consequence: None,
        };
        (told.status, told.message) = respond(rule, &mut told)?;
        Some(told)
    };
    let all = policy.rules().iter();
    let mut responses: Vec<RuleResponse> = Vec::new();
    for rule in all.filter(|rule| rule.is_mutation() == is_mutation) {
        let is_applied =
            |one: &RuleResponse| matches!(one.status, Status::Pass | Status::Fail | Status::Warn);
        if policy.applies_one() && responses.iter().any(is_applied) {
            break;
        }
        responses.extend(response(rule));
    }
    responses
}

/// The labels of the resource's namespace: from the values, else from the given Namespace. A namespace that was not
/// given has the label that every namespace has.
fn namespace_labels(scenario: &Scenario, resource: &Resource) -> Map<String, Value> {
    let name = &resource.namespace;
    let given = || {
        let namespace = scenario.world.namespace(name).ok()?;
        namespace["metadata"]["labels"].as_object().cloned()
    };
    let labels = scenario.variables.namespace_labels(name).or_else(given);
    let mut labels = labels.unwrap_or_default();
    let own = labels.entry("kubernetes.io/metadata.name");
    own.or_insert_with(|| name.as_str().into());
    labels
}

/// Takes a rule through the engine, with every fact at hand, and returns its outcome. What a violation leads to,
/// what was left out and what was changed is put into `told`.
fn judge(
    scenario: &Scenario,
    loaded: &LoadedPolicy,
    policy: &Policy,
    rule: &Rule,
    request: &AdmissionRequest,
    resource: &Resource,
    told: &mut RuleResponse,
) -> RuleOutcome {
    let of_rule = scenario.variables.of_rule(&loaded.bare_name, rule.name());
    let of_resource = scenario
        .variables
        .of_resource(&loaded.bare_name, &resource.name);
    let request = request::of_rule(request, &of_rule);
    let labels = namespace_labels(scenario, resource);
    let facts = Facts::new(&scenario.world, &of_resource, &of_rule)
        .within(&resource.namespace, labels)
        .with_namespace(scenario.variables.namespace(&resource.namespace).cloned())
        .of_policy(policy.namespace());
    let source = FileFacts::new(facts, scenario.leaves_out, loaded.kind.is_cel());
    let evaluation =
        Evaluation::start(policy, rule, &request).with_exceptions(&scenario.exceptions);
    let evaluation = source.prepare(evaluation);
    let name = Arc::new(RuleName::of(policy, rule));
    let name = &name;
    let run = RuleRun::of(NamedRule { policy, rule, name }, evaluation);
    let mut report = drive_at_once(&source, run);
    let is_asked = policy.admission() && loaded.is_asked_at_admission;
    told.consequence = is_asked.then(|| Consequence::of_report(policy, rule, &report));
    told.left_out = source.into_left_out();
    told.is_enforced = report.action == FailureAction::Enforce;
    let changed = report.changed.drain(..);
    told.changed = changed.map(|changed| changed.object).collect();
    told.properties = report.properties;
    report.outcome
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(spec: &str, metadata: &str) -> LoadedPolicy {
        let text = format!(
            "{{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {metadata}, spec: {spec}}}"
        );
        LoadedPolicy::new(&serde_saphyr::from_str(&text).unwrap()).unwrap()
    }

    const NAMED: &str = "{rules: [{name: named, match: {any: [{resources: {kinds: [Pod]}}]}, \
        validate: {message: label it, pattern: {metadata: {labels: {a: '?*'}}}}}]}";

    fn pod(name: &str, labels: &Value) -> Resource {
        Resource::new(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        }))
        .unwrap()
    }

    #[test]
    fn every_policy_is_applied_to_every_resource_once() {
        let policies = || {
            vec![
                policy(NAMED, "{name: p}"),
                policy(
                    NAMED,
                    "{name: q, annotations: {policies.kyverno.io/scored: 'false'}}",
                ),
                policy("{rules: 3}", "{name: broken}"),
            ]
        };
        let resources = vec![pod("good", &json!({"a": "b"})), pod("bad", &json!({})), {
            pod("bad", &json!({"a": "again"}))
        }];
        let scenario = Scenario::new(policies(), resources);
        let found: Vec<_> = apply(&scenario)
            .into_iter()
            .map(|response| (response.policy, response.resource, response.rules[0].status))
            .collect();
        assert_eq!(
            found,
            [
                (0, 0, Status::Pass),
                (1, 0, Status::Pass),
                (0, 1, Status::Fail),
                (1, 1, Status::Warn),
            ]
        );
        assert!(scenario.policies[2].outcome.is_err());
    }

    #[test]
    fn manifests_of_other_kinds_are_not_loaded_as_policies() {
        assert!(LoadedPolicy::new(&json!({"kind": "ClusterPolicy"})).is_none());
        assert!(LoadedPolicy::new(&json!({"apiVersion": "v1", "kind": "Pod"})).is_none());
        let named =
            json!({"apiVersion": "kyverno.io/v1", "kind": "Policy", "metadata": {"name": "p"}});
        let policy = LoadedPolicy::new(&named).unwrap();
        assert!(policy.is_named("default/p") && policy.is_named("p") && !policy.is_named("q"));
    }

    /// `applyRules: One`: what follows the first rule that is applied counts for nothing.
    #[test]
    fn apply_rules_one_stops_after_the_first_applied_rule() {
        let rule = |name: &str, condition: &str| {
            format!(
                "{{name: {name}, match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}, preconditions: {{all: [{{key: a, operator: Equals, value: {condition}}}]}}, validate: {{deny: {{}}}}}}"
            )
        };
        let rules = [rule("left", "b"), rule("first", "a"), rule("second", "a")].join(", ");
        for (applies, expected) in [
            ("One", vec![("left", Status::Skip), ("first", Status::Fail)]),
            (
                "All",
                vec![
                    ("left", Status::Skip),
                    ("first", Status::Fail),
                    ("second", Status::Fail),
                ],
            ),
        ] {
            let spec = format!(
                "{{applyRules: {applies}, validationFailureActionOverrides: [{{action: Enforce, namespaces: [default]}}], rules: [{rules}]}}"
            );
            let metadata =
                "{name: p, annotations: {pod-policies.kyverno.io/autogen-controllers: none}}";
            let mut resource = pod("a", &json!({})).value;
            resource["metadata"]["namespace"] = "default".into();
            let scenario = Scenario::new(
                vec![policy(&spec, metadata)],
                vec![Resource::new(resource).unwrap()],
            );
            let responses = apply(&scenario);
            let rules: Vec<_> = responses[0]
                .rules
                .iter()
                .map(|one| (&*one.rule, one.status))
                .collect();
            assert_eq!(rules, expected);
            let failed = responses[0]
                .rules
                .iter()
                .filter(|one| one.status == Status::Fail);
            assert!(failed.into_iter().all(|one| one.is_enforced));
        }
    }

    /// Labels count equally for Namespaces that are only read and for Namespaces that are judged.
    #[test]
    fn the_labels_of_any_given_namespace_are_known() {
        let spec = "{rules: [{name: gold, match: {any: [{resources: {kinds: [Pod], \
            namespaceSelector: {matchLabels: {tier: gold}}}}]}, validate: {message: m, deny: {}}}]}";
        let namespace = || {
            let metadata = json!({"name": "shop", "labels": {"tier": "gold"}});
            let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            vec![Resource::new(manifest).unwrap()]
        };
        let scenario = || {
            let mut web = pod("web", &json!({})).value;
            web["metadata"]["namespace"] = "shop".into();
            let web = Resource::new(web).unwrap();
            Scenario::new(vec![policy(spec, "{name: p}")], vec![web])
        };
        for (scenario, rules) in [
            (scenario(), 0),
            (scenario().with_read(namespace()), 1),
            (scenario().with_targets(namespace()), 1),
        ] {
            assert_eq!(apply(&scenario)[0].rules.len(), rules);
        }
    }
}

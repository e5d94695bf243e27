//! A compiled policy.

use std::sync::{Arc, OnceLock};

use anteroom_cel::Program;
use anteroom_jmespath::Expression;
use anteroom_model::{EntryKind, ExistingObjects};

use crate::{
    CollectionReference, KindPattern, Operation,
    background::Background,
    call::{ApiCall, ConfigMapCall, ImageCall, ServiceCall},
    cel::Cel,
    existing::Existing,
    functions::calls_of_occasion,
    matching::{Match, Selector},
    mutation::Mutation,
    operator::Operator,
    pod_security::PodSecurity,
    template::{Prepared, Template, ValueTemplate},
};

/// A compiled `ClusterPolicy` or `Policy`: immutable, and shared by all evaluations.
#[derive(Debug)]
pub struct Policy {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) not_run: Vec<NotRun>,
    pub(crate) failure_policy: FailurePolicy,
    pub(crate) timeout_seconds: Option<u32>,
    pub(crate) admission: bool,
    pub(crate) emit_warning: bool,
    pub(crate) applies_one: bool,
    pub(crate) match_conditions: Vec<MatchCondition>,
    /// No API server has asked them before.
    pub(crate) asks_conditions: bool,
    pub(crate) background: Background,
}

impl Policy {
    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace of a `Policy`, which matches nothing outside it; `None` for a `ClusterPolicy`.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// `metadata.uid`, if the manifest came from an API server.
    pub fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// The rules, in the manifest's order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules of kinds that are not run, in the manifest's order. A policy that has no others does not
    /// compile.
    pub fn not_run(&self) -> &[NotRun] {
        &self.not_run
    }

    /// What the API server does when the webhook does not answer.
    pub fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy
    }

    /// How long the API server waits, 1 to 30 seconds; `None` where the manifest leaves it open.
    pub fn timeout_seconds(&self) -> Option<u32> {
        self.timeout_seconds
    }

    /// Whether the policy is evaluated at admission at all (`spec.admission`).
    pub fn admission(&self) -> bool {
        self.admission
    }

    /// Whether a violation in Audit is told to the user as a warning (`spec.emitWarning`).
    pub fn emit_warning(&self) -> bool {
        self.emit_warning
    }

    /// The rules of a phase, in the manifest's order, but for those that change what exists already.
    pub fn rules_of(&self, phase: Phase) -> impl Iterator<Item = &Rule> {
        let of_phase = self.rules_called_in(phase);
        of_phase.filter(|rule| !rule.changes_existing())
    }

    /// The rules that change what exists already, in the manifest's order: triggered by what is admitted in
    /// the phase of validation.
    pub fn rules_on_existing(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.changes_existing())
    }

    /// The rules for which the webhook is called in a phase.
    pub(crate) fn rules_called_in(&self, phase: Phase) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.phase() == phase)
    }

    /// Whether of rules of one kind only the first is applied that the object complies with or violates
    /// (`applyRules: One`): what those after it come to counts for nothing.
    pub fn applies_one(&self) -> bool {
        self.applies_one
    }

    /// What the API server asks before it calls the webhook for this policy
    /// (`webhookConfiguration.matchConditions`). They are evaluated here where there is none, and on what
    /// exists.
    pub fn match_conditions(&self) -> &[MatchCondition] {
        &self.match_conditions
    }

    /// What the webhook must be called for in a phase: a superset of what its rules match, one target for
    /// each filter of each rule, in order. Empty where the policy is not evaluated at admission.
    pub fn targets(&self, phase: Phase) -> impl Iterator<Item = Target> {
        let rules = self.admission.then(|| self.rules_called_in(phase));
        let rules = rules.into_iter().flatten();
        rules.flat_map(move |rule| rule.matches.targets(phase))
    }
}

/// When a rule is asked at admission. The API server asks all that change an object before any that
/// judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Rules change the object (`mutate`).
    Mutation,
    /// Rules judge what has become of it (`validate`).
    Validation,
}

impl Phase {
    /// Both, in their order.
    pub const ALL: [Self; 2] = [Self::Mutation, Self::Validation];
}

/// A rule that is not run, whatever the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// Its name.
    pub rule: String,
    /// What it does, by the field within the rule: `generate`, `verifyImages`, `mutate.targets`,
    /// `validate.assert` or `validate.manifests`.
    pub kind: &'static str,
    /// The field, as in `spec.rules[1].mutate.targets`.
    pub path: String,
}

/// A condition of a request: where one of a policy's is false, the policy says nothing of it.
#[derive(Clone, Debug)]
pub struct MatchCondition {
    /// Its name.
    pub name: String,
    /// In CEL.
    pub expression: String,
    /// `None`: only an API server can evaluate it.
    pub(crate) program: Option<Program>,
}

/// In place of a rule's action: of either list the first that is about the object counts, or else the action.
/// A violation denies where both come to that, as in Kyverno, which asks twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// By which it is decided whether the rule may deny: the rule's own, or else the policy's.
    pub(crate) before: Vec<Arc<Override>>,
    /// By which it is decided what a violation leads to: the rule's own, and behind them the policy's where the
    /// rule says nothing else itself.
    pub(crate) after: Vec<Arc<Override>>,
}

/// What a violation leads to for some objects.
#[derive(Debug)]
pub(crate) struct Override {
    pub(crate) action: FailureAction,
    /// Names with wildcards; `None`: all.
    pub(crate) namespaces: Option<Vec<String>>,
    /// What the labels of the namespace are.
    pub(crate) selector: Option<Selector>,
}

/// Kinds and operations to register for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which kinds; each may hold wildcards.
    pub kinds: Vec<KindPattern>,
    /// Which operations, never empty.
    pub operations: Vec<Operation>,
}

/// One compiled rule.
#[derive(Debug)]
pub struct Rule {
    pub(crate) name: String,
    pub(crate) action: FailureAction,
    pub(crate) overrides: Overrides,
    pub(crate) allow_existing_violations: bool,
    pub(crate) matches: Match,
    /// In the manifest's order: an entry sees those before it.
    pub(crate) context: Vec<Arc<ContextEntry>>,
    pub(crate) preconditions: Conditions,
    pub(crate) message: Option<Template>,
    pub(crate) work: Work,
    /// An expression of it names `request.roles` or `request.clusterRoles`.
    pub(crate) names_roles: bool,
}

impl Rule {
    /// Its name, unique in its policy.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it is asked.
    pub fn phase(&self) -> Phase {
        match self.work {
            Work::Mutate(_) => Phase::Mutation,
            // Triggered by what the object has become.
            Work::Validate(_) | Work::Existing(_) => Phase::Validation,
        }
    }

    /// Whether it changes objects that exist already, rather than the one that comes (`mutate.targets`).
    pub fn changes_existing(&self) -> bool {
        self.existing().is_some()
    }

    /// Whether it changes what exists already for each trigger that exists, once, whenever the policy is
    /// another one (`mutateExistingOnPolicyUpdate`).
    pub fn runs_on_policy_update(&self) -> bool {
        self.existing()
            .is_some_and(|existing| existing.on_policy_update)
    }

    /// Whether what was written in the name of such a rule triggers it (`skipBackgroundRequests: false`).
    pub fn is_triggered_by_own(&self) -> bool {
        self.existing()
            .is_some_and(|existing| existing.is_triggered_by_own)
    }

    /// Whether what is done to an object can trigger it: what is deleted only where its match says so.
    pub fn is_triggered_by(&self, operation: Operation) -> bool {
        let mut filters = self.matches.included().iter();
        operation != Operation::Delete
            || filters.any(|filter| filter.operations.contains(&Operation::Delete))
    }

    /// The kinds that it matches.
    pub fn kinds(&self) -> impl Iterator<Item = &KindPattern> {
        let filters = self.matches.included().iter();
        filters.flat_map(|filter| &filter.kinds)
    }

    /// What it changes of what exists, as far as that is known before there is a trigger: a text with variables
    /// is empty.
    pub fn targets_of_existing(&self) -> Vec<ExistingObjects> {
        let specs = self
            .existing()
            .map_or(&[][..], |existing| &existing.targets);
        let specs = specs.iter().enumerate();
        specs.map(|(at, spec)| spec.known(at)).collect()
    }

    pub(crate) fn existing(&self) -> Option<&Existing> {
        match &self.work {
            Work::Existing(existing) => Some(existing),
            Work::Mutate(_) | Work::Validate(_) => None,
        }
    }

    /// Whether it changes objects, rather than judges them.
    pub fn is_mutation(&self) -> bool {
        self.phase() == Phase::Mutation
    }

    /// What a violation leads to, unless an override is about the object: what it leads to for a request is
    /// in the report of its evaluation.
    pub fn action(&self) -> FailureAction {
        self.action
    }
}

/// What a violation leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// The request is denied.
    Enforce,
    /// The request is admitted, and the violation recorded.
    Audit,
}

/// What the API server does when the webhook does not answer, or a rule cannot be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It refuses the request.
    Fail,
    /// It admits the request.
    Ignore,
}

/// One entry of a rule's context.
#[derive(Debug)]
pub(crate) struct ContextEntry {
    pub(crate) name: String,
    pub(crate) loader: Loader,
}

/// What a rule does.
#[derive(Debug)]
pub(crate) enum Work {
    /// `validate`
    Validate(Validation),
    /// `mutate`
    Mutate(Mutation),
    /// `mutate` with `targets`
    Existing(Existing),
}

/// How a rule validates.
#[derive(Debug)]
pub(crate) enum Validation {
    /// The object is judged as a whole.
    Whole(Check),
    /// `foreach`: a violation where one of these finds one.
    ForEach(Vec<ForEach>),
}

/// How one thing is judged.
#[derive(Debug)]
pub(crate) enum Check {
    /// `deny`: a violation where these are met.
    Deny(Conditions),
    /// `pattern`: a violation where it does not match.
    Pattern(ValueTemplate),
    /// `anyPattern`: a violation where none of these matches.
    AnyPattern(Vec<ValueTemplate>),
    /// `podSecurity`: a violation where the Pod is less than its standard asks for.
    PodSecurity(PodSecurity),
    /// `cel`: a violation where one of its expressions is not true.
    Cel(Box<Cel>),
}

/// One `foreach`: how each element of a list is judged.
#[derive(Debug)]
pub(crate) struct ForEach {
    pub(crate) list: Prepared,
    /// The rule's entries, the element, and its own entries.
    pub(crate) context: Vec<Arc<ContextEntry>>,
    /// How many of them are the rule's.
    pub(crate) outer: usize,
    pub(crate) preconditions: Conditions,
    pub(crate) work: Validation,
    /// `elementScope`: whether a pattern is about the element, which has to be an object then. Where it
    /// does not say, it is about an element that is one.
    pub(crate) element_scope: Option<bool>,
}

impl ForEach {
    /// The entries of its own and of those within it.
    pub(crate) fn entries(&self) -> Vec<&Arc<ContextEntry>> {
        let own = self.context[self.outer..].iter();
        let inner = self.work.each().iter().flat_map(ForEach::entries);
        own.chain(inner).collect()
    }
}

impl Validation {
    /// What it judges by `foreach`.
    pub(crate) fn each(&self) -> &[ForEach] {
        match self {
            Self::Whole(_) => &[],
            Self::ForEach(all) => all,
        }
    }

    /// Whether something is held against a pattern, or another thing that reads it whole.
    pub(crate) fn has_pattern(&self) -> bool {
        match self {
            Self::Whole(check) => !matches!(check, Check::Deny(_) | Check::Cel(_)),
            Self::ForEach(all) => all.iter().any(|each| each.work.has_pattern()),
        }
    }
}

/// Where the value of a context entry comes from.
#[derive(Debug)]
pub(crate) enum Loader {
    /// From outside: somebody has to be asked.
    Fact(Box<Fact>),
    /// From the evaluation itself: the element of a `foreach`.
    Given,
    /// `variable`: from what is known already. At least one of value and query is given.
    Variable {
        value: Option<ValueTemplate>,
        query: Option<Prepared>,
        default: Option<ValueTemplate>,
    },
}

/// A fact that a rule reads.
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) source: FactSource,
    /// `None`: the data whole.
    pub(crate) query: Option<Prepared>,
    /// In its place where the source has nothing to give; no query is made over it.
    pub(crate) default: Option<ValueTemplate>,
    pub(crate) age_max_ms: Option<u64>,
    /// What is asked for in its place: noted when the rule around it is known.
    pub(crate) cut: OnceLock<Expression>,
}

impl Fact {
    /// What is asked where the fact is kept.
    pub(crate) fn asked(&self) -> Option<&Prepared> {
        self.query.as_ref().filter(|_| self.on_occasion().is_none())
    }

    /// Its expression, if that speaks of the time or of chance: it is evaluated in the rule then, over the
    /// data whole.
    pub(crate) fn on_occasion(&self) -> Option<&Prepared> {
        let query = self.query.as_ref();
        query.filter(|query| calls_of_occasion(query.expression()))
    }

    /// Says what may be asked for in its place: all that the rule can read of it. Said once; a second
    /// time changes nothing.
    pub(crate) fn note_cut(&self, expression: Expression) {
        let _ = self.cut.set(expression);
    }
}

/// Where a fact is read.
#[derive(Debug)]
pub(crate) enum FactSource {
    /// `cachedContextEntry`, `globalReference`.
    Entry { kind: EntryKind, name: Template },
    /// `resourceCache`.
    Collection(CollectionReference),
    /// `apiCall` with a `urlPath`; `resourceCache` with a name.
    Api(ApiCall),
    /// `apiCall` with a `service`.
    Service(ServiceCall),
    /// `configMap`.
    ConfigMap(ConfigMapCall),
    /// `imageRegistry`.
    Image(ImageCall),
}

/// Conditions of a rule, in one of the two shapes that a manifest may give them.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// `None` where the manifest has no `any`: then nothing is asked of it. An empty one is never
    /// met.
    pub(crate) any: Option<Vec<Condition>>,
    /// All must be met; the legacy list is one of these.
    pub(crate) all: Vec<Condition>,
}

/// One condition.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) key: ValueTemplate,
    pub(crate) operator: Operator,
    pub(crate) value: ValueTemplate,
    /// As written: variables in it are resolved together with the rule's message.
    pub(crate) message: Option<Template>,
}

//! The policy language: `ClusterPolicy` and `Policy` of kyverno.io, `ValidatingPolicy` and `MutatingPolicy` of
//! policies.kyverno.io, compiled once and evaluated without IO.
//!
//! Nothing here waits, reads a clock or uses the network. [`compile`] turns a manifest into a [`Policy`], or into all
//! its [`Problem`]s. [`Evaluation`] evaluates one [`Rule`] for one [`AdmissionRequest`] and returns, step by step,
//! the facts that it needs. The driver of an evaluation fetches the facts.
//!
//! ```text
//! manifest ── compile ──▶ Policy ── rules ──▶ Evaluation::start
//!                │                               │ step
//!                ▼                               ├─▶ Need(facts) ── the driver asks ── supply ─┐
//!            problems                            ◀──────────────────────────────────────────┘
//!                                                └─▶ Done(report)
//! ```
//!
//! A fact is most often a long list of which a rule needs little. If a replica can evaluate every use of the list,
//! the rule asks for the results of the uses ([`FactRequest::is_pushed_down`]) and not for the list. The rule's
//! result is the same. [`Rule::reads`] says which facts are asked for in which way.
//!
//! | module | content |
//! |---|---|
//! | `ir` | the compiled form of policies, requests and exceptions |
//! | `compile`, `prepare` | from manifest to policy; compile, then push-down |
//! | `evaluate` | one rule taken through one request |
//! | `pushdown` | expressions that are evaluated where facts are kept |
//! | `permit` | checks if a policy contains a concrete call |
//!
//! A feature that a policy uses and this crate does not evaluate is a problem that names the field, never ignored.
//! Rules for Pod controllers are derived from a rule on Pods, with the names that Kyverno gives them: `autogen-NAME`
//! and `autogen-cronjob-NAME`.
//!
//! Behaviour differs from Kyverno's on purpose:
//!
//! - a context entry that cannot be computed or read is an error at every reference. Kyverno reports the error once,
//!   and treats the entry as missing in the next expression;
//! - a value that was put in place of a variable is never read as a template or as an expression
//!   again, unless a `jmesPath` is a variable and nothing else;
//! - a context entry sees the entries before it, whatever the order in which they are loaded;
//! - a value that stands in a path names one thing in it: it adds no segment and no parameter;
//! - of a `foreach` the first element that violates the rule, or cannot be judged, decides; Kyverno
//!   passes over an error that is not the last element's;
//! - an `apiCall`'s default is used if the call failed, and not if a view does not know the answer;
//! - a `Policy` reads nothing outside its namespace: only entries that are confined to it, only paths
//!   that name it, and no `service`, which may be anywhere;
//! - a value in a patch is a value: in a key it makes no anchor and no directive, in a path no step, in the
//!   YAML of `patchesJson6902` no structure;
//! - `+(key)` in an element of a list is about each element by itself; a condition of a patch writes
//!   nothing; `{}` and `[]` of a patch are kept;
//! - the time and chance are handed in with the request ([`AdmissionRequest::arrived`]), and are the same in
//!   every step of an evaluation; names of hosts are not resolved;
//! - `{{ @ }}` in a pattern about an element of a `foreach` is the element's value at that place;
//! - a quantity has a digit in it, and a large number reads as its digits (`1000000`, not `1e+06`).

mod compile;
mod evaluate;
mod ir;
mod permit;
mod prepare;
mod pushdown;

pub use anteroom_cel::Arrival;
pub use anteroom_patch::apply::ObjectSchema;
pub use compile::{
    CONTEXT_ENTRIES_MAX, KINDS_BYTES_MAX, KINDS_MAX, ManifestCounts, RULES_MAX, STALENESS_MAX_MS,
    TARGETS_MAX, derived_rules, none_run, retain_compiled_metadata,
};
pub use evaluate::{
    COPIED_BYTES_MAX, CelRequest, Conditions, EXISTING_BATCHES_MAX, Evaluation, FACTS_PER_RULE_MAX,
    FOREACH_ELEMENTS_IN_ALL_MAX, FOREACH_ELEMENTS_MAX, FactRead, FactRequest, MUTATED_BYTES_MAX,
    NotScanned, PARAMETERS_BYTES_MAX, PUSHED_DOWN_PER_RULE_MAX, RuleError, RuleOutcome, RuleReport,
    RuleStep, SCANNED_MAX, ScannedKinds, StepStart, VALUES_BYTES_MAX, WAITING_BYTES_MAX,
    WaitingBytes, scanned,
};
pub use ir::{
    AdmissionRequest, CALLS, CALLS_DECLARED, CALLS_OFF, COMPILE_STEPS_MAX, ChangedObject,
    CollectionReference, Driver, FIELD_MANAGER, FILTERS_MAX, FactSubject, FailureAction,
    FailurePolicy, FilterError, FilterProblem, Filtered, ImageCredentials, KindPattern,
    LARGE_REQUEST_BYTES_MIN, MANIFEST_DEPTH_MAX, NamedObject, NotRun, Operation, POD_SUBRESOURCES,
    Phase, Policy, PolicyException, PolicyKind, Problem, Reference, RegisteredKinds, Reporting,
    RequestError, ResolvedApiCall, ResourceFilters, ResourcePattern, Rule, SecretName, ServedKind,
    VariableError, VariableErrorKind, ViewBackedRead, WRITER, is_namespace, service_answer,
};
pub use permit::{Call, Permit, Refusal};
pub use prepare::{compile, compile_for};
pub use pushdown::{ExplainedRead, ReadSource, RequestParts, Usage, may_miss_key};

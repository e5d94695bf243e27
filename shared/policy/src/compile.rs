//! Compiles manifests to policies.
//!
//! The manifest is walked field by field against tables of known fields, so that no field goes unread: a field
//! is evaluated, or changes nothing that is decided here, or is a problem. Walking goes on after a problem.
//!
//! Knows `ir` alone.
//!
//! # Tables of known fields
//!
//! Each level of a manifest has one, in the file that compiles the level:
//!
//! | level | constant | file |
//! |---|---|---|
//! | `Policy`, `ClusterPolicy` | `POLICY_MANIFEST` | `policy.rs` |
//! | `spec`; `webhookConfiguration` | `POLICY_SPEC`, `POLICY_WEBHOOK_CONFIGURATION` | `settings.rs` |
//! | `webhookConfiguration.matchConditions` | `MATCH_CONDITION` | `match_conditions.rs` |
//! | `rules`; `validate` | `RULE`, `VALIDATE` | `rule.rs` |
//! | `match`, `exclude`; an item of `any` or `all`; its `resources` and `subjects`; a selector, an expression of it | `MATCH_BLOCK`, `MATCH_FILTER`, `MATCH_RESOURCES`, `MATCH_SUBJECT`, `LABEL_SELECTOR`, `SELECTOR_REQUIREMENT` | `resources.rs` |
//! | `preconditions`, `conditions`; one of them | `CONDITION_BLOCK`, `CONDITION` | `conditions.rs` |
//! | `context`; `variable` | `CONTEXT_ENTRY`, `CONTEXT_VARIABLE` | `context.rs` |
//! | `apiCall`; `service`; `data`, `headers` | `API_CALL`, `API_CALL_SERVICE`, `API_CALL_PAIR` | `api_call.rs` |
//! | `cachedContextEntry`, `globalReference`; `resourceCache`; `configMap`; `imageRegistry`; its credentials | `CACHED_ENTRY`, `RESOURCE_CACHE`, `CONFIG_MAP`, `IMAGE_REGISTRY`, `REGISTRY_CREDENTIALS` | `sources.rs` |
//! | `failureActionOverrides` | `FAILURE_ACTION_OVERRIDE` | `actions.rs` |
//! | `validate.deny` | `DENY` | `check.rs` |
//! | `validate.foreach` | `VALIDATE_FOREACH` | `foreach.rs` |
//! | `validate.podSecurity`; `exclude` | `POD_SECURITY`, `POD_SECURITY_EXCLUSION` | `pod_security.rs` |
//! | `validate.cel`; an expression; a variable or precondition; an audit annotation; `paramKind`; `paramRef` | `VALIDATE_CEL`, `CEL_EXPRESSION`, `CEL_NAMED_EXPRESSION`, `AUDIT_ANNOTATION`, `PARAM_KIND`, `PARAM_REF` | `cel.rs` |
//! | `mutate`; `foreach` | `MUTATE`, `MUTATE_FOREACH` | `mutate.rs` |
//! | `mutate.targets` | `MUTATE_TARGET` | `mutate_existing.rs` |
//! | policies of policies.kyverno.io; `webhookConfiguration`; a switch of `evaluation` | `CEL_POLICY_MANIFEST`, `CEL_POLICY_WEBHOOK_CONFIGURATION`, `EVALUATION_SWITCH` | `kinds.rs` |
//! | their `spec`; `evaluation`, of those that validate | `VALIDATING_SPEC`, `VALIDATING_EVALUATION` | `kinds/validating.rs` |
//! | the same, of those that mutate; `mutations`; a patch of them | `MUTATING_SPEC`, `MUTATING_EVALUATION`, `MUTATION`, `MUTATION_PATCH` | `kinds/mutating.rs` |
//! | `matchConstraints`; `targetMatchConstraints`; `resourceRules` | `MATCH_CONSTRAINTS`, `TARGET_MATCH_CONSTRAINTS`, `RESOURCE_RULE` | `kinds/constraints.rs` |
//! | `matchConditions`, `targetMatchConditions` | `CEL_MATCH_CONDITION` | `kinds/expressions.rs` |
//! | `autogen`; `podControllers` | `AUTOGEN`, `POD_CONTROLLERS` | `kinds/autogen.rs` |
//! | `PolicyException` of either group; of kyverno.io its `spec`; `exceptions` | `EXCEPTION_MANIFEST`, `EXCEPTION_SPEC`, `EXCEPTED_RULES` | `exception.rs` |
//! | of policies.kyverno.io its `spec`; `policyRefs`; `matchConditions` | `CEL_EXCEPTION_SPEC`, `CEL_EXCEPTION_POLICY`, `CEL_EXCEPTION_CONDITION` | `cel_exception.rs` |

mod actions;
mod api_call;
mod autogen;
mod cel;
mod cel_exception;
mod check;
mod conditions;
mod context;
mod counts;
mod exception;
mod expressions;
mod fields;
mod foreach;
mod kinds;
mod match_conditions;
mod metadata;
mod mutate;
mod mutate_existing;
mod pod_security;
mod policy;
mod resources;
mod rule;
mod settings;
mod sources;
mod templates;

pub use context::CONTEXT_ENTRIES_MAX;
pub use counts::{KINDS_BYTES_MAX, KINDS_MAX, ManifestCounts};
pub use metadata::retain_compiled_metadata;
pub use mutate_existing::TARGETS_MAX;
pub(crate) use policy::policy;
pub use policy::{RULES_MAX, derived_rules, none_run};
pub use sources::STALENESS_MAX_MS;

#[cfg(test)]
mod tests;

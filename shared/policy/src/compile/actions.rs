//! The consequences of violations: `failureAction` and its overrides, of a policy and of a rule.

use std::sync::Arc;

use super::{
    fields::{Field, KnownFields, ManifestObject},
    resources,
};
use crate::ir::{
    FailureAction,
    problem::Problems,
    rule::{Override, Overrides},
};

/// Overrides beside each other.
const OVERRIDES_MAX: usize = 64;

const FAILURE_ACTION_OVERRIDE: KnownFields = KnownFields {
    evaluated: &["action", "namespaceSelector", "namespaces"],
    inert: &[],
    later: &[],
};

/// The failure action of a rule, and the overrides that may replace it.
#[derive(Clone, Debug)]
pub(super) struct Actions {
    pub(super) action: FailureAction,
    pub(super) overrides: Overrides,
    /// A new version of the policy runs its mutate-existing rules on all existing triggers.
    pub(super) on_policy_update: bool,
}

impl Actions {
    /// Compiles the actions of a policy, for all its rules.
    pub(super) fn of_policy(spec: &ManifestObject<'_>, problems: &mut Problems) -> Self {
        let action = failure_action(spec.get("validationFailureAction"), problems);
        let overrides = overrides(spec.get("validationFailureActionOverrides"), problems);
        Self {
            action: action.unwrap_or(FailureAction::Audit),
            overrides: Overrides {
                before: overrides.clone(),
                after: overrides,
            },
            on_policy_update: spec
                .get("mutateExistingOnPolicyUpdate")
                .and_then(|flag| flag.boolean(problems))
                .unwrap_or(false),
        }
    }

    /// Compiles the actions of a rule that validates.
    pub(super) fn within(&self, validate: &ManifestObject<'_>, problems: &mut Problems) -> Self {
        let own = overrides(validate.get("failureActionOverrides"), problems);
        let action = failure_action(validate.get("failureAction"), problems);
        let of_policy = self.overrides.after.iter().cloned();
        let mut after = own.clone();
        after.extend(of_policy.filter(|_| action.is_none()));
        Self {
            action: action.unwrap_or(self.action),
            overrides: Overrides {
                before: match &*own {
                    [] => self.overrides.before.clone(),
                    _ => own,
                },
                after,
            },
            on_policy_update: self.on_policy_update,
        }
    }
}

fn overrides(field: Option<Field<'_>>, problems: &mut Problems) -> Vec<Arc<Override>> {
    let Some(field) = field else {
        return Vec::new();
    };
    let fields = field.list(problems);
    if fields.len() > OVERRIDES_MAX {
        let message = format!("more than {OVERRIDES_MAX} of them");
        problems.invalid(field.path(), message);
    }
    let fields = fields.iter().take(OVERRIDES_MAX);
    fields
        .filter_map(|field| compile_override(field, problems))
        .collect()
}

fn compile_override(field: &Field<'_>, problems: &mut Problems) -> Option<Arc<Override>> {
    let given = field.object(&FAILURE_ACTION_OVERRIDE, problems)?;
    let action = given.required("action", problems);
    let action = action.and_then(|action| failure_action(Some(action), problems));
    let namespaces = given.get("namespaces");
    let namespaces = namespaces.map(|names| names.texts(problems));
    let selector = given.get("namespaceSelector");
    let selector = selector.and_then(|selector| resources::selector(&selector, problems));
    Some(Arc::new(Override {
        action: action?,
        namespaces: namespaces.filter(|names| !names.is_empty()),
        selector,
    }))
}

/// Reads a failure action, in the API's spelling or the older one in lower case.
fn failure_action(field: Option<Field<'_>>, problems: &mut Problems) -> Option<FailureAction> {
    let action = field?.known_text(&["Enforce", "Audit", "enforce", "audit"], problems)?;
    Some(match action {
        "Enforce" | "enforce" => FailureAction::Enforce,
        _ => FailureAction::Audit,
    })
}

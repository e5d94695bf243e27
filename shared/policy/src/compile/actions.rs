//! What violations lead to: `failureAction` and its overrides, of a policy and of a rule.

use std::sync::Arc;

use super::{
    failure_action,
    fields::{Field, Known, Object},
    resources,
};
use crate::{
    FailureAction,
    policy::{Override, Overrides},
    problem::Problems,
};

/// Overrides beside each other.
const OVERRIDES_MAX: usize = 64;

const OVERRIDE: Known = Known {
    evaluated: &["action", "namespaceSelector", "namespaces"],
    inert: &[],
    later: &[],
};

/// What violations lead to, unless an override says otherwise.
#[derive(Clone, Debug)]
pub(super) struct Actions {
    pub(super) action: FailureAction,
    pub(super) overrides: Overrides,
    /// What exists already is a trigger of rules that change such objects.
    pub(super) on_policy_update: bool,
}

impl Actions {
    /// Of a policy, for all its rules.
    pub(super) fn of_policy(spec: &Object<'_>, problems: &mut Problems) -> Self {
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

    /// Of a rule that validates.
    pub(super) fn within(&self, validate: &Object<'_>, problems: &mut Problems) -> Self {
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
    fields.filter_map(|field| one(field, problems)).collect()
}

fn one(field: &Field<'_>, problems: &mut Problems) -> Option<Arc<Override>> {
    let given = field.object(&OVERRIDE, problems)?;
    let action = given.required("action", problems);
    let action = action.and_then(|action| failure_action(Some(action), problems));
    let namespaces = given.get("namespaces");
    let namespaces = namespaces.map(|names| names.texts(problems));
    let selector = given.get("namespaceSelector").and_then(|selector| {
        problems.unsupported_unless(
            |driver| driver.namespace_labels,
            selector.path(),
            "the labels of namespaces are not known here",
        );
        resources::selector(&selector, problems)
    });
    Some(Arc::new(Override {
        action: action?,
        namespaces: namespaces.filter(|names| !names.is_empty()),
        selector,
    }))
}

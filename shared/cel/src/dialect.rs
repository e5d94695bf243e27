//! The dialects of CEL.

/// The names and functions that expressions have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The dialect of Kubernetes' admission policies, which `validate.cel` and `matchConditions` use.
    #[default]
    Kubernetes,
    /// The dialect of Kyverno's `ValidatingPolicy` and `MutatingPolicy`. Beyond Kubernetes' it has more
    /// functions, `request.object`, `request.oldObject`, `exceptions`, values of named types, and `orValue` on
    /// every value. It has neither `params` nor `authorizer`.
    Kyverno,
}

//! The dialects of CEL.

/// The names and functions that expressions have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Those of Kubernetes' admission policies, as `validate.cel` and `matchConditions` have them.
    #[default]
    Kubernetes,
    /// Those of Kyverno's `ValidatingPolicy` and `MutatingPolicy`: more functions, `request.object`,
    /// `request.oldObject` and `exceptions`, values of types that have a name, and `orValue` on every value; neither
    /// `params` nor `authorizer`.
    Kyverno,
}

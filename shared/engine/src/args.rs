//! The option that all share who take objects through policies.

use anteroom_policy::ResourceFilters;
use clap::Args;

/// The option by which no policy is asked about some objects.
#[derive(Args, Clone, Debug)]
pub struct FilterArgs {
    /// Objects that are exempt from all policies, in the format of Kyverno's `resourceFilters`:
    /// `[Kind,namespace,name]` one after the other, with `*` and `?`. A kind is written as in a
    /// policy; `*/*` is every kind and subresource. Webhooks and reporters need the same value.
    #[arg(
        long,
        env = "ANTEROOM_RESOURCE_FILTERS",
        default_value = ResourceFilters::USUAL,
        value_name = "FILTERS"
    )]
    pub resource_filters: ResourceFilters,
}

//! The abilities of a driver of evaluations. Pure.

/// The abilities of the program that drives evaluations, beyond reading facts. A policy that needs one which is
/// missing is not ready (`POLICY_UNSUPPORTED`), since it could decide nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// The driver signs in to registries of clouds (`imageRegistryCredentials.providers`), rather than by files alone.
    pub image_providers: bool,
    /// The driver changes objects that exist already (`mutate.targets`); rules that do are not run otherwise.
    pub targets: bool,
}

impl Driver {
    /// The webhook's.
    pub const IN_CLUSTER: Self = Self {
        image_providers: false,
        targets: true,
    };

    /// The abilities of a driver without an API server: it has all but changing existing objects.
    pub const ALL: Self = Self {
        image_providers: true,
        targets: false,
    };
}

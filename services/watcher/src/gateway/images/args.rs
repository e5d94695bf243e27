//! The command line options about registries.

use std::path::PathBuf;

use super::{Images, Registries, keyring::Keyring};

/// Options that say which registries are asked, and how.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Registries of images")]
#[group(id = "RegistryArgs")]
pub struct RegistryArgs {
    /// Image registries that use HTTP instead of HTTPS, separated by commas: hosts, with their
    /// port. The watcher connects to them at any address
    #[arg(
        long,
        env = "ANTEROOM_INSECURE_REGISTRY",
        value_delimiter = ',',
        value_name = "HOST"
    )]
    pub insecure_registry: Vec<String>,

    /// Image registries that the watcher connects to at any address, separated by commas: hosts,
    /// with a port if image references have one. For other registries, the watcher refuses
    /// loopback, link-local and cloud metadata addresses. If a token server or a redirect target
    /// has such an address, name its host here too
    #[arg(
        long,
        env = "ANTEROOM_TRUSTED_REGISTRY",
        value_delimiter = ',',
        value_name = "HOST"
    )]
    pub trusted_registry: Vec<String>,

    /// Connect to registries at public addresses only, never in the cluster or in private networks.
    /// Registries that the other two options name are exempt
    #[arg(long, env = "ANTEROOM_REGISTRY_PUBLIC_ONLY")]
    pub registry_public_only: bool,

    /// Files with the credentials of registries, separated by commas, in Docker's format, as in
    /// mounted pull Secrets (`.dockerconfigjson`). A folder works too: its own file
    /// (`.dockerconfigjson`, else `config.json`) is for every ClusterPolicy. A file in its subfolder
    /// NAME or NAMESPACE/NAME is for policies that name that Secret
    /// (`imageRegistryCredentials.secrets`); a Policy names those of its own namespace alone. The
    /// watcher reads these files each time a registry asks for credentials
    #[arg(
        long,
        env = "ANTEROOM_REGISTRY_CONFIG",
        value_delimiter = ',',
        value_name = "PATH"
    )]
    pub registry_config: Vec<PathBuf>,

    /// Use the credentials for every policy for namespaced Policies too. Without this option, a
    /// Policy signs in to registries by the Secrets of its own namespace alone
    #[arg(long, env = "ANTEROOM_REGISTRY_CONFIG_FOR_POLICIES")]
    pub registry_config_for_policies: bool,
}

impl RegistryArgs {
    pub(crate) fn images(&self) -> Images {
        let registries = Registries {
            insecure: self.insecure_registry.clone(),
            trusted: self.trusted_registry.clone(),
            public_only: self.registry_public_only,
        };
        let keyring = Keyring {
            files: self.registry_config.clone(),
            for_policies: self.registry_config_for_policies,
        };
        Images::new(registries, keyring)
    }
}

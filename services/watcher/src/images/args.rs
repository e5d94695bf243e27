//! The command line of what is read of registries.

use std::path::PathBuf;

use super::{Images, Registries};

/// Which registries are asked, and how.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Registries of images")]
#[group(id = "RegistryArgs")]
pub struct RegistryArgs {
    /// Registries of images that are spoken to by http, separated by commas: hosts, with their port. They
    /// are asked at any address
    #[arg(
        long,
        env = "ANTEROOM_INSECURE_REGISTRY",
        value_delimiter = ',',
        value_name = "HOST"
    )]
    pub insecure_registry: Vec<String>,

    /// Registries of images that are asked at any address, separated by commas: hosts, with their port
    /// where references have one. Others are not asked at addresses of the machine itself, of links and
    /// of clouds' metadata. Who gives their tokens, and where they redirect to, is named too where it is at
    /// such an address
    #[arg(
        long,
        env = "ANTEROOM_TRUSTED_REGISTRY",
        value_delimiter = ',',
        value_name = "HOST"
    )]
    pub trusted_registry: Vec<String>,

    /// Ask registries at public addresses only, but for those that are named: none in the cluster and in
    /// private networks
    #[arg(long, env = "ANTEROOM_REGISTRY_PUBLIC_ONLY")]
    pub registry_public_only: bool,

    /// Files that say who signs in to which registry, separated by commas: Docker's, as mounted pull
    /// Secrets have them (`.dockerconfigjson`). Or folders: such a file in one (`.dockerconfigjson`, else
    /// `config.json`) is for every policy, one in a folder NAME within it for policies that name the Secret
    /// NAME (`imageRegistryCredentials.secrets`). They are read whenever a registry asks for it
    #[arg(
        long,
        env = "ANTEROOM_REGISTRY_CONFIG",
        value_delimiter = ',',
        value_name = "PATH"
    )]
    pub registry_config: Vec<PathBuf>,
}

impl RegistryArgs {
    pub(crate) fn images(&self) -> Images {
        let registries = Registries {
            insecure: self.insecure_registry.clone(),
            trusted: self.trusted_registry.clone(),
            public_only: self.registry_public_only,
        };
        Images::new(registries, self.registry_config.clone())
    }
}

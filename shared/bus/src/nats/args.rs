//! The command line's options for NATS: the same in every service.

use std::path::PathBuf;

use clap::Args;

use super::config::{Credentials, NatsConfig, Tls};

/// The options for the connection to NATS.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "NATS")]
pub struct NatsArgs {
    /// Servers, as in nats://nats:4222; several, separated by commas, are one cluster of NATS.
    #[arg(
        long = "nats-url",
        env = "ANTEROOM_NATS_URL",
        value_delimiter = ',',
        default_value = "nats://127.0.0.1:4222"
    )]
    pub nats_urls: Vec<String>,

    /// The Kubernetes cluster's name. It is part of every subject, so that one NATS can serve
    /// several clusters.
    #[arg(long, env = "ANTEROOM_CLUSTER", default_value = "default")]
    pub cluster: String,

    /// Log in with this name.
    #[arg(long, env = "ANTEROOM_NATS_USER", requires = "nats_password")]
    pub nats_user: Option<String>,

    /// Log in with this password; better given by the environment than on the command line.
    #[arg(
        long,
        env = "ANTEROOM_NATS_PASSWORD",
        hide_env_values = true,
        requires = "nats_user"
    )]
    pub nats_password: Option<String>,

    /// Log in with the NKey seed in this file; read again for each connection.
    #[arg(long, env = "ANTEROOM_NATS_NKEY_FILE", conflicts_with_all = ["nats_user", "nats_creds_file"])]
    pub nats_nkey_file: Option<PathBuf>,

    /// Log in with the JWT and seed in this .creds file; read again for each connection.
    #[arg(long, env = "ANTEROOM_NATS_CREDS_FILE", conflicts_with = "nats_user")]
    pub nats_creds_file: Option<PathBuf>,

    /// Refuse a server that does not encrypt.
    #[arg(long, env = "ANTEROOM_NATS_TLS")]
    pub nats_tls: bool,

    /// Trust the PEM certificates in this file, in place of the system's; read again for each connection.
    #[arg(long, env = "ANTEROOM_NATS_CA_FILE")]
    pub nats_ca_file: Option<PathBuf>,

    /// Present the PEM certificate in this file to the server; read again for each connection.
    #[arg(long, env = "ANTEROOM_NATS_CERT_FILE", requires = "nats_key_file")]
    pub nats_cert_file: Option<PathBuf>,

    /// The key of this client's own certificate, PEM.
    #[arg(long, env = "ANTEROOM_NATS_KEY_FILE", requires = "nats_cert_file")]
    pub nats_key_file: Option<PathBuf>,

    /// Copies of the log: 3 in production, 1 in development.
    #[arg(long, env = "ANTEROOM_NATS_REPLICAS", default_value_t = 1)]
    pub nats_replicas: usize,

    /// The largest size of the log on disk, in bytes.
    #[arg(long, env = "ANTEROOM_NATS_LOG_BYTES_MAX", default_value_t = 2 << 30)]
    pub nats_log_bytes_max: u64,
}

impl NatsArgs {
    /// The configuration for `service`, whose replies go to an inbox prefix of its own.
    pub fn config(&self, service: &str) -> NatsConfig {
        let credentials = match self {
            Self {
                nats_user: Some(user),
                nats_password: Some(password),
                ..
            } => Credentials::Password {
                user: user.clone(),
                password: password.clone(),
            },
            Self {
                nats_nkey_file: Some(file),
                ..
            } => Credentials::NkeySeed(file.clone()),
            Self {
                nats_creds_file: Some(file),
                ..
            } => Credentials::Creds(file.clone()),
            _ => Credentials::None,
        };
        NatsConfig {
            name: format!("anteroom-{service}"),
            inbox_prefix: format!("_INBOX_{}", service.replace('-', "_")),
            credentials,
            tls: Tls {
                required: self.nats_tls,
                ca: self.nats_ca_file.clone(),
                identity: self.nats_cert_file.clone().zip(self.nats_key_file.clone()),
            },
            replicas: self.nats_replicas,
            log_bytes_max: self.nats_log_bytes_max,
            ..NatsConfig::new(&self.nats_urls, &self.cluster)
        }
    }
}

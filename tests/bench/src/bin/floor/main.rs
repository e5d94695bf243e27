//! The floor: a minimal webhook that decisions are compared with. It takes a review over TLS, asks a holder once over
//! NATS, and answers by what the holder finds in a set. Neither has policies, metrics or traces.
//!
//! TLS, HTTP, the streams below them, the allocator and the logins of NATS are those of our own webhook and replica. So
//! the difference to our own figures is what policies and views cost.

mod holder;
mod review;
mod stream;
mod webhook;

use std::{fs, path::PathBuf};

use anyhow::Context;
use async_nats::{Client, ConnectOptions};
use clap::{Parser, Subcommand};

use webhook::WebhookArgs;

/// The subject of all questions. A webhook may publish there, and a replica may answer; no view has this name.
const SUBJECT: &str = "ar.default.q.floor";

/// The queue group in which a replica may subscribe to [`SUBJECT`].
const QUEUE: &str = "replicas";

/// Commands that wait for the connection to NATS, as in our own services.
const COMMANDS_MAX: usize = 2048;

/// Messages that wait for one subscription, as in our own services.
const MESSAGES_MAX: usize = 16 * 1024;

/// A minimal webhook, which `bench` measures in turns with our own.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    login: Login,

    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Takes reviews, and asks the holder about each.
    Webhook(WebhookArgs),
    /// Holds the keys that are taken, and answers by one look-up for each key.
    Holder {
        /// The keys that are taken, one in each line.
        #[arg(long)]
        taken: PathBuf,
    },
}

/// The way to NATS, by the variables of our own services.
#[derive(clap::Args)]
struct Login {
    /// The address of the server.
    #[arg(long, env = "ANTEROOM_NATS_URL")]
    nats_url: String,

    /// The file of the seed.
    #[arg(long, env = "ANTEROOM_NATS_NKEY_FILE")]
    nats_nkey_file: PathBuf,

    /// The authority of a server that is reached over TLS, in PEM.
    #[arg(long, env = "ANTEROOM_NATS_CA_FILE")]
    nats_ca_file: Option<PathBuf>,
}

impl Login {
    async fn connect(&self, inbox_prefix: &str) -> anyhow::Result<Client> {
        let file = &self.nats_nkey_file;
        let seed = fs::read_to_string(file)
            .with_context(|| format!("cannot read the seed {}", file.display()))?;
        let mut options = ConnectOptions::new()
            .name("floor")
            .nkey(seed.trim().to_owned())
            .custom_inbox_prefix(inbox_prefix)
            .client_capacity(COMMANDS_MAX)
            .subscription_capacity(MESSAGES_MAX);
        if let Some(ca) = &self.nats_ca_file {
            options = options.require_tls(true).add_root_certificates(ca.clone());
        }
        let client = options.connect(self.nats_url.clone()).await;
        client.with_context(|| format!("no connection to {}", self.nats_url))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Our services call the same function, and have jemalloc by the same crate.
    anteroom_runtime::process::install_crypto_provider();
    let Cli { login, role } = Cli::parse();
    match role {
        Role::Webhook(args) => {
            let client = login.connect("_INBOX_webhook").await?;
            webhook::run(client, &args).await
        }
        Role::Holder { taken } => {
            let client = login.connect("_INBOX_cache_replica").await?;
            holder::run(&client, &taken).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_roles_are_told_the_way_to_nats_as_our_services_are() {
        let parse = |args: &[&str]| {
            let login = ["floor", "--nats-url=nats://a:1", "--nats-nkey-file=seed"];
            Cli::try_parse_from(login.iter().chain(args).copied())
        };
        assert!(parse(&["holder", "--taken=keys"]).is_ok());
        let webhook = [
            "webhook",
            "--listen-address=127.0.0.1:1",
            "--certificate-file=chain",
            "--key-file=key",
            "--look-up=host-and-path",
        ];
        assert!(parse(&webhook).is_ok());
        assert!(parse(&webhook[..4]).is_err());
        assert!(parse(&[]).is_err());
    }
}

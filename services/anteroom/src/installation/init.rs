//! `anteroom init`: makes the Secrets of an installation that are missing.
//!
//! Secrets of NATS belong together: the server's has the public keys of all logins, and the authority's key is kept nowhere. So
//! all of them are made, or none. The server's comes last: where it is, all were made.

use anteroom_keys::{SERVER_CHAIN, SERVER_KEY};
use anteroom_runtime::{
    certs::{Pair, Pem},
    kubernetes::KubernetesArgs,
    telemetry::TelemetryArgs,
};
use anyhow::bail;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::PostParams};

use super::call;
use crate::{
    keys::{self, MakeArgs, SERVER},
    output::{print, warn},
};

/// The Secret of the webhook's certificate. The webhook fills it, and has no right to create it.
const WEBHOOK_CERTIFICATE: &str = "anteroom-webhook-tls";

/// The Secrets of the keys that Secrets are encrypted and asked for with, and the id of a first key.
const SECRET_KEYS: [(&str, &str); 2] =
    [("anteroom-seal-keys", "k1"), ("anteroom-asker-keys", "a1")];

/// The rest of a certificate's validity at which its end is announced.
const ENDS_SOON: SignedDuration = SignedDuration::from_hours(24 * 90);

#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Make the Secrets of an installation that are missing.\n\n\
        Makes what `anteroom keys nats` prints, and an empty Secret for the webhook's certificate. What is there stays as it is: \
        to replace the keys of NATS, delete all Secrets anteroom-nats-*, run this again, and restart NATS and then the services.",
    after_help = "Examples:\n  \
        anteroom init\n  \
        anteroom init --namespace policies --secret-keys\n\n\
        Exit codes: 0 all are there, 1 failed, 2 wrong usage."
)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    make: MakeArgs,

    /// Make the keys too that Secrets of the cluster are encrypted and asked for with.
    #[arg(long)]
    secret_keys: bool,

    #[command(flatten)]
    kubernetes: KubernetesArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// Runs `anteroom init`.
pub(crate) async fn run(args: InitArgs) -> anyhow::Result<()> {
    let client = args.kubernetes.client().await?;
    let secrets = Secrets(Api::namespaced(client, &args.make.namespace));
    match secrets.get(SERVER).await? {
        Some(server) => secrets.are_whole(&server).await?,
        None => {
            for secret in keys::secrets(&args.make.keys()?, &args.make.namespace) {
                secrets.put(&secret).await?;
            }
        }
    }
    let certificate = keys::secret(
        &args.make.namespace,
        WEBHOOK_CERTIFICATE,
        [(SERVER_CHAIN, String::new()), (SERVER_KEY, String::new())],
    );
    let certificate = Secret {
        type_: Some("kubernetes.io/tls".to_owned()),
        ..certificate
    };
    secrets.put_if_missing(&certificate).await?;
    for (name, id) in SECRET_KEYS.iter().filter(|_| args.secret_keys) {
        let key: [u8; 32] = rand::random();
        let line = format!("{id} {}\n", STANDARD.encode(key));
        let secret = keys::secret(&args.make.namespace, name, [("keys", line)]);
        secrets.put_if_missing(&secret).await?;
    }
    Ok(())
}

/// The Secrets of the installation's namespace.
struct Secrets(Api<Secret>);

impl Secrets {
    async fn get(&self, name: &str) -> anyhow::Result<Option<Secret>> {
        call(self.0.get_opt(name), || format!("read Secret {name}")).await
    }

    /// Makes a Secret, or replaces it: what an earlier run left is of no use.
    async fn put(&self, secret: &Secret) -> anyhow::Result<()> {
        let name = secret.name_any();
        let parameters = PostParams::default();
        match self.get(&name).await? {
            None => {
                let created = self.0.create(&parameters, secret);
                call(created, || format!("create Secret {name}")).await?;
            }
            Some(_) => {
                let replaced = self.0.replace(&name, &parameters, secret);
                call(replaced, || format!("replace Secret {name}")).await?;
            }
        }
        print(&format!("Secret {name}: made"))
    }

    async fn put_if_missing(&self, secret: &Secret) -> anyhow::Result<()> {
        let name = secret.name_any();
        match self.get(&name).await? {
            None => self.put(secret).await,
            Some(_) => print(&format!("Secret {name}: is there")),
        }
    }

    /// Looks for the Secrets that belong to the server's.
    async fn are_whole(&self, server: &Secret) -> anyhow::Result<()> {
        print(&format!("Secret {SERVER}: is there"))?;
        let mut missing = Vec::new();
        for name in keys::logins() {
            match self.get(&name).await? {
                Some(_) => print(&format!("Secret {name}: is there"))?,
                None => missing.push(name),
            }
        }
        if !missing.is_empty() {
            bail!(
                "missing: Secret {}. A login cannot be made again alone. Put it back from a backup, or delete all Secrets \
                 anteroom-nats-*, run this again, and restart NATS and then the services",
                missing.join(", Secret ")
            );
        }
        if let Some(end) = not_after(server)
            && Timestamp::now() + ENDS_SOON > end
        {
            warn(&format!(
                "the certificate of NATS ends at {end}. To replace it, delete all Secrets anteroom-nats-*, run this again, \
                 and restart NATS and then the services"
            ));
        }
        Ok(())
    }
}

/// Returns the end of the certificate in a Secret, if there is one that can be read.
fn not_after(secret: &Secret) -> Option<Timestamp> {
    let text = |key| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
    let pem = Pem {
        chain: text(SERVER_CHAIN)?,
        key: text(SERVER_KEY)?,
    };
    Some(Pair::parse(&pem, Timestamp::now()).ok()?.not_after())
}

//! `anteroom init`: makes the Secrets of an installation that are missing.
//!
//! Secrets of NATS belong together: the server's has the public keys of all logins, and the authority's key is kept nowhere. So
//! all of them are made at first, and the server's comes last: where it is, all were made. Later, a login that is missing is made
//! alone, since a new version may have one more: its public key joins the others.

use anteroom_keys::{AUTHORITY, LOGINS, Login, PUBLIC_KEYS, SERVER_CHAIN, SERVER_KEY};
use anteroom_runtime::{
    certs::{Pair, Pem},
    kubernetes::KubernetesArgs,
    telemetry::TelemetryArgs,
    wall_clock,
};
use anyhow::Context as _;
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
        Some(server) => secrets.complete(server, &args.make.namespace).await?,
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

    /// Makes the logins that are missing, or that the server does not know.
    async fn complete(&self, mut server: Secret, namespace: &str) -> anyhow::Result<()> {
        print(&format!("Secret {SERVER}: is there"))?;
        let mut added = Vec::new();
        for name in LOGINS {
            let secret = keys::of_login(name);
            let known = Login::is_known(name, &text(&server, PUBLIC_KEYS)?);
            if known && self.get(&secret).await?.is_some() {
                print(&format!("Secret {secret}: is there"))?;
                continue;
            }
            let login = Login::new(name)?;
            let public_keys = login.put_into(&text(&server, PUBLIC_KEYS)?);
            let data = server.string_data.get_or_insert_default();
            data.insert(PUBLIC_KEYS.to_owned(), public_keys);
            added.push(login);
        }
        if !added.is_empty() {
            // First, so that an end in between leaves a login that is missing, and none that is not known.
            self.put(&server).await?;
            let authority = text(&server, AUTHORITY)?;
            for login in &added {
                let secret = keys::login_secret(login, &authority, namespace);
                self.put(&secret).await?;
            }
            let added: Vec<_> = added.iter().map(|login| login.name).collect();
            let added = added.join(", ");
            warn(&format!(
                "NATS takes in the new keys of {added} when it starts again. Restart it, and then what logs in with them"
            ));
        }
        let server = &server;
        if let Some(end) = not_after(server)
            && wall_clock::now() + ENDS_SOON > end
        {
            warn(&format!(
                "the certificate of NATS ends at {end}. To replace it, delete all Secrets anteroom-nats-*, run this again, \
                 and restart NATS and then the services"
            ));
        }
        Ok(())
    }
}

/// Returns the text under a key of a Secret: as it is stored, or is about to be.
fn text(secret: &Secret, key: &str) -> anyhow::Result<String> {
    let written = secret.string_data.as_ref().and_then(|data| data.get(key));
    if let Some(written) = written {
        return Ok(written.clone());
    }
    let stored = secret.data.as_ref().and_then(|data| data.get(key));
    let stored = stored.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
    stored.with_context(|| format!("Secret {} has no text {key}", secret.name_any()))
}

/// Returns the end of the certificate in a Secret, if there is one that can be read.
fn not_after(secret: &Secret) -> Option<Timestamp> {
    let pem = Pem {
        chain: text(secret, SERVER_CHAIN).ok()?,
        key: text(secret, SERVER_KEY).ok()?,
    };
    Some(Pair::parse(&pem, wall_clock::now()).ok()?.not_after())
}

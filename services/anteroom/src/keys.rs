//! `anteroom keys`: the keys that the parts of an installation know each other by.

use std::path::PathBuf;

use anteroom_keys::{
    AUTHORITY, Login, NatsKeys, PUBLIC_KEYS, SEED, SERVER_CHAIN, SERVER_KEY, files,
    names_in_cluster,
};
use anteroom_runtime::wall_clock;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use jiff::SignedDuration;
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;

use crate::output::{print, warn};

#[derive(Args, Clone, Debug)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum KeysCommand {
    /// Make the certificate of NATS, and an NKey for each service.
    #[command(
        long_about = "Make the certificate of NATS, and an NKey for each service.\n\n\
            Prints the Secrets of an installation, for `kubectl apply`; with --directory, writes files. \
            All of it is made anew each time: the key of the authority is kept nowhere. To replace what is there, apply it \
            and restart NATS and then the services.",
        after_help = "Examples:\n  \
            anteroom keys nats | kubectl apply -f -\n  \
            anteroom keys nats --namespace policies --name nats.example.com | kubectl apply -f -\n  \
            anteroom keys nats --directory keys        files: keys/server, keys/watcher and so on\n\n\
            Exit codes: 0 done, 1 failed, 2 wrong usage."
    )]
    Nats(NatsArgs),
}

/// The inputs from which keys are made.
#[derive(Args, Clone, Debug)]
pub(crate) struct MakeArgs {
    /// The namespace of the installation.
    #[arg(long, default_value = "anteroom")]
    pub(crate) namespace: String,

    /// One more name or address that clients reach NATS by. May be given more than once.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,

    /// Days for which the certificate is valid.
    #[arg(long, default_value_t = 3_650, value_parser = clap::value_parser!(u16).range(1..))]
    days: u16,
}

impl MakeArgs {
    /// Makes all keys anew.
    pub(crate) fn keys(&self) -> anyhow::Result<NatsKeys> {
        let names = [names_in_cluster(&self.namespace), self.names.clone()].concat();
        let validity = SignedDuration::from_hours(i64::from(self.days) * 24);
        NatsKeys::new(&names, validity, wall_clock::now()).context("no keys were made")
    }
}

#[derive(Args, Clone, Debug)]
struct NatsArgs {
    #[command(flatten)]
    make: MakeArgs,

    /// Write files into this folder instead.
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,

    /// Leave a folder alone that holds keys already.
    #[arg(long, requires = "directory", conflicts_with = "force")]
    if_missing: bool,

    /// Replace the keys in a folder.
    #[arg(long, requires = "directory")]
    force: bool,
}

/// Runs `anteroom keys`.
pub(crate) fn run(args: KeysArgs) -> anyhow::Result<()> {
    let KeysCommand::Nats(args) = args.command;
    let Some(folder) = &args.directory else {
        let items = secrets(&args.make.keys()?, &args.make.namespace);
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        return print(&serde_json::to_string_pretty(&list)?);
    };
    match files::is_there(folder) {
        true if args.if_missing => Ok(()),
        true if !args.force => bail!(
            "{} holds keys already: --force replaces them, and --if-missing leaves them alone",
            folder.display()
        ),
        _ => {
            files::write(&args.make.keys()?, folder)?;
            warn(&format!("keys written into {}", folder.display()));
            Ok(())
        }
    }
}

/// The Secret of NATS itself.
pub(crate) const SERVER: &str = "anteroom-nats-server";

/// Returns the name of a login's Secret.
pub(crate) fn of_login(login: &str) -> String {
    format!("anteroom-nats-{login}")
}

/// Returns the Secrets of an installation: one for each login, and last that of NATS.
pub(crate) fn secrets(keys: &NatsKeys, namespace: &str) -> Vec<Secret> {
    let authority = || (AUTHORITY, keys.authority_pem.clone());
    let login = |login: &Login| login_secret(login, &keys.authority_pem, namespace);
    let server = [
        authority(),
        (PUBLIC_KEYS, keys.public_keys()),
        (SERVER_CHAIN, keys.server.chain.clone()),
        (SERVER_KEY, keys.server.key.clone()),
    ];
    let server = secret(namespace, SERVER, server);
    keys.logins.iter().map(login).chain([server]).collect()
}

/// Returns the Secret of one login.
pub(crate) fn login_secret(login: &Login, authority_pem: &str, namespace: &str) -> Secret {
    let data = [
        (AUTHORITY, authority_pem.to_owned()),
        (SEED, login.seed.clone()),
    ];
    secret(namespace, &of_login(login.name), data)
}

/// Returns a Secret of an installation.
pub(crate) fn secret<const N: usize>(
    namespace: &str,
    name: &str,
    data: [(&str, String); N],
) -> Secret {
    let label = ("app.kubernetes.io/part-of", "anteroom");
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(
                [label]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        },
        string_data: Some(data.map(|(key, text)| (key.to_owned(), text)).into()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;

    #[test]
    fn each_secret_holds_the_seed_of_its_own_login_alone() {
        let day = SignedDuration::from_hours(24);
        let keys = NatsKeys::new(&names_in_cluster("n"), day, wall_clock::now()).unwrap();
        for secret in secrets(&keys, "n") {
            let (name, item) = (secret.name_any(), json!(secret));
            for login in &keys.logins {
                let own = format!("anteroom-nats-{}", login.name);
                assert_eq!(
                    item.to_string().contains(&login.seed),
                    name == own,
                    "{name}"
                );
            }
            let holds_key = item.to_string().contains("PRIVATE KEY");
            assert_eq!(holds_key, name == SERVER, "{name}");
        }
    }
}

//! `anteroom keys`: the keys that the parts of an installation know each other by.

use std::path::PathBuf;

use anteroom_keys::{
    AUTHORITY, NatsKeys, PUBLIC_KEYS, SEED, SERVER_CHAIN, SERVER_KEY, files, names_in_cluster,
};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

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

#[derive(Args, Clone, Debug)]
struct NatsArgs {
    /// The namespace of the installation.
    #[arg(long, default_value = "anteroom")]
    namespace: String,

    /// One more name or address that clients reach NATS by. May be given more than once.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,

    /// Days for which the certificate is valid.
    #[arg(long, default_value_t = 3_650, value_parser = clap::value_parser!(u16).range(1..))]
    days: u16,

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
    let make = || {
        let names = [names_in_cluster(&args.namespace), args.names.clone()].concat();
        let validity = SignedDuration::from_hours(i64::from(args.days) * 24);
        NatsKeys::new(&names, validity, Timestamp::now()).context("no keys were made")
    };
    let Some(folder) = &args.directory else {
        let secrets = secrets(&make()?, &args.namespace);
        return print(&serde_json::to_string_pretty(&secrets)?);
    };
    match files::is_there(folder) {
        true if args.if_missing => Ok(()),
        true if !args.force => bail!(
            "{} holds keys already: --force replaces them, and --if-missing leaves them alone",
            folder.display()
        ),
        _ => {
            files::write(&make()?, folder)?;
            warn(&format!("keys written into {}", folder.display()));
            Ok(())
        }
    }
}

/// Returns the Secrets of an installation: one for NATS, and one for each login.
fn secrets(keys: &NatsKeys, namespace: &str) -> Value {
    let secret = |name: String, data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": name, "namespace": namespace,
                "labels": { "app.kubernetes.io/part-of": "anteroom" } },
            "stringData": data,
        })
    };
    let server = json!({
        PUBLIC_KEYS: keys.public_keys(), SERVER_CHAIN: keys.server.chain,
        SERVER_KEY: keys.server.key, AUTHORITY: keys.authority_pem,
    });
    let mut items = vec![secret("anteroom-nats-server".to_owned(), server)];
    items.extend(keys.logins.iter().map(|login| {
        let data = json!({ SEED: login.seed, AUTHORITY: keys.authority_pem });
        secret(format!("anteroom-nats-{}", login.name), data)
    }));
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_holds_the_seed_of_its_own_login_alone() {
        let day = SignedDuration::from_hours(24);
        let keys = NatsKeys::new(&names_in_cluster("n"), day, Timestamp::now()).unwrap();
        let secrets = secrets(&keys, "n");
        for item in secrets["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            for login in &keys.logins {
                let own = format!("anteroom-nats-{}", login.name);
                assert_eq!(
                    item.to_string().contains(&login.seed),
                    name == own,
                    "{name}"
                );
            }
            let holds_key = item.to_string().contains("PRIVATE KEY");
            assert_eq!(holds_key, name == "anteroom-nats-server", "{name}");
        }
    }
}

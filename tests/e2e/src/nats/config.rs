//! The deployed configuration, permissions included, with other addresses and files.

use std::{net::SocketAddr, path::Path};

use anteroom_keys::files;
use anyhow::{Context, ensure};

use super::NatsPlan;

/// The folder with the keys of the servers and of all logins.
pub(super) const KEYS: &str = "nats-keys";

/// The begin of the settings of TLS, where clients have to present a certificate.
const VERIFYING: &str = "\ntls {\n  ca_file: \"/etc/nats-keys/ca.crt\"\n  verify: true\n";

/// A server's way to the others.
pub(super) struct Routes {
    /// The address on which the server listens for its peers.
    pub(super) own: SocketAddr,
    /// The addresses of the others; empty: it is alone.
    pub(super) to: Vec<SocketAddr>,
    /// True: others tell its address to each other, and connect without being configured to.
    pub(super) is_advertised: bool,
}

/// Returns the configuration of a server with this address and monitor, and with its store in `store`.
pub(super) fn text(
    folder: &Path,
    store: &Path,
    address: SocketAddr,
    monitor: SocketAddr,
    plan: &NatsPlan,
    routes: &Routes,
) -> anyhow::Result<String> {
    let keys = folder.join(KEYS).join(files::SERVER);
    let text = replaced(
        deployed("nats.conf")?,
        &[
            ("port: 4222\n", format!("listen: \"{address}\"\n")),
            ("http_port: 8222\n", format!("http: \"{monitor}\"\n")),
            (
                "store_dir: /data",
                format!("store_dir: \"{}\"", store.display()),
            ),
            ("../nats-keys/", format!("{KEYS}/{}/", files::SERVER)),
        ],
    )?;
    let mut text = match plan.are_clients_verified {
        true => replaced(text, &[("\ntls {\n", VERIFYING.to_owned())])?,
        false => text,
    };
    text = text.replace("/etc/nats-keys", &keys.display().to_string());
    if !plan.is_encrypted {
        let (before, tls) = text.split_once("\ntls {").context("no TLS")?;
        let (_, after) = tls.split_once("\n}\n").context("no end of TLS")?;
        text = format!("{before}\n{after}");
    }
    if routes.to.is_empty() {
        return Ok(text);
    }
    let cluster = cluster(&keys, routes)?;
    Ok(format!("{text}\n{cluster}"))
}

/// Returns what `cluster.conf` has beside `nats.conf`.
fn cluster(keys: &Path, routes: &Routes) -> anyhow::Result<String> {
    let listen = match routes.is_advertised {
        true => format!("listen: \"{}\"\n", routes.own),
        // Nobody listens there.
        false => format!("listen: \"{}\"\n  advertise: \"127.0.0.1:1\"\n", routes.own),
    };
    let text = replaced(
        deployed("cluster.conf")?,
        &[
            ("include nats.conf\n", String::new()),
            ("port: 6222\n", listen),
        ],
    )?;
    let (before, rest) = text.split_once("routes: [").context("no routes")?;
    let (_, after) = rest.split_once(']').context("no end of routes")?;
    let to = routes.to.iter().map(|to| format!("\"nats://{to}\""));
    let to: Vec<_> = to.collect();
    let text = format!("{before}routes: [{}]{after}", to.join(", "));
    Ok(text.replace("/etc/nats-keys", &keys.display().to_string()))
}

fn deployed(file: &str) -> anyhow::Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files");
    let path = folder.join(file);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn replaced(mut text: String, changes: &[(&str, String)]) -> anyhow::Result<String> {
    for (deployed, here) in changes {
        ensure!(
            text.contains(deployed),
            "the configuration has no {deployed:?}"
        );
        text = text.replacen(deployed, here, 1);
    }
    Ok(text)
}

//! The certificate that is served with: given in files, or our own.

mod secret;
mod stored;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anteroom_runtime::{
    Check, Shutdown,
    certs::{Certificates, Pair, files},
    wall_clock,
};
use anyhow::Context as _;
use kube::Client;
use tokio::sync::{Notify, watch};

use crate::{args::Args, registration::PathTokens};
use stored::Stored;

/// Interval between checks of our own certificate.
const RECHECK: Duration = Duration::from_secs(30);

/// The source of the certificate.
pub(crate) enum Source {
    /// Files that another program keeps. The key of the paths is nevertheless in our own Secret, if there is a
    /// cluster.
    Files {
        chain: PathBuf,
        key: PathBuf,
        authority: Option<PathBuf>,
        secret: Option<SecretSource>,
    },
    /// Our own, shared with the other webhooks of this namespace.
    Secret(SecretSource),
    /// Our own, for this process alone.
    Memory,
}

/// The place of our own Secret.
pub(crate) struct SecretSource {
    client: Client,
    namespace: String,
}

/// The channels that announce the certificate.
pub(crate) struct CertificateChannels {
    pub(crate) certificates: Certificates,
    /// The authority in PEM; empty: the API server's own trust store. `None`: not known yet.
    pub(crate) trust: watch::Sender<Option<Arc<str>>>,
    /// Told the key of our own Secret.
    pub(crate) tokens: PathTokens,
    /// The readiness check: it gets the reason why there is no first certificate yet. Others set it to ready.
    pub(crate) check: Arc<Check>,
}

impl Source {
    pub(crate) fn new(args: &Args, kube: Option<&Client>) -> Self {
        let secret = kube.map(|client| SecretSource {
            client: client.clone(),
            namespace: args.service_namespace.clone(),
        });
        match (args.tls.files(), secret) {
            (Some((chain, key)), secret) => Self::Files {
                chain: chain.to_owned(),
                key: key.to_owned(),
                authority: args.tls_ca_file.clone(),
                secret,
            },
            (None, Some(secret)) => Self::Secret(secret),
            (None, None) => Self::Memory,
        }
    }
}

/// The names that the API server may reach us by.
pub(crate) fn names(args: &Args) -> Vec<String> {
    let Args {
        service_name: name,
        service_namespace: namespace,
        ..
    } = args;
    let mut names = vec![
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.cluster.local"),
        format!("{name}.{namespace}"),
        name.clone(),
    ];
    let host = args.webhook_url.as_deref().and_then(|url| {
        let uri: http::Uri = url.parse().ok()?;
        Some(uri.host()?.trim_matches(['[', ']']).to_owned())
    });
    for name in host
        .into_iter()
        .chain(["localhost".to_owned(), "127.0.0.1".to_owned()])
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Keeps a certificate to serve with until shutdown.
pub(crate) async fn keep(
    source: Source,
    names: Vec<String>,
    outlet: CertificateChannels,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stop = shutdown.token();
    let keeping = async {
        match source {
            Source::Files {
                chain,
                key,
                authority,
                secret,
            } => {
                let pair = files::follow(&chain, &key, &outlet.certificates, files::POLL_INTERVAL);
                let keyed = Notify::new();
                let paths = keep_paths(secret, &names, &outlet, &keyed);
                let authority = async {
                    // Nothing is registered before the paths are known.
                    keyed.notified().await;
                    trust_of(authority, &outlet).await
                };
                tokio::select! {
                    never = pair => match never {},
                    never = authority => never,
                    never = paths => never,
                }
            }
            Source::Secret(secret) => {
                let serve_with = |stored: &Stored| outlet.serve_with(stored);
                secret::keep(secret, &names, &outlet.check, serve_with).await
            }
            Source::Memory => in_memory(&names, &outlet).await,
        }
    };
    match stop.run_until_cancelled(keeping).await {
        Some(ended) => ended,
        None => Ok(()),
    }
}

/// Keeps the key of the paths, if there is a Secret for it.
async fn keep_paths(
    secret: Option<SecretSource>,
    names: &[String],
    outlet: &CertificateChannels,
    keyed: &Notify,
) -> anyhow::Result<()> {
    let Some(secret) = secret else {
        keyed.notify_one();
        return std::future::pending().await;
    };
    let use_key = |stored: &Stored| {
        outlet.tokens.use_key(&stored.review_key);
        keyed.notify_one();
    };
    secret::keep(secret, names, &outlet.check, use_key).await
}

/// Reads the authority's file as often as the pair's.
async fn trust_of(file: Option<PathBuf>, outlet: &CertificateChannels) -> anyhow::Result<()> {
    let Some(file) = file else {
        outlet.trust.send_replace(Some("".into()));
        return std::future::pending().await;
    };
    loop {
        match tokio::fs::read_to_string(&file).await {
            Ok(pem) => outlet.trusts(&pem),
            Err(error) => {
                let file = file.display();
                tracing::error!(
                    %file,
                    %error,
                    "--tls-ca-file not read: tried again; correct the file"
                );
            }
        }
        tokio::time::sleep(files::POLL_INTERVAL).await;
    }
}

async fn in_memory(names: &[String], outlet: &CertificateChannels) -> anyhow::Result<()> {
    let mut stored: Option<Stored> = None;
    loop {
        let now = wall_clock::now();
        let renewed = stored::renew(stored.as_ref(), names, now)
            .context("a certificate of our own cannot be made")?;
        if let Some(renewed) = renewed {
            outlet.serve_with(&renewed);
            stored = Some(renewed);
        }
        tokio::time::sleep(RECHECK).await;
    }
}

impl CertificateChannels {
    fn serve_with(&self, stored: &Stored) {
        self.certificates
            .offer(Pair::parse(&stored.pair, wall_clock::now()));
        self.tokens.use_key(&stored.review_key);
        self.trusts(&stored.trust_pem);
    }

    fn trusts(&self, pem: &str) {
        self.trust.send_if_modified(|trust| {
            let modified = trust.as_deref() != Some(pem);
            if modified {
                *trust = Some(pem.into());
            }
            modified
        });
    }
}

#[cfg(test)]
mod tests;

//! A real API server over a real etcd.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use kube::{Client, Config};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use crate::{
    audit::{self, Asked},
    folder,
    process::{Process, free_address, real_part},
    proxy::Proxy,
    wait, webhook_client,
};

/// The address that the API server tells of itself, which nobody connects to: of a range for documentation (RFC 5737).
const ADVERTISED: &str = "192.0.2.1";

/// The folder of etcd, and that of a copy.
const ETCD: &str = "etcd";
const ETCD_KEPT: &str = "etcd-kept";

/// The file of the audit log, beside the other files of a cluster.
const AUDIT_LOG: &str = "audit.log";
const AUDIT_LOG_OF_SECOND: &str = "audit-of-second.log";

/// An identity that the API server knows by its token.
#[derive(Clone, Copy, Debug)]
pub enum Identity {
    /// `system:masters`: what a test uses to play the user.
    Admin,
    /// The watcher's ServiceAccount.
    Watcher,
    /// The webhook's ServiceAccount.
    Webhook,
    /// The reporter's ServiceAccount.
    Reporter,
    /// The ServiceAccount of the Job that makes Secrets.
    Init,
    /// The ServiceAccount of the Job that removes the webhook.
    Uninstall,
    /// The ServiceAccount of `helm test`.
    Check,
}

impl Identity {
    const ALL: [Self; 7] = [
        Self::Admin,
        Self::Watcher,
        Self::Webhook,
        Self::Reporter,
        Self::Init,
        Self::Uninstall,
        Self::Check,
    ];

    /// Its bearer token.
    pub fn token(self) -> &'static str {
        match self {
            Self::Admin => "admin-token",
            Self::Watcher => "watcher-token",
            Self::Webhook => "webhook-token",
            Self::Reporter => "reporter-token",
            Self::Init => "init-token",
            Self::Uninstall => "uninstall-token",
            Self::Check => "check-token",
        }
    }

    /// Its name to the API server.
    pub fn user(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Watcher => "system:serviceaccount:anteroom:anteroom-watcher",
            Self::Webhook => "system:serviceaccount:anteroom:anteroom-webhook",
            Self::Reporter => "system:serviceaccount:anteroom:anteroom-reporter",
            Self::Init => "system:serviceaccount:anteroom:anteroom-init",
            Self::Uninstall => "system:serviceaccount:anteroom:anteroom-uninstall",
            Self::Check => "system:serviceaccount:anteroom:anteroom-check",
        }
    }

    /// The line of the static token file: token, user, uid, groups.
    fn token_line(self) -> String {
        let groups = match self {
            Self::Admin => "system:masters",
            _ => "system:serviceaccounts,system:serviceaccounts:anteroom",
        };
        let (token, user) = (self.token(), self.user());
        format!("{token},{user},{token},\"{groups}\"\n")
    }
}

/// etcd and kube-apiserver, both on loopback.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    address: SocketAddr,
    etcd_url: String,
    etcd_peer_url: String,
    apiserver: Option<Process>,
    second: Option<SecondApiServer>,
    etcd: Option<Process>,
}

/// A second API server over the same etcd. Cut off from etcd, the server still serves its cached objects.
#[derive(Debug)]
struct SecondApiServer {
    address: SocketAddr,
    to_etcd: Proxy,
    _process: Process,
}

impl Cluster {
    /// Starts both and waits until the API server is ready. Everything lies under `folder`.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        let (client, peer) = (free_address()?, free_address()?);
        let key = rcgen::KeyPair::generate()?;
        fs::write(folder.join("service-account.pem"), key.serialize_pem())?;
        fs::write(
            folder.join("service-account-public.pem"),
            key.public_key_pem(),
        )?;
        let tokens: String = Identity::ALL.map(Identity::token_line).concat();
        fs::write(folder.join("tokens.csv"), tokens)?;
        fs::write(folder.join("audit.json"), audit::policy().to_string())?;
        webhook_client::write(folder)?;
        let mut cluster = Self {
            folder: folder.to_owned(),
            address: free_address()?,
            etcd_url: format!("http://{client}"),
            etcd_peer_url: format!("http://{peer}"),
            apiserver: None,
            second: None,
            etcd: None,
        };
        cluster.start_etcd()?;
        cluster.start_apiserver().await?;
        Ok(cluster)
    }

    fn start_etcd(&mut self) -> anyhow::Result<()> {
        let (url, peer_url) = (&self.etcd_url, &self.etcd_peer_url);
        let mut command = Command::new(real_part("etcd")?);
        command
            .arg("--data-dir")
            .arg(self.folder.join(ETCD))
            .args(["--listen-client-urls", url, "--advertise-client-urls", url])
            .args(["--listen-peer-urls", peer_url])
            .args(["--initial-advertise-peer-urls", peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .args(["--unsafe-no-fsync", "--log-level", "warn"]);
        self.etcd = Some(Process::start("etcd", &mut command, &self.folder)?);
        Ok(())
    }

    /// Kills both, keeps a copy of the state, and starts both again.
    pub async fn keep_state(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        folder::copy(&self.folder.join(ETCD), &self.folder.join(ETCD_KEPT))?;
        self.start_etcd()?;
        self.start_apiserver().await
    }

    /// Kills both, and starts them with the state that was kept, as after a restore from a backup.
    pub async fn restore_state(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        fs::remove_dir_all(self.folder.join(ETCD))?;
        folder::copy(&self.folder.join(ETCD_KEPT), &self.folder.join(ETCD))?;
        self.start_etcd()?;
        self.start_apiserver().await
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.kill_apiserver()?;
        self.etcd
            .take()
            .map_or(Ok(()), |mut process| process.kill())
    }

    /// Starts the API server (again, after [`Cluster::kill_apiserver`]) and waits until it is ready.
    pub async fn start_apiserver(&mut self) -> anyhow::Result<()> {
        let apiserver = self
            .run_apiserver("kube-apiserver", self.address, &self.etcd_url, AUDIT_LOG)
            .await?;
        self.apiserver = Some(apiserver);
        Ok(())
    }

    /// Starts another API server over the same etcd, and waits until it is ready.
    pub async fn start_second(&mut self) -> anyhow::Result<()> {
        let address = free_address()?;
        let to_etcd = Proxy::start(self.etcd().address()?).await?;
        let url = format!("http://{}", to_etcd.address());
        let name = "kube-apiserver-second";
        let process = self
            .run_apiserver(name, address, &url, AUDIT_LOG_OF_SECOND)
            .await?;
        self.second = Some(SecondApiServer {
            address,
            to_etcd,
            _process: process,
        });
        Ok(())
    }

    /// Cuts the second API server off from etcd, or lets it come back. Cut off, it knows of no change.
    pub fn cut_off_second(&self, is_cut: bool) {
        if let Some(second) = &self.second {
            second.to_etcd.silence(is_cut);
        }
    }

    async fn run_apiserver(
        &self,
        name: &str,
        address: SocketAddr,
        etcd_url: &str,
        audit_log: &str,
    ) -> anyhow::Result<Process> {
        let folder = &self.folder;
        let mut apiserver = Process::start(
            name,
            Command::new(real_part("kube-apiserver")?)
                .args(["--etcd-servers", etcd_url])
                .args([
                    "--bind-address",
                    "127.0.0.1",
                    "--secure-port",
                    &address.port().to_string(),
                ])
                .args([
                    "--service-cluster-ip-range",
                    "10.0.0.0/16",
                    "--authorization-mode",
                    "RBAC",
                ])
                // What it finds by itself is of the machine's network, if there is one.
                .args(["--advertise-address", ADVERTISED])
                .args(["--service-account-issuer", "https://kubernetes.default.svc"])
                .args(["--disable-admission-plugins", "ServiceAccount"])
                // That policies refuse privileged containers is for them to show.
                .arg("--allow-privileged=true")
                .arg("--service-account-key-file")
                .arg(folder.join("service-account-public.pem"))
                .arg("--service-account-signing-key-file")
                .arg(folder.join("service-account.pem"))
                .arg("--token-auth-file")
                .arg(folder.join("tokens.csv"))
                .arg("--admission-control-config-file")
                .arg(folder.join(webhook_client::CONFIGURATION))
                .arg("--audit-policy-file")
                .arg(folder.join("audit.json"))
                .arg("--audit-log-path")
                .arg(folder.join(audit_log))
                .arg("--cert-dir")
                .arg(folder.join("apiserver-certs")),
            folder,
        )?;
        wait::until("the API server to be ready", async || {
            apiserver.check()?;
            let client = self.client_at(Identity::Admin, address).await?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            client.request_text(request).await.context("readyz")
        })
        .await?;
        Ok(apiserver)
    }

    /// Kills the API server with `kill -9`.
    pub fn kill_apiserver(&mut self) -> anyhow::Result<()> {
        self.apiserver
            .take()
            .map_or(Ok(()), |mut process| process.kill())
    }

    /// A client with that identity, without limits of its own.
    pub async fn client(&self, identity: Identity) -> anyhow::Result<Client> {
        self.client_at(identity, self.address).await
    }

    async fn client_at(&self, identity: Identity, address: SocketAddr) -> anyhow::Result<Client> {
        let kubeconfig = self.kubeconfig_by(identity, address);
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// A kubeconfig file with that identity, for a process.
    pub fn kubeconfig_file(&self, identity: Identity) -> anyhow::Result<PathBuf> {
        self.kubeconfig_file_by(identity, self.address)
    }

    /// Writes a [`Cluster::kubeconfig_file`] that leads to whatever listens at `address` in the API server's place.
    pub fn kubeconfig_file_by(
        &self,
        identity: Identity,
        address: SocketAddr,
    ) -> anyhow::Result<PathBuf> {
        let file = self.folder.join(format!("{}.kubeconfig", identity.token()));
        fs::write(&file, self.kubeconfig_by(identity, address))?;
        Ok(file)
    }

    fn kubeconfig_by(&self, identity: Identity, address: SocketAddr) -> String {
        let (url, ca) = (
            format!("https://{address}"),
            self.folder.join("apiserver-certs/apiserver.crt"),
        );
        let (ca, token) = (ca.display(), identity.token());
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
             clusters: [{{name: it, cluster: {{server: \"{url}\", certificate-authority: \"{ca}\"}}}}]\n\
             users: [{{name: it, user: {{token: {token}}}}}]\n\
             contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
        )
    }

    /// Returns the address that the API server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the addresses of all API servers.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let second = self.second.as_ref().map(|second| second.address);
        [self.address].into_iter().chain(second).collect()
    }

    /// Returns the watcher's requests to the second API server so far.
    pub fn asked_of_second(&self) -> anyhow::Result<Vec<Asked>> {
        audit::read(&self.folder.join(AUDIT_LOG_OF_SECOND))
    }

    /// Returns the watcher's requests to the API server so far.
    pub fn asked(&self) -> anyhow::Result<Vec<Asked>> {
        audit::read(&self.folder.join(AUDIT_LOG))
    }

    /// Returns the reporter's requests to the API server so far.
    pub fn asked_by_reporter(&self) -> anyhow::Result<Vec<Asked>> {
        audit::read_of(&self.folder.join(AUDIT_LOG), Identity::Reporter)
    }

    /// The API server's URL.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the configuration of a TLS client that trusts the API server.
    pub fn tls(&self) -> anyhow::Result<rustls::ClientConfig> {
        let pem = fs::read(self.folder.join("apiserver-certs/apiserver.crt"))?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate?)?;
        }
        Ok(rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth())
    }

    /// The API server's storage.
    pub fn etcd(&self) -> Etcd {
        Etcd {
            url: self.etcd_url.clone(),
        }
    }

    /// The API server's process.
    pub fn apiserver(&self) -> Option<&Process> {
        self.apiserver.as_ref()
    }
}

/// etcd, as its own clients see it.
#[derive(Clone, Debug)]
pub struct Etcd {
    url: String,
}

impl Etcd {
    /// Forgets all history, so that older resource versions and tokens expire.
    pub async fn compact(&self) -> anyhow::Result<()> {
        // Any read tells the current revision; the key is base64, as all of etcd's JSON.
        let read = self.post("/v3/kv/range", &json!({ "key": "AA==" })).await?;
        let revision = &read["header"]["revision"];
        self.post(
            "/v3/kv/compaction",
            &json!({ "revision": revision, "physical": true }),
        )
        .await?;
        Ok(())
    }

    fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.url.trim_start_matches("http://").parse()?)
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let address = self.address()?;
        let answer = crate::services::exchange(address, http::Method::POST, path, body.to_string());
        Ok(serde_json::from_str(&answer.await?)?)
    }
}

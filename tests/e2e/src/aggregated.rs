//! An API group with a server of its own behind the API server: the simulated one, behind TLS.

use std::{net::SocketAddr, sync::Arc};

use anteroom_simapi::{SimApi, SimConfig};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::system::SYSTEM_NAMESPACE;

/// The group of the aggregated API, with a single type.
pub const GROUP: &str = "far.example.com";
/// The plural of the type.
pub const PLURAL: &str = "gadgets";

const NAME: &str = "far";

/// A server of the group, until it is dropped: its connections break off then.
#[derive(Debug)]
pub struct Aggregated {
    /// The objects that it serves.
    pub sim: SimApi,
    _connections: tokio_util::sync::DropGuard,
    _accepting: AbortOnDropHandle<()>,
}

/// Returns the manifests that tell the API server of it, whether it runs or not: a Service and an `APIService`.
pub fn manifests(address: SocketAddr) -> [Value; 2] {
    [
        json!({ "apiVersion": "v1", "kind": "Service",
            "metadata": { "namespace": SYSTEM_NAMESPACE, "name": NAME },
            "spec": { "type": "ExternalName", "externalName": "localhost" } }),
        json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": format!("v1.{GROUP}") },
            "spec": { "group": GROUP, "version": "v1", "groupPriorityMinimum": 1000,
                "versionPriority": 10, "insecureSkipTLSVerify": true,
                "service": { "namespace": SYSTEM_NAMESPACE, "name": NAME,
                    "port": address.port() } } }),
    ]
}

impl Aggregated {
    /// Listens there.
    pub async fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let sim = SimApi::start(SimConfig::default()).await?;
        sim.put(
            "customresourcedefinitions.apiextensions.k8s.io",
            json!({
                "metadata": { "name": format!("{PLURAL}.{GROUP}") },
                "spec": { "group": GROUP, "scope": "Namespaced",
                    "names": { "kind": "Gadget", "plural": PLURAL, "singular": "gadget" },
                    "versions": [{ "name": "v1", "served": true, "storage": true }] },
            }),
        )?;
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
        let tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![key.cert.der().clone()], PrivateKeyDer::from(private))?;
        let tls = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind(address).await?;
        let (to, stop) = (sim.address(), CancellationToken::new());
        let connections = stop.clone().drop_guard();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (tls, stop) = (tls.clone(), stop.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        _ = connection(client, &tls, to) => {}
                    }
                });
            }
        });
        Ok(Self {
            sim,
            _connections: connections,
            _accepting: AbortOnDropHandle::new(accepting),
        })
    }

    /// Puts an object there.
    pub fn put(&self, name: &str) -> anyhow::Result<()> {
        let object = json!({ "metadata": { "namespace": "default", "name": name } });
        self.sim.put(format!("{PLURAL}.{GROUP}").as_str(), object)?;
        Ok(())
    }
}

async fn connection(client: TcpStream, tls: &TlsAcceptor, to: SocketAddr) -> std::io::Result<()> {
    let mut client = tls.accept(client).await?;
    let mut server = TcpStream::connect(to).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

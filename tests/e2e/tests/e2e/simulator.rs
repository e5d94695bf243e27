//! Holds the simulated API server against a real one: what the simulator's own tests ask of it, a
//! real kube-apiserver does alike.

use std::sync::Arc;

use anteroom_e2e::{
    cluster::{Cluster, Identity},
    folder::Folder,
    turn,
};
use anteroom_simapi::conformance::{CASES, Target};
use anyhow::ensure;
use http::{HeaderMap, header};

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_does_what_the_simulator_does() -> anyhow::Result<()> {
    anteroom_runtime::process::install_crypto_provider();
    let _turn = turn::take().await?;
    let folder = Folder::new()?;
    let cluster = Cluster::start(folder.path()).await?;
    let mut headers = HeaderMap::new();
    let bearer = format!("Bearer {}", Identity::Admin.token());
    headers.insert(header::AUTHORIZATION, bearer.parse()?);
    let etcd = cluster.etcd();
    let target = Target {
        url: cluster.url(),
        headers,
        tls: Some(Arc::new(cluster.tls()?)),
        compact: Some(Arc::new(move || {
            let etcd = etcd.clone();
            Box::pin(async move { etcd.compact().await })
        })),
    };
    let mut failures = Vec::new();
    for case in CASES {
        if let Err(error) = case.run(&target).await {
            failures.push(format!("{}: {error:#}", case.name));
        }
    }
    ensure!(
        failures.is_empty(),
        "of {} cases: {}",
        CASES.len(),
        failures.join("\n")
    );
    Ok(())
}

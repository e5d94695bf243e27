//! Certificates end, and are renewed, while decisions are made: those of NATS and of its clients, the webhook's own, and a
//! certificate that the webhook is given in files. No service is restarted.

use std::{path::Path, time::Duration};

use anteroom_e2e::{
    certificates,
    nats::NatsPlan,
    system::{SYSTEM_NAMESPACE, SystemPlan},
    views, wait,
    world::{World, host},
};
use anteroom_load::{Answer, Target};
use anteroom_runtime::{certs::issue::Authority, wall_clock};
use anyhow::{Context, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, api::PostParams};
use tokio::time::sleep;

use crate::load::{Faults, Witness, decides_by_hosts};

const INGRESSES: usize = 300;

/// The time until certificates of NATS end: a server starts within it, and finds the others.
const ENDS_AFTER: SignedDuration = SignedDuration::from_secs(12);

/// The time until a given certificate ends. The webhook reads the files every 10 s, and has to find the next one before.
const GIVEN_ENDS_AFTER: SignedDuration = SignedDuration::from_secs(25);

const SECOND: SignedDuration = SignedDuration::from_secs(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The time between two handshakes.
const PAUSE: Duration = Duration::from_millis(200);

/// The file of the authority of a given certificate, and the name that the certificate is for.
const AUTHORITY: &str = "ca.crt";
const NAME: &str = "127.0.0.1";

/// The Secret that webhooks keep their own certificate in.
const SECRET: &str = "anteroom-webhook-tls";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: CI leaves it out"]
async fn certificates_that_end_cost_no_decision() -> anyhow::Result<()> {
    let plan = SystemPlan {
        nats: NatsPlan {
            are_clients_verified: true,
            ..NatsPlan::default()
        },
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(own(&mut world)).await;
    world.with_logs(outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_given_certificate_that_ends_costs_no_decision() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("webhooks", wall_clock::now())?;
    std::fs::write(folder.path().join(AUTHORITY), &authority.certificate_pem)?;
    give(&authority, folder.path(), wall_clock::now() + DAY)?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    let plan = SystemPlan {
        webhook_args: vec![
            ("--tls-cert-file", file(certificates::CHAIN)),
            ("--tls-key-file", file(certificates::KEY)),
            ("--tls-ca-file", file(AUTHORITY)),
        ],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(given(&mut world, &authority, folder.path())).await;
    world.with_logs(outcome)
}

async fn own(world: &mut World) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    world.nats.all_healthy().await?;
    let stored = end_in_secret(world).await?;

    let mut faults = Faults::new(target.clone(), INGRESSES);
    let what = "certificates of a NATS server and of its clients ended";
    faults.under_load(world, what, end_of_nats).await?;
    let what = "all keys and certificates of NATS replaced, with their authority";
    faults
        .under_load(world, what, async |world| {
            world.nats.kill()?;
            world.nats.replace_keys()?;
            world.nats.start_again().await
        })
        .await?;
    is_renewed_in_secret(world, &stored).await?;
    decides_over_a_new_connection(&target).await?;
    views::equal_the_api_server(world).await?;
    Ok(())
}

/// A server and its clients get certificates that end soon, and do end while they are used. The next ones are in the files by
/// then, for whoever connects.
async fn end_of_nats(world: &mut World) -> anyhow::Result<()> {
    let server = world.nats.server_of("anteroom-webhook").await?;
    let end = wall_clock::now() + ENDS_AFTER;
    world.nats.certify_until(end)?;
    // Its clients connect to the others with theirs.
    restart(world, server).await?;
    world.nats.certify()?;
    while wall_clock::now() <= end + SECOND {
        sleep(PAUSE).await;
    }
    ensure!(
        !world.nats.takes_clients(server).await?,
        "its certificate has ended"
    );
    let of_webhook = world.nats.server_of("anteroom-webhook").await?;
    for number in [server, of_webhook] {
        restart(world, number).await?;
        ensure!(world.nats.takes_clients(number).await?, "server {number}");
    }
    Ok(())
}

async fn restart(world: &mut World, number: usize) -> anyhow::Result<()> {
    world.nats.stop_one(number).await?;
    world.nats.start_one(number).await?;
    world.nats.healthy(number).await
}

fn secrets(world: &World) -> Api<Secret> {
    Api::namespaced(world.client.clone(), SYSTEM_NAMESPACE)
}

/// Replaces the webhooks' certificate in their Secret by one that ends soon, of the same authority. Returns it.
async fn end_in_secret(world: &World) -> anyhow::Result<ByteString> {
    let mut secret = secrets(world).get(SECRET).await?;
    let data = secret.data.as_mut().context("no data")?;
    let text = |key: &str| -> anyhow::Result<String> {
        let found = data.get(key).with_context(|| key.to_owned())?;
        Ok(String::from_utf8(found.0.clone())?)
    };
    let authority = Authority {
        certificate_pem: text(AUTHORITY)?,
        key_pem: text("ca.key")?,
    };
    let end = wall_clock::now() + ENDS_AFTER;
    let pair = certificates::issue(&authority, &[NAME.to_owned()], end)?;
    let chain = ByteString(pair.chain.into_bytes());
    data.insert(certificates::CHAIN.to_owned(), chain.clone());
    let key = ByteString(pair.key.into_bytes());
    data.insert(certificates::KEY.to_owned(), key);
    let (secrets, parameters) = (secrets(world), PostParams::default());
    secrets.replace(SECRET, &parameters, &secret).await?;
    Ok(chain)
}

/// Waits until the webhook has renewed its certificate in the Secret, and serves with the new one.
async fn is_renewed_in_secret(world: &World, before: &ByteString) -> anyhow::Result<()> {
    const ACCEPTED: [&str; 1] = ["outcome=\"accepted\""];
    wait::until("the webhook's certificate to be renewed", async || {
        let secret = secrets(world).get(SECRET).await?;
        let data = secret.data.unwrap_or_default();
        let now = data.get(certificates::CHAIN).context("no certificate")?;
        ensure!(now != before, "it is as before");
        let webhook = &world.system.webhook;
        let reloads = "anteroom_certificate_reloads_total";
        let accepted = webhook.metric(reloads, &ACCEPTED).await?;
        ensure!(accepted >= 2.0, "{accepted} loaded");
        anyhow::Ok(())
    })
    .await
}

async fn given(world: &mut World, authority: &Authority, folder: &Path) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    let mut faults = Faults::new(target.clone(), INGRESSES);
    faults
        .under_load(world, "a given certificate ended", async |world| {
            let end = wall_clock::now() + GIVEN_ENDS_AFTER;
            give(authority, folder, end)?;
            serves_until(world, &target, end).await?;
            let next = wall_clock::now() + DAY;
            give(authority, folder, next)?;
            serves_until(world, &target, next).await?;
            while wall_clock::now() <= end + SECOND {
                decides_over_a_new_connection(&target).await?;
                sleep(PAUSE).await;
            }
            decides_over_a_new_connection(&target).await
        })
        .await
}

/// Puts a certificate that ends then into the files.
fn give(authority: &Authority, folder: &Path, end: Timestamp) -> anyhow::Result<()> {
    let pair = certificates::issue(authority, &[NAME.to_owned()], end)?;
    certificates::write(&pair, folder)
}

/// Waits until the webhook serves with the certificate that ends then. All the while, it takes new connections.
async fn serves_until(world: &World, target: &Target, end: Timestamp) -> anyhow::Result<()> {
    let name = "anteroom_certificate_not_after_timestamp_seconds";
    let last = wall_clock::now() + GIVEN_ENDS_AFTER;
    while world.system.webhook.metric(name, &[]).await? != end.as_second() as f64 {
        ensure!(wall_clock::now() < last, "it serves with another one");
        decides_over_a_new_connection(target).await?;
        sleep(PAUSE).await;
    }
    Ok(())
}

async fn decides_over_a_new_connection(target: &Target) -> anyhow::Result<()> {
    let answer = Witness::new(target)?.asks(&host(7)).await?;
    ensure!(matches!(answer, Answer::Denied { .. }), "{answer:?}");
    Ok(())
}

//! A cluster with programs of two releases: one service after the other is replaced, and back again.
//!
//! `ANTEROOM_OTHER_PROGRAMS` is the folder of the other release's programs; `cargo xtask mixed --against REVISION` builds them. Without it,
//! nothing is done.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::path::{Path, PathBuf};

use anteroom_e2e::{
    check::is_denied,
    services::Running,
    views, wait,
    world::{World, host, ingress},
};
use anteroom_load::Target;
use anyhow::Context;

use crate::load::{CALM, Load, decides_by_hosts};

const INGRESSES: usize = 300;

/// A service that is replaced.
#[derive(Clone, Copy, Debug)]
enum Service {
    Watcher,
    Replica(usize),
    Webhook,
}

const SERVICES: [Service; 4] = [
    Service::Watcher,
    Service::Replica(0),
    Service::Replica(1),
    Service::Webhook,
];

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_two_releases_work_together() -> anyhow::Result<()> {
    let Some(others) = std::env::var_os("ANTEROOM_OTHER_PROGRAMS").map(PathBuf::from) else {
        println!("skipped: ANTEROOM_OTHER_PROGRAMS names no folder (cargo xtask mixed)");
        return Ok(());
    };
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world, &others)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World, others: &Path) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    let mut hosts = INGRESSES;
    // The services change to the second release and back, then again in the reverse order.
    let reversed = || SERVICES.into_iter().rev();
    for (services, programs) in [
        (SERVICES.to_vec(), Some(others)),
        (reversed().collect(), None),
        (reversed().collect(), Some(others)),
        (SERVICES.to_vec(), None),
    ] {
        for service in services {
            hosts += 1;
            let named = programs.map_or("this release", |_| "the other release");
            let what = format!("{service:?} of {named}");
            replace(world, &target, service, programs, hosts)
                .await
                .with_context(|| what.clone())?;
            println!("{what}: well");
        }
    }
    views::equal_the_api_server(world).await?;
    Ok(())
}

/// Replaces a service under load. Without the webhook, nothing is decided.
async fn replace(
    world: &mut World,
    target: &Target,
    service: Service,
    programs: Option<&Path>,
    new: usize,
) -> anyhow::Result<()> {
    if let Service::Webhook = service {
        restart(world, service, programs).await?;
    }
    let load = Load::begin(world, target);
    load.decides(CALM).await?;
    if !matches!(service, Service::Webhook) {
        restart(world, service, programs).await?;
    }
    let object = ingress(new, &host(new));
    wait::until("an Ingress to be admitted", async || {
        world.create(&object).await
    })
    .await?;
    is_denied(world, &host(new)).await?;
    world.system.ready().await?;
    load.end(&format!("{service:?}")).await
}

async fn restart(
    world: &mut World,
    service: Service,
    programs: Option<&Path>,
) -> anyhow::Result<()> {
    let recipe = of(world, service)?.recipe().clone().programs(programs);
    of(world, service)?.process.signal("TERM")?;
    wait::until("it to end", async || {
        match of(world, service)?.process.check() {
            Ok(()) => anyhow::bail!("it runs"),
            Err(_) => Ok(()),
        }
    })
    .await?;
    *of(world, service)? = recipe.start()?;
    of(world, service)?.ready().await
}

fn of(world: &mut World, service: Service) -> anyhow::Result<&mut Running> {
    let system = &mut world.system;
    match service {
        Service::Watcher => system.watcher.as_mut(),
        Service::Replica(number) => system.replicas[number].as_mut(),
        Service::Webhook => Some(&mut system.webhook),
    }
    .context("it runs")
}

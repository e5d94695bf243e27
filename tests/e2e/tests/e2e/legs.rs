//! Each way between two parts is slow and uneven, or silent in one direction, while decisions are made. No connection is
//! closed, and nothing is lost on the way: see [`anteroom_e2e::proxy`], and [`one_way`](crate::one_way) for packets that are.

use std::time::Duration;

use anteroom_e2e::{
    nats::NatsPlan,
    network::Direction,
    proxy::{Delay, Proxy},
    system::SystemPlan,
    views,
    world::World,
};
use anteroom_load::Target;
use anyhow::{Context, ensure};
use tokio::time::sleep;

use crate::{
    load::{CONCURRENCY, Faults, decides_by_hosts, one_more},
    nats_servers::move_replicas_away,
};

const INGRESSES: usize = 300;

/// The number of the first Ingress that is made while a way is slow.
const MADE_MEANWHILE: usize = 10_000;

/// The delay in each direction: that of two continents, over a line that others use too.
const DELAY: Delay = Delay::around(Duration::from_millis(100), Duration::from_millis(50));

/// The time for which a way is slow.
const DELAYED_FOR: Duration = Duration::from_secs(3);

/// The time for which a direction is silent: shorter than requests wait.
const SILENT_FOR: Duration = Duration::from_secs(4);

/// The same, longer than requests wait: the webhook's callers give up after 10 s.
const SILENT_FOR_LONG: Duration = Duration::from_secs(12);

const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::FromServer];

/// A way between two kinds of parts.
#[derive(Clone, Copy, Debug)]
enum Leg {
    WatcherToApiServer,
    ApiServerToWebhook,
    ServicesToNats,
    BetweenNatsServers,
}

static LEGS: [Leg; 4] = [
    Leg::WatcherToApiServer,
    Leg::ApiServerToWebhook,
    Leg::ServicesToNats,
    Leg::BetweenNatsServers,
];

impl Leg {
    fn proxies(self, world: &World) -> anyhow::Result<Vec<&Proxy>> {
        match self {
            Self::WatcherToApiServer => one(world.proxy.as_ref()),
            Self::ApiServerToWebhook => one(world.webhook_proxy.as_ref()),
            Self::ServicesToNats => Ok(world.nats.ways_of_clients().collect()),
            Self::BetweenNatsServers => Ok(world.nats.ways_between().collect()),
        }
    }

    fn delay(self, world: &World, delay: Delay) -> anyhow::Result<()> {
        let proxies = self.proxies(world)?.into_iter();
        proxies.for_each(|proxy| proxy.delay(delay));
        Ok(())
    }

    /// Makes a direction silent, or lets it through again. Between servers of NATS, the direction is that of this server's
    /// routes.
    fn silence(
        self,
        world: &World,
        server: usize,
        direction: Direction,
        is_silent: bool,
    ) -> anyhow::Result<()> {
        if matches!(self, Self::BetweenNatsServers) {
            world.nats.cut_off_one_way(server, direction, is_silent);
            return Ok(());
        }
        let proxies = self.proxies(world)?.into_iter();
        proxies.for_each(|proxy| proxy.silence_one_way(direction, is_silent));
        Ok(())
    }
}

fn one(proxy: Option<&Proxy>) -> anyhow::Result<Vec<&Proxy>> {
    Ok(vec![proxy.context("a proxy")?])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: CI leaves it out"]
async fn ways_that_are_slow_and_uneven_cost_no_decision() -> anyhow::Result<()> {
    let mut world = World::start_as(&plan()).await?;
    let outcome = Box::pin(slow(&mut world)).await;
    world.with_logs(outcome)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: CI leaves it out"]
async fn ways_of_nats_that_are_silent_in_one_direction_cost_no_decision() -> anyhow::Result<()> {
    let mut world = World::start_as(&plan()).await?;
    let outcome = Box::pin(nats_silent(&mut world)).await;
    world.with_logs(outcome)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: CI leaves it out"]
async fn ways_of_the_api_server_that_are_silent_in_one_direction_cost_only_what_cannot_wait()
-> anyhow::Result<()> {
    let mut world = World::start_as(&plan()).await?;
    let outcome = Box::pin(api_server_silent(&mut world)).await;
    world.with_logs(outcome)
}

fn plan() -> SystemPlan {
    SystemPlan {
        proxied: true,
        is_webhook_proxied: true,
        nats: NatsPlan {
            is_cuttable: true,
            are_clients_proxied: true,
            ..NatsPlan::default()
        },
        ..SystemPlan::default()
    }
}

/// Queries go from one server of NATS to another.
async fn decides_across_servers(world: &mut World) -> anyhow::Result<Target> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    world.nats.all_healthy().await?;
    let of_webhook = world.nats.server_of("anteroom-webhook").await?;
    move_replicas_away(world, of_webhook).await?;
    Ok(target)
}

async fn slow(world: &mut World) -> anyhow::Result<()> {
    let target = decides_across_servers(world).await?;
    let mut faults = Faults::new(target, INGRESSES);
    let each = LEGS.iter().map(std::slice::from_ref);
    for (index, legs) in each.chain([&LEGS[..]]).enumerate() {
        let what = format!("{legs:?} slow");
        faults
            .under_load(world, &what, async |world| {
                legs.iter().try_for_each(|leg| leg.delay(world, DELAY))?;
                one_more(world, MADE_MEANWHILE + index).await?;
                sleep(DELAYED_FOR).await;
                let at_once = Delay::default();
                legs.iter().try_for_each(|leg| leg.delay(world, at_once))
            })
            .await?;
    }
    views::equal_the_api_server(world).await?;
    Ok(())
}

async fn nats_silent(world: &mut World) -> anyhow::Result<()> {
    let target = decides_across_servers(world).await?;
    let mut faults = Faults::new(target, INGRESSES);
    let legs = [Leg::ServicesToNats, Leg::BetweenNatsServers];
    silent(world, &mut faults, legs).await
}

async fn api_server_silent(world: &mut World) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    world.nats.all_healthy().await?;
    let mut faults = Faults::new(target, INGRESSES);
    let legs = [Leg::WatcherToApiServer, Leg::ApiServerToWebhook];
    silent(world, &mut faults, legs).await?;

    let what = "ApiServerToWebhook silent FromServer, longer than requests wait";
    let report = faults
        .reported(world, what, async |world| {
            let (leg, direction) = (Leg::ApiServerToWebhook, Direction::FromServer);
            leg.silence(world, 0, direction, true)?;
            sleep(SILENT_FOR_LONG).await;
            leg.silence(world, 0, direction, false)
        })
        .await?;
    ensure!(
        report.errors <= CONCURRENCY as u64,
        "more lost than were under way: {report:#?}"
    );
    Ok(())
}

async fn silent(world: &mut World, faults: &mut Faults, legs: [Leg; 2]) -> anyhow::Result<()> {
    for leg in legs {
        for direction in DIRECTIONS {
            let of_webhook = world.nats.server_of("anteroom-webhook").await?;
            let what = format!("{leg:?} silent {direction:?}");
            faults
                .under_load(world, &what, async |world| {
                    leg.silence(world, of_webhook, direction, true)?;
                    sleep(SILENT_FOR).await;
                    leg.silence(world, of_webhook, direction, false)
                })
                .await?;
        }
    }
    views::equal_the_api_server(world).await?;
    Ok(())
}

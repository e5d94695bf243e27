//! An etcd that is restored from an earlier copy: views follow it back, with what was deleted since and without what was made
//! since.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::time::Instant;

use anteroom_e2e::{
    check::is_denied,
    views, wait,
    world::{World, host, ingress},
};

use crate::load::decides_by_hosts;

const INGRESSES: usize = 300;

/// Ingresses that are deleted, and as many that are made, after the copy.
const CHANGED: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_followed_back() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    decides_by_hosts(world, INGRESSES).await?;
    world.cluster.keep_state().await?;
    is_denied(world, &host(7)).await?;
    for index in 0..CHANGED {
        world.delete(&ingress(index, &host(index))).await?;
        let made = INGRESSES + index;
        world.create(&ingress(made, &host(made))).await?;
    }
    for index in INGRESSES..INGRESSES + CHANGED {
        is_denied(world, &host(index)).await?;
    }
    views::equal_the_api_server(world).await?;

    world.cluster.restore_state().await?;
    let begun = Instant::now();
    views::equal_the_api_server(world).await?;
    println!(
        "all views are as restored {} ms after the API server was ready",
        begun.elapsed().as_millis()
    );
    for index in 0..CHANGED {
        is_denied(world, &host(index)).await?;
        let free = ingress(INGRESSES + index, &host(INGRESSES + index));
        wait::until("a host that is free again", async || {
            world.create(&free).await
        })
        .await?;
    }
    world.system.ready().await?;
    views::equal_the_api_server(world).await?;
    Ok(())
}

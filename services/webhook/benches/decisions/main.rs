//! Sends reviews through webhook and replica in one process, one after the other, and prints their number.
//!
//! The cost of a decision without TLS and NATS. Run under callgrind with two numbers of reviews: the difference is
//! the cost of the reviews, without the cost of the start. `cargo xtask profile` does that.
//!
//! ```text
//! cargo bench -p anteroom-webhook --bench decisions -- --policy hosts --reviews 1000
//! ```
//!
//! With `--over http1` or `--over http2` the reviews are posted over TLS, whose cost counts too. With `--tap summary` each
//! decision is counted for an operator who looks.
#![allow(clippy::print_stdout, reason = "it is what this program is for")]
#![allow(clippy::unwrap_used, reason = "nothing here comes from outside")]

mod served;
mod world;

use std::time::Instant;

use clap::{Parser, ValueEnum};
use serde_json::json;

use served::{Http, Load};
use world::World;

#[derive(Parser)]
struct Cli {
    /// The policy that decides.
    #[arg(long, value_enum, default_value = "hosts")]
    policy: Which,

    /// Reviews to decide.
    #[arg(long, default_value_t = 1_000)]
    reviews: usize,

    /// Ingresses in the cluster.
    #[arg(long, default_value_t = 3_000)]
    objects: usize,

    /// The webhook holds all views itself.
    #[arg(long)]
    local_views: bool,

    /// Post them over TLS by this protocol.
    #[arg(long, value_enum)]
    over: Option<Http>,

    /// The decisions that an operator looks at meanwhile.
    #[arg(long, value_enum, default_value = "none")]
    tap: Look,

    /// Reviews under way at once, where they are posted.
    #[arg(long, default_value_t = 1)]
    at_once: usize,

    /// The flag that `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The policy that decides.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// No policy.
    None,
    /// A policy that reads no fact.
    Local,
    /// The hosts of an entry's Ingresses that have this host.
    Hosts,
    /// The paths of all Ingresses of this host, by an API call that a view answers.
    Paths,
}

/// The decisions that an operator looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Look {
    /// Nobody looks.
    None,
    /// Counts by rule, as `anteroom top` asks for them.
    Summary,
}

fn main() {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let (denied, took) = runtime.block_on(async {
        let world = World::new(cli.policy, cli.objects, cli.tap, cli.local_views).await;
        let begun = Instant::now();
        let denied = match cli.over {
            None => decide_all(&world, &cli).await,
            Some(over) => {
                // Requests over a socket need real time.
                tokio::time::resume();
                let load = Load {
                    over,
                    at_once: cli.at_once,
                    reviews: cli.reviews,
                    objects: cli.objects,
                };
                served::post_all(&world, load).await
            }
        };
        (denied, begun.elapsed())
    });
    let each_us = took.as_secs_f64() * 1e6 / cli.reviews.max(1) as f64;
    println!(
        "{}",
        json!({
            "policy": format!("{:?}", cli.policy).to_lowercase(),
            "tap": format!("{:?}", cli.tap).to_lowercase(),
            "reviews": cli.reviews,
            "denied": denied,
            "us_each": (each_us * 10.0).round() / 10.0,
        })
    );
}

async fn decide_all(world: &World, cli: &Cli) -> usize {
    let mut denied = 0;
    for n in 0..cli.reviews {
        denied += usize::from(!world.decide(n, cli.objects).await);
    }
    denied
}

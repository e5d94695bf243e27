//! Takes reviews through webhook and replica in one process, one after the other, and says how many.
//!
//! What a decision costs beside TLS and NATS: run under callgrind with two numbers of reviews, the
//! difference is what the reviews took, whatever the start took. `cargo xtask profile` does that.
//!
//! ```text
//! cargo bench -p anteroom-webhook --bench decisions -- --policy hosts --reviews 1000
//! ```
#![allow(clippy::print_stdout, reason = "it is what this program is for")]
#![allow(clippy::unwrap_used, reason = "nothing here comes from outside")]

mod world;

use std::time::Instant;

use clap::{Parser, ValueEnum};
use serde_json::json;

use world::World;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
struct Cli {
    /// What decides.
    #[arg(long, value_enum, default_value = "hosts")]
    policy: Which,

    /// Reviews to decide.
    #[arg(long, default_value_t = 1_000)]
    reviews: usize,

    /// Ingresses in the cluster.
    #[arg(long, default_value_t = 3_000)]
    objects: usize,

    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What decides.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// No policy.
    None,
    /// One that asks nobody.
    Local,
    /// The hosts of an entry's Ingresses that have this host.
    Hosts,
    /// The paths of all Ingresses of this host, by an API call that a view answers.
    Paths,
}

fn main() {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let (denied, took) = runtime.block_on(async {
        let world = World::new(cli.policy, cli.objects).await;
        let begun = Instant::now();
        let mut denied = 0;
        for n in 0..cli.reviews {
            denied += usize::from(!world.decide(n, cli.objects).await);
        }
        (denied, begun.elapsed())
    });
    let each_us = took.as_secs_f64() * 1e6 / cli.reviews.max(1) as f64;
    println!(
        "{}",
        json!({
            "policy": format!("{:?}", cli.policy).to_lowercase(),
            "reviews": cli.reviews,
            "denied": denied,
            "us_each": (each_us * 10.0).round() / 10.0,
        })
    );
}

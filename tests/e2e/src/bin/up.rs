//! Keeps a real cluster with a running system, for trying things by hand: prints where its kubeconfig
//! is, and ends at SIGINT or SIGTERM.

use anteroom_e2e::{cluster::Identity, manifests, world::World};
use clap::Parser;
use serde_json::{Value, json};

/// Runs a real kube-apiserver, etcd, nats-server and every service, until it is interrupted.
#[derive(Parser)]
#[command(
    after_help = "Example:\n  cargo run -p anteroom-e2e --bin up\n  kubectl --kubeconfig … get cachedcontextentries"
)]
struct Args {
    /// A reporter too.
    #[arg(long)]
    reporter: bool,

    /// Let the watcher read whatever there is, for policies on kinds that are not among those of
    /// deploy/chart/templates/rbac-watcher.yaml, and change it for policies with targets: nobody aggregates roles
    /// here.
    #[arg(long)]
    reads_everything: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args {
        reporter,
        reads_everything,
    } = Args::parse();
    let mut world = match reporter {
        true => World::start_reporting().await?,
        false => World::start().await?,
    };
    world.folder.silence();
    if reads_everything {
        manifests::apply(&world.client, &everything()).await?;
        manifests::apply(&world.client, &all_writes()).await?;
    }
    world.system.ready().await?;
    let kubeconfig = world.cluster.kubeconfig_file(Identity::Admin)?;
    say(&format!("KUBECONFIG={}", kubeconfig.display()));
    say(&format!("logs in {}", world.folder.path().display()));
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
    }
    Ok(())
}

/// In the place of the roles that an administrator labels for the watcher.
fn everything() -> Value {
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-added" }, "rules": [
            { "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"],
                "verbs": ["create"] },
        ] })
}

/// In the place of the roles that an administrator labels for what policies change.
fn all_writes() -> Value {
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-writes" }, "rules": [
            { "apiGroups": ["*"], "resources": ["*"], "verbs": ["update"] },
        ] })
}

#[expect(clippy::print_stdout, reason = "what it is run for")]
fn say(line: &str) {
    println!("{line}");
}

//! The simulator as a process: its address, and its first objects.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use serde_json::Value;

use crate::{ResourceName, SimApi, SimConfig, generate::Cluster};

/// Command-line arguments; each can also be set in the environment.
#[derive(Clone, Debug, clap::Parser)]
#[command(
    name = "anteroom-simapi",
    version,
    about = "A simulated Kubernetes API server"
)]
pub struct Args {
    /// The address to serve on. Nobody is authenticated: keep it away from others.
    #[arg(long, env = "ANTEROOM_SIMAPI_LISTEN", default_value = "127.0.0.1:8001")]
    pub listen: SocketAddr,
    /// The number of namespaces to make.
    #[arg(long, env = "ANTEROOM_SIMAPI_NAMESPACES", default_value_t = 20)]
    pub namespaces: usize,
    /// The number of Services to make.
    #[arg(long, env = "ANTEROOM_SIMAPI_SERVICES", default_value_t = 0)]
    pub services: usize,
    /// The number of Ingresses to make, each with a host of its own.
    #[arg(long, env = "ANTEROOM_SIMAPI_INGRESSES", default_value_t = 0)]
    pub ingresses: usize,
    /// The number of Pods to make.
    #[arg(long, env = "ANTEROOM_SIMAPI_PODS", default_value_t = 0)]
    pub pods: usize,
    /// The seed that objects and UIDs are made from.
    #[arg(long, env = "ANTEROOM_SIMAPI_SEED", default_value_t = 0)]
    pub seed: u64,
    /// A manifest, or a folder of them, to create at the start (`*.yaml`, in order of name). May be
    /// given more than once; CustomResourceDefinitions come before what they define.
    #[arg(long, env = "ANTEROOM_SIMAPI_LOAD", value_delimiter = ',')]
    pub load: Vec<PathBuf>,
    /// The interval at which a watch gets a bookmark, in seconds.
    #[arg(long, env = "ANTEROOM_SIMAPI_BOOKMARK_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub bookmark_seconds: u64,
}

impl Args {
    /// Starts the simulator that they describe.
    pub async fn start(&self) -> anyhow::Result<SimApi> {
        let sim = SimApi::start(SimConfig {
            listen: self.listen,
            seed: self.seed,
            bookmark_interval: Duration::from_secs(self.bookmark_seconds),
            ..SimConfig::default()
        })
        .await?;
        let cluster = Cluster {
            seed: self.seed,
            namespaces: self.namespaces,
        };
        sim.put_all("namespaces", cluster.namespaces())?;
        sim.put_all("services", cluster.services(self.services))?;
        sim.put_all(
            "ingresses.networking.k8s.io",
            cluster.ingresses(self.ingresses, 1),
        )?;
        sim.put_all("pods", cluster.pods(self.pods))?;
        for path in &self.load {
            for file in manifests(path)? {
                load(&sim, &file).with_context(|| format!("cannot load {}", file.display()))?;
            }
        }
        Ok(sim)
    }
}

/// The manifests at a path, in order of name.
fn manifests(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read {}", path.display());
    if !fs::metadata(path).with_context(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).with_context(unreadable)?;
    let paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    let yaml = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
    };
    let mut paths: Vec<PathBuf> = paths.into_iter().filter(yaml).collect();
    paths.sort();
    Ok(paths)
}

fn load(sim: &SimApi, file: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(file)?;
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let objects: Vec<Value> = serde_saphyr::from_multiple_with_options(&text, options)?;
    for mut object in objects.into_iter().filter(|object| !object.is_null()) {
        let (resource, namespaced) = resource_of(sim, &object)?;
        let metadata = crate::object::metadata_mut(&mut object);
        if namespaced {
            metadata
                .entry("namespace")
                .or_insert_with(|| "default".into());
        }
        sim.put(resource, object)?;
    }
    Ok(())
}

/// Returns the resource of a manifest, by its `apiVersion` and `kind`, and whether it has a namespace.
fn resource_of(sim: &SimApi, object: &Value) -> anyhow::Result<(ResourceName, bool)> {
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let found = sim.resource_of_kind(group, kind);
    found.with_context(|| {
        format!("no resource of apiVersion {api_version:?} and kind {kind:?} is served")
    })
}

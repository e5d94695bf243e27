//! The simulator as its owner holds it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::{
    control,
    faults::Fault,
    metadata,
    object::{metadata_mut, text},
    resource::{ResourceName, ResourceType},
    server::{self, App},
    stats::Stats,
    store::{Expected, NAMESPACES},
};

/// The configuration of a simulator.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The address to listen on; port 0 takes a free port.
    pub listen: SocketAddr,
    /// The interval of bookmarks in a watch that asked for bookmarks.
    pub bookmark_interval: Duration,
    /// The length of a watch that names no timeout.
    pub watch_timeout: Duration,
    /// The number of changes of a resource that are remembered. Older ones have expired: 410.
    pub history_events_max: usize,
    /// True if a watch may begin with what is there (`sendInitialEvents`).
    pub streaming_lists: bool,
    /// The resources that are served from the start, by their names; `None`: all that a cluster has. What is discovered
    /// costs most of a simulation's time.
    pub served: Option<&'static [&'static str]>,
    /// UIDs and generated names are made from it.
    pub seed: u64,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            bookmark_interval: Duration::from_secs(10),
            watch_timeout: Duration::from_secs(30 * 60),
            history_events_max: 4096,
            streaming_lists: true,
            served: None,
            seed: 0,
        }
    }
}

/// A running simulator. Dropping it ends the simulator and its requests.
#[derive(Debug)]
pub struct SimApi {
    app: Arc<App>,
    address: SocketAddr,
    serving: Option<JoinHandle<()>>,
}

/// Why the simulator did not do as it was told.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// No such resource is served.
    #[error(
        "the simulator serves no resource {resource}: create its CustomResourceDefinition first"
    )]
    NoResource {
        /// Its name.
        resource: ResourceName,
    },
    /// An object without `metadata.name`, or namespaced and without a namespace.
    #[error("the object names no place to put it: {missing} is missing")]
    Unnamed {
        /// The missing field.
        missing: &'static str,
    },
    /// The history does not reach the resource version that a fault names.
    #[error("resource version {version} is out of reach: the history covers {oldest} to {newest}")]
    OutOfReach {
        /// The version that was asked for.
        version: u64,
        /// The oldest that would do.
        oldest: u64,
        /// The newest.
        newest: u64,
    },
}

impl SimApi {
    /// Starts one, with the namespaces that every cluster has and nothing else.
    pub async fn start(config: SimConfig) -> Result<Self, SimError> {
        let listen = config.listen;
        let failed = |source| SimError::Listen {
            address: listen,
            source,
        };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let app = App::new(config);
        let sim = Self {
            serving: Some(tokio::spawn(server::serve(app.clone(), listener))),
            app,
            address,
        };
        sim.put_namespaces()?;
        Ok(sim)
    }

    /// Makes one that nobody can connect to: requests come through [`SimApi::service`].
    ///
    /// # Errors
    /// None that can happen: it serves namespaces.
    pub fn in_process(config: SimConfig) -> Result<Self, SimError> {
        let sim = Self {
            address: config.listen,
            app: App::new(config),
            serving: None,
        };
        sim.put_namespaces()?;
        Ok(sim)
    }

    /// Answers requests as they would be over HTTP.
    pub fn service(&self) -> axum::Router {
        server::router(Arc::clone(&self.app))
    }

    fn put_namespaces(&self) -> Result<(), SimError> {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.put(NAMESPACES, json!({"metadata": {"name": name}}))?;
        }
        Ok(())
    }

    /// Returns its URL: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig that leads to it.
    pub fn kubeconfig_yaml(&self) -> String {
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: simulator
  cluster: {{server: \"{}\"}}
users:
- name: simulator
  user: {{}}
contexts:
- name: simulator
  context: {{cluster: simulator, user: simulator}}
current-context: simulator
",
            self.url()
        )
    }

    /// Returns the counts of what was asked of it until now.
    pub fn stats(&self) -> Stats {
        self.app.recorder.subscribe().borrow().clone()
    }

    /// Waits until the figures are as wanted. Wrap it in a timeout.
    pub async fn wait_until(&self, mut wanted: impl FnMut(&Stats) -> bool) {
        let mut stats = self.app.recorder.subscribe();
        loop {
            // A copy: `wanted` may read the figures itself, and would wait for a writer that waits for this reader.
            let now = stats.borrow_and_update().clone();
            // The sender lives as long as `self`.
            if wanted(&now) || stats.changed().await.is_err() {
                return;
            }
        }
    }

    /// Every change of the figures, from now on.
    pub fn subscribe(&self) -> watch::Receiver<Stats> {
        self.app.recorder.subscribe()
    }

    /// The last resource version that was handed out.
    pub fn version(&self) -> u64 {
        self.app.store.version()
    }

    /// Lets something go wrong, or ends it.
    pub fn fault(&self, fault: Fault) -> Result<(), SimError> {
        control::apply(&self.app, fault)
    }

    /// Creates or replaces an object past admission and every fault, and returns its resource
    /// version. Its metadata names the place; what a server fills in (uid, timestamps, generation)
    /// is filled in if absent, and whatever else is there is kept, `status` and `managedFields`
    /// included.
    pub fn put(
        &self,
        resource: impl Into<ResourceName>,
        mut object: Value,
    ) -> Result<u64, SimError> {
        let resource = resource.into();
        let of = self.resource(&resource)?;
        let metadata = metadata_mut(&mut object);
        if text(metadata, "name").is_empty() {
            return Err(SimError::Unnamed {
                missing: "metadata.name",
            });
        }
        let namespace = text(metadata, "namespace");
        if of.namespaced && namespace.is_empty() {
            return Err(SimError::Unnamed {
                missing: "metadata.namespace",
            });
        }
        let old = self.get(
            &resource,
            &namespace,
            &text(metadata_mut(&mut object), "name"),
        );
        metadata::complete_put(&of, old.as_ref(), &mut object, &self.app.identity);
        let stored = self.app.store.put(&resource, object, Expected::Anything);
        Ok(stored.map_err(|_| no_resource(&resource))?.version)
    }

    /// Creates or replaces many objects of one resource; see [`SimApi::put`].
    pub fn put_all(
        &self,
        resource: impl Into<ResourceName>,
        objects: impl IntoIterator<Item = Value>,
    ) -> Result<(), SimError> {
        let resource = resource.into();
        objects
            .into_iter()
            .try_for_each(|object| self.put(&resource, object).map(|_| ()))
    }

    /// An object as it is served in its preferred version; `None` if there is none, or if a fault
    /// has malformed it.
    pub fn get(
        &self,
        resource: impl Into<ResourceName>,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let resource = resource.into();
        let of = self.app.store.resource(&resource)?;
        self.app
            .store
            .get(&resource, namespace, name)?
            .to_value(&of, of.versions.first()?)
    }

    /// Removes an object past admission and every fault; whether there was one.
    pub fn delete(
        &self,
        resource: impl Into<ResourceName>,
        namespace: &str,
        name: &str,
    ) -> Result<bool, SimError> {
        let resource = resource.into();
        let deleted = self
            .app
            .store
            .delete(&resource, namespace, name, Expected::Anything);
        Ok(deleted.map_err(|_| no_resource(&resource))?.is_some())
    }

    /// Every object of a resource as it is kept: JSON without `apiVersion` and `kind`, in order of
    /// namespace and name.
    pub fn objects(&self, resource: impl Into<ResourceName>) -> Result<Vec<Bytes>, SimError> {
        let resource = resource.into();
        let page = self
            .app
            .store
            .list(&resource, &Default::default(), None, None, usize::MAX);
        let page = page.map_err(|_| no_resource(&resource))?;
        Ok(page
            .objects
            .iter()
            .map(|object| object.body.clone())
            .collect())
    }

    /// Ends it: watches are closed, and what is being answered is.
    pub async fn shutdown(mut self) {
        self.app.stop.cancel();
        if let Some(serving) = self.serving.take() {
            // An error is a panic of the server, which has been reported where it happened.
            let _ = serving.await;
        }
    }

    /// The resource of a kind in a group, and whether it is namespaced.
    pub(crate) fn resource_of_kind(&self, group: &str, kind: &str) -> Option<(ResourceName, bool)> {
        let mut resources = self.app.store.resources().into_iter();
        let found = resources.find(|resource| resource.group == group && resource.kind == kind)?;
        Some((found.name(), found.namespaced))
    }

    fn resource(&self, name: &ResourceName) -> Result<Arc<ResourceType>, SimError> {
        let resource = self.app.store.resource(name);
        resource.ok_or_else(|| no_resource(name))
    }
}

/// Every error of the store that a call without expectations can meet means this.
fn no_resource(resource: &ResourceName) -> SimError {
    SimError::NoResource {
        resource: resource.clone(),
    }
}

impl Drop for SimApi {
    fn drop(&mut self) {
        self.app.stop.cancel();
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

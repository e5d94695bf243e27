//! Makes and deletes Ingresses through the API server, and tells the oracle what is certain.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_e2e::{
    check::MESSAGE,
    wait,
    world::{NAMESPACE, World},
};
use anteroom_load::{Oracle, Target, ingress};
use anyhow::bail;
use kube::{
    api::{Api, DynamicObject, PostParams},
    core::Status,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::load::Witness;

/// The hosts of a mutator: few, so that each changes often.
const HOSTS: usize = 24;

/// Changes the cluster until it is told to stop.
pub(crate) struct Mutator {
    api: Api<DynamicObject>,
    oracle: Arc<Oracle>,
    witness: Witness,
    rng: StdRng,
    /// Its Ingresses, and whether each exists.
    ingresses: Vec<(Value, bool)>,
}

/// The changes that a mutator made.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    created: usize,
    deleted: usize,
    /// From the API server's answer until decisions knew it, at most.
    arrival_max: Duration,
}

impl Mutator {
    pub(crate) fn new(
        world: &World,
        target: &Target,
        seed: u64,
        number: u64,
    ) -> anyhow::Result<Self> {
        let ingress = |index: usize| {
            let name = format!("chaos-{number}-{index}");
            let object = ingress(NAMESPACE, &name, &format!("{name}.example.com"));
            (object, false)
        };
        let ingresses: Vec<_> = (0..HOSTS).map(ingress).collect();
        Ok(Self {
            api: world.api(&ingresses[0].0),
            oracle: world.oracle.clone(),
            witness: Witness::new(target)?,
            rng: StdRng::seed_from_u64(seed ^ (number + 1)),
            ingresses,
        })
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<Changes> {
        let mut changes = Changes::default();
        while !stop.is_cancelled() {
            let index = self.rng.random_range(0..HOSTS);
            let (object, exists) = self.ingresses[index].clone();
            let host = host_of(&object);
            self.oracle.unsettle(&host);
            if exists {
                self.delete(&object).await?;
                changes.deleted += 1;
            } else {
                self.create(&object).await?;
                changes.created += 1;
            }
            let known = Instant::now();
            self.witness.sees(&host, !exists).await?;
            changes.arrival_max = changes.arrival_max.max(known.elapsed());
            if exists {
                self.oracle.free(host);
            } else {
                self.oracle.take(host);
            }
            self.ingresses[index].1 = !exists;
        }
        Ok(changes)
    }

    /// Until the API server says that the object is there: one that was made by an attempt whose
    /// answer was lost counts.
    async fn create(&self, object: &Value) -> anyhow::Result<()> {
        let name = name_of(object);
        let parsed: DynamicObject = serde_json::from_value(object.clone())?;
        let parsed = &parsed;
        let refused = wait::until(&format!("{name} to be created"), async || {
            match self.api.create(&PostParams::default(), parsed).await {
                Ok(_) => Ok(None),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
                Err(kube::Error::Api(status)) if is_denial(&status) => Ok(Some(status)),
                Err(other) => Err(other),
            }
        })
        .await?;
        if let Some(status) = refused {
            bail!("{name}: its host was seen free, and it was denied: {status:?}");
        }
        Ok(())
    }

    async fn delete(&self, object: &Value) -> anyhow::Result<()> {
        let name = name_of(object);
        wait::until(&format!("{name} to be deleted"), async || {
            match self.api.delete(&name, &Default::default()).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                Err(other) => Err(other),
            }
        })
        .await
    }
}

/// A decision by the policy, as against failing closed.
fn is_denial(status: &Status) -> bool {
    status.message.contains(MESSAGE)
}

fn name_of(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str();
    name.unwrap_or_default().to_owned()
}

fn host_of(object: &Value) -> String {
    let host = object["spec"]["rules"][0]["host"].as_str();
    host.unwrap_or_default().to_owned()
}

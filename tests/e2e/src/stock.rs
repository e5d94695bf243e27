//! Small objects of several types, each of which holds a number that only grows, and who knows when it
//! was which: the oracle of tests that ask for facts while all of them change.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{manifests, world::World};

/// A type whose objects are small, and may be made and changed freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stock {
    /// Empty for the core group.
    pub group: &'static str,
    /// The plural, as in paths.
    pub plural: &'static str,
    /// The kind, as in manifests.
    pub kind: &'static str,
}

const fn stock(group: &'static str, plural: &'static str, kind: &'static str) -> Stock {
    Stock {
        group,
        plural,
        kind,
    }
}

/// All of them; every one is served as `v1`.
pub const STOCK: [Stock; 7] = [
    stock("", "configmaps", "ConfigMap"),
    stock("", "limitranges", "LimitRange"),
    stock("", "serviceaccounts", "ServiceAccount"),
    stock("", "services", "Service"),
    stock("coordination.k8s.io", "leases", "Lease"),
    stock("networking.k8s.io", "networkpolicies", "NetworkPolicy"),
    stock("policy", "poddisruptionbudgets", "PodDisruptionBudget"),
];

/// The namespaces of the objects, in the order in which the API server lists them.
pub const NAMESPACES: [&str; 3] = ["days-a", "days-b", "days-c"];

/// The object of each type in each namespace that holds the number, as an annotation of that name.
pub const STATE: &str = "state";

/// The expression of all numbers of a collection, in the order of the namespaces, for the `items` of
/// a list; for a bare array it is asked without that.
pub const NUMBERS: &str =
    "items[?metadata.name=='state'].metadata.annotations.value | join('/', @)";

/// Objects of each type in each namespace that come and go.
const COMING_AND_GOING: usize = 6;

/// Between two changes of one who changes.
const PAUSE: Duration = Duration::from_millis(40);

impl Stock {
    /// Returns the resource, as in `leases.coordination.k8s.io`.
    pub fn resource(self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// The path of all of them, or of those in one namespace.
    pub fn path(self, namespace: Option<&str>) -> String {
        let root = match self.group {
            "" => "/api/v1".to_owned(),
            group => format!("/apis/{group}/v1"),
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    /// One of them, labelled `days: LABEL`.
    pub fn object(self, namespace: &str, name: &str, label: &str) -> Value {
        let api_version = match self.group {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        };
        let mut object = json!({
            "apiVersion": api_version, "kind": self.kind,
            "metadata": { "namespace": namespace, "name": name, "labels": { "days": label },
                "annotations": { "value": "0" } },
        });
        match self.kind {
            "LimitRange" => object["spec"] = json!({ "limits": [] }),
            "NetworkPolicy" => object["spec"] = json!({ "podSelector": {} }),
            "PodDisruptionBudget" => object["spec"] = json!({ "minAvailable": 1 }),
            "Service" => {
                object["spec"] = json!({ "clusterIP": "None", "ports": [{ "port": 80 }] });
            }
            _ => {}
        }
        object
    }
}

/// One number: when it began to be written, and when the API server had said that it is.
#[derive(Clone, Copy, Debug)]
struct WriteTimes {
    begun: Instant,
    acknowledged: Option<Instant>,
}

/// Knows when each number was which. The number is the position in its history.
#[derive(Debug, Default)]
pub struct Histories(Mutex<HashMap<(Stock, String), Vec<WriteTimes>>>);

impl Histories {
    /// Makes the namespaces, and the objects that hold the numbers, each of which is 0.
    pub async fn begin(world: &World, stock: &[Stock]) -> anyhow::Result<Arc<Self>> {
        let histories = Arc::new(Self::default());
        for namespace in NAMESPACES {
            manifests::apply_namespace(&world.client, namespace).await?;
            for &of in stock {
                let begun = Instant::now();
                world.create(&of.object(namespace, STATE, STATE)).await?;
                let written = WriteTimes {
                    begun,
                    acknowledged: Some(Instant::now()),
                };
                let key = (of, namespace.to_owned());
                histories.0.lock().insert(key, vec![written]);
            }
        }
        Ok(histories)
    }

    /// Judges whether the number could be read by a question that was asked and answered then. A number that
    /// was replaced longer than `late_max` before the question is wrong.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(
        &self,
        of: Stock,
        namespace: &str,
        value: &str,
        asked: Instant,
        answered: Instant,
        late_max: Duration,
    ) -> anyhow::Result<usize> {
        let all = self.0.lock();
        let key = (of, namespace.to_owned());
        let history = all.get(&key).context("nothing was ever written there")?;
        let number: usize = value
            .parse()
            .with_context(|| format!("`{value}` is no number"))?;
        let written = history.get(number).context("it was never written")?;
        ensure!(written.begun <= answered, "it was written later");
        let next = history.get(number + 1).and_then(|next| next.acknowledged);
        let late = next.map_or(Duration::ZERO, |next| asked.saturating_duration_since(next));
        ensure!(late <= late_max, "{number} was replaced {late:?} before");
        Ok(number)
    }

    fn next(&self, key: &(Stock, String)) -> usize {
        let mut all = self.0.lock();
        let history = all.entry(key.clone()).or_default();
        history.push(WriteTimes {
            begun: Instant::now(),
            acknowledged: None,
        });
        history.len() - 1
    }

    fn acknowledged(&self, key: &(Stock, String), number: usize) {
        let mut all = self.0.lock();
        if let Some(written) = all.get_mut(key).and_then(|of| of.get_mut(number)) {
            written.acknowledged = Some(Instant::now());
        }
    }

    /// Changes numbers, and makes and deletes other objects, at random, until it is told to stop. Of
    /// one number there must be one who changes it: `stock` is that one's own.
    pub async fn change(
        &self,
        world: &World,
        stock: &[Stock],
        seed: u64,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut there: HashMap<(Stock, &str, usize), bool> = HashMap::new();
        while !stop.is_cancelled() {
            let &of = stock.choose(&mut rng).context("no stock")?;
            let namespace = NAMESPACES.choose(&mut rng).context("no namespace")?;
            if rng.random_bool(0.6) {
                self.grow(world, of, namespace).await?;
            } else {
                let index = rng.random_range(0..COMING_AND_GOING);
                let other = of.object(namespace, &format!("other-{index}"), "other");
                let there = there.entry((of, namespace, index)).or_default();
                if *there {
                    world.delete(&other).await?;
                } else {
                    match world.create(&other).await {
                        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                        created => created?,
                    }
                }
                *there = !*there;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Writes the next number.
    pub async fn grow(&self, world: &World, of: Stock, namespace: &str) -> anyhow::Result<usize> {
        let key = (of, namespace.to_owned());
        let number = self.next(&key);
        let patch = json!({ "metadata": { "annotations": { "value": number.to_string() } } });
        let api = world.api(&of.object(namespace, STATE, STATE));
        api.patch(STATE, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("{of:?} in {namespace}"))?;
        self.acknowledged(&key, number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_number_is_right_from_its_write_until_the_next_is_known() {
        let histories = Histories::default();
        let key = (STOCK[0], "a".to_owned());
        for number in 0..2 {
            assert_eq!(histories.next(&key), number);
            histories.acknowledged(&key, number);
        }
        let now = Instant::now();
        let judge = |value, asked: Instant| {
            let late_max = Duration::from_secs(5);
            histories.judge(STOCK[0], "a", value, asked, asked, late_max)
        };
        let later = now + Duration::from_secs(9);
        assert_eq!(judge("0", now).unwrap(), 0);
        assert_eq!(judge("1", later).unwrap(), 1);
        for (value, asked, says) in [
            ("0", later, "replaced"),
            ("2", now, "never"),
            ("", now, "no number"),
            ("1", now - Duration::from_secs(9), "later"),
        ] {
            let error = judge(value, asked).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

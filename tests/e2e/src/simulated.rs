//! A watcher and replicas, each a process of its own, between the simulated API server and a real
//! nats-server: for scale, and for faults that a real API server has only now and then.

use std::{fs, time::Duration};

use anteroom_bus::{Address, nats::NatsBus};
use anteroom_load::{QueryResult, ask, ask_one};
use anteroom_model::{ObjectKey, Shape, ViewId};
use anteroom_simapi::{SimApi, SimConfig};
use anteroom_wire::query::{Query, Selection};
use anyhow::ensure;
use serde_json::{Value, json};

use crate::{
    folder::Folder,
    manifests,
    nats::{Nats, NatsPlan},
    services::{Recipe, Running},
    system::SystemPlan,
    turn::{self, Turn},
};

/// The longest that one answer may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Fields drop in order: services, NATS, the API server, files, turn.
pub struct Simulated {
    /// The watcher.
    pub watcher: Running,
    /// The replicas.
    pub replicas: Vec<Running>,
    /// The NATS server.
    pub nats: Nats,
    /// The API server.
    pub sim: SimApi,
    bus: NatsBus,
    _folder: Folder,
    _turn: Turn,
}

impl Simulated {
    /// Starts the watcher and the replicas of the plan; nothing is waited for. `fill` is done to the
    /// API server before.
    pub async fn start(
        plan: &SystemPlan,
        fill: impl FnOnce(&SimApi) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        anteroom_runtime::process::install_crypto_provider();
        let turn = turn::take().await?;
        let folder = Folder::new()?;
        let path = folder.path();
        let nats = Nats::start(NatsPlan::one(), path).await?;
        let sim = SimApi::start(SimConfig::default()).await?;
        let crds = manifests::read("chart/files/crds")?.into_iter();
        let crds = crds.filter(|manifest| manifest["kind"] == "CustomResourceDefinition");
        sim.put_all("customresourcedefinitions.apiextensions.k8s.io", crds)?;
        fill(&sim)?;
        let kubeconfig = path.join("simulated.kubeconfig");
        fs::write(&kubeconfig, sim.kubeconfig_yaml())?;
        let recipe = |name: &str, binary, user: &str| -> anyhow::Result<Recipe> {
            let recipe = Recipe::new(name, binary, path)?.envs(nats.logins().env(user));
            Ok(recipe.envs(plan.env.clone()))
        };
        let with = |recipe: Recipe, args: &[(&'static str, String)]| {
            let args = args.iter();
            args.fold(recipe, |recipe, (flag, value)| recipe.arg(flag, value))
        };
        let watcher = recipe("watcher", "watcher", "watcher")?
            .arg("--kubeconfig", kubeconfig.display())
            .arg("--holder", "watcher-0");
        let watcher = with(watcher, &plan.watcher_args).start()?;
        let replicas = (0..plan.replicas).map(|index| {
            let name = format!("replica-{index}");
            let recipe = recipe(&name, "replica", "replica")?;
            let recipe = recipe.arg("--replica-id", &name);
            with(recipe, &plan.replica_args).start()
        });
        let replicas = replicas.collect::<anyhow::Result<_>>()?;
        let bus = NatsBus::connect(nats.config_of_webhook()).await?;
        Ok(Self {
            watcher,
            replicas,
            nats,
            sim,
            bus,
            _folder: folder,
            _turn: turn,
        })
    }

    /// Waits until all of them are ready.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        self.watcher.ready().await?;
        for replica in &mut self.replicas {
            replica.ready().await?;
        }
        Ok(())
    }

    /// Creates an entry on a resource.
    pub fn entry(&self, name: &str, spec: &Value) -> anyhow::Result<()> {
        let entry = json!({ "metadata": { "name": name }, "spec": spec });
        self.sim.put("cachedcontextentries.kyverno.io", entry)?;
        Ok(())
    }

    /// Asks the replicas about a whole view, also one that they do not serve.
    ///
    /// # Errors
    /// No answer at all. An error that a replica tells is an answer.
    pub async fn ask(&self, view: &ViewId, expression: &str) -> anyhow::Result<QueryResult> {
        let query = query(expression, None);
        let to = Address::Fallback(view.clone());
        ask_one(&self.bus, &to, query, DEADLINE).await
    }

    /// Asks a replica that serves the view for the name in the metadata of each of these objects.
    ///
    /// # Errors
    /// No answer at all, or none for the view.
    pub async fn ask_objects(
        &self,
        view: &ViewId,
        objects: &[ObjectKey],
    ) -> anyhow::Result<Vec<QueryResult>> {
        let queries = objects.iter().map(|object| {
            let selection = Selection {
                shape: Shape::Object,
                object: Some(object.clone()),
                ..Selection::default()
            };
            query("metadata.name", Some(selection))
        });
        let to = Address::View(view.clone());
        let said = ask(&self.bus, &to, queries.collect(), DEADLINE).await?;
        let said = said.map_err(anyhow::Error::from)?;
        ensure!(said.len() == objects.len(), "{} answers", said.len());
        Ok(said)
    }
}

fn query(expression: &str, selection: Option<Selection>) -> Query {
    Query {
        expression: expression.into(),
        selection,
        ..Query::default()
    }
}

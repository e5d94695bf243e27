//! Another engine, measured in turns with ours: a webhook that speaks AdmissionReview v1. Whoever measures
//! has it running, over an API server of its own, and brings its policies. It is posted the same reviews,
//! its answers are held against the same oracle, and what it takes is counted by the ids of its processes.

use std::{fs, path::PathBuf, time::Duration};

use anteroom_e2e::manifests;
use anteroom_load::{Expected, Paced, PacedReport, Questions, Target};
use anyhow::{Context, ensure};
use kube::{Client, Config, config::Kubeconfig};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

use crate::{
    Settings,
    decisions::{self, Deciding, Row},
    fill,
    ground::{self, Layout},
    say, spent,
};

/// The longest that an API server waits for a webhook.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A second engine to be measured in comparison.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PeerArgs {
    /// Measures another webhook in turns with ours, by the same reviews: where it takes AdmissionReviews.
    #[arg(
        long = "peer",
        value_name = "URL",
        requires_all = ["peer_ca", "peer_kubeconfig", "peer_policies", "peer_process"]
    )]
    peer: Option<http::Uri>,

    /// Its name in the results.
    #[arg(long, value_name = "NAME", default_value = "peer", requires = "peer")]
    peer_name: String,

    /// The authority that signed its certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "peer")]
    peer_ca: Option<PathBuf>,

    /// The name in its certificate [default: the URL's host]
    #[arg(long, value_name = "NAME", requires = "peer")]
    peer_host: Option<String>,

    /// Its processes, as in webhook=4711, and its API server's: CPU time and memory of each are counted.
    #[arg(long, value_name = "NAME=PID", value_delimiter = ',', value_parser = process, requires = "peer")]
    peer_process: Vec<(String, u32)>,

    /// An administrator of the API server that it reads: the same objects are created there.
    #[arg(long, value_name = "FILE", requires = "peer")]
    peer_kubeconfig: Option<PathBuf>,

    /// A folder of its policies: SCENARIO.yaml is applied before a scenario, and deleted after it. A
    /// scenario without such a file is measured of ours alone.
    #[arg(long, value_name = "FOLDER", requires = "peer")]
    peer_policies: Option<PathBuf>,
}

fn process(text: &str) -> Result<(String, u32), String> {
    let (name, id) = text.split_once('=').ok_or("not of the form NAME=PID")?;
    let id = id.parse().map_err(|_| format!("{id} is no process id"))?;
    Ok((name.to_owned(), id))
}

/// Another engine.
#[derive(Debug)]
pub(crate) struct Peer {
    name: String,
    target: Target,
    processes: Vec<(String, u32)>,
    kubeconfig: PathBuf,
    policies: PathBuf,
    clients: OnceCell<Clients>,
    /// The objects with which the peer's cluster is filled.
    filled: Mutex<Filled>,
}

/// The number of objects of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Filled {
    services: usize,
    ingresses: usize,
    pods: usize,
}

impl Filled {
    fn with(layout: &Layout) -> Self {
        Self {
            services: layout.services,
            ingresses: layout.ingresses,
            pods: layout.pods,
        }
    }

    /// Returns true if that many can be made by adding.
    fn fits_in(self, layout: Self) -> bool {
        self.services <= layout.services
            && self.ingresses <= layout.ingresses
            && self.pods <= layout.pods
    }
}

/// An administrator's clients.
struct Clients(Vec<Client>);

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} clients", self.0.len())
    }
}

impl Peer {
    /// The one of these arguments; `None` where they name none.
    ///
    /// # Errors
    /// Its authority cannot be read, its host not be found, or one of its processes does not run.
    pub(crate) async fn of(args: &PeerArgs) -> anyhow::Result<Option<Self>> {
        let Some(url) = &args.peer else {
            return Ok(None);
        };
        let host = url.host().context("--peer has no host")?;
        let address = (host, url.port_u16().unwrap_or(443));
        let mut addresses = tokio::net::lookup_host(address).await?;
        let ca = args.peer_ca.as_deref().context("--peer-ca")?;
        let ca_pem = fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
        let peer = Self {
            name: args.peer_name.clone(),
            target: Target {
                address: addresses.next().context("--peer has no address")?,
                server_name: args.peer_host.clone().unwrap_or_else(|| host.to_owned()),
                ca_pem,
                path: url
                    .path_and_query()
                    .map_or("/", |path| path.as_str())
                    .to_owned(),
                timeout: TIMEOUT,
            },
            processes: args.peer_process.clone(),
            kubeconfig: args.peer_kubeconfig.clone().context("--peer-kubeconfig")?,
            policies: args.peer_policies.clone().context("--peer-policies")?,
            clients: OnceCell::new(),
            filled: Mutex::default(),
        };
        spent::cpu_of(peer.processes())?;
        Ok(Some(peer))
    }

    /// Returns the webhook that reviews are posted to.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    fn processes(&self) -> impl Iterator<Item = (&str, u32)> {
        self.processes.iter().map(|(name, id)| (&**name, *id))
    }

    /// Makes a run; returns its report, with each process's CPU time per decision.
    pub(crate) async fn counted(&self, paced: Paced) -> anyhow::Result<(PacedReport, Value)> {
        let processes: Vec<_> = self.processes().collect();
        decisions::counted_of_all(&processes, paced).await
    }

    fn memory(&self) -> anyhow::Result<Value> {
        let of = |(name, id): (&str, u32)| Ok((name.to_owned(), spent::memory_of_id(id)?));
        let memory = self.processes().map(of);
        Ok(Value::Object(memory.collect::<anyhow::Result<_>>()?))
    }

    /// Fills the peer's cluster like ours, before the scenario's policies, so that no policy is asked about the
    /// objects.
    async fn cluster(&self, layout: &Layout) -> anyhow::Result<&Client> {
        let clients = self.clients.get_or_try_init(|| self.connect()).await?;
        let wanted = Filled::with(layout);
        let mut filled = self.filled.lock().await;
        if *filled != wanted {
            ensure!(
                filled.fits_in(wanted),
                "{} holds more than a scenario has: {filled:?}, not {wanted:?}; measure each by itself",
                self.name
            );
            self.fill(&clients.0, wanted).await?;
            *filled = wanted;
        }
        clients.0.first().context("no client")
    }

    async fn connect(&self) -> anyhow::Result<Clients> {
        let mut clients = Vec::new();
        for _ in 0..fill::CLIENTS {
            let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
            clients.push(Client::try_from(config)?);
        }
        Ok(Clients(clients))
    }

    /// Fills the cluster, and leaves what is there already as it is.
    async fn fill(&self, clients: &[Client], wanted: Filled) -> anyhow::Result<()> {
        say(&format!("{}: filling its cluster", self.name));
        let source = ground::cluster();
        fill::namespaces(clients, source).await?;
        let services = source.services(wanted.services);
        fill::create(clients, "api/v1", "services", services).await?;
        let ingresses = source.ingresses(wanted.ingresses, 1);
        let group = "apis/networking.k8s.io/v1";
        fill::create(clients, group, "ingresses", ingresses).await?;
        let pods = source.pods(wanted.pods);
        fill::create(clients, "api/v1", "pods", pods).await
    }
}

/// Another engine's part in a scenario.
pub(crate) struct Turn<'a> {
    peer: &'a Peer,
    client: &'a Client,
    policies: Vec<Value>,
    rows: Vec<Value>,
}

impl<'a> Turn<'a> {
    /// Its policies for the scenario are applied, and in force; `None` where it has none.
    pub(crate) async fn begin(
        peer: &'a Peer,
        scenario: &str,
        layout: &Layout,
        questions: &Questions,
    ) -> anyhow::Result<Option<Self>> {
        let file = peer.policies.join(format!("{scenario}.yaml"));
        if !file.exists() {
            say(&format!("{}: no {}", peer.name, file.display()));
            return Ok(None);
        }
        let text = fs::read_to_string(&file)?;
        let policies = manifests::parse(&text).with_context(|| format!("in {}", file.display()))?;
        let client = peer.cluster(layout).await?;
        for manifest in &policies {
            manifests::apply(client, manifest).await?;
        }
        decisions::in_force(Deciding::Peer(peer), questions).await?;
        say(&format!("{}: in force", peer.name));
        Ok(Some(Self {
            peer,
            client,
            policies,
            rows: Vec::new(),
        }))
    }

    /// One row, as ours is measured.
    pub(crate) async fn measure(
        &mut self,
        row: Row,
        questions: &Questions,
        settings: &Settings,
    ) -> anyhow::Result<()> {
        say(&self.peer.name);
        let of = Deciding::Peer(self.peer);
        let measured = decisions::measure(of, row, None, questions, settings).await?;
        self.rows.push(measured);
        Ok(())
    }

    /// Ends a scenario and returns its results. Its policies are deleted, and everything is admitted after that: nothing of them
    /// is left for the next scenario.
    pub(crate) async fn end(self, questions: &Questions) -> anyhow::Result<Value> {
        let memory = self.peer.memory()?;
        for manifest in self.policies.iter().rev() {
            manifests::delete(self.client, manifest).await?;
        }
        let mut admitted = questions.clone();
        for case in &mut admitted.cases {
            case.expected = Expected::Allowed;
        }
        decisions::in_force(Deciding::Peer(self.peer), &admitted).await?;
        Ok(json!({ "name": self.peer.name, "rows": self.rows, "memory": memory }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        peer: PeerArgs,
    }

    #[test]
    fn a_cluster_is_filled_by_adding() {
        let of = |services, ingresses, pods| Filled {
            services,
            ingresses,
            pods,
        };
        let has = of(2, 3, 0);
        for (wanted, fits) in [
            (of(2, 3, 0), true),
            (of(2, 3, 1), true),
            (of(1, 3, 1), false),
            (of(2, 2, 1), false),
        ] {
            assert_eq!(has.fits_in(wanted), fits, "{wanted:?}");
        }
        assert!(!of(0, 0, 1).fits_in(has));
    }

    #[test]
    fn options_of_a_peer_are_given_all_together_or_not_at_all() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["bench"], args].concat());
        assert!(parse(&[]).is_ok_and(|cli| cli.peer.peer.is_none()));
        assert!(parse(&["--peer", "https://127.0.0.1:1/validate"]).is_err());
        assert!(parse(&["--peer-ca", "ca.pem"]).is_err());
        let whole = [
            "--peer=https://127.0.0.1:1/validate",
            "--peer-ca=ca.pem",
            "--peer-kubeconfig=admin",
            "--peer-policies=policies",
            "--peer-process=webhook=17,api=18",
        ];
        let Ok(cli) = parse(&whole) else {
            panic!("{:?}", parse(&whole).err());
        };
        let processes = [("webhook".to_owned(), 17), ("api".to_owned(), 18)];
        assert_eq!(cli.peer.peer_process, processes);
        let wrong = whole.map(|arg| arg.replace("=17", "=x"));
        assert!(parse(&wrong.each_ref().map(|arg| &**arg)).is_err());
    }
}

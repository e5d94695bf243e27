//! The floor, measured in turns with ours: a minimal webhook over NATS. Its two processes run beside our own services and
//! reach the same nats-server. The nats-server carries the questions of one side at a time.

mod ratios;

use std::{path::PathBuf, process::Command, time::Duration};

use anteroom_e2e::{
    process::{Process, free_address},
    wait,
};
use anteroom_load::{Paced, PacedReport, Questions, Target};
use anteroom_runtime::{certs::issue::Authority, wall_clock};
use anyhow::Context;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::{
    Settings,
    ask::LookUp,
    decisions::{self, Deciding, Row},
    ground::Ground,
    say, spent,
};

/// The program's file, in the folder of the benchmark's own, so that `--bins` does not change the floor.
const PROGRAM: &str = "floor";

/// The name in its certificate.
const HOST: &str = "localhost";

/// The path that its reviews are posted to.
const PATH: &str = "/validate?timeout=10s";

/// The longest wait for an answer, as of our own webhook.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The number of turns of each side in a row. An odd number: the median is a turn.
const ROUNDS: usize = 3;
const ROUNDS_QUICK: usize = 1;

/// The floor's processes. Both end with their handles, before their files go.
#[derive(Debug)]
pub(crate) struct Floor {
    webhook: Process,
    holder: Process,
    /// The ids of the nats-servers, which our own services use too.
    nats: Vec<u32>,
    target: Target,
    _folder: tempfile::TempDir,
}

impl Floor {
    /// Starts both processes, and waits until the webhook takes connections.
    pub(crate) async fn start(
        ground: &Ground,
        look_up: &LookUp,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let logs = settings.logs.as_deref().unwrap_or(folder.path());
        let now = wall_clock::now();
        let authority = Authority::new("floor", now)?;
        let pair = authority.issue(&[HOST.to_owned()], now)?;
        let mut holder = command(ground, "replica", "holder")?;
        let taken = look_up.taken.join("\n");
        holder.arg("--taken").arg(write(&folder, "taken", &taken)?);
        let mut holder = Process::start("floor-holder", &mut holder, logs)?;
        let address = free_address()?;
        let mut webhook = command(ground, "webhook", "webhook")?;
        webhook
            .arg("--listen-address")
            .arg(address.to_string())
            .args(["--look-up", look_up.by])
            .arg("--certificate-file")
            .arg(write(&folder, "chain.pem", &pair.chain)?)
            .arg("--key-file")
            .arg(write(&folder, "key.pem", &pair.key)?);
        let mut webhook = Process::start("floor-webhook", &mut webhook, logs)?;
        wait::until("the floor to take connections", async || {
            holder.check()?;
            webhook.check()?;
            anyhow::Ok(TcpStream::connect(address).await?)
        })
        .await?;
        Ok(Self {
            webhook,
            holder,
            nats: ground.nats.processes().map(Process::id).collect(),
            target: Target {
                address,
                server_name: HOST.to_owned(),
                ca_pem: authority.certificate_pem.into_bytes(),
                path: PATH.to_owned(),
                timeout: TIMEOUT,
            },
            _folder: folder,
        })
    }

    /// Returns the webhook that reviews are posted to.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Makes a run; returns its report, with each process's CPU time per decision.
    pub(crate) async fn counted(&self, paced: Paced) -> anyhow::Result<(PacedReport, Value)> {
        let own = [("webhook", self.webhook.id()), ("holder", self.holder.id())];
        let nats = self.nats.iter().map(|id| ("nats", *id));
        let processes: Vec<_> = own.into_iter().chain(nats).collect();
        decisions::counted_of_all(&processes, paced).await
    }

    /// Measures a row of ours and of the floor in turns. In the open loop the floor gets reviews at the rate that ours
    /// gets, so that the latencies of both are comparable.
    pub(crate) async fn beside(
        &self,
        ours: Deciding<'_>,
        row: Row,
        questions: &Questions,
        settings: &Settings,
    ) -> anyhow::Result<Value> {
        let rounds = match settings.quick {
            true => ROUNDS_QUICK,
            false => ROUNDS,
        };
        let mut turns = Vec::new();
        for _ in 0..rounds {
            let own = decisions::measure(ours, row, None, questions, settings).await?;
            let rate = own["open"]["per_second"].as_f64();
            say("the floor");
            let floor = Deciding::Floor(self);
            let floor = decisions::measure(floor, row, rate, questions, settings).await?;
            turns.push([own, floor]);
        }
        Ok(ratios::row(&turns))
    }

    /// Returns the memory of both processes.
    pub(crate) fn memory(&self) -> anyhow::Result<Value> {
        spent::memory_of_all(vec![("webhook", &self.webhook), ("holder", &self.holder)])
    }
}

/// Returns the command of a role, with the login to NATS of this user.
fn command(ground: &Ground, user: &str, role: &str) -> anyhow::Result<Command> {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    let mut command = Command::new(program);
    command.envs(ground.nats.logins().env(user)).arg(role);
    Ok(command)
}

fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let file = folder.path().join(name);
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

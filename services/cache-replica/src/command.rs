//! The command of the replica's process: its options, and its start.

use std::{process::ExitCode, sync::Arc};

use anteroom_bus::{
    Bus,
    nats::{NatsArgs, NatsBus},
};
use anteroom_runtime::{
    Service,
    process::{self, ProcessArgs},
};
use anteroom_seal::{AskerArgs, SealArgs};

use crate::Args;

/// The options of `anteroom replica`.
#[derive(clap::Args, Debug)]
pub struct Command {
    #[command(flatten)]
    replica: Args,
    #[command(flatten)]
    seal: SealArgs,
    #[command(flatten)]
    asker: AskerArgs,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    process: ProcessArgs,
}

impl Command {
    /// Runs until it is asked to stop, and returns the exit code of its process.
    pub fn run(self) -> ExitCode {
        let process = self.process.clone();
        process::run("cache-replica", &process, |service| self.serve(service))
    }

    async fn serve(self, service: Service) -> anyhow::Result<()> {
        let Self {
            mut replica,
            seal,
            asker,
            nats,
            process: _,
        } = self;
        replica.keys = seal.keys().await?;
        replica.asker_keys = asker.keys().await?;
        let (keys, asker_keys) = (replica.keys.clone(), replica.asker_keys.clone());
        let bus = Arc::new(NatsBus::connect(nats.config("cache-replica")).await?);
        let run = crate::run(replica, Arc::clone(&bus) as Arc<dyn Bus>, service);
        let served = seal.following(keys, asker.following(asker_keys, run)).await;
        bus.close().await;
        served
    }
}

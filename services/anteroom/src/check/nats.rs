//! Listening to NATS, by the operator's login.

use std::time::{Duration, Instant};

use anteroom_bus::nats::NatsArgs;
use anteroom_wire::{
    status::StatusReply,
    tap::{DecisionRecord, RECORDS_PER_SECOND_MAX, Tap, TapFilter},
};
use serde_json::{Value, json};

use crate::operator::{
    connection::{self, Beats, Tapping},
    system::System,
    window::{By, Decisions, Window},
};

/// The time that is listened for: every part beats three times at least.
const LISTEN: Duration = Duration::from_secs(3);

/// The messages that were heard.
#[derive(Debug)]
pub(crate) struct NatsMessages {
    pub(crate) system: System,
    /// When it was listened last.
    pub(crate) at: Instant,
    pub(crate) statuses: Result<StatusReply, String>,
    /// The decisions that were made meanwhile.
    pub(crate) decisions: Decisions,
    /// Denials and errors, also of the past.
    pub(crate) records: Vec<DecisionRecord>,
}

impl NatsMessages {
    /// Returns the parts, the views, and counts of decisions. Decisions one by one are left out: they name users.
    pub(super) fn json(&self) -> Value {
        json!({
            "groups": self.system.groups(),
            "views": self.system.views(self.at),
            "replicas": self.system.replicas(),
            "webhooks": self.system.webhooks(),
            "decisions": self.decisions,
        })
    }
}

/// Returns true if somebody said where NATS is, or with what login.
pub(super) fn is_named(args: &NatsArgs) -> bool {
    let login = [&args.nats_nkey_file, &args.nats_creds_file];
    let is_local = args.nats_urls == ["nats://127.0.0.1:4222"];
    !is_local || args.nats_user.is_some() || login.iter().any(|file| file.is_some())
}

/// Listens for a while.
///
/// # Errors
/// NATS cannot be reached, or does not know the login.
pub(super) async fn ask(args: &NatsArgs) -> anyhow::Result<NatsMessages> {
    let bus = connection::connect(args).await?;
    let tap = Tap {
        filter: TapFilter {
            denied: true,
            ..TapFilter::default()
        },
        records_per_second: RECORDS_PER_SECOND_MAX,
        past: true,
        ..Tap::default()
    };
    let mut bad = Tapping::begin(&bus, tap).await?;
    let mut all = Tapping::begin(&bus, Tap::default()).await?;
    let mut beats = Beats::listen(&*bus).await?;
    let mut system = System::default();
    let mut window = Window::new(LISTEN);
    let mut records = Vec::new();
    let listen = async {
        loop {
            tokio::select! {
                beat = beats.next() => system.take_beat(beat?, Instant::now()),
                told = bad.next() => records.extend(told?.records),
                told = all.next() => window.add(&told?, Instant::now()),
            }
        }
        #[expect(unreachable_code, reason = "it names the type of the error")]
        anyhow::Ok(())
    };
    let listened = tokio::time::timeout(LISTEN, listen).await;
    let statuses = connection::statuses(&*bus).await;
    bad.end().await;
    all.end().await;
    bus.close().await;
    if let Ok(Err(error)) = listened {
        return Err(error);
    }
    let at = Instant::now();
    system.forget_silent(at);
    Ok(NatsMessages {
        system,
        at,
        statuses: statuses.map_err(|error| format!("{error:#}")),
        decisions: window.decisions(By::default(), at),
        records,
    })
}

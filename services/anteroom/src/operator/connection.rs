//! An operator's connection: heartbeats, taps and statuses.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anteroom_bus::{
    Address, Bus, BusExt as _, Call, Connection, RequestError, Signals,
    nats::{NatsArgs, NatsBus},
};
use anteroom_model::ErrorCode;
use anteroom_wire::{
    beat::Beat,
    replica_beat::ReplicaBeat,
    status::{StatusReply, StatusRequest, decode_reply, encode_request},
    tap::{DURATION_MS_MAX, Tap, Tapped},
    webhook_beat::WebhookBeat,
};
use anyhow::{Context as _, bail};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use super::system::AnyBeat;
use crate::output::no_connection;

/// The longest wait for the first connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The longest wait for the coordinator's answer.
const STATUS_MAX: Duration = Duration::from_secs(2);

/// The interval at which a tap is renewed: webhooks that start in between take part from then on.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);

/// The error where no service was heard.
pub(super) const NOTHING_HEARD: &str =
    "nothing was heard: do the services run, with this NATS and this cluster name (--cluster)?";

/// Connects as an operator.
///
/// # Errors
/// NATS cannot be reached within [`CONNECT_MAX`], or does not know the login.
pub(crate) async fn connect(args: &NatsArgs) -> anyhow::Result<Arc<dyn Bus>> {
    let bus = NatsBus::connect(args.config("operator")).await?;
    let mut connection = bus.connection();
    let up = connection.wait_for(|connection| *connection == Connection::Up);
    if timeout(CONNECT_MAX, up).await.is_err() {
        bail!(
            "{}: {}",
            ErrorCode::BUS_UNAVAILABLE,
            no_connection(&args.nats_urls, "the operator", CONNECT_MAX)
        );
    }
    Ok(Arc::new(bus))
}

/// Asks the coordinator how policies and entries are.
///
/// # Errors
/// There is no coordinator, or it did not answer in time.
pub(crate) async fn statuses(bus: &dyn Bus) -> anyhow::Result<StatusReply> {
    let call = Call {
        body: encode_request(&StatusRequest {})?,
        deadline: STATUS_MAX,
        trace: None,
    };
    let reply = match bus.request(&Address::Status, call, STATUS_MAX).await {
        Ok(reply) => reply,
        Err(RequestError::NoResponders) => {
            bail!("there is no coordinator: no watcher leads group 0")
        }
        Err(error) => return Err(error).context("the coordinator did not answer"),
    };
    decode_reply(&reply).context("the coordinator's answer cannot be read")
}

/// A tap that is renewed while it is listened to.
pub(crate) struct Tapping {
    bus: Arc<dyn Bus>,
    tap: Tap,
    told: Signals<Tapped>,
    renew: Interval,
    is_due: bool,
    /// The number of the next message of each webhook.
    sequences: HashMap<String, u64>,
    /// Messages that were lost on the way.
    pub(crate) lost: u64,
}

impl Tapping {
    /// Begins to look at decisions. `tap` needs no id and no duration.
    ///
    /// # Errors
    /// NATS is out of reach.
    pub(crate) async fn begin(bus: &Arc<dyn Bus>, tap: Tap) -> anyhow::Result<Self> {
        let told = bus.signals::<Tapped>().await?;
        let mut renew = interval_at(Instant::now() + RENEW_INTERVAL, RENEW_INTERVAL);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tapping = Self {
            bus: Arc::clone(bus),
            tap: Tap {
                id: format!("{:016x}", rand::random::<u64>()),
                duration_ms: DURATION_MS_MAX,
                ..tap
            },
            told,
            renew,
            is_due: true,
            sequences: HashMap::new(),
            lost: 0,
        };
        tapping.renew().await;
        Ok(tapping)
    }

    /// Tells webhooks of the tap, if that is due.
    async fn renew(&mut self) {
        if self.is_due {
            // While NATS is away, the next one does.
            let _ = self.bus.send(&self.tap).await;
            self.is_due = false;
        }
    }

    /// The next message of a webhook. Nothing is lost where the future is dropped.
    ///
    /// # Errors
    /// The connection was closed.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Tapped> {
        loop {
            // Where the future is dropped meanwhile, it stays due.
            self.renew().await;
            tokio::select! {
                _ = self.renew.tick() => self.is_due = true,
                told = self.told.next() => {
                    let told = told.context("the connection to NATS was closed")?;
                    if told.id == self.tap.id {
                        self.count(&told);
                        return Ok(told);
                    }
                }
            }
        }
    }

    fn count(&mut self, told: &Tapped) {
        if told.refused.is_some() {
            return;
        }
        let next = self
            .sequences
            .insert(told.webhook.clone(), told.sequence.saturating_add(1));
        // A webhook that starts again begins at 0.
        let expected = next.filter(|expected| *expected <= told.sequence);
        let lost = expected.map_or(0, |expected| told.sequence - expected);
        self.lost = self.lost.saturating_add(lost);
    }

    /// Ends the tap at once.
    pub(crate) async fn end(self) {
        let last = Tap {
            duration_ms: 0,
            ..self.tap
        };
        // If this message is lost, the tap ends by itself.
        let _ = timeout(STATUS_MAX, self.bus.send(&last)).await;
    }
}

/// Everything that beats.
pub(crate) struct Beats {
    writers: Signals<Beat>,
    replicas: Signals<ReplicaBeat>,
    webhooks: Signals<WebhookBeat>,
}

impl Beats {
    /// Listens to the heartbeats of all parts.
    ///
    /// # Errors
    /// NATS is out of reach.
    pub(crate) async fn listen(bus: &dyn Bus) -> anyhow::Result<Self> {
        Ok(Self {
            writers: bus.signals().await?,
            replicas: bus.signals().await?,
            webhooks: bus.signals().await?,
        })
    }

    /// The next heartbeat. Nothing is lost where the future is dropped.
    ///
    /// # Errors
    /// The connection was closed.
    pub(crate) async fn next(&mut self) -> anyhow::Result<AnyBeat> {
        let beat = tokio::select! {
            beat = self.writers.next() => beat.map(AnyBeat::Writer),
            beat = self.replicas.next() => beat.map(AnyBeat::Replica),
            beat = self.webhooks.next() => beat.map(AnyBeat::Webhook),
        };
        beat.context("the connection to NATS was closed")
    }
}

#[cfg(test)]
mod tests {
    use anteroom_bus::local::LocalBus;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tap_is_renewed_ended_and_counts_what_was_lost() {
        let webhook = LocalBus::new();
        let mut asked = webhook.signals::<Tap>().await.unwrap();
        let operator: Arc<dyn Bus> = Arc::new(webhook.join());
        let mut tapping = Tapping::begin(&operator, Tap::default()).await.unwrap();
        let tell = async |id: &str, sequence| {
            let told = Tapped {
                id: id.to_owned(),
                webhook: "w".into(),
                sequence,
                ..Tapped::default()
            };
            webhook.send(&told).await.unwrap();
        };
        // Webhooks hear of it before anybody waits for what they tell.
        assert_eq!(asked.next().await.unwrap(), tapping.tap);
        let id = tapping.tap.id.clone();
        for (sequence, lost) in [(0, 0), (1, 0), (4, 2), (0, 2), (1, 2)] {
            tell("another's", 99).await;
            tell(&id, sequence).await;
            let told = tapping.next().await.unwrap();
            assert_eq!((told.sequence, tapping.lost), (sequence, lost));
        }
        let silence = timeout(RENEW_INTERVAL * 2, tapping.next()).await;
        assert!(silence.is_err());
        for _ in 0..2 {
            let tap = asked.next().await.unwrap();
            assert_eq!((tap.duration_ms, tap.id == id), (DURATION_MS_MAX, true));
        }
        tapping.end().await;
        let mut last = asked.next().await.unwrap();
        while last.duration_ms > 0 {
            last = asked.next().await.unwrap();
        }
    }
}

//! Hears how far replicas and webhooks have read the log, and where it contradicts its writers. See [`HighestPosition`] and
//! [`Contradictions`].

use std::time::Duration;

use anteroom_bus::{Bus, BusExt as _, Signal};
use anteroom_wire::{replica_beat::ReplicaBeat, webhook_beat::WebhookBeat};

use super::{contradictions::Contradictions, highest::HighestPosition};

/// The wait before heartbeats are subscribed to again, where the bus refused.
const BEATS_RETRY: Duration = Duration::from_millis(500);

/// Notes what the heartbeats of readers say of the log, for ever.
pub(super) async fn listen(
    bus: &dyn Bus,
    highest: &HighestPosition,
    contradictions: &Contradictions,
) {
    let of_replicas = each(bus, |beat: &ReplicaBeat| {
        if let Some((log, read)) = &beat.furthest {
            highest.raise_by_reader(log, *read);
        }
        contradictions.take_beat(&beat.contradicted);
    });
    let of_webhooks = each(bus, |beat: &WebhookBeat| {
        highest.raise_by_reader(&beat.incarnation, beat.furthest);
        contradictions.take_beat(&beat.contradicted);
    });
    tokio::join!(of_replicas, of_webhooks);
}

async fn each<S: Signal>(bus: &dyn Bus, take: impl Fn(&S)) {
    loop {
        match bus.signals::<S>().await {
            Ok(mut beats) => {
                while let Some(beat) = beats.next().await {
                    take(&beat);
                }
            }
            Err(error) => tracing::debug!(
                %error,
                "heartbeats of readers not subscribed yet: tried again"
            ),
        }
        tokio::time::sleep(BEATS_RETRY).await;
    }
}

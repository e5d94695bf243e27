//! Receives the violations that webhooks find at admission, and has their Events written. Lost violations are
//! counted, and the log warns of them.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Bus, BusExt as _, ViolationEvent, Violations};
use anteroom_runtime::wall_clock;

use crate::{events::Events, shared::SharedFindings};

/// The wait before webhooks are listened to again after an interruption.
const HEAR_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Receives violations of webhooks for ever, and has their Events written. Without Events, waits
/// for ever.
pub(crate) async fn listen(bus: Arc<dyn Bus>, events: Option<Events>, shared: SharedFindings) {
    let Some(events) = events else {
        return std::future::pending().await;
    };
    let mut listener = Listener {
        events,
        shared,
        is_interrupted: false,
        has_warned: false,
    };
    loop {
        match bus.violations().await {
            Ok(violations) => {
                listener.listen(violations).await;
                listener.interrupted("the bus was closed");
            }
            Err(error) => listener.interrupted(&error.to_string()),
        }
        tokio::time::sleep(HEAR_AGAIN_AFTER).await;
    }
}

struct Listener {
    events: Events,
    shared: SharedFindings,
    /// The listener was interrupted after it last heard a violation.
    is_interrupted: bool,
    /// A warning was logged for the current series of losses.
    has_warned: bool,
}

impl Listener {
    async fn listen(&mut self, mut violations: Violations) {
        self.is_interrupted = false;
        while let Some(heard) = violations.next().await {
            match heard {
                ViolationEvent::Violation(found) => {
                    self.note_received();
                    let now_s = wall_clock::now().as_second();
                    self.events.tell_admission(&found, &self.shared, now_s);
                }
                ViolationEvent::Missed(count) => {
                    self.events.metrics.events("missed", count);
                    self.warn("they came faster than they were read, or could not be read");
                }
                ViolationEvent::Interrupted => {
                    self.is_interrupted = false; // The subscription went on meanwhile: this is a new interruption.
                    self.interrupted("the bus was out of reach");
                }
            }
        }
    }

    /// Counts an interruption, once until messages arrive again.
    fn interrupted(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_interrupted, true) {
            self.events.metrics.hearing_interrupted();
        }
        self.warn(why);
    }

    fn warn(&mut self, why: &str) {
        match std::mem::replace(&mut self.has_warned, true) {
            false => tracing::warn!(
                why,
                "violations of webhooks missed: they get no Events; check NATS if this lasts"
            ),
            true => tracing::debug!(why, "violations of webhooks missed again"),
        }
    }

    fn note_received(&mut self) {
        self.is_interrupted = false;
        if std::mem::take(&mut self.has_warned) {
            tracing::info!("violations of webhooks received again");
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_bus::local::{LocalBus, LocalOptions};
    use anteroom_runtime::{Metrics, Service};
    use anteroom_wire::violation::{ViolatedRule, Violation};
    use tokio::sync::mpsc::Receiver;

    use super::*;
    use crate::{events::WaitingEvent, metrics::ReporterMetrics};

    struct World {
        webhook: LocalBus,
        reporter: Arc<LocalBus>,
        metrics: Metrics,
        told: Receiver<WaitingEvent>,
        sent: u64,
    }

    impl World {
        /// Starts a listening reporter with room for `waiting_max` violations.
        async fn new(waiting_max: usize) -> Self {
            let webhook = LocalBus::with_options(LocalOptions {
                signals_max: waiting_max,
                ..LocalOptions::default()
            });
            let reporter = Arc::new(webhook.join());
            let metrics = Service::new("reporter").metrics;
            let (events, told) = Events::queue(ReporterMetrics::register(&metrics));
            let bus = Arc::clone(&reporter);
            tokio::spawn(listen(bus, Some(events), SharedFindings::new()));
            tokio::task::yield_now().await; // It listens.
            Self {
                webhook,
                reporter,
                metrics,
                told,
                sent: 0,
            }
        }

        /// Sends one of another object each time.
        async fn send(&mut self) {
            let rules = [ViolatedRule {
                policy: "p".to_owned(),
                ..ViolatedRule::default()
            }];
            let violation = Violation {
                blocked: true,
                name: self.sent.to_string(),
                ..Violation::default()
            };
            self.sent += 1;
            let violation = violation.with_rules(rules);
            self.webhook.send(&violation).await.unwrap();
        }

        /// The object of the next Event.
        async fn told(&mut self) -> String {
            let related = self.told.recv().await.unwrap().event.related;
            related.unwrap().name.unwrap()
        }

        fn counts(&self, line: &str) {
            let text = self.metrics.encode();
            assert!(text.contains(&format!("{line}\n")), "{text}");
        }
    }

    #[tokio::test]
    async fn violations_that_come_too_fast_are_counted_as_missed() {
        let mut world = World::new(4).await;
        for _ in 0..7 {
            world.send().await; // Nobody reads meanwhile.
        }
        assert_eq!(world.told().await, "3");
        world.counts("anteroom_reporter_events_total{outcome=\"missed\"} 3");
        world.counts("anteroom_reporter_hearing_interrupted_total 0");
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_subscription_is_counted_once() {
        let mut world = World::new(4).await;
        world.send().await;
        assert_eq!(world.told().await, "0");
        let way = world.reporter.faults();
        way.cut();
        world.send().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.counts("anteroom_reporter_hearing_interrupted_total 1");
        way.mend();
        tokio::time::sleep(HEAR_AGAIN_AFTER).await;
        world.send().await;
        assert_eq!(world.told().await, "2", "what was sent meanwhile is lost");
        world.reporter.close().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.counts("anteroom_reporter_hearing_interrupted_total 2");
    }
}

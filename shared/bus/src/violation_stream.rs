//! A listener's subscription to violations. It reports losses as well.

use anteroom_wire::violation::{self, Violation};
use bytes::Bytes;
use tokio::sync::{
    broadcast::{Receiver, error::RecvError},
    watch,
};

use crate::Connection;

/// An event of a subscription to violations.
#[derive(Clone, Debug, PartialEq)]
pub enum ViolationEvent {
    /// A violation that a webhook found.
    Violation(Box<Violation>),
    /// The number of violations that were dropped: they came faster than they were read, or could not be read.
    Missed(u64),
    /// The bus was out of reach: an unknown number of violations was lost.
    Interrupted,
}

/// A subscription to the violations that webhooks find at admission.
#[derive(Debug)]
pub struct Violations {
    found: Receiver<Bytes>,
    connection: watch::Receiver<Connection>,
    was_up: bool,
}

impl Violations {
    pub(crate) fn new(found: Receiver<Bytes>, mut connection: watch::Receiver<Connection>) -> Self {
        let was_up = *connection.borrow_and_update() == Connection::Up;
        Self {
            found,
            connection,
            was_up,
        }
    }

    /// The next; `None` when the bus was closed. Nothing is lost where the future is dropped.
    pub async fn next(&mut self) -> Option<ViolationEvent> {
        loop {
            tokio::select! {
                biased; // The connection comes first: no change of its state is missed.
                Ok(()) = self.connection.changed() => {
                    let is_up = *self.connection.borrow_and_update() == Connection::Up;
                    // It may have gone and come again since it was looked at.
                    if std::mem::replace(&mut self.was_up, is_up) {
                        return Some(ViolationEvent::Interrupted);
                    }
                }
                found = self.found.recv() => return match found {
                    Ok(message) => Some(decode_event(&message)),
                    Err(RecvError::Lagged(missed)) => Some(ViolationEvent::Missed(missed)),
                    Err(RecvError::Closed) => None,
                },
            }
        }
    }
}

/// Decodes a violation; a message that cannot be decoded counts as missed.
fn decode_event(message: &[u8]) -> ViolationEvent {
    match violation::decode(message) {
        Ok(violation) => ViolationEvent::Violation(Box::new(violation)),
        Err(error) => {
            tracing::warn!(
                %error,
                "violation of a webhook not decoded: it counts as missed; check that all services have the same \
                 version"
            );
            ViolationEvent::Missed(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Bus as _, BusExt as _,
        local::{LocalBus, LocalOptions},
    };

    fn named(name: String) -> Violation {
        Violation {
            name,
            ..Violation::default()
        }
    }

    #[tokio::test]
    async fn a_slow_listener_learns_how_many_violations_it_missed() {
        const WAITING: u64 = 8; // A power of two, as the queue has it.
        let webhook = LocalBus::with_options(LocalOptions {
            signals_max: WAITING as usize,
            ..LocalOptions::default()
        });
        let reporter = webhook.join();
        let mut violations = reporter.violations().await.unwrap();
        for number in 0..WAITING + 3 {
            webhook.send(&named(number.to_string())).await.unwrap();
        }
        assert_eq!(violations.next().await, Some(ViolationEvent::Missed(3)));
        for number in 3..WAITING + 3 {
            let next = ViolationEvent::Violation(Box::new(named(number.to_string())));
            assert_eq!(violations.next().await, Some(next));
        }
    }

    #[tokio::test]
    async fn a_listener_cut_off_learns_it_once_and_then_hears_new_violations() {
        let webhook = LocalBus::new();
        let reporter = webhook.join();
        let mut violations = reporter.violations().await.unwrap();
        let way = reporter.faults();
        way.cut();
        assert_eq!(violations.next().await, Some(ViolationEvent::Interrupted));
        webhook.send(&named("lost".to_owned())).await.unwrap();
        way.mend();
        webhook.send(&named("b".to_owned())).await.unwrap();
        let next = ViolationEvent::Violation(Box::new(named("b".to_owned())));
        assert_eq!(violations.next().await, Some(next));
        // Gone and come again between two looks.
        way.cut();
        way.mend();
        assert_eq!(violations.next().await, Some(ViolationEvent::Interrupted));
        reporter.close().await;
        while let Some(heard) = violations.next().await {
            assert_eq!(heard, ViolationEvent::Interrupted);
        }
    }
}

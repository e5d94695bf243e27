//! Signals: messages to all who listen now, never stored. Heartbeats are signals, and so is what webhooks find.

use std::marker::PhantomData;

use anteroom_wire::{
    WireError,
    beat::{self, Beat},
    replica_beat::{self, ReplicaBeat},
    subject::Subjects,
    tap::{self, Tap, Tapped},
    violation::{self, Violation},
    webhook_beat::{self, WebhookBeat},
};
use bytes::Bytes;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::{Bus, BusError, Violations};

/// A subject of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The writers' heartbeats.
    Writers,
    /// The replicas' heartbeats.
    Replicas,
    /// The webhooks' heartbeats.
    Webhooks,
    /// The webhooks' findings at admission.
    Violations,
    /// Operators' taps of decisions.
    Taps,
    /// The webhooks' answers to taps.
    Tapped,
}

impl Channel {
    /// Returns its subject.
    pub fn subject(self, subjects: &Subjects) -> String {
        match self {
            Self::Writers => subjects.beat(),
            Self::Replicas => subjects.replica_beat(),
            Self::Webhooks => subjects.webhook_beat(),
            Self::Violations => subjects.violation(),
            Self::Taps => subjects.tap(),
            Self::Tapped => subjects.tapped(),
        }
    }

    /// Returns how many signals wait for a listener at most. One more replaces the oldest.
    pub fn waiting_max(self) -> usize {
        match self {
            Self::Replicas => 1_024,
            Self::Taps => 16,
            _ => 256,
        }
    }
}

/// A message of a [`Channel`].
pub trait Signal: Send + Sync + Sized + 'static {
    /// The channel that it is sent on.
    const CHANNEL: Channel;

    /// The signal as a message.
    ///
    /// # Errors
    /// [`WireError::Limit`] if it is larger than a message.
    fn encode(&self) -> Result<Bytes, WireError>;

    /// A message as the signal.
    ///
    /// # Errors
    /// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
    fn decode(message: &[u8]) -> Result<Self, WireError>;
}

macro_rules! signal {
    ($type:ty, $channel:ident, $encode:path, $decode:path) => {
        impl Signal for $type {
            const CHANNEL: Channel = Channel::$channel;

            fn encode(&self) -> Result<Bytes, WireError> {
                $encode(self)
            }

            fn decode(message: &[u8]) -> Result<Self, WireError> {
                $decode(message)
            }
        }
    };
}

signal!(Beat, Writers, beat::encode, beat::decode);
signal!(
    ReplicaBeat,
    Replicas,
    replica_beat::encode,
    replica_beat::decode
);
signal!(
    WebhookBeat,
    Webhooks,
    webhook_beat::encode,
    webhook_beat::decode
);
signal!(Violation, Violations, violation::encode, violation::decode);
signal!(Tap, Taps, tap::encode, tap::decode);
signal!(Tapped, Tapped, tap::encode_tapped, tap::decode_tapped);

/// A subscription to signals.
#[derive(Debug)]
pub struct Signals<S> {
    messages: Receiver<Bytes>,
    of: PhantomData<fn() -> S>,
}

impl<S: Signal> Signals<S> {
    /// The next signal; `None` when the bus was closed. Signals that came faster than they were read are skipped: only
    /// the newest matters. One that cannot be read is skipped as well, with a warning in the log.
    pub async fn next(&mut self) -> Option<S> {
        loop {
            match self.messages.recv().await {
                Ok(message) => match S::decode(&message) {
                    Ok(signal) => return Some(signal),
                    Err(error) => {
                        tracing::warn!(
                            %error,
                            channel = ?S::CHANNEL,
                            "signal not decoded: ignored; check that all services have the same version"
                        );
                    }
                },
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Sends and hears signals by their types.
pub trait BusExt: Bus {
    /// Sends a signal to the current listeners. It is never stored, and lost while the bus is out of reach.
    ///
    /// # Errors
    /// [`BusError::Unavailable`], [`BusError::TooLarge`], or [`BusError::Refused`] for one that cannot be encoded.
    fn send<S: Signal>(&self, signal: &S) -> impl Future<Output = Result<(), BusError>> + Send {
        let message = signal.encode().map_err(|error| BusError::Refused {
            message: error.to_string(),
        });
        async move { self.publish(S::CHANNEL, message?).await }
    }

    /// Subscribes to the signals of a type, from now on. A slow reader loses the oldest.
    ///
    /// # Errors
    /// [`BusError::Unavailable`].
    fn signals<S: Signal>(&self) -> impl Future<Output = Result<Signals<S>, BusError>> + Send {
        async {
            let messages = self.subscribe(S::CHANNEL).await?;
            Ok(Signals {
                messages,
                of: PhantomData,
            })
        }
    }

    /// Subscribes to the violations that webhooks find at admission, from now on. A slow reader loses the oldest, and
    /// learns how many it lost.
    ///
    /// # Errors
    /// [`BusError::Unavailable`].
    fn violations(&self) -> impl Future<Output = Result<Violations, BusError>> + Send {
        async {
            let messages = self.subscribe(Channel::Violations).await?;
            Ok(Violations::new(messages, self.connection()))
        }
    }
}

impl<B: Bus + ?Sized> BusExt for B {}

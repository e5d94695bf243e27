//! The events of a watch that are held back for one view, while the view's own list is read beside the watch.

use anteroom_model::{ObjectKey, ResourceVersion};
use tracing::Span;

use crate::source::reflect::{Origin, RawObject};

/// The most events that are held back for a view. Where there are more, the watch lists again.
const HELD_EVENTS_MAX: usize = 1_000;

/// The most bytes of events that are held back for a view, which take memory beside the log writer's. For more, the
/// watch lists again.
const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The events that are held back for a view, in their order.
#[derive(Debug, Default)]
pub(super) struct HeldEvents {
    events: Vec<HeldEvent>,
    bytes: usize,
}

/// An event that is held back.
#[derive(Debug)]
pub(super) enum HeldEvent {
    Put(RawObject, Origin),
    Gone(ObjectKey, ResourceVersion, Span),
}

/// There is no room for another event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldEventsFull;

impl HeldEvent {
    fn bytes(&self) -> usize {
        let (key, version, body_bytes) = match self {
            Self::Put(RawObject { key, version, json }, _) => (key, version, json.len()),
            Self::Gone(key, version, _) => (key, version, 0),
        };
        let texts = key.namespace.len() + key.name.len() + version.as_str().len();
        size_of::<Self>() + texts + body_bytes
    }
}

impl HeldEvents {
    /// Holds an event back, behind those that are held already.
    pub(super) fn push(&mut self, event: HeldEvent) -> Result<(), HeldEventsFull> {
        let bytes = self.bytes.saturating_add(event.bytes());
        if self.events.len() >= HELD_EVENTS_MAX || bytes > HELD_BYTES_MAX {
            return Err(HeldEventsFull);
        }
        self.bytes = bytes;
        self.events.push(event);
        Ok(())
    }

    /// Returns the bytes that the events take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn into_events(self) -> Vec<HeldEvent> {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(json_bytes: usize) -> HeldEvent {
        let object = RawObject {
            key: ObjectKey::new("n", "a"),
            version: ResourceVersion::new("1"),
            json: vec![b' '; json_bytes].into(),
        };
        HeldEvent::Put(object, Origin::List)
    }

    fn gone() -> HeldEvent {
        HeldEvent::Gone(
            ObjectKey::new("n", "a"),
            ResourceVersion::new("1"),
            Span::none(),
        )
    }

    #[test]
    fn events_are_held_up_to_their_number() {
        let mut held = HeldEvents::default();
        for _ in 0..HELD_EVENTS_MAX {
            assert_eq!(held.push(gone()), Ok(()));
        }
        assert_eq!(held.push(gone()), Err(HeldEventsFull));
        assert_eq!(held.into_events().len(), HELD_EVENTS_MAX);
    }

    #[test]
    fn events_are_held_up_to_their_bytes() {
        let mut held = HeldEvents::default();
        let half = HELD_BYTES_MAX / 2 - put(0).bytes();
        assert_eq!(held.push(put(half)), Ok(()));
        assert_eq!(held.push(put(half + 1)), Err(HeldEventsFull));
        assert_eq!(
            held.bytes(),
            HELD_BYTES_MAX / 2,
            "only events that are held count"
        );
        assert_eq!(held.push(put(half)), Ok(()));
        assert_eq!(held.bytes(), HELD_BYTES_MAX);
        assert_eq!(held.push(gone()), Err(HeldEventsFull));
        assert_eq!(held.into_events().len(), 2);
    }
}

//! The hub of a type behind its lock. Code that needs the write queue beside the hub gets it from the locked hub, so
//! the hub is always locked first.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use super::hub::Hub;
use crate::log_writer::publish::{Publisher, WriteQueue};

/// The hub of a type, with the write queue of its group. Clones are one.
#[derive(Clone, Debug)]
pub(super) struct SharedHub {
    hub: Arc<Mutex<Hub>>,
    publisher: Publisher,
}

/// A hub that is locked.
pub(super) struct LockedHub<'a> {
    hub: MutexGuard<'a, Hub>,
    publisher: &'a Publisher,
}

impl SharedHub {
    pub(super) fn new(hub: Hub, publisher: Publisher) -> Self {
        let hub = Arc::new(Mutex::new(hub));
        Self { hub, publisher }
    }

    /// Locks the hub alone.
    pub(super) fn lock(&self) -> LockedHub<'_> {
        LockedHub {
            hub: self.hub.lock(),
            publisher: &self.publisher,
        }
    }

    /// Locks the hub and then the queue, for one change of both.
    pub(super) fn locked<R>(&self, change: impl FnOnce(&mut Hub, &mut WriteQueue) -> R) -> R {
        self.lock().with_queue(change)
    }

    /// Returns the entrance of the queue, for those that do not need the hub.
    pub(super) fn publisher(&self) -> &Publisher {
        &self.publisher
    }
}

impl LockedHub<'_> {
    /// Locks the queue too, for one change of both.
    pub(super) fn with_queue<R>(
        &mut self,
        change: impl FnOnce(&mut Hub, &mut WriteQueue) -> R,
    ) -> R {
        let Self { hub, publisher } = self;
        publisher.with(|queue| change(hub, queue))
    }
}

impl Deref for LockedHub<'_> {
    type Target = Hub;

    fn deref(&self) -> &Hub {
        &self.hub
    }
}

impl DerefMut for LockedHub<'_> {
    fn deref_mut(&mut self) -> &mut Hub {
        &mut self.hub
    }
}

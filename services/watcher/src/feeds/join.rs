//! A view, or a referenced object, joins a watch that runs already: the feeder lists the objects of the view alone, or
//! reads the one object, and the watch goes on meanwhile.
//!
//! The watch's events are held back for the view from before its list is asked for. The list is a consistent read, so
//! an event that is not in the list is newer than the list. The view drops events up to the list's version, and takes
//! the others after the list.

use std::future::ready;

use anteroom_model::{GroupVersionResource, ObjectKey, ResourceVersion};
use tokio::time::Instant;

use super::{
    held_events::HeldEvent,
    hub::Hub,
    member::{Member, Progress},
    plan::WatchScope,
    sink::WatchSink,
};
use crate::{
    log_writer::publish::WriteHandle,
    source::{
        apiserver::{ApiServer, Fault},
        reflect::{self, Origin, RawObject},
    },
};

/// A view or a referenced object that joins a watch.
#[derive(Debug)]
pub(super) enum Joining {
    /// A view. The scopes of `own` are listed for it; `list` is the number of this list.
    View {
        handle: WriteHandle,
        list: u32,
        own: Vec<WatchScope>,
    },
    /// An object, read in the source's history with this number.
    Object { object: ObjectKey, era: u64 },
}

/// A list beside a watch.
pub(super) struct Join {
    pub(super) api: ApiServer,
    pub(super) gvr: GroupVersionResource,
    /// The sink of the watch.
    pub(super) sink: WatchSink,
}

impl Join {
    pub(super) async fn run(self, joining: Joining) {
        let done = match &joining {
            Joining::View { handle, list, own } => self.view(handle, *list, own).await,
            Joining::Object { object, era } => self.object(object, *era).await,
        };
        if let Err(fault) = &done {
            tracing::debug!(
                resource = %self.gvr,
                %fault,
                "list beside the watch failed: the watch lists instead"
            );
        }
        self.end(&joining, done.is_err());
    }

    /// Ends the list. If the list failed, or the view waits again, the watch lists again.
    pub(super) fn end(&self, joining: &Joining, failed: bool) {
        let mut hub = self.sink.hub.lock();
        let mut lists_again = failed;
        if let Joining::View { handle, list, .. } = joining {
            if failed && let Some(member) = self.member(&mut hub, handle, *list) {
                member.gives_up(&self.sink.scope);
            }
            lists_again |= hub.waits(&handle.view, &self.sink.scope);
        }
        if let Some(watch) = hub.watches.get_mut(&self.sink.scope) {
            watch.joining = watch.joining.saturating_sub(1);
            if lists_again {
                watch.ask();
            }
        }
    }

    async fn view(&self, handle: &WriteHandle, list: u32, own: &[WatchScope]) -> Result<(), Fault> {
        let mut listed = Vec::new();
        for scope in own {
            let collection = scope.collection(&self.gvr).canonical();
            let take = |objects| self.page(handle, list, objects);
            match reflect::once(&self.api, &collection, take).await? {
                Some(version) => listed.push((scope, version)),
                None => return Ok(()),
            }
        }
        self.finish(handle, list, &listed);
        Ok(())
    }

    /// Writes a page of the list to the view. Returns whether the list still counts.
    pub(super) async fn page(
        &self,
        handle: &WriteHandle,
        list: u32,
        objects: Vec<RawObject>,
    ) -> bool {
        for RawObject { key, version, json } in objects {
            self.sink.hub.publisher().wait_for_room().await;
            let mut object = self.sink.read(&json);
            let mut hub = self.sink.hub.lock();
            let Some(member) = self.member(&mut hub, handle, list) else {
                return false;
            };
            let recipient = member.recipient();
            let body = object.body(recipient.retained.as_deref());
            // Still under the hub's lock. Otherwise the watch's list could begin in between and replace this one, without
            // a new epoch. It would then take this object for one of its own, and keep an object that may be gone.
            self.sink.write(
                &recipient,
                &key,
                &version,
                body,
                Instant::now(),
                &Origin::List,
            );
        }
        true
    }

    pub(super) fn finish(
        &self,
        handle: &WriteHandle,
        list: u32,
        listed: &[(&WatchScope, ResourceVersion)],
    ) {
        let scope = &self.sink.scope;
        let mut hub = self.sink.hub.lock();
        let held = hub.with_queue(|hub, queue| {
            let member = self.member(hub, handle, list)?;
            Some(member.joined(scope, listed, queue))
        });
        // Still under the hub's lock: the watch's next event may not come before the events that were held back.
        for event in held.unwrap_or_default() {
            let recipient = hub.with_queue(|hub, queue| {
                let member = hub.members.get_mut(&handle.view)?;
                member.replay(scope, &event, queue)
            });
            if let (Some(recipient), HeldEvent::Put(object, origin)) = (recipient, event) {
                let mut read = self.sink.read(&object.json);
                let body = read.body(recipient.retained.as_deref());
                let RawObject { key, version, .. } = &object;
                self.sink
                    .write(&recipient, key, version, body, Instant::now(), &origin);
            }
        }
    }

    /// Returns the view's member, if the view still joins by this list and in the handle's epoch.
    fn member<'a>(
        &self,
        hub: &'a mut Hub,
        handle: &WriteHandle,
        list: u32,
    ) -> Option<&'a mut Member> {
        let member = hub.members.get_mut(&handle.view)?;
        let joins = match member.watches.get(&self.sink.scope)? {
            Progress::Joins { list: own, .. } => *own == list,
            Progress::Waits { .. } | Progress::Lists { .. } | Progress::Follows { .. } => false,
        };
        (joins && member.handle.epoch == handle.epoch).then_some(member)
    }

    async fn object(&self, object: &ObjectKey, era: u64) -> Result<(), Fault> {
        let collection = WatchScope::of_object(object)
            .collection(&self.gvr)
            .canonical();
        let mut found = Vec::new();
        let take = |objects| {
            found.extend(objects);
            ready(true)
        };
        let listed = reflect::once(&self.api, &collection, take).await?;
        self.sink.hub.publisher().wait_for_room().await;
        self.referenced(object, era, found.pop(), listed.as_ref());
        Ok(())
    }

    /// The object was found, or was not there at `listed`.
    pub(super) fn referenced(
        &self,
        object: &ObjectKey,
        era: u64,
        found: Option<RawObject>,
        listed: Option<&ResourceVersion>,
    ) {
        let mut hub = self.sink.hub.lock();
        if hub.references.era != era {
            return; // The watch lists again.
        }
        let Some(RawObject { key, version, json }) = found else {
            if let Some(version) = listed {
                hub.with_queue(|hub, queue| {
                    hub.references
                        .absent(object, version, Instant::now(), queue);
                });
            }
            return;
        };
        if hub.references.take(&key, &version, None) {
            let body = self.sink.read(&json).body(None);
            self.sink
                .write_reference(&hub, &key, &version, body, &Origin::List);
        }
    }
}

#[cfg(test)]
mod tests;

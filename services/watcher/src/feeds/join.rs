//! A view, or an object, that comes to a watch which runs already: only what it holds itself is
//! listed, and the watch goes on meanwhile.
//!
//! It hears the watch from before its list is asked for, and the list is a consistent read: whatever
//! is not in it comes after it. What comes twice, or in the wrong order, is told apart by version.

use std::{future::ready, time::Instant};

use anteroom_model::{GroupVersionResource, ObjectKey, ResourceVersion};
use tracing::Span;

use super::{
    hub::{Hub, Member, Outlet},
    plan::Scope,
    sink::{FeedSink, is_immutable},
};
use crate::{
    apiserver::{ApiServer, Fault},
    publish::Tenure,
    reflect::{self, RawObject},
};

/// Lists beside one watch at a time. Where more is asked for, the watch lists again, for all of them.
pub(super) const JOINS_MAX: usize = 8;

/// Who comes to a watch.
#[derive(Debug)]
pub(super) enum Joins {
    /// A view, for which these have to be listed; `begun` is the number of the list.
    View {
        tenure: Tenure,
        begun: u32,
        lists: Vec<Scope>,
    },
    /// An object, in the history of this number.
    Object { object: ObjectKey, era: u64 },
}

/// One of them on its way.
pub(super) struct Join {
    pub(super) api: ApiServer,
    pub(super) gvr: GroupVersionResource,
    /// Of the watch.
    pub(super) sink: FeedSink,
}

impl Join {
    pub(super) async fn run(self, joins: Joins) {
        let done = match &joins {
            Joins::View {
                tenure,
                begun,
                lists,
            } => self.view(tenure, *begun, lists).await,
            Joins::Object { object, era } => self.object(object, *era).await,
        };
        let mut hub = self.sink.hub.lock();
        let Some(feed) = hub.feeds.get_mut(&self.sink.scope) else {
            return;
        };
        feed.joining = feed.joining.saturating_sub(1);
        if let Err(fault) = done {
            tracing::debug!(resource = %self.gvr, %fault, "listed by the watch instead");
            feed.ask();
        }
    }

    async fn view(&self, tenure: &Tenure, begun: u32, lists: &[Scope]) -> Result<(), Fault> {
        let mut listed = Vec::new();
        for list in lists {
            let collection = list.collection(&self.gvr).canonical();
            let take = |objects| self.page(tenure, begun, objects);
            match reflect::once(&self.api, &collection, take).await? {
                Some(version) => listed.push((list, version)),
                None => return Ok(()),
            }
        }
        self.finish(tenure, begun, &listed);
        Ok(())
    }

    /// Whether the list still counts.
    pub(super) async fn page(&self, tenure: &Tenure, begun: u32, objects: Vec<RawObject>) -> bool {
        for RawObject { key, version, json } in objects {
            self.sink.publisher.room().await;
            let mut object = self.sink.read(&json);
            let mut hub = self.sink.hub.lock();
            let Some(member) = self.member(&mut hub, tenure, begun) else {
                return false;
            };
            let outlet = Outlet {
                tenure: tenure.clone(),
                sealed: member.sealed,
                kept: member.kept.clone(),
                by: Some(self.sink.scope.width()),
            };
            let body = object.body(outlet.kept.as_deref());
            // Still under the lock: nothing of it may follow a list that took its place.
            self.sink
                .write(&outlet, &key, &version, body, &Span::none());
        }
        true
    }

    pub(super) fn finish(&self, tenure: &Tenure, begun: u32, listed: &[(&Scope, ResourceVersion)]) {
        let mut hub = self.sink.hub.lock();
        let Some(member) = self.member(&mut hub, tenure, begun) else {
            return;
        };
        let FeedSink {
            publisher, scope, ..
        } = &self.sink;
        let now = Instant::now();
        for (list, version) in listed {
            let list = (scope.width(), list.namespace.as_str());
            publisher.with(|book| book.swept(tenure, begun, list, version, now));
        }
        let version = listed.first().map(|(_, version)| version.clone());
        publisher.with(|book| book.heard(tenure, version, now));
        member.joins.remove(scope);
        if member.listed(scope, publisher) {
            self.sink.planned.notify_one();
        }
    }

    fn member<'a>(&self, hub: &'a mut Hub, tenure: &Tenure, begun: u32) -> Option<&'a mut Member> {
        let member = hub.members.get_mut(&tenure.view)?;
        let same = member.tenure.epoch == tenure.epoch;
        (same && member.joins.get(&self.sink.scope) == Some(&begun)).then_some(member)
    }

    async fn object(&self, object: &ObjectKey, era: u64) -> Result<(), Fault> {
        let collection = Scope::of_object(object).collection(&self.gvr).canonical();
        let mut found = Vec::new();
        let take = |objects| {
            found.extend(objects);
            ready(true)
        };
        let listed = reflect::once(&self.api, &collection, take).await?;
        self.sink.publisher.room().await;
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
                hub.references.absent(object, version, &self.sink.publisher);
            }
            return;
        };
        let immutable = is_immutable(&json);
        if hub.references.take(&key, &version, immutable, None) {
            let body = self.sink.read(&json).body(None);
            self.sink
                .write_reference(&hub, &key, &version, body, &Span::none());
            if immutable {
                self.sink.planned.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests;

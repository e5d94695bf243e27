//! The system views in the log, which the coordinator writes itself.

use anteroom_model::{ObjectKey, ResourceVersion, Revision, Source, SourceInfo, system};
use tokio::time::Instant;

use super::effect::{Record, SystemView, Write};
use crate::log_writer::{
    log_snapshot::LogSnapshot,
    publish::{ChangeOrigin, Opening, Publisher, WriteHandle, WriteQueue},
};

/// The writer's hold on each system view, for one term.
pub(super) struct SystemViews {
    publisher: Publisher,
    entries: WriteHandle,
    policies: WriteHandle,
    exceptions: WriteHandle,
    kinds: WriteHandle,
    desired_views: WriteHandle,
    references: WriteHandle,
}

impl SystemViews {
    /// Opens all system views, with the records of earlier terms in the log.
    pub(super) fn open(publisher: Publisher, snapshot: &mut LogSnapshot) -> Self {
        let mut open = |source: Source| {
            let info = SourceInfo {
                source,
                kind: String::new(),
                namespaced: false,
            };
            let inherited = snapshot.take(&info.source.view_id());
            publisher.with(|queue| {
                inherited
                    .unpurged
                    .into_iter()
                    .for_each(|record| queue.free(record));
                let opening = Opening {
                    origin: inherited.origin,
                    ..Opening::default()
                };
                let handle = queue.open_with(info, inherited.objects, opening);
                queue.begin_list(&handle);
                handle
            })
        };
        Self {
            entries: open(system::entries_source()),
            policies: open(system::policies_source()),
            exceptions: open(system::exceptions_source()),
            kinds: open(system::kinds_source()),
            desired_views: open(system::desired_views_source()),
            references: open(system::references_source()),
            publisher,
        }
    }

    /// Hands writes in, in this order and all at once.
    pub(super) fn write(&mut self, writes: impl IntoIterator<Item = (SystemView, Write)>) {
        let publisher = self.publisher.clone();
        let now = Instant::now();
        publisher.with(|queue| {
            for (view, write) in writes {
                apply(queue, self.handle(view), write, now);
            }
        });
    }

    /// Returns a position of the log up to which it has the policy, these records of entries, and all kinds;
    /// `None`: some of that is still on its way.
    pub(super) fn position(&self, policy: &ObjectKey, entries: &[ObjectKey]) -> Option<Revision> {
        self.publisher.read(|queue| {
            let policy = queue.logged(&self.policies, std::slice::from_ref(policy))?;
            let entries = queue.logged(&self.entries, entries)?;
            let kinds = queue.all_logged(&self.kinds)?;
            Some(policy.max(entries).max(kinds))
        })
    }

    fn handle(&mut self, view: SystemView) -> &mut WriteHandle {
        match view {
            SystemView::Entries => &mut self.entries,
            SystemView::Policies => &mut self.policies,
            SystemView::Exceptions => &mut self.exceptions,
            SystemView::Kinds => &mut self.kinds,
            SystemView::DesiredViews => &mut self.desired_views,
            SystemView::References => &mut self.references,
        }
    }
}

fn apply(queue: &mut WriteQueue, handle: &mut WriteHandle, write: Write, now: Instant) {
    // Versions of system views are hashes of content: neither a deletion nor a list has one.
    let none = ResourceVersion::default();
    match write {
        Write::Put(record, span) => put(queue, handle, record, now, ChangeOrigin::Event(span)),
        Write::Delete(key, origin) => queue.delete(handle, &key, none, now, origin),
        Write::Replace(records) => {
            queue.begin_list(handle);
            for record in records {
                put(queue, handle, record, now, ChangeOrigin::List);
            }
            queue.listed(handle, &none, now);
        }
        Write::Listed => queue.listed(handle, &none, now),
        Write::Heard(at) => queue.mark_fresh(handle, None, at),
        Write::Skipped => queue.skipped(handle),
        Write::Refused(failure) => queue.refused(handle, failure),
        Write::Troubled(failure) => queue.troubled(handle, failure),
    }
}

fn put(
    queue: &mut WriteQueue,
    handle: &WriteHandle,
    record: Record,
    now: Instant,
    origin: ChangeOrigin,
) {
    let Record { key, version, body } = record;
    queue.put(handle, key, version, body, now, origin);
}

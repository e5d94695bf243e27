//! The system views, which the controller writes itself.

use std::time::Instant;

use anteroom_model::{
    EntryKind, EntryRecord, ObjectKey, ObjectReference, ResourceVersion, Source, SourceInfo,
    ViewId, WantedView, system,
};
use serde::Serialize;

use super::Controller;
use crate::{
    left::Left,
    publish::{Opening, Publisher, Tenure},
    reflect::content_version,
};

/// With what each is written.
pub(super) struct OwnViews {
    pub(super) entries: Tenure,
    pub(super) policies: Tenure,
    pub(super) exceptions: Tenure,
    pub(super) kinds: Tenure,
    wanted: Tenure,
    references: Tenure,
}

impl OwnViews {
    pub(super) fn open(publisher: &Publisher, left: &mut Left) -> Self {
        let mut open = |source: Source| {
            let info = SourceInfo {
                source,
                kind: String::new(),
                namespaced: false,
            };
            let left = left.take(&info.source.view_id());
            publisher.with(|book| {
                left.unpurged
                    .into_iter()
                    .for_each(|record| book.free(record));
                let opening = Opening {
                    origin: left.origin,
                    ..Opening::default()
                };
                let mut tenure = book.open_with(info, left.objects, opening);
                book.begin_list(&mut tenure, false);
                tenure
            })
        };
        Self {
            entries: open(system::entries_source()),
            policies: open(system::policies_source()),
            exceptions: open(system::exceptions_source()),
            kinds: open(system::kinds_source()),
            wanted: open(system::wanted_source()),
            references: open(system::references_source()),
        }
    }
}

impl Controller {
    pub(super) fn own_entry(&self, record: &EntryRecord) {
        let key = record.kind.key(&record.name);
        self.put_own(&self.own.entries, key, record);
    }

    pub(super) fn own_entry_gone(&self, kind: EntryKind, name: &str) {
        self.delete_own(&self.own.entries, &kind.key(name));
    }

    pub(super) fn want(&self, wanted: &WantedView) {
        let view = wanted.info.source.view_id();
        tracing::info!(%view, "view wanted");
        let key = ObjectKey::new("", view.as_str());
        self.put_own(&self.own.wanted, key, wanted);
    }

    pub(super) fn own_wanted_gone(&self, view: &ViewId) {
        tracing::info!(%view, "view not wanted any more: nobody needs it");
        let key = ObjectKey::new("", view.as_str());
        self.delete_own(&self.own.wanted, &key);
    }

    pub(super) fn own_reference(&self, reference: &ObjectReference) {
        self.put_own(&self.own.references, reference.key(), reference);
    }

    pub(super) fn own_reference_gone(&self, reference: &ObjectReference) {
        self.delete_own(&self.own.references, &reference.key());
    }

    /// All that is wanted is known: what the log has beside it is deleted.
    pub(super) fn own_listed(&self) {
        let (now, version) = (Instant::now(), ResourceVersion::default());
        self.tools.publisher.with(|book| {
            // What is wanted before what entries are bound to, as with every change.
            for own in [&self.own.wanted, &self.own.references, &self.own.entries] {
                book.listed(own, &version, now);
            }
        });
    }

    /// These views follow from manifests alone: they are as fresh as those.
    pub(super) fn own_heard(&self, now: Instant) {
        self.tools.publisher.with(|book| {
            for own in [&self.own.wanted, &self.own.references, &self.own.entries] {
                book.heard(own, None, now);
            }
            if self.exceptions.is_nothing {
                book.heard(&self.own.exceptions, None, now);
            }
        });
    }

    fn put_own(&self, own: &Tenure, key: ObjectKey, record: &impl Serialize) {
        let body = match anteroom_wire::body::encode(record) {
            Ok(body) => body,
            Err(error) => {
                // A record is a few hundred bytes of plain fields.
                tracing::error!(view = %own.view, %key, %error, "record cannot be published");
                return;
            }
        };
        let (version, now) = (content_version(&body), Instant::now());
        self.tools.publisher.with(|book| {
            if !book.is_known(own, &key, &version) {
                let span = tracing::info_span!("publish", otel.kind = "producer", %key);
                book.put(own, key, version, body, now, span);
            }
        });
    }

    fn delete_own(&self, own: &Tenure, key: &ObjectKey) {
        let (gone, now) = (ResourceVersion::default(), Instant::now());
        let span = tracing::info_span!("publish", otel.kind = "producer", %key);
        let publisher = &self.tools.publisher;
        publisher.with(|book| book.delete(own, key, gone, now, span));
    }
}

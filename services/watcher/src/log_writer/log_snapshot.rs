//! A snapshot of the log as it was when a term began. A new leader compares the source with it.

use std::collections::HashMap;

use anteroom_bus::LogIndex;
use anteroom_model::{Epoch, Group, ObjectKey, ResourceVersion, ViewId, ViewRecord, ViewState};

/// The views of earlier terms that this term has not taken over yet.
#[derive(Debug, Default)]
pub(crate) struct LogSnapshot {
    views: HashMap<ViewId, InheritedView>,
}

/// The content of one view in the log.
#[derive(Debug, Default)]
pub(crate) struct InheritedView {
    /// The versions of its objects.
    pub objects: HashMap<ObjectKey, ResourceVersion>,
    /// The version at which the earlier term left the source.
    pub version: ResourceVersion,
    /// The first epoch of its objects; `None`: the view is not there.
    pub origin: Option<Epoch>,
    /// The view was announced as dropped, but its objects are still in the log. They have to be purged before the
    /// view begins anew, since readers that freed them will not see them again.
    pub unpurged: Option<ViewRecord>,
    record: Option<ViewRecord>,
}

impl LogSnapshot {
    /// Divides the log's index by group.
    pub(crate) fn by_group(index: LogIndex) -> HashMap<Group, Self> {
        let mut groups: HashMap<Group, Self> = HashMap::new();
        for (id, view) in Self::new(index).views {
            let record = view.record.as_ref().or(view.unpurged.as_ref());
            // A view whose control record the log has lost has no group here, and begins anew whoever takes it.
            let group = record.map_or(Group::COORDINATOR, |r| Group::of(&r.info.source));
            groups.entry(group).or_default().views.insert(id, view);
        }
        groups
    }

    /// Returns the snapshot of all groups.
    fn new(index: LogIndex) -> Self {
        let mut views: HashMap<ViewId, InheritedView> = HashMap::new();
        for (view, objects) in index.objects {
            // Readers take no object of before the view's origin, and none of a view whose control record the log has
            // lost: such a view begins anew.
            let origin = index.views.get(&view).map(|record| record.origin);
            let objects = objects.into_iter().filter_map(|(key, (epoch, version))| {
                let counts = origin.is_some_and(|origin| epoch >= origin);
                counts.then_some((key, version))
            });
            views.entry(view).or_default().objects = objects.collect();
        }
        for (id, record) in index.views {
            let view = views.entry(id).or_default();
            if record.state != ViewState::Dropped {
                view.version = record.version.clone();
                view.origin = Some(record.origin);
                view.record = Some(record);
            } else if !view.objects.is_empty() {
                view.objects.clear();
                view.unpurged = Some(record);
            }
        }
        Self { views }
    }

    /// Removes a view and returns it, for its new writer.
    pub(crate) fn take(&mut self, view: &ViewId) -> InheritedView {
        self.views.remove(view).unwrap_or_default()
    }

    /// Takes the last control records of all other views: nothing desires these views, so they are freed.
    pub(crate) fn drain(&mut self) -> Vec<ViewRecord> {
        let rest = self.views.drain().map(|(_, view)| view);
        rest.filter_map(|view| view.record.or(view.unpurged))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{Digest, Source, SourceInfo};

    use super::*;

    fn index(state: ViewState) -> (ViewId, LogIndex) {
        let source = Source::System { name: "x".into() };
        let view = source.view_id();
        let record = ViewRecord {
            view: view.clone(),
            info: SourceInfo {
                source,
                kind: String::new(),
                namespaced: false,
            },
            epoch: Epoch::new(1, 1),
            state,
            version: ResourceVersion::new("9"),
            objects: 1,
            digest: Digest::default(),
            origin: anteroom_model::Epoch::default(),
            age_max_ms: None,
        };
        let object = (
            ObjectKey::new("", "a"),
            (Epoch::new(1, 1), ResourceVersion::new("3")),
        );
        let mut index = LogIndex::default();
        index.views.insert(view.clone(), record);
        index.objects.insert(view.clone(), HashMap::from([object]));
        (view, index)
    }

    #[test]
    fn views_taken_from_a_snapshot_go_on_and_the_rest_is_drained() {
        let (view, log) = index(ViewState::Synced);
        let mut snapshot = LogSnapshot::new(log.clone());
        let taken = snapshot.take(&view);
        assert_eq!((taken.objects.len(), taken.version.as_str()), (1, "9"));
        assert!(snapshot.drain().is_empty());
        assert_eq!(LogSnapshot::new(log).drain().len(), 1);
    }

    #[test]
    fn objects_that_readers_do_not_take_are_not_inherited() {
        let (view, log) = index(ViewState::Synced);
        let mut lost = log.clone();
        lost.views.clear();
        assert!(LogSnapshot::new(lost).take(&view).objects.is_empty());
        let mut begun_anew = log;
        let record = begun_anew.views.get_mut(&view).unwrap();
        record.origin = Epoch::new(2, 1);
        assert!(LogSnapshot::new(begun_anew).take(&view).objects.is_empty());
    }

    #[test]
    fn a_log_snapshot_is_split_by_group() {
        let (view, log) = index(ViewState::Synced);
        let mut groups = LogSnapshot::by_group(log);
        assert_eq!(groups.len(), 1);
        let mut own = groups.remove(&Group::COORDINATOR).unwrap();
        assert_eq!(own.take(&view).objects.len(), 1);
    }

    #[test]
    fn a_dropped_view_whose_objects_remain_is_purged_first() {
        let (view, log) = index(ViewState::Dropped);
        let taken = LogSnapshot::new(log.clone()).take(&view);
        assert!(taken.objects.is_empty() && taken.unpurged.is_some());
        assert_eq!(LogSnapshot::new(log.clone()).drain().len(), 1);
        let purged = LogIndex {
            objects: HashMap::new(),
            ..log
        };
        assert!(
            LogSnapshot::new(purged).drain().is_empty(),
            "nothing is left to do"
        );
    }
}

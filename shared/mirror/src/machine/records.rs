//! Records of the log: they are taken in, passed over, or cannot be read.

use anteroom_model::own_reason;

use super::*;

/// The reason that a reader gets where nothing can be opened.
const NO_KEYS: &str = "its bodies are sealed, and this process has no keys: mount the Secret \
                       with them, and name the file with --seal-keys-file";

impl Machine {
    pub(super) fn record(
        &mut self,
        now: Moment,
        revision: Revision,
        record: Record,
        effects: &mut Vec<MirrorEffect>,
    ) {
        let id = record.view().clone();
        let dropped = match &record {
            Record::Control(record) => record.state == ViewState::Dropped,
            Record::Delta { .. } => false,
        };
        self.take_up(&id, effects);
        let Some(source) = self.record_source(&id) else {
            if dropped {
                self.unheld.remove(&id);
            } else {
                self.unheld.insert(id, revision);
            }
            return;
        };
        if let Some(kept) = self.views.get(&id) {
            kept.write().see(revision);
        }
        match record {
            Record::Control(record) if dropped => {
                self.wrote(Group::of(&record.info.source), record.epoch);
                self.dropped(revision, record, effects);
            }
            record if source == RecordSource::Log => {
                let hole = (self.scope == LogScope::All).then_some(self.hole);
                let met_before = self.views.contains_key(&id);
                self.take_in(now, revision, record, hole, effects);
                if !met_before && let Some(kept) = self.views.get(&id) {
                    kept.write().see(revision);
                }
                if self.reading == Reading::Live {
                    effects.push(MirrorEffect::Changed(id));
                }
            }
            _ => self.hand_over(now, &id, effects),
        }
    }

    /// The reader whose records the view takes in; `None` if it is not held here.
    pub(super) fn record_source(&self, id: &ViewId) -> Option<RecordSource> {
        match self.views.get(id) {
            Some(kept) => Some(kept.read().record_source()),
            None => self.hold.holds(id).then_some(RecordSource::Log),
        }
    }

    /// A view takes a record in. `hole` as in [`MirroredView::control`].
    pub(super) fn take_in(
        &mut self,
        now: Moment,
        revision: Revision,
        record: Record,
        hole: Option<Revision>,
        effects: &mut Vec<MirrorEffect>,
    ) {
        let content = next(&mut self.changes);
        let id = record.view().clone();
        let kept = Arc::clone(self.view(&id, revision, effects));
        match record {
            Record::Delta { delta, .. } => {
                let group = kept.read().group();
                if let Some(group) = group {
                    self.wrote(group, delta.epoch);
                }
                let delta = match self.opened(&id, delta) {
                    Ok(delta) => delta,
                    Err(reason) => return self.unopened(&id, &kept, reason, effects),
                };
                let mut changed = false;
                changing(now, self.complete_to, &id, &kept, effects, |kept| {
                    changed = kept.delta(revision, &delta, content);
                });
                effects.push(MirrorEffect::Delta { view: id, changed });
            }
            Record::Control(record) => {
                self.wrote(Group::of(&record.info.source), record.epoch);
                changing(now, self.complete_to, &id, &kept, effects, |kept| {
                    kept.control(revision, record, hole, content);
                });
            }
        }
    }

    /// The delta with its body opened, where it is sealed.
    fn opened(&self, id: &ViewId, delta: Delta<Bytes>) -> Result<Delta<Bytes>, String> {
        let sealed = match &delta.op {
            Op::Put(sealed) if body::is_sealed(sealed) => sealed,
            Op::Put(_) | Op::Delete => return Ok(delta),
        };
        let opener = self.config.opener.as_ref().ok_or(NO_KEYS)?;
        let opened = opener.open(id, &delta.key, sealed)?;
        body::validate(&opened).map_err(|error| format!("what was sealed is no body: {error}"))?;
        Ok(Delta {
            op: Op::Put(opened),
            ..delta
        })
    }

    pub(super) fn unopened(
        &mut self,
        id: &ViewId,
        kept: &SharedView,
        reason: String,
        effects: &mut Vec<MirrorEffect>,
    ) {
        let failure = Failure::new(own_reason::SEALED_UNREADABLE, reason.clone());
        kept.write().fail(&failure);
        self.loads.end(id, self.position, effects);
        effects.push(MirrorEffect::Unopened(id.clone(), reason));
        effects.push(MirrorEffect::Changed(id.clone()));
    }

    /// The log holds a record of this epoch.
    pub(super) fn wrote(&mut self, group: Group, epoch: Epoch) {
        let term = self.term(group).max(epoch.term());
        self.terms.insert(group, term);
    }

    fn dropped(&mut self, revision: Revision, record: ViewRecord, effects: &mut Vec<MirrorEffect>) {
        let id = record.view.clone();
        let content = next(&mut self.changes);
        let Some(kept) = self.views.get(&id) else {
            return;
        };
        // The view was desired again after this drop, and the view's own reader has read further.
        if kept.read().is_repeat(revision) {
            return;
        }
        // Also while the log is read from its start, when records mean nothing before its end
        // otherwise: a view that comes again has records of its own, behind this one.
        kept.write().drop_content(revision, record, content);
        self.forget(&id, effects);
    }

    /// The view is no more.
    pub(super) fn forget(&mut self, id: &ViewId, effects: &mut Vec<MirrorEffect>) {
        self.views.remove(id);
        self.loads.end(id, self.position, effects);
        effects.push(MirrorEffect::Removed(id.clone()));
    }

    /// A record cannot be read: its view is in doubt, or any is where nobody can tell.
    pub(super) fn undecodable(
        &mut self,
        now: Moment,
        revision: Revision,
        view: Option<ViewId>,
        effects: &mut Vec<MirrorEffect>,
    ) {
        effects.push(MirrorEffect::Undecodable {
            revision,
            view: view.clone(),
        });
        let Some(id) = view else {
            self.unreadable = self.unreadable.max(Some(revision));
            for kept in self.views.values() {
                kept.write().doubted();
            }
            effects.push(MirrorEffect::AllChanged);
            return;
        };
        self.take_up(&id, effects);
        match self.record_source(&id) {
            None => {
                self.unheld.insert(id, revision);
            }
            Some(source) => {
                let kept = Arc::clone(self.view(&id, revision, effects));
                kept.write().see(revision);
                match source {
                    RecordSource::Log => kept.write().note_unreadable(revision),
                    RecordSource::Alone | RecordSource::None => self.hand_over(now, &id, effects),
                }
                effects.push(MirrorEffect::Changed(id));
            }
        }
    }

    pub(super) fn view(
        &mut self,
        id: &ViewId,
        revision: Revision,
        effects: &mut Vec<MirrorEffect>,
    ) -> &SharedView {
        self.views.entry(id.clone()).or_insert_with(|| {
            let (id, incarnation) = (id.clone(), self.incarnation.clone());
            let kept = match self.reading {
                // Nothing of it can have been missed.
                Reading::Live => {
                    let before = Revision(revision.0.saturating_sub(1));
                    MirroredView::live(id.clone(), incarnation, before, &self.config)
                }
                _ => MirroredView::reading(id.clone(), incarnation, &self.config),
            };
            let kept = Arc::new(RwLock::new(kept));
            effects.push(MirrorEffect::Added(id, Arc::clone(&kept)));
            kept
        })
    }
}

//! What is written next, and what of it is in the log.

use super::*;

impl Book {
    /// What to write next, if anything. Asking again says that what was handed out is done.
    pub(crate) fn next_work(&mut self, now: Instant) -> Option<Work> {
        let work = self.take_work(now);
        self.at_work = work.is_some();
        work
    }

    fn take_work(&mut self, now: Instant) -> Option<Work> {
        let mut batch = Batch::default();
        while let Some(item) = self.queue.front() {
            if batch.records.len() == BATCH_MESSAGES_MAX || !self.fits(item, &batch) {
                break;
            }
            if let Item::Purge(view) = item {
                if !batch.records.is_empty() {
                    break; // It follows the batch that says that the view is dropped.
                }
                let view = view.clone();
                self.queue.pop_front();
                return Some(Work::Purge(view));
            }
            if let Some(item) = self.queue.pop_front() {
                self.take(item, now, &mut batch);
            }
        }
        (!batch.records.is_empty()).then_some(Work::Append(batch))
    }

    fn fits(&self, item: &Item, batch: &Batch) -> bool {
        match item {
            Item::Change { tenure, key } => {
                let next = self
                    .views
                    .get(&tenure.view)
                    .map_or(0, |ledger| ledger.next_bytes(key));
                batch.records.is_empty() || batch.body_bytes + next <= BATCH_BYTES_MAX
            }
            // One subject is written once in a batch.
            Item::Control {
                tenure: Tenure { view, .. },
                ..
            } => !has_control(batch, view),
            Item::Dropped(record) => !has_control(batch, &record.view),
            Item::Purge(_) => true,
        }
    }

    fn take(&mut self, item: Item, now: Instant, batch: &mut Batch) {
        match item {
            Item::Change { tenure, key } => {
                let Some(ledger) = self.ledger(&tenure) else {
                    return;
                };
                let Some(taken) = ledger.take(&tenure.view, &key) else {
                    return;
                };
                if taken.delta.is_some() {
                    let oldest = ledger.in_flight_since.get_or_insert(taken.since);
                    *oldest = taken.since.min(*oldest);
                }
                self.pending_bytes -= taken.body_bytes;
                if let Some(delta) = taken.delta {
                    batch.body_bytes += taken.body_bytes;
                    let record = Record::Delta {
                        view: tenure.view,
                        delta,
                    };
                    batch.records.push((record, taken.span));
                }
            }
            Item::Control {
                tenure,
                state,
                version,
            } => {
                let Some(ledger) = self.ledger(&tenure) else {
                    return;
                };
                ledger.told.at = Some(now);
                ledger.told.outdated = false;
                let record = ledger.record(tenure.view.clone(), state, version);
                batch.records.push((Record::Control(record), Span::none()));
            }
            Item::Dropped(record) => batch.records.push((Record::Control(*record), Span::none())),
            Item::Purge(_) => {}
        }
    }

    /// The batch is in the log, its last record at `last`. Says whether the state of a view changed
    /// for its readers.
    pub(crate) fn written(&mut self, batch: &Batch, last: Revision) -> bool {
        let mut changed = false;
        let first = last.0 + 1 - batch.records.len() as u64;
        for (at, (record, _)) in batch.records.iter().enumerate() {
            let Some(ledger) = self.views.get_mut(record.view()) else {
                continue;
            };
            ledger.revision = Revision(first + at as u64);
            ledger.in_flight_since = None;
            if let Record::Control(record) = record
                && record.epoch == ledger.epoch
            {
                changed |= ledger.told.state.as_ref() != Some(&record.state);
                ledger.told.state = Some(record.state.clone());
            }
        }
        changed
    }

    /// Control records that are due although no state changed, so that readers can compare.
    pub(crate) fn refresh(&mut self, now: Instant) {
        let due = self.views.iter().filter(|(_, ledger)| {
            let Some(at) = ledger.told.at else {
                return false;
            };
            let outdated = ledger.told.outdated;
            let after = if outdated {
                CONTROL_AFTER_CHANGE
            } else {
                CONTROL_WITHOUT_CHANGE
            };
            now.saturating_duration_since(at) >= after
        });
        let due: Vec<_> = due
            .map(|(view, ledger)| {
                let tenure = Tenure {
                    view: view.clone(),
                    epoch: ledger.epoch,
                };
                (tenure, ledger.state.clone(), ledger.version.clone())
            })
            .collect();
        for (tenure, state, version) in due {
            if let Some(ledger) = self.ledger(&tenure) {
                ledger.told.at = None; // Not again before this one is written.
            }
            self.control(&tenure, state, version);
        }
    }
}

fn has_control(batch: &Batch, view: &ViewId) -> bool {
    let mut records = batch.records.iter();
    records.any(|(record, _)| matches!(record, Record::Control(r) if r.view == *view))
}

//! The coordinator's decisions: events of the API server, the log and heartbeats go in, effects come out.
//! Pure: it has no clock and does no IO, and only passes each event on to the parts that it concerns.
//!
//! ```text
//! manifests ─▶ EntryStore, PolicyStore, exceptions ─▶ Resolver ─▶ Registry ─▶ writes, calls
//! log, beats ─▶ ViewStatusTable ─────────────────┬────────────────────┘
//! beats of webhooks ─▶ EnforcementTracker ───────┴─▶ StatusReporter ─▶ statuses
//! ```

mod held_versions;
mod notes;
mod waiting;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::LogEvent;
use anteroom_model::{
    EntryKind, EntryRecord, EntryState, Failure, Incarnation, KindRecord, ObjectKey, Revision,
    ViewId, source_reason,
};
use anteroom_policy::WRITER;
use anteroom_wire::{beat::Beat, replica_beat::ReplicaBeat, webhook_beat::WebhookBeat};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    effect::{CoordinatorEffect, Record, SystemView, Write},
    enforcement::{EnforcementTracker, PositionOf},
    entry_store::EntryStore,
    exception_store::{ExceptionKind, ExceptionStore},
    manifests::{EntryManifest, PolicyManifest},
    policies_in_log::PoliciesInLog,
    policy_store::{PolicyId, PolicyStore},
    quotas::Quotas,
    registry::{self, EntryId, Event, Registry},
    resolver::{Options, Resolver},
    status::{
        reporter::{StatusInputs, StatusReporter},
        views::ViewStatusTable,
    },
};
use crate::{
    gateway::rights::{self, WriterUser},
    source::discovery::ServedResources,
};

use held_versions::HeldVersion;
use waiting::WaitingPolicies;

/// Reasons that may vanish when the API server serves other kinds.
const AWAITED: [&str; 4] = [
    source_reason::AMBIGUOUS_RESOURCE,
    source_reason::GROUP_UNAVAILABLE,
    source_reason::NOT_WATCHABLE,
    source_reason::RESOURCE_NOT_FOUND,
];

/// The time that a term waits to learn as whom it writes, before the user that an earlier term published is dropped.
const WRITER_WAIT: Duration = Duration::from_secs(15);

/// The time that a term waits for the lists of policies, before it puts policies in force that were not.
const LISTS_WAIT: Duration = Duration::from_secs(15);

/// The coordinator's knowledge in a term.
pub(super) struct Reconciler {
    options: Options,
    /// The begin of the term.
    begun: Instant,
    entries: EntryStore,
    policies: PolicyStore,
    exceptions: ExceptionStore,
    quotas: Quotas,
    held_back: BTreeMap<PolicyId, HeldVersion>,
    /// Versions that are held back because they do not compile, as they were read.
    uncompiled: BTreeMap<PolicyId, PolicyManifest>,
    waiting: WaitingPolicies,
    /// Policies that earlier terms left in the log, and that this term has not read.
    inherited: PoliciesInLog,
    registry: Registry,
    views: ViewStatusTable,
    enforcement: EnforcementTracker,
    reporter: StatusReporter,
    served: Option<Arc<ServedResources>>,
    /// Answers to [`CoordinatorEffect::NeedRights`].
    rights: rights::LackingRights,
    /// The user as whom this watcher writes.
    writer: WriterUser,
    /// Entries, policies and kinds were all read once: views that nothing needs are dropped from now on.
    settled: bool,
    effects: Vec<CoordinatorEffect>,
}

impl Reconciler {
    /// Returns the reconciler of a term that begins now and writes this log.
    pub(super) fn new(options: Options, log: Incarnation, now: Instant) -> Self {
        let mut reconciler = Self {
            begun: now,
            entries: EntryStore::default(),
            policies: PolicyStore::default(),
            exceptions: ExceptionStore::default(),
            quotas: Quotas::default(),
            held_back: BTreeMap::new(),
            uncompiled: BTreeMap::new(),
            waiting: WaitingPolicies::default(),
            inherited: PoliciesInLog::new(),
            registry: Registry::default(),
            views: ViewStatusTable::default(),
            enforcement: EnforcementTracker::new(log),
            reporter: StatusReporter::default(),
            served: None,
            rights: rights::LackingRights::new(),
            writer: WriterUser::default(),
            settled: false,
            effects: Vec::new(),
            options,
        };
        if let Some(record) = reconciler.options.cache_api_calls.record() {
            reconciler.publish_entry(&record);
        }
        if !reconciler.options.reads_exceptions {
            for kind in ExceptionKind::ALL {
                reconciler.no_exceptions(kind, now);
            }
        }
        reconciler
    }

    /// Returns the effects of the events since the last call, in order.
    pub(super) fn take_effects(&mut self) -> Vec<CoordinatorEffect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns how many entries there are, implicit ones included.
    pub(super) fn entry_count(&self) -> usize {
        self.registry.len()
    }

    /// Returns whether something may begin to be served that an entry waits for.
    pub(super) fn waits_for_api(&self) -> bool {
        self.registry.entries().any(|record| match &record.state {
            EntryState::Invalid { failure } => AWAITED.contains(&failure.reason.as_str()),
            EntryState::Bound(_) => false,
        })
    }

    /// Returns whether any policy waits for the log to be written.
    pub(super) fn awaits_log(&self) -> bool {
        self.enforcement.is_awaited()
    }

    /// Takes the kinds that the API server serves, after they were read.
    pub(super) fn discovered(&mut self, served: Arc<ServedResources>, now: Instant) {
        let records = served.resources.iter().map(|resource| &resource.record);
        let records = records.filter_map(|record| Record::encode(kind_key(record), record));
        self.write(SystemView::Kinds, Write::Replace(records.collect()));
        let unenforced = self.enforcement.discovered();
        self.reporter.policies_changed(unenforced);
        let changed = self.served.as_ref() != Some(&served);
        let before = self.served.replace(served);
        if changed {
            self.kinds_changed(before.as_deref());
            self.resolve_entries(|_| true);
            let references: Vec<_> = self.registry.references().cloned().collect();
            for referred in references {
                if let Some(event) = self.meaning(&referred) {
                    self.apply(event);
                }
            }
            for (uid, needed) in self.resolver().scanned_again() {
                self.apply(Event::Policy(uid, needed));
            }
        }
        self.settle(now);
    }

    /// Looks again at policies that name a kind that is not served, or was not `before`.
    fn kinds_changed(&mut self, before: Option<&ServedResources>) {
        let both = [before, self.served.as_deref()];
        let concerned = self.policies.iter().filter(|(_, policy)| {
            let mut both = both.into_iter();
            both.any(|served| policy.unserved_kinds(served).next().is_some())
        });
        let concerned: Vec<_> = concerned.map(|(key, _)| PolicyId(key.clone())).collect();
        self.reporter.policies_changed(concerned);
    }

    /// Takes a control record of the log.
    pub(super) fn log(&mut self, event: LogEvent) {
        self.views.log(event);
    }

    /// Takes a heartbeat of a watcher that writes views.
    pub(super) fn leader_beat(&mut self, beat: Beat, now: Instant) {
        self.views.beat(beat, now);
    }

    /// Takes a replica's heartbeat.
    pub(super) fn replica_beat(&mut self, beat: ReplicaBeat, now: Instant) {
        for (view, age_ms) in &beat.ages_ms {
            if let Some(good) = now.checked_sub(Duration::from_millis(*age_ms)) {
                self.effects
                    .push(CoordinatorEffect::AnswerAgeReported(view.clone(), good));
            }
        }
        self.views.replica(beat, now);
        let waiting = self.enforcement.waiting_for_views();
        self.reporter.policies_changed(waiting);
    }

    /// Takes a webhook's heartbeat.
    pub(super) fn webhook_beat(&mut self, beat: WebhookBeat, now: Instant) {
        let again = self.enforcement.webhook_beat(beat, now);
        self.reporter.policies_changed(again);
    }

    /// Notes the known end of the log.
    pub(super) fn log_ends_at(&mut self, end: Revision) {
        self.enforcement.log_ends_at(end);
    }

    /// Returns whether the end of the log is to be asked for.
    pub(super) fn doubts_end(&self) -> bool {
        self.enforcement.doubts_end()
    }

    /// Notes that the log has new records.
    pub(super) fn log_written(&mut self) {
        let waiting = self.enforcement.waiting_for_log();
        self.reporter.policies_changed(waiting);
    }

    /// Takes the watcher's rights, as far as they are known.
    pub(super) fn rights_found(&mut self, found: rights::LackingRights) {
        self.rights = found;
        let changing = self.policies.changing_existing();
        self.reporter.policies_changed(changing);
    }

    /// Takes the user as which this watcher writes. Webhooks need it, since this user's writes are no triggers.
    pub(super) fn writer_found(&mut self, writer: WriterUser, now: Instant) {
        if let WriterUser::Known(user) = &writer {
            self.publish_entry(&EntryRecord {
                kind: EntryKind::Implicit,
                name: WRITER.to_owned(),
                uid: String::new(),
                generation: 0,
                state: EntryState::Invalid {
                    failure: Failure::new("Writer", user.clone()),
                },
                projections: Vec::new(),
            });
        }
        self.writer = writer;
        self.settle(now);
    }

    /// Notes that webhooks are heard from now on: a live webhook may not have been heard yet.
    pub(super) fn listens_to_webhooks(&mut self, now: Instant) {
        self.enforcement.listen(now);
    }

    /// Lets a second pass.
    pub(super) fn tick(&mut self, now: Instant) {
        if !self.settled {
            self.settle(now); // What it waits for may not come.
        }
        if now.saturating_duration_since(self.begun) >= LISTS_WAIT {
            self.take_new_policies();
        }
        self.try_all_waiting();
        self.try_held_back();
        let again = self.enforcement.tick(now);
        self.reporter.policies_changed(again);
        self.views.tick(now);
        self.reporter.tick(&self.entries);
    }

    /// Brings the statuses up to date of everything that changed. Call it when no event waits.
    pub(super) fn update_statuses(
        &mut self,
        position: &PositionOf<'_>,
        now: Instant,
        clock: Timestamp,
    ) {
        for (view, state_changed) in self.views.take_changed() {
            let (registry, policies) = (&self.registry, &self.policies);
            self.reporter
                .view_changed(&view, state_changed, registry, policies);
            let failure = self.views.failure(&view).filter(|_| state_changed);
            // Entries that are not to be asked for again let go of a view that is forbidden.
            if let Some(failure) =
                failure.filter(|failure| failure.reason == source_reason::FORBIDDEN)
            {
                let failure = failure.clone();
                self.apply(Event::Forbidden(view, failure));
            }
        }
        let inputs = StatusInputs {
            entries: &self.entries,
            policies: &self.policies,
            registry: &self.registry,
            views: &self.views,
            rights: &self.rights,
            served: self.served.as_deref(),
            position,
            now,
            clock,
        };
        self.reporter
            .update(&inputs, &mut self.enforcement, &mut self.effects);
    }

    fn write(&mut self, view: SystemView, write: Write) {
        self.effects.push(CoordinatorEffect::Write(view, write));
    }

    fn put(&mut self, view: SystemView, record: Option<Record>) {
        if let Some(record) = record {
            self.write(view, Write::put(record));
        }
    }

    fn publish_entry(&mut self, record: &EntryRecord) {
        let record = Record::encode(record.kind.key(&record.name), record);
        self.put(SystemView::Entries, record);
    }

    fn resolver(&self) -> Resolver<'_> {
        Resolver {
            served: self.served.as_deref(),
            policies: &self.policies,
            options: &self.options,
        }
    }

    fn resolve(&mut self, entry: &EntryManifest) {
        if let Some(claim) = self.resolver().entry(entry) {
            self.apply(Event::Entry(Box::new(claim)));
        }
    }

    fn resolve_entries(&mut self, condition: impl Fn(&EntryManifest) -> bool) {
        let entries = self.entries.iter().filter(|entry| condition(entry));
        let resolver = self.resolver();
        let claims: Vec<_> = entries.filter_map(|entry| resolver.entry(entry)).collect();
        for claim in claims {
            self.apply(Event::Entry(Box::new(claim)));
        }
    }

    fn meaning(&self, referred: &registry::Referred) -> Option<Event> {
        let id = (EntryKind::Implicit, referred.name.clone());
        let dependents = self.registry.dependents(&id);
        let resolution = self.resolver().reference(referred, dependents)?;
        Some(Event::Reference(id.1, resolution))
    }

    /// Applies an event to the registry, and carries out its effects.
    fn apply(&mut self, event: Event) {
        use registry::RegistryEffect as Needed;
        let mut effects = VecDeque::from(self.registry.apply(event));
        while let Some(effect) = effects.pop_front() {
            match effect {
                Needed::OpenView(wanted) => {
                    let view = wanted.info.source.view_id();
                    tracing::info!(%view, "view requested: an entry or a policy needs it");
                    let record = Record::encode(view_key(&view), &*wanted);
                    self.put(SystemView::DesiredViews, record);
                }
                Needed::CloseView(view) => {
                    tracing::info!(%view, "view released: no entry or policy needs it any more");
                    self.write(SystemView::DesiredViews, Write::delete(view_key(&view)));
                }
                Needed::Call(info, spec) => {
                    self.effects.push(CoordinatorEffect::StartCall(info, spec));
                }
                Needed::EndCall(view) => self.effects.push(CoordinatorEffect::StopCall(view)),
                Needed::Refer(reference) => {
                    let record = Record::encode(reference.key(), &reference);
                    self.put(SystemView::References, record);
                }
                Needed::Unrefer(reference) => {
                    self.write(SystemView::References, Write::delete(reference.key()));
                }
                Needed::Publish(record) => self.publish_entry(&record),
                Needed::Remove((kind, name)) => {
                    self.write(SystemView::Entries, Write::delete(kind.key(&name)));
                }
                Needed::Resolve(referred) => {
                    if let Some(event) = self.meaning(&referred) {
                        effects.extend(self.registry.apply(event));
                    }
                }
                Needed::Changed(id) => {
                    self.reporter.look_at(&id, &self.registry, &self.policies);
                    effects.extend(self.joined(&id));
                }
            }
        }
    }

    /// Lets an entry that is not to be asked for again let go of a view that it has just joined, and that is
    /// forbidden already: nothing changes of the view, so nothing would tell.
    fn joined(&mut self, id: &EntryId) -> Vec<registry::RegistryEffect> {
        let view = self.registry.joined_and_stops(id);
        let failure = view.and_then(|view| self.views.failure(view));
        match (view.cloned(), failure.cloned()) {
            (Some(view), Some(failure)) if failure.reason == source_reason::FORBIDDEN => {
                self.registry.apply(Event::Forbidden(view, failure))
            }
            _ => Vec::new(),
        }
    }

    /// Frees all other views, once all desired ones are known.
    fn settle(&mut self, now: Instant) {
        let known =
            self.entries.are_known() && self.policies.are_known() && self.exceptions.are_settled();
        let awaits_writer = is_awaited(&self.writer, now.saturating_duration_since(self.begun));
        // A policy that has no turn yet may need views of an earlier term.
        if !known || self.waiting.has_first_turns() || self.served.is_none() || awaits_writer {
            return;
        }
        for view in FOLLOWING {
            self.write(view, Write::Listed);
        }
        if self.exceptions.are_absent() {
            // That there are none is as new as what was listed: a quiet watch may bring nothing but lists.
            self.write(SystemView::Exceptions, Write::Heard(now));
        }
        if !std::mem::replace(&mut self.settled, true) {
            self.effects.push(CoordinatorEffect::FreeInherited);
        }
    }
}

/// The views that follow from manifests alone. Desired views are written before the bindings of entries to them, as
/// with every change.
const FOLLOWING: [SystemView; 3] = [
    SystemView::DesiredViews,
    SystemView::References,
    SystemView::Entries,
];

/// Returns whether the writing user of an earlier term is kept for now.
fn is_awaited(writer: &WriterUser, since: Duration) -> bool {
    *writer == WriterUser::Unknown && since < WRITER_WAIT
}

fn view_key(view: &ViewId) -> ObjectKey {
    ObjectKey::new("", view.as_str())
}

/// The key of a kind, as in `Ingress.v1.networking.k8s.io`.
fn kind_key(record: &KindRecord) -> ObjectKey {
    let gvr = &record.gvr;
    let mut name = format!("{}.{}", record.kind, gvr.version);
    if !gvr.group.is_empty() {
        name.push('.');
        name.push_str(&gvr.group);
    }
    ObjectKey::new("", name)
}

#[cfg(test)]
mod tests;

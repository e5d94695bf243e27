//! Ready means enforced: whether the webhooks decide by a policy, and can.
//!
//! A policy that compiles, and whose entries and references are synced, has a *place* in the log: behind
//! the policy itself, what it reads, and the kinds that it speaks of. Once every webhook says that it
//! enforces the log up to there, and a replica answers for each view, the policy is in force.

use std::{collections::BTreeSet, time::Instant};

use anteroom_model::{EntryKind, Failure, ObjectKey, ResourceVersion, Revision, ViewId};
use anteroom_wire::webhook_beat::WebhookBeat;

use super::{Controller, policies::PolicyId};
use crate::{
    conditions::{self, Ready},
    manifests::PolicyManifest,
    webhooks::NOT_ENFORCED,
};

/// How long a new policy may be on its way before its author is told that it is: as a rule it is in
/// force before.
const TELL_AFTER: std::time::Duration = std::time::Duration::from_millis(900);

/// So often is it read what is served before a kind counts as not served.
const READS_MIN: u64 = 2;

/// Where a policy stands.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// Of which object.
    uid: String,
    generation: i64,
    /// Of which content: more than the generation speaks of.
    version: ResourceVersion,
    /// Its place in the log; `None`: it is on its way there.
    place: Option<Revision>,
    /// It has been in force.
    established: bool,
    /// Since when it could be.
    since: Instant,
    /// No replica serves what it reads.
    unserved_view: bool,
    /// It names a kind that was not served, after so many reads of what is served.
    unserved: Option<u64>,
}

/// What a policy reads.
pub(super) struct Reads {
    /// Records of the system view of entries.
    pub(super) records: Vec<ObjectKey>,
    /// Views that have to be served, each with what it is read as.
    pub(super) views: Vec<(ViewId, String)>,
}

impl Standing {
    /// Of a policy that could be in force since now, whose author was told `said` last.
    fn new(policy: &PolicyManifest, now: Instant) -> Self {
        let generation = policy.identity.generation;
        let said = conditions::find(&policy.conditions);
        let established = said.is_some_and(|said| {
            said.status == "True" && said.observed_generation == Some(generation)
        });
        Self {
            uid: policy.identity.uid.clone(),
            generation,
            version: policy.version.clone(),
            place: None,
            established,
            since: now,
            unserved_view: false,
            unserved: None,
        }
    }

    fn is_of(&self, policy: &PolicyManifest) -> bool {
        self.uid == policy.identity.uid && self.generation == policy.identity.generation
    }
}

impl Controller {
    /// A webhook says how far it enforces.
    pub(super) fn webhook_heard(&mut self, beat: WebhookBeat) {
        if self.webhooks.heard(beat, Instant::now()) {
            self.dirty.policies.extend(self.unenforced.iter().cloned());
            let refused = self.webhooks.refused().map(PolicyId);
            self.dirty.policies.extend(refused);
            if self.webhooks.refuse_more() {
                let of_roster = |id: &&PolicyId| {
                    let policy = self.policy_feed(id).roster.get(&id.0);
                    policy.is_some_and(|policy| policy.has_conditions)
                };
                let unnamed: Vec<_> = self.standings.keys().filter(of_roster).cloned().collect();
                self.dirty.policies.extend(unnamed);
            }
        }
    }

    /// A replica was heard. The entry on a view is ready before any replica serves it, so nothing else
    /// would tell.
    pub(super) fn served_may_be(&mut self) {
        let waits = |id: &&PolicyId| self.standings.get(*id).is_some_and(|s| s.unserved_view);
        let waiting: Vec<_> = self.unenforced.iter().filter(waits).cloned().collect();
        self.dirty.policies.extend(waiting);
    }

    /// Time has passed.
    pub(super) fn webhooks_tick(&mut self, now: Instant) {
        // Who cannot be heard is not away.
        let out_of_reach = *self.tools.bus.connection().borrow() == anteroom_bus::Connection::Down;
        if out_of_reach {
            self.webhooks.listen(now);
        }
        self.webhooks.tick(now);
        let away = self.webhooks.are_away(now);
        if away && !self.webhooks_away {
            self.dirty.policies.extend(self.standings.keys().cloned());
        }
        self.webhooks_away = away;
        self.dirty.policies.extend(self.unenforced.iter().cloned());
    }

    /// What is to be said of a policy that is ready but for its enforcement; `None`: nothing yet.
    pub(super) fn enforced(
        &mut self,
        id: &PolicyId,
        policy: &PolicyManifest,
        reads: &Reads,
        ready: Ready,
        now: Instant,
    ) -> Option<Ready> {
        let standing = self
            .standings
            .remove(id)
            .filter(|known| known.is_of(policy));
        let mut standing = standing.unwrap_or_else(|| Standing::new(policy, now));
        if standing.version != policy.version {
            standing.version = policy.version.clone();
            standing.place = None;
        }
        let refused = match policy.has_conditions {
            true => self.called_for(id, reads, &mut standing),
            false => Ok(()),
        };
        let found = match standing.established {
            _ if refused.is_err() => refused,
            true => self.webhooks.still_enforce(now),
            false => match self.kinds_known(policy, &mut standing) {
                Ok(()) => self.enforcement(id, reads, &mut standing, now),
                unknown => unknown,
            },
        };
        let told = match found {
            Ok(()) => {
                standing.established = true;
                self.unenforced.remove(id);
                Some(ready)
            }
            Err(failure) => {
                standing.established = false;
                self.unenforced.insert(id.clone());
                let said = conditions::find(&policy.conditions);
                // Of an older generation that was in force, it is said at once.
                let early = failure.reason == NOT_ENFORCED
                    && now.saturating_duration_since(standing.since) < TELL_AFTER
                    && said.is_none_or(|said| said.status != "True");
                (!early).then(|| Ready::new("False", failure, ready.generation))
            }
        };
        self.standings.insert(id.clone(), standing);
        told
    }

    /// Whether the API server takes the policy's conditions, as far as anybody says.
    fn called_for(
        &self,
        id: &PolicyId,
        reads: &Reads,
        standing: &mut Standing,
    ) -> Result<(), Failure> {
        if standing.place.is_none() {
            standing.place = self.place(id, reads);
        }
        let log = &self.tools.incarnation;
        standing
            .place
            .map_or(Ok(()), |place| self.webhooks.call_for(&id.0, log, place))
    }

    /// The policy could not be in force: what it waits for is something else, or it is gone.
    pub(super) fn not_to_enforce(&mut self, id: &PolicyId) {
        self.standings.remove(id);
        self.unenforced.remove(id);
    }

    /// A kind that is not served may be one that has just begun to be: its definition was made a moment
    /// before the policy. So what is served is read anew, twice, since a read may be under way.
    fn kinds_known(&self, policy: &PolicyManifest, standing: &mut Standing) -> Result<(), Failure> {
        let catalog = self.catalog.as_deref();
        let unserved = policy.kinds.iter().find(|kind| {
            let literal = !kind.kind.contains(['*', '?']);
            literal && !catalog.is_some_and(|catalog| catalog.serves(kind))
        });
        let Some(kind) = unserved else {
            return Ok(());
        };
        let since = *standing.unserved.get_or_insert(self.catalogs_read);
        if self.catalogs_read >= since + READS_MIN {
            return Ok(());
        }
        self.tools.discovery.nudge.notify_one();
        standing.place = None; // The kinds may be written again.
        Err(Failure::new(
            NOT_ENFORCED,
            format!(
                "the API server is asked whether it serves the kind `{}`",
                kind.kind
            ),
        ))
    }

    fn enforcement(
        &self,
        id: &PolicyId,
        reads: &Reads,
        standing: &mut Standing,
        now: Instant,
    ) -> Result<(), Failure> {
        if standing.place.is_none() {
            standing.place = self.place(id, reads);
        }
        let log = &self.tools.incarnation;
        self.webhooks.enforce(log, standing.place, now)?;
        let unserved = |view: &ViewId| self.board.holders(view, now).serving == 0;
        let first = reads.views.iter().find(|(view, _)| unserved(view));
        standing.unserved_view = first.is_some();
        match first {
            None => Ok(()),
            Some((view, name)) => Err(Failure::new(
                NOT_ENFORCED,
                format!("no replica answers yet for view {view} of `{name}`"),
            )),
        }
    }

    /// The position of the log up to which it has the policy, what the policy reads, and what the API
    /// server serves; `None`: some of that is on its way there.
    fn place(&self, id: &PolicyId, reads: &Reads) -> Option<Revision> {
        let own = &self.own;
        self.tools.publisher.look(|book| {
            let policy = book.logged(&own.policies, std::slice::from_ref(&id.0))?;
            let entries = book.logged(&own.entries, &reads.records)?;
            let kinds = book.all_logged(&own.kinds)?;
            Some(policy.max(entries).max(kinds))
        })
    }

    /// The policies whose place in the log is not known yet are looked at again: something was written.
    pub(super) fn log_written(&mut self) {
        let placeless = |id: &&PolicyId| self.standings.get(*id).is_some_and(|s| s.place.is_none());
        let placeless: BTreeSet<_> = self.unenforced.iter().filter(placeless).cloned().collect();
        self.dirty.policies.extend(placeless);
    }

    /// What has to be served for a policy: of a `GlobalContextEntry` nothing, as it is ready without.
    pub(super) fn reads(&self, policy: &PolicyManifest, key: &ObjectKey) -> Reads {
        let declared = policy.references.iter().filter(|r| r.is_declared());
        let declared = declared.map(|r| (EntryKind::Implicit, r.name_for(key)));
        let named = policy.entries.iter().cloned();
        let mut reads = Reads {
            records: Vec::new(),
            views: Vec::new(),
        };
        for id in named.chain(declared) {
            let Some(record) = self.registry.entry(&id) else {
                continue;
            };
            reads.records.push(id.0.key(&id.1));
            if let (true, Ok(binding)) = (id.0 != EntryKind::Global, record.binding()) {
                reads.views.push((binding.view.clone(), id.1));
            }
        }
        reads
    }
}

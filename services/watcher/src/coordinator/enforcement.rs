//! Ready means enforced: whether the webhooks decide by a policy, and can. Pure.
//!
//! A policy that compiles, and whose entries and references are synced, has a *position* in the log: behind the
//! policy itself, the records that it reads, and the kinds that it matches. Once every webhook enforces the log up to
//! this position, and a replica answers for each view, the policy is in force.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use anteroom_model::{
    EntryKind, Failure, Incarnation, ObjectKey, ResourceVersion, Revision, ViewId,
};
use anteroom_wire::webhook_beat::WebhookBeat;
use tokio::time::Instant;

use super::{
    effect::CoordinatorEffect,
    manifests::PolicyManifest,
    policy_store::PolicyId,
    registry::Registry,
    status::{conditions::Ready, views::ViewStatusTable},
    webhooks::{NOT_ENFORCED, Webhooks},
};
use crate::source::discovery::ServedResources;

/// The time after which the status of a new policy says that it is not in force yet; most policies are in force
/// before that.
const REPORT_AFTER: Duration = Duration::from_millis(900);

/// The number of times that the kinds are read before one counts as not served.
const DISCOVERIES_MIN: u64 = 2;

/// Returns a position of the log up to which it has a policy, these records of entries, and all kinds;
/// `None`: some of that is still on its way.
pub(super) type PositionOf<'a> = dyn Fn(&ObjectKey, &[ObjectKey]) -> Option<Revision> + 'a;

/// The policies that are in force, or on their way.
pub(super) struct EnforcementTracker {
    log: Incarnation,
    webhooks: Webhooks,
    /// There has been no webhook for long.
    webhooks_away: bool,
    /// The policies that are in force, or could be but for the webhooks.
    standings: HashMap<PolicyId, PolicyProgress>,
    /// The policies that are not in force yet.
    unenforced: BTreeSet<PolicyId>,
    /// The number of times that the kinds were read.
    discoveries: u64,
}

/// A policy's progress towards being in force.
#[derive(Clone, Debug)]
struct PolicyProgress {
    uid: String,
    generation: i64,
    /// The hash of its content, which covers more than the generation.
    version: ResourceVersion,
    /// The policy's position in the log; `None`: its record is not written yet.
    position: Option<Revision>,
    /// The policy has been in force.
    established: bool,
    /// The time since which the policy could be in force.
    since: Instant,
    /// No replica serves a view that the policy reads.
    unserved_view: bool,
    /// The policy names a kind that was not served when the kinds had been read this often.
    unserved_kind_since: Option<u64>,
}

/// The records and views that have to be served for a policy to be in force.
#[derive(Debug, Default)]
pub(super) struct RequiredReads {
    /// Records of the system view of entries.
    pub records: Vec<ObjectKey>,
    /// The views, each with the name under which the policy reads the view.
    pub views: Vec<(ViewId, String)>,
}

/// All that enforcement depends on beside webhooks.
pub(super) struct Surroundings<'a> {
    pub views: &'a ViewStatusTable,
    pub served: Option<&'a ServedResources>,
    pub position: &'a PositionOf<'a>,
    pub now: Instant,
}

impl PolicyProgress {
    /// Returns the standing of a policy that could be in force from now on.
    fn new(policy: &PolicyManifest, now: Instant) -> Self {
        let generation = policy.identity.generation;
        let said = policy.enforcement_condition();
        let established = said.is_some_and(|said| {
            said.status == "True" && said.observed_generation == Some(generation)
        });
        Self {
            uid: policy.identity.uid.clone(),
            generation,
            version: policy.version.clone(),
            position: None,
            established,
            since: now,
            unserved_view: false,
            unserved_kind_since: None,
        }
    }

    fn is_of(&self, policy: &PolicyManifest) -> bool {
        self.uid == policy.identity.uid && self.generation == policy.identity.generation
    }
}

impl RequiredReads {
    /// Returns the records and views that a policy needs before it is enforced. Views of `GlobalContextEntry` are not
    /// among them, since the policy is ready without them.
    pub(super) fn of(policy: &PolicyManifest, id: &PolicyId, registry: &Registry) -> Self {
        let declared = policy.references.iter().filter(|r| r.is_declared());
        let declared = declared.map(|r| (EntryKind::Implicit, r.name_for(&id.0)));
        let mut reads = Self::default();
        for id in policy.entries.iter().cloned().chain(declared) {
            let Some(record) = registry.entry(&id) else {
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

impl EnforcementTracker {
    /// Returns a tracker of no policies, for this log.
    pub(super) fn new(log: Incarnation) -> Self {
        Self {
            log,
            webhooks: Webhooks::default(),
            webhooks_away: false,
            standings: HashMap::new(),
            unenforced: BTreeSet::new(),
            discoveries: 0,
        }
    }

    /// Returns whether any policy waits to be in force.
    pub(super) fn is_awaited(&self) -> bool {
        !self.unenforced.is_empty()
    }

    /// Takes a webhook's heartbeat. Returns the policies to look at again.
    pub(super) fn webhook_beat(&mut self, beat: WebhookBeat, now: Instant) -> BTreeSet<PolicyId> {
        match self.webhooks.take_beat(beat, now) {
            true => self.unenforced.clone(),
            false => BTreeSet::new(),
        }
    }

    /// Notes the known end of the log.
    pub(super) fn log_ends_at(&mut self, end: Revision) {
        self.webhooks.log_ends_at(end);
    }

    /// Returns whether a policy waits, and a webhook names a position beyond the known end of the log.
    pub(super) fn doubts_end(&self) -> bool {
        self.is_awaited() && self.webhooks.is_any_beyond(&self.log)
    }

    /// Returns the policies that wait for a view to be served. The entry on a view is ready before any replica
    /// serves the view, so only the replica's heartbeat tells.
    pub(super) fn waiting_for_views(&self) -> Vec<PolicyId> {
        self.waiting(|standing| standing.unserved_view)
    }

    /// Returns the policies whose position in the log is not known yet.
    pub(super) fn waiting_for_log(&self) -> Vec<PolicyId> {
        self.waiting(|standing| standing.position.is_none())
    }

    fn waiting(&self, condition: impl Fn(&PolicyProgress) -> bool) -> Vec<PolicyId> {
        let waits = |id: &&PolicyId| self.standings.get(*id).is_some_and(&condition);
        self.unenforced.iter().filter(waits).cloned().collect()
    }

    /// Notes that the kinds were read again. Returns the policies to look at again.
    pub(super) fn discovered(&mut self) -> BTreeSet<PolicyId> {
        self.discoveries += 1;
        self.unenforced.clone()
    }

    /// Notes that webhooks are listened to from now on, be it again.
    pub(super) fn listen(&mut self, now: Instant) {
        self.webhooks.listen(now);
    }

    /// Lets time pass. Returns the policies to look at again.
    pub(super) fn tick(&mut self, now: Instant) -> BTreeSet<PolicyId> {
        self.webhooks.tick(now);
        let away = self.webhooks.are_away(now);
        let mut again = self.unenforced.clone();
        if away && !self.webhooks_away {
            again.extend(self.standings.keys().cloned());
        }
        self.webhooks_away = away;
        again
    }

    /// Forgets a policy: it could not be in force for another reason, or it is gone.
    pub(super) fn forget(&mut self, id: &PolicyId) {
        self.standings.remove(id);
        self.unenforced.remove(id);
    }

    /// Returns the condition of a policy that only has to be enforced to be ready; `None`: the condition stays as it
    /// is for now.
    pub(super) fn judge(
        &mut self,
        id: &PolicyId,
        policy: &PolicyManifest,
        reads: &RequiredReads,
        ready: Ready,
        around: &Surroundings<'_>,
        effects: &mut Vec<CoordinatorEffect>,
    ) -> Option<Ready> {
        let now = around.now;
        let standing = self.standings.remove(id);
        let standing = standing.filter(|known| known.is_of(policy));
        let mut standing = standing.unwrap_or_else(|| PolicyProgress::new(policy, now));
        if standing.version != policy.version {
            standing.version = policy.version.clone();
            standing.position = None;
        }
        let found = match standing.established {
            true => self.webhooks.still_enforce(now),
            false => match self.kinds_known(policy, &mut standing, around, effects) {
                Ok(()) => self.enforcement(id, reads, &mut standing, around),
                unknown => unknown,
            },
        };
        let judged = match found {
            Ok(()) => {
                standing.established = true;
                self.unenforced.remove(id);
                Some(ready)
            }
            Err(failure) => {
                standing.established = false;
                self.unenforced.insert(id.clone());
                let said = policy.enforcement_condition();
                // Of an older generation that was in force, it is said at once.
                let early = failure.reason == NOT_ENFORCED
                    && now.saturating_duration_since(standing.since) < REPORT_AFTER
                    && said.is_none_or(|said| said.status != "True");
                (!early).then(|| Ready::new("False", failure, ready.generation))
            }
        };
        self.standings.insert(id.clone(), standing);
        judged
    }

    /// Returns an error while a kind is not served. It may be one that has just begun to be: its definition was
    /// made a moment before the policy. So the kinds are read anew, twice, since a read may be under way.
    fn kinds_known(
        &self,
        policy: &PolicyManifest,
        standing: &mut PolicyProgress,
        around: &Surroundings<'_>,
        effects: &mut Vec<CoordinatorEffect>,
    ) -> Result<(), Failure> {
        // A resource is registered by its plural, served or not.
        let mut unserved = policy.unserved_kinds(around.served);
        let Some(kind) = unserved.find(|kind| kind.resource.is_none()) else {
            return Ok(());
        };
        let since = *standing.unserved_kind_since.get_or_insert(self.discoveries);
        if self.discoveries >= since + DISCOVERIES_MIN {
            return Ok(());
        }
        effects.push(CoordinatorEffect::Rediscover);
        standing.position = None; // The kinds may be written again.
        let message = format!(
            "the API server is asked whether it serves the kind `{}`",
            kind.kind
        );
        Err(Failure::new(NOT_ENFORCED, message))
    }

    fn enforcement(
        &self,
        id: &PolicyId,
        reads: &RequiredReads,
        standing: &mut PolicyProgress,
        around: &Surroundings<'_>,
    ) -> Result<(), Failure> {
        let position = around.locate(id, reads, standing);
        self.webhooks.enforce(&self.log, position, around.now)?;
        let unserved = |view: &ViewId| around.views.holders(view, around.now).serving == 0;
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
}

impl Surroundings<'_> {
    /// Returns the policy's position in the log, which is looked up until it is known.
    fn locate(
        &self,
        id: &PolicyId,
        reads: &RequiredReads,
        standing: &mut PolicyProgress,
    ) -> Option<Revision> {
        if standing.position.is_none() {
            standing.position = (self.position)(&id.0, &reads.records);
        }
        standing.position
    }
}

#[cfg(test)]
mod tests;

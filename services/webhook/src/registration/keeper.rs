//! Keeping a configuration at the API server in step.

use std::{sync::Arc, time::Duration};

use anteroom_bus::Bus;
use anteroom_engine::{
    catalog::{Catalog, Catalogs, LogPosition},
    exemptions::{ExemptionRules, Exemptions},
};
use anteroom_model::Failure;
use anteroom_policy::Phase;
use anteroom_runtime::{Check, Shutdown, backoff::Backoff};
use kube::{Client, api::DynamicObject};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    Configuration, KnownConfigurations, PathTokens, Registration,
    beyond_end::BeyondEnd,
    configuration,
    path_tokens::{PathToken, without_tokens},
    proof::{self, ProofAnswer},
    step::{self, PROOF_PATIENCE, RegistrationStep, step},
    told_problem::ToldProblem,
    write::{Content, REQUEST_TIMEOUT, Unwritten, fetch, is_later, made_by, note_token, write},
};
use crate::metrics::WebhookMetrics;

/// Waits after another webhook wrote at the same time, or has read more of the log, in milliseconds. The second may last as
/// long as this one is cut off from NATS.
const OUTRUN_RETRY_MS: (u64, u64) = (50, 5_000);

/// Waits after a write that failed, in milliseconds.
const WRITE_RETRY_MS: (u64, u64) = (200, 15_000);

/// Waits after a proof that failed, in milliseconds.
const PROOF_RETRY_MS: (u64, u64) = (4, 1_000);

/// The problem of a webhook whose writes are always too late.
const OUTRUN: &str = "another webhook writes it, which has read more of the log";

/// The time limit of a question for the log's end.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The position up to which the API server is proven to call this webhook for policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProvenPosition {
    /// The API server calls for every policy up to this position.
    pub(crate) position: LogPosition,
    /// The reason why the API server does not call for newer policies.
    pub(crate) trouble: Option<Failure>,
}

impl ProvenPosition {
    /// Combines two configurations: the older position counts, since a policy may have rules in both.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let position = match self.position.is_comparable_to(&other.position) {
            true if other.position.revision < self.position.revision => &other.position,
            true => &self.position,
            // The two positions are in different logs, or before and after a loss of records, so neither holds for both configurations.
            false => &LogPosition::default(),
        };
        Self {
            position: position.clone(),
            trouble: self.trouble.clone().or_else(|| other.trouble.clone()),
        }
    }
}

/// Writes the configuration of a phase whenever policies, kinds, exemptions or our authority change, and at intervals. Publishes
/// the configuration that the API server uses. It begins once the policies are known and there is a certificate to
/// serve with.
pub(crate) struct Keeper {
    pub(crate) phase: Phase,
    pub(crate) client: Client,
    /// Tells the log's end.
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) registration: Registration,
    pub(crate) exemptions: Exemptions,
    pub(crate) known: KnownConfigurations,
    pub(crate) tokens: PathTokens,
    pub(crate) metrics: WebhookMetrics,
    pub(crate) check: Check,
    pub(crate) proven: watch::Sender<ProvenPosition>,
}

/// The desired configuration, with the catalog from which it was made.
struct DesiredConfiguration {
    catalog: Arc<Catalog>,
    /// The position at which the configuration's policies were first read.
    policies_at: LogPosition,
    exemptions: Arc<ExemptionRules>,
    trust: Arc<str>,
    /// The token in its paths; `None`: there is no key yet.
    token: Option<PathToken>,
    configuration: Arc<Configuration>,
}

/// The last configuration that the API server acknowledged.
struct WrittenConfiguration {
    configuration: Arc<Configuration>,
    /// The newest position whose configuration it is.
    position: LogPosition,
    /// The position of its policies, as in [`DesiredConfiguration`], when it was written.
    policies_at: LogPosition,
    /// The object's resource version; a different version means that a different writer changed the object.
    version: Option<String>,
    write_state: step::WriteState,
}

/// State of the loop of a [`Keeper`].
struct KeeperState {
    written: Option<WrittenConfiguration>,
    write_backoff: Backoff,
    outrun_backoff: Backoff,
    proof_backoff: Backoff,
    beyond_end: BeyondEnd,
    /// The told problem that keeps the configuration unwritten.
    unwritten: ToldProblem,
    /// The told problem that keeps the API server from the written configuration.
    unused: ToldProblem,
}

impl Keeper {
    /// Keeps the configuration until shutdown.
    pub(crate) async fn run(
        self,
        mut catalogs: Catalogs,
        mut trust: watch::Receiver<Option<Arc<str>>>,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let stop = shutdown.token();
        let mut exempted = self.exemptions.changes();
        let mut desired: Option<DesiredConfiguration> = None;
        let mut state = KeeperState {
            written: None,
            write_backoff: Backoff::new(WRITE_RETRY_MS.0, WRITE_RETRY_MS.1),
            outrun_backoff: Backoff::new(OUTRUN_RETRY_MS.0, OUTRUN_RETRY_MS.1),
            proof_backoff: Backoff::new(PROOF_RETRY_MS.0, PROOF_RETRY_MS.1),
            beyond_end: BeyondEnd::default(),
            unwritten: ToldProblem::default(),
            unused: ToldProblem::default(),
        };
        loop {
            exempted.mark_unchanged();
            let catalog = catalogs.borrow_and_update().clone();
            let trusted = trust.borrow_and_update().clone();
            if let (Some(catalog), Some(trusted)) = (catalog, trusted) {
                desired = Some(self.desired_configuration(desired, catalog, trusted));
            }
            let until = match &desired {
                Some(desired) => self.step(desired, &mut state).await,
                None => Instant::now() + step::RECHECK,
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep_until(until) => {}
                Ok(()) = trust.changed() => trust.mark_changed(),
                Ok(()) = catalogs.changed() => catalogs.mark_changed(),
                Ok(()) = exempted.changed() => {}
            }
        }
    }

    /// Returns the desired configuration. It is made anew only if it may differ: entries come and go by the hundred,
    /// and have no part in it.
    fn desired_configuration(
        &self,
        before: Option<DesiredConfiguration>,
        catalog: Arc<Catalog>,
        trust: Arc<str>,
    ) -> DesiredConfiguration {
        let token = self.tokens.desired(self.phase);
        let exemptions = self.exemptions.rules();
        let is_same = |before: &DesiredConfiguration| {
            let is_reached_alike = before.trust == trust && before.token == token;
            let exempts_alike = Arc::ptr_eq(&before.exemptions, &exemptions);
            is_reached_alike && exempts_alike && same_registration(&before.catalog, &catalog)
        };
        let policies_at = match &before {
            Some(before) if Arc::ptr_eq(&before.catalog.policies, &catalog.policies) => {
                before.policies_at.clone()
            }
            _ => catalog.position.clone(),
        };
        match before {
            Some(before) if is_same(&before) => DesiredConfiguration { catalog, ..before },
            _ => {
                let prefix = token.as_ref().map(PathToken::prefix);
                let registration = self.registration.exempting(&exemptions);
                let configuration = registration.configuration(
                    self.phase,
                    &catalog.policies,
                    &catalog.kinds,
                    &trust,
                    prefix.as_deref().unwrap_or_default(),
                );
                self.known.remember(&configuration);
                DesiredConfiguration {
                    configuration: Arc::new(configuration),
                    catalog,
                    policies_at,
                    exemptions,
                    trust,
                    token,
                }
            }
        }
    }

    /// Takes the next step, and returns the time of the step after.
    async fn step(&self, desired: &DesiredConfiguration, state: &mut KeeperState) -> Instant {
        if let Some(written) = &mut state.written {
            written.write_state.desired = written.configuration == desired.configuration;
            written.write_state.marked = written.policies_at == desired.policies_at;
            if written.write_state.desired {
                written.position = desired.catalog.position.clone();
            }
        }
        let write_state = state.written.as_ref().map(|written| written.write_state);
        match step(write_state, Instant::now()) {
            RegistrationStep::WaitUntil(until) => {
                self.publish_position(state);
                until
            }
            RegistrationStep::Write => self.write(desired, state).await,
            RegistrationStep::Prove => self.prove(state).await,
        }
    }

    async fn write(&self, desired: &DesiredConfiguration, state: &mut KeeperState) -> Instant {
        let acknowledged = match fetch(&self.client, &desired.configuration).await {
            // The configuration is made anew with the stored token.
            Ok(Some(there)) if note_token(&self.tokens, self.phase, &there) => {
                return Instant::now();
            }
            Ok(there) => {
                let own = &desired.catalog.position;
                let content = Content {
                    is_beyond_end: self.is_beyond_end(there.as_ref(), own, state).await,
                    ..self.content(desired)
                };
                write(&self.client, &content, there.as_ref()).await
            }
            Err(unwritten) => Err(unwritten),
        };
        self.metrics.registered_configuration(acknowledged.is_ok());
        let now = Instant::now();
        match acknowledged {
            Ok(version) => {
                self.check.ready();
                if let Some(token) = &desired.token {
                    self.tokens.written(self.phase, token);
                }
                state.write_backoff.reset();
                state.outrun_backoff.reset();
                state.unwritten.ends();
                let before = state.written.take();
                // The object is unchanged since the last write.
                let before = before.filter(|before| {
                    before.version == version && before.configuration == desired.configuration
                });
                if before.is_none() {
                    state.proof_backoff.reset();
                }
                state.written = Some(WrittenConfiguration {
                    configuration: Arc::clone(&desired.configuration),
                    position: desired.catalog.position.clone(),
                    policies_at: desired.policies_at.clone(),
                    version,
                    write_state: step::WriteState {
                        desired: true,
                        at: before.as_ref().map_or(now, |before| before.write_state.at),
                        checked: now,
                        proven: before
                            .as_ref()
                            .is_some_and(|before| before.write_state.proven),
                        unknowable: before.is_some_and(|before| before.write_state.unknowable),
                        marked: true,
                    },
                });
                self.publish_position(state);
                now
            }
            Err(Unwritten::Outrun) => {
                self.outrun(&desired.configuration, now, state);
                now + state.outrun_backoff.next(rand::random())
            }
            Err(Unwritten::Refused(problem)) => self.unwritten(&problem, state),
        }
    }

    fn content<'w>(&'w self, desired: &'w DesiredConfiguration) -> Content<'w> {
        Content {
            configuration: &desired.configuration,
            object_metadata: self.registration.object_metadata(),
            position: &desired.catalog.position,
            policies_at: &desired.policies_at,
            path_period: desired.token.as_ref().map(|token| token.period),
            is_beyond_end: false,
        }
    }

    /// Returns whether the log has lost the position that the stored object names. Otherwise this webhook, which is at
    /// `own`, is yet to read it.
    async fn is_beyond_end(
        &self,
        stored: Option<&DynamicObject>,
        own: &LogPosition,
        state: &mut KeeperState,
    ) -> bool {
        let later = stored
            .and_then(made_by)
            .filter(|made_by| is_later(made_by, own));
        let Some(later) = later else {
            state.beyond_end = BeyondEnd::default();
            return false;
        };
        let end = timeout(END_TIMEOUT, self.bus.head()).await;
        let end = end.ok().and_then(Result::ok);
        state
            .beyond_end
            .is_proven(&later, end.as_ref(), Instant::now())
    }

    /// Logs that another webhook was faster, as a warning once the problem lasts.
    fn outrun(&self, desired: &Configuration, now: Instant, state: &mut KeeperState) {
        let kind = configuration::kind(self.phase);
        if !state.unwritten.is_lasting_news(OUTRUN, now) {
            tracing::debug!(
                kind,
                "webhook configuration not written: another webhook wrote it at the same time, or has read more of \
                 the log; tried again"
            );
            return;
        }
        tracing::warn!(
            kind,
            configuration = desired.name,
            "webhook configuration not written for 30 s: another webhook writes it, which has read more of the log; \
             check this webhook's connection to NATS, and that no other installation has the same \
             --webhook-configuration"
        );
        self.check.waits_for(OUTRUN);
    }

    /// Logs the failed write, and returns the time of the next attempt.
    fn unwritten(&self, problem: &str, state: &mut KeeperState) -> Instant {
        let problem = without_tokens(problem);
        // Once it was written, answering goes on: the API server calls us by what it has.
        if state.unwritten.is_news(&problem) {
            tracing::warn!(
                kind = configuration::kind(self.phase),
                problem,
                "webhook configuration not written: tried again; check the webhook's rights"
            );
        }
        self.trouble("NotRegistered", &problem);
        self.check.waits_for(problem);
        Instant::now() + state.write_backoff.next(rand::random())
    }

    async fn prove(&self, state: &mut KeeperState) -> Instant {
        let Some(written) = &mut state.written else {
            return Instant::now();
        };
        let answer = match written.write_state.unknowable {
            true => ProofAnswer::Proven, // The margin has passed.
            false => timeout(
                REQUEST_TIMEOUT,
                proof::ask(&self.client, &written.configuration.id),
            )
            .await
            .unwrap_or(ProofAnswer::NotYet),
        };
        let now = Instant::now();
        match answer {
            ProofAnswer::Proven => {
                let took = now.saturating_duration_since(written.write_state.at);
                self.metrics.proven(took);
                tracing::debug!(
                    kind = configuration::kind(self.phase),
                    took_ms = took.as_millis(),
                    "webhook configuration in use by the API server"
                );
                written.write_state.proven = true;
                state.unused.ends();
                self.publish_position(state);
                return now;
            }
            ProofAnswer::NotYet if now < written.write_state.at + PROOF_PATIENCE => {}
            ProofAnswer::NotYet => {
                let kind = configuration::kind(self.phase);
                let message = format!("the API server has the {kind}, and does not go by it");
                if state.unused.is_lasting_news(&message, now) {
                    tracing::warn!(
                        kind,
                        "webhook configuration not used by the API server for 30 s: tried again; new policies are not \
                         enforced. Look at the API server's load and log"
                    );
                }
                self.trouble("NotCalled", &message);
            }
            ProofAnswer::Unreachable(said) => {
                let problem = without_tokens(&said);
                if state.unused.is_lasting_news(&problem, now) {
                    tracing::warn!(
                        kind = configuration::kind(self.phase),
                        problem,
                        "webhook not reached by the API server for 30 s: tried again; new policies are not enforced. \
                         Check the webhook's Service or --webhook-url, and the network between them"
                    );
                }
                self.trouble("NotReached", &said);
            }
            ProofAnswer::Unknowable(said) => {
                tracing::warn!(
                    kind = configuration::kind(self.phase),
                    answer = said,
                    "webhook configuration not proven to be in use: the API server does not let this webhook create \
                     a SelfSubjectReview; after a second the configuration counts as in use"
                );
                written.write_state.unknowable = true;
                return now;
            }
        }
        now + state.proof_backoff.next(rand::random())
    }

    /// Publishes the position of a proven configuration.
    fn publish_position(&self, state: &KeeperState) {
        let Some(written) = state.written.as_ref().filter(|w| w.write_state.proven) else {
            return;
        };
        let proven = ProvenPosition {
            position: written.position.clone(),
            trouble: None,
        };
        self.proven.send_if_modified(|before| {
            let changed = *before != proven;
            *before = proven;
            changed
        });
    }

    fn trouble(&self, reason: &str, message: &str) {
        let trouble = Some(trouble(reason, message));
        self.proven.send_if_modified(|proven| {
            let changed = proven.trouble != trouble;
            proven.trouble = trouble;
            changed
        });
    }
}

/// Returns the reason why the API server does not call for newer policies. It quotes paths, and their tokens are not for
/// those who read the status of a policy.
fn trouble(reason: &str, message: &str) -> Failure {
    Failure::new(reason, without_tokens(message))
}

/// Returns true if both catalogs lead to the same configuration.
fn same_registration(before: &Catalog, now: &Catalog) -> bool {
    Arc::ptr_eq(&before.policies, &now.policies) && Arc::ptr_eq(&before.kinds, &now.kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anteroom_engine::{catalog::EntrySet, kinds::Kinds, policies::PolicySet};

    #[test]
    fn the_position_called_for_is_that_of_the_lagging_configuration() {
        let proven = |log: &str, revision, trouble: Option<&str>, shortened| ProvenPosition {
            position: LogPosition {
                incarnation: anteroom_model::Incarnation(log.into()),
                revision: anteroom_model::Revision(revision),
                shortened,
            },
            trouble: trouble.map(|reason| Failure::new(reason, "why")),
        };
        for (one, other, expected) in [
            (("a", 5, None), ("a", 5, None), ("a", 5, None)),
            (("a", 5, None), ("a", 7, Some("X")), ("a", 5, Some("X"))),
            (
                ("a", 9, Some("Y")),
                ("a", 7, Some("X")),
                ("a", 7, Some("Y")),
            ),
            (("a", 5, None), ("b", 7, None), ("", 0, None)),
            (("", 0, None), ("b", 7, None), ("", 0, None)),
        ] {
            let of = |(log, revision, trouble)| proven(log, revision, trouble, 0);
            assert_eq!(of(one).and(&of(other)), of(expected), "{one:?} {other:?}");
        }
        let (before, after) = (proven("a", 9, None, 0), proven("a", 7, None, 1));
        assert_eq!(before.and(&after), proven("", 0, None, 0));
    }

    #[test]
    fn a_trouble_does_not_tell_the_token_of_a_path() {
        let path = format!("/r/{}/validate/c/fail-10", "0f".repeat(16));
        for reason in ["NotRegistered", "NotReached"] {
            let told = trouble(
                reason,
                &format!("clientConfig.service.path: {path}: refused"),
            );
            let expected = "clientConfig.service.path: /validate/c/fail-10: refused";
            assert_eq!(told, Failure::new(reason, expected));
        }
    }

    #[test]
    fn only_policies_and_kinds_have_a_part_in_the_configuration() {
        let before = Catalog::default();
        let with = |change: &dyn Fn(&mut Catalog)| {
            let mut now = Catalog {
                entries: Arc::clone(&before.entries),
                kinds: Arc::clone(&before.kinds),
                policies: Arc::clone(&before.policies),
                exceptions: Arc::clone(&before.exceptions),
                position: LogPosition::default(),
            };
            change(&mut now);
            same_registration(&before, &now)
        };
        assert!(with(&|now| now.entries = Arc::new(EntrySet::default())));
        assert!(!with(&|now| now.policies = Arc::new(PolicySet::default())));
        assert!(!with(&|now| now.kinds = Arc::new(Kinds::default())));
    }
}

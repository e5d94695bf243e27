//! Manifests as the API server lists and watches them.

use anteroom_model::{Dependent, EntryKind, Failure, ObjectKey};
use anteroom_policy::PolicyKind;
use tokio::time::Instant;

use super::{FOLLOWING, HeldVersion, Reconciler};
use crate::{
    coordinator::{
        collection::Manifests,
        effect::{CoordinatorEffect, SystemView, Write},
        entry_store::status_owner,
        exception_store::ExceptionKind,
        manifest_list::is_not_served,
        manifests::{EntryManifest, ExceptionManifest, PolicyManifest},
        permits,
        policy_store::{PolicyId, PolicyStore},
        quotas,
        registry::{Event, Needed, Referred},
        resolver::{is_about, is_narrowed},
        status::writer::StatusOwner,
    },
    log_writer::publish::ChangeOrigin,
    source::reflect::{Note, RawObject},
};

impl Reconciler {
    /// Takes a note of a collection.
    pub(in crate::coordinator) fn note(&mut self, manifests: Manifests, note: Note, now: Instant) {
        match note {
            Note::Begin { .. } => match manifests {
                Manifests::Entries(kind) => self.entries.list_mut(kind).begin(),
                Manifests::Policies(kind) => self.policies.list_mut(kind).begin(),
                Manifests::Exceptions(kind) => self.exceptions.list_mut(kind).begin(),
            },
            Note::Put { object, origin } => origin.span().in_scope(|| match manifests {
                Manifests::Entries(kind) => self.entry_put(kind, object),
                Manifests::Policies(kind) => {
                    self.policy_put(kind, &object, self.waiting.takes_new());
                    let id = PolicyId::new(kind, &object.key);
                    self.policies.list_mut(kind).touch(&id.0);
                }
                Manifests::Exceptions(kind) => self.exception_put(kind, &object),
            }),
            Note::Gone { key, span, .. } => span.in_scope(|| match manifests {
                Manifests::Entries(kind) => {
                    let gone = self.entries.list_mut(kind).remove(&key);
                    self.entry_gone(kind, &key, gone.as_ref());
                }
                Manifests::Policies(kind) => {
                    let id = PolicyId::new(kind, &key);
                    self.write(manifests.view(), Write::delete(id.0.clone()));
                    if let Some(gone) = self.policies.remove(&id) {
                        self.policy_gone(&id, &gone);
                    }
                }
                Manifests::Exceptions(kind) => {
                    let key = kind.key(&key);
                    self.write(manifests.view(), Write::delete(key.clone()));
                    if let Some(gone) = self.exceptions.list_mut(kind).remove(&key) {
                        self.apply(Event::PolicyGone(Dependent(gone.uid)));
                    }
                }
            }),
            Note::Skipped => self.write(manifests.view(), Write::Skipped),
            Note::Listed { .. } => match manifests {
                Manifests::Entries(kind) => self.entries_listed(kind, now),
                Manifests::Policies(kind) => self.policies_listed(kind, now),
                Manifests::Exceptions(kind) => self.exceptions_listed(kind, now),
            },
            Note::Heard { .. } => self.note_news(manifests, now),
            Note::Refused(failure) => self.refused(manifests, failure, now),
            Note::Troubled(failure) => self.write(manifests.view(), Write::Troubled(failure)),
        }
    }

    /// Notes news of manifests. A view is as fresh as the manifests of all its kinds.
    fn note_news(&mut self, manifests: Manifests, now: Instant) {
        match manifests {
            Manifests::Entries(kind) => {
                self.entries.list_mut(kind).note_news(now);
                if let Some(heard) = self.entries.news_at() {
                    for view in FOLLOWING {
                        self.write(view, Write::Heard(heard));
                    }
                    if self.exceptions.are_absent() {
                        self.write(SystemView::Exceptions, Write::Heard(heard));
                    }
                }
            }
            Manifests::Policies(kind) => {
                self.policies.list_mut(kind).note_news(now);
                let heard = self.policies.news_at();
                // Until the first turns are over, the view is not as new as the lists.
                if let Some(heard) = heard.filter(|_| !self.waiting.has_first_turns()) {
                    self.write(manifests.view(), Write::Heard(heard));
                }
            }
            Manifests::Exceptions(kind) => {
                self.exceptions.list_mut(kind).note_news(now);
                if let Some(heard) = self.exceptions.news_at() {
                    self.write(manifests.view(), Write::Heard(heard));
                }
            }
        }
    }

    fn refused(&mut self, manifests: Manifests, failure: Failure, now: Instant) {
        match manifests {
            Manifests::Entries(kind) => {
                if self.entries.refuse(kind, &failure) {
                    self.write(manifests.view(), Write::Refused(failure));
                }
                self.entries_wait();
            }
            Manifests::Policies(kind) => {
                if self.policies.refuse(kind, &failure) {
                    self.write(manifests.view(), Write::Refused(failure));
                }
                self.policies_known();
            }
            Manifests::Exceptions(kind) if is_not_served(&failure) => {
                return self.no_exceptions(kind, now);
            }
            Manifests::Exceptions(kind) => {
                tracing::warn!(
                    ?kind,
                    %failure,
                    "PolicyExceptions of this kind not listed: tried again; check the watcher's rights"
                );
                self.write(manifests.view(), Write::Refused(failure));
                self.exceptions.refuse(kind);
            }
        }
        self.settle(now);
    }

    fn entry_put(&mut self, kind: EntryKind, object: RawObject) {
        let entry = EntryManifest::read(&object, kind);
        self.reporter
            .entry_changed((kind, entry.identity.name.clone()));
        self.resolve(&entry);
        let uid = entry.identity.uid.clone();
        let before = self.entries.list_mut(kind).put(object.key, entry);
        if let Some(replaced) = before.filter(|before| before.identity.uid != uid) {
            let owner = status_owner(&replaced);
            self.effects.push(CoordinatorEffect::ForgetStatus(owner));
        }
    }

    fn entry_gone(&mut self, kind: EntryKind, key: &ObjectKey, gone: Option<&EntryManifest>) {
        let id = (kind, key.name.to_string());
        if let Some(gone) = gone {
            self.effects
                .push(CoordinatorEffect::ForgetStatus(status_owner(gone)));
        }
        // The entry's condition stays known until its readers are told.
        self.reporter.entry_changed(id.clone());
        self.apply(Event::EntryGone(id));
    }

    fn entries_listed(&mut self, kind: EntryKind, now: Instant) {
        for (key, entry) in self.entries.list_mut(kind).complete(now) {
            self.entry_gone(kind, &key, Some(&entry));
        }
        self.entries_wait();
        self.settle(now);
    }

    fn entries_wait(&mut self) {
        let waits_for = self.entries.waits_for().map(str::to_owned);
        self.effects.push(CoordinatorEffect::EntriesWait(waits_for));
    }

    /// Takes in a version of a policy. `takes_new`: it may be put in force although none before it was.
    pub(super) fn policy_put(&mut self, kind: PolicyKind, object: &RawObject, takes_new: bool) {
        let id = PolicyId::new(kind, &object.key);
        let known = self.known_version(&id);
        self.drop_held_back(&id);
        if self.policy_waits(&id, object, takes_new) {
            return;
        }
        let policy = self.policy_of(&id, object, known);
        match self.may_be_in_force(&id, &policy) {
            true => drop(self.inherited.remove(&id.0)),
            false => self.put_inherited(&id, &policy.manifest.identity.uid),
        }
        self.policy_read(id, policy);
    }

    /// Returns the policy of this object. `known`: a version of it that was read before.
    pub(super) fn policy_of(
        &self,
        id: &PolicyId,
        object: &RawObject,
        known: Option<PolicyManifest>,
    ) -> HeldVersion {
        let (mut manifest, record) = PolicyManifest::read_again(object, id.kind(), known);
        let allowed = id.may_read_secrets(&self.options.secrets);
        manifest.secrets_forbidden =
            !allowed && manifest.references.iter().any(permits::is_of_secrets);
        let may_write = self.options.writers.allows(&id.0);
        manifest.writes_forbidden = !may_write && !manifest.changes.is_empty();
        let referred = self.resolver().referred_by(id, &manifest);
        let sources = quotas::sources(&referred);
        HeldVersion::new(id, manifest, record, referred, sources)
    }

    /// The policy is in force from here on.
    pub(super) fn policy_admitted(&mut self, id: &PolicyId, policy: HeldVersion) {
        let HeldVersion {
            manifest,
            write,
            referred,
            sources,
        } = policy;
        self.held_back.remove(id);
        self.quotas.put(id, sources);
        self.quotas.put_size(id, manifest.size);
        // The policy's views are desired before readers learn of the policy.
        let uid = Self::dependent_of(&manifest);
        let change = self.policies.put(id, manifest);
        if let Some((dependent, owner)) = change.replaced {
            self.policy_replaced(dependent, owner);
        }
        if change.rights {
            self.need_rights();
        }
        self.reporter.policies_changed([id.clone()]);
        let needed = Needed {
            references: referred,
            in_quota: id.is_namespaced(),
        };
        self.apply(Event::Policy(uid, needed));
        self.resolve_entries(|entry| {
            is_narrowed(entry) && change.queries.iter().any(|query| is_about(query, entry))
        });
        self.write(SystemView::Policies, write);
    }

    /// The policy was deleted, and another policy has the same name.
    pub(super) fn policy_replaced(&mut self, dependent: Dependent, owner: StatusOwner) {
        self.effects.push(CoordinatorEffect::ForgetStatus(owner));
        self.apply(Event::PolicyGone(dependent));
    }

    fn policy_gone(&mut self, id: &PolicyId, gone: &PolicyManifest) {
        let owner = PolicyStore::status_owner(id, gone);
        self.effects.push(CoordinatorEffect::ForgetStatus(owner));
        self.enforcement.forget(id);
        self.policy_released(id);
        if !gone.changes.is_empty() {
            self.need_rights();
        }
        self.apply(Event::PolicyGone(Dependent(gone.identity.uid.clone())));
        self.resolve_entries(|entry| {
            is_narrowed(entry) && gone.queries.iter().any(|query| is_about(query, entry))
        });
    }

    /// Once all kinds were listed, policies that no list had are gone, and the view is synced.
    fn policies_listed(&mut self, kind: PolicyKind, now: Instant) {
        for (id, gone) in self.policies.complete(kind, now) {
            let delete = Write::Delete(id.0.clone(), ChangeOrigin::List);
            self.write(SystemView::Policies, delete);
            self.policy_gone(&id, &gone);
        }
        self.policies_known();
        self.settle(now);
    }

    /// Looks again whether the policies as a whole are known.
    fn policies_known(&mut self) {
        self.policies_wait();
        self.resolve_entries(is_narrowed);
        if self.policies.waits_for().is_none() {
            self.forget_inherited();
            self.take_new_policies();
            self.policies_complete();
        }
    }

    fn policies_wait(&mut self) {
        let waits_for = self.policies.waits_for().map(str::to_owned);
        self.effects
            .push(CoordinatorEffect::PoliciesWait(waits_for));
    }

    fn need_rights(&mut self) {
        let needed = self.policies.rights_needed();
        self.effects.push(CoordinatorEffect::NeedRights(needed));
    }

    /// Keeps, by UID, the data of an exception that requests do not carry.
    fn exception_put(&mut self, kind: ExceptionKind, object: &RawObject) {
        let key = kind.key(&object.key);
        let (manifest, record) = ExceptionManifest::read(object, kind);
        for problem in &manifest.problems {
            tracing::warn!(
                exception = %key,
                %problem,
                "PolicyException invalid: it exempts nothing; correct it"
            );
        }
        let references = manifest.references.iter();
        // An exception's reads are about the whole cluster, so they count for no namespace's quota.
        let needed = Needed {
            references: references.map(|r| Referred::by(&key, r)).collect(),
            in_quota: false,
        };
        let uid = manifest.uid.clone();
        let exceptions = self.exceptions.list_mut(kind);
        let replaced = exceptions.put(key.clone(), manifest);
        if let Some(replaced) = replaced.filter(|old| old.uid != uid) {
            self.apply(Event::PolicyGone(Dependent(replaced.uid)));
        }
        self.apply(Event::Policy(Dependent(uid), needed));
        let write = match record {
            Some(record) => Write::put(record),
            None => Write::delete(key),
        };
        self.write(SystemView::Exceptions, write);
    }

    /// Completes the list of a kind: exceptions that it did not bring are gone.
    fn exceptions_listed(&mut self, kind: ExceptionKind, now: Instant) {
        for (key, gone) in self.exceptions.list_mut(kind).complete(now) {
            self.write(
                SystemView::Exceptions,
                Write::Delete(key, ChangeOrigin::List),
            );
            self.apply(Event::PolicyGone(Dependent(gone.uid)));
        }
        self.exceptions_known(now);
    }

    /// Notes that a kind has no exceptions: an option excludes them, or the API server does not serve the kind.
    pub(super) fn no_exceptions(&mut self, kind: ExceptionKind, now: Instant) {
        let is_news = !self.exceptions.is_absent(kind);
        let exceptions = self.exceptions.list_mut(kind);
        exceptions.begin();
        let gone = exceptions.complete(now);
        exceptions.set_absent(true);
        for (key, gone) in gone {
            self.write(
                SystemView::Exceptions,
                Write::Delete(key, ChangeOrigin::List),
            );
            self.apply(Event::PolicyGone(Dependent(gone.uid)));
        }
        // A kind that stays absent is no news, unless all kinds are absent.
        if is_news || self.exceptions.are_absent() {
            self.exceptions_known(now);
        }
    }

    fn exceptions_known(&mut self, now: Instant) {
        if self.exceptions.are_listed() {
            self.write(SystemView::Exceptions, Write::Listed);
        }
        self.settle(now);
    }
}

//! The meaning of entries and policies, by the kinds that the API server serves, the fields that policies
//! read, and the Secrets that an administrator allows. Pure.

use anteroom_jmespath::Expression;
use anteroom_model::{Dependent, ObjectKey, RetainedFields, Source};
use anteroom_plan::{Document, reads};
use anteroom_policy::{Reference, scanned};

use super::{
    manifests::{EntryManifest, EntryQuery, EntrySpec, PolicyManifest},
    permits::{self, CacheApiCalls, PolicyWriters, SecretsReaders},
    policy_store::{PolicyId, PolicyStore},
    registry::{Claim, Needed, Referred},
    resolve::{Resolution, Resolved, resolve, resolve_reference},
    status::conditions,
};
use crate::{
    gateway::calls::{self, CallTarget},
    source::{api::Retain, discovery::ServedResources},
};

/// The choices of an administrator for the coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The calls of policies that views are kept for.
    pub cache_api_calls: CacheApiCalls,
    /// Views are kept for background scans.
    pub background_scans: bool,
    /// Entries and policies that may read Secrets.
    pub secrets: std::sync::Arc<SecretsReaders>,
    /// Policies that may change existing objects.
    pub writers: std::sync::Arc<PolicyWriters>,
    /// Exceptions are read. Otherwise there are none.
    pub reads_exceptions: bool,
    /// Nothing is written for Kyverno's kinds.
    pub is_shadow: bool,
}

/// All that a meaning depends on.
pub(super) struct Resolver<'a> {
    /// The kinds that the API server serves; `None`: they are not known yet.
    pub served: Option<&'a ServedResources>,
    pub policies: &'a PolicyStore,
    pub options: &'a Options,
}

impl Resolver<'_> {
    /// Returns the resolution of an entry; `None`: kinds or policies are not known yet.
    pub(super) fn entry(&self, entry: &EntryManifest) -> Option<Claim> {
        let served = self.served?;
        let name = &entry.identity.name;
        let resolution = match &entry.spec {
            Ok(spec) => self.narrowed(entry, resolve(name, spec, served))?,
            Err(failure) => Resolution::Invalid(failure.clone()),
        };
        let who = || format!("the {} `{name}`", entry.kind.name());
        let resolution = match resolution {
            Resolution::Found(found) if calls_secrets(&found) => {
                Resolution::Invalid(permits::uncallable(&who()))
            }
            Resolution::Found(found)
                if found.binding.secret && !self.options.secrets.allows_entry(entry.kind, name) =>
            {
                Resolution::Invalid(permits::forbidden(&who()))
            }
            other => other,
        };
        let generation = entry.identity.generation;
        Some(Claim {
            kind: entry.kind,
            name: name.clone(),
            uid: entry.identity.uid.clone(),
            generation,
            resolution,
            given_up: conditions::forbidden(&entry.status.conditions, generation),
        })
    }

    /// Returns the resolution of a reference of these policies; `None`: the kinds are not known yet.
    pub(super) fn reference<'d>(
        &self,
        referred: &Referred,
        mut dependents: impl Iterator<Item = &'d Dependent>,
    ) -> Option<Resolution> {
        let resolution = resolve_reference(&referred.reference, self.served?);
        let allowed = |policy: &Dependent| {
            let policy = self.policies.by_uid(policy);
            policy.is_some_and(|policy| policy.may_read_secrets(&self.options.secrets))
        };
        // What is shared with other policies is never of Secrets, whoever else was allowed to.
        let may = referred.reference.may_be_secrets() && dependents.all(allowed);
        Some(permits::without_secrets(resolution, may))
    }

    /// Returns the references whose data is kept for a policy: facts of its rules, and objects for its scans.
    pub(super) fn referred_by(&self, id: &PolicyId, policy: &PolicyManifest) -> Vec<Referred> {
        let mode = self.options.cache_api_calls;
        let references = policy.references.iter().filter(|r| mode.keeps(r));
        let mut referred: Vec<_> = references.map(|r| Referred::by(&id.0, r)).collect();
        for scan in self.scans_of(policy) {
            let scan = Referred::by(&id.0, &scan);
            // A reference says more of the same view: that it has to be there.
            if referred.iter().all(|known| known.name != scan.name) {
                referred.push(scan);
            }
        }
        referred
    }

    /// Returns the needs of all scanned policies, whose patterns may match different kinds now.
    pub(super) fn scanned_again(&self) -> Vec<(Dependent, Needed)> {
        if !self.options.background_scans {
            return Vec::new();
        }
        let policies = self.policies.iter();
        let scanned = policies.filter(|(_, policy)| !policy.scanned.is_empty());
        let referred = scanned.map(|(key, policy): (&ObjectKey, _)| {
            let uid = Dependent(policy.identity.uid.clone());
            let id = PolicyId(key.clone());
            let needed = Needed {
                references: self.referred_by(&id, policy),
                in_quota: id.is_namespaced(),
            };
            (uid, needed)
        });
        referred.collect()
    }

    /// Collections of all objects of the kinds that a policy is evaluated on where they exist. None until
    /// the kinds are known.
    fn scans_of(&self, policy: &PolicyManifest) -> Vec<Reference> {
        let Some(served) = self.served.filter(|_| self.options.background_scans) else {
            return Vec::new();
        };
        let records = served.resources.iter().map(|resource| &resource.record);
        let scanned = scanned(&policy.scanned, &policy.identity.namespace, records);
        let references = scanned.found.into_iter().map(|(collection, _)| collection);
        references.map(Reference::Collection).collect()
    }

    /// Narrows an entry with `retain: Referenced` to the fields that policies and projections read; `None`: the
    /// policies are not known yet.
    ///
    /// Narrows the entry's view to the fields that policies read. The fields are a part of a view's identity. If a
    /// policy begins to read more fields, the entry moves to another view, which answers once it was read whole. So a
    /// field that was never kept never counts as absent.
    fn narrowed(&self, entry: &EntryManifest, resolution: Resolution) -> Option<Resolution> {
        let Resolution::Found(mut found) = resolution else {
            return Some(resolution);
        };
        if is_narrowed(entry) {
            if !self.policies.are_known() {
                return None;
            }
            let policies = self.policies.iter();
            let queries = policies.flat_map(|(_, policy)| &policy.queries);
            let fields = retained_fields(&found, queries.filter(|query| is_about(query, entry)));
            found.keep(fields);
        }
        Some(Resolution::Found(found))
    }
}

/// Returns whether the entry's view keeps only the fields that policies read.
pub(super) fn is_narrowed(entry: &EntryManifest) -> bool {
    match &entry.spec {
        Ok(EntrySpec::Cached(spec)) => spec.retain == Some(Retain::Referenced),
        Ok(EntrySpec::Global(_)) | Err(_) => false,
    }
}

/// Returns whether the query may be of the entry.
pub(super) fn is_about(query: &EntryQuery, entry: &EntryManifest) -> bool {
    let named = query.name.as_ref();
    query.kind == entry.kind && named.is_none_or(|name| *name == entry.identity.name)
}

/// Returns the fields that these queries and the entry's projections read of each object.
fn retained_fields<'a>(
    found: &Resolved,
    queries: impl Iterator<Item = &'a EntryQuery>,
) -> RetainedFields {
    let mut fields = RetainedFields::identity();
    let plural = match &found.info.source {
        Source::Collection(collection) => Some(collection.gvr.resource.as_str()),
        Source::Objects { .. } | Source::ApiCall { .. } | Source::System { .. } => None,
    };
    let document = Document::List { plural };
    let mut read = |expression: Option<&Expression>| match expression {
        Some(expression) => fields.join(&reads(expression, document)),
        None => fields = RetainedFields::Whole,
    };
    for query in queries {
        read(query.expression.as_ref());
    }
    for projection in &found.projections {
        let expression = Expression::parse(&projection.expression).ok();
        read(expression.as_ref());
    }
    fields
}

/// Returns whether it calls for Secrets, which only a `resource` keeps sealed.
fn calls_secrets(found: &Resolved) -> bool {
    match found.call.as_ref().map(|call| &call.target) {
        Some(CallTarget::Api { path }) => calls::is_of_secrets(path),
        Some(CallTarget::Service(_)) | None => false,
    }
}

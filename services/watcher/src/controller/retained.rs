//! What entries keep of each object, where that is what policies read (`retain: Referenced`).
//!
//! It is a part of a view's identity: where a policy reads more, the entry is of another view from then
//! on, which answers once it has been read whole. So what was never kept is never taken for absent.

use anteroom_jmespath::Expression;
use anteroom_model::{Kept, Source};
use anteroom_plan::{Document, reads};

use super::Controller;
use crate::{
    api::Retain,
    manifests::{Entry, EntryQuery, EntrySpec},
    resolve::{Resolution, Resolved},
};

impl Controller {
    /// The same for an entry that keeps everything; `None`: nobody knows yet what is read of it.
    pub(super) fn retained(&self, entry: &Entry, resolution: Resolution) -> Option<Resolution> {
        let Resolution::Found(mut found) = resolution else {
            return Some(resolution);
        };
        if is_narrowed(entry) {
            if !self.cluster_policies.is_known() || !self.policies.is_known() {
                return None;
            }
            let policies = [&self.cluster_policies, &self.policies];
            let policies = policies.iter().flat_map(|feed| feed.roster.values());
            let queries = policies.flat_map(|policy| &policy.queries);
            let kept = kept(&found, queries.filter(|query| is_about(query, entry)));
            found.keep(kept);
        }
        Some(Resolution::Found(found))
    }

    /// What these read of entries has changed.
    pub(super) fn retain_for(&mut self, queries: &[EntryQuery]) {
        let concerned = |entry: &&Entry| queries.iter().any(|query| is_about(query, entry));
        self.resolve_narrowed(concerned);
    }

    /// What is read of any entry is known now, or may have changed.
    pub(super) fn retain_for_all(&mut self) {
        self.resolve_narrowed(|_| true);
    }

    fn resolve_narrowed(&mut self, concerned: impl Fn(&&Entry) -> bool) {
        let entries = self.cached.roster.values();
        let entries = entries.filter(|entry| is_narrowed(entry)).filter(concerned);
        let entries: Vec<_> = entries.cloned().collect();
        entries.iter().for_each(|entry| self.resolve(entry));
    }
}

fn is_narrowed(entry: &Entry) -> bool {
    match &entry.spec {
        Ok(EntrySpec::Cached(spec)) => spec.retain == Some(Retain::Referenced),
        Ok(EntrySpec::Global(_)) | Err(_) => false,
    }
}

fn is_about(query: &EntryQuery, entry: &Entry) -> bool {
    let named = query.name.as_ref();
    query.kind == entry.kind && named.is_none_or(|name| *name == entry.identity.name)
}

/// What all of these and the entry's projections read of each object.
fn kept<'a>(found: &Resolved, queries: impl Iterator<Item = &'a EntryQuery>) -> Kept {
    let mut kept = Kept::identity();
    let plural = match &found.info.source {
        Source::Collection(collection) => Some(collection.gvr.resource.as_str()),
        _ => None,
    };
    let document = Document::List { plural };
    let mut read = |expression: Option<&Expression>| match expression {
        Some(expression) => kept.join(&reads(expression, document)),
        None => kept = Kept::Whole,
    };
    for query in queries {
        read(query.expression.as_ref());
    }
    for projection in &found.projections {
        let expression = Expression::parse(&projection.expression).ok();
        read(expression.as_ref());
    }
    kept
}

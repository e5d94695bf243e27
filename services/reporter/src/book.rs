//! What is known of each object that some policy speaks of, and of which objects something new is.
//! Pure.
//!
//! Objects are held up to a [limit](Limits): beyond it, those whose UIDs come last are left out. So of
//! objects that nobody changes it is always the same ones, in whatever order they are met.

mod interned;
mod left_out;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    mem::size_of,
    ops::{Bound, Range},
    sync::Arc,
};

use anteroom_model::{ObjectKey, ViewId};

use self::{interned::Interned, left_out::LeftOut};
use crate::{
    report::Said,
    result::{Outcome, RuleResult, Subject},
};

/// Objects that something is known of; those beyond are left out, and counted.
pub(crate) const PAGES_MAX: usize = 200_000;

/// Bytes of all that is known of them, about; objects beyond are left out as well.
pub(crate) const BYTES_MAX: usize = 128 * 1024 * 1024;

/// Objects that are gone and whose reports were not looked at since; of more it is known that there are some.
pub(crate) const GONE_MAX: usize = PAGES_MAX;

/// Objects that were left out are taken in again once there is so much room: this part of the limits.
const ROOM: usize = 8;

/// Who found a result: a policy, on an object of a view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Finder {
    pub(crate) policy: ObjectKey,
    pub(crate) view: ViewId,
}

/// A result, who found it, and since when it is what it is.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) finder: Arc<Finder>,
    pub(crate) result: Arc<RuleResult>,
    /// Seconds since 1970.
    pub(crate) since_s: i64,
    /// Nobody was told of it yet.
    pub(crate) is_new: bool,
}

/// All that is known of one object.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) subject: Subject,
    /// By finder, in the order of its rules. Never none.
    pub(crate) findings: Vec<Finding>,
}

impl Page {
    /// What this finder found.
    pub(crate) fn of(&self, finder: &Finder) -> &[Finding] {
        &self.findings[self.range(finder)]
    }

    fn range(&self, finder: &Finder) -> Range<usize> {
        let begin = self.findings.partition_point(|f| *f.finder < *finder);
        let found = self.findings[begin..].partition_point(|f| *f.finder == *finder);
        begin..begin + found
    }

    /// What it takes, without the results themselves, which are shared.
    fn bytes(&self) -> usize {
        let texts = self.subject.uid.len() + self.subject.name.len();
        size_of::<Self>() + texts + self.findings.len() * size_of::<Finding>()
    }
}

/// How much is held at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) pages_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) gone_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pages_max: PAGES_MAX,
            bytes_max: BYTES_MAX,
            gone_max: GONE_MAX,
        }
    }
}

/// The pages, by the objects' UIDs.
#[derive(Debug, Default)]
pub(crate) struct Book {
    limits: Limits,
    pages: BTreeMap<Arc<str>, Page>,
    /// What all pages take, without the results.
    bytes: usize,
    /// Each result once, however many objects have it.
    results: Interned<RuleResult>,
    finders: HashSet<Arc<Finder>>,
    /// As it is shared by subjects: kinds, versions and namespaces.
    texts: Interned<str>,
    /// Objects of this UID, and of all that come after it, are left out.
    horizon: Option<Arc<str>>,
    left_out: LeftOut,
    /// Pages that changed since they were last taken, or that are gone.
    changed: BTreeSet<Subject>,
    /// Some changed that are not among them.
    is_lost: bool,
    /// The last one that was taken: each gets its turn, however often others change.
    taken: Option<Subject>,
}

impl Book {
    /// One that holds no more than that.
    #[cfg(test)]
    pub(crate) fn with_limits(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// This is what the finder now knows of the object; nothing: it does not speak of it.
    pub(crate) fn put(
        &mut self,
        subject: &Subject,
        finder: &Finder,
        results: Vec<RuleResult>,
        now_s: i64,
    ) {
        if results.is_empty() {
            return self.forget(&subject.uid, finder);
        }
        if self.is_beyond(&subject.uid) {
            let finder = self.finder(finder);
            return self.left_out.put(&subject.uid, &finder);
        }
        self.left_out.remove(&subject.uid, finder);
        if let Some(page) = self.pages.get(&subject.uid) {
            let known = page.of(finder).iter().map(|finding| &finding.result);
            // Most are as they were.
            if known.len() == results.len() && known.zip(&results).all(|(k, r)| k.says_as(r)) {
                return;
            }
        }
        let finder = self.finder(finder);
        if !self.pages.contains_key(&subject.uid) {
            let subject = self.shared(subject);
            self.keep(Page {
                subject,
                findings: Vec::new(),
            });
        }
        let Some(page) = self.pages.get_mut(&subject.uid) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(page.bytes());
        let range = page.range(&finder);
        let known = &page.findings[range.clone()];
        let same = |result: &RuleResult| known.iter().find(|known| known.result.says_as(result));
        let findings: Vec<Finding> = results
            .into_iter()
            .map(|result| match same(&result) {
                Some(known) => Finding {
                    result: self.results.take(&known.result),
                    ..known.clone()
                },
                None => Finding {
                    finder: Arc::clone(&finder),
                    result: self.results.take(&result),
                    since_s: now_s,
                    is_new: true,
                },
            })
            .collect();
        let (more, less) = (findings.len(), range.len());
        page.findings.reserve_exact(more.saturating_sub(less));
        for gone in page.findings.splice(range, findings) {
            self.results.release(&gone.result);
        }
        self.bytes += page.bytes();
        if !self.changed.contains(&page.subject) {
            self.changed.insert(page.subject.clone());
        }
        self.hold_limits();
    }

    /// The finder knows nothing of the object any more.
    pub(crate) fn forget(&mut self, uid: &str, finder: &Finder) {
        self.left_out.remove(uid, finder);
        let Some(page) = self
            .pages
            .get(uid)
            .filter(|page| !page.of(finder).is_empty())
        else {
            return;
        };
        let uid = Arc::clone(&page.subject.uid);
        self.narrow(&uid, |found| found == finder);
    }

    /// Of whoever is no finder any more, all is forgotten.
    pub(crate) fn retain(&mut self, is_finder: impl Fn(&Finder) -> bool) {
        let gone = self.finders.extract_if(|finder| !is_finder(finder));
        let gone: HashSet<Arc<Finder>> = gone.collect();
        if gone.is_empty() {
            return;
        }
        self.left_out.retain(&gone);
        let is_gone = |finder: &Finder| gone.contains(finder);
        let concerned = self.pages.iter();
        let concerned =
            concerned.filter(|(_, page)| page.findings.iter().any(|f| is_gone(&f.finder)));
        let concerned: Vec<Arc<str>> = concerned.map(|(uid, _)| Arc::clone(uid)).collect();
        concerned.iter().for_each(|uid| self.narrow(uid, is_gone));
    }

    /// Takes from a page what these found, and the page if nothing is left.
    fn narrow(&mut self, uid: &str, is_gone: impl Fn(&Finder) -> bool) {
        let Some(mut page) = self.pages.remove(uid) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(page.bytes());
        let gone = page
            .findings
            .extract_if(.., |finding| is_gone(&finding.finder));
        gone.for_each(|finding| self.results.release(&finding.result));
        page.findings.shrink_to_fit();
        match page.findings.is_empty() {
            true => self.gone(&page.subject),
            false => {
                self.changed.insert(page.subject.clone());
                self.keep(page);
            }
        }
    }

    fn keep(&mut self, page: Page) {
        self.bytes += page.bytes();
        self.pages.insert(Arc::clone(&page.subject.uid), page);
    }

    /// Whether the object is one of those that are left out.
    fn is_beyond(&self, uid: &str) -> bool {
        self.horizon
            .as_deref()
            .is_some_and(|horizon| uid >= horizon)
    }

    /// What is held, in bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.results.bytes() + self.texts.bytes()
    }

    /// Leaves out what comes last, where there is too much.
    fn hold_limits(&mut self) {
        while self.pages.len() > self.limits.pages_max || self.bytes() > self.limits.bytes_max {
            let Some((uid, page)) = self.pages.pop_last() else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(page.bytes());
            for finding in &page.findings {
                self.left_out.put(&uid, &finding.finder);
                self.results.release(&finding.result);
            }
            self.gone(&page.subject);
            self.horizon = Some(uid);
        }
    }

    /// Those that were left out may be taken in again, where there is room. Without much of it nothing
    /// changes, so that nothing comes and goes at the limit. Returns whether they may from now on: then all
    /// objects have to be judged.
    pub(crate) fn reopen(&mut self) -> bool {
        if self.horizon.is_none() {
            return false;
        }
        let (pages_max, bytes_max) = (self.limits.pages_max, self.limits.bytes_max);
        let has_pages = self.pages.len() <= pages_max - pages_max.div_ceil(ROOM);
        let has_room = has_pages && self.bytes() <= bytes_max - bytes_max.div_ceil(ROOM);
        if has_room {
            self.horizon = None;
        }
        has_room
    }

    /// How many objects that some policy speaks of are left out; so many at least.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out.objects()
    }

    /// Each finder once.
    fn finder(&mut self, finder: &Finder) -> Arc<Finder> {
        if let Some(known) = self.finders.get(finder) {
            return Arc::clone(known);
        }
        let finder = Arc::new(finder.clone());
        self.finders.insert(Arc::clone(&finder));
        finder
    }

    fn shared(&mut self, subject: &Subject) -> Subject {
        Subject {
            uid: Arc::clone(&subject.uid),
            name: Arc::clone(&subject.name),
            api_version: self.texts.take(&subject.api_version),
            kind: self.texts.take(&subject.kind),
            namespace: self.texts.take(&subject.namespace),
        }
    }

    /// Of this object there is nothing to be said any more.
    fn gone(&mut self, subject: &Subject) {
        for text in [&subject.api_version, &subject.kind, &subject.namespace] {
            self.texts.release(text);
        }
        // Those that are held have a place there whatever is gone.
        let most = self.limits.pages_max.saturating_add(self.limits.gone_max);
        self.changed.insert(subject.clone());
        if self.changed.len() > most {
            self.changed.remove(subject);
            self.is_lost = true;
        }
    }

    /// Whether something changed that nobody will be [told](Self::take_changed) of: all has to be looked at then.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    /// Something else is to be said of what these policies found.
    pub(crate) fn touch(&mut self, is_concerned: impl Fn(&ObjectKey) -> bool) {
        let pages = self.pages.values();
        let concerned =
            pages.filter(|page| page.findings.iter().any(|f| is_concerned(&f.finder.policy)));
        self.changed
            .extend(concerned.map(|page| page.subject.clone()));
    }

    /// The objects (namespace and name) that this finder could not judge.
    pub(crate) fn errors_of(&self, finder: &Finder) -> Vec<ObjectKey> {
        let has_error = |page: &&Page| {
            let mut findings = page.of(finder).iter();
            findings.any(|finding| finding.result.outcome == Outcome::Error)
        };
        let pages = self.pages.values().filter(has_error);
        let mut keys: Vec<_> = pages
            .map(|page| ObjectKey::new(&*page.subject.namespace, &*page.subject.name))
            .collect();
        keys.sort_unstable();
        keys
    }

    /// What is known of an object.
    pub(crate) fn page(&self, uid: &str) -> Option<&Page> {
        self.pages.get(uid)
    }

    /// How many objects something is known of.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Everybody was told of what is new of the object.
    pub(crate) fn told(&mut self, uid: &str) {
        let page = self.pages.get_mut(uid);
        let findings = page.into_iter().flat_map(|page| &mut page.findings);
        findings.for_each(|finding| finding.is_new = false);
    }

    /// A report of before said this of the object: what it said too is no news, and is as old as that.
    pub(crate) fn remember(&mut self, uid: &str, said: &Said) {
        let page = self.pages.get_mut(uid);
        let findings = page.into_iter().flat_map(|page| &mut page.findings);
        for finding in findings.filter(|finding| finding.is_new) {
            let (policy, result) = (finding.finder.policy.to_string(), &finding.result);
            let (rule, outcome) = (result.rule.to_string(), result.outcome.as_str());
            if let Some(since_s) = said.get(&(policy, rule, outcome.to_owned())) {
                finding.since_s = *since_s;
                finding.is_new = false;
            }
        }
    }

    /// The next object of which something changed.
    pub(crate) fn take_changed(&mut self) -> Option<Subject> {
        let after = |taken| (Bound::Excluded(taken), Bound::Unbounded);
        let taken = self.taken.as_ref();
        let next = taken.and_then(|taken| self.changed.range::<Subject, _>(after(taken)).next());
        let next = next.or_else(|| self.changed.first()).cloned()?;
        self.changed.remove(&next);
        self.taken = Some(next.clone());
        Some(next)
    }

    /// How many objects something changed of.
    pub(crate) fn waiting(&self) -> usize {
        self.changed.len()
    }

    /// Everything that is known, for comparison.
    #[cfg(test)]
    pub(crate) fn all(&self) -> BTreeMap<Subject, BTreeMap<Finder, Vec<RuleResult>>> {
        let page = |page: &Page| {
            let mut by_finder: BTreeMap<Finder, Vec<RuleResult>> = BTreeMap::new();
            for finding in &page.findings {
                let results = by_finder.entry((*finding.finder).clone());
                results.or_default().push((*finding.result).clone());
            }
            (page.subject.clone(), by_finder)
        };
        self.pages.values().map(page).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;

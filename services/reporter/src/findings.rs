//! The findings on each object that some policy matches, and the objects with new findings. Pure.
//!
//! Objects are held up to [limits](Limits): beyond a limit, the objects with the last UIDs of the namespace that takes
//! the most of it are left out. So the same unchanged objects are always left out, whatever the order in which they are
//! met.

mod interned;
mod left_out;
mod shares;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    mem::size_of,
    ops::{Bound, Range},
    sync::Arc,
};

use anteroom_model::{ObjectKey, ViewId};

use self::{
    interned::Interned,
    left_out::LeftOutObjects,
    shares::{Exceeded, Shares},
};
use crate::result::{ReportOutcome, ReportSubject, ReportedSince, RuleResult, named};

/// Objects that something is known of; those beyond are left out, and counted.
pub(crate) const OBJECTS_MAX: usize = 200_000;

/// The bytes of all findings on objects, about; further objects are left out as well.
pub(crate) const BYTES_MAX: usize = 128 * 1024 * 1024;

/// Objects that are gone and whose reports were not looked at since; of more it is known that there are some.
pub(crate) const GONE_MAX: usize = OBJECTS_MAX;

/// The part of the limits that has to be free before objects that were left out are taken in again.
const ROOM: usize = 8;

/// The scan that found a result: of a policy over the objects of a view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyScan {
    pub(crate) policy: ObjectKey,
    pub(crate) view: ViewId,
}

/// A result with its scan, and with the time since which the result is unchanged.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) scan: Arc<PolicyScan>,
    pub(crate) result: Arc<RuleResult>,
    /// Seconds since 1970.
    pub(crate) since_s: i64,
    /// Neither an Event nor an earlier report says it yet.
    pub(crate) is_new: bool,
}

/// All that is known of one object.
#[derive(Clone, Debug)]
pub(crate) struct ObjectFindings {
    pub(crate) subject: ReportSubject,
    /// The findings by scan, in the order of its rules. Never none.
    pub(crate) findings: Vec<Finding>,
}

impl ObjectFindings {
    /// The findings of this scan.
    pub(crate) fn by_scan(&self, scan: &PolicyScan) -> &[Finding] {
        &self.findings[self.range(scan)]
    }

    fn range(&self, scan: &PolicyScan) -> Range<usize> {
        let begin = self.findings.partition_point(|f| *f.scan < *scan);
        let found = self.findings[begin..].partition_point(|f| *f.scan == *scan);
        begin..begin + found
    }

    /// The bytes of the findings, without the shared results.
    fn bytes(&self) -> usize {
        let texts = self.subject.uid.len() + self.subject.name.len();
        size_of::<Self>() + texts + self.findings.len() * size_of::<Finding>()
    }
}

/// The limits of the findings in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) objects_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) gone_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            objects_max: OBJECTS_MAX,
            bytes_max: BYTES_MAX,
            gone_max: GONE_MAX,
        }
    }
}

/// The findings of all objects, by UID.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    limits: Limits,
    objects: BTreeMap<Arc<str>, ObjectFindings>,
    /// The bytes that all objects take, without the results.
    bytes: usize,
    scans: HashSet<Arc<PolicyScan>>,
    /// Texts that subjects share: kinds, versions and namespaces.
    texts: Interned<str>,
    /// The parts of the namespaces, and their results.
    shares: Shares,
    left_out: LeftOutObjects,
    /// Objects that changed since they were last taken, or that are gone.
    changed: BTreeSet<ReportSubject>,
    /// Some changed that are not among them.
    is_lost: bool,
    /// The subject taken last. The next subject follows in order, so frequent changes of a few subjects delay no
    /// subject.
    taken: Option<ReportSubject>,
}

impl Findings {
    /// Returns findings that hold no more than `limits`.
    #[cfg(test)]
    pub(crate) fn with_limits(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Replaces the results of a scan on an object. No results: the scan's policy does not match the object.
    pub(crate) fn put(
        &mut self,
        subject: &ReportSubject,
        scan: &PolicyScan,
        results: Vec<RuleResult>,
        now_s: i64,
    ) {
        if results.is_empty() {
            return self.forget(&subject.uid, scan);
        }
        if self.shares.is_beyond(&subject.namespace, &subject.uid) {
            let scan = self.scan(scan);
            return self.left_out.put(&subject.uid, &scan);
        }
        self.left_out.remove(&subject.uid, scan);
        if let Some(of_object) = self.objects.get(&subject.uid) {
            let known = of_object
                .by_scan(scan)
                .iter()
                .map(|finding| &finding.result);
            // Most are as they were.
            if known.len() == results.len() && known.zip(&results).all(|(k, r)| k.same_result(r)) {
                return;
            }
        }
        let scan = self.scan(scan);
        let known = self.take(&subject.uid);
        let mut of_object = known.unwrap_or_else(|| ObjectFindings {
            subject: self.shared(subject),
            findings: Vec::new(),
        });
        let namespace = &of_object.subject.namespace;
        let range = of_object.range(&scan);
        let known = &of_object.findings[range.clone()];
        let same =
            |result: &RuleResult| known.iter().find(|known| known.result.same_result(result));
        let findings: Vec<Finding> = results
            .into_iter()
            .map(|result| match same(&result) {
                Some(known) => Finding {
                    result: self.shares.hold(namespace, &known.result),
                    ..known.clone()
                },
                None => Finding {
                    scan: Arc::clone(&scan),
                    result: self.shares.hold(namespace, &Arc::new(result)),
                    since_s: now_s,
                    is_new: true,
                },
            })
            .collect();
        let (more, less) = (findings.len(), range.len());
        of_object.findings.reserve_exact(more.saturating_sub(less));
        for gone in of_object.findings.splice(range, findings) {
            self.shares.release(namespace, &gone.result);
        }
        if !self.changed.contains(&of_object.subject) {
            self.changed.insert(of_object.subject.clone());
        }
        self.keep(of_object);
        self.hold_limits();
    }

    /// The scan knows nothing of the object any more.
    pub(crate) fn forget(&mut self, uid: &str, scan: &PolicyScan) {
        self.left_out.remove(uid, scan);
        let Some(of_object) = self
            .objects
            .get(uid)
            .filter(|of_object| !of_object.by_scan(scan).is_empty())
        else {
            return;
        };
        let uid = Arc::clone(&of_object.subject.uid);
        self.narrow(&uid, |found| found == scan);
    }

    /// Forgets the results of all other scans.
    pub(crate) fn retain(&mut self, is_scan: impl Fn(&PolicyScan) -> bool) {
        let gone = self.scans.extract_if(|scan| !is_scan(scan));
        let gone: HashSet<Arc<PolicyScan>> = gone.collect();
        if gone.is_empty() {
            return;
        }
        self.left_out.retain(&gone);
        let is_gone = |scan: &PolicyScan| gone.contains(scan);
        let concerned = self.objects.iter();
        let concerned =
            concerned.filter(|(_, of_object)| of_object.findings.iter().any(|f| is_gone(&f.scan)));
        let concerned: Vec<Arc<str>> = concerned.map(|(uid, _)| Arc::clone(uid)).collect();
        concerned.iter().for_each(|uid| self.narrow(uid, is_gone));
    }

    /// Removes these scans' findings on an object, and the object itself if no finding is left.
    fn narrow(&mut self, uid: &str, is_gone: impl Fn(&PolicyScan) -> bool) {
        let Some(mut of_object) = self.take(uid) else {
            return;
        };
        let namespace = &of_object.subject.namespace;
        let gone = of_object
            .findings
            .extract_if(.., |finding| is_gone(&finding.scan));
        gone.for_each(|finding| self.shares.release(namespace, &finding.result));
        of_object.findings.shrink_to_fit();
        match of_object.findings.is_empty() {
            true => self.gone(&of_object.subject),
            false => {
                self.changed.insert(of_object.subject.clone());
                self.keep(of_object);
            }
        }
    }

    fn keep(&mut self, of_object: ObjectFindings) {
        let ReportSubject { namespace, uid, .. } = &of_object.subject;
        self.bytes += of_object.bytes();
        self.shares.add(namespace, uid, of_object.bytes());
        self.objects.insert(Arc::clone(uid), of_object);
    }

    /// Removes the object, until it is [kept](Self::keep) again.
    fn take(&mut self, uid: &str) -> Option<ObjectFindings> {
        let of_object = self.objects.remove(uid)?;
        let namespace = &of_object.subject.namespace;
        self.bytes = self.bytes.saturating_sub(of_object.bytes());
        self.shares.remove(namespace, uid, of_object.bytes());
        Some(of_object)
    }

    /// Returns the bytes of all findings, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.shares.results().bytes() + self.texts.bytes()
    }

    /// Returns a limit that does not hold.
    fn exceeded(&self) -> Option<Exceeded> {
        if self.objects.len() > self.limits.objects_max {
            return Some(Exceeded::Objects);
        }
        (self.bytes() > self.limits.bytes_max).then_some(Exceeded::Bytes)
    }

    /// Leaves out the last objects of the namespaces that take the most until the limits hold.
    fn hold_limits(&mut self) {
        while let Some(exceeded) = self.exceeded() {
            let last = self.shares.leave_out_last(exceeded);
            let Some(of_object) = last.and_then(|uid| self.take(&uid)) else {
                return;
            };
            let ReportSubject { namespace, uid, .. } = &of_object.subject;
            for finding in &of_object.findings {
                self.left_out.put(uid, &finding.scan);
                self.shares.release(namespace, &finding.result);
            }
            self.gone(&of_object.subject);
        }
    }

    /// Allows objects that were left out to be taken in again, if there is enough room. Without much room nothing
    /// changes, so that no object comes and goes at the limit. Returns whether they may be taken in from now on: then
    /// all objects have to be judged.
    pub(crate) fn reopen(&mut self) -> bool {
        if !self.shares.has_horizon() {
            return false;
        }
        let (objects_max, bytes_max) = (self.limits.objects_max, self.limits.bytes_max);
        let has_objects = self.objects.len() <= objects_max - objects_max.div_ceil(ROOM);
        let has_room = has_objects && self.bytes() <= bytes_max - bytes_max.div_ceil(ROOM);
        if has_room {
            self.shares.reopen();
        }
        has_room
    }

    /// Returns the least number of objects that are left out although some policy matches them.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out.objects()
    }

    /// Each scan once.
    fn scan(&mut self, scan: &PolicyScan) -> Arc<PolicyScan> {
        if let Some(known) = self.scans.get(scan) {
            return Arc::clone(known);
        }
        let scan = Arc::new(scan.clone());
        self.scans.insert(Arc::clone(&scan));
        scan
    }

    fn shared(&mut self, subject: &ReportSubject) -> ReportSubject {
        ReportSubject {
            uid: Arc::clone(&subject.uid),
            name: Arc::clone(&subject.name),
            api_version: self.texts.take(&subject.api_version),
            kind: self.texts.take(&subject.kind),
            namespace: self.texts.take(&subject.namespace),
        }
    }

    /// Notes that there are no findings on this object any more.
    fn gone(&mut self, subject: &ReportSubject) {
        for text in [&subject.api_version, &subject.kind, &subject.namespace] {
            self.texts.release(text);
        }
        // Subjects with findings have a place, regardless of the deleted subjects.
        let most = self.limits.objects_max.saturating_add(self.limits.gone_max);
        self.changed.insert(subject.clone());
        if self.changed.len() > most {
            self.changed.remove(subject);
            self.is_lost = true;
        }
    }

    /// Returns whether a change was lost that [`Self::take_changed`] will not return: all has to be looked at then.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    /// Has the reports on objects with findings of these policies written again.
    pub(crate) fn touch(&mut self, is_concerned: impl Fn(&ObjectKey) -> bool) {
        let objects = self.objects.values();
        let concerned = objects.filter(|of_object| {
            of_object
                .findings
                .iter()
                .any(|f| is_concerned(&f.scan.policy))
        });
        self.changed
            .extend(concerned.map(|of_object| of_object.subject.clone()));
    }

    /// The objects (namespace and name) that this scan could not judge.
    pub(crate) fn errors_of(&self, scan: &PolicyScan) -> Vec<ObjectKey> {
        let has_error = |of_object: &&ObjectFindings| {
            let mut findings = of_object.by_scan(scan).iter();
            findings.any(|finding| finding.result.outcome == ReportOutcome::Error)
        };
        let objects = self.objects.values().filter(has_error);
        let mut keys: Vec<_> = objects
            .map(|of_object| {
                ObjectKey::new(&*of_object.subject.namespace, &*of_object.subject.name)
            })
            .collect();
        keys.sort_unstable();
        keys
    }

    /// The findings on an object.
    pub(crate) fn of_object(&self, uid: &str) -> Option<&ObjectFindings> {
        self.objects.get(uid)
    }

    /// The number of objects with findings.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Notes that Events were sent of all new findings on the object.
    pub(crate) fn mark_sent(&mut self, uid: &str) {
        let of_object = self.objects.get_mut(uid);
        let findings = of_object
            .into_iter()
            .flat_map(|of_object| &mut of_object.findings);
        findings.for_each(|finding| finding.is_new = false);
    }

    /// Takes over the results that a report of an earlier time has about the object: the same results are no news,
    /// and are as old as in the report.
    pub(crate) fn remember(&mut self, uid: &str, reported_since: &ReportedSince) {
        let of_object = self.objects.get_mut(uid);
        let findings = of_object
            .into_iter()
            .flat_map(|of_object| &mut of_object.findings);
        for finding in findings.filter(|finding| finding.is_new) {
            let result = &finding.result;
            let (policy, rule) = named(&finding.scan.policy, &result.rule);
            let outcome = result.outcome.as_str();
            if let Some(since_s) = reported_since.get(&(policy, rule, outcome.to_owned())) {
                finding.since_s = *since_s;
                finding.is_new = false;
            }
        }
    }

    /// The next object of which something changed.
    pub(crate) fn take_changed(&mut self) -> Option<ReportSubject> {
        let after = |taken| (Bound::Excluded(taken), Bound::Unbounded);
        let taken = self.taken.as_ref();
        let next =
            taken.and_then(|taken| self.changed.range::<ReportSubject, _>(after(taken)).next());
        let next = next.or_else(|| self.changed.first()).cloned()?;
        self.changed.remove(&next);
        self.taken = Some(next.clone());
        Some(next)
    }

    /// The number of objects of which something changed.
    pub(crate) fn waiting(&self) -> usize {
        self.changed.len()
    }

    /// Everything that is known, for comparison.
    #[cfg(test)]
    pub(crate) fn all(&self) -> BTreeMap<ReportSubject, BTreeMap<PolicyScan, Vec<RuleResult>>> {
        let of_object = |of_object: &ObjectFindings| {
            let mut by_scan: BTreeMap<PolicyScan, Vec<RuleResult>> = BTreeMap::new();
            for finding in &of_object.findings {
                let results = by_scan.entry((*finding.scan).clone());
                results.or_default().push((*finding.result).clone());
            }
            (of_object.subject.clone(), by_scan)
        };
        self.objects.values().map(of_object).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;

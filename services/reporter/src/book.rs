//! What is known of each object that some policy speaks of, and of which objects something new is.
//! Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use anteroom_model::{ObjectKey, ViewId};

use crate::{
    report::{Said, policy_name},
    result::{Outcome, RuleResult, Subject},
};

/// Who found a result: a policy, on an object of a view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Finder {
    pub(crate) policy: ObjectKey,
    pub(crate) view: ViewId,
}

/// A result, and since when it is what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) result: RuleResult,
    /// Seconds since 1970.
    pub(crate) since_s: i64,
    /// Nobody was told of it yet.
    pub(crate) is_new: bool,
}

/// All that is known of one object.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) subject: Subject,
    /// Never without findings.
    pub(crate) findings: BTreeMap<Finder, Vec<Finding>>,
}

/// The pages, by the objects' UIDs.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pages: HashMap<Arc<str>, Page>,
    /// Pages that changed since they were last taken, or that are gone.
    changed: BTreeSet<Subject>,
    /// The last one that was taken: each gets its turn, however often others change.
    taken: Option<Subject>,
}

impl Book {
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
        let page = self
            .pages
            .entry(subject.uid.clone())
            .or_insert_with(|| Page {
                subject: subject.clone(),
                findings: BTreeMap::new(),
            });
        let known = page.findings.remove(finder).unwrap_or_default();
        let same = |result: &RuleResult| known.iter().find(|known| known.result.says_as(result));
        let findings: Vec<_> = results
            .into_iter()
            .map(|result| match same(&result) {
                Some(known) => known.clone(),
                None => Finding {
                    result,
                    since_s: now_s,
                    is_new: true,
                },
            })
            .collect();
        if findings != known {
            self.changed.insert(page.subject.clone());
        }
        page.findings.insert(finder.clone(), findings);
    }

    /// The finder knows nothing of the object any more.
    pub(crate) fn forget(&mut self, uid: &str, finder: &Finder) {
        let Some(page) = self.pages.get_mut(uid) else {
            return;
        };
        if page.findings.remove(finder).is_some() {
            self.changed.insert(page.subject.clone());
        }
        if page.findings.is_empty() {
            self.pages.remove(uid);
        }
    }

    /// Of whoever is no finder any more, all is forgotten.
    pub(crate) fn retain(&mut self, is_finder: impl Fn(&Finder) -> bool) {
        let changed = &mut self.changed;
        self.pages.retain(|_, page| {
            let before = page.findings.len();
            page.findings.retain(|finder, _| is_finder(finder));
            if page.findings.len() != before {
                changed.insert(page.subject.clone());
            }
            !page.findings.is_empty()
        });
    }

    /// Something else is to be said of what these policies found.
    pub(crate) fn touch(&mut self, is_concerned: impl Fn(&ObjectKey) -> bool) {
        let pages = self.pages.values();
        let concerned = pages.filter(|page| page.findings.keys().any(|f| is_concerned(&f.policy)));
        self.changed
            .extend(concerned.map(|page| page.subject.clone()));
    }

    /// The objects (namespace and name) that this finder could not judge.
    pub(crate) fn errors_of(&self, finder: &Finder) -> Vec<ObjectKey> {
        let has_error = |page: &&Page| {
            let findings = page.findings.get(finder);
            let mut findings = findings.into_iter().flatten();
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
        let findings = page.into_iter().flat_map(|page| page.findings.values_mut());
        findings
            .flatten()
            .for_each(|finding| finding.is_new = false);
    }

    /// A report of before said this of the object: what it said too is no news, and is as old as that.
    pub(crate) fn remember(&mut self, uid: &str, said: &Said) {
        let page = self.pages.get_mut(uid);
        let findings = page.into_iter().flat_map(|page| &mut page.findings);
        for (finder, findings) in findings {
            let policy = policy_name(&finder.policy);
            for finding in findings.iter_mut().filter(|finding| finding.is_new) {
                let result = &finding.result;
                let (rule, outcome) = (result.rule.to_string(), result.outcome.as_str());
                let place = (policy.clone(), rule, outcome.to_owned());
                if let Some(since_s) = said.get(&place) {
                    finding.since_s = *since_s;
                    finding.is_new = false;
                }
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
        let results = |findings: &Vec<Finding>| -> Vec<RuleResult> {
            findings.iter().map(|f| f.result.clone()).collect()
        };
        let page = |page: &Page| {
            let findings = page.findings.iter();
            let findings = findings.map(|(finder, f)| (finder.clone(), results(f)));
            (page.subject.clone(), findings.collect())
        };
        self.pages.values().map(page).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn subject(uid: &str) -> Subject {
        Subject {
            uid: uid.into(),
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "n".into(),
            name: uid.into(),
        }
    }

    pub(crate) fn finder(policy: &str) -> Finder {
        Finder {
            policy: ObjectKey::new("", policy),
            view: ViewId::new("pods.v1"),
        }
    }

    pub(crate) fn result(rule: &str, outcome: Outcome) -> RuleResult {
        RuleResult {
            rule: rule.into(),
            outcome,
            message: "m".into(),
        }
    }

    fn take_all(book: &mut Book) -> Vec<String> {
        std::iter::from_fn(|| book.take_changed())
            .map(|subject| subject.uid.to_string())
            .collect()
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let mut book = Book::default();
        let (a, p) = (subject("a"), finder("p"));
        book.put(&a, &p, vec![result("r", Outcome::Fail)], 1);
        assert_eq!(take_all(&mut book), ["a"]);
        book.told("a");
        book.put(&a, &p, vec![result("r", Outcome::Fail)], 2);
        assert_eq!(take_all(&mut book), [""; 0]);
        let since = |book: &Book| book.page("a").unwrap().findings[&p][0].since_s;
        assert_eq!(since(&book), 1, "it is what it was");
        assert!(!book.page("a").unwrap().findings[&p][0].is_new);
        book.put(&a, &p, vec![result("r", Outcome::Pass)], 3);
        assert_eq!(take_all(&mut book), ["a"]);
        assert_eq!(since(&book), 3);
        book.put(&a, &finder("q"), Vec::new(), 4);
        assert_eq!(take_all(&mut book), [""; 0]);
        book.put(&a, &p, Vec::new(), 5);
        assert_eq!(take_all(&mut book), ["a"]);
        assert_eq!(book.len(), 0);
    }

    #[test]
    fn an_error_with_other_numbers_is_no_change() {
        let mut book = Book::default();
        let (a, p) = (subject("a"), finder("p"));
        let error = |message: &str| {
            let mut error = result("r", Outcome::Error);
            error.message = message.into();
            vec![error]
        };
        book.put(&a, &p, error("AR201 after 1 s"), 1);
        take_all(&mut book);
        book.put(&a, &p, error("AR201 after 2 s"), 2);
        assert_eq!(take_all(&mut book), [""; 0]);
        book.put(&a, &p, error("AR202 after 2 s"), 3);
        assert_eq!(take_all(&mut book), ["a"]);
    }

    #[test]
    fn each_change_gets_its_turn() {
        let mut book = Book::default();
        let mut taken = Vec::new();
        book.put(
            &subject("b"),
            &finder("p"),
            vec![result("r", Outcome::Pass)],
            0,
        );
        for rule in ["1", "2", "3"] {
            let changed = vec![result(rule, Outcome::Pass)];
            book.put(&subject("a"), &finder("p"), changed, 0);
            taken.extend(book.take_changed().map(|subject| subject.uid.to_string()));
        }
        assert_eq!(taken, ["a", "b", "a"]);
    }

    #[test]
    fn what_a_policy_found_can_be_told_in_another_way() {
        let mut book = Book::default();
        let results = || vec![result("r", Outcome::Pass)];
        book.put(&subject("a"), &finder("p"), results(), 1);
        book.put(&subject("b"), &finder("q"), results(), 1);
        take_all(&mut book);
        book.touch(|policy| &*policy.name == "q");
        assert_eq!(take_all(&mut book), ["b"]);
    }

    #[test]
    fn what_no_finder_knows_is_forgotten() {
        let mut book = Book::default();
        let results = || vec![result("r", Outcome::Error)];
        book.put(&subject("a"), &finder("p"), results(), 1);
        book.put(&subject("a"), &finder("q"), results(), 1);
        book.put(&subject("b"), &finder("p"), results(), 1);
        take_all(&mut book);
        assert_eq!(book.errors_of(&finder("p")).len(), 2);
        book.retain(|finder| &*finder.policy.name == "q");
        assert_eq!(take_all(&mut book), ["a", "b"]);
        assert!(book.page("a").is_some() && book.page("b").is_none());
        book.forget("a", &finder("q"));
        book.forget("a", &finder("q"));
        assert_eq!(take_all(&mut book), ["a"]);
        assert_eq!(book.len(), 0);
    }
}

//! Questions, each with its right answer.

use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::template::{Filling, Template};
use crate::Expected;

/// The hosts that a case asks about.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// A new host for each review, which no object ever had.
    Free,
    /// Any of these. None at all is as [`Hosts::Free`].
    Of(Arc<Vec<String>>),
}

/// A class of reviews with the same right answer.
#[derive(Clone, Debug)]
pub struct Case {
    /// The share of the reviews that are of this sort, relative to the other cases.
    pub weight: u32,
    /// The host that is asked about.
    pub hosts: Hosts,
    /// The path that is asked about.
    pub path: String,
    /// The right answer.
    pub expected: Expected,
}

/// The questions of a run.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The reviews' body.
    pub template: Arc<Template>,
    /// The sorts of reviews; at least one.
    pub cases: Vec<Case>,
}

/// Generates the questions of a worker, which differ from the questions of all workers beside it.
pub(crate) struct Asker {
    questions: Questions,
    weights: u32,
    worker: usize,
    asked: u64,
    rng: SmallRng,
    uid: String,
    name: String,
    host: String,
}

/// The question that was asked last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) uid: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) expected: Expected,
}

impl Asker {
    pub(crate) fn new(questions: &Questions, worker: usize) -> Self {
        Self {
            weights: questions.cases.iter().map(|case| case.weight).sum(),
            questions: questions.clone(),
            worker,
            asked: 0,
            rng: SmallRng::from_rng(&mut rand::rng()),
            uid: String::new(),
            name: String::new(),
            host: String::new(),
        }
    }

    /// Writes the next review into `body`, in place of what is there.
    pub(crate) fn ask(&mut self, body: &mut Vec<u8>) -> Asked<'_> {
        use std::fmt::Write;
        let case = self.pick();
        self.asked += 1;
        let random: u64 = self.rng.random();
        for text in [&mut self.uid, &mut self.name] {
            text.clear();
        }
        // Writing to a string cannot fail.
        let _ = write!(
            self.uid,
            "{:08x}-{:04x}-4000-8000-{random:012x}",
            self.asked as u32,
            self.worker as u16,
            random = random >> 16
        );
        let _ = write!(self.name, "load-{}-{:x}", self.worker, random);
        let case = &self.questions.cases[case];
        self.host.clear();
        match &case.hosts {
            Hosts::Of(hosts) if !hosts.is_empty() => {
                let at = self.rng.random_range(0..hosts.len());
                self.host.push_str(&hosts[at]);
            }
            Hosts::Free | Hosts::Of(_) => {
                let _ = write!(self.host, "free-{random:016x}.anteroom.test");
            }
        }
        let filling = Filling {
            uid: &self.uid,
            name: &self.name,
            host: &self.host,
            path: &case.path,
        };
        body.clear();
        self.questions.template.write(filling, body);
        Asked {
            uid: &self.uid,
            host: &self.host,
            path: &case.path,
            expected: case.expected,
        }
    }

    fn pick(&mut self) -> usize {
        let mut left = self.rng.random_range(0..self.weights.max(1));
        for (at, case) in self.questions.cases.iter().enumerate() {
            if left < case.weight {
                return at;
            }
            left -= case.weight;
        }
        0
    }
}

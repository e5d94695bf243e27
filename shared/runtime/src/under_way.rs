//! The jobs that requests under way belong to, by key, and whether a key has more of them than its part.
//!
//! A job is a number that several requests share. So a job that makes many requests, or repeats them, counts once.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

/// The jobs under way.
#[derive(Debug)]
pub struct JobsUnderWay<K: Ord + Clone> {
    /// The jobs that can go on at the same time.
    places: u64,
    jobs: Mutex<Jobs<K>>,
}

/// A request under way. Dropping it ends it.
#[derive(Debug)]
pub struct RequestUnderWay<K: Ord + Clone> {
    all: Arc<JobsUnderWay<K>>,
    key: K,
    job: u64,
    /// The number of the request.
    number: u64,
}

#[derive(Debug)]
struct Jobs<K> {
    /// Keys without requests are absent.
    by_key: BTreeMap<K, KeyJobs>,
    /// Counts requests.
    begun: u64,
}

/// The jobs of one key.
#[derive(Debug, Default)]
struct KeyJobs {
    /// The requests under way of each job that has some.
    requests: BTreeMap<u64, u64>,
    /// The number of the last request with which the key had more than its part.
    over_part_at: u64,
}

impl<K: Ord + Clone> JobsUnderWay<K> {
    /// No jobs, where so many can go on at the same time.
    pub fn new(places: u64) -> Arc<Self> {
        let jobs = Jobs {
            by_key: BTreeMap::new(),
            begun: 0,
        };
        Arc::new(Self {
            places,
            jobs: Mutex::new(jobs),
        })
    }

    /// Begins a request of this job.
    pub fn begin(self: &Arc<Self>, key: K, job: u64) -> RequestUnderWay<K> {
        let mut jobs = self.jobs.lock();
        jobs.begun += 1;
        let number = jobs.begun;
        let of_key = jobs.by_key.entry(key.clone()).or_default();
        *of_key.requests.entry(job).or_default() += 1;
        if self.is_over_part(&jobs, &key)
            && let Some(of_key) = jobs.by_key.get_mut(&key)
        {
            of_key.over_part_at = number;
        }
        drop(jobs);
        RequestUnderWay {
            all: Arc::clone(self),
            key,
            job,
            number,
        }
    }

    /// Returns whether there are more jobs than places, and the key has several, and more than an equal part of the places. The
    /// equal part is one of as many as there are keys, and one for the next key.
    fn is_over_part(&self, jobs: &Jobs<K>, key: &K) -> bool {
        let parts = jobs.by_key.len() as u64 + 1;
        let count = jobs.by_key.get(key).map_or(0, KeyJobs::count);
        let all = || -> u64 { jobs.by_key.values().map(KeyJobs::count).sum() };
        count > 1 && count > self.places / parts && all() > self.places
    }
}

impl KeyJobs {
    fn count(&self) -> u64 {
        self.requests.len() as u64
    }
}

impl<K: Ord + Clone> RequestUnderWay<K> {
    /// Returns whether the key had other jobs, and more than its part, at some time since the request began.
    pub fn is_over_part(&self) -> bool {
        let jobs = self.all.jobs.lock();
        let of_key = jobs.by_key.get(&self.key);
        let was_over_part = of_key.is_some_and(|of_key| of_key.over_part_at >= self.number);
        // Parts shrink when others come.
        was_over_part || self.all.is_over_part(&jobs, &self.key)
    }
}

impl<K: Ord + Clone> Drop for RequestUnderWay<K> {
    fn drop(&mut self) {
        let mut jobs = self.all.jobs.lock();
        let Some(of_key) = jobs.by_key.get_mut(&self.key) else {
            return;
        };
        if let Some(requests) = of_key.requests.get_mut(&self.job) {
            *requests -= 1;
            if *requests == 0 {
                of_key.requests.remove(&self.job);
            }
        }
        if of_key.requests.is_empty() {
            jobs.by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_over_its_part_by_several_jobs_and_not_by_many_requests_of_one() {
        let all = JobsUnderWay::new(2);
        let one: Vec<_> = (0..10).map(|_| all.begin('a', 7)).collect();
        assert!(one.iter().all(|request| !request.is_over_part()));
        let other = all.begin('b', 8);
        assert!(!other.is_over_part());
        let second = all.begin('a', 9);
        assert!(second.is_over_part() && one[0].is_over_part());
        assert!(!other.is_over_part());
        drop(one);
        assert!(second.is_over_part(), "it was when the request began");
        let third = all.begin('a', 9);
        assert!(!third.is_over_part());
        drop(all.begin('a', 10));
        assert!(third.is_over_part(), "it was for a while");
        drop((second, third, other));
        assert!(all.jobs.lock().by_key.is_empty());
    }

    #[test]
    fn a_part_grows_with_the_places_and_shrinks_with_the_keys() {
        for (places, keys, jobs_max) in [
            (0, 1, 1),
            (1, 1, 1),
            (4, 1, 4),
            (16, 1, 16),
            (16, 9, 8),
            (16, 30, 1),
        ] {
            let all = JobsUnderWay::new(places);
            let others: Vec<_> = (1..keys).map(|key| all.begin(key, 1)).collect();
            let mut held = Vec::new();
            let over = (1..=20).find(|job| {
                let request = all.begin(0, *job);
                let is_over_part = request.is_over_part();
                held.push(request);
                is_over_part
            });
            assert_eq!(over, Some(jobs_max + 1), "{places} {keys}");
            drop(others);
        }
    }
}

//! The requests that run at a time: a limit for all, and fair parts for the policies of each namespace.

use std::sync::Arc;

use anteroom_model::FactError;
use anteroom_runtime::fair_quota::{FairPermit, FairQuota};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The quota of a replica's requests.
#[derive(Debug)]
pub(super) struct RequestQuota {
    requests_max: u32,
    all: Semaphore,
    namespaces: Arc<FairQuota<String>>,
}

/// A running request. Dropping it ends it.
#[derive(Debug)]
pub(super) struct RunningRequest<'q> {
    _of_all: SemaphorePermit<'q>,
    /// `None`: the request is of policies of the cluster.
    _of_namespace: Option<FairPermit<String>>,
}

impl RequestQuota {
    pub(super) fn new(requests_max: u32) -> Self {
        Self {
            requests_max,
            all: Semaphore::new(requests_max as usize),
            namespaces: FairQuota::of_namespaces(requests_max),
        }
    }

    /// Admits a request of policies of a namespace, or (empty) of the cluster.
    ///
    /// # Errors
    /// [`FactError::Busy`] with the limit that was met.
    pub(super) fn admit(&self, namespace: &str) -> Result<RunningRequest<'_>, FactError> {
        let busy = |limit: u64| FactError::Busy { limit };
        let of_all = self.all.try_acquire();
        let of_all = of_all.map_err(|_| busy(self.requests_max.into()))?;
        let of_namespace = match namespace {
            "" => None,
            namespace => {
                let permit = self.namespaces.try_take(namespace.to_owned(), 1);
                Some(permit.map_err(|full| busy(full.held_max))?)
            }
        };
        Ok(RunningRequest {
            _of_all: of_all,
            _of_namespace: of_namespace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_namespaces_leave_a_quarter_to_policies_of_the_cluster() {
        let quota = RequestQuota::new(8);
        let admit = |namespaces: &[&str]| -> Vec<_> {
            let admitted = namespaces.iter().map(|namespace| quota.admit(namespace));
            admitted.collect::<Result<_, _>>().unwrap()
        };
        let busy = |namespace: &str| quota.admit(namespace).map(drop).unwrap_err();
        let of_namespaces = admit(&["a", "a", "b", "b", "c", "d"]);
        assert_eq!(busy("a"), FactError::Busy { limit: 6 });
        assert_eq!(busy("e"), FactError::Busy { limit: 6 });
        let of_cluster = admit(&["", ""]);
        assert_eq!(busy(""), FactError::Busy { limit: 8 });
        drop((of_namespaces, of_cluster));
        let one_namespace = admit(&["a", "a"]);
        assert_eq!(busy("a"), FactError::Busy { limit: 2 });
        drop(one_namespace);
        assert_eq!(admit(&[""; 8]).len(), 8);
    }

    #[test]
    fn the_least_part_is_one() {
        let quota = RequestQuota::new(1);
        let one = quota.admit("a").unwrap();
        assert_eq!(
            quota.admit("").map(drop).unwrap_err(),
            FactError::Busy { limit: 1 }
        );
        drop(one);
        assert!(quota.admit("").is_ok());
    }
}

//! The requests that run at a time: a limit for all, fair parts for each beneficiary, and a part for the policies of
//! namespaces. A request whose parameters take much memory counts as several, but not as more than its beneficiary may
//! have: so it is never impossible, and leaves some to others.

use std::sync::Arc;

use anteroom_model::FactError;
use anteroom_runtime::fair_quota::{FairPermit, FairQuota, QuotaFull};
use anteroom_wire::beneficiary::Beneficiary;

/// The memory of parameters beyond which a request counts as one more: with 256 requests at once, all parameters take
/// some 128 MiB.
const PARAMETER_BYTES: u64 = 512 * 1024;

/// The quota of a replica's requests.
#[derive(Debug)]
pub(super) struct RequestQuota {
    all: Arc<FairQuota<Beneficiary>>,
    namespaces: Arc<FairQuota<String>>,
}

/// A running request. Dropping it ends it.
#[derive(Debug)]
pub(super) struct RunningRequest {
    _of_all: FairPermit<Beneficiary>,
    /// `None`: the request is of policies of the cluster.
    _of_namespace: Option<FairPermit<String>>,
}

impl RequestQuota {
    pub(super) fn new(requests_max: u32) -> Self {
        Self {
            all: FairQuota::limiting_requests(requests_max.into()),
            namespaces: FairQuota::of_namespaces(requests_max),
        }
    }

    /// Admits a request of this beneficiary, whose parameters take so much memory.
    ///
    /// # Errors
    /// [`FactError::Busy`] with the limit that was met, and whether the beneficiary's own requests use up its part.
    pub(super) fn admit(
        &self,
        beneficiary: &Beneficiary,
        memory: u64,
    ) -> Result<RunningRequest, FactError> {
        let requests = 1 + memory / PARAMETER_BYTES;
        let busy = |full: QuotaFull| FactError::Busy {
            limit: full.held_max,
            over_part: full.over_part && beneficiary.is_of_namespace(),
        };
        let of_namespace = match beneficiary {
            Beneficiary::Policies(namespace) => {
                let requests = requests.min(self.namespaces.units_max());
                let permit = self.namespaces.try_take(namespace.clone(), requests);
                Some(permit.map_err(busy)?)
            }
            Beneficiary::Requests(_) | Beneficiary::Scans => None,
        };
        let requests = requests.min(self.all.units_max());
        let of_all = self.all.try_take(beneficiary.clone(), requests);
        let of_all = of_all.map_err(busy)?;
        Ok(RunningRequest {
            _of_all: of_all,
            _of_namespace: of_namespace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(namespace: &str) -> Beneficiary {
        Beneficiary::of(namespace, "shop", false)
    }

    fn requests(namespace: &str) -> Beneficiary {
        Beneficiary::of("", namespace, false)
    }

    /// Admits as many requests as the beneficiary gets now.
    fn admit_all(quota: &RequestQuota, beneficiary: &Beneficiary) -> Vec<RunningRequest> {
        std::iter::from_fn(|| quota.admit(beneficiary, 0).ok()).collect()
    }

    fn busy(limit: u64, over_part: bool) -> FactError {
        FactError::Busy { limit, over_part }
    }

    #[test]
    fn many_namespaces_leave_a_quarter_to_policies_of_the_cluster() {
        let quota = RequestQuota::new(8);
        let refused = |of: &Beneficiary| quota.admit(of, 0).map(drop).unwrap_err();
        let of_namespaces: Vec<_> = ["a", "a", "b", "b", "c", "d"]
            .iter()
            .map(|namespace| quota.admit(&policies(namespace), 0).unwrap())
            .collect();
        assert_eq!(refused(&policies("a")), busy(6, true));
        assert_eq!(refused(&policies("e")), busy(6, false));
        let of_cluster =
            ["shop", ""].map(|namespace| quota.admit(&requests(namespace), 0).unwrap());
        assert_eq!(refused(&requests("shop")), busy(8, true));
        assert_eq!(refused(&requests("other")), busy(8, false));
        drop((of_namespaces, of_cluster));
        let one_namespace = admit_all(&quota, &policies("a"));
        assert_eq!(one_namespace.len(), 2);
        assert_eq!(refused(&policies("a")), busy(2, true));
    }

    /// All users share the part of requests without a namespace.
    #[test]
    fn a_flood_is_told_as_such_in_a_namespace_alone() {
        let quota = RequestQuota::new(64);
        for (namespace, over_part) in [("flood", true), ("", false)] {
            let admitted = admit_all(&quota, &requests(namespace));
            let refused = quota.admit(&requests(namespace), 0).map(drop).unwrap_err();
            assert_eq!(refused, busy(admitted.len() as u64, over_part));
        }
    }

    #[test]
    fn requests_of_one_namespace_leave_a_third_to_those_of_others() {
        for (requests_max, expected) in [(64, [42, 14, 5]), (8, [5, 2, 1]), (1, [1, 0, 0])] {
            let quota = RequestQuota::new(requests_max);
            let admitted = ["flood", "shop", ""].map(|of| admit_all(&quota, &requests(of)));
            assert_eq!(
                admitted.each_ref().map(Vec::len),
                expected,
                "{requests_max}"
            );
        }
    }

    /// A list of 100,000 names takes some 10 MiB.
    #[test]
    fn a_request_with_large_parameters_counts_as_several() {
        for (memory, expected) in [(PARAMETER_BYTES - 1, 170), (10 << 20, 8), (64 << 20, 1)] {
            let quota = RequestQuota::new(256);
            let of = requests("shop");
            let admitted: Vec<_> = std::iter::from_fn(|| quota.admit(&of, memory).ok()).collect();
            assert_eq!(admitted.len(), expected, "{memory}");
        }
        let quota = RequestQuota::new(8);
        assert!(quota.admit(&policies("a"), 64 << 20).is_ok());
        assert!(quota.admit(&requests(""), 64 << 20).is_ok());
    }

    /// The largest request counts as 129, whatever the limit.
    #[test]
    fn a_single_request_leaves_to_others_what_many_requests_leave_to_them() {
        const LARGEST: u64 = 64 << 20;
        let quota = RequestQuota::new(64);
        let of_a = quota.admit(&policies("a"), LARGEST).unwrap();
        assert!(admit_all(&quota, &policies("a")).is_empty());
        let of_b = admit_all(&quota, &policies("b"));
        // Among all requests it counts by its memory, up to the part of one beneficiary: 22 are left.
        assert_eq!(of_b.len(), 14);
        drop((of_a, of_b));
        let of_cluster = quota.admit(&requests("flood"), LARGEST).unwrap();
        assert_eq!(admit_all(&quota, &requests("shop")).len(), 14);
        drop(of_cluster);
    }

    #[test]
    fn the_least_part_is_one() {
        let quota = RequestQuota::new(1);
        let one = quota.admit(&policies("a"), 0).unwrap();
        let refused = quota.admit(&requests(""), 0).map(drop).unwrap_err();
        assert_eq!(refused, busy(1, false));
        drop(one);
        assert!(quota.admit(&requests(""), 0).is_ok());
    }
}

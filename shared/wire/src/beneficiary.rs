//! The party that a request is counted for.

/// The party that the work for a request is counted for. A service gives each a fair part of what it can do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Beneficiary {
    /// The policies of a namespace.
    Policies(String),
    /// The requests in a namespace, or (empty) of the cluster, that policies of the cluster judge. So one user's flood
    /// of requests takes only the part of that namespace.
    Requests(String),
    /// Scans by policies of the cluster.
    Scans,
}

impl Beneficiary {
    /// Returns the party of a request for policies of `policy_namespace` (empty: of the cluster), which judge something
    /// in `review_namespace` (empty: of the cluster), at admission or in a scan.
    pub fn of(policy_namespace: &str, review_namespace: &str, of_scan: bool) -> Self {
        match policy_namespace {
            "" if of_scan => Self::Scans,
            "" => Self::Requests(review_namespace.to_owned()),
            namespace => Self::Policies(namespace.to_owned()),
        }
    }

    /// Returns whether all that is counted for the party is of one namespace. Requests of the cluster are of all users, and
    /// scans are of no user.
    pub fn is_of_namespace(&self) -> bool {
        match self {
            Self::Policies(_) => true,
            Self::Requests(namespace) => !namespace.is_empty(),
            Self::Scans => false,
        }
    }

    /// Returns the namespace of the policies; empty: policies of the cluster.
    pub fn policy_namespace(&self) -> &str {
        match self {
            Self::Policies(namespace) => namespace,
            Self::Requests(_) | Self::Scans => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_for_its_policies_and_of_the_cluster_for_what_they_judge() {
        let requests = |namespace: &str| Beneficiary::Requests(namespace.to_owned());
        let policies = || Beneficiary::Policies("team".to_owned());
        for (policies_of, judged, of_scan, party, is_of_namespace) in [
            ("", "", false, requests(""), false),
            ("", "shop", false, requests("shop"), true),
            ("", "shop", true, Beneficiary::Scans, false),
            ("team", "shop", false, policies(), true),
            ("team", "shop", true, policies(), true),
        ] {
            let found = Beneficiary::of(policies_of, judged, of_scan);
            assert_eq!(found, party);
            assert_eq!(found.is_of_namespace(), is_of_namespace, "{found:?}");
            assert_eq!(found.policy_namespace(), policies_of, "{found:?}");
        }
    }
}

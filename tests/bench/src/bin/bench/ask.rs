//! The reviews that are posted, and the right answers to them.

use std::sync::Arc;

use anteroom_load::{Case, Expected, Hosts, Questions, Slot, Template};
use serde_json::{Value, json};

use crate::pod;

/// The path of every Ingress in the cluster.
const PATH_OF_ALL: &str = "/";

/// A path that no Ingress in the cluster has.
const OTHER_PATH: &str = "/elsewhere";

/// The tag of an image that is admitted, and one that is not.
const TAG: &str = "1.27.3";
const OTHER_TAG: &str = "latest";

/// The rule that the policy under test enforces, as far as answers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// No two Ingresses with one path of one host.
    HostAndPath,
    /// No two Ingresses with one host.
    Host,
    /// No two Ingresses with one path.
    Path,
    /// No Ingress whose host is a Pod's name.
    PodName,
    /// None that asks about other objects: no Ingress with [`OTHER_PATH`].
    NoContext,
    /// Sixteen about Pods alone: no image with [`OTHER_TAG`].
    Pods,
}

/// The keys that the floor looks up for the same answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookUp {
    /// The parts of a rule that make a key, in the words of the floor's command line.
    pub(crate) by: &'static str,
    /// The keys that objects of the cluster have.
    pub(crate) taken: Vec<String>,
}

/// Returns the look-up that enforces the rule over objects with these hosts; `None` where hosts do not decide.
pub(crate) fn look_up(rule: Rule, hosts: &[String]) -> Option<LookUp> {
    match rule {
        Rule::HostAndPath => Some(LookUp {
            by: "host-and-path",
            taken: hosts
                .iter()
                .map(|host| host.clone() + PATH_OF_ALL)
                .collect(),
        }),
        Rule::Host | Rule::PodName => Some(LookUp {
            by: "host",
            taken: hosts.to_vec(),
        }),
        Rule::Path | Rule::NoContext | Rule::Pods => None,
    }
}

/// Returns reviews of which a tenth ask for a taken host, and a twentieth for a taken host with a free path.
pub(crate) fn questions(rule: Rule, hosts: Vec<String>) -> Questions {
    let case = |weight, hosts: Hosts, path: &str, denied: bool| Case {
        weight,
        hosts,
        path: path.to_owned(),
        expected: if denied {
            Expected::Denied
        } else {
            Expected::Allowed
        },
    };
    if rule == Rule::Pods {
        return Questions {
            template: Arc::new(Template::new(&pod::review())),
            cases: vec![
                case(19, Hosts::Free, TAG, false),
                case(1, Hosts::Free, OTHER_TAG, true),
            ],
        };
    }
    if rule == Rule::Path {
        return Questions {
            template: Arc::new(Template::new(&review())),
            cases: vec![
                case(17, Hosts::Free, OTHER_PATH, false),
                case(3, Hosts::Free, PATH_OF_ALL, true),
            ],
        };
    }
    let on_hosts = rule != Rule::NoContext && !hosts.is_empty();
    let hosts = Arc::new(hosts);
    let taken = || Hosts::Of(Arc::clone(&hosts));
    Questions {
        template: Arc::new(Template::new(&review())),
        cases: vec![
            case(17, Hosts::Free, PATH_OF_ALL, false),
            case(2, taken(), PATH_OF_ALL, on_hosts),
            case(1, taken(), OTHER_PATH, rule != Rule::HostAndPath),
        ],
    }
}

/// The AdmissionReview of a new Ingress as the API server sends it: with what it has filled in.
fn review() -> Value {
    let name = Slot::Name.mark();
    let mut object = anteroom_load::ingress("load", name, Slot::Host.mark());
    object["spec"]["rules"][0]["http"]["paths"][0]["path"] = Slot::Path.mark().into();
    let metadata = &mut object["metadata"];
    metadata["uid"] = Slot::Uid.mark().into();
    metadata["creationTimestamp"] = "2026-01-05T08:30:00Z".into();
    metadata["generation"] = 1.into();
    metadata["annotations"] = json!({ "cert-manager.io/cluster-issuer": "letsencrypt" });
    metadata["managedFields"] = json!([{
        "manager": "kubectl-create", "operation": "Update", "time": "2026-01-05T08:30:00Z",
        "apiVersion": "networking.k8s.io/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": { "f:annotations": { ".": {}, "f:cert-manager.io/cluster-issuer": {} },
                "f:labels": { ".": {}, "f:app.kubernetes.io/name": {} } },
            "f:spec": { "f:ingressClassName": {}, "f:rules": {} },
        },
    }]);
    let review = anteroom_load::review(Slot::Uid.mark(), &object);
    serde_json::from_slice(&review).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_looks_up_the_keys_of_objects_that_the_rule_is_about() {
        let hosts = ["a.example".to_owned()];
        let of = |rule| look_up(rule, &hosts).map(|of| (of.by, of.taken));
        let host_and_path = vec!["a.example/".to_owned()];
        assert_eq!(
            of(Rule::HostAndPath),
            Some(("host-and-path", host_and_path))
        );
        assert_eq!(of(Rule::Host), Some(("host", hosts.to_vec())));
        assert_eq!(of(Rule::NoContext), None);
    }
}

//! Checks of a cluster that hold before an installation too. Pure.

use serde_json::Value;

use super::{
    cluster::Cluster,
    finding::{Check, Finding},
};

/// The oldest version of Kubernetes that Anteroom is for.
const VERSION_MIN: (u32, u32) = (1, 30);

/// The difference between two clocks at which certificates and logs become misleading.
const CLOCKS_APART_SECONDS_MAX: i64 = 5;

/// Marks the StorageClass that is used where none is named.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Marks what Helm leaves when it removes a release, and the release of an object.
const HELM_POLICY: &str = "helm.sh/resource-policy";
const HELM_RELEASE: &str = "meta.helm.sh/release-name";

/// The groups of the definitions that hold policies and reports.
const GROUPS: [&str; 3] = ["kyverno.io", "policies.kyverno.io", "wgpolicyk8s.io"];

pub(super) const CHECKS: [Check; 7] = [
    Check {
        id: "kubernetes-version",
        category: "kubernetes",
        fact: "Kubernetes is 1.30 or newer",
        is_pre: false,
        find: version,
    },
    Check {
        id: "kubernetes-clock",
        category: "kubernetes",
        fact: "the API server's clock agrees with yours within 5 s",
        is_pre: false,
        find: clock,
    },
    Check {
        id: "pre-rights",
        category: "pre",
        fact: "you may create what the chart contains",
        is_pre: true,
        find: rights,
    },
    Check {
        id: "pre-storage",
        category: "pre",
        fact: "there is a default StorageClass, for NATS",
        is_pre: true,
        find: storage,
    },
    Check {
        id: "pre-definitions",
        category: "pre",
        fact: "no other release owns the definitions that would be installed",
        is_pre: true,
        find: owned_by_others,
    },
    Check {
        id: "definitions-kept",
        category: "definitions",
        fact: "removing a release does not delete your policies",
        is_pre: false,
        find: kept,
    },
    Check {
        id: "webhooks-foreign",
        category: "webhooks",
        fact: "no other webhook can keep Anteroom's own pods from starting",
        is_pre: false,
        find: foreign,
    },
];

fn version(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.version, |version| match *version >= VERSION_MIN {
        true => Finding::Good,
        false => Finding::Failed(format!("it is {}.{}", version.0, version.1)),
    })
}

fn clock(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.clock_ahead_seconds, |ahead| {
        match ahead.abs() <= CLOCKS_APART_SECONDS_MAX {
            true => Finding::Good,
            false => Finding::Warning(format!("it is {ahead} s ahead of yours")),
        }
    })
}

fn rights(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.lacking, |lacking| {
        Finding::none(lacking.clone(), Finding::Failed)
    })
}

fn storage(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.storage_classes, |classes| {
        let is_default = |class: &Value| class["metadata"]["annotations"][DEFAULT_CLASS] == "true";
        match classes.iter().any(is_default) {
            true => Finding::Good,
            false => Finding::Warning(
                "there is none: name one in nats.storage.storageClassName".to_owned(),
            ),
        }
    })
}

/// Returns the definitions of policies and reports.
fn ours(definitions: &[Value]) -> impl Iterator<Item = (&str, &Value)> {
    let ours = definitions.iter().filter(|definition| {
        let group = definition["spec"]["group"].as_str();
        group.is_some_and(|group| GROUPS.contains(&group))
    });
    ours.map(|definition| (name(definition), definition))
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn owned_by_others(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.definitions, |definitions| {
        let owned = ours(definitions).filter_map(|(name, definition)| {
            let release = definition["metadata"]["annotations"][HELM_RELEASE].as_str()?;
            Some(format!("{name} belongs to the release {release}"))
        });
        Finding::none(owned.collect(), Finding::Warning)
    })
}

fn kept(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.definitions, |definitions| {
        let lost = ours(definitions).filter_map(|(name, definition)| {
            let annotations = &definition["metadata"]["annotations"];
            let release = annotations[HELM_RELEASE].as_str()?;
            let is_kept = annotations[HELM_POLICY] == "keep";
            (!is_kept).then(|| format!("{name} would go with the release {release}"))
        });
        Finding::none(lost.collect(), Finding::Failed)
    })
}

/// Webhooks of others that fail closed and are asked for pods of the namespace.
fn foreign(cluster: &Cluster) -> Finding {
    let of = |configurations: &[Value]| -> Vec<String> {
        let foreign = configurations.iter().filter(|of| name(of) != "anteroom");
        let each = foreign.flat_map(|configuration| {
            let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
            let closed = webhooks.filter(|webhook| {
                webhook["failurePolicy"] != "Ignore"
                    && is_asked_for_pods(webhook)
                    && selects(&webhook["namespaceSelector"], &cluster.namespace)
            });
            closed.map(|webhook| {
                let webhook = webhook["name"].as_str().unwrap_or_default();
                format!(
                    "{} ({webhook}) is asked for pods in {}, and refuses them while nobody answers",
                    name(configuration),
                    cluster.namespace
                )
            })
        });
        each.collect()
    };
    Finding::of(&cluster.validating, |validating| {
        Finding::of(&cluster.mutating, |mutating| {
            let all = [of(validating), of(mutating)].concat();
            Finding::none(all, Finding::Warning)
        })
    })
}

fn is_asked_for_pods(webhook: &Value) -> bool {
    let has = |list: &Value, wanted: &str| {
        let mut list = list.as_array().into_iter().flatten();
        list.any(|item| item == wanted || item == "*" || item == "*/*")
    };
    let mut rules = webhook["rules"].as_array().into_iter().flatten();
    rules.any(|rule| {
        has(&rule["apiGroups"], "")
            && has(&rule["resources"], "pods")
            && has(&rule["operations"], "CREATE")
    })
}

/// Returns whether a selector may select the namespace, of whose labels only the name is known: others might be there.
fn selects(selector: &Value, namespace: &str) -> bool {
    const NAME: &str = "kubernetes.io/metadata.name";
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    let lists = |expression: &Value| {
        let mut values = expression["values"].as_array().into_iter().flatten();
        values.any(|value| value == namespace)
    };
    // A label that somebody has to set is taken not to be there.
    labels
        .into_iter()
        .all(|(key, value)| key == NAME && value == namespace)
        && expressions.into_iter().all(|expression| {
            let is_name = expression["key"] == NAME;
            match expression["operator"].as_str() {
                Some("In") => is_name && lists(expression),
                Some("NotIn") => !is_name || !lists(expression),
                Some("Exists") => is_name,
                _ => !is_name,
            }
        })
}

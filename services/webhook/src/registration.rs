//! The two webhook configurations that the policies come to: of the rules that change objects, and of
//! those that judge them. Pure; [`keep`] writes them, and [`proof`] shows that the API server goes by
//! them.

mod configuration;
mod keep;
pub(crate) mod proof;
mod step;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use anteroom_engine::{
    kinds::{Kinds, ResourceName},
    phase,
    policies::{Group, PolicySet},
};
use anteroom_policy::{KindPattern, Operation, Phase, Target};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhook, RuleWithOperations, ServiceReference, WebhookClientConfig,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

use crate::args::Args;

pub(crate) use configuration::Configuration;
pub(crate) use keep::{Called, Keeper};

/// Set by the API server on every namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// A rule on all resources covers this subresource too.
const EPHEMERAL_CONTAINERS: &str = "pods/ephemeralcontainers";

/// The webhook through which policies, and exceptions from them, are admitted themselves.
const POLICIES: &str = "policies.anteroom.svc";

/// Seconds that the API server waits for it.
const POLICIES_TIMEOUT_SECONDS: i32 = 5;

/// The address at which the API server reaches the webhook, and the namespaces it does not call for.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// The name of the object of either kind.
    name: String,
    address: Address,
    /// Sorted, each once.
    exempt_namespaces: Vec<String>,
}

#[derive(Clone, Debug)]
enum Address {
    Url(String),
    Service {
        name: String,
        namespace: String,
        port: u16,
    },
}

impl Registration {
    pub(crate) fn new(args: &Args) -> Self {
        let address = match &args.webhook_url {
            Some(url) => Address::Url(url.trim_end_matches('/').to_owned()),
            None => Address::Service {
                name: args.service_name.clone(),
                namespace: args.service_namespace.clone(),
                port: args.service_port,
            },
        };
        let exempt: BTreeSet<_> = args
            .exempt_namespaces
            .iter()
            .chain([&args.service_namespace])
            .map(String::as_str)
            // What is filtered whole need not even be sent here.
            .chain(args.filters.resource_filters.whole_namespaces())
            .filter(|namespace| !namespace.is_empty())
            .map(str::to_owned)
            .collect();
        Self {
            name: args.webhook_configuration.clone(),
            address,
            exempt_namespaces: exempt.into_iter().collect(),
        }
    }

    /// The configuration of a phase for these policies, where the API server serves these kinds.
    /// `trust_pem` is the authority of our certificate; empty: the API server's own trust store.
    pub(crate) fn configuration(
        &self,
        phase: Phase,
        policies: &PolicySet,
        kinds: &Kinds,
        trust_pem: &str,
    ) -> Configuration {
        let mut groups: BTreeMap<Group, Vec<&Target>> = BTreeMap::new();
        for entry in policies.entries() {
            groups
                .entry(entry.group)
                .or_default()
                .extend(entry.targets.get(phase));
        }
        let webhooks = groups.into_iter().filter_map(|(group, targets)| {
            let rules = rules(&targets, kinds);
            (!rules.is_empty()).then(|| self.webhook(phase, group, rules, trust_pem))
        });
        let mut webhooks: Vec<_> = webhooks.collect();
        if phase == Phase::Mutation {
            // As in Kyverno, what may be passed over changes an object first.
            webhooks.reverse();
        }
        if phase == Phase::Validation {
            webhooks.push(self.of_policies(trust_pem));
        }
        let mut configuration = Configuration {
            phase,
            name: self.name.clone(),
            webhooks,
        };
        let probe = proof::webhook(
            &proof::token(&configuration),
            self.client_config(proof::PATH.to_owned(), trust_pem),
        );
        configuration.webhooks.push(probe);
        configuration
    }

    /// Through which policies and exceptions are admitted. Where it does not answer they are: what they may
    /// not read is seen to at evaluation too.
    fn of_policies(&self, trust_pem: &str) -> MutatingWebhook {
        let texts = |all: &[&str]| Some(all.iter().map(|&text| text.to_owned()).collect());
        let of = |versions: &[&str], resources: &[&str]| RuleWithOperations {
            api_groups: texts(&["kyverno.io"]),
            api_versions: texts(versions),
            operations: texts(&["CREATE", "UPDATE"]),
            resources: texts(resources),
            scope: Some("*".to_owned()),
        };
        MutatingWebhook {
            name: POLICIES.to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client_config("/policies".to_owned(), trust_pem),
            failure_policy: Some("Ignore".to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            rules: Some(vec![
                of(&["v1"], &["clusterpolicies", "policies"]),
                of(&["v2", "v2beta1"], &["policyexceptions"]),
            ]),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(POLICIES_TIMEOUT_SECONDS),
            ..MutatingWebhook::default()
        }
    }

    fn webhook(
        &self,
        phase: Phase,
        group: Group,
        rules: Vec<RuleWithOperations>,
        trust_pem: &str,
    ) -> MutatingWebhook {
        let action = if group.ignore { "ignore" } else { "fail" };
        let (verb, seconds) = (phase::verb(phase), group.timeout_seconds);
        MutatingWebhook {
            name: format!("{action}-{seconds}.{verb}.anteroom.svc"),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client_config(path(phase, group), trust_pem),
            failure_policy: Some(if group.ignore { "Ignore" } else { "Fail" }.to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(self.namespace_selector()),
            // Whatever another webhook changes afterwards is seen too, as in Kyverno.
            reinvocation_policy: (phase == Phase::Mutation).then(|| "IfNeeded".to_owned()),
            rules: Some(rules),
            side_effects: "None".to_owned(),
            timeout_seconds: i32::try_from(seconds).ok(),
            ..MutatingWebhook::default()
        }
    }

    fn client_config(&self, path: String, trust_pem: &str) -> WebhookClientConfig {
        let (url, service) = match &self.address {
            Address::Url(url) => (Some(format!("{url}{path}")), None),
            Address::Service {
                name,
                namespace,
                port,
            } => {
                let service = ServiceReference {
                    name: name.clone(),
                    namespace: namespace.clone(),
                    path: Some(path),
                    port: Some(i32::from(*port)),
                };
                (None, Some(service))
            }
        };
        WebhookClientConfig {
            ca_bundle: (!trust_pem.is_empty()).then(|| ByteString(trust_pem.into())),
            service,
            url,
        }
    }

    /// A policy that needs this webhook must never keep an administrator from repairing the cluster.
    fn namespace_selector(&self) -> LabelSelector {
        LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: NAMESPACE_LABEL.to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(self.exempt_namespaces.clone()),
            }]),
            match_labels: None,
        }
    }
}

/// The path of the reviews of a group.
fn path(phase: Phase, group: Group) -> String {
    let action = if group.ignore { "ignore" } else { "fail" };
    let (verb, seconds) = (phase::verb(phase), group.timeout_seconds);
    format!("/{verb}/{action}/{seconds}")
}

/// One rule for each group, version and set of operations; in order, so that one set of policies has
/// one configuration.
fn rules(targets: &[&Target], kinds: &Kinds) -> Vec<RuleWithOperations> {
    let mut operations_of: BTreeMap<ResourceName, BTreeSet<Operation>> = BTreeMap::new();
    for target in targets {
        for pattern in &target.kinds {
            for resource in resources(pattern, kinds) {
                operations_of
                    .entry(resource)
                    .or_default()
                    .extend(&target.operations);
            }
        }
    }
    let mut rules: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (name, operations) in operations_of {
        rules
            .entry((name.group, name.version, operations))
            .or_default()
            .push(name.resource);
    }
    let rule = |(of, resources): ((String, String, BTreeSet<_>), Vec<String>)| {
        let (group, version, operations) = of;
        let operations = operations.iter().map(Operation::to_string);
        // The API server takes nothing beside it.
        let all = "*/*".to_owned();
        let resources = match resources.contains(&all) {
            true => vec![all],
            false => resources,
        };
        RuleWithOperations {
            api_groups: Some(vec![group]),
            api_versions: Some(vec![version]),
            operations: Some(operations.collect()),
            resources: Some(resources),
            scope: Some("*".to_owned()),
        }
    };
    rules.into_iter().map(rule).collect()
}

/// The resources of a pattern, as a webhook configuration names them. A pattern for everything stays one for everything, kinds
/// to come included; others are the kinds that are served now.
fn resources(pattern: &KindPattern, kinds: &Kinds) -> Vec<ResourceName> {
    let everything = |resource: &str| ResourceName {
        group: "*".to_owned(),
        version: "*".to_owned(),
        resource: resource.to_owned(),
    };
    let parts = [&*pattern.group, &pattern.version, &pattern.kind];
    match (parts, &*pattern.subresource) {
        // To the API server this takes in no subresource, and to a policy it takes in this one.
        (["*", "*", "*"], "") => ["*", EPHEMERAL_CONTAINERS].map(everything).to_vec(),
        (["*", "*", "*"], "*") => vec![everything("*/*")],
        _ => kinds.covered_by(pattern),
    }
}

#[cfg(test)]
mod tests;

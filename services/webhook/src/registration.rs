//! The two webhook configurations for the policies: one for the rules that change objects, and one for the rules that
//! judge them. Pure. [`keeper`] writes the configurations, and [`proof`] shows that the API server uses them.

mod beyond_end;
mod configuration;
mod keeper;
mod known_configurations;
pub(crate) mod lagging_check;
mod path_tokens;
pub(crate) mod proof;
mod step;
mod told_problem;
mod webhooks;
mod write;

use std::{collections::BTreeSet, sync::Arc};

use anteroom_engine::{
    exemptions::ExemptionRules,
    kinds::Kinds,
    phase,
    policies::{Assignment, PolicySet},
};
use anteroom_policy::{Phase, PolicyKind};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhook, RuleWithOperations, ServiceReference, WebhookClientConfig,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

use crate::args::Args;

pub(crate) use configuration::Configuration;
pub(crate) use keeper::{Keeper, ProvenPosition};
pub(crate) use known_configurations::KnownConfigurations;
pub(crate) use path_tokens::PathTokens;
pub(crate) use webhooks::action;

use webhooks::{Detail, ObjectWebhook};

/// Set by the API server on every namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// Bytes of a configuration, as JSON. With more, the API server is told in less [`Detail`]. It takes 1.5 MiB.
const CONFIGURATION_BYTES_MAX: usize = 768 * 1024;

/// The webhook through which policies, and exceptions from them, are admitted themselves.
const POLICIES: &str = "policies.anteroom.svc";

/// The path of its reviews.
pub(crate) const POLICIES_PATH: &str = "/policies";

/// The seconds for which the API server waits for an answer.
const POLICIES_TIMEOUT_SECONDS: i32 = 5;

/// The address at which the API server reaches the webhook, and the namespaces it does not call for.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// The name of the object of either kind.
    name: String,
    address: Address,
    /// Anteroom's own namespace, which is always exempt.
    own_namespace: String,
    /// Sorted, each once.
    exempt_namespaces: Vec<String>,
    object_metadata: ObjectMetadata,
    /// Nothing is refused where no webhook answers.
    is_shadow: bool,
}

/// The labels, annotations and owner of the configurations.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectMetadata {
    /// The ClusterRole that owns the configurations: they are deleted with it.
    owner: Option<String>,
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
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
        let registration = Self {
            name: args.webhook_configuration.clone(),
            address,
            own_namespace: args.service_namespace.clone(),
            exempt_namespaces: Vec::new(),
            object_metadata: ObjectMetadata {
                owner: args.owner_cluster_role.clone(),
                labels: args.webhook_labels.clone(),
                annotations: args.webhook_annotations.clone(),
            },
            is_shadow: args.shadow,
        };
        registration.exempting(&args.exemptions.rules())
    }

    /// Returns the registration with the namespaces that these rules exempt.
    fn exempting(&self, rules: &ExemptionRules) -> Self {
        // What is filtered whole need not even be sent here.
        let exempt: BTreeSet<_> = rules.namespaces().chain([&*self.own_namespace]).collect();
        let exempt = exempt.into_iter().filter(|name| !name.is_empty());
        Self {
            exempt_namespaces: exempt.map(str::to_owned).collect(),
            ..self.clone()
        }
    }

    /// Returns the labels, annotations and owner of the configurations.
    pub(crate) fn object_metadata(&self) -> &ObjectMetadata {
        &self.object_metadata
    }

    /// The configuration of a phase for these policies, where the API server serves these kinds.
    /// `trust_pem` is the authority of our certificate; empty: the API server's own trust store. `prefix` stands before
    /// each path.
    pub(crate) fn configuration(
        &self,
        phase: Phase,
        policies: &PolicySet,
        kinds: &Kinds,
        trust_pem: &str,
        prefix: &str,
    ) -> Configuration {
        let of_policies = webhooks::of_policies(phase, policies, kinds);
        let mut detail = Detail::FINEST;
        loop {
            let of_objects = self.webhooks_of_objects(phase, &of_policies, kinds, detail);
            let made = self.of_webhooks(phase, of_objects, detail, trust_pem, prefix);
            match detail.coarser() {
                Some(coarser) if made.bytes() > CONFIGURATION_BYTES_MAX => detail = coarser,
                _ => return made,
            }
        }
    }

    /// The webhooks of objects, in the order in which they are asked.
    fn webhooks_of_objects(
        &self,
        phase: Phase,
        of_policies: &[ObjectWebhook],
        kinds: &Kinds,
        detail: Detail,
    ) -> Vec<ObjectWebhook> {
        let is_exempt = |namespace: &str| {
            let mut exempt = self.exempt_namespaces.iter();
            exempt.any(|exempt| exempt == namespace)
        };
        let mut of_objects = webhooks::webhooks(phase, of_policies, kinds, is_exempt, detail);
        if phase == Phase::Mutation {
            // As in Kyverno, what may be passed over changes an object first. What is for the whole cluster changes it last.
            of_objects.reverse();
        }
        of_objects
    }

    /// The configuration with these webhooks of objects.
    fn of_webhooks(
        &self,
        phase: Phase,
        mut of_objects: Vec<ObjectWebhook>,
        detail: Detail,
        trust_pem: &str,
        prefix: &str,
    ) -> Configuration {
        let mut assignment = Assignment::default();
        for webhook in &mut of_objects {
            assignment.add(webhook.name(), std::mem::take(&mut webhook.policies));
        }
        let made = of_objects
            .iter()
            .map(|webhook| self.webhook(phase, webhook, detail, trust_pem));
        let mut webhooks: Vec<_> = made.collect();
        if phase == Phase::Validation {
            webhooks.push(self.of_policies(trust_pem));
        }
        let mut configuration = Configuration {
            phase,
            name: self.name.clone(),
            webhooks,
            id: String::new(),
            assignment: Arc::new(assignment),
        };
        let id = configuration.content_id();
        // The last is that of policies, where there is one.
        let paths = of_objects.iter().map(|of| path(phase, &id, &of.name()));
        let paths = paths.chain([POLICIES_PATH.to_owned()]);
        for (webhook, path) in configuration.webhooks.iter_mut().zip(paths) {
            webhook.client_config = self.client_config(format!("{prefix}{path}"), trust_pem);
        }
        let probe = self.client_config(format!("{prefix}{}", proof::PATH), trust_pem);
        configuration.webhooks.push(proof::webhook(&id, probe));
        configuration.id = id;
        configuration
    }

    /// Returns the webhook through which the API server asks about policies and exceptions. If the webhook does not
    /// answer, they are admitted: reads are checked at evaluation too.
    fn of_policies(&self, trust_pem: &str) -> MutatingWebhook {
        let mut in_cel = PolicyKind::IN_CEL.map(PolicyKind::plural).to_vec();
        in_cel.push("policyexceptions");
        let texts = |all: &[&str]| Some(all.iter().map(|&text| text.to_owned()).collect());
        let of = |group: &str, versions: &[&str], resources: &[&str]| RuleWithOperations {
            api_groups: texts(&[group]),
            api_versions: texts(versions),
            operations: texts(&["CREATE", "UPDATE"]),
            resources: texts(resources),
            scope: Some("*".to_owned()),
        };
        MutatingWebhook {
            name: POLICIES.to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client_config(POLICIES_PATH.to_owned(), trust_pem),
            failure_policy: Some("Ignore".to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            rules: Some(vec![
                of("kyverno.io", &["v1"], &["clusterpolicies", "policies"]),
                of("kyverno.io", &["v2", "v2beta1"], &["policyexceptions"]),
                of("policies.kyverno.io", &["*"], &in_cel),
            ]),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(POLICIES_TIMEOUT_SECONDS),
            ..MutatingWebhook::default()
        }
    }

    /// A webhook for objects, without the path that names its configuration.
    fn webhook(
        &self,
        phase: Phase,
        of: &ObjectWebhook,
        detail: Detail,
        trust_pem: &str,
    ) -> MutatingWebhook {
        let verb = phase::verb(phase);
        MutatingWebhook {
            name: format!("{}.{verb}.anteroom.svc", of.name()),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client_config(format!("/{verb}"), trust_pem),
            failure_policy: Some(match of.class.ignore || self.is_shadow {
                true => "Ignore".to_owned(),
                false => "Fail".to_owned(),
            }),
            match_conditions: of.namespaces.is_some().then(spare_deletion_of_policies),
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(self.namespace_selector(of, detail)),
            // Whatever another webhook changes afterwards is seen too, as in Kyverno.
            reinvocation_policy: (phase == Phase::Mutation).then(|| "IfNeeded".to_owned()),
            rules: Some(of.rules()),
            side_effects: "None".to_owned(),
            timeout_seconds: i32::try_from(of.class.timeout_seconds).ok(),
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

    /// A tenant's policies are about the tenant's namespace. And a policy that needs this webhook must never keep
    /// an administrator from repairing the cluster.
    fn namespace_selector(&self, of: &ObjectWebhook, detail: Detail) -> LabelSelector {
        let named = of.namespaces.as_ref();
        let (operator, values) = match named.filter(|_| detail.names_namespaces) {
            Some(namespaces) => ("In", namespaces.iter().cloned().collect()),
            None => ("NotIn", self.exempt_namespaces.clone()),
        };
        LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: NAMESPACE_LABEL.to_owned(),
                operator: operator.to_owned(),
                values: Some(values),
            }]),
            match_labels: None,
        }
    }
}

/// The path of the reviews of a webhook.
fn path(phase: Phase, configuration: &str, webhook: &str) -> String {
    format!("/{}/{configuration}/{webhook}", phase::verb(phase))
}

/// The condition by which no policy of a namespace, and no webhook that is away, keeps anybody from deleting a policy of
/// that namespace. API servers before 1.28 ignore it. The same is held where policies decide: see
/// [`PolicySet::concerned`].
fn spare_deletion_of_policies() -> Vec<MatchCondition> {
    vec![MatchCondition {
        name: "deletion-of-policies".to_owned(),
        expression: "request.operation != 'DELETE' || \
            !(request.resource.group in ['kyverno.io', 'policies.kyverno.io'])"
            .to_owned(),
    }]
}

#[cfg(test)]
mod tests;

//! The answers of the API server, asked once for all checks.

use anteroom_policy::PolicyKind;
use anteroom_runtime::wall_clock;
use anyhow::Context as _;
use http::Request;
use jiff::fmt::rfc2822;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams, client::Body};
use serde_json::Value;
use tokio::time::timeout;

use super::nats::NatsMessages;
use crate::{
    asker::{Asker, ReadResult, TIMEOUT},
    installation::said,
};

/// The answers of the API server.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The namespace of the installation.
    pub(super) namespace: String,
    /// The version of Kubernetes: major and minor.
    pub(super) version: ReadResult<(u32, u32)>,
    /// The seconds by which the API server's clock is ahead of this machine's clock.
    pub(super) clock_ahead_seconds: ReadResult<i64>,
    pub(super) definitions: ReadResult<Vec<Value>>,
    pub(super) deployments: ReadResult<Vec<Value>>,
    pub(super) stateful_sets: ReadResult<Vec<Value>>,
    pub(super) storage_classes: ReadResult<Vec<Value>>,
    pub(super) validating: ReadResult<Vec<Value>>,
    pub(super) mutating: ReadResult<Vec<Value>>,
    /// The endpoints of the webhook's Service.
    pub(super) endpoints: ReadResult<Vec<Value>>,
    /// The Secrets with keys of NATS and with the webhook's certificate.
    pub(super) nats_secret: ReadResult<Option<Value>>,
    pub(super) webhook_secret: ReadResult<Option<Value>>,
    /// The Lease of the reporter that reports.
    pub(super) reporter_lease: ReadResult<Option<Value>>,
    pub(super) policies: ReadResult<Vec<Value>>,
    pub(super) entries: ReadResult<Vec<Value>>,
    /// The rights that the caller lacks for an installation, as in `create deployments.apps`.
    pub(super) lacking: ReadResult<Vec<String>>,
    /// The messages heard over NATS; `None`: nobody said where it is.
    pub(super) nats: Option<ReadResult<NatsMessages>>,
}

/// The kinds of objects that an installation creates: group and plural.
const CREATED: [(&str, &str); 14] = [
    ("", "configmaps"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
];

impl Cluster {
    /// Returns what is known by this alone: the API server was not asked.
    pub(super) fn unasked(heard: NatsMessages) -> Self {
        fn no<T>() -> ReadResult<T> {
            Err("the API server was not asked".to_owned())
        }
        Self {
            namespace: String::new(),
            version: no(),
            clock_ahead_seconds: no(),
            definitions: no(),
            deployments: no(),
            stateful_sets: no(),
            storage_classes: no(),
            validating: no(),
            mutating: no(),
            endpoints: no(),
            nats_secret: no(),
            webhook_secret: no(),
            reporter_lease: no(),
            policies: no(),
            entries: no(),
            lacking: no(),
            nats: Some(Ok(heard)),
        }
    }

    /// Asks for everything, by the caller's own rights. `pre`: before an installation.
    ///
    /// # Errors
    /// The API server does not answer at all.
    pub(super) async fn ask(client: &Client, namespace: &str, pre: bool) -> anyhow::Result<Self> {
        let asker = Asker(client);
        let (version, clock_ahead_seconds) = asker.version().await?;
        let own = |api: &str, path: &str| format!("/{api}/namespaces/{namespace}/{path}");
        let endpoints = "endpointslices?labelSelector=kubernetes.io/service-name=anteroom-webhook";
        let mut policies = vec![
            asker.list("/apis/kyverno.io/v1/clusterpolicies").await,
            asker.list("/apis/kyverno.io/v1/policies").await,
        ];
        for kind in PolicyKind::IN_CEL {
            let path = format!("/apis/{}/v1/{}", kind.group(), kind.plural());
            policies.push(asker.list(&path).await);
        }
        let entries = vec![
            asker
                .list("/apis/kyverno.io/v2alpha1/cachedcontextentries")
                .await,
            asker
                .list("/apis/kyverno.io/v2alpha1/globalcontextentries")
                .await,
        ];
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        Ok(Self {
            namespace: namespace.to_owned(),
            version,
            clock_ahead_seconds,
            definitions: asker.all(crds).await,
            deployments: asker.all(&own("apis/apps/v1", "deployments")).await,
            stateful_sets: asker.all(&own("apis/apps/v1", "statefulsets")).await,
            storage_classes: asker.all("/apis/storage.k8s.io/v1/storageclasses").await,
            validating: asker.all(&configurations("validating")).await,
            mutating: asker.all(&configurations("mutating")).await,
            endpoints: asker.all(&own("apis/discovery.k8s.io/v1", endpoints)).await,
            nats_secret: asker
                .get(&own("api/v1", "secrets/anteroom-nats-server"))
                .await,
            webhook_secret: asker
                .get(&own("api/v1", "secrets/anteroom-webhook-tls"))
                .await,
            reporter_lease: asker
                .get(&own(
                    "apis/coordination.k8s.io/v1",
                    "leases/anteroom-reporter",
                ))
                .await,
            policies: together(policies),
            entries: together(entries),
            // A question for each kind of object takes long.
            lacking: match pre {
                true => asker.lacking(namespace).await,
                false => Err("it is asked before an installation".to_owned()),
            },
            nats: None,
        })
    }
}

fn configurations(kind: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations")
}

/// Objects of two resources, of which the second need not be defined.
fn together(kinds: Vec<ReadResult<Option<Vec<Value>>>>) -> ReadResult<Vec<Value>> {
    let mut kinds = kinds.into_iter();
    let first = kinds.next().transpose()?.flatten();
    let mut all = first.ok_or("it is not defined: see definitions-served")?;
    for kind in kinds {
        all.extend(kind?.unwrap_or_default());
    }
    Ok(all)
}

impl Asker<'_> {
    /// Returns the version, and how far the API server's clock is ahead.
    async fn version(&self) -> anyhow::Result<(ReadResult<(u32, u32)>, ReadResult<i64>)> {
        let request = Request::get("/version").body(Body::empty())?;
        let answer = timeout(TIMEOUT, self.0.send(request)).await;
        let answer = answer.context("the API server does not answer")?;
        let answer = answer.map_err(said)?;
        let date = answer
            .headers()
            .get("date")
            .and_then(|date| date.to_str().ok());
        let clock = date
            .and_then(|date| rfc2822::parse(date).ok())
            .map(|date| date.timestamp().as_second() - wall_clock::now().as_second())
            .ok_or_else(|| "the API server tells no time".to_owned());
        let info = self.0.apiserver_version().await.map_err(said)?;
        let number = |text: &str| {
            let digits = text.chars().take_while(char::is_ascii_digit);
            digits.collect::<String>().parse::<u32>().ok()
        };
        let version = number(&info.major).zip(number(&info.minor));
        Ok((
            version.ok_or(format!("version {}", info.git_version)),
            clock,
        ))
    }

    async fn lacking(&self, namespace: &str) -> ReadResult<Vec<String>> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.0.clone());
        let mut lacking = Vec::new();
        for (group, resource) in CREATED {
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(ResourceAttributes {
                        verb: Some("create".to_owned()),
                        group: Some(group.to_owned()),
                        resource: Some(resource.to_owned()),
                        namespace: Some(namespace.to_owned()),
                        ..ResourceAttributes::default()
                    }),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let answer = timeout(TIMEOUT, api.create(&PostParams::default(), &review)).await;
            let answer = answer.map_err(|_| "the API server does not answer".to_owned())?;
            let answer = answer.map_err(|error| error.to_string())?;
            if !answer.status.is_some_and(|status| status.allowed) {
                lacking.push(
                    format!("create {resource}.{group}")
                        .trim_end_matches('.')
                        .to_owned(),
                );
            }
        }
        Ok(lacking)
    }
}

#[cfg(test)]
mod tests {
    use super::together;
    use crate::check::running::CHECKS;

    #[test]
    fn kinds_that_are_not_defined_lead_to_a_check_that_is_there() {
        let error = together(vec![Ok(None)]).unwrap_err();
        let mut ids = CHECKS.iter().map(|check| check.id);
        assert!(ids.any(|id| error.ends_with(&format!(" {id}"))), "{error}");
    }
}

//! Reports at the API server.

use std::time::Duration;

use anteroom_model::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch,
        PatchParams, Preconditions,
    },
};
use serde_json::Value;

use crate::{
    report::{CONTENT, OWN_LABEL, OWN_VALUE, reported_since},
    result::ReportedSince,
    shared::{Owner, kind_of},
};

/// The field manager of server-side apply.
const FIELD_MANAGER: &str = "anteroom-reporter";

/// Reports that are listed at once; only their metadata are.
const PAGE: u32 = 500;

/// The most bytes of a report's content hash; a longer one is not ours.
const CONTENT_BYTES_MAX: usize = 64;

/// The longest name of an object in a report: no object is called more than that.
const OWNER_BYTES_MAX: usize = 1_024;

/// The kinds of reports, in the order in which they are listed.
const KINDS: [&str; 2] = ["PolicyReport", "ClusterPolicyReport"];

/// The longest time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A report by its namespace (empty: a cluster-wide one) and name.
pub(crate) type ReportKey = (String, String);

/// A report of ours that was there before.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) key: ReportKey,
    /// The hash of the report's content.
    pub(crate) content: String,
    /// The object that the report is about.
    pub(crate) owner: Owner,
}

/// The place where a list goes on; by default its beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListPosition {
    kind: usize,
    continues: Option<String>,
}

/// The reason why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The API server does not have that, or does not serve the kind.
    NotFound,
    /// The API server refused, or cannot be reached: its words, or ours.
    Refused(String),
    /// Somebody else's report has the name: it is left alone.
    Foreign,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound => f.write_str("not found"),
            Self::Refused(why) => f.write_str(why),
            Self::Foreign => write!(
                f,
                "a report of this name is there that is not labelled {OWN_LABEL}={OWN_VALUE}, and is \
                 left alone; stop whoever else reports, and delete it"
            ),
        }
    }
}

/// Reads and writes reports. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    client: Client,
}

impl Store {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Some of our reports, and where those that follow are; `None`: there are no more.
    pub(crate) async fn list(
        &self,
        place: ListPosition,
    ) -> Result<(Vec<Listed>, Option<ListPosition>), Fault> {
        let Some(kind) = KINDS.get(place.kind) else {
            return Ok((Vec::new(), None));
        };
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(kind));
        let selector = format!("{OWN_LABEL}={OWN_VALUE}");
        let mut parameters = ListParams::default().labels(&selector).limit(PAGE);
        parameters.continue_token = place.continues;
        let page = within(api.list_metadata(&parameters)).await?;
        let next = match page.metadata.continue_ {
            Some(token) if !token.is_empty() => Some(ListPosition {
                kind: place.kind,
                continues: Some(token),
            }),
            _ => Some(ListPosition {
                kind: place.kind + 1,
                continues: None,
            }),
        };
        let next = next.filter(|next| next.kind < KINDS.len());
        let listed = page.items.into_iter().map(|item| listed(item.metadata));
        Ok((listed.collect(), next))
    }

    /// Returns the content of a report; empty if the report is gone.
    pub(crate) async fn read(&self, key: &ReportKey) -> Result<ReportedSince, Fault> {
        let found = within(self.api(key).get_opt(&key.1)).await?;
        Ok(found
            .map(|found| reported_since(&found.data))
            .unwrap_or_default())
    }

    /// Writes a whole report, whether it exists or not. A report of somebody else with the same name is left alone.
    pub(crate) async fn apply(&self, key: &ReportKey, mut manifest: Value) -> Result<(), Fault> {
        // The UID prevents a write to a different report that has taken the place meanwhile.
        if let Some(uid) = self.uid_of_own(key).await? {
            manifest["metadata"]["uid"] = uid.into();
        }
        // The object is ours alone: whatever somebody else wrote into our fields goes.
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&manifest);
        within(self.api(key).patch_metadata(&key.1, &parameters, &patch)).await?;
        Ok(())
    }

    /// Removes a report. One that is gone already is removed, and one of somebody else was never ours.
    pub(crate) async fn delete(&self, key: &ReportKey) -> Result<(), Fault> {
        let uid = match self.uid_of_own(key).await {
            Ok(Some(uid)) => uid,
            Ok(None) | Err(Fault::Foreign) => return Ok(()),
            Err(fault) => return Err(fault),
        };
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid),
                ..Preconditions::default()
            }),
            ..DeleteParams::default()
        };
        match within(self.api(key).delete(&key.1, &parameters)).await {
            Ok(_) | Err(Fault::NotFound) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// The UID of the report of this name; `None`: there is none.
    async fn uid_of_own(&self, key: &ReportKey) -> Result<Option<String>, Fault> {
        let api = self.api(key);
        match within(api.get_metadata_opt(&key.1)).await? {
            Some(found) => own_uid(found.metadata).map(Some),
            None => Ok(None),
        }
    }

    fn api(&self, (namespace, _): &ReportKey) -> Api<DynamicObject> {
        let client = self.client.clone();
        match namespace.as_str() {
            "" => Api::all_with(client, &resource("ClusterPolicyReport")),
            namespace => Api::namespaced_with(client, namespace, &resource("PolicyReport")),
        }
    }
}

fn resource(kind: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk("wgpolicyk8s.io", "v1alpha2", kind);
    let plural = match kind {
        "PolicyReport" => "policyreports",
        _ => "clusterpolicyreports",
    };
    ApiResource::from_gvk_with_plural(&gvk, plural)
}

/// Returns the part of a report's metadata that is remembered: no more than a report of ours says.
fn listed(metadata: ObjectMeta) -> Listed {
    let owner = metadata.owner_references.unwrap_or_default();
    let owner = owner.into_iter().next().unwrap_or_default();
    let bytes = owner.api_version.len() + owner.kind.len() + owner.name.len();
    let owner = match bytes <= OWNER_BYTES_MAX {
        true => owner,
        false => OwnerReference::default(),
    };
    let content = metadata.annotations.unwrap_or_default().remove(CONTENT);
    let content = content.filter(|content| content.len() <= CONTENT_BYTES_MAX);
    let namespace = metadata.namespace.unwrap_or_default();
    let object = ObjectKey::new(namespace.as_str(), owner.name);
    Listed {
        key: (namespace, metadata.name.unwrap_or_default()),
        content: content.unwrap_or_default(),
        owner: (kind_of(&owner.api_version, &owner.kind), object),
    }
}

/// The UID of a report that is ours.
fn own_uid(metadata: ObjectMeta) -> Result<String, Fault> {
    let labels = metadata.labels.unwrap_or_default();
    let is_own = labels.get(OWN_LABEL).is_some_and(|v| v == OWN_VALUE);
    metadata.uid.filter(|_| is_own).ok_or(Fault::Foreign)
}

/// Within the time that a request may take.
pub(crate) async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Fault> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(Fault::NotFound),
        Ok(Err(error)) => Err(Fault::Refused(error.to_string())),
        Err(_) => Err(Fault::Refused("the API server does not answer".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_the_label_is_somebody_elses() {
        let metadata = |labels: &[(&str, &str)]| {
            let labels = labels.iter();
            let labels = labels.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            ObjectMeta {
                uid: Some("u".to_owned()),
                labels: Some(labels.collect()),
                ..ObjectMeta::default()
            }
        };
        let kyverno = ("app.kubernetes.io/managed-by", "kyverno");
        let own = (OWN_LABEL, OWN_VALUE);
        assert_eq!(own_uid(metadata(&[kyverno, own])), Ok("u".to_owned()));
        for labels in [&[][..], &[kyverno], &[(OWN_LABEL, "other")]] {
            assert_eq!(own_uid(metadata(labels)), Err(Fault::Foreign));
        }
    }

    #[test]
    fn a_listed_report_is_remembered_only_up_to_the_size_of_our_own() {
        let of = |content: usize, name: usize| {
            let owner = OwnerReference {
                api_version: "apps/v1".to_owned(),
                kind: "Deployment".to_owned(),
                name: "x".repeat(name),
                ..OwnerReference::default()
            };
            let listed = listed(ObjectMeta {
                annotations: Some([(CONTENT.to_owned(), "c".repeat(content))].into()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            });
            (listed.content.len(), listed.owner.1.name.len())
        };
        let name_max = OWNER_BYTES_MAX - "apps/v1Deployment".len();
        assert_eq!(
            of(CONTENT_BYTES_MAX, name_max),
            (CONTENT_BYTES_MAX, name_max)
        );
        assert_eq!(of(CONTENT_BYTES_MAX + 1, name_max + 1), (0, 0));
    }
}

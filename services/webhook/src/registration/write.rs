//! Writing the configuration so that it never goes back in time.
//!
//! All webhooks write one object, each from its own position in the log. A webhook that was paused, or has just
//! started, may be behind. It must not remove webhooks that a later reader registered, on which a ready policy
//! relies. So the object names the log position from which it was made, and a webhook with an earlier position leaves
//! the object alone. Each write names the object's version that was read, so that no write in between is lost.

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::{Incarnation, Revision};
use k8s_openapi::{
    Resource as _, api::rbac::v1::ClusterRole, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::Value;
use tokio::time::timeout;

use anteroom_engine::catalog::LogPosition;
use anteroom_policy::Phase;

use super::{
    ObjectMetadata, PathTokens,
    configuration::{self, Configuration},
    path_tokens,
};

/// Field manager for server-side apply.
const FIELD_MANAGER: &str = "anteroom-webhook";

/// Annotation with the log position that it was made by: `INCARNATION/REVISION`.
const POSITION: &str = "anteroom.dev/position";

/// Annotation with the period of the token in the paths: see [`PathTokens`].
const PATH_PERIOD: &str = "anteroom.dev/path-period";

/// Limit for one request to the API server.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why it was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unwritten {
    /// Somebody else wrote it, who has read more of the log, or at the same time.
    Outrun,
    /// The API server refused it or did not answer: a message for people.
    Refused(String),
}

/// The comparison of the object at the API server with the desired one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WriteVerdict {
    /// The object has the wanted content already.
    Same,
    /// The object was made by more of the log.
    Newer,
    Write,
}

/// A configuration, with the further data in its object.
pub(super) struct Content<'a> {
    pub(super) configuration: &'a Configuration,
    pub(super) object_metadata: &'a ObjectMetadata,
    /// The position that it was made by.
    pub(super) position: &'a LogPosition,
    /// The position where the policies last changed: the object has to name this position, or a later one.
    pub(super) policies_at: &'a LogPosition,
    /// The period of the token in its paths; `None`: they have none.
    pub(super) path_period: Option<u64>,
    /// The log has lost the position that the stored object names, which counts for nothing.
    pub(super) is_beyond_end: bool,
}

/// Returns the object that the API server has.
pub(super) async fn fetch(
    client: &Client,
    desired: &Configuration,
) -> Result<Option<DynamicObject>, Unwritten> {
    let kind = configuration::kind(desired.phase);
    within("read", kind, api(client, desired).get_opt(&desired.name)).await
}

/// Notes the token in an object. Returns true if another webhook has written a newer one than this one knew.
pub(super) fn note_token(tokens: &PathTokens, phase: Phase, stored: &DynamicObject) -> bool {
    let reached = &stored.data["webhooks"][0]["clientConfig"];
    let path = [&reached["service"]["path"], &reached["url"]];
    let path = path.into_iter().find_map(Value::as_str).unwrap_or_default();
    let period = stored.annotations().get(PATH_PERIOD);
    let Some(period) = period.and_then(|period| period.parse().ok()) else {
        return false;
    };
    // The path of a URL may have the same beginning.
    let mut tokens_at = path.match_indices(path_tokens::PREFIX);
    tokens_at.any(|(at, _)| tokens.read(phase, &path[at..], period))
}

/// Replaces the stored object, unless it has the same content. Returns the object's resource version afterwards.
pub(super) async fn write(
    client: &Client,
    desired: &Content<'_>,
    stored: Option<&DynamicObject>,
) -> Result<Option<String>, Unwritten> {
    let configuration = desired.configuration;
    let mut next = configuration.object();
    add_metadata(&mut next, desired.object_metadata);
    if let Some(role) = &desired.object_metadata.owner {
        next.metadata.owner_references = Some(vec![owned_by(client, role).await?]);
    }
    let (position, policies_at) = (desired.position, desired.policies_at);
    let is_beyond_end = desired.is_beyond_end;
    let verdict = stored.map(|stored| judge(stored, &next, position, policies_at, is_beyond_end));
    match verdict {
        Some(WriteVerdict::Same) => Ok(stored.and_then(|stored| stored.resource_version())),
        Some(WriteVerdict::Newer) => Err(Unwritten::Outrun),
        Some(WriteVerdict::Write) | None => {
            next.metadata.resource_version = stored.and_then(|stored| stored.resource_version());
            let annotations = next.metadata.annotations.get_or_insert_default();
            annotations.insert(POSITION.to_owned(), text(desired.position));
            let period = desired.path_period.map(|period| period.to_string());
            annotations.extend(period.map(|period| (PATH_PERIOD.to_owned(), period)));
            // The object is ours alone: whatever somebody else wrote into our fields goes.
            let parameters = PatchParams::apply(FIELD_MANAGER).force();
            let next = Patch::Apply(&next);
            let api = api(client, configuration);
            let written = api.patch(&configuration.name, &parameters, &next);
            let kind = configuration::kind(configuration.phase);
            Ok(within("write", kind, written).await?.resource_version())
        }
    }
}

fn api(client: &Client, configuration: &Configuration) -> Api<DynamicObject> {
    let resource = configuration::resource(configuration.phase);
    Api::all_with(client.clone(), &resource)
}

fn add_metadata(object: &mut DynamicObject, object_metadata: &ObjectMetadata) {
    let labels = object.metadata.labels.get_or_insert_default();
    for (key, value) in &object_metadata.labels {
        // What says whose it is stays.
        labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.extend(object_metadata.annotations.iter().cloned());
}

/// The object goes with this ClusterRole: Kubernetes deletes it once the role is deleted.
async fn owned_by(client: &Client, role: &str) -> Result<OwnerReference, Unwritten> {
    let api: Api<ClusterRole> = Api::all(client.clone());
    let object = format!("ClusterRole {role}");
    let found = within("read", &object, api.get_opt(role)).await?;
    let uid = found.and_then(|found| found.metadata.uid);
    let uid = uid.ok_or_else(|| {
        Unwritten::Refused(format!(
            "there is no ClusterRole {role} that it could belong to: this installation was removed"
        ))
    })?;
    Ok(OwnerReference {
        api_version: ClusterRole::API_VERSION.to_owned(),
        kind: ClusterRole::KIND.to_owned(),
        name: role.to_owned(),
        uid,
        ..OwnerReference::default()
    })
}

/// Awaits a request to the API server. The error names the request by `verb` and `object`.
async fn within<T>(
    verb: &str,
    object: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Unwritten> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Unwritten::Outrun),
        Ok(Err(error)) => Err(Unwritten::Refused(format!(
            "cannot {verb} the {object} at the API server: {error}"
        ))),
        Err(_) => Err(Unwritten::Refused(format!(
            "cannot {verb} the {object}: the API server does not answer"
        ))),
    }
}

/// Returns the log position that an object was made by.
pub(super) fn made_by(stored: &DynamicObject) -> Option<LogPosition> {
    stored
        .annotations()
        .get(POSITION)
        .and_then(|text| read(text))
}

/// Returns true if `one` is a later position of the same log.
pub(super) fn is_later(one: &LogPosition, than: &LogPosition) -> bool {
    one.incarnation == than.incarnation && one.revision > than.revision
}

/// Compares the object with the desired one. `is_beyond_end` as in [`Content`].
fn judge(
    stored: &DynamicObject,
    desired: &DynamicObject,
    position: &LogPosition,
    policies_at: &LogPosition,
    is_beyond_end: bool,
) -> WriteVerdict {
    let (theirs, ours) = (webhooks(stored), webhooks(desired));
    let same = theirs.len() == ours.len()
        && ours.iter().all(|(name, ours)| {
            theirs
                .get(name)
                .is_some_and(|theirs| has_all_of(theirs, ours))
        })
        && has_metadata(stored, desired)
        && has_owners(stored, desired);
    let made_by = made_by(stored).filter(|_| !is_beyond_end);
    let is_newer = made_by
        .as_ref()
        .is_some_and(|made_by| is_later(made_by, position));
    let is_marked = made_by.is_some_and(|made_by| {
        made_by.incarnation == policies_at.incarnation && !is_later(policies_at, &made_by)
    });
    match (same, is_newer) {
        (true, true) => WriteVerdict::Same,
        (true, false) if is_marked => WriteVerdict::Same,
        (false, true) => WriteVerdict::Newer,
        (_, false) => WriteVerdict::Write,
    }
}

/// The webhooks by name, since the API server may order them otherwise.
fn webhooks(of: &DynamicObject) -> BTreeMap<&str, &Value> {
    let all = of.data["webhooks"].as_array().into_iter().flatten();
    all.map(|webhook| (webhook["name"].as_str().unwrap_or_default(), webhook))
        .collect()
}

fn has_metadata(stored: &DynamicObject, desired: &DynamicObject) -> bool {
    let has = |stored: &BTreeMap<String, String>, desired: &BTreeMap<String, String>| {
        desired
            .iter()
            .all(|(name, value)| stored.get(name) == Some(value))
    };
    has(stored.labels(), desired.labels()) && has(stored.annotations(), desired.annotations())
}

fn has_owners(stored: &DynamicObject, desired: &DynamicObject) -> bool {
    let stored = stored.owner_references();
    let is_there = |owner: &OwnerReference| stored.iter().any(|stored| stored.uid == owner.uid);
    desired.owner_references().iter().all(is_there)
}

/// Returns true if `theirs` has all fields of `ours` with the same values: defaults of the API server do not count.
fn has_all_of(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => ours.iter().all(|(name, ours)| {
            theirs
                .get(name)
                .is_some_and(|theirs| has_all_of(theirs, ours))
        }),
        (Value::Array(theirs), Value::Array(ours)) => {
            theirs.len() == ours.len() && theirs.iter().zip(ours).all(|(a, b)| has_all_of(a, b))
        }
        (theirs, ours) => theirs == ours,
    }
}

fn text(position: &LogPosition) -> String {
    format!("{}/{}", position.incarnation.0, position.revision.0)
}

fn read(text: &str) -> Option<LogPosition> {
    let (incarnation, revision) = text.rsplit_once('/')?;
    Some(LogPosition {
        incarnation: Incarnation(incarnation.to_owned()),
        revision: Revision(revision.parse().ok()?),
        ..LogPosition::default()
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, RuleWithOperations};
    use serde_json::json;

    use super::*;

    fn at(log: &str, revision: u64) -> LogPosition {
        LogPosition {
            incarnation: Incarnation(log.into()),
            revision: Revision(revision),
            ..LogPosition::default()
        }
    }

    /// With a webhook for each of these resources.
    fn of(resources: &[&str]) -> DynamicObject {
        let webhook = |resource: &&str| MutatingWebhook {
            name: (*resource).to_owned(),
            rules: Some(vec![RuleWithOperations {
                resources: Some(vec![(*resource).to_owned()]),
                ..RuleWithOperations::default()
            }]),
            ..MutatingWebhook::default()
        };
        let configuration = Configuration {
            phase: Phase::Mutation,
            name: "anteroom".to_owned(),
            webhooks: resources.iter().map(webhook).collect(),
            id: String::new(),
            assignment: std::sync::Arc::default(),
        };
        configuration.object()
    }

    fn marked(mut configuration: DynamicObject, position: &LogPosition) -> DynamicObject {
        let annotations = BTreeMap::from([(POSITION.to_owned(), text(position))]);
        configuration.metadata.annotations = Some(annotations);
        configuration
    }

    #[test]
    fn a_webhook_that_has_read_less_keeps_a_newer_configuration() {
        let here = at("a/b", 5);
        let desired = of(&["pods"]);
        let mut labelled = desired.clone();
        let labels = labelled.metadata.labels.get_or_insert_default();
        labels.insert("a".to_owned(), "b".to_owned());
        let mut marked_so = desired.clone();
        add_metadata(
            &mut marked_so,
            &ObjectMetadata {
                annotations: vec![("a".to_owned(), "b".to_owned())],
                ..ObjectMetadata::default()
            },
        );
        let mut owned = desired.clone();
        owned.metadata.owner_references = Some(vec![OwnerReference {
            uid: "u".to_owned(),
            ..OwnerReference::default()
        }]);
        let other = || of(&["pods", "services"]);
        for (stored, desired, expected) in [
            // It says nothing of when, or of earlier policies.
            (desired.clone(), &desired, WriteVerdict::Write),
            (
                marked(desired.clone(), &at("a/b", 2)),
                &desired,
                WriteVerdict::Write,
            ),
            (
                marked(desired.clone(), &at("a/b", 3)),
                &desired,
                WriteVerdict::Same,
            ),
            (
                marked(desired.clone(), &at("a/b", 9)),
                &desired,
                WriteVerdict::Same,
            ),
            (other(), &desired, WriteVerdict::Write),
            (
                marked(other(), &at("a/b", 4)),
                &desired,
                WriteVerdict::Write,
            ),
            (
                marked(other(), &at("a/b", 5)),
                &desired,
                WriteVerdict::Write,
            ),
            (
                marked(other(), &at("a/b", 6)),
                &desired,
                WriteVerdict::Newer,
            ),
            // A position of another log says nothing.
            (marked(other(), &at("z", 6)), &desired, WriteVerdict::Write),
            (of(&["services"]), &desired, WriteVerdict::Write),
            (of(&[]), &desired, WriteVerdict::Write),
            (desired.clone(), &labelled, WriteVerdict::Write),
            (
                marked(desired.clone(), &at("a/b", 5)),
                &marked_so,
                WriteVerdict::Write,
            ),
            (
                marked(desired.clone(), &at("a/b", 9)),
                &owned,
                WriteVerdict::Newer,
            ),
            (
                marked(desired.clone(), &at("a/b", 5)),
                &owned,
                WriteVerdict::Write,
            ),
            (
                marked(owned.clone(), &at("a/b", 5)),
                &owned,
                WriteVerdict::Same,
            ),
        ] {
            assert_eq!(
                judge(&stored, desired, &here, &at("a/b", 3), false),
                expected,
                "{stored:?}"
            );
        }
        // The log has lost what a newer one was made by.
        for stored in [desired.clone(), other()] {
            let lost = marked(stored, &at("a/b", 9));
            let verdict = judge(&lost, &desired, &here, &at("a/b", 3), true);
            assert_eq!(verdict, WriteVerdict::Write);
        }
        assert_eq!(read(&text(&here)), Some(here));
        assert_eq!(read("somebody's"), None);
    }

    #[test]
    fn defaults_that_the_api_server_fills_in_are_no_difference() {
        let (desired, mut stored) = (of(&["pods", "services"]), of(&["services", "pods"]));
        for webhook in stored.data["webhooks"].as_array_mut().unwrap() {
            webhook["matchPolicy"] = "Equivalent".into();
            webhook["objectSelector"] = json!({});
        }
        let here = at("a", 1);
        let mut stored = marked(stored, &here);
        let verdict = |stored: &DynamicObject| judge(stored, &desired, &here, &here, false);
        assert_eq!(verdict(&stored), WriteVerdict::Same);
        stored.data["webhooks"][0]["rules"][0]["resources"] = json!(["services", "*"]);
        assert_eq!(verdict(&stored), WriteVerdict::Write);
    }
}

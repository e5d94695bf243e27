//! The check of a resource that discovery lacks: it is gone, or the API server does not know it
//! yet. A starting API server serves an incomplete list, and a group with a server of its own may
//! be missing for longer.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Broken, ServedResources};
use crate::source::apiserver::{ApiServer, Fault};

/// A list of the metadata alone.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

const REGISTERED_PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// The largest list of registered groups that is read.
const REGISTERED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Group and version.
type GroupVersion = (String, String);

/// Returns whether something that was served is not any more.
pub(super) fn is_any(before: &ServedResources, now: &ServedResources) -> bool {
    let now: BTreeSet<_> = now.resources.iter().map(|r| &r.record.gvr).collect();
    let mut before = before.resources.iter().map(|r| &r.record.gvr);
    before.any(|gvr| !now.contains(gvr))
}

/// A group version that is registered and of which the API server says nothing does not answer.
pub(super) fn mark(
    before: &ServedResources,
    now: &mut ServedResources,
    registered: &BTreeSet<GroupVersion>,
) {
    let answers = places(now);
    let broken: BTreeSet<GroupVersion> = now
        .broken
        .iter()
        .map(|version| (version.group.clone(), version.version.clone()))
        .collect();
    let silent = |place: &GroupVersion| {
        let known = answers.contains(place) || broken.contains(place);
        !known && registered.contains(place)
    };
    for (group, version) in places(before).into_iter().filter(silent) {
        now.broken.push(Broken {
            group,
            version,
            problem: "it is registered, and the API server does not say what is in it".into(),
        });
    }
}

fn places(served: &ServedResources) -> BTreeSet<GroupVersion> {
    let gvrs = served.resources.iter().map(|r| &r.record.gvr);
    gvrs.map(|gvr| (gvr.group.clone(), gvr.version.clone()))
        .collect()
}

/// Returns every group version that is registered; none if the watcher may not read them.
///
/// # Errors
/// It cannot be read now: then nothing is known to be gone.
pub(super) async fn registered(api: &ApiServer) -> Result<BTreeSet<GroupVersion>, Fault> {
    let read = api.get_as(REGISTERED_PATH, METADATA_LIST, REGISTERED_BYTES_MAX);
    match read.await {
        Ok(bytes) => parse(&bytes).map_err(Fault::unreadable),
        Err(fault @ Fault::Refused { .. }) => {
            tracing::debug!(
                %fault,
                "registered API groups not read: every missing kind counts as gone"
            );
            Ok(BTreeSet::new())
        }
        Err(fault) => Err(fault),
    }
}

/// Reads the registered group versions, whose names are as in `v1.apps`.
fn parse(bytes: &[u8]) -> serde_json::Result<BTreeSet<GroupVersion>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct List {
        items: Vec<Item>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Item {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        name: String,
    }
    let list: List = serde_json::from_slice(bytes)?;
    let names = list.items.iter().map(|item| item.metadata.name.as_str());
    Ok(names
        .filter_map(|name| name.split_once('.'))
        .map(|(version, group)| (group.to_owned(), version.to_owned()))
        .collect())
}

#[cfg(test)]
mod tests {
    use anteroom_model::{GroupVersionResource, KindRecord};

    use super::*;
    use crate::source::discovery::ServedResource;

    fn served_resources(gvrs: &[(&str, &str)]) -> ServedResources {
        let resources = gvrs.iter().map(|(group, plural)| ServedResource {
            record: KindRecord {
                gvr: GroupVersionResource::new(*group, "v1", *plural),
                kind: "X".into(),
                namespaced: true,
                subresources: Vec::new(),
                preferred: true,
                watchable: true,
            },
            singular: String::new(),
        });
        ServedResources {
            resources: resources.collect(),
            broken: Vec::new(),
        }
    }

    #[test]
    fn kinds_of_a_registered_but_unserved_group_stay_and_others_go() {
        let before =
            served_resources(&[("", "pods"), ("a", "x"), ("a", "y"), ("b", "z"), ("c", "w")]);
        let mut now = served_resources(&[("", "pods"), ("a", "x")]);
        assert!(is_any(&before, &now));
        assert!(!is_any(&now, &before));
        let text = br#"{"items":[{"metadata":{"name":"v1."}},{"metadata":{"name":"v1.a"}},
            {"metadata":{"name":"v1.b"}},{"metadata":{}},{}]}"#;
        mark(&before, &mut now, &parse(text).unwrap());
        now.carry_over(&before);
        let served: Vec<_> = now
            .resources
            .iter()
            .map(|r| r.record.gvr.to_string())
            .collect();
        assert_eq!(served, ["pods.v1", "x.v1.a", "z.v1.b"]);
        assert!(parse(b"none").is_err());
    }
}

//! Discovery documents of the API server, read group by group, so that a malformed group does not affect the rest.

use anteroom_model::{GroupVersionResource, KindRecord};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::client::{APIGroupDiscovery, APIResourceDiscovery, APIVersionDiscovery};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Broken, ServedResource, ServedResources};

/// The answer of `/api` or `/apis`.
#[derive(Debug)]
pub(crate) enum DiscoveryDocument {
    /// The aggregated form: everything at once.
    Aggregated(ServedResources),
    /// An older API server, which has to be asked group by group.
    Legacy,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    kind: String,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

/// Reads `/api` or `/apis` as asked for with the aggregated media type.
///
/// # Errors
/// The bytes are no JSON.
pub(crate) fn parse_aggregated(bytes: &[u8]) -> Result<DiscoveryDocument, serde_json::Error> {
    let envelope: Envelope<'_> = serde_json::from_slice(bytes)?;
    if envelope.kind != "APIGroupDiscoveryList" {
        return Ok(DiscoveryDocument::Legacy);
    }
    let mut served = ServedResources::default();
    for item in envelope.items {
        match serde_json::from_str::<APIGroupDiscovery>(item.get()) {
            Ok(group) => read_group(group, &mut served),
            Err(error) => served.broken.push(Broken {
                group: group_name(item),
                version: String::new(),
                problem: format!("its discovery document cannot be read: {error}"),
            }),
        }
    }
    Ok(DiscoveryDocument::Aggregated(served))
}

fn group_name(item: &RawValue) -> String {
    let value: serde_json::Value = serde_json::from_str(item.get()).unwrap_or_default();
    let name = value
        .pointer("/metadata/name")
        .and_then(|name| name.as_str());
    name.unwrap_or_default().to_owned()
}

fn read_group(group: APIGroupDiscovery, served: &mut ServedResources) {
    let name = group.metadata.and_then(|m| m.name).unwrap_or_default();
    let from = served.resources.len();
    for version in group.versions {
        read_version(&name, version, served);
    }
    mark_preferred(&mut served.resources[from..]);
}

fn read_version(group: &str, document: APIVersionDiscovery, served: &mut ServedResources) {
    let Some(version) = document.version else {
        return;
    };
    // The API server keeps the last document of an aggregated server that is away.
    if document.freshness.as_deref() == Some("Stale") {
        served.broken.push(Broken {
            group: group.to_owned(),
            version: version.clone(),
            problem: "the API server marks its discovery document as stale".into(),
        });
    }
    let resources = document.resources.into_iter();
    let read = resources.filter_map(|r| read_resource(group, &version, r));
    served.resources.extend(read);
}

fn read_resource(
    group: &str,
    version: &str,
    found: APIResourceDiscovery,
) -> Option<ServedResource> {
    let plural = found.resource?;
    let subresources = found.subresources.into_iter();
    let mut subresources: Vec<_> = subresources.filter_map(|sub| sub.subresource).collect();
    subresources.sort_unstable();
    Some(ServedResource {
        record: KindRecord {
            gvr: GroupVersionResource::new(group, version, plural),
            kind: found.response_kind.and_then(|kind| kind.kind)?,
            namespaced: found.scope.as_deref() == Some("Namespaced"),
            subresources,
            preferred: false,
            watchable: watchable(&found.verbs),
        },
        singular: found.singular_resource.unwrap_or_default(),
    })
}

/// Reads `/api/v1` or `/apis/GROUP/VERSION`, where subresources stand beside their resources as
/// `pods/log`.
pub(crate) fn parse_legacy_resources(
    group: &str,
    version: &str,
    list: APIResourceList,
) -> Vec<ServedResource> {
    let (subs, plain): (Vec<_>, Vec<_>) = list
        .resources
        .into_iter()
        .partition(|r| r.name.contains('/'));
    let subresources_of = |plural: &str| {
        let names = subs.iter().filter_map(|sub| sub.name.split_once('/'));
        let mine = names.filter(|(parent, _)| *parent == plural);
        let mut names: Vec<_> = mine.map(|(_, name)| name.to_owned()).collect();
        names.sort_unstable();
        names
    };
    let read = plain.into_iter().map(|resource| ServedResource {
        record: KindRecord {
            subresources: subresources_of(&resource.name),
            gvr: GroupVersionResource::new(group, version, resource.name),
            kind: resource.kind,
            namespaced: resource.namespaced,
            preferred: false,
            watchable: watchable(&resource.verbs),
        },
        singular: resource.singular_name,
    });
    read.collect()
}

/// The first version of a group that has a kind is the preferred one for it.
pub(super) fn mark_preferred(group: &mut [ServedResource]) {
    for at in 0..group.len() {
        let (earlier, rest) = group.split_at_mut(at);
        let this = &mut rest[0].record;
        let version_before = earlier.iter().any(|other| {
            other.record.kind == this.kind && other.record.gvr.version != this.gvr.version
        });
        this.preferred = !version_before;
    }
}

fn watchable(verbs: &[String]) -> bool {
    let has = |verb: &str| verbs.iter().any(|v| v == verb);
    has("list") && has("watch")
}

//! Asks the API server for the kinds that it serves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList, APIVersions};
use kube::core::discovery::v2::ACCEPT_AGGREGATED_DISCOVERY_V2;
use serde::de::DeserializeOwned;

use super::{Broken, DiscoveryDocument, ServedResources, parse, parse_aggregated};
use crate::source::apiserver::{ApiServer, Fault};

/// The largest discovery document that is read. A cluster with 1,000 kinds sends about 1 MiB.
const DOCUMENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Returns everything that the API server serves: by two requests if it can aggregate, else by one for each group
/// version, of which each may fail alone.
///
/// # Errors
/// `/api` or `/apis` itself cannot be read: then nothing new is known.
pub(crate) async fn served_resources(api: &ApiServer) -> Result<ServedResources, Fault> {
    let mut served = ServedResources::default();
    for root in ["/api", "/apis"] {
        let bytes = api
            .get_as(root, ACCEPT_AGGREGATED_DISCOVERY_V2, DOCUMENT_BYTES_MAX)
            .await?;
        let part = match parse_aggregated(&bytes).map_err(Fault::unreadable)? {
            DiscoveryDocument::Aggregated(part) => part,
            DiscoveryDocument::Legacy => legacy(api, root, &bytes).await?,
        };
        served.resources.extend(part.resources);
        served.broken.extend(part.broken);
    }
    Ok(served)
}

async fn legacy(api: &ApiServer, root: &str, bytes: &[u8]) -> Result<ServedResources, Fault> {
    let mut served = ServedResources::default();
    for (group, versions) in legacy_groups(root, bytes).map_err(Fault::unreadable)? {
        let from = served.resources.len();
        for version in versions {
            let path = if group.is_empty() {
                format!("/api/{version}")
            } else {
                format!("/apis/{group}/{version}")
            };
            match get::<APIResourceList>(api, &path).await {
                Ok(list) => {
                    let resources = parse::parse_legacy_resources(&group, &version, list);
                    served.resources.extend(resources);
                }
                Err(fault) => served.broken.push(Broken {
                    group: group.clone(),
                    version,
                    problem: fault.to_string(),
                }),
            }
        }
        parse::mark_preferred(&mut served.resources[from..]);
    }
    Ok(served)
}

/// Groups with their versions, the preferred one first.
fn legacy_groups(root: &str, bytes: &[u8]) -> serde_json::Result<Vec<(String, Vec<String>)>> {
    if root == "/api" {
        let core: APIVersions = serde_json::from_slice(bytes)?;
        return Ok(vec![(String::new(), core.versions)]);
    }
    let list: APIGroupList = serde_json::from_slice(bytes)?;
    let groups = list.groups.into_iter().map(|group| {
        let preferred = group.preferred_version.map(|v| v.version);
        let mut versions: Vec<_> = group.versions.into_iter().map(|v| v.version).collect();
        // A stable sort: the others stay as they were.
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        (group.name, versions)
    });
    Ok(groups.collect())
}

async fn get<T: DeserializeOwned>(api: &ApiServer, path: &str) -> Result<T, Fault> {
    let bytes = api.get(path, DOCUMENT_BYTES_MAX).await?;
    serde_json::from_slice(&bytes).map_err(Fault::unreadable)
}

//! A request, parsed: its path and its query.

use std::collections::BTreeMap;

use axum::{
    extract::Query,
    http::{Method, Uri},
};
use percent_encoding::percent_decode_str;

use crate::{resource::ResourceName, status::Failure};

/// The route of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Version,
    /// `/livez`, `/readyz`, `/healthz`.
    Health,
    /// The path `/api`.
    CoreVersions,
    /// The path `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`.
    GroupVersion {
        group: String,
        version: String,
    },
    Resource(ResourcePath),
    /// `/sim/...`: the simulator's own.
    Control(String),
    Unknown,
}

/// A collection, or an object in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl ResourcePath {
    pub(crate) fn resource(&self) -> ResourceName {
        ResourceName::new(&self.group, &self.plural)
    }
}

impl Route {
    pub(crate) fn parse(path: &str) -> Self {
        let decode = |segment: &str| percent_decode_str(segment).decode_utf8_lossy().into_owned();
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(decode)
            .collect();
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["version"] => Self::Version,
            ["livez" | "readyz" | "healthz", ..] => Self::Health,
            ["sim", rest @ ..] => Self::Control(rest.join("/")),
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).into()),
            ["api", version, rest @ ..] => Self::within("", version, rest),
            ["apis", group, version, rest @ ..] => Self::within(group, version, rest),
            _ => Self::Unknown,
        }
    }

    fn within(group: &str, version: &str, rest: &[&str]) -> Self {
        let owned = |text: &str| Some(text.to_owned());
        let path = ResourcePath {
            group: group.into(),
            version: version.into(),
            ..Default::default()
        };
        let in_collection = |path: ResourcePath, rest: &[&str]| match rest {
            [plural] => Some(ResourcePath {
                plural: (*plural).into(),
                ..path
            }),
            [plural, name] => Some(ResourcePath {
                plural: (*plural).into(),
                name: owned(name),
                ..path
            }),
            [plural, name, subresource] => Some(ResourcePath {
                plural: (*plural).into(),
                name: owned(name),
                subresource: owned(subresource),
                ..path
            }),
            _ => None,
        };
        let found = match rest {
            [] => {
                return Self::GroupVersion {
                    group: group.into(),
                    version: version.into(),
                };
            }
            // A namespace's own subresources look like collections in it.
            ["namespaces", _, "status" | "finalize"] => in_collection(path, rest),
            ["namespaces", namespace, within @ ..] if !within.is_empty() => in_collection(
                ResourcePath {
                    namespace: owned(namespace),
                    ..path
                },
                within,
            ),
            _ => in_collection(path, rest),
        };
        found.map_or(Self::Unknown, Self::Resource)
    }
}

/// The query of a request. Absent and empty are the same, as in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) watch: bool,
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: Option<String>,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) resource_version: Option<u64>,
    pub(crate) version_match: Option<VersionMatch>,
    pub(crate) allow_bookmarks: bool,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) field_manager: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    Exact,
    NotOlderThan,
}

impl Params {
    pub(crate) fn parse(uri: &Uri) -> Result<Self, Failure> {
        let Query(pairs) = Query::<BTreeMap<String, String>>::try_from_uri(uri)
            .map_err(|error| Failure::bad_request(format!("unreadable query: {error}")))?;
        let text = |name: &str| {
            pairs
                .get(name)
                .map(String::as_str)
                .filter(|text| !text.is_empty())
        };
        let number = |name: &str| {
            let parse = |text: &str| {
                text.parse::<u64>()
                    .map_err(|_| Failure::bad_request(format!("invalid {name}: {text:?}")))
            };
            text(name).map(parse).transpose()
        };
        let flag = |name: &str| match text(name) {
            None => Ok(None),
            Some("true" | "1") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(other) => Err(Failure::bad_request(format!("invalid {name}: {other:?}"))),
        };
        if text("dryRun").is_some() {
            return Err(Failure::bad_request("the simulator has no dry run"));
        }
        let version_match = match text("resourceVersionMatch") {
            None => None,
            Some("Exact") => Some(VersionMatch::Exact),
            Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
            Some(other) => {
                let message = format!("resourceVersionMatch: unsupported value: {other:?}");
                return Err(Failure::invalid(message));
            }
        };
        Ok(Self {
            watch: flag("watch")?.unwrap_or_default(),
            limit: number("limit")?
                .filter(|limit| *limit > 0)
                .map(|limit| limit as usize),
            continue_token: text("continue").map(str::to_owned),
            label_selector: text("labelSelector").unwrap_or_default().to_owned(),
            field_selector: text("fieldSelector").unwrap_or_default().to_owned(),
            resource_version: number("resourceVersion")?,
            version_match,
            allow_bookmarks: flag("allowWatchBookmarks")?.unwrap_or_default(),
            timeout_seconds: number("timeoutSeconds")?,
            send_initial_events: flag("sendInitialEvents")?,
            field_manager: text("fieldManager").map(str::to_owned),
        })
    }
}

/// The verb of a request, as in RBAC.
pub(crate) fn verb(method: &Method, path: &ResourcePath, params: &Params) -> Option<&'static str> {
    match *method {
        Method::GET if params.watch => Some("watch"),
        Method::GET if path.name.is_some() => Some("get"),
        Method::GET => Some("list"),
        Method::POST if path.name.is_none() => Some("create"),
        Method::PUT if path.name.is_some() => Some("update"),
        Method::PATCH if path.name.is_some() => Some("patch"),
        Method::DELETE if path.name.is_some() => Some("delete"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> String {
        match Route::parse(path) {
            Route::Resource(found) => {
                let or_dash = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".into());
                let [namespace, name, sub] =
                    [&found.namespace, &found.name, &found.subresource].map(or_dash);
                format!("{} {namespace} {name} {sub}", found.resource())
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn paths_lead_where_kubernetes_has_them() {
        for (path, expected) in [
            ("/api/v1/services", "services - - -"),
            ("/api/v1/namespaces", "namespaces - - -"),
            ("/api/v1/namespaces/n", "namespaces - n -"),
            ("/api/v1/namespaces/n/status", "namespaces - n status"),
            ("/api/v1/namespaces/n/pods", "pods n - -"),
            (
                "/apis/apps/v1/namespaces/n/deployments/d/status",
                "deployments.apps n d status",
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b",
                "clusterroles.rbac.authorization.k8s.io - system:a b -",
            ),
            ("/apis/apps", "Group(\"apps\")"),
            (
                "/apis/apps/v1",
                "GroupVersion { group: \"apps\", version: \"v1\" }",
            ),
            ("/api/v1/a/b/c/d", "Unknown"),
            ("/openapi/v2", "Unknown"),
            ("/sim/faults", "Control(\"faults\")"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }

    #[test]
    fn queries_are_read_or_refused() {
        let parse = |query: &str| Params::parse(&format!("/api/v1/pods?{query}").parse().unwrap());
        let params =
            parse("watch=1&limit=0&resourceVersion=&labelSelector=a%3Db&continue=").unwrap();
        let expected = Params {
            watch: true,
            label_selector: "a=b".into(),
            ..Default::default()
        };
        assert_eq!(params, expected);
        for query in [
            "limit=x",
            "watch=perhaps",
            "resourceVersion=-1",
            "dryRun=All",
        ] {
            assert_eq!(parse(query).unwrap_err().code, 400, "{query}");
        }
        assert_eq!(parse("resourceVersionMatch=Latest").unwrap_err().code, 422);
    }
}

//! The path of a read of the Kubernetes API.

/// A path, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ApiPath {
    /// Empty for the core group.
    pub(crate) group: String,
    /// Group and version, as objects have them.
    pub(crate) api_version: String,
    /// Empty: no namespace, or all.
    pub(crate) namespace: String,
    pub(crate) plural: String,
    /// Empty: a list.
    pub(crate) name: String,
    /// Empty: the object itself.
    pub(crate) subresource: String,
    /// In the API server's syntax; empty: all.
    pub(crate) label_selector: String,
}

/// The subresources of a Namespace. Anything else below one is a type of objects in it.
const OF_NAMESPACE: &[&str] = &["finalize", "status"];

impl ApiPath {
    /// Returns the parts of a path; `None` where it reads no object and no list, or asks for more than labels.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let segments = path.trim_matches('/').split('/').map(unescaped);
        let segments = segments.collect::<Option<Vec<String>>>()?;
        let mut segments = segments.iter().map(String::as_str);
        let mut found = Self::default();
        match segments.next()? {
            "api" => segments.next()?.clone_into(&mut found.api_version),
            "apis" => {
                segments.next()?.clone_into(&mut found.group);
                found.api_version = format!("{}/{}", found.group, segments.next()?);
            }
            _ => return None,
        }
        let rest: Vec<&str> = segments.collect();
        let rest = match *rest {
            ["namespaces", namespace, plural, ..] if !OF_NAMESPACE.contains(&plural) => {
                namespace.clone_into(&mut found.namespace);
                &rest[2..]
            }
            _ => &rest[..],
        };
        let (plural, name, subresource) = match *rest {
            [plural] => (plural, "", ""),
            [plural, name] => (plural, name, ""),
            [plural, name, subresource] => (plural, name, subresource),
            _ => return None,
        };
        plural.clone_into(&mut found.plural);
        name.clone_into(&mut found.name);
        subresource.clone_into(&mut found.subresource);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=')? {
                ("labelSelector", value) => found.label_selector = unescaped(value)?,
                _ => return None,
            }
        }
        Some(found)
    }
}

/// Without percent-encoding.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_objects_and_lists_are_taken_apart() {
        let parts = |path: &str| {
            let ApiPath {
                api_version,
                namespace,
                plural,
                name,
                subresource,
                label_selector,
                ..
            } = ApiPath::parse(path)?;
            Some(
                [
                    api_version,
                    namespace,
                    plural,
                    name,
                    subresource,
                    label_selector,
                ]
                .join("|"),
            )
        };
        for (path, expected) in [
            ("/api/v1/pods", Some("v1||pods|||")),
            ("/api/v1/namespaces", Some("v1||namespaces|||")),
            ("/api/v1/namespaces/shop", Some("v1||namespaces|shop||")),
            (
                "/api/v1/namespaces/shop/status",
                Some("v1||namespaces|shop|status|"),
            ),
            (
                "/api/v1/namespaces/shop/configmaps/a",
                Some("v1|shop|configmaps|a||"),
            ),
            (
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                Some("apps/v1|n|deployments|d|scale|"),
            ),
            (
                "/api/v1/pods?labelSelector=a%3Db%2Cc%3Dd",
                Some("v1||pods|||a=b,c=d"),
            ),
            ("/api/v1/pods?limit=1", None),
            ("/version", None),
            ("/api/v1", None),
            ("/api/v1/pods/%zz", None),
            ("/apis/a/b/c/d/e/f", None),
        ] {
            assert_eq!(parts(path).as_deref(), expected, "{path}");
        }
    }
}

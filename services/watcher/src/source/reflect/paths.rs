//! Paths and queries of lists and watches.

use anteroom_model::{Collection, ResourceVersion};

/// Returns the path of a collection, as in `/apis/networking.k8s.io/v1/namespaces/apps/ingresses`.
fn path(collection: &Collection) -> String {
    let gvr = &collection.gvr;
    let root = if gvr.group.is_empty() { "api" } else { "apis" };
    let version = gvr.api_version();
    match collection.only_namespace().unwrap_or_default() {
        "" => format!("/{root}/{version}/{}", gvr.resource),
        namespace => format!(
            "/{root}/{version}/namespaces/{}/{}",
            escape(namespace),
            gvr.resource
        ),
    }
}

pub(super) fn list(collection: &Collection, token: Option<&str>, limit: u32) -> String {
    let mut path = format!("{}?limit={limit}", path(collection));
    push_selectors(&mut path, collection);
    if let Some(token) = token {
        path.push_str("&continue=");
        path.push_str(&escape(token));
    }
    path
}

pub(super) fn watch(collection: &Collection, from: &ResourceVersion, seconds: u64) -> String {
    let mut path = format!(
        "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
        path(collection),
        escape(from.as_str())
    );
    push_selectors(&mut path, collection);
    path
}

fn push_selectors(path: &mut String, collection: &Collection) {
    for (name, selector) in [
        ("labelSelector", &collection.label_selector),
        ("fieldSelector", &collection.field_selector),
    ] {
        if !selector.is_empty() {
            path.push('&');
            path.push_str(name);
            path.push('=');
            path.push_str(&escape(selector));
        }
    }
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use anteroom_model::GroupVersionResource;

    use super::*;

    #[test]
    fn list_and_watch_paths_name_the_collection_and_escape_its_selectors() {
        let gvr = GroupVersionResource::new("networking.k8s.io", "v1", "ingresses");
        let mut collection = Collection::all(gvr);
        assert_eq!(
            list(&collection, None, 500),
            "/apis/networking.k8s.io/v1/ingresses?limit=500"
        );
        collection.namespaces = vec!["apps".into()];
        collection.label_selector = "a in (b,c)".into();
        collection.field_selector = "metadata.name=x".into();
        assert_eq!(
            list(&collection, Some("a+b/=="), 2),
            "/apis/networking.k8s.io/v1/namespaces/apps/ingresses?limit=2\
             &labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=metadata.name%3Dx&continue=a%2Bb%2F%3D%3D"
        );
        let services = Collection::all(GroupVersionResource::new("", "v1", "services"));
        assert_eq!(
            watch(&services, &ResourceVersion::new("7"), 50),
            "/api/v1/services?watch=1&allowWatchBookmarks=true&timeoutSeconds=50&resourceVersion=7"
        );
    }
}

//! Pages and watch events, read object by object: one that is malformed costs only itself.

use anteroom_model::{ObjectKey, ResourceVersion};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use crate::source::apiserver::{Fault, Status};

/// An object as the API server sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawObject {
    /// The object's key.
    pub key: ObjectKey,
    /// The object's version.
    pub version: ResourceVersion,
    /// The object's JSON text.
    pub json: Bytes,
}

/// An object without a name, which no query could ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub String);

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page {
    /// The collection's version.
    pub version: ResourceVersion,
    /// The token of the next page.
    pub next: Option<String>,
    /// The objects of the page.
    pub objects: Vec<Result<RawObject, Malformed>>,
}

/// An event of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchEvent {
    /// Added or modified.
    Put(Result<RawObject, Malformed>),
    /// Deleted, or no longer selected; the version is that of the change.
    Gone(Result<RawObject, Malformed>),
    /// Everything up to this version was sent.
    Bookmark(ResourceVersion),
    /// The watch failed.
    Failed(Fault),
}

#[derive(Deserialize)]
struct ListBody<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    remaining_item_count: Option<u64>,
    #[serde(rename = "continue")]
    token: Option<String>,
}

#[derive(Deserialize)]
struct EventBody<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct ObjectBody {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
}

/// Reads a page.
pub(super) fn page(bytes: &Bytes) -> Result<Page, Fault> {
    let body: ListBody<'_> = serde_json::from_slice(bytes).map_err(Fault::unreadable)?;
    let items = body.items.unwrap_or_default().into_iter();
    Ok(Page {
        version: ResourceVersion::new(body.metadata.resource_version),
        next: body.metadata.token.filter(|token| !token.is_empty()),
        objects: items.map(|item| object(bytes, item)).collect(),
    })
}

/// Objects of the collection of which this is the first page, as far as the API server knows.
pub(super) fn size(bytes: &Bytes) -> Result<u64, Fault> {
    let body: ListBody<'_> = serde_json::from_slice(bytes).map_err(Fault::unreadable)?;
    let here = body.items.unwrap_or_default().len() as u64;
    match (body.metadata.remaining_item_count, body.metadata.token) {
        (Some(rest), _) => Ok(here.saturating_add(rest)),
        (None, token) if token.as_ref().is_none_or(String::is_empty) => Ok(here),
        _ => Err(Fault::unreadable("a list that does not say how long it is")),
    }
}

/// Reads one line of a watch.
pub(super) fn event(line: &Bytes) -> Result<WatchEvent, Fault> {
    let body: EventBody<'_> = serde_json::from_slice(line).map_err(Fault::unreadable)?;
    Ok(match body.kind.as_str() {
        "ADDED" | "MODIFIED" => WatchEvent::Put(object(line, body.object)),
        "DELETED" => WatchEvent::Gone(object(line, body.object)),
        "BOOKMARK" => {
            let body: ObjectBody =
                serde_json::from_str(body.object.get()).map_err(Fault::unreadable)?;
            let version = body.metadata.resource_version.unwrap_or_default();
            WatchEvent::Bookmark(ResourceVersion::new(version))
        }
        "ERROR" => {
            let status: Status =
                serde_json::from_str(body.object.get()).map_err(Fault::unreadable)?;
            WatchEvent::Failed(Fault::from_status(status))
        }
        other => {
            return Err(Fault::unreadable(format!(
                "unknown type of event {other:?}"
            )));
        }
    })
}

/// `raw` is a part of `whole`, whose memory the object goes on sharing.
fn object(whole: &Bytes, raw: &RawValue) -> Result<RawObject, Malformed> {
    let json = whole.slice_ref(raw.get().as_bytes());
    let body: ObjectBody =
        serde_json::from_slice(&json).map_err(|error| Malformed(error.to_string()))?;
    let ObjectMeta {
        name,
        namespace,
        resource_version,
    } = body.metadata;
    if name.is_empty() {
        return Err(Malformed("metadata.name is missing or empty".into()));
    }
    let version = match resource_version {
        Some(version) if !version.is_empty() => ResourceVersion::new(version),
        // An aggregated API may not version its objects: then the content is its own version.
        _ => content_version(&json),
    };
    Ok(RawObject {
        key: ObjectKey::of(&namespace.unwrap_or_default(), &name),
        version,
        json,
    })
}

/// A version for content that has none. Not a number, so that two are never compared and the log's
/// own order decides.
pub(crate) fn content_version(content: &[u8]) -> ResourceVersion {
    ResourceVersion::new(format!("x{:016x}", xxh3_64(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<WatchEvent, Fault> {
        event(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn a_page_keeps_its_good_objects() {
        let text =
            br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"c"},"items":[
            {"metadata":{"name":"a","namespace":"n","resourceVersion":"3"},"spec":{}},
            {"metadata":{}}, 17, {"metadata":{"name":5}}, {"metadata":{"name":"b"}}]}"#;
        let page = page(&Bytes::from_static(text)).unwrap();
        assert_eq!(
            (page.version.as_str(), page.next.as_deref()),
            ("7", Some("c"))
        );
        let keys: Vec<_> = page
            .objects
            .iter()
            .map(|o| o.as_ref().ok().map(|o| o.key.to_string()))
            .collect();
        assert_eq!(
            keys,
            [Some("n/a".into()), None, None, None, Some("b".into())]
        );
        let unversioned = page.objects[4].as_ref().unwrap();
        assert!(unversioned.version.as_str().starts_with('x'));
    }

    #[test]
    fn an_empty_list_may_have_no_items_at_all() {
        for text in [
            r#"{"metadata":{"resourceVersion":"7"},"items":null}"#,
            r#"{"metadata":{}}"#,
        ] {
            assert!(
                page(&Bytes::from_static(text.as_bytes()))
                    .unwrap()
                    .objects
                    .is_empty()
            );
        }
        assert!(page(&Bytes::from_static(b"{\"items\":[")).is_err());
    }

    #[test]
    fn watch_events_are_read_by_type() {
        let object = r#"{"metadata":{"name":"a","resourceVersion":"3"}}"#;
        let event =
            |kind: &str, object: &str| line(&format!(r#"{{"type":"{kind}","object":{object}}}"#));
        assert!(matches!(event("ADDED", object), Ok(WatchEvent::Put(Ok(_)))));
        assert!(matches!(
            event("MODIFIED", "{}"),
            Ok(WatchEvent::Put(Err(_)))
        ));
        assert!(matches!(
            event("DELETED", object),
            Ok(WatchEvent::Gone(Ok(_)))
        ));
        let bookmark = r#"{"kind":"Pod","metadata":{"resourceVersion":"9"}}"#;
        let nine = WatchEvent::Bookmark(ResourceVersion::new("9"));
        assert_eq!(event("BOOKMARK", bookmark), Ok(nine));
        let expired = r#"{"kind":"Status","code":410,"message":"too old"}"#;
        assert!(matches!(
            event("ERROR", expired),
            Ok(WatchEvent::Failed(Fault::Gone { .. }))
        ));
        for bad in [
            "",
            "{",
            "[]",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"NEW","object":{}}"#,
        ] {
            assert!(line(bad).is_err(), "{bad:?}");
        }
    }
}

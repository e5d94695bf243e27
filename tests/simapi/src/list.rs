//! LIST: pages that are consistent with each other, and a body that is never held whole.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    object::{self, Stored},
    request::{Params, VersionMatch},
    resource::ResourceType,
    selector::Selection,
    status::{Failure, raw_json_response},
    store::{Page, Store, StoreError, key},
};

/// The bytes of a body that are made at a time.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// The position at which the next page begins. The version is that of the first page, or -1 once that has expired
/// and the client accepts a list that is not of one moment.
#[derive(Debug, Serialize, Deserialize)]
struct ContinueToken {
    #[serde(rename = "rv")]
    version: i64,
    namespace: String,
    name: String,
}

impl ContinueToken {
    fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, Failure> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let token = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        token.ok_or_else(|| Failure::bad_request("continue key is not valid"))
    }
}

/// Answers a LIST.
pub(crate) fn list(
    store: &Store,
    resource: &ResourceType,
    version: &str,
    selection: &Selection,
    params: &Params,
) -> Result<Response, Failure> {
    let page = match &params.continue_token {
        Some(token) => next_page(store, resource, selection, params, token)?,
        None => first_page(store, resource, selection, params)?,
    };
    let metadata = list_metadata(&page, selection);
    Ok(raw_json_response(
        200,
        body(resource, version, &metadata, page.objects),
    ))
}

fn first_page(
    store: &Store,
    resource: &ResourceType,
    selection: &Selection,
    params: &Params,
) -> Result<Page, Failure> {
    if params.send_initial_events.is_some() {
        return Err(Failure::invalid(
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ));
    }
    let at = match (params.resource_version, params.version_match) {
        (None, Some(_)) => {
            return Err(Failure::invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        (Some(0), Some(VersionMatch::Exact)) => {
            return Err(Failure::invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        (None | Some(0), _) => None,
        (Some(version), Some(VersionMatch::Exact)) => Some(version),
        // A paged list of a version has always meant exactly that version.
        (Some(version), None) if params.limit.is_some() => Some(version),
        (Some(version), _) => {
            let current = store.version();
            if version > current {
                return Err(Failure::too_large(version, current));
            }
            None
        }
    };
    // "Any version" is answered from a cache, which does not page.
    let limit = params
        .limit
        .filter(|_| params.resource_version != Some(0))
        .unwrap_or(usize::MAX);
    let page = store.list(&resource.name(), selection, at, None, limit);
    page.map_err(|error| store_failure(error, resource, at.unwrap_or_default()))
}

fn next_page(
    store: &Store,
    resource: &ResourceType,
    selection: &Selection,
    params: &Params,
    token: &str,
) -> Result<Page, Failure> {
    if params.resource_version.is_some_and(|version| version != 0) || params.version_match.is_some()
    {
        let message = "specifying resource version is not allowed when using continue";
        return Err(Failure::bad_request(message));
    }
    let token = ContinueToken::decode(token)?;
    let after = key(&token.namespace, &token.name);
    let at = u64::try_from(token.version).ok();
    let limit = params.limit.unwrap_or(usize::MAX);
    let page = store.list(&resource.name(), selection, at, Some(&after), limit);
    page.map_err(|error| match error {
        StoreError::Expired(_) => {
            let message = "The provided continue parameter is too old to display a consistent list result: start a new list, or use the token in this response for the rest of an inconsistent one";
            let mut failure = Failure::new(410, "Expired", message);
            failure.continue_token = Some(ContinueToken { version: -1, ..token }.encode());
            failure
        }
        error => store_failure(error, resource, at.unwrap_or_default()),
    })
}

/// Returns the answer to a read that fails in the store.
pub(crate) fn store_failure(error: StoreError, resource: &ResourceType, asked: u64) -> Failure {
    match error {
        StoreError::Expired(oldest) => Failure::expired(asked, oldest),
        StoreError::Future(current) => Failure::too_large(asked, current),
        StoreError::NoResource | StoreError::Conflict => Failure::not_found(resource, ""),
    }
}

fn list_metadata(page: &Page, selection: &Selection) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), page.version.to_string().into());
    if let Some(((namespace, name), remaining)) = &page.more {
        let version = i64::try_from(page.version).unwrap_or(i64::MAX);
        let token = ContinueToken {
            version,
            namespace: namespace.to_string(),
            name: name.to_string(),
        };
        metadata.insert("continue".into(), token.encode().into());
        // With a selector, how many more match is not known without looking at them.
        if !selection.is_narrowed() && selection.namespace.is_none() {
            metadata.insert("remainingItemCount".into(), (*remaining).into());
        }
    }
    metadata
}

/// The list as a body, made of the objects' own bytes as the connection takes it.
fn body(
    resource: &ResourceType,
    version: &str,
    metadata: &Map<String, Value>,
    objects: Vec<Arc<Stored>>,
) -> Body {
    let open = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        resource.kind,
        resource.api_version(version),
        Value::Object(metadata.clone()),
    );
    // Only a custom resource's items say what they are.
    let head = if resource.custom {
        object::head(resource, version)
    } else {
        "{".to_owned()
    };
    let mut rest = objects.into_iter().peekable();
    let mut buffer = BytesMut::from(open.as_bytes());
    let mut done = false;
    let chunks = std::iter::from_fn(move || {
        while !done && buffer.len() < CHUNK_BYTES {
            let Some(object) = rest.next() else {
                buffer.extend_from_slice(b"]}\n");
                done = true;
                break;
            };
            buffer.reserve(object.written_bytes_max(&head) + 1);
            object.write(&head, &mut buffer);
            if rest.peek().is_some() {
                buffer.extend_from_slice(b",");
            }
        }
        let chunk: Bytes = buffer.split().freeze();
        (!chunk.is_empty()).then_some(Ok::<_, std::convert::Infallible>(chunk))
    });
    Body::from_stream(futures::stream::iter(chunks))
}

//! A part of a target's objects, out of a list: it takes as many pages as are needed to find some, within its time.
//!
//! A part is `{items, continue, unread}`: `continue` says where the next one begins, empty at the end; `unread` are
//! objects that are wanted and too large to be read, as `{namespace, name, message}`.

use std::time::Duration;

use anteroom_functions::wildcard;
use anteroom_model::{ExistingObjects, FactError, KindRecord};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{limits::ReadClaim, reader::LiveReader},
    failed,
    page::Page,
    paths,
};

/// Bytes of one part that is handed on; a longer one is read again in smaller pages. Parsed it takes 32 times as much of
/// the webhook, which counts two of these.
const PART_BYTES_MAX: usize = 256 * 1024;

/// The share of the caller's time that one part may take without finding a target; then the caller
/// asks for the next part.
const TIME_PART: u32 = 8;

/// Bytes of the names of one object, its labels and annotations among them.
const NAMES_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The media type that asks for the names of a list's objects alone.
const NAMES_ALONE: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

impl LiveReader {
    /// The next part. Where one page cannot be read since it is too large, smaller ones are; an object that is too
    /// large alone is reported, and those behind it are read.
    pub(super) async fn part(
        &self,
        kind: &KindRecord,
        objects: &ExistingObjects,
        claim: &ReadClaim,
    ) -> Result<Value, FactError> {
        let until = Instant::now() + time_of_part(claim.deadline);
        let mut page = Page::at(&objects.continues);
        loop {
            let path = paths::of_part(kind, objects, page.most(), page.continues());
            let listed = match self.fetched(path.clone(), claim).await {
                Err(error) if is_too_large(&error) && page.halve() => continue,
                Err(error) if is_too_large(&error) => {
                    let (names, next) = self.passed_over(kind, objects, &page, claim).await?;
                    let wanted = names.iter().filter(|item| is_wanted(kind, objects, item));
                    let unread: Vec<_> = wanted.map(|item| unread_object(item, &error)).collect();
                    self.unread(unread.len());
                    if !unread.is_empty() || next.is_empty() || Instant::now() >= until {
                        return Ok(json!({"items": [], "continue": next, "unread": unread}));
                    }
                    page.follow(&next, true);
                    continue;
                }
                Err(FactError::LiveReadFailed { code: 410, message }) => {
                    match self.renewed(&path, claim).await? {
                        Some(place) if place != page.continues() => page.renew(&place),
                        _ => return Err(FactError::LiveReadFailed { code: 410, message }),
                    }
                    continue;
                }
                listed => listed?,
            };
            let items = listed["items"].as_array().map_or(&[][..], Vec::as_slice);
            let items = items.iter().filter(|item| is_wanted(kind, objects, item));
            let items: Vec<_> = items.map(|item| named(item, kind)).collect();
            let bytes: usize = items.iter().map(|item| item.to_string().len()).sum();
            if bytes > PART_BYTES_MAX && page.halve() {
                continue;
            }
            let next = listed["metadata"]["continue"].as_str().unwrap_or_default();
            if !items.is_empty() || next.is_empty() || Instant::now() >= until {
                return Ok(json!({"items": items, "continue": next, "unread": []}));
            }
            page.follow(next, false);
        }
    }

    /// Returns the token with which an expired list continues, from the API server's own error.
    /// Objects of later pages are then as they are now. `None`: the API server gives none.
    async fn renewed(&self, path: &str, claim: &ReadClaim) -> Result<Option<String>, FactError> {
        let _permit = self.begin_scan(claim).await?;
        let said = self.api().call(path, None, NAMES_BYTES_MAX).await;
        let (code, said) = said.map_err(|fault| failed(fault.to_string()))?;
        let said: Value = match code {
            410 => serde_json::from_slice(&said).unwrap_or_default(),
            _ => Value::Null,
        };
        let place = said["metadata"]["continue"].as_str().unwrap_or_default();
        Ok((!place.is_empty()).then(|| place.to_owned()))
    }

    /// Returns the names of the objects on a page, and the place where the next page begins.
    async fn passed_over(
        &self,
        kind: &KindRecord,
        objects: &ExistingObjects,
        page: &Page,
        claim: &ReadClaim,
    ) -> Result<(Vec<Value>, String), FactError> {
        let path = paths::of_part(kind, objects, page.most(), page.continues());
        let _permit = self.begin_scan(claim).await?;
        let read = self.api().get_as(&path, NAMES_ALONE, NAMES_BYTES_MAX).await;
        let read = read.map_err(|fault| failed(fault.to_string()))?;
        let names: Value = serde_json::from_slice(&read)
            .map_err(|error| failed(format!("the names in a list: {error}")))?;
        let next = names["metadata"]["continue"].as_str().unwrap_or_default();
        let items = names["items"].as_array().cloned().unwrap_or_default();
        Ok((items, next.to_owned()))
    }
}

/// Returns the longest time for a part that finds no target.
fn time_of_part(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()) / TIME_PART
}

fn is_too_large(error: &FactError) -> bool {
    matches!(error, FactError::LiveReadFailed { code: 413, .. })
}

fn unread_object(item: &Value, error: &FactError) -> Value {
    let metadata = &item["metadata"];
    json!({
        "namespace": metadata["namespace"].as_str().unwrap_or_default(),
        "name": metadata["name"].as_str().unwrap_or_default(),
        "message": error.to_string(),
    })
}

fn is_wanted(kind: &KindRecord, objects: &ExistingObjects, item: &Value) -> bool {
    let metadata = &item["metadata"];
    let fits = |pattern: &str, text: &Value| {
        pattern.is_empty() || wildcard::matches(pattern, text.as_str().unwrap_or_default())
    };
    let namespace = match kind.namespaced {
        true => fits(&objects.namespace, &metadata["namespace"]),
        false => objects.namespace.is_empty() || wildcard::matches(&objects.namespace, ""),
    };
    namespace && fits(&objects.name, &metadata["name"])
}

/// Gives an object of a list its version and kind, which a list does not repeat for each object.
fn named(item: &Value, kind: &KindRecord) -> Value {
    let mut item = item.clone();
    if item.is_object() {
        item["apiVersion"] = kind.gvr.api_version().into();
        item["kind"] = kind.kind.as_str().into();
    }
    item
}

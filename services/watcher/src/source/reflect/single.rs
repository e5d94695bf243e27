//! Single requests about a collection.

use anteroom_model::{Collection, ResourceVersion};

use super::{
    JSON, LINE_BYTES_MAX, METADATA, METADATA_LIST, PAGE_BYTES_MAX, fetch, machine,
    parse::{self, RawObject},
    paths,
};
use crate::source::apiserver::{ApiServer, Fault};

/// Objects of a collection, as the API server counts them.
///
/// # Errors
/// The API server refuses, or does not answer.
pub(crate) async fn size(api: &ApiServer, collection: &Collection) -> Result<u64, Fault> {
    let path = paths::list(collection, None, 1);
    let bytes = api.get_as(&path, METADATA_LIST, PAGE_BYTES_MAX).await?;
    parse::size(&bytes)
}

/// Asks whether a collection may be listed and watched.
///
/// # Errors
/// The API server refuses, or does not answer.
pub(crate) async fn probe(api: &ApiServer, collection: &Collection) -> Result<(), Fault> {
    let path = paths::list(collection, None, 1);
    let page = parse::page(&api.get_as(&path, METADATA_LIST, PAGE_BYTES_MAX).await?)?;
    let path = paths::watch(collection, &page.version, 1);
    api.watch(&path, METADATA, LINE_BYTES_MAX).await.map(drop)
}

/// Reads the present state of a collection once, page by page. `take` returns whether the next page is wanted.
/// Returns the version of the collection's state; `None`: a page was not wanted.
///
/// # Errors
/// The API server refuses, or does not answer. Nothing but a smaller page is tried again, where a page may have several
/// objects.
pub(crate) async fn once<F: Future<Output = bool>>(
    api: &ApiServer,
    collection: &Collection,
    mut take: impl FnMut(Vec<RawObject>) -> F,
) -> Result<Option<ResourceVersion>, Fault> {
    let (mut token, mut limit) = (None, machine::PAGE_OBJECTS_MAX);
    let mut selectors = collection.field_selector.split(',');
    let is_of_one = selectors.any(|selector| selector.starts_with("metadata.name="));
    loop {
        let path = paths::list(collection, token.as_deref(), limit);
        let gvr = collection.gvr.clone();
        let (page, _place) = match fetch(api.clone(), gvr, path, JSON).await {
            Err(fault) if is_of_one => return Err(fault),
            Err(fault) => {
                limit = machine::smaller_page(&fault, limit).ok_or(fault)?;
                continue;
            }
            Ok(page) => page,
        };
        if !take(page.objects.into_iter().flatten().collect()).await {
            return Ok(None);
        }
        if page.next.is_none() {
            return Ok(Some(page.version));
        }
        token = page.next;
    }
}

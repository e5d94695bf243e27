//! Image references.

use std::sync::Arc;

use super::{CallContext, CallResult, Function, Val, global, method};
use crate::{
    EvalError,
    kind::Kind::{self, Bool, Image as ImageKind, Text},
    value::Image,
};

const OF_TEXT: &[Kind] = &[Text];
const OF_IMAGE: &[Kind] = &[ImageKind];

pub(super) const FUNCTIONS: &[Function] = &[
    global("image", (1, 1), OF_TEXT, ImageKind, parse),
    global("isImage", (1, 1), OF_TEXT, Bool, is_image),
    global("parseImageReference", (1, 1), OF_TEXT, ImageKind, parse),
    method("containsDigest", (1, 1), OF_IMAGE, Bool, contains_digest),
    method("digest", (1, 1), OF_IMAGE, Text, part),
    method("identifier", (1, 1), OF_IMAGE, Text, part),
    method("identifierWithSeparator", (1, 1), OF_IMAGE, Text, part),
    method("registry", (1, 1), OF_IMAGE, Text, part),
    method("repository", (1, 1), OF_IMAGE, Text, part),
    method("tag", (1, 1), OF_IMAGE, Text, part),
];

fn parsed(call: &mut CallContext<'_>, text: &str) -> Result<Option<Image>, EvalError> {
    call.budget().build(2 * text.len())?;
    Ok(Image::parse(text))
}

fn parse<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    match parsed(call, text)? {
        Some(image) => Ok(Val::Image(Arc::new(image))),
        None => {
            let start: String = text.chars().take(64).collect();
            Err(EvalError::Refused(format!("`{start}` is no image")))
        }
    }
}

fn is_image<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Text(text)] => Ok(Val::Bool(parsed(call, text)?.is_some())),
        other => call.mismatch(other),
    }
}

fn contains_digest<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Image(image)] => Ok(Val::Bool(!image.digest.is_empty())),
        other => call.mismatch(other),
    }
}

fn part<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Image(image)] = arguments else {
        return call.mismatch(arguments);
    };
    let part = match call.name {
        "digest" => image.digest.clone(),
        "identifier" => image.identifier(),
        "identifierWithSeparator" => image.identifier_with_separator(),
        "registry" => image.registry.clone(),
        "repository" => image.repository.clone(),
        _ => image.tag.clone(),
    };
    call.budget().build(part.len())?;
    Ok(Val::text(part))
}

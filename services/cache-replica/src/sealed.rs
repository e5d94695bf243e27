//! Views whose bodies are sealed in the log: they are opened here alone, and what is read of them
//! leaves sealed to whoever asked.

use anteroom_mirror::Open;
use anteroom_model::{FactError, ObjectKey, ViewId};
use anteroom_seal::{
    Keys, SealError,
    reply::{ReplySealer, withheld},
};
use anteroom_wire::query::QueryReply;
use bytes::Bytes;

/// Opens bodies of the log.
#[derive(Debug)]
pub(crate) struct Opener(pub(crate) Keys);

impl Open for Opener {
    fn open(&self, view: &ViewId, key: &ObjectKey, sealed: &[u8]) -> Result<Bytes, String> {
        self.0
            .open(view, key, sealed)
            .map_err(|error| error.to_string())
    }
}

/// Returns true if a view holds the Secrets of the core group, in any version: its results never leave
/// in the clear, even before anything else is known of it.
pub(crate) fn is_secret(view: &ViewId) -> bool {
    let mut parts = view.as_str().split(['.', '~']);
    let plural = parts.next();
    let (_version, group) = (parts.next(), view.as_str().split('~').next());
    let in_core = group.is_some_and(|name| name.split('.').count() == 2);
    plural == Some("secrets") && in_core
}

/// Seals the results of a reply to the reader of this public key; of errors, nothing is left to seal.
///
/// # Errors
/// [`FactError::RequestInvalid`] where it is no key; [`FactError::EvaluationFailed`] where nothing can
/// be sealed.
pub(crate) fn seal(mut reply: QueryReply, reader: &[u8]) -> Result<QueryReply, FactError> {
    let failed = |error: SealError| match error {
        SealError::ReplyKey => FactError::RequestInvalid {
            message: error.to_string(),
        },
        error => FactError::EvaluationFailed {
            message: error.to_string(),
        },
    };
    let sealer = ReplySealer::to(reader).map_err(failed)?;
    let sealed = |result: Result<Bytes, FactError>| match result {
        Ok(plain) => Ok(Ok(sealer.seal(&plain).map_err(failed)?)),
        Err(error) => Ok(Err(withheld(error))),
    };
    let results: Result<_, FactError> = reply.results.into_iter().map(sealed).collect();
    reply.results = results?;
    reply.sealed = true;
    Ok(reply)
}

/// The error for a reader without a key, of a sealed view.
pub(crate) fn refused(view: &ViewId) -> FactError {
    FactError::RequestInvalid {
        message: format!("view `{view}` is sealed: ask with a key to seal the answer to"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_of_secrets_are_known_by_their_name() {
        for (view, expected) in [
            ("secrets.v1", true),
            ("secrets.v1~0123456789abcdef", true),
            ("secrets.v1~objects", true),
            ("secrets.v1.example.com", false),
            ("configmaps.v1", false),
            ("anteroom:entries", false),
        ] {
            assert_eq!(is_secret(&ViewId::new(view)), expected, "{view}");
        }
    }
}

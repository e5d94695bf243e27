//! Views whose bodies are sealed in the log. Bodies are opened only here, and results leave sealed for the asker.

use anteroom_mirror::OpenSealed;
use anteroom_model::{FactError, ObjectKey, ViewId};
use anteroom_seal::{Answering, Keys, withheld};
use anteroom_wire::query::{QueryReply, encode_outcome};
use bytes::Bytes;

/// Opens bodies of the log.
#[derive(Debug)]
pub(crate) struct Opener(pub(crate) Keys);

impl OpenSealed for Opener {
    fn open(&self, view: &ViewId, key: &ObjectKey, sealed: &[u8]) -> Result<Bytes, String> {
        self.0
            .open(view, key, sealed)
            .map_err(|error| error.to_string())
    }
}

/// Returns true if a view holds the Secrets of the core group, in any version. Its results never leave in the clear,
/// even before anything else is known about the view.
pub(crate) fn is_secret(view: &ViewId) -> bool {
    let mut parts = view.as_str().split(['.', '~']);
    let plural = parts.next();
    let (_version, group) = (parts.next(), view.as_str().split('~').next());
    let in_core = group.is_some_and(|name| name.split('.').count() == 2);
    plural == Some("secrets") && in_core
}

/// Removes from the reply's errors the arguments that functions quote, since more people read errors than results.
pub(crate) fn withheld_results(mut reply: QueryReply) -> QueryReply {
    let results = reply.results.into_iter();
    reply.results = results.map(|result| result.map_err(withheld)).collect();
    reply
}

/// Seals an outcome for the asker. If that fails, the answer has only this failure.
pub(crate) fn seal(outcome: &[u8], answering: &Answering) -> Bytes {
    answering.seal(outcome).unwrap_or_else(|error| {
        let failed = Err(FactError::AskerUnknown {
            message: error.to_string(),
        });
        encode_outcome(&failed).unwrap_or_default()
    })
}

/// The error for a question in the clear, of a sealed view.
pub(crate) fn refused(view: &ViewId) -> FactError {
    FactError::AskerUnknown {
        message: format!(
            "this query of view `{view}` was not encrypted: start the service that asks with the same `--asker-keys-file` as this replica"
        ),
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

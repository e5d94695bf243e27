//! Replies with data of Secrets are sealed to a key that is made for one request.

use anteroom_model::FactError;
use anteroom_seal::{SealError, reply::ReplyKey};
use bytes::Bytes;

/// The reader's side of one request.
#[derive(Debug)]
pub(super) struct Seal(Option<ReplyKey>);

impl Seal {
    /// For a request that may read Secrets, if `secret`.
    pub(super) fn of(secret: bool) -> Result<Self, FactError> {
        let key = secret.then(ReplyKey::generate).transpose();
        key.map(Self).map_err(|error| failed(&error))
    }

    /// The public key that goes with the request.
    pub(super) fn public(&self) -> Option<Bytes> {
        self.0.as_ref().map(ReplyKey::public)
    }

    /// A result of the reply, which says whether it is sealed.
    pub(super) fn open(&self, result: Bytes, sealed: bool) -> Result<Bytes, FactError> {
        match &self.0 {
            _ if !sealed => Ok(result),
            Some(key) => key.open(&result).map_err(|error| failed(&error)),
            None => Err(FactError::RequestInvalid {
                message: "the reply is sealed, and no key was sent".to_owned(),
            }),
        }
    }
}

fn failed(error: &SealError) -> FactError {
    FactError::RequestInvalid {
        message: format!("the reply's seal: {error}"),
    }
}

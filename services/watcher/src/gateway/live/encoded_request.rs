//! A request as it came: opened, and decoded once there is memory for it.

use anteroom_bus::Address;
use anteroom_model::FactError;
use anteroom_seal::{Answering, AskedOf, Keys, is_question};
use anteroom_wire::{
    WireError,
    live::{self, LiveCall, LiveRequestHead},
};
use bytes::Bytes;

use super::{
    large_requests::{HeldRequest, LargeRequests},
    limits::ReadClaim,
    reader::on_worker_if_large,
};

/// A request that is not decoded yet: it takes the bytes of its message alone.
pub(super) struct EncodedRequest {
    body: Bytes,
    pub(super) head: LiveRequestHead,
}

impl EncodedRequest {
    /// Returns the request that was received, and for a sealed request the key that seals its answer.
    ///
    /// # Errors
    /// [`FactError::RequestInvalid`], [`FactError::AskerUnknown`]
    pub(super) fn open(keys: &Keys, body: &Bytes) -> Result<(Self, Option<Answering>), FactError> {
        if !is_question(body) {
            return Ok((Self::read(body.clone())?, None));
        }
        let heard = keys.open_question(AskedOf::Live, body);
        let (plain, answering) = heard.map_err(|error| FactError::AskerUnknown {
            message: error.to_string(),
        })?;
        Ok((Self::read(plain)?, Some(answering)))
    }

    fn read(body: Bytes) -> Result<Self, FactError> {
        let head = live::read_head(&body).map_err(|error| undecodable(&error))?;
        Ok(Self { body, head })
    }

    /// Decodes the request, which was received at this address, once there is memory for it.
    ///
    /// # Errors
    /// [`FactError::RequestInvalid`], and [`FactError::LiveReadBusy`] where others have the memory.
    pub(super) async fn decode(
        &self,
        at: &Address,
        large_requests: &LargeRequests,
        claim: &ReadClaim,
    ) -> Result<HeldRequest, FactError> {
        let (body, values) = (self.body.clone(), self.head.memory);
        let memory = large_requests.memory_for(body.len(), values, claim);
        let memory = memory.await?;
        let size = usize::try_from(values).unwrap_or(usize::MAX);
        let decoded = on_worker_if_large(size, move || {
            let request = live::decode_request(&body).map_err(|error| undecodable(&error));
            // The memory is held here too, also where nobody waits for the request any more.
            request.map(|request| HeldRequest::new(request, memory))
        });
        let held = decoded.await?;
        match matches!(held.request.call, LiveCall::Write { .. }) == (*at == Address::Write) {
            true => Ok(held),
            false => Err(invalid(
                "writes, and nothing else, are asked for by their own address".to_owned(),
            )),
        }
    }
}

fn undecodable(error: &WireError) -> FactError {
    invalid(error.to_string())
}

fn invalid(message: String) -> FactError {
    FactError::RequestInvalid { message }
}

//! The body of an answer, as far as it may go.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::calls::CallFault;

/// All of it.
///
/// # Errors
/// [`CallFault::TooLarge`] over the limit, before more of it is read.
pub(super) async fn read(mut body: Incoming, bytes_max: usize) -> Result<Bytes, CallFault> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| CallFault::unreachable(&error))?;
        let Ok(data) = frame.into_data() else {
            continue; // Trailers say nothing that is needed.
        };
        if whole.len() + data.len() > bytes_max {
            return Err(CallFault::TooLarge { bytes_max });
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

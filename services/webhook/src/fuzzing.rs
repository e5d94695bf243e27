//! The body of a fuzz target.

use anteroom_engine::incoming::Incoming as _;
use anteroom_policy::RequestParts;

use crate::{response, review::Review};

/// Reads a review as the webhook does, and answers it. A review that is refused gets an answer too.
pub fn review(body: &[u8]) {
    match Review::parse(body) {
        Ok(review) => {
            let _ = (review.head(), review.user(), review.field_manager());
            let _ = review.request(&RequestParts::ALL);
            assert!(
                serde_json::from_slice::<serde_json::Value>(&response::passed(&review)).is_ok()
            );
        }
        Err(error) => {
            let uid = error.uid().unwrap_or_default();
            let answer = response::malformed(uid, &error, false);
            assert!(serde_json::from_slice::<serde_json::Value>(&answer).is_ok());
        }
    }
}

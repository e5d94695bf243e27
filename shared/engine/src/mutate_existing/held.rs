//! The request of a trigger, as it is kept between attempts: with its objects as text. Pure.

use std::marker::PhantomData;

use anteroom_functions::json::{self, JsonError, parsed_bytes_max};
use anteroom_policy::AdmissionRequest;
use serde_json::Value;

use crate::incoming::ReviewOwner;

/// The object and the old object of a request, each if there is one.
type Objects = [Option<Value>; 2];

/// A request whose objects are text.
#[derive(Debug)]
pub(super) struct HeldRequest {
    /// The party that its memory is counted for.
    pub(super) owner: ReviewOwner,
    /// The request without its objects.
    pub(super) rest: AdmissionRequest,
    objects: Box<[u8]>,
    parsed_bytes: u64,
}

impl HeldRequest {
    /// Writes the request's objects as text.
    pub(super) fn of(mut request: AdmissionRequest, owner: ReviewOwner) -> Self {
        let objects = serde_json::to_vec(&request.take_objects());
        // JSON can always be written. No text would be an error of every attempt.
        let objects = objects.unwrap_or_default();
        Self {
            owner,
            rest: request,
            parsed_bytes: parsed_bytes_max(&objects),
            objects: objects.into(),
        }
    }

    /// Reads the whole request from its text.
    ///
    /// # Errors
    /// The text cannot be read.
    pub(super) fn request(&self) -> Result<AdmissionRequest, JsonError> {
        let objects = json::read(&self.objects, PhantomData::<Objects>, || {
            serde_json::from_slice(&self.objects)
        });
        Ok(self.rest.with_objects(objects?))
    }

    /// Returns the length of the text.
    pub(super) fn text_bytes(&self) -> usize {
        self.objects.len()
    }

    /// Returns the most memory that the objects take once they are parsed.
    pub(super) fn parsed_bytes(&self) -> u64 {
        self.parsed_bytes
    }
}

/// Returns the most memory that a request's objects take.
pub(super) fn parsed_bytes(request: &AdmissionRequest) -> u64 {
    let objects = [request.object(), request.old_object()];
    match serde_json::to_vec(&objects) {
        Ok(text) => parsed_bytes_max(&text),
        Err(_) => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_held_request_is_read_as_it_was() {
        let mut deep = json!(1);
        for _ in 0..json::DEPTH_MAX - 10 {
            deep = json!([deep]);
        }
        let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"image": "a:1"}]}, "deep": deep});
        for (operation, object, old) in [
            ("CREATE", pod.clone(), None),
            ("CREATE", pod.clone(), Some(Value::Null)),
            ("UPDATE", pod.clone(), Some(json!({"a": 0.1}))),
            ("DELETE", Value::Null, Some(pod)),
        ] {
            let mut request = json!({
                "operation": operation, "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "namespace": "shop", "name": "x", "object": object,
            });
            if let Some(old) = old {
                request["oldObject"] = old;
            }
            let request = AdmissionRequest::new(request).unwrap();
            let held = HeldRequest::of(request.clone(), ReviewOwner::default());
            assert_eq!(held.parsed_bytes(), parsed_bytes(&request), "{operation}");
            assert!(held.rest.object().or(held.rest.old_object()).is_none());
            assert_eq!(held.rest.name(), "x");
            let read = held.request().unwrap();
            assert_eq!(format!("{read:?}"), format!("{request:?}"), "{operation}");
        }
    }
}

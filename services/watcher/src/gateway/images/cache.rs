//! Images that were read, remembered for a while.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Image, ImageRequest};

/// The time for which a tag's digest is remembered. A digest's content never changes.
const TAG_FRESH: Duration = Duration::from_secs(10);

/// Images that are remembered; the oldest makes room.
const IMAGES_MAX: usize = 512;

/// The most bytes of remembered images; the oldest make room.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Images by their whole request, credentials included: a policy gets no image that others' credentials have read.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<VecDeque<CachedImage>>);

#[derive(Debug)]
struct CachedImage {
    request: ImageRequest,
    image: Image,
}

impl CachedImage {
    fn is_fresh(&self, now: Instant) -> bool {
        self.request.reference.contains('@') || now.duration_since(self.image.begun) < TAG_FRESH
    }
}

impl Cache {
    pub(super) fn get(&self, request: &ImageRequest) -> Option<Image> {
        self.get_at(request, Instant::now())
    }

    pub(super) fn put(&self, request: &ImageRequest, image: &Image) {
        self.put_at(request, image, Instant::now());
    }

    fn get_at(&self, request: &ImageRequest, now: Instant) -> Option<Image> {
        let known = self.0.lock();
        let found = known.iter().find(|known| known.request == *request)?;
        found.is_fresh(now).then(|| found.image.clone())
    }

    fn put_at(&self, request: &ImageRequest, image: &Image, now: Instant) {
        let mut known = self.0.lock();
        known.retain(|known| known.request != *request && known.is_fresh(now));
        if image.bytes > BYTES_MAX {
            return;
        }
        let held = |known: &VecDeque<CachedImage>| {
            known.iter().map(|known| known.image.bytes).sum::<usize>()
        };
        while known.len() >= IMAGES_MAX || held(&known) + image.bytes > BYTES_MAX {
            known.pop_front();
        }
        known.push_back(CachedImage {
            request: request.clone(),
            image: image.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;

    #[test]
    fn a_tag_is_known_for_a_while_and_a_digest_until_there_is_no_room() {
        let (cache, begun) = (Cache::default(), Instant::now());
        let image = |bytes: usize, begun: Instant| Image {
            data: Arc::new(Value::Null),
            bytes,
            begun,
        };
        cache.put_at(&ImageRequest::plain("a:1"), &image(10, begun), begun);
        cache.put_at(&ImageRequest::plain("a@sha256:1"), &image(10, begun), begun);
        let just = begun + TAG_FRESH - Duration::from_millis(1);
        assert_eq!(
            cache
                .get_at(&ImageRequest::plain("a:1"), just)
                .unwrap()
                .begun,
            begun
        );
        assert!(cache.get_at(&ImageRequest::plain("a:2"), just).is_none());
        assert!(
            cache
                .get_at(&ImageRequest::plain("a:1"), begun + TAG_FRESH)
                .is_none()
        );
        let late = begun + TAG_FRESH * 1_000;
        assert!(
            cache
                .get_at(&ImageRequest::plain("a@sha256:1"), late)
                .is_some()
        );
        for n in 0..IMAGES_MAX - 1 {
            cache.put_at(
                &ImageRequest::plain(&format!("b@sha256:{n}")),
                &image(10, late),
                late,
            );
        }
        assert!(
            cache
                .get_at(&ImageRequest::plain("a@sha256:1"), late)
                .is_some()
        );
        cache.put_at(&ImageRequest::plain("c@sha256:1"), &image(10, late), late);
        assert!(
            cache
                .get_at(&ImageRequest::plain("a@sha256:1"), late)
                .is_none()
        );
        cache.put_at(
            &ImageRequest::plain("large@sha256:1"),
            &image(BYTES_MAX, late),
            late,
        );
        assert_eq!(cache.0.lock().len(), 1);
        cache.put_at(
            &ImageRequest::plain("larger@sha256:1"),
            &image(BYTES_MAX + 1, late),
            late,
        );
        assert!(
            cache
                .get_at(&ImageRequest::plain("larger@sha256:1"), late)
                .is_none()
        );
    }
}

//! What is remembered of images, for a while.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde_json::Value;

/// How long what a tag means is taken for granted. What a digest means never changes.
const TAG_FRESH: Duration = Duration::from_secs(10);

/// Images that are remembered; the oldest makes room.
const IMAGES_MAX: usize = 512;

/// Bytes of them, as they are held; the oldest make room.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Images, by reference.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<VecDeque<Known>>);

#[derive(Debug)]
struct Known {
    reference: String,
    data: Arc<Value>,
    bytes: usize,
    at: Instant,
}

impl Known {
    fn is_fresh(&self, now: Instant) -> bool {
        self.reference.contains('@') || now.duration_since(self.at) < TAG_FRESH
    }
}

impl Cache {
    pub(super) fn get(&self, reference: &str) -> Option<(Arc<Value>, usize)> {
        self.get_at(reference, Instant::now())
    }

    pub(super) fn put(&self, reference: &str, data: &Arc<Value>, bytes: usize) {
        self.put_at(reference, data, bytes, Instant::now());
    }

    fn get_at(&self, reference: &str, now: Instant) -> Option<(Arc<Value>, usize)> {
        let known = self.0.lock();
        let found = known.iter().find(|known| known.reference == reference)?;
        found
            .is_fresh(now)
            .then(|| (Arc::clone(&found.data), found.bytes))
    }

    fn put_at(&self, reference: &str, data: &Arc<Value>, bytes: usize, now: Instant) {
        let mut known = self.0.lock();
        known.retain(|known| known.reference != reference && known.is_fresh(now));
        if bytes > BYTES_MAX {
            return;
        }
        let held = |known: &VecDeque<Known>| known.iter().map(|known| known.bytes).sum::<usize>();
        while known.len() >= IMAGES_MAX || held(&known) + bytes > BYTES_MAX {
            known.pop_front();
        }
        known.push_back(Known {
            reference: reference.to_owned(),
            data: Arc::clone(data),
            bytes,
            at: now,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_known_for_a_while_and_a_digest_until_there_is_no_room() {
        let (cache, data, begun) = (Cache::default(), Arc::new(Value::Null), Instant::now());
        cache.put_at("a:1", &data, 10, begun);
        cache.put_at("a@sha256:1", &data, 10, begun);
        let just = begun + TAG_FRESH - Duration::from_millis(1);
        assert!(cache.get_at("a:1", just).is_some());
        assert!(cache.get_at("a:2", just).is_none());
        assert!(cache.get_at("a:1", begun + TAG_FRESH).is_none());
        let late = begun + TAG_FRESH * 1_000;
        assert!(cache.get_at("a@sha256:1", late).is_some());
        for n in 0..IMAGES_MAX - 1 {
            cache.put_at(&format!("b@sha256:{n}"), &data, 10, late);
        }
        assert!(cache.get_at("a@sha256:1", late).is_some());
        cache.put_at("c@sha256:1", &data, 10, late);
        assert!(cache.get_at("a@sha256:1", late).is_none());
        cache.put_at("large@sha256:1", &data, BYTES_MAX, late);
        assert_eq!(cache.0.lock().len(), 1);
        cache.put_at("larger@sha256:1", &data, BYTES_MAX + 1, late);
        assert!(cache.get_at("larger@sha256:1", late).is_none());
    }
}

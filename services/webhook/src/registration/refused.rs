//! What the API server said of webhooks of single policies. Pure.
//!
//! | it | then |
//! |---|---|
//! | took a configuration | every webhook in there is one that it takes |
//! | refused one as invalid | each webhook that it never took is tried alone; where it took all, each |
//! | refused a webhook alone | the webhook is left out as long as it is the same, and `REFUSED_FOR` |

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::ObjectKey;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use tokio::time::Instant;

/// How long a refusal is believed: another API server may take what this one does not.
const REFUSED_FOR: Duration = Duration::from_secs(300);

/// Characters of the API server's words that are told: it may repeat an expression.
const WORDS_CHARACTERS_MAX: usize = 600;

/// What was said, by policy.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    said: BTreeMap<ObjectKey, Said>,
    /// Goes up whenever a configuration may come to something else by them.
    changes: u64,
}

#[derive(Debug)]
struct Said {
    /// Of the webhook.
    digest: u64,
    /// `None`: it takes it.
    refusal: Option<(String, Instant)>,
}

impl Refusals {
    /// Why a policy's webhook is left out, in the API server's words.
    pub(super) fn of(&self, key: &ObjectKey, webhook: &MutatingWebhook) -> Option<&str> {
        let said = self.said.get(key)?;
        let (words, _) = said.refusal.as_ref()?;
        (said.digest == digest(webhook)).then_some(words)
    }

    /// How often they have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// It took a configuration with these. What is in none any more is forgotten, unless it is refused.
    pub(super) fn taken(&mut self, webhooks: &[(ObjectKey, MutatingWebhook)]) {
        self.said.retain(|_, said| said.refusal.is_some());
        for (key, webhook) in webhooks {
            let said = Said {
                digest: digest(webhook),
                refusal: None,
            };
            self.said.insert(key.clone(), said);
        }
    }

    /// It refused a configuration with these: which may be why.
    pub(super) fn suspects<'w>(
        &self,
        webhooks: &'w [(ObjectKey, MutatingWebhook)],
    ) -> Vec<&'w (ObjectKey, MutatingWebhook)> {
        let is_new = |(key, webhook): &&(ObjectKey, MutatingWebhook)| {
            let said = self.said.get(key);
            said.is_none_or(|said| said.digest != digest(webhook))
        };
        let new: Vec<_> = webhooks.iter().filter(is_new).collect();
        match new.is_empty() {
            true => webhooks.iter().collect(),
            false => new,
        }
    }

    /// It refused this one alone.
    pub(super) fn refused(&mut self, of: &(ObjectKey, MutatingWebhook), words: &str, now: Instant) {
        let (key, webhook) = of;
        let words = words.chars().take(WORDS_CHARACTERS_MAX).collect();
        let said = Said {
            digest: digest(webhook),
            refusal: Some((words, now + REFUSED_FOR)),
        };
        self.said.insert(key.clone(), said);
        self.changes += 1;
    }

    /// Time has passed: what was refused long ago is tried again.
    pub(super) fn tick(&mut self, now: Instant) {
        let all = self.said.len();
        self.said.retain(|_, said| {
            let refusal = said.refusal.as_ref();
            refusal.is_none_or(|(_, until)| now < *until)
        });
        if self.said.len() != all {
            self.changes += 1;
        }
    }
}

fn digest(webhook: &MutatingWebhook) -> u64 {
    // A webhook is plain data, and always JSON.
    let content = serde_json::to_vec(webhook).unwrap_or_default();
    xxhash_rust::xxh3::xxh3_64(&content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, path: &str) -> (ObjectKey, MutatingWebhook) {
        let webhook = MutatingWebhook {
            name: path.to_owned(),
            ..MutatingWebhook::default()
        };
        (ObjectKey::new("", name), webhook)
    }

    fn names(all: &[&(ObjectKey, MutatingWebhook)]) -> Vec<String> {
        all.iter().map(|(key, _)| key.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_was_never_taken_is_suspected() {
        let mut refusals = Refusals::default();
        let (a, b) = (of("a", "1"), of("b", "1"));
        refusals.taken(std::slice::from_ref(&a));
        let both = [a.clone(), b.clone()];
        assert_eq!(names(&refusals.suspects(&both)), ["b"]);
        // Another content was not taken.
        let changed = [of("a", "2"), b.clone()];
        assert_eq!(names(&refusals.suspects(&changed)), ["a", "b"]);
        refusals.taken(&both);
        assert_eq!(names(&refusals.suspects(&both)), ["a", "b"]);
        // Once it was gone, nothing is known of it.
        refusals.taken(std::slice::from_ref(&b));
        assert_eq!(names(&refusals.suspects(&both)), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_left_out_as_it_is_and_for_a_while() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let (a, other) = (of("a", "1"), of("a", "2"));
        refusals.refused(&a, &"no ".repeat(300), now);
        assert_eq!(refusals.changes(), 1);
        let words = refusals.of(&a.0, &a.1).map(str::len);
        assert_eq!(words, Some(WORDS_CHARACTERS_MAX));
        assert_eq!(refusals.of(&other.0, &other.1), None);
        refusals.taken(&[]);
        assert!(refusals.of(&a.0, &a.1).is_some());
        refusals.tick(now + REFUSED_FOR - Duration::from_millis(1));
        assert!(refusals.of(&a.0, &a.1).is_some());
        refusals.tick(now + REFUSED_FOR);
        assert_eq!((refusals.of(&a.0, &a.1), refusals.changes()), (None, 2));
    }
}

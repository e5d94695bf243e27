//! What the API server said of webhooks of single policies. Pure.
//!
//! | it | then |
//! |---|---|
//! | took a configuration | every webhook in there is one that it takes |
//! | refused one as invalid | each webhook that it never took is tried alone |
//! | refused one of which it took each | it may be another one by now: each is tried again, once |
//! | refused a webhook alone | the webhook is left out as long as it is the same, and `REFUSED_FOR` |
//! | refused it of another of our webhooks | the same: two API servers may differ, and would have us write for ever |

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::ObjectKey;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How long a refusal is believed: another API server may take what this one does not.
const REFUSED_FOR: Duration = Duration::from_secs(300);

/// Characters of the API server's words that are told: it may repeat an expression.
const WORDS_CHARACTERS_MAX: usize = 600;

/// Refusals that other webhooks are told of. Of one more, each finds out by itself.
const TOLD_MAX: usize = 50;

/// What was said, by policy.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    said: BTreeMap<ObjectKey, Said>,
    /// The last refusal of each that counted here, whoever was refused.
    counted: BTreeMap<ObjectKey, u64>,
    /// Goes up whenever a configuration may come to something else by them.
    changes: u64,
    /// What it took once has been doubted since it last took all.
    doubted: bool,
}

#[derive(Debug)]
struct Said {
    /// Of the webhook.
    digest: u64,
    /// `None`: it takes it.
    refusal: Option<Refusal>,
}

#[derive(Debug)]
struct Refusal {
    words: String,
    until: Instant,
    /// Which one it is, in all of our webhooks.
    id: u64,
}

/// A refusal, for other webhooks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    namespace: String,
    name: String,
    digest: u64,
    id: u64,
    words: String,
}

impl Refusals {
    /// Why a policy's webhook is left out, in the API server's words.
    pub(super) fn of(&self, key: &ObjectKey, webhook: &MutatingWebhook) -> Option<&str> {
        let said = self.said.get(key)?;
        let refusal = said.refusal.as_ref()?;
        (said.digest == digest(webhook)).then_some(&refusal.words)
    }

    /// How often they have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// It took a configuration with these. What is in none any more is forgotten, unless it is refused.
    pub(super) fn taken(&mut self, webhooks: &[(ObjectKey, MutatingWebhook)]) {
        self.doubted = false;
        self.said.retain(|_, said| said.refusal.is_some());
        webhooks.iter().for_each(|of| self.taken_alone(of));
    }

    /// It took this one.
    pub(super) fn taken_alone(&mut self, (key, webhook): &(ObjectKey, MutatingWebhook)) {
        let said = Said {
            digest: digest(webhook),
            refusal: None,
        };
        self.said.insert(key.clone(), said);
    }

    /// It refused a configuration with these: those that may be why.
    pub(super) fn suspects<'w>(
        &self,
        webhooks: &'w [(ObjectKey, MutatingWebhook)],
    ) -> impl Iterator<Item = &'w (ObjectKey, MutatingWebhook)> {
        webhooks.iter().filter(|(key, webhook)| {
            let said = self.said.get(key);
            said.is_none_or(|said| said.digest != digest(webhook))
        })
    }

    /// It refused what it took once: it may be another one by now. False where that was thought before, and all
    /// were tried since.
    pub(super) fn doubt(&mut self) -> bool {
        self.said.retain(|_, said| said.refusal.is_some());
        self.doubted = !self.doubted;
        self.doubted
    }

    /// It refused this one alone. `id` is no other refusal's.
    pub(super) fn refused(
        &mut self,
        (key, webhook): &(ObjectKey, MutatingWebhook),
        words: &str,
        (id, now): (u64, Instant),
    ) {
        let refusal = Refusal {
            words: words.chars().take(WORDS_CHARACTERS_MAX).collect(),
            until: now + REFUSED_FOR,
            id,
        };
        let said = Said {
            digest: digest(webhook),
            refusal: Some(refusal),
        };
        self.said.insert(key.clone(), said);
        self.counted.insert(key.clone(), id);
        self.changes += 1;
    }

    /// For other webhooks: what is left out, and why.
    pub(super) fn told(&self) -> Vec<Told> {
        let refused = self.said.iter();
        let refused = refused.filter_map(|(key, said)| {
            let refusal = said.refusal.as_ref()?;
            Some(Told {
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                digest: said.digest,
                id: refusal.id,
                words: refusal.words.clone(),
            })
        });
        refused.take(TOLD_MAX).collect()
    }

    /// Whether another webhook was refused any of these, and that did not count here yet: each refusal counts
    /// once, so that nothing is left out for ever since somebody who is gone was refused.
    pub(super) fn is_news(&self, told: &[Told], webhooks: &[(ObjectKey, MutatingWebhook)]) -> bool {
        told.iter().any(|one| self.news(one, webhooks).is_some())
    }

    fn news<'w>(
        &self,
        told: &Told,
        webhooks: &'w [(ObjectKey, MutatingWebhook)],
    ) -> Option<&'w (ObjectKey, MutatingWebhook)> {
        let key = ObjectKey::new(&*told.namespace, &*told.name);
        let of = webhooks.iter().find(|of| of.0 == key)?;
        let is_news = self.counted.get(&key) != Some(&told.id);
        (is_news && digest(&of.1) == told.digest).then_some(of)
    }

    /// Takes that in.
    pub(super) fn heard(
        &mut self,
        told: &[Told],
        webhooks: &[(ObjectKey, MutatingWebhook)],
        now: Instant,
    ) {
        for one in told {
            if let Some(of) = self.news(one, webhooks) {
                self.refused(of, &one.words, (one.id, now));
            }
        }
    }

    /// Time has passed: what was refused long ago is tried again.
    pub(super) fn tick(&mut self, now: Instant) {
        let all = self.said.len();
        self.said.retain(|_, said| {
            let refusal = said.refusal.as_ref();
            refusal.is_none_or(|refusal| now < refusal.until)
        });
        if self.said.len() != all {
            self.changes += 1;
        }
    }

    /// These policies have webhooks of their own, and no others.
    pub(super) fn keep(&mut self, of: impl Fn(&ObjectKey) -> bool) {
        self.counted.retain(|key, _| of(key));
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

    fn suspects(refusals: &Refusals, all: &[(ObjectKey, MutatingWebhook)]) -> Vec<String> {
        let suspects = refusals.suspects(all);
        suspects.map(|(key, _)| key.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_was_never_taken_is_suspected() {
        let mut refusals = Refusals::default();
        let (a, b) = (of("a", "1"), of("b", "1"));
        refusals.taken(std::slice::from_ref(&a));
        let both = [a.clone(), b.clone()];
        assert_eq!(suspects(&refusals, &both), ["b"]);
        // Another content was not taken.
        let changed = [of("a", "2"), b.clone()];
        assert_eq!(suspects(&refusals, &changed), ["a", "b"]);
        refusals.taken_alone(&b);
        assert!(suspects(&refusals, &both).is_empty());
        // Once it was gone, nothing is known of it.
        refusals.taken(std::slice::from_ref(&b));
        assert_eq!(suspects(&refusals, &both), ["a"]);
    }

    /// An API server of an older version does not take what the one before it took.
    #[tokio::test(start_paused = true)]
    async fn what_was_taken_is_doubted_once_for_each_refusal() {
        let mut refusals = Refusals::default();
        let both = [of("a", "1"), of("b", "1")];
        refusals.taken(&both);
        assert!(refusals.doubt());
        assert_eq!(suspects(&refusals, &both), ["a", "b"]);
        both.iter().for_each(|of| refusals.taken_alone(of));
        assert!(!refusals.doubt(), "each was tried");
        assert!(refusals.doubt(), "later, again");
        refusals.taken(&both);
        assert!(refusals.doubt());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_left_out_as_it_is_and_for_a_while() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let (a, other) = (of("a", "1"), of("a", "2"));
        refusals.refused(&a, &"no ".repeat(300), (1, now));
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

    /// Of two API servers one takes it: who is refused has it left out by all, until it is tried again.
    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_one_counts_for_all_and_once() {
        let (mut one, mut other, now) = (Refusals::default(), Refusals::default(), Instant::now());
        let all = [of("a", "1"), of("b", "1")];
        one.refused(&all[0], "no", (7, now));
        let told = one.told();
        assert!(!one.is_news(&told, &all), "its own is none");
        assert!(other.is_news(&told, &all));
        other.heard(&told, &all, now);
        assert_eq!(other.of(&all[0].0, &all[0].1), Some("no"));
        assert!(!other.is_news(&told, &all));
        assert_eq!(other.told(), told);
        // Nobody was refused since: it is tried, though the object says the same.
        other.tick(now + REFUSED_FOR);
        assert!(!other.is_news(&told, &all));
        assert_eq!(other.of(&all[0].0, &all[0].1), None);
        // Refused again: it counts again. What says something else was not meant.
        one.refused(&all[0], "no", (8, now));
        assert!(!other.is_news(&one.told(), &[of("a", "2")]));
        assert!(other.is_news(&one.told(), &all));
        other.keep(|_| false);
        assert!(other.counted.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_very_many_refusals_some_are_told() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for at in 0..=TOLD_MAX {
            refusals.refused(&of(&format!("p{at}"), "1"), "no", (1, now));
        }
        assert_eq!(refusals.told().len(), TOLD_MAX);
    }
}

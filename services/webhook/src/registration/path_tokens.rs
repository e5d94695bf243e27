//! The secret part of the paths at which reviews are taken.
//!
//! Whoever can read the webhook configurations knows it, as the API server does, and no pod has to be able to. It is
//! `/r/TOKEN` before each path. All webhooks have one key, which lies in the Secret with their certificate, so each makes
//! the same token, and another one every hour. Those of the hours before and after are taken too, and those of the
//! configurations that this webhook wrote last: an API server that cannot be written to is never locked out.
//!
//! API servers quote the path to their users if a call fails. So a token is no proof of who calls: what a review
//! triggers is verified in the cluster as well, and a client certificate is stronger where it can be had.

use std::{collections::VecDeque, sync::Arc};

use anteroom_seal::{MacKey, is_equal};
use parking_lot::Mutex;

/// The text before the token.
const PREFIX: &str = "/r/";

/// The purpose of the key, so that it makes nothing else.
const PURPOSE: &[u8] = b"anteroom review path";

/// Seconds for which a token is made.
const PERIOD_SECONDS: u64 = 60 * 60;

/// Tokens of written configurations that are remembered: two of each phase.
const WRITTEN_MAX: usize = 4;

/// The tokens of this webhook. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathTokens(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    key: Option<MacKey>,
    /// The period, and the tokens of the one before, of it, and of the one after.
    around: Option<(u64, [String; 3])>,
    written: VecDeque<String>,
}

/// No token stands in a log.
impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl PathTokens {
    /// Goes by this key from now on.
    pub(crate) fn use_key(&self, key: &str) {
        let mut state = self.0.lock();
        state.key = Some(MacKey::new(key.as_bytes()));
        state.around = None;
    }

    /// Returns what stands before the paths of a configuration that is made now; empty without a key.
    pub(super) fn prefix(&self) -> String {
        match self.0.lock().around(period()) {
            Some([_, now, _]) => format!("{PREFIX}{now}"),
            None => String::new(),
        }
    }

    /// Remembers what stands before the paths of a configuration that the API server has.
    pub(super) fn is_written(&self, prefix: &str) {
        let Some(token) = prefix.strip_prefix(PREFIX) else {
            return;
        };
        let mut state = self.0.lock();
        if !state.written.iter().any(|known| known == token) {
            state.written.truncate(WRITTEN_MAX - 1);
            state.written.push_front(token.to_owned());
        }
    }

    /// Returns the rest of a path behind a token that is taken; `None` if there is none.
    pub(crate) fn accepted<'p>(&self, path: &'p str) -> Option<&'p str> {
        let (token, _) = path.strip_prefix(PREFIX)?.split_once('/')?;
        self.0
            .lock()
            .accepts(token, period())
            .then(|| &path[PREFIX.len() + token.len()..])
    }
}

impl State {
    fn around(&mut self, period: u64) -> Option<&[String; 3]> {
        let key = self.key.as_ref()?;
        if self.around.as_ref().is_none_or(|(of, _)| *of != period) {
            let tokens = [period.wrapping_sub(1), period, period.wrapping_add(1)];
            self.around = Some((period, tokens.map(|period| token(key, period))));
        }
        self.around.as_ref().map(|(_, tokens)| tokens)
    }

    fn accepts(&mut self, token: &str, period: u64) -> bool {
        let is_it = |known: &String| is_equal(known, token);
        let around = self
            .around(period)
            .is_some_and(|around| around.iter().any(is_it));
        around || self.written.iter().any(is_it)
    }
}

/// 32 hexadecimal digits.
fn token(key: &MacKey, period: u64) -> String {
    let mut tag = key.tag(&[PURPOSE, &period.to_be_bytes()]);
    tag.truncate(32);
    tag
}

/// The number of the period by this machine's clock. Others may be one off.
fn period() -> u64 {
    let seconds = jiff::Timestamp::now().as_second();
    u64::try_from(seconds).unwrap_or_default() / PERIOD_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_webhooks_with_one_key_make_the_same_path() {
        let [one, other, stranger] = ["k", "k", "l"].map(|key| {
            let tokens = PathTokens::default();
            tokens.use_key(key);
            tokens
        });
        let path = format!("{}/validate/c/fail-10", one.prefix());
        assert_eq!(other.accepted(&path), Some("/validate/c/fail-10"));
        assert_eq!(stranger.accepted(&path), None);
        assert_eq!(PathTokens::default().accepted(&path), None);
        for path in ["/validate", "/r/", "/r//validate", "/r/x/validate", ""] {
            assert_eq!(one.accepted(path), None, "{path}");
        }
    }

    #[test]
    fn a_token_is_taken_for_an_hour_before_and_after_its_own() {
        let mut state = State {
            key: Some(MacKey::new(b"k")),
            ..State::default()
        };
        let own = token(state.key.as_ref().unwrap(), 100);
        for (period, expected) in [
            (98, false),
            (99, true),
            (100, true),
            (101, true),
            (102, false),
        ] {
            assert_eq!(state.accepts(&own, period), expected, "{period}");
        }
    }

    #[test]
    fn the_token_of_a_written_configuration_is_taken_however_old() {
        let tokens = PathTokens::default();
        tokens.use_key("k");
        let old = format!("{PREFIX}{}", "0".repeat(32));
        let path = format!("{old}/probe");
        assert_eq!(tokens.accepted(&path), None);
        tokens.is_written(&old);
        assert_eq!(tokens.accepted(&path), Some("/probe"));
        // Without a key there is none.
        tokens.is_written("");
        assert_eq!(tokens.0.lock().written.len(), 1);
    }
}

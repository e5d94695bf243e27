//! The secret part of the paths at which reviews are taken.
//!
//! The API server knows this part, and so does everyone who can read the webhook configurations, which no pod has to.
//! It is `/r/TOKEN` before each path. All webhooks have one key, which lies in the Secret with their certificate. A
//! token is computed from the key and a number, the *period*, which the configuration names too.
//!
//! A webhook uses the period that it read or wrote last. It accepts the tokens of that period and of the two beside
//! it, and an hour later it writes a configuration with the next period. The configuration names the period, so
//! webhooks agree on it however wrong their clocks are. An API server that cannot be written to is never locked out,
//! since no period passes without a write.
//!
//! API servers quote the path to their users if a call fails. So a token does not prove who calls. The object that a
//! review triggers with is therefore read in the cluster too, and a client certificate is stronger where it is
//! possible.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use anteroom_engine::phase::ByPhase;
use anteroom_policy::Phase;
use anteroom_seal::{MacKey, is_equal};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The text before the token.
pub(super) const PREFIX: &str = "/r/";

/// Hexadecimal digits of a token.
const TOKEN_DIGITS: usize = 32;

/// The label of the key derivation: keys for further purposes would differ.
const PURPOSE: &[u8] = b"anteroom review path";

/// The time for which a token is made.
const PERIOD: Duration = Duration::from_secs(60 * 60);

/// The shortest time from one period to the next: twice the time in which every webhook reads a configuration. So no
/// webhook misses two periods, however many are started.
const STEP_MIN: Duration = super::step::RECHECK.saturating_mul(2);

/// Tokens of a phase that are remembered: an API server may go by the configuration before the last one for a moment.
const SEEN_MAX: usize = 2;

const PHASES: [Phase; 2] = [Phase::Mutation, Phase::Validation];

/// The token of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathToken {
    /// The number that it is made of.
    pub(super) period: u64,
    token: String,
}

impl PathToken {
    /// Returns the text before the paths.
    pub(super) fn prefix(&self) -> String {
        format!("{PREFIX}{}", self.token)
    }
}

/// The tokens of this webhook. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathTokens(Arc<Mutex<TokenState>>);

#[derive(Default)]
struct TokenState {
    key: Option<MacKey>,
    of: ByPhase<PhaseTokens>,
    /// All tokens that are taken.
    taken: Vec<String>,
}

/// The period and the tokens of a phase, as its configurations at the API server named them.
#[derive(Default)]
struct PhaseTokens {
    /// `None`: none was read or written yet.
    current: Option<Current>,
    /// The tokens of those that were read or written, newest first. An earlier key may have made them.
    seen: VecDeque<String>,
}

/// A period that a configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Current {
    period: u64,
    /// The time from which the next period is written.
    until: Instant,
}

/// No token stands in a log.
impl std::fmt::Debug for TokenState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenState").finish_non_exhaustive()
    }
}

impl PathTokens {
    /// Goes by this key from now on.
    pub(crate) fn use_key(&self, key: &str) {
        let mut state = self.0.lock();
        state.key = Some(MacKey::new(key.as_bytes()));
        state.accept_neighbouring_periods(clock());
    }

    /// Returns the token of a configuration that is made now; `None` without a key.
    pub(super) fn desired(&self, phase: Phase) -> Option<PathToken> {
        self.0.lock().desired(phase, Instant::now(), clock())
    }

    /// Notes a configuration of the API server: a path with its token, and the period that it names. Returns true if
    /// another webhook has written a newer token than this one knew.
    pub(super) fn read(&self, phase: Phase, path: &str, period: u64) -> bool {
        let token = path
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('/').next());
        let Some(token) = token else {
            return false;
        };
        let mut state = self.0.lock();
        state.read(phase, token, period, Instant::now(), clock())
    }

    /// Notes that the API server has a configuration with this token.
    pub(super) fn written(&self, phase: Phase, token: &PathToken) {
        let until = Instant::now() + PERIOD;
        let mut state = self.0.lock();
        state.see(
            phase,
            &token.token,
            Current {
                period: token.period,
                until,
            },
            clock(),
        );
    }

    /// Returns the rest of a path behind a token that is taken; `None` if there is none.
    pub(crate) fn accepted<'p>(&self, path: &'p str) -> Option<&'p str> {
        let (token, _) = path.strip_prefix(PREFIX)?.split_once('/')?;
        let is_taken = self.0.lock().takes(token);
        is_taken.then(|| &path[PREFIX.len() + token.len()..])
    }
}

impl TokenState {
    /// `clock`: the period by this machine's clock, which counts only where no configuration names one.
    fn desired(&self, phase: Phase, now: Instant, clock: u64) -> Option<PathToken> {
        let period = match self.of.get(phase).current {
            None => clock,
            Some(current) if now < current.until => current.period,
            Some(current) => current.period.saturating_add(1),
        };
        let token = token(self.key.as_ref()?, period);
        Some(PathToken { period, token })
    }

    fn read(&mut self, phase: Phase, found: &str, period: u64, now: Instant, clock: u64) -> bool {
        let key = self.key.as_ref();
        if !key.is_some_and(|key| is_equal(&token(key, period), found)) {
            return false;
        }
        let is_first = self.of.get(phase).current.is_none();
        // Nobody knows how old the first one is, if not by the clock.
        let until = match is_first && clock > period {
            true => now + STEP_MIN,
            false => now + PERIOD,
        };
        self.see(phase, found, Current { period, until }, clock)
    }

    /// Takes the period over if it is newer than the current period, and returns whether it did. Accepts the period's
    /// token in any case.
    fn see(&mut self, phase: Phase, token: &str, seen: Current, clock: u64) -> bool {
        let of = self.of.get_mut(phase);
        let is_newer = of
            .current
            .is_none_or(|current| current.period < seen.period);
        if is_newer {
            of.current = Some(seen);
        }
        of.seen.retain(|known| known != token);
        of.seen.truncate(SEEN_MAX - 1);
        of.seen.push_front(token.to_owned());
        self.accept_neighbouring_periods(clock);
        is_newer
    }

    /// Accepts the tokens of the present periods, of their neighbours, and of all periods seen.
    fn accept_neighbouring_periods(&mut self, clock: u64) {
        let mut taken = Vec::new();
        for phase in PHASES {
            let of = self.of.get(phase);
            let period = of.current.map_or(clock, |current| current.period);
            let made = self.key.iter();
            taken.extend(
                made.flat_map(|key| with_neighbours(period).map(|period| token(key, period))),
            );
            taken.extend(of.seen.iter().cloned());
        }
        taken.sort_unstable();
        taken.dedup();
        self.taken = taken;
    }

    fn takes(&self, token: &str) -> bool {
        self.taken.iter().any(|known| is_equal(known, token))
    }
}

/// Returns a period with its two neighbours.
fn with_neighbours(period: u64) -> [u64; 3] {
    [period.saturating_sub(1), period, period.saturating_add(1)]
}

/// Returns a text of the API server without the tokens that it quotes: they are not for those who read statuses and logs.
pub(super) fn without_tokens(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(PREFIX) {
        kept.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        rest = match digits < TOKEN_DIGITS {
            true => {
                kept.push_str(PREFIX);
                after
            }
            false => &after[digits..],
        };
    }
    kept.push_str(rest);
    kept
}

/// Returns the token of a period.
fn token(key: &MacKey, period: u64) -> String {
    let mut tag = key.tag(&[PURPOSE, &period.to_be_bytes()]);
    tag.truncate(TOKEN_DIGITS);
    tag
}

/// The period by this machine's clock.
fn clock() -> u64 {
    let seconds = anteroom_runtime::wall_clock::now().as_second();
    u64::try_from(seconds).unwrap_or_default() / PERIOD.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A period by the clock of the tests.
    const NOON: u64 = 100;

    const PHASE: Phase = Phase::Validation;

    fn state(key: &str) -> TokenState {
        let mut state = TokenState {
            key: Some(MacKey::new(key.as_bytes())),
            ..TokenState::default()
        };
        state.accept_neighbouring_periods(NOON);
        state
    }

    fn made(state: &TokenState, period: u64) -> String {
        token(state.key.as_ref().unwrap(), period)
    }

    /// Writes what it wants.
    fn write(state: &mut TokenState, now: Instant, clock: u64) -> PathToken {
        let desired = state.desired(PHASE, now, clock).unwrap();
        let until = now + PERIOD;
        let period = desired.period;
        state.see(PHASE, &desired.token, Current { period, until }, clock);
        desired
    }

    #[test]
    fn path_tokens_are_removed_from_a_text_and_nothing_else() {
        let prefix = PathToken {
            period: NOON,
            token: made(&state("k"), NOON),
        }
        .prefix();
        for (text, expected) in [
            (
                format!("path {prefix}/validate/c/fail-10: no"),
                "path /validate/c/fail-10: no",
            ),
            (format!("https://a.b{prefix}{prefix}/x"), "https://a.b/x"),
            (format!("{prefix}0f"), ""),
            ("/r/0123/x /r/ö".to_owned(), "/r/0123/x /r/ö"),
            (String::new(), ""),
        ] {
            assert_eq!(without_tokens(&text), expected);
        }
    }

    #[test]
    fn webhooks_with_equal_keys_make_equal_paths() {
        let [one, other, stranger] = ["k", "k", "l"].map(|key| {
            let tokens = PathTokens::default();
            tokens.use_key(key);
            tokens
        });
        let prefix = one.desired(PHASE).unwrap().prefix();
        let path = format!("{prefix}/validate/c/fail-10");
        assert_eq!(other.accepted(&path), Some("/validate/c/fail-10"));
        assert_eq!(stranger.accepted(&path), None);
        assert_eq!(PathTokens::default().accepted(&path), None);
        assert_eq!(PathTokens::default().desired(PHASE), None);
        for path in ["/validate", "/r/", "/r//validate", "/r/x/validate", ""] {
            assert_eq!(one.accepted(path), None, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_taken_in_its_period_and_in_those_beside_it() {
        let mut state = state("k");
        let now = Instant::now();
        assert_eq!(write(&mut state, now, NOON).period, NOON);
        let taken = |state: &TokenState| -> Vec<u64> {
            let periods = NOON - 3..NOON + 6;
            periods
                .filter(|period| state.takes(&made(state, *period)))
                .collect()
        };
        assert_eq!(taken(&state), [99, 100, 101]);
        let soon = now + PERIOD - Duration::from_secs(1);
        assert_eq!(write(&mut state, soon, NOON).period, NOON);
        for hour in 1..4 {
            write(&mut state, now + PERIOD * hour, NOON);
        }
        // The second phase was never seen, so the clock decides for this phase.
        assert_eq!(taken(&state), [99, 100, 101, 102, 103, 104]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_with_a_wrong_clock_agrees_with_the_others() {
        for wrong in [0, NOON - 5, NOON + 5, u64::MAX] {
            let (mut right, mut other) = (state("k"), state("k"));
            let mut now = Instant::now();
            for hour in 0..5 {
                let written = write(&mut right, now, NOON + hour);
                let period = written.period;
                other.read(PHASE, &written.token, period, now, wrong);
                let next = other.desired(PHASE, now + PERIOD, wrong).unwrap();
                assert_eq!(next.period, written.period + 1, "{wrong} in hour {hour}");
                assert!(right.takes(&next.token) && other.takes(&written.token));
                assert!(!other.read(PHASE, &written.token, period, now, wrong));
                now += PERIOD;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_period_of_another_webhook_is_taken_over() {
        let mut state = state("k");
        let now = Instant::now();
        let own = write(&mut state, now, NOON);
        let later = made(&state, 107);
        assert!(state.read(PHASE, &later, 107, now, NOON));
        assert_eq!(state.desired(PHASE, now, NOON).unwrap().token, later);
        // An API server whose data were restored: the period does not go back, and its token is taken.
        assert!(!state.read(PHASE, &own.token, NOON, now, NOON));
        assert!(state.takes(&own.token));
        assert_eq!(state.desired(PHASE, now, NOON).unwrap().token, later);
        // A token of a different key, or of a different period than its configuration names.
        for (token, period) in [("0".repeat(32), 108), (later, 109), (String::new(), 110)] {
            assert!(!state.read(PHASE, &token, period, now, NOON), "{period}");
        }
        assert_eq!(state.desired(PHASE, now, NOON).unwrap().period, 107);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_period_that_is_read_counts_from_then_or_is_over_by_the_clock() {
        let now = Instant::now();
        for (found, expected) in [
            (NOON, NOON),
            (NOON - 1, NOON),
            (NOON - 50, NOON - 49),
            (NOON + 50, NOON + 50),
        ] {
            let mut state = state("k");
            let token = made(&state, found);
            state.read(PHASE, &token, found, now, NOON);
            let desired = |at| state.desired(PHASE, at, NOON).unwrap().period;
            assert_eq!(desired(now + STEP_MIN), expected, "{found}");
            let early = desired(now + STEP_MIN - Duration::from_secs(1));
            assert_eq!(early, found, "others have read a later period by then");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_of_the_key_before_are_taken_until_two_others_are_written() {
        let mut state = state("k");
        let now = Instant::now();
        let old = write(&mut state, now, NOON);
        state.key = Some(MacKey::new(b"l"));
        let first = write(&mut state, now, NOON);
        assert_ne!(first.token, old.token);
        assert!(state.takes(&old.token));
        write(&mut state, now + PERIOD, NOON);
        assert!(!state.takes(&old.token));
    }
}

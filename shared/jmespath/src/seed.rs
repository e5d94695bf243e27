//! The clock and the random numbers of an evaluation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The step of the generator: two to the 64th, divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The clock and the random numbers of an evaluation. The caller provides the seed, so that equal seeds give equal
/// values. Without a seed, functions that need one fail.
#[derive(Debug)]
pub struct EvalSeed {
    now_ns: i128,
    seed: u64,
    drawn: AtomicU64,
    is_used: AtomicBool,
}

impl EvalSeed {
    /// A clock that stands at so many nanoseconds after 1970-01-01T00:00:00Z, and numbers that follow from
    /// `seed`.
    pub fn new(now_ns: i128, seed: u64) -> Self {
        EvalSeed {
            now_ns,
            seed,
            drawn: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
        }
    }

    /// The time, in nanoseconds after 1970-01-01T00:00:00Z.
    pub fn now_ns(&self) -> i128 {
        self.is_used.store(true, Ordering::Relaxed);
        self.now_ns
    }

    /// Returns the next random number, of all 64-bit numbers. Not for secrets.
    pub fn draw(&self) -> u64 {
        self.is_used.store(true, Ordering::Relaxed);
        let at = self.drawn.fetch_add(1, Ordering::Relaxed);
        mixed(
            self.seed
                .wrapping_add(at.wrapping_add(1).wrapping_mul(STEP)),
        )
    }

    /// Returns whether the time or a number was asked for: another seed may give another value.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// The count of numbers drawn.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Goes back, or ahead, to where so many were drawn, so that an evaluation can be repeated from there.
    pub fn go_to(&self, drawn: u64) {
        self.drawn.store(drawn, Ordering::Relaxed);
    }
}

/// Returns a number in which every bit depends on every bit of this one (SplitMix64).
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_from_the_seed_and_the_position() {
        let (one, other) = (EvalSeed::new(1, 7), EvalSeed::new(2, 8));
        assert!(!one.is_used());
        let first: Vec<_> = (0..4).map(|_| one.draw()).collect();
        assert!(one.is_used());
        assert_eq!(one.drawn(), 4);
        one.go_to(0);
        assert_eq!((0..4).map(|_| one.draw()).collect::<Vec<_>>(), first);
        one.go_to(2);
        assert_eq!(one.draw(), first[2]);
        let mut all: Vec<_> = (0..4).map(|_| other.draw()).chain(first).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8, "{all:?}");
        assert_eq!((one.now_ns(), other.now_ns()), (1, 2));
    }

    /// Another process, of another version too, repeats an evaluation from its seed.
    #[test]
    fn draws_are_those_of_splitmix64() {
        let seed = EvalSeed::new(0, 1_234_567);
        assert_eq!(seed.draw(), 6_457_827_717_110_365_317);
        assert_eq!(seed.draw(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_seed_is_used_once_the_time_was_asked_for() {
        let seed = EvalSeed::new(1, 7);
        seed.go_to(3);
        assert!(!seed.is_used());
        seed.now_ns();
        assert!(seed.is_used());
    }
}

//! The clock and chance of an evaluation: the same arrival gives the same values again, however often it is restarted.

use std::collections::HashMap;

/// When a request came, and what chance follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Nanoseconds after 1970-01-01T00:00:00Z.
    pub now_ns: i128,
    /// Any number, for each request another one.
    pub seed: u64,
}

/// Random numbers that follow from a seed, from the call that draws them, and from how often it was reached.
#[derive(Debug, Default)]
pub(crate) struct Draws {
    /// The number of times that each call was reached.
    reached: HashMap<u64, u64>,
}

impl Draws {
    /// The numbers for one more run of a call.
    pub(crate) fn at(&mut self, seed: u64, site: u64) -> Draw {
        let reached = self.reached.entry(site).or_default();
        *reached += 1;
        Draw(mixed(mixed(mixed(seed) ^ site) ^ *reached))
    }
}

/// The random numbers of a single call.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }
}

/// The fraction of the golden ratio in 64 bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of `splitmix64`.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The number of the first call of an expression. Those of other expressions are far from it.
pub(crate) fn sites_of(source: &str) -> u64 {
    // FNV-1a: the same on every machine and in every version.
    let hash = source
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    mixed(hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawn(seed: u64, sites: &[u64]) -> Vec<u64> {
        let mut draws = Draws::default();
        let numbers = sites.iter().map(|site| draws.at(seed, *site).next());
        numbers.collect()
    }

    #[test]
    fn draws_differ_by_seed_site_and_count() {
        let mut all = drawn(1, &[5, 5, 6]);
        all.extend(drawn(2, &[5]));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4);
        assert_ne!(sites_of("random()"), sites_of("random() "));
    }

    /// Two processes of different releases draw the same for a request.
    #[test]
    fn draws_are_the_same_in_every_version() {
        let mut draw = Draw(0);
        let first = [draw.next(), draw.next(), draw.next()];
        // As published for `splitmix64` with the seed 0.
        let published = [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        assert_eq!(first, published);
        // As published for FNV-1a.
        assert_eq!(sites_of("a"), mixed(0xaf63_dc4c_8601_ec8c));
        assert_eq!(
            drawn(1, &[5, 5]),
            [0x34ae_1ad4_8ca6_6204, 0x550e_a65c_79a4_3ff8]
        );
    }

    proptest! {
        #[test]
        fn other_calls_between_change_no_draw(seed: u64, site: u64, others in prop::collection::vec(any::<u64>(), 0..8)) {
            prop_assume!(!others.contains(&site));
            let alone = drawn(seed, &[site]);
            let mut sites = others;
            sites.push(site);
            prop_assert_eq!(drawn(seed, &sites).last().copied(), alone.last().copied());
        }
    }
}

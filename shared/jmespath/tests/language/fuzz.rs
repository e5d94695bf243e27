//! The bodies of the fuzz targets on a stable toolchain: their seeds, a fixed stream of mutations of
//! them, and generated expressions and documents.

use std::fs;
use std::path::Path;

use anteroom_jmespath::fuzzing;
use proptest::prelude::*;

const MUTATIONS_PER_SEED: u64 = 400;

fn replay(target: &str, body: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(target);
    let mut seeds: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} holds no seed", directory.display());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for seed in &seeds {
        body(seed);
        for _ in 0..MUTATIONS_PER_SEED {
            body(&mutated(seed, &seeds, &mut random));
        }
    }
}

#[test]
fn parse_survives_its_seeds_and_their_mutations() {
    replay("parse", fuzzing::parse);
}

#[test]
fn evaluate_survives_its_seeds_and_their_mutations() {
    replay("evaluate", fuzzing::evaluate);
}

/// A seed with a few bytes changed, taken out, doubled, or replaced by a part of another seed.
fn mutated(seed: &[u8], seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const TOKENS: &[u8] = b"[]()*.&|!@$`'\"{}:,?=<>-09az\\ ";
    let mut input = seed.to_vec();
    for _ in 0..1 + random.below(4) {
        let place = random.below(input.len() + 1);
        match random.below(5) {
            0 if place < input.len() => input[place] = TOKENS[random.below(TOKENS.len())],
            1 if place < input.len() => drop(input.remove(place)),
            2 => input.insert(place, TOKENS[random.below(TOKENS.len())]),
            3 => input.extend_from_within(place..),
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let part = &other[random.below(other.len() + 1)..];
                input.splice(place..place, part.iter().copied().take(16));
            }
        }
    }
    input
}

/// xorshift64: the same stream in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

/// Every function, and parameters, where `oracle.rs` keeps to what is agreed upon.
const FUNCTIONS: &[&str] = &[
    "avg({})",
    "to_string({})",
    "sum({})",
    "join({}, {})",
    "map(&{}, {})",
    "sort_by({}, &{})",
    "merge({}, {})",
    "min_by({}, &{})",
    "keys({})",
    "length({})",
    "reverse({})",
    "contains({}, {})",
    "$p.a || {}",
    "{} == $q",
    "unknown({})",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parse_survives_any_text(text in any::<String>()) {
        fuzzing::parse(text.as_bytes());
    }

    #[test]
    fn parse_survives_any_tokens(text in "[\\[\\]()*.&|!@$`'\"{}:,?=<>0-9ab\\\\ -]{0,40}") {
        fuzzing::parse(text.as_bytes());
    }

    #[test]
    fn evaluate_keeps_to_its_budget(
        text in crate::support::expression(FUNCTIONS),
        document in crate::support::document(),
    ) {
        fuzzing::evaluate(format!("{text}\0{document}").as_bytes());
    }
}

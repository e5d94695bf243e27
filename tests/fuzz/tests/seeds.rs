//! Every target over its seeds and a fixed stream of mutations of them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::{fs, path::Path};

use anteroom_fuzz::TARGETS;

const MUTATIONS_PER_SEED: u64 = 400;

fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target);
    let entries = fs::read_dir(&folder).unwrap();
    let mut seeds: Vec<_> = entries
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} holds no seed", folder.display());
    seeds
}

fn replay(target: &str, body: fn(&[u8])) {
    let seeds = seeds_of(target);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for seed in &seeds {
        body(seed);
        for _ in 0..MUTATIONS_PER_SEED {
            body(&mutated(seed, &seeds, &mut random));
        }
    }
}

#[test]
fn every_target_survives_its_seeds_and_their_mutations() {
    for target in TARGETS {
        replay(target.name, target.run);
    }
}

#[test]
fn every_folder_of_seeds_is_of_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(TARGETS.iter().any(|target| name == target.name), "{name:?}");
    }
}

/// A seed with a few bytes changed, taken out, doubled, or replaced by a part of another seed.
fn mutated(seed: &[u8], seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const TOKENS: &[u8] = b"[]()*.&|!@$`'\"{}:,?=<>-09az\\ \n\0";
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

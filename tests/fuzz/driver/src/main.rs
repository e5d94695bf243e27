//! Runs one fuzz target under libFuzzer: the one that `ANTEROOM_FUZZ_TARGET` names. See `cargo xtask fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteroom_fuzz::run_named(input));

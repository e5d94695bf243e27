#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteroom_jmespath::fuzzing::evaluate(input));

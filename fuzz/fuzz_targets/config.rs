//! See `weir_config::fuzzing::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_config::fuzzing::config(data));

//! See `weir_gateway::fuzzing::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_gateway::fuzzing::config(data));

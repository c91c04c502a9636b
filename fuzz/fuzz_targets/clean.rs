//! See `weir_clean::fuzzing::clean_any`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_clean::fuzzing::clean_any(data));

//! See `weir_catalog::fuzzing::cursor_open`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_catalog::fuzzing::cursor_open(data));

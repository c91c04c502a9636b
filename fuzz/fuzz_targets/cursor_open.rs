//! See `weir_core::fuzzing::cursor_open`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_core::fuzzing::cursor_open(data));

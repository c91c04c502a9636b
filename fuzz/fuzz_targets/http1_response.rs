//! See `weir_http1::fuzzing::http1_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_http1::fuzzing::http1_response(data));

//! See `weir_wire::fuzzing::sse_reencode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_wire::fuzzing::sse_reencode(data));

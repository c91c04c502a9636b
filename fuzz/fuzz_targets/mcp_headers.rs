//! See `weir_wire::fuzzing::mcp_headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_wire::fuzzing::mcp_headers(data));

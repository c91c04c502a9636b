//! See `weir_schema::fuzzing::schema_cost`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_schema::fuzzing::schema_cost(data));

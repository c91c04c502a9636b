//! Runs the bodies of the fuzz targets over their committed corpus and some thousand mutations of it, so that CI needs no fuzzer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::path::Path;

use weir_wire::fuzzing;

/// Mutations of each corpus file.
const ROUNDS: usize = 400;

/// Bytes that break JSON, headers and SSE in interesting places.
const SALT: &[u8] = b"{}[]\",:\\u0e-+. \n\r\x00\x01tfn1a=?\xff\xc3\xed\xef\xbb\xbf";

/// A small generator with a fixed seed (SplitMix64), so that every run tries the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides.max(1) as u64).expect("smaller than a usize")
    }

    fn mutate(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.roll(4) {
            let at = self.roll(bytes.len() + 1);
            let end = (at + self.roll(8)).min(bytes.len());
            match self.roll(6) {
                0 => bytes.insert(at, SALT[self.roll(SALT.len())]),
                1 if at < bytes.len() => bytes[at] = SALT[self.roll(SALT.len())],
                2 if at < bytes.len() => bytes[at] ^= 1 << self.roll(8),
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let copy = bytes[at..end].to_vec();
                    drop(bytes.splice(at..at, copy));
                }
                _ => {
                    let from = self.roll(other.len() + 1);
                    let to = (from + self.roll(16)).min(other.len());
                    drop(bytes.splice(at..end, other[from..to].iter().copied()));
                }
            }
        }
        bytes
    }
}

fn run(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).expect("the corpus is committed").map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(seeds.len() >= 5, "the corpus of {name} is gone");
    let mut dice = Dice(0x5eed);
    for seed in &seeds {
        target(seed);
        for _ in 0..ROUNDS {
            let other = &seeds[dice.roll(seeds.len())];
            target(&dice.mutate(seed, other));
        }
    }
}

#[test]
fn b01_b03_b06_envelope_corpus() {
    run("envelope", fuzzing::envelope);
}

#[test]
fn b10_mcp_headers_corpus() {
    run("mcp_headers", fuzzing::mcp_headers);
}

#[test]
fn sse_decode_corpus() {
    run("sse_decode", fuzzing::sse_decode);
}

#[test]
fn d20_sse_reencode_corpus() {
    run("sse_reencode", fuzzing::sse_reencode);
}

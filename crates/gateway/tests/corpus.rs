//! Runs the body of the fuzz target `config` over its committed corpus and mutations of it, so that CI needs no fuzzer.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use weir_gateway::fuzzing;

/// Mutations of each corpus file.
const ROUNDS: u64 = 100;

/// Pieces that change what YAML means.
const SALT: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ": ",
    "\n",
    "\n  ",
    "\t",
    "- ",
    "\"",
    "'",
    "&a ",
    "*a",
    "<<: *a",
    "!!str ",
    "|\n",
    "---\n",
    "# ",
    "${SET}",
    "${",
    "null",
    "true",
    "-1",
    "1e9",
    "99999999999999999999",
    "é",
    "\u{0}",
    "upstreams",
    "limits",
    "0s",
    "5MiB",
];

/// A small generator with a fixed seed (xorshift), so that every run tries the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides.max(1) as u64).unwrap()
    }

    fn mutate(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.roll(3) {
            let at = self.roll(bytes.len() + 1);
            let end = (at + self.roll(10)).min(bytes.len());
            let insert = match self.roll(3) {
                0 => SALT[self.roll(SALT.len())].as_bytes().to_vec(),
                1 => bytes[at..end].repeat(2),
                _ => Vec::new(),
            };
            bytes.splice(at..end, insert);
        }
        bytes
    }
}

#[test]
fn g01_config_holds_over_its_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/config");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let seed = std::fs::read(entry.unwrap().path()).unwrap();
        fuzzing::config(&seed);
        for round in 0..ROUNDS {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ (round << 8) ^ seed.len() as u64);
            fuzzing::config(&dice.mutate(&seed));
        }
        seen += 1;
    }
    assert!(seen >= 20, "only {seen} corpus files");
}

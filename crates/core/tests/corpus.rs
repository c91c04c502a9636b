//! Runs the bodies of the fuzz targets over their committed corpus and some thousand mutations of it, so that CI needs no
//! fuzzer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::path::Path;

use weir_core::fuzzing;

/// Mutations of each corpus file.
const ROUNDS: usize = 300;

/// Pieces that change what a schema means, or what a cursor is.
const SALT: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "\n",
    "1",
    "A",
    "-",
    "_",
    "\u{0}",
    "ä",
    "\"$ref\":\"#\",",
    "\"not\":",
    "\"allOf\":[",
    "{},",
    "\"items\":",
    "\"$id\":\"a\",",
    "#/$defs/d1",
    "\"unevaluatedProperties\":false,",
    "\"properties\":",
];

/// A small generator with a fixed seed (xorshift), so that every run tries the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides.max(1) as u64).expect("smaller than a usize")
    }

    fn mutate(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.roll(3) {
            let at = self.roll(bytes.len() + 1);
            let end = (at + self.roll(12)).min(bytes.len());
            let insert = match self.roll(3) {
                0 => SALT[self.roll(SALT.len())].as_bytes().to_vec(),
                1 => bytes[at..end].to_vec(),
                _ => {
                    let from = self.roll(other.len() + 1);
                    other[from..(from + self.roll(24)).min(other.len())].to_vec()
                }
            };
            let end = if self.roll(2) == 0 { at } else { end };
            drop(bytes.splice(at..end, insert));
        }
        bytes
    }
}

fn run(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).expect("the corpus is committed");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(seeds.len() >= 5, "the corpus of {name} is gone");
    let mut dice = Dice(0x5eed);
    for seed in &seeds {
        target(seed);
        for _ in 0..ROUNDS {
            let other = seeds[dice.roll(seeds.len())].clone();
            target(&dice.mutate(seed, &other));
        }
    }
}

#[test]
fn b16_cursor_open_corpus() {
    run("cursor_open", fuzzing::cursor_open);
}

#[test]
fn b23_schema_cost_corpus() {
    run("schema_cost", fuzzing::schema_cost);
}

//! Runs the bodies of all fuzz targets over their committed corpus and mutations of it, so that CI
//! needs no fuzzer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::path::Path;

use weir_catalog::fuzzing as catalog;
use weir_clean::fuzzing as clean;
use weir_config::fuzzing as config;
use weir_http1::fuzzing as http1;
use weir_schema::fuzzing as schema;
use weir_wire::fuzzing as wire;

/// Pieces that break JSON, headers and SSE in interesting places.
const WIRE: &[&str] = &[
    "{", "}", "[", "]", "\"", ",", ":", "\\", "\\u", "0", "e", "-", "+", ".", " ", "\n", "\r",
    "\0", "\u{1}", "tfn", "1", "a", "=", "?", "\u{feff}", "é",
];

/// Pieces that change the meaning of a schema, or the bytes of a cursor.
const CORE: &[&str] = &[
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
    "\0",
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

/// Pieces that are removed, or that end a removed part.
const CLEAN: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "\\b",
    "\"text\":\"",
    "\"structuredContent\":",
    "\u{1b}",
    "\\u001b[",
    "\\u001b]",
    "\\u009b",
    "\\u0007",
    "\u{9c}",
    "m",
    "\u{1f3f4}",
    "\u{e0067}\u{e0062}",
    "\\udb40",
    "\\udc65",
    "\u{e007f}",
    "\u{e0100}",
    "\u{202a}",
    "\\u202c",
    "\u{202e}",
    "\u{2067}",
    "\\u2069",
    "\u{e000}",
    "\\ue000\\ue000",
    "\u{10ffff}",
];

/// Pieces that frame a response.
const HTTP1: &[&str] = &[
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.0 ",
    "content-length: 3\r\n",
    "content-length: ",
    "transfer-encoding: chunked\r\n",
    "connection: close\r\n",
    ", ",
    ":",
    " ",
    ";",
    "3\r\nabc\r\n",
    "0\r\n\r\n",
    "ffffffffffffffff",
    "-1",
    "\0",
    "\u{e9}",
];

/// Pieces that change the meaning of YAML.
const CONFIG: &[&str] = &[
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
    "\0",
    "upstreams",
    "limits",
    "0s",
    "5MiB",
];

/// A small generator with a fixed seed (SplitMix64), so that every run makes the same inputs.
struct SeededDice(u64);

impl SeededDice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides.max(1) as u64)
            .expect("smaller than a usize")
    }

    /// Returns a seed with a few changes: pieces of salt or of another seed inserted or put over
    /// it, bits turned, parts cut out or repeated.
    fn mutate(&mut self, seed: &[u8], other: &[u8], salt: &[&str]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.roll(4) {
            let at = self.roll(bytes.len() + 1);
            let end = (at + self.roll(12)).min(bytes.len());
            let piece = match self.roll(7) {
                0 | 1 => salt[self.roll(salt.len())].as_bytes().to_vec(),
                2 => bytes[at..end].repeat(2),
                3 => bytes[at..end]
                    .iter()
                    .map(|byte| byte ^ (1 << self.roll(8)))
                    .collect(),
                4 => Vec::new(),
                // Most of these are not valid UTF-8.
                5 => vec![self.roll(256).to_le_bytes()[0]],
                _ => {
                    let from = self.roll(other.len() + 1);
                    other[from..(from + self.roll(24)).min(other.len())].to_vec()
                }
            };
            let end = if self.roll(2) == 0 { at } else { end };
            drop(bytes.splice(at..end, piece));
        }
        bytes
    }
}

/// Runs a target over its corpus, and so many mutations of each file.
fn run(name: &str, rounds: usize, salt: &[&str], target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let entries = std::fs::read_dir(&folder).expect("the corpus is committed");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert!(seeds.len() >= 5, "the corpus of {name} is gone");
    let mut dice = SeededDice(0x5eed);
    for seed in &seeds {
        target(seed);
        for _ in 0..rounds {
            let other = &seeds[dice.roll(seeds.len())];
            target(&dice.mutate(seed, other, salt));
        }
    }
}

// Proves B01, B03, B06.
#[test]
fn envelope_corpus() {
    run("envelope", 400, WIRE, wire::envelope);
}

// Proves B10.
#[test]
fn mcp_headers_corpus() {
    run("mcp_headers", 400, WIRE, wire::mcp_headers);
}

#[test]
fn sse_decode_corpus() {
    run("sse_decode", 400, WIRE, wire::sse_decode);
}

// Proves D20.
#[test]
fn sse_reencode_corpus() {
    run("sse_reencode", 400, WIRE, wire::sse_reencode);
}

#[test]
fn clean_corpus() {
    run("clean", 300, CLEAN, clean::clean_any);
}

// Proves B16.
#[test]
fn cursor_open_corpus() {
    run("cursor_open", 300, CORE, catalog::cursor_open);
}

// Proves B23.
#[test]
fn schema_cost_corpus() {
    run("schema_cost", 300, CORE, schema::schema_cost);
}

// Proves G01.
#[test]
fn config_corpus() {
    run("config", 100, CONFIG, config::config);
}

#[test]
fn http1_response_corpus() {
    run("http1_response", 400, HTTP1, http1::http1_response);
}

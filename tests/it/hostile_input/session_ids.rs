//! Session ids cannot be guessed (D01, R081, R082).

use std::collections::HashSet;

use serde_json::json;
use weir_wire::Revision;

use super::WeirWithUpstream;

const COUNT: usize = 1_000;
/// The entropy that a session id must have, in bits.
const BITS: usize = 128;

/// The alphabet of base64url.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn bits(id: &str) -> Vec<bool> {
    let value = |byte: u8| {
        ALPHABET
            .iter()
            .position(|own| *own == byte)
            .unwrap_or_else(|| panic!("{id:?}"))
    };
    id.bytes()
        .flat_map(|byte| (0..6).rev().map(move |bit| value(byte) >> bit & 1 == 1))
        .collect()
}

async fn thousand(stage: &WeirWithUpstream) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..COUNT {
        let client = stage.bare_client().legacy(Revision::V2025_11_25);
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "ids", "version": "1" } });
        let answer = client.ask("initialize", params).await.unwrap();
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        ids.push(answer.header("mcp-session-id").unwrap().to_owned());
    }
    ids
}

// Proves D01, R081, R082.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_session_ids_are_unique_long_and_random() {
    let mut stage = WeirWithUpstream::new().await;
    let ids = thousand(&stage).await;
    for id in &ids {
        assert!(
            id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)),
            "r081: {id:?}"
        );
        assert_eq!(id.len(), ids[0].len(), "the length tells nothing");
        assert!(
            bits(id).len() >= BITS,
            "r082: {id:?} is too short for {BITS} bits"
        );
    }
    assert_eq!(
        ids.iter().collect::<HashSet<_>>().len(),
        COUNT,
        "each is unique"
    );
    // Neither a counter nor a clock: no two share a long beginning or end. Among 1,000 random ids
    // two share 8 characters (48 bits) at either end with a probability below one in 10^8.
    for (name, part) in [("begin", 0..8), ("end", ids[0].len() - 8..ids[0].len())] {
        let parts: HashSet<_> = ids.iter().map(|id| &id[part.clone()]).collect();
        assert_eq!(parts.len(), COUNT, "some {name} alike");
    }
    // Each bit is set in about half of them. 1,000 throws of a fair coin stray by 120 from 500 less
    // than once in 10^13.
    let all: Vec<_> = ids.iter().map(|id| bits(id)).collect();
    let set = |bit: usize| all.iter().filter(|bits| bits[bit]).count();
    let random = (0..all[0].len())
        .filter(|bit| (380..=620).contains(&set(*bit)))
        .count();
    assert!(random >= BITS, "only {random} bits are random");
    // Each bit changes in about half of the steps from one id to the next.
    let changes = |bit: usize| {
        all.windows(2)
            .filter(|pair| pair[0][bit] != pair[1][bit])
            .count()
    };
    let independent = (0..all[0].len())
        .filter(|bit| (380..=620).contains(&changes(*bit)))
        .count();
    assert!(
        independent >= BITS,
        "only {independent} bits change at random"
    );
    stage.assert_still_serving("a thousand sessions").await;
}

//! Properties of cleaning, held against the reference.

use proptest::prelude::*;
use serde_json::Value;
use weir_clean::{DocumentKind, RemovalCounts, clean, fuzzing, is_quiet};

use crate::{cleaned, escaped, raw, reference, streamed};

/// Text with rules, and the text around it.
fn piece() -> impl Strategy<Value = String> {
    let parts = vec![
        "a",
        "plain text ",
        "é",
        "中文",
        "😀",
        "👨‍👩‍👧",
        "\n",
        "\t\r",
        "\"",
        "\\",
        "/",
        "[",
        "]",
        "m",
        "1;2",
        " ",
        "\\u001b",
        "\u{1b}",
        "\u{1b}[",
        "\u{1b}[31m",
        "\u{1b}]",
        "\u{1b}]0;t\u{7}",
        "\u{1b}\\",
        "\u{1b}P",
        "\u{1b}_",
        "\u{1b}(",
        "\u{9b}",
        "\u{9d}",
        "\u{9c}",
        "\u{90}",
        "\u{7}",
        "\u{18}",
        "\0",
        "\u{8}",
        "\u{c}",
        "\u{7f}",
        "\u{85}",
        "\u{e0041}",
        "\u{e0001}",
        "\u{e007f}",
        "\u{1f3f4}",
        "\u{1f3f4}\u{e0067}\u{e0062}",
        "\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
        "\u{1f3f4}\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}",
        "\u{e0100}",
        "\u{e01ef}",
        "\u{fe0f}",
        "\u{202a}",
        "\u{202b}",
        "\u{202c}",
        "\u{202d}",
        "\u{202e}",
        "\u{2066}",
        "\u{2067}",
        "\u{2068}",
        "\u{2069}",
        "\u{200e}",
        "\u{200d}",
        "\u{61c}",
        "\u{e000}",
        "\u{f8ff}\u{e0b0}",
        "\u{f0000}",
        "\u{10ffff}\u{100000}",
        "\u{2028}",
        "\u{feff}",
        "\u{a0}",
    ];
    prop_oneof![
        160 => prop::sample::select(parts).prop_map(str::to_owned),
        8 => any::<char>().prop_map(|one| one.to_string()),
        1 => (4080..4110_usize, prop::sample::select(vec!["x", "é", "\u{202a}", "\u{e000} "])).prop_map(|(count, of)| of.repeat(count)),
    ]
}

/// A text and one spelling of it.
fn spelled() -> impl Strategy<Value = String> {
    let text = prop::collection::vec(piece(), 0..14).prop_map(|pieces| pieces.concat());
    (text, any::<u64>(), 0..4_u8).prop_map(|(text, seed, how)| {
        let mut dice = seed | 1;
        let spell = |character| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            match how {
                0 => raw(character),
                1 => escaped(character, dice & 1 == 0),
                _ if dice & 2 == 0 => raw(character),
                _ => escaped(character, dice & 4 == 0),
            }
        };
        text.chars().map(spell).collect()
    })
}

/// A tool's result with texts in all positions; only some of them are cleaned.
fn result() -> impl Strategy<Value = String> {
    (prop::collection::vec(spelled(), 8), prop::sample::select(vec!["text", r"\u0074ext", r"te\u0078t"])).prop_map(|(texts, key)| {
        let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|which| &texts[which]);
        format!(
            r#"{{ "_meta":{{"x":"{a}"}},"content":[{{"{key}":"{b}","type":"text"}}, {{"type":"resource","resource":{{"text":"{a}","uri":"{c}"}}}},
            {{"type":"text","annotations":{{"text":"{c}"}},"text":"{d}"}},{{"type":"image","data":"{e}"}}],"isError":false,
            "structuredContent":{{"k{f}":["{g}",{{"text":"{h}"}},12.50,null],"":"{c}"}},"requestState":"{h}"}}"#
        )
    })
}

fn by_reference(json: &str) -> (Value, RemovalCounts) {
    let (mut value, mut counts) = (
        serde_json::from_str(json).unwrap(),
        RemovalCounts::default(),
    );
    reference::tool_result(&mut value, &mut counts);
    (value, counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn cleaning_matches_the_reference_implementation(json in result()) {
        let (value, counts) = by_reference(&json);
        let (bytes, removed) = cleaned(DocumentKind::ToolResult, json.as_bytes());
        prop_assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), value);
        prop_assert_eq!(removed, counts);
    }

    #[test]
    fn cleaning_is_idempotent(json in result()) {
        let (bytes, removed) = cleaned(DocumentKind::ToolResult, json.as_bytes());
        if removed.total() == 0 {
            prop_assert_eq!(&bytes, json.as_bytes());
        }
        prop_assert!(clean(DocumentKind::ToolResult, &bytes).is_none());
    }

    #[test]
    fn removal_takes_bytes_away_and_changes_none(json in result()) {
        let (bytes, _) = cleaned(DocumentKind::ToolResult, json.as_bytes());
        let mut input = json.bytes();
        prop_assert!(bytes.iter().all(|byte| input.any(|other| other == *byte)), "no subsequence");
    }

    #[test]
    fn every_division_into_chunks_gives_the_same(json in result(), sizes in prop::collection::vec(1..40_usize, 1..6)) {
        let whole = cleaned(DocumentKind::ToolResult, json.as_bytes());
        prop_assert_eq!(&streamed(DocumentKind::ToolResult, json.as_bytes(), &sizes), &whole);
        prop_assert_eq!(&streamed(DocumentKind::ToolResult, json.as_bytes(), &[1]), &whole);
    }

    #[test]
    fn text_that_passes_the_quiet_scan_needs_no_removal(text in spelled()) {
        let json = crate::result(&text);
        if is_quiet(json.as_bytes()) {
            let mut counts = RemovalCounts::default();
            reference::string(&serde_json::from_str::<String>(&format!("\"{text}\"")).unwrap(), &mut counts);
            prop_assert_eq!(counts.total(), 0);
        }
    }

    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzzing::clean_any(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn cleaning_a_corrupted_result_does_not_panic(json in result(), at in any::<prop::sample::Index>(), with in any::<Vec<u8>>(), cut in 0..9_usize) {
        let mut bytes = json.into_bytes();
        let at = at.index(bytes.len());
        let end = (at + cut).min(bytes.len());
        drop(bytes.splice(at..end, with));
        bytes.insert(0, 0);
        fuzzing::clean_any(&bytes);
    }
}

//! A bound for the size of a result, at the cost of its text.

use std::ops::Range;

use bytes::BytesMut;
use weir_wire::{scan, write};

use crate::spelled_string::SpelledCharacters;

/// The JSON around a note that is a block of its own.
const NOTE_BLOCK: [&[u8]; 2] = [br#"{"type":"text","text":"#, b"}"];

/// A result after cutting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutResult {
    /// The result.
    pub bytes: Vec<u8>,
    /// The number of removed bytes of text, as they were spelled.
    pub removed: usize,
}

/// A result is larger than the limit even without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result is too large without its text blocks, and nothing else of it can be cut")]
pub struct TooLarge;

/// Cuts the text blocks of a `tools/call` result, so that all of it has at most `limit` bytes, as
/// it is spelled. No value for a result within the limit.
///
/// The block that reaches beyond the limit ends at the last whole character within it. The text of
/// `note`, given the number of removed bytes, follows on a line of its own. If no part of the block
/// fits, the note becomes a block. Later text blocks are left out. All else stays,
/// `structuredContent` too: half a value is not valid.
///
/// Expects checked JSON ([`scan::check`]); of any other input the result is arbitrary. A longer
/// number must not make a shorter note.
///
/// # Errors
/// The parts that cannot be cut are too large.
pub fn cut(
    result: &[u8],
    limit: usize,
    note: impl Fn(usize) -> String,
) -> Result<Option<CutResult>, TooLarge> {
    if result.len() <= limit {
        return Ok(None);
    }
    let content = scan::find(result, "content").ok_or(TooLarge)?;
    let blocks: Vec<Range<usize>> = scan::elements(&result[content.clone()])
        .map(|at| content.start + at.start..content.start + at.end)
        .collect();
    let of_text = || {
        blocks
            .iter()
            .map(|at| &result[at.clone()])
            .filter(|block| has_text(block))
    };
    // With the comma in front.
    let fixed = result.len()
        - of_text()
            .map(|block| block.len() + 1)
            .sum::<usize>()
            .min(result.len());
    let longest_note = quoted(&note(result.len())).len() + NOTE_BLOCK.concat().len() + 1;
    let room = limit
        .checked_sub(fixed + longest_note)
        .filter(|_| of_text().next().is_some())
        .ok_or(TooLarge)?;
    let kept = KeptText::within(room, of_text());
    let removed = of_text().map(text_len).sum::<usize>() - kept.text;
    let mut bytes = Vec::with_capacity(limit);
    bytes.extend_from_slice(&result[..content.start]);
    let (mut separator, mut texts) = (b'[', 0);
    for block in blocks.iter().map(|at| &result[at.clone()]) {
        let is_text = has_text(block);
        texts += usize::from(is_text);
        if is_text && texts > kept.whole + 1 {
            continue;
        }
        bytes.push(separator);
        separator = b',';
        if is_text && texts > kept.whole {
            write_last(block, kept.part, &note(removed), &mut bytes);
        } else {
            bytes.extend_from_slice(block);
        }
    }
    bytes.push(b']');
    bytes.extend_from_slice(&result[content.end..]);
    Ok(Some(CutResult { bytes, removed }))
}

/// The part of the text blocks that stays.
struct KeptText {
    /// The number of blocks that stay whole.
    whole: usize,
    /// The bytes of text kept of the next block; `None` if it has no room at all.
    part: Option<usize>,
    /// Bytes of text in all.
    text: usize,
}

impl KeptText {
    fn within<'a>(mut room: usize, blocks: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut kept = Self {
            whole: 0,
            part: None,
            text: 0,
        };
        for block in blocks {
            let text = text_len(block);
            if let Some(left) = room.checked_sub(block.len() + 1) {
                kept.whole += 1;
                kept.text += text;
                room = left;
                continue;
            }
            kept.part = room.checked_sub(block.len() - text + 1);
            kept.text += kept
                .part
                .map_or(0, |left| pieces(block, left).map(|(_, kept)| kept).sum());
            break;
        }
        kept
    }
}

/// The strings of a block's text, with their quotes. If a key stands twice, readers differ: so both
/// count.
fn texts(block: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let members = scan::members(block).filter(|member| member.key.eq_str("text"));
    members
        .map(|member| member.value)
        .filter(|value| block.get(value.start) == Some(&b'"'))
}

fn has_text(block: &[u8]) -> bool {
    texts(block).next().is_some()
}

fn text_len(block: &[u8]) -> usize {
    texts(block)
        .map(|place| place.len().saturating_sub(2))
        .sum()
}

/// The places of a block's texts, without their quotes, and how much of each fits.
fn pieces(block: &[u8], mut left: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
    texts(block).map(move |place| {
        let place = place.start + 1..place.end.saturating_sub(1).max(place.start + 1);
        let text = &block[place.clone()];
        if text.len() <= left {
            left -= text.len();
            return (place, text.len());
        }
        let mut end = 0;
        for character in SpelledCharacters(text) {
            if end + character.raw.len() > left {
                break;
            }
            end += character.raw.len();
        }
        left = 0;
        (place, end)
    })
}

/// Writes the block at which a result is cut, or the note in its stead.
fn write_last(block: &[u8], part: Option<usize>, note: &str, out: &mut Vec<u8>) {
    let Some(part) = part else {
        out.extend_from_slice(NOTE_BLOCK[0]);
        out.extend_from_slice(&quoted(note));
        out.extend_from_slice(NOTE_BLOCK[1]);
        return;
    };
    let (mut copied, mut is_said) = (0, false);
    for (place, kept) in pieces(block, part) {
        if kept == place.len() {
            continue;
        }
        out.extend_from_slice(&block[copied..place.start + kept]);
        copied = place.end;
        if !std::mem::replace(&mut is_said, true) {
            if kept > 0 {
                out.extend_from_slice(b"\\n");
            }
            let quoted = quoted(note);
            out.extend_from_slice(&quoted[1..quoted.len() - 1]);
        }
    }
    out.extend_from_slice(&block[copied..]);
}

fn quoted(text: &str) -> BytesMut {
    let mut quoted = BytesMut::with_capacity(text.len() + 2);
    write::string(&mut quoted, text);
    quoted
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn note(removed: usize) -> String {
        format!("[{removed} \"gone\"]")
    }

    fn after(result: &str, limit: usize) -> Result<Option<(String, usize)>, TooLarge> {
        let cut = cut(result.as_bytes(), limit, note)?;
        Ok(cut.map(|cut| (String::from_utf8(cut.bytes).unwrap(), cut.removed)))
    }

    /// The same for a result that is larger than the limit and can be cut.
    fn less(result: &str, limit: usize) -> (String, usize) {
        let (cut, removed) = after(result, limit).unwrap().unwrap();
        assert!(cut.len() <= limit, "{limit}: {cut}");
        (cut, removed)
    }

    #[test]
    fn text_is_cut_at_a_character_with_a_note() {
        let text = r"aé\n\ud83d\ude00z";
        let filler = "x".repeat(80);
        let result = format!(
            r#"{{"a":1, "content" : [ {{"text":"{text}{filler}","type":"text"}} ] ,"structuredContent":{{"x":"aaaa"}}}}"#
        );
        assert_eq!(after(&result, result.len()), Ok(None));
        let mut seen = std::collections::BTreeSet::new();
        for limit in 0..result.len() {
            let Ok(cut) = after(&result, limit) else {
                continue;
            };
            let (cut, removed) = cut.unwrap();
            assert!(cut.len() <= limit);
            let value: Value = serde_json::from_str(&cut).unwrap();
            assert_eq!(
                (&value["a"], &value["structuredContent"]["x"]),
                (&json!(1), &json!("aaaa"))
            );
            let said = value["content"][0]["text"].as_str().unwrap().to_owned();
            let (kept, said) = said.rsplit_once('\n').unwrap_or(("", &said));
            assert_eq!(said, note(removed));
            assert!(format!("aé\n😀z{filler}").starts_with(kept), "{kept}");
            seen.insert(kept.to_owned());
        }
        for kept in ["", "a", "aé", "aé\n", "aé\n😀", "aé\n😀z"] {
            assert!(seen.contains(kept), "{kept:?} of {seen:?}");
        }
    }

    #[test]
    fn later_text_blocks_are_left_out_and_others_stay() {
        let long = "b".repeat(100);
        let image = r#"{"type":"image","data":"iiii"}"#;
        let resource = r#"{"type":"resource","resource":{"text":"rrrr"}}"#;
        let result = format!(
            r#"{{"content":[{{"type":"text","text":"aaaa"}},{image},{{"type":"text","text":"{long}"}},{{"type":"text","text":"cccc"}},{resource}]}}"#
        );
        let (cut, removed) = less(&result, 230);
        let kept = 104 - removed;
        let expected = format!(
            r#"{{"content":[{{"type":"text","text":"aaaa"}},{image},{{"type":"text","text":"{}\n[{removed} \"gone\"]"}},{resource}]}}"#,
            "b".repeat(kept)
        );
        assert!(kept > 0 && kept < 100);
        assert_eq!(cut, expected);
    }

    #[test]
    fn block_too_large_for_the_limit_is_replaced_by_the_note() {
        let annotations = "y".repeat(200);
        let result = format!(
            r#"{{"content":[{{"type":"text","text":"aaaa"}},{{"type":"text","text":"bbbb","_meta":{{"y":"{annotations}"}}}}]}}"#
        );
        let (cut, removed) = less(&result, 150);
        let expected =
            r#"{"content":[{"type":"text","text":"aaaa"},{"type":"text","text":"[4 \"gone\"]"}]}"#;
        assert_eq!((cut.as_str(), removed), (expected, 4));
    }

    #[test]
    fn duplicate_text_members_count_separately() {
        let (long, filler) = ("b".repeat(100), "f".repeat(200));
        let twice =
            format!(r#"{{"content":[{{"text":"{long}","text":"{long}"}}],"f":"{filler}"}}"#);
        let (cut, removed) = less(&twice, twice.len() - 90);
        assert_eq!(
            (
                cut.matches("gone").count(),
                cut.matches("\"text\":").count()
            ),
            (1, 2),
            "{cut}"
        );
        assert!(removed > 100, "{cut}");
        let result =
            format!(r#"{{"content":[{{"text":"aaaa","\u0074ext":"{long}"}}],"f":"{filler}"}}"#);
        let (cut, removed) = less(&result, result.len() - 1);
        assert!(
            removed < 100 && cut.starts_with(r#"{"content":[{"text":"aaaa","\u0074ext":"bb"#),
            "{cut}"
        );
    }

    #[test]
    fn result_without_text_is_too_large() {
        for result in [
            "{}",
            r#"{"content":[]}"#,
            r#"{"content":"aaaa"}"#,
            r#"{"content":[{"text":["aaaa"]},1,"aaaa"]}"#,
            r#"{"content":[{"text":"aaaa"}],"structuredContent":{"x":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}"#,
            "[1]",
        ] {
            assert_eq!(after(result, 1), Err(TooLarge), "{result}");
            assert_eq!(after(result, result.len() - 1), Err(TooLarge), "{result}");
            assert_eq!(after(result, result.len()), Ok(None));
        }
        assert_eq!(after("", 0), Ok(None));
    }

    proptest! {
        #[test]
        fn cut_result_is_json_within_the_limit_with_a_note(
            texts in prop::collection::vec("[a-z\\\\\"é😀\n]{0,60}", 1..6),
            data in 0..300_usize,
            limit in 0..800_usize,
        ) {
            let mut blocks: Vec<Value> = texts.iter().map(|text| json!({ "type": "text", "text": text })).collect();
            blocks.insert(blocks.len() / 2, json!({ "type": "image", "data": "i".repeat(data) }));
            let result = json!({ "content": blocks, "isError": false }).to_string();
            let spelled = |text: &str| json!(text).to_string().len() - 2;
            match cut(result.as_bytes(), limit, note) {
                Ok(None) => prop_assert!(result.len() <= limit),
                Err(TooLarge) => prop_assert!(limit < result.len() && limit < data + 200),
                Ok(Some(cut)) => {
                    prop_assert!(result.len() > limit && cut.bytes.len() <= limit);
                    let value: Value = serde_json::from_slice(&cut.bytes).unwrap();
                    prop_assert_eq!(value["isError"].as_bool(), Some(false));
                    let left: Vec<&str> =
                        value["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect();
                    let (last, whole) = left.split_last().unwrap();
                    prop_assert!(whole.iter().zip(&texts).all(|(left, text)| left == text));
                    let (kept, said) = last.rsplit_once('\n').unwrap_or(("", *last));
                    prop_assert_eq!(said, note(cut.removed));
                    prop_assert!(texts[whole.len()].starts_with(kept));
                    let all: usize = texts.iter().map(|text| spelled(text)).sum();
                    let stays: usize = whole.iter().map(|text| spelled(text)).sum::<usize>() + spelled(kept);
                    prop_assert_eq!(all - stays, cut.removed);
                }
            }
        }
    }
}

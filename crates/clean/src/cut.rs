//! A bound for the text of a result.

use bytes::BytesMut;
use weir_wire::{scan, write};

use crate::spelled::Characters;

/// A result that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The result.
    pub bytes: Vec<u8>,
    /// Bytes of text that are gone, as they were spelled.
    pub removed: usize,
}

/// Cuts the text blocks of a `tools/call` result to `limit` bytes in all, as they are spelled in the JSON. `None` where they are
/// within the limit.
///
/// The block that reaches beyond the limit ends at the last whole character within it, and `note` follows, which does not count. Text
/// blocks behind it are left out. All else stays, `structuredContent` too: half of a value is none.
///
/// Expects checked JSON ([`scan::check`]); of anything else the result is arbitrary.
#[must_use]
pub fn cut(result: &[u8], limit: usize, note: &str) -> Option<Cut> {
    let content = scan::find(result, "content")?;
    let blocks = &result[content.clone()];
    let total: usize = scan::elements(blocks).map(|place| text_len(&blocks[place])).sum();
    if total <= limit {
        return None;
    }
    let mut bytes = Vec::with_capacity(result.len() - (total - limit) + note.len());
    bytes.extend_from_slice(&result[..content.start]);
    let (mut left, mut removed) = (limit, 0);
    let mut separator = b'[';
    for block in scan::elements(blocks).map(|place| &blocks[place]) {
        let len = text_len(block);
        if removed > 0 && has_text(block) {
            removed += len;
            continue;
        }
        bytes.push(separator);
        separator = b',';
        if len <= left {
            left -= len;
            bytes.extend_from_slice(block);
        } else {
            removed += cut_block(block, left, note, &mut bytes);
            left = 0;
        }
    }
    bytes.push(b']');
    bytes.extend_from_slice(&result[content.end..]);
    Some(Cut { bytes, removed })
}

/// The strings that are a block's text, with their quotes. Where a key stands twice, readers differ: both are.
fn texts(block: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let members = scan::members(block).filter(|member| member.key.eq_str("text"));
    members.map(|member| member.value).filter(|value| block.get(value.start) == Some(&b'"'))
}

fn has_text(block: &[u8]) -> bool {
    texts(block).next().is_some()
}

fn text_len(block: &[u8]) -> usize {
    texts(block).map(|place| place.len().saturating_sub(2)).sum()
}

/// Writes a block whose text is longer than `left`: the number of bytes that are gone.
fn cut_block(block: &[u8], mut left: usize, note: &str, out: &mut Vec<u8>) -> usize {
    let (mut copied, mut removed) = (0, 0);
    for place in texts(block) {
        let text = &block[place.start + 1..place.end.saturating_sub(1).max(place.start + 1)];
        if text.len() <= left {
            left -= text.len();
            continue;
        }
        let mut end = 0;
        for character in Characters(text) {
            if end + character.raw.len() > left {
                break;
            }
            end += character.raw.len();
        }
        out.extend_from_slice(&block[copied..place.start + 1]);
        out.extend_from_slice(&text[..end]);
        let mut quoted = BytesMut::new();
        write::string(&mut quoted, note);
        // The text has its opening quote; the note brings the closing one.
        out.extend_from_slice(&quoted[1..]);
        copied = place.end;
        removed += text.len() - end;
        left = 0;
    }
    out.extend_from_slice(&block[copied..]);
    removed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn after(result: &str, limit: usize) -> Option<(String, usize)> {
        cut(result.as_bytes(), limit, " […\n]").map(|cut| (String::from_utf8(cut.bytes).unwrap(), cut.removed))
    }

    #[test]
    fn text_is_cut_at_a_character_with_a_note() {
        let result = r#"{"a":1, "content" : [ {"text":"aé\n\ud83d\ude00z","type":"text"} ] ,"structuredContent":{"x":"aaaaaaaaaaaaaaaaaaaaaaaaa"}}"#;
        assert_eq!(after(result, 18), None);
        for (limit, kept) in
            [(17, r"aé\n\ud83d\ude00"), (16, r"aé\n"), (5, r"aé\n"), (4, "aé"), (3, "aé"), (2, "a"), (1, "a"), (0, "")]
        {
            let expected = format!(
                r#"{{"a":1, "content" : [{{"text":"{kept} […\n]","type":"text"}}] ,"structuredContent":{{"x":"aaaaaaaaaaaaaaaaaaaaaaaaa"}}}}"#
            );
            assert_eq!(after(result, limit), Some((expected, 18 - kept.len())), "{limit}");
        }
    }

    #[test]
    fn later_text_blocks_are_left_out_and_others_stay() {
        let result = r#"{"content":[{"type":"text","text":"aaaa"},{"type":"image","data":"iiii"},{"type":"text","text":"bbbb"},{"type":"text","text":"cccc"},{"type":"text","text":""},{"type":"resource","resource":{"text":"rrrr"}}]}"#;
        let expected = r#"{"content":[{"type":"text","text":"aaaa"},{"type":"image","data":"iiii"},{"type":"text","text":"b […\n]"},{"type":"resource","resource":{"text":"rrrr"}}]}"#;
        assert_eq!(after(result, 5), Some((expected.to_owned(), 7)));
        assert_eq!(after(result, 12), None);
    }

    #[test]
    fn a_text_that_stands_twice_counts_twice() {
        let result = r#"{"content":[{"text":"aaaa","\u0074ext":"bbbb"}]}"#;
        assert_eq!(after(result, 8), None);
        let (cut, removed) = after(result, 5).unwrap();
        assert_eq!((cut.as_str(), removed), (r#"{"content":[{"text":"aaaa","\u0074ext":"b […\n]"}]}"#, 3));
    }

    #[test]
    fn what_has_no_text_is_left() {
        for result in [
            "{}",
            r#"{"content":[]}"#,
            r#"{"content":"aaaa"}"#,
            r#"{"content":[{"text":["aaaa"]},1,"aaaa"]}"#,
            "[1]",
            "",
        ] {
            assert_eq!(after(result, 0), None, "{result}");
        }
    }
}

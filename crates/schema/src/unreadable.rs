//! The place in a JSON text that no validator can read, though the text is JSON.

use weir_wire::scan;

use crate::mismatch::Mismatch;

const NUMBER: &str = "a number is beyond the range of a double: send one that fits";
const SURROGATE: &str = "a string has half a surrogate pair: send whole characters";

/// The first number that no double holds, or the first text with half a surrogate pair; no value
/// without either. The text was checked: it is no deeper than its limit.
#[must_use]
pub fn find_unreadable(json: &[u8]) -> Option<Mismatch> {
    let mut pointer = String::new();
    let expected = look(scan::trim(json), &mut pointer)?;
    Some(Mismatch::at(&pointer, expected))
}

/// The problem of the value; `pointer` leads to it then.
fn look(value: &[u8], pointer: &mut String) -> Option<&'static str> {
    match value.first()? {
        // Half a pair can only be written as an escape.
        b'"' => (value.contains(&b'\\') && scan::string(value).is_none()).then_some(SURROGATE),
        b'{' => scan::members(value).find_map(|member| {
            let name = member.key.decode();
            let wrong =
                (member.key.is_escaped() && member.key.text().is_none()).then_some(SURROGATE);
            within(pointer, &name, |pointer| {
                wrong.or_else(|| look(&value[member.value], pointer))
            })
        }),
        b'[' => scan::elements(value).enumerate().find_map(|(nth, at)| {
            within(pointer, &nth.to_string(), |pointer| {
                look(&value[at], pointer)
            })
        }),
        b'-' | b'0'..=b'9' => {
            let number = std::str::from_utf8(value).ok()?.parse::<f64>().ok()?;
            number.is_infinite().then_some(NUMBER)
        }
        _ => None,
    }
}

/// Checks a part of a value; the pointer keeps leading there after a finding.
fn within(
    pointer: &mut String,
    name: &str,
    look: impl FnOnce(&mut String) -> Option<&'static str>,
) -> Option<&'static str> {
    let before = pointer.len();
    push(pointer, name);
    let found = look(pointer);
    if found.is_none() {
        pointer.truncate(before);
    }
    found
}

/// Adds a step to a JSON pointer (RFC 6901).
pub(super) fn push(pointer: &mut String, step: &str) {
    pointer.push('/');
    if step.contains(['~', '/']) {
        pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
    } else {
        pointer.push_str(step);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn first_unreadable_json_value_is_found() {
        let place = |json: &str| {
            find_unreadable(json.as_bytes()).map(|found| (found.pointer, found.expected))
        };
        let number = |pointer: &str| Some((pointer.to_owned(), NUMBER.to_owned()));
        let text = |pointer: &str| Some((pointer.to_owned(), SURROGATE.to_owned()));
        assert_eq!(place(r#"{"a":1e308,"z":1e999}"#), number("/z"));
        assert_eq!(place(r#" {"a":[0,{"b/c":-1e400}]} "#), number("/a/1/b~1c"));
        assert_eq!(
            place(r#"{"a":"ok","b":["\ud83d\ude00","\ud800"]}"#),
            text("/b/1")
        );
        assert_eq!(
            place(r#"{"a":{"\udc00":1}}"#),
            text("/a/\u{fffd}\u{fffd}\u{fffd}")
        );
        assert_eq!(
            place(r#"{"n":1e-999,"m":123456789012345678901234567890,"s":"\u0000","e":{},"l":[]}"#),
            None
        );
        assert_eq!(place("-1e999"), number(""));
    }
}

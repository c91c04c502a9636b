//! The arguments of a call in its record: their digest, and in clear text only the values that the
//! operator lists.

use bytes::Bytes;
use serde_json::value::RawValue;
use weir_core::case_folding;

use crate::record::canonical::{digest, members, write_items};
use crate::record::record_object::{RecordObject, push_text};

/// The most bytes of arguments in clear text; larger ones are not shown at all.
const MAX_SHOWN: usize = 4096;
/// The replacement of a value that is not shown.
const HIDDEN: &str = "\"***\"";
/// The most characters of one text that is shown.
const MAX_SHOWN_CHARACTERS: usize = 1024;

/// The form of arguments in records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentRecording {
    /// Their digest: SHA-256 over their canonical JSON.
    pub digest: bool,
    /// The values shown in clear text; all others are `***`.
    pub show: Vec<ArgumentPointer>,
}

impl Default for ArgumentRecording {
    fn default() -> Self {
        Self {
            digest: true,
            show: Vec::new(),
        }
    }
}

/// A JSON pointer (RFC 6901) into arguments. The token `*` stands for every member or item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentPointer(Vec<String>);

impl ArgumentPointer {
    /// Reads a pointer: `/a/b`, with `~1` for `/` and `~0` for `~`. The empty pointer (all of the
    /// arguments) is refused: values to show have to be named. Returns `None` for a text that is
    /// not a pointer.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let tokens = text.strip_prefix('/')?.split('/').map(|token| {
            let rest = token.replace("~0", "").replace("~1", "");
            (!rest.contains('~')).then(|| token.replace("~1", "/").replace("~0", "~"))
        });
        tokens.collect::<Option<Vec<String>>>().map(Self)
    }
}

/// Arguments before they are written into a record.
#[derive(Debug)]
pub(super) enum RecordedArguments {
    /// The call has no arguments, or the record leaves them out.
    Absent,
    /// As the client wrote them.
    Raw(Bytes),
    /// As they stand in the record.
    Written(String),
}

impl RecordedArguments {
    /// The form kept until the record is written: short arguments as raw bytes, long ones already
    /// in the form of the record.
    pub(super) fn keep(raw: &[u8], shape: &ArgumentRecording, most: usize) -> Self {
        if !shape.digest && shape.show.is_empty() {
            Self::Absent
        } else if raw.len() <= most {
            // A copy, so that a request's whole body does not wait with them.
            Self::Raw(Bytes::copy_from_slice(raw))
        } else {
            Self::Written(written(raw, shape))
        }
    }

    /// Adds the member of the record, if there is one.
    pub(super) fn write(&self, shape: &ArgumentRecording, record: &mut RecordObject<'_>) {
        match self {
            Self::Absent => {}
            Self::Raw(raw) => {
                record.raw("arguments", &written(raw, shape));
            }
            Self::Written(text) => {
                record.raw("arguments", text);
            }
        }
    }
}

fn written(raw: &[u8], shape: &ArgumentRecording) -> String {
    let mut out = String::new();
    let mut about = RecordObject::begin(&mut out);
    if shape.digest {
        about.text("sha256", &digest(raw));
    }
    if !shape.show.is_empty() {
        let pointers: Vec<&[String]> = shape.show.iter().map(|pointer| &pointer.0[..]).collect();
        let mut shown = String::new();
        let fits = serde_json::from_slice(raw)
            .is_ok_and(|value| redact(value, &pointers, &mut shown).is_some());
        about.raw("shown", if fits { &shown } else { HIDDEN });
    }
    about.end();
    out
}

/// Writes the values that the pointers name. Returns `None` if they are too long, or not JSON.
fn redact(value: &RawValue, pointers: &[&[String]], out: &mut String) -> Option<()> {
    if out.len() > MAX_SHOWN {
        return None;
    }
    if pointers.iter().any(|pointer| pointer.is_empty()) {
        return show(value, out);
    }
    if pointers.is_empty() {
        out.push_str(HIDDEN);
        return Some(());
    }
    let below = |name: &str| -> Vec<&[String]> {
        let through = pointers.iter().filter_map(|pointer| pointer.split_first());
        // A server without regard to case takes `Path` for `path`: then that is the value it was
        // called with.
        through
            .filter(|(token, _)| *token == "*" || case_folding::equal_folded(token, name))
            .map(|(_, rest)| rest)
            .collect()
    };
    match value.get().as_bytes().first()? {
        b'{' => write_items(out, ['{', '}'], members(value)?, |(key, value), out| {
            push_text(out, &key, MAX_SHOWN_CHARACTERS);
            out.push(':');
            redact(value, &below(&key), out)
        }),
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
            let items: Vec<_> = items.into_iter().enumerate().collect();
            write_items(out, ['[', ']'], items, |(n, value), out| {
                redact(value, &below(&n.to_string()), out)
            })
        }
        _ => {
            out.push_str(HIDDEN);
            Some(())
        }
    }
}

/// Writes a value whole, on one line.
fn show(value: &RawValue, out: &mut String) -> Option<()> {
    if out.len() > MAX_SHOWN {
        return None;
    }
    match value.get().as_bytes().first()? {
        b'{' => write_items(out, ['{', '}'], members(value)?, |(key, value), out| {
            push_text(out, &key, MAX_SHOWN_CHARACTERS);
            out.push(':');
            show(value, out)
        })?,
        b'[' => write_items(
            out,
            ['[', ']'],
            serde_json::from_str::<Vec<&RawValue>>(value.get()).ok()?,
            show,
        )?,
        b'"' => push_text(
            out,
            &serde_json::from_str::<String>(value.get()).ok()?,
            MAX_SHOWN_CHARACTERS,
        ),
        _ => out.push_str(value.get()),
    }
    (out.len() <= MAX_SHOWN).then_some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn shown(raw: &str, pointers: &[&str]) -> String {
        let show = pointers
            .iter()
            .map(|text| ArgumentPointer::parse(text).unwrap())
            .collect();
        written(
            raw.as_bytes(),
            &ArgumentRecording {
                digest: false,
                show,
            },
        )
    }

    // Proves R283.
    #[test]
    fn arguments_are_hidden_unless_they_are_listed() {
        let raw = r#"{"path":"/a","token":"CANARY","deep":{"n":1,"secret":"CANARY"},
            "list":[{"id":7,"s":"CANARY"},{"id":8}], "line":"a\nb"}"#;
        assert_eq!(
            shown(raw, &["/none"]),
            r#"{"shown":{"path":"***","token":"***","deep":"***","list":"***","line":"***"}}"#
        );
        let some = shown(
            raw,
            &["/path", "/deep/n", "/list/*/id", "/line", "/token/too/deep"],
        );
        let expected = concat!(
            r#"{"shown":{"path":"/a","token":"***","deep":{"n":1,"secret":"***"},"#,
            r#""list":[{"id":7,"s":"***"},{"id":8}],"line":"a\u000ab"}}"#
        );
        assert_eq!(some, expected);
        assert_eq!(shown(r#"["a","b"]"#, &["/1"]), r#"{"shown":["***","b"]}"#);
        assert_eq!(
            shown("{\"a\":{\n\"b\" : [ 1,\r\n2.0]}}", &["/a"]),
            r#"{"shown":{"a":{"b":[1,2.0]}}}"#,
            "f14"
        );
        let digest = written(raw.as_bytes(), &ArgumentRecording::default());
        assert!(
            digest.starts_with(r#"{"sha256":""#) && digest.len() == 77,
            "{digest}"
        );
    }

    // Proves B04.
    #[test]
    fn case_variants_of_shown_arguments_are_shown() {
        let raw = "{\"path\":\"/a\",\"Path\":\"/b\",\"\u{17f}ub\":{\"p\\u0041th\":1},\"other\":\"CANARY\"}";
        let expected = "{\"shown\":{\"path\":\"/a\",\"Path\":\"/b\",\"\u{17f}ub\":{\"pAth\":1},\"other\":\"***\"}}";
        assert_eq!(shown(raw, &["/path", "/sub/path"]), expected);
    }

    // Proves F18.
    #[test]
    fn recorded_arguments_are_bounded() {
        let long = format!(
            r#"{{"a":"{}","b":[{}1]}}"#,
            "x".repeat(1 << 20),
            "1,".repeat(1 << 20)
        );
        assert!(shown(&long, &["/a"]).len() < 2 * MAX_SHOWN_CHARACTERS);
        assert_eq!(shown(&long, &["/b"]), r#"{"shown":"***"}"#);
        assert_eq!(shown("not json", &["/b"]), r#"{"shown":"***"}"#);
        let wide = format!(
            "{{{}\"z\":1}}",
            (0..10_000)
                .map(|n| format!("\"k{n}\":1,"))
                .collect::<String>()
        );
        assert_eq!(shown(&wide, &["/z"]), r#"{"shown":"***"}"#);
    }

    #[test]
    fn pointers_follow_their_grammar() {
        assert_eq!(
            ArgumentPointer::parse("/a~1b/~0c/"),
            Some(ArgumentPointer(vec![
                "a/b".into(),
                "~c".into(),
                String::new()
            ]))
        );
        for bad in ["", "a", "a/b", "/~", "/~2", "/a~"] {
            assert_eq!(ArgumentPointer::parse(bad), None, "{bad}");
        }
    }
}

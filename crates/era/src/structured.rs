//! Structured content of tools' results for clients with a revision that cannot carry it.
//!
//! Revisions before 2025-06-18 have no `structuredContent`; in 2025-06-18 and 2025-11-25 it is an
//! object; since 2026-07-28 any JSON value (SEP-2106). Content that a client cannot take is added
//! to `content` as a text block of its JSON, unless its server did that already. Towards all other
//! clients a result stays as it is.

use bytes::Bytes;
use weir_wire::scan::WordSearch;
use weir_wire::splice::{CarriedValues, LeftOutTexts, ObjectEdits, SpliceError, StructuredAsText};
use weir_wire::{Revision, scan};

/// The replacement of structured content that is too large to be held until it is known if a text
/// block repeats it.
const LEFT_OUT: LeftOutTexts = LeftOutTexts {
    value: "[structured content was left out: this revision of the protocol cannot carry it, and it is too large to be repeated \
            as text]",
    perhaps: "[structured content that may follow was left out: this revision of the protocol may not carry it, and too much \
              stands before it]",
};

static STRUCTURED_CONTENT: WordSearch = WordSearch::new("structuredContent");

/// The edit that adds structured content to the `content` of a tool's result, as text, if a client
/// of this revision cannot take it (R129); no value if it takes any. A text that the server added
/// itself is not repeated.
#[must_use]
pub fn as_text(revision: Revision) -> Option<StructuredAsText> {
    let carried = match (
        revision.has_structured_content(),
        revision.has_any_structured_content(),
    ) {
        (_, true) => return None,
        (true, false) => CarriedValues::Objects,
        (false, false) => CarriedValues::Nothing,
    };
    Some(StructuredAsText::new(carried, LEFT_OUT))
}

/// The result of a server of a revision before 2026-07-28 without a `structuredContent` that is
/// `null`: there it means that there is none. Servers that write all members of a result send it.
#[must_use]
pub fn without_null(result: Bytes) -> Bytes {
    let is_null = STRUCTURED_CONTENT.is_in(&result)
        && scan::find(&result, "structuredContent").is_some_and(|at| &result[at] == b"null");
    if is_null {
        ObjectEdits::new()
            .remove("structuredContent")
            .apply_or_keep(&result)
    } else {
        result
    }
}

/// The same for a whole result. No value if there is no text to add, a check that does not read the
/// result twice.
///
/// # Errors
/// The result is malformed.
pub fn add_text(revision: Revision, result: &Bytes) -> Result<Option<Bytes>, SpliceError> {
    if revision.has_any_structured_content() || !STRUCTURED_CONTENT.is_in(result) {
        return Ok(None);
    }
    let Some(at) = scan::find(result, "structuredContent") else {
        return Ok(None);
    };
    if revision.has_structured_content() && scan::is_object(&result[at]) {
        return Ok(None);
    }
    as_text(revision).map(|edit| edit.apply(result)).transpose()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::{Value, json};

    use super::*;

    /// The texts that a client of this revision finds.
    fn texts(revision: Revision, result: &str) -> Vec<String> {
        let result = Bytes::from(result.to_owned());
        let edited = add_text(revision, &result).unwrap().unwrap_or(result);
        let edited: Value = serde_json::from_slice(&edited).unwrap();
        let blocks = edited["content"].as_array().unwrap().iter();
        blocks
            .map(|block| block["text"].as_str().unwrap().to_owned())
            .collect()
    }

    // Proves R129.
    #[test]
    fn value_is_added_only_for_revisions_that_cannot_carry_it() {
        let said = json!({ "type": "text", "text": "in words" });
        for (value, carried_since) in [
            (r#"{"a":1}"#, Revision::V2025_06_18),
            ("[1,2]", Revision::V2026_07_28),
            ("7", Revision::V2026_07_28),
            ("null", Revision::V2026_07_28),
        ] {
            for revision in Revision::ALL {
                let added: &[&str] = if revision >= carried_since {
                    &[]
                } else {
                    &[value]
                };
                for result in [
                    format!(r#"{{"content":[{said}],"structuredContent":{value}}}"#),
                    format!(r#"{{"structuredContent":{value},"content":[{said}]}}"#),
                ] {
                    assert_eq!(
                        texts(revision, &result),
                        [&["in words"], added].concat(),
                        "{revision} {result}"
                    );
                }
                let same = json!({ "type": "text", "text": format!(" {value} ") });
                let result = format!(r#"{{"content":[{same}],"structuredContent":{value}}}"#);
                assert_eq!(
                    texts(revision, &result).len(),
                    1,
                    "{revision}: its server said it"
                );
            }
        }
    }

    #[test]
    fn null_of_an_older_server_is_no_structured_content() {
        for (result, expected) in [
            (
                r#"{"content":[],"structuredContent": null}"#,
                r#"{"content":[]}"#,
            ),
            (
                r#"{"structuredContent":{"a":null}}"#,
                r#"{"structuredContent":{"a":null}}"#,
            ),
            (
                r#"{"_meta":{"structuredContent":null}}"#,
                r#"{"_meta":{"structuredContent":null}}"#,
            ),
        ] {
            assert_eq!(
                without_null(Bytes::from_static(result.as_bytes())),
                expected
            );
        }
    }

    #[test]
    fn result_without_structured_content_is_not_copied() {
        for result in [
            r#"{"content":[]}"#,
            r#"{"content":[],"_meta":{"structuredContent":[1]}}"#,
        ] {
            let whole = add_text(
                Revision::V2024_11_05,
                &Bytes::from_static(result.as_bytes()),
            );
            assert_eq!(whole.unwrap(), None, "{result}");
        }
    }
}

//! Parses messages with a list in which one item breaks a limit of weir's. That item is left out
//! instead of the whole list.
//!
//! A message is refused as a whole if it is nested too deeply or has a number that is too long. In
//! a page of a list that would hide every item of the upstream for the fault of one. So the message
//! is parsed again with `null` in place of such items, which no list takes for an item.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::FailureKind;
use weir_core::log_text::sanitize_text;
use weir_wire::IncomingMessage;
use weir_wire::message::MessageError;
use weir_wire::scan::{self, JsonLimits, ScanErrorKind};

use crate::upstream_record::UpstreamRecord;

/// The members of results that are lists, and the member with the name of an item of each.
const LIST_MEMBERS: [(&str, &str); 4] = [
    ("tools", "name"),
    ("prompts", "name"),
    ("resources", "uri"),
    ("resourceTemplates", "uriTemplate"),
];
/// The brackets that are open around an item: the envelope's, the result's and the list's.
const OUTER_DEPTH: u32 = 3;

/// Parses a server's bytes as one message or a batch.
///
/// # Errors
/// As [`IncomingMessage::parse`], unless only single items of a list are at
/// fault.
pub fn parse_without_bad_items(
    record: &UpstreamRecord,
    bytes: &Bytes,
    limits: &JsonLimits,
) -> Result<IncomingMessage, MessageError> {
    let error = match IncomingMessage::parse(bytes.clone(), limits) {
        Ok(incoming) => return Ok(incoming),
        Err(error) => error,
    };
    let Some((rest, names)) = without_bad_items(bytes, limits) else {
        return Err(error);
    };
    let incoming = IncomingMessage::parse(rest, limits).map_err(|_| error)?;
    for name in names {
        record.label.count_dropped("bad_list_item");
        let item = name.as_deref().map(|name| sanitize_text(name, 64));
        let text =
            "An item of its list was left out: it is nested too deeply, or has too long a number";
        record.note_error(&record.label.fail(
            FailureKind::BadAnswer,
            match &item {
                Some(item) => format!("{text} ({item})"),
                None => text.to_owned(),
            },
        ));
        tracing::warn!(upstream = %record.label.id, item, "invalid list item skipped: nested too deeply or number too long");
    }
    Ok(incoming)
}

/// Returns the message with `null` in place of the items that break a limit, and their names as far
/// as they can be read; absent if all items are good. The rest of the message is not checked.
fn without_bad_items(raw: &Bytes, limits: &JsonLimits) -> Option<(Bytes, Vec<Option<String>>)> {
    let limits = JsonLimits {
        max_depth: limits.max_depth.saturating_sub(OUTER_DEPTH),
        ..*limits
    };
    let result = scan::find(raw, "result")?;
    let (mut out, mut copied, mut names) = (BytesMut::new(), 0, Vec::new());
    for member in scan::members(&raw[result.clone()]) {
        let Some((_, named)) = LIST_MEMBERS
            .into_iter()
            .find(|(list, _)| member.key.eq_str(list))
        else {
            continue;
        };
        let list = offset_range(&result, &member.value);
        for item in scan::elements(&raw[list.clone()]) {
            let item = offset_range(&list, &item);
            let fault = scan::check(&raw[item.clone()], &limits)
                .err()
                .map(|fault| fault.kind);
            if matches!(
                fault,
                Some(ScanErrorKind::TooDeep | ScanErrorKind::NumberTooLong)
            ) {
                out.put_slice(&raw[copied..item.start]);
                out.put_slice(b"null");
                copied = item.end;
                let item = &raw[item];
                names.push(
                    scan::find(item, named)
                        .and_then(|at| Some(scan::string(&item[at])?.into_owned())),
                );
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    out.put_slice(&raw[copied..]);
    Some((out.freeze(), names))
}

/// Maps the range of a part to the whole that contains it.
const fn offset_range(whole: &Range<usize>, part: &Range<usize>) -> Range<usize> {
    whole.start + part.start..whole.start + part.end
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn left(text: &str) -> Option<(String, Vec<Option<String>>)> {
        let (rest, names) = without_bad_items(
            &Bytes::copy_from_slice(text.as_bytes()),
            &JsonLimits::upstream(),
        )?;
        Some((String::from_utf8(rest.to_vec()).unwrap(), names))
    }

    #[test]
    fn an_item_that_breaks_a_limit_is_left_out_and_named() {
        for levels in [65, 300, 100_000] {
            let deep = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
            let page = format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":[1],"tools":[{{"name":"a"}}, {{"d":{deep},"name":"b\u0062"}} ,{{"d":{deep}}},{{"name":"c"}}]}}}}"#
            );
            let (rest, names) = left(&page).unwrap();
            assert_eq!(
                rest,
                r#"{"jsonrpc":"2.0","id":1,"result":{"x":[1],"tools":[{"name":"a"}, null ,null,{"name":"c"}]}}"#,
                "{levels}"
            );
            assert_eq!(names, [Some("bb".to_owned()), None]);
        }
        let number = "9".repeat(100);
        let page = format!(
            r#"{{"id":1,"result":{{"resources":[{{"uri":"a:1"}},{{"uri":"a:2","size":{number}}}]}}}}"#
        );
        let (rest, names) = left(&page).unwrap();
        assert_eq!(
            rest,
            r#"{"id":1,"result":{"resources":[{"uri":"a:1"},null]}}"#
        );
        assert_eq!(names, [Some("a:2".to_owned())]);
    }

    #[test]
    fn limits_outside_list_items_are_not_repaired() {
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        for page in [
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":{deep}}}}}"#),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"a"}}],"_meta":{deep}}}}}"#
            ),
            format!(r#"{{"jsonrpc":"2.0","id":1,"params":{{"tools":[{deep}]}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":{{"a":{deep}}}}}}}"#),
            deep,
            String::new(),
        ] {
            assert_eq!(left(&page), None, "{page}");
        }
    }
}

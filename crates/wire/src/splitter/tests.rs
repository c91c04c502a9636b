#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::scan::scan_error::ScanErrorKind;
use crate::testing;

const CAPS: SplitCaps = SplitCaps {
    max_held: 256,
    max_total: 100_000,
    limits: JsonLimits {
        max_depth: 64,
        max_tokens: 100_000,
        max_number_len: 400,
        max_batch: 50,
        null_params: true,
        ignore_case_variants: true,
    },
};

#[derive(Clone, Debug, PartialEq)]
enum SplitOutcome {
    Whole(Bytes),
    /// The emitted bytes, the bytes at the end, the response's id, and the result's type.
    Response {
        given: String,
        rest: String,
        id: Option<RequestId>,
        result_type: Option<Bytes>,
    },
}

impl SplitOutcome {
    fn result(&self) -> String {
        match self {
            Self::Whole(bytes) => panic!("whole: {bytes:?}"),
            Self::Response { given, rest, .. } => format!("{given}{rest}"),
        }
    }
}

fn split(caps: SplitCaps, pieces: &[Bytes]) -> Result<SplitOutcome, SplitError> {
    let (mut splitter, mut out) = (ReplySplitter::new(caps), Vec::new());
    for piece in pieces {
        splitter.feed(piece, &mut out)?;
    }
    assert!(out.iter().all(|piece| !piece.is_empty()));
    Ok(match splitter.finish()? {
        SplitMessage::Whole(bytes) => {
            assert!(out.is_empty(), "it was given in pieces");
            SplitOutcome::Whole(bytes)
        }
        SplitMessage::Response(end) => SplitOutcome::Response {
            given: String::from_utf8(out.concat()).unwrap(),
            rest: String::from_utf8(end.rest.to_vec()).unwrap(),
            id: end.response.id,
            result_type: end.result_type,
        },
    })
}

fn in_one(text: &str) -> Result<SplitOutcome, SplitError> {
    split(CAPS, &[Bytes::copy_from_slice(text.as_bytes())])
}

fn bytewise(text: &str) -> Result<SplitOutcome, SplitError> {
    let pieces: Vec<Bytes> = text
        .as_bytes()
        .chunks(1)
        .map(Bytes::copy_from_slice)
        .collect();
    split(CAPS, &pieces)
}

/// A response with its members in any order.
fn response() -> impl Strategy<Value = (String, String)> {
    let result = testing::object_of(
        &[
            "content",
            "resultType",
            "structuredContent",
            "_meta",
            "result",
            "id",
            "taskId",
            "requestState",
        ],
        testing::value().boxed(),
    );
    (
        result,
        Just(vec!["jsonrpc", "id", "result", "x"]).prop_shuffle(),
        testing::value(),
    )
        .prop_flat_map(|(result, order, extra)| {
            let value = |name: &str| match name {
                "jsonrpc" => "\"2.0\"".to_owned(),
                "id" => "7".to_owned(),
                "result" => result.clone(),
                _ => extra.clone(),
            };
            let members = order
                .iter()
                .map(|name| ((*name).to_owned(), value(name)))
                .collect();
            (testing::object(members), Just(result.clone()))
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn splitting_is_chunk_invariant_and_withholds_deciding_members((text, result) in response(), cuts in testing::cuts()) {
        let caps = SplitCaps { max_held: 100_000, ..CAPS };
        let raw = Bytes::from(text);
        let whole = split(caps, std::slice::from_ref(&raw)).unwrap();
        prop_assert_eq!(&split(caps, &testing::cut(&raw, &cuts)).unwrap(), &whole);
        let single: Vec<Bytes> = (0..raw.len()).map(|at| raw.slice(at..=at)).collect();
        prop_assert_eq!(&split(caps, &single).unwrap(), &whole);
        let before: Value = serde_json::from_str(&result).unwrap();
        let after: Value = serde_json::from_str(&whole.result()).unwrap();
        prop_assert_eq!(&before, &after);
        let SplitOutcome::Response { given, rest, id, result_type } = &whole else { unreachable!() };
        prop_assert_eq!(id, &Some(RequestId::from(7_u64)));
        let given: Value = serde_json::from_str(&format!("{given}}}")).unwrap();
        prop_assert!(WITHHELD.iter().all(|name| given.get(name).is_none()), "{}", given);
        let is_closed = rest.ends_with('}');
        prop_assert!(is_closed);
        let kind = result_type.as_ref().map(|text| serde_json::from_slice::<Value>(text).unwrap());
        prop_assert_eq!(kind.as_ref(), before.get("resultType"));
    }

    #[test]
    fn splitting_errors_are_chunk_invariant(
        (text, _) in response(), place in any::<prop::sample::Index>(), byte in any::<u8>(), cuts in testing::cuts(),
    ) {
        let mut bytes = text.into_bytes();
        let at = place.index(bytes.len());
        bytes[at] = byte;
        let raw = Bytes::from(bytes);
        let whole = split(CAPS, std::slice::from_ref(&raw));
        let cut = split(CAPS, &testing::cut(&raw, &cuts));
        prop_assert_eq!(whole.clone().ok(), cut.ok(), "{:?}", whole);
    }
}

#[test]
fn messages_without_a_result_come_whole_and_uncopied() {
    let raw = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#);
    let SplitOutcome::Whole(whole) = split(CAPS, std::slice::from_ref(&raw)).unwrap() else {
        panic!("split")
    };
    assert!(
        std::ptr::eq(whole.as_ptr(), raw.as_ptr()),
        "the message was copied"
    );
}

#[test]
fn the_result_is_given_wherever_the_id_stands() {
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(500));
    for text in [
        format!(r#"{{"jsonrpc":"2.0","id":"q","result":{body}}}"#),
        format!(r#"{{"result":{body},"jsonrpc":"2.0","id":"q"}}"#),
        format!(
            r#" {{ "junk":"{}" , "re\u0073ult" : {body} , "id":"q","jsonrpc":"2.0" }} "#,
            "y".repeat(100)
        ),
    ] {
        for outcome in [in_one(&text), bytewise(&text)] {
            let expected = SplitOutcome::Response {
                given: body[..body.len() - 1].to_owned(),
                rest: "}".to_owned(),
                id: Some(RequestId::from_text("q")),
                result_type: None,
            };
            assert_eq!(outcome.unwrap(), expected, "{text}");
        }
    }
}

#[test]
fn id_and_type_are_available_once_read() {
    let mut splitter = ReplySplitter::new(CAPS);
    let mut seen = Vec::new();
    for piece in [
        r#"{"jsonrpc":"2.0","result":{"content":[],"#,
        r#""resultT\u0079pe":"com"#,
        r#"plete","_meta":{"resultType":"task"}},"id":"#,
        r#"7"#,
        r#","x":{"id":8}}"#,
    ] {
        splitter
            .feed(&Bytes::from_static(piece.as_bytes()), &mut Vec::new())
            .unwrap();
        let id = splitter
            .id()
            .map(|id| id.and_then(RequestId::echoed_number));
        seen.push((splitter.result_type().map(<[u8]>::to_vec), id));
    }
    let typed = Some(br#""complete""#.to_vec());
    let expected = [
        (None, None),
        (None, None),
        (typed.clone(), None),
        (typed.clone(), None),
        (typed, Some(Some(7))),
    ];
    assert_eq!(seen, expected);
    let mut splitter = ReplySplitter::new(CAPS);
    splitter
        .feed(&Bytes::from_static(br#"{"id":{"a":1},"#), &mut Vec::new())
        .unwrap();
    assert_eq!(splitter.id(), Some(None), "an id that is none");
}

#[test]
fn withheld_members_come_last_with_commas() {
    for (from, to) in [
        ("{}", "{}"),
        (
            r#"{"resultType":"complete"}"#,
            r#"{"resultType":"complete"}"#,
        ),
        (
            r#"{ "resultType" : "complete" , "a" : 1 }"#,
            r#"{  "a" : 1,"resultType":"complete"}"#,
        ),
        (
            r#"{"a":1,"_meta":{"b":[1]},"c":2,"taskId":"t"}"#,
            r#"{"a":1,"c":2,"taskId":"t","_meta":{"b":[1]}}"#,
        ),
        (
            r#"{"x":{"_meta":1},"inputRequests":5}"#,
            r#"{"x":{"_meta":1},"inputRequests":5}"#,
        ),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{from}}}"#);
        for outcome in [in_one(&text), bytewise(&text)] {
            assert_eq!(outcome.unwrap().result(), to);
        }
    }
}

#[test]
fn other_large_messages_are_kept_up_to_a_cap() {
    let note = |len: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{}"}}}}"#,
            "x".repeat(len)
        )
    };
    assert_eq!(
        in_one(&note(100)).unwrap(),
        SplitOutcome::Whole(note(100).into())
    );
    for text in [
        note(300),
        format!("[{}]", note(300)),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":1,"message":"{}"}}}}"#,
            "x".repeat(300)
        ),
    ] {
        assert_eq!(in_one(&text), Err(SplitError::TooLong));
        assert_eq!(bytewise(&text), Err(SplitError::TooLong));
    }
}

#[test]
fn held_bytes_outside_the_result_are_capped() {
    for text in [
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":"y"}},"x":"{}"}}"#,
            "x".repeat(300)
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"_meta":{{"x":"{}"}}}}}}"#,
            "x".repeat(300)
        ),
    ] {
        assert_eq!(in_one(&text), Err(SplitError::TooLong));
        assert_eq!(bytewise(&text), Err(SplitError::TooLong));
    }
    let total = SplitCaps {
        max_total: 400,
        ..CAPS
    };
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":"{}"}}}}"#,
        "y".repeat(400)
    );
    assert_eq!(split(total, &[text.into()]), Err(SplitError::TooLong));
}

#[test]
fn malformed_members_around_a_result_are_refused() {
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(100));
    for text in [
        format!(r#"{{"id":1,"result":{body}}}"#),
        format!(r#"{{"jsonrpc":"2.0","result":{body}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":null,"result":{body}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{body},"id":2}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{body},"result":{{}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{body},"error":{{}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{body},"method":"a"}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{body}}}x"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{body}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{}]}}"#,
            &body[..body.len() - 1]
        ),
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","resultT\u0079pe":"task"}}"#
            .to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{},"a":1,"_meta":{}}}"#.to_owned(),
    ] {
        assert!(in_one(&text).is_err(), "{text}");
        assert!(bytewise(&text).is_err(), "{text}");
    }
}

// Proves B01, B06.
#[test]
fn depth_and_utf8_hold_inside_a_result() {
    let text = |depth: usize| {
        let pad = "x".repeat(100);
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"p":"{pad}","a":{}{}}}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert!(bytewise(&text(62)).is_ok());
    assert!(
        matches!(bytewise(&text(63)), Err(SplitError::Scan(error)) if error.kind == ScanErrorKind::TooDeep)
    );
    assert!(
        matches!(in_one(&text(5_000)), Err(SplitError::Scan(error)) if error.kind == ScanErrorKind::TooDeep)
    );

    let mut bytes = text(1).into_bytes();
    bytes[60] = 0xe2;
    let pieces: Vec<Bytes> = bytes.chunks(1).map(Bytes::copy_from_slice).collect();
    assert!(
        matches!(split(CAPS, &pieces), Err(SplitError::Scan(error)) if error.kind == ScanErrorKind::NotUtf8)
    );
}

#[test]
fn a_character_may_be_cut_by_a_chunk() {
    let body = format!("{{\"a\":\"{}\"}}", "\u{1f600}\u{e9}".repeat(50));
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{body}}}"#);
    assert_eq!(bytewise(&text).unwrap().result(), body);
}

#[test]
fn fifty_mebibytes_pass_in_bounded_memory() {
    let mut splitter = ReplySplitter::new(SplitCaps::default());
    let (mut out, mut len) = (Vec::new(), 0);
    splitter
        .feed(
            &Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"text":""#),
            &mut out,
        )
        .unwrap();
    let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
    for _ in 0..800 {
        splitter.feed(&chunk, &mut out).unwrap();
        assert!(splitter.held() < 1024);
        len += out.drain(..).map(|piece| piece.len()).sum::<usize>();
    }
    splitter
        .feed(&Bytes::from_static(b"\"}}"), &mut out)
        .unwrap();
    len += out.concat().len();
    assert!(matches!(splitter.finish(), Ok(SplitMessage::Response(_))));
    assert_eq!(len, 10 + (50 << 20));
}

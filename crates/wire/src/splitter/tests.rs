#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;

use super::*;
use crate::scan::ScanErrorKind;
use crate::{RequestId, testing};

const CAPS: SplitCaps = SplitCaps {
    stream_over: 32,
    max_held: 256,
    max_total: 100_000,
    limits: Limits { max_depth: 64, max_tokens: 100_000, max_number_len: 400, max_batch: 50, null_params: true },
};

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Whole(Bytes),
    Streamed(Vec<u8>, Option<RequestId>),
}

fn split(caps: SplitCaps, pieces: &[Bytes]) -> Result<Outcome, SplitError> {
    let (mut splitter, mut out) = (ReplySplitter::new(caps), Vec::new());
    for piece in pieces {
        splitter.feed(piece, &mut out)?;
    }
    let mut result = Vec::new();
    for piece in out {
        let Piece::Result(bytes) = piece else { panic!("too early") };
        assert!(!bytes.is_empty());
        result.extend_from_slice(&bytes);
    }
    Ok(match splitter.finish()? {
        Piece::Whole(bytes) => Outcome::Whole(bytes),
        Piece::End(response) => Outcome::Streamed(result, response.id),
        Piece::Result(_) => panic!("too late"),
    })
}

fn in_one(text: &str) -> Result<Outcome, SplitError> {
    split(CAPS, &[Bytes::copy_from_slice(text.as_bytes())])
}

fn bytewise(text: &str) -> Result<Outcome, SplitError> {
    let pieces: Vec<Bytes> = text.as_bytes().chunks(1).map(Bytes::copy_from_slice).collect();
    split(CAPS, &pieces)
}

/// A response with its members in any order.
fn response() -> impl Strategy<Value = (String, String)> {
    let result = testing::object_of(
        &["content", "resultType", "structuredContent", "_meta", "result", "id"],
        testing::value().boxed(),
    );
    (result, Just(vec!["jsonrpc", "id", "result", "x"]).prop_shuffle(), testing::value()).prop_flat_map(
        |(result, order, extra)| {
            let value = |name: &str| match name {
                "jsonrpc" => "\"2.0\"".to_owned(),
                "id" => "7".to_owned(),
                "result" => result.clone(),
                _ => extra.clone(),
            };
            let members = order.iter().map(|name| ((*name).to_owned(), value(name))).collect();
            (testing::object(members), Just(result.clone()))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn splitting_is_chunk_invariant((text, result) in response(), cuts in testing::cuts(), stream_over in 0..200_usize) {
        let caps = SplitCaps { stream_over, max_held: 100_000, ..CAPS };
        let raw = Bytes::from(text);
        let whole = split(caps, std::slice::from_ref(&raw)).unwrap();
        prop_assert_eq!(&split(caps, &testing::cut(&raw, &cuts)).unwrap(), &whole);
        let single: Vec<Bytes> = (0..raw.len()).map(|at| raw.slice(at..=at)).collect();
        prop_assert_eq!(&split(caps, &single).unwrap(), &whole);
        match whole {
            Outcome::Whole(bytes) => prop_assert_eq!(bytes, raw),
            Outcome::Streamed(bytes, id) => {
                prop_assert_eq!(String::from_utf8(bytes).unwrap(), result);
                prop_assert_eq!(id, Some(RequestId::from(7_u64)));
                prop_assert!(raw.len() > stream_over);
            }
        }
    }

    #[test]
    fn any_fault_is_a_fault_whatever_the_chunks(
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
fn small_messages_come_whole_and_uncopied() {
    let raw = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#);
    let caps = SplitCaps::default();
    let Outcome::Whole(whole) = split(caps, std::slice::from_ref(&raw)).unwrap() else { panic!("streamed") };
    assert!(std::ptr::eq(whole.as_ptr(), raw.as_ptr()), "the message was copied");
}

#[test]
fn the_result_is_streamed_wherever_the_id_stands() {
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(500));
    for text in [
        format!(r#"{{"jsonrpc":"2.0","id":"q","result":{body}}}"#),
        format!(r#"{{"result":{body},"jsonrpc":"2.0","id":"q"}}"#),
        format!(r#" {{ "junk":"{}" , "re\u0073ult" : {body} , "id":"q","jsonrpc":"2.0" }} "#, "y".repeat(100)),
    ] {
        for outcome in [in_one(&text), bytewise(&text)] {
            assert_eq!(
                outcome.unwrap(),
                Outcome::Streamed(body.clone().into_bytes(), Some(RequestId::from_text("q"))),
                "{text}"
            );
        }
    }
}

#[test]
fn other_large_messages_are_kept_up_to_a_cap() {
    let note = |len: usize| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{}"}}}}"#, "x".repeat(len))
    };
    assert_eq!(in_one(&note(100)).unwrap(), Outcome::Whole(note(100).into()));
    for text in [
        note(300),
        format!("[{}]", note(300)),
        format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":1,"message":"{}"}}}}"#, "x".repeat(300)),
    ] {
        assert_eq!(in_one(&text), Err(SplitError::TooLong));
        assert_eq!(bytewise(&text), Err(SplitError::TooLong));
    }
}

#[test]
fn nothing_large_hides_behind_a_result() {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":"{}"}},"x":"{}"}}"#, "y".repeat(50), "x".repeat(300));
    assert_eq!(in_one(&text), Err(SplitError::TooLong));
    assert_eq!(bytewise(&text), Err(SplitError::TooLong));
    let total = SplitCaps { max_total: 400, ..CAPS };
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":"{}"}}}}"#, "y".repeat(400));
    assert_eq!(split(total, &[text.into()]), Err(SplitError::TooLong));
}

#[test]
fn the_rest_of_a_streamed_message_is_checked() {
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
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}]}}"#, &body[..body.len() - 1]),
    ] {
        assert!(in_one(&text).is_err(), "{text}");
        assert!(bytewise(&text).is_err(), "{text}");
    }
}

#[test]
fn b01_b06_depth_and_utf8_hold_inside_a_streamed_result() {
    let text = |depth: usize| {
        let pad = "x".repeat(100);
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"p":"{pad}","a":{}{}}}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    assert!(bytewise(&text(62)).is_ok());
    assert!(matches!(bytewise(&text(63)), Err(SplitError::Scan(error)) if error.kind == ScanErrorKind::TooDeep));
    assert!(matches!(in_one(&text(5_000)), Err(SplitError::Scan(error)) if error.kind == ScanErrorKind::TooDeep));

    let mut bytes = text(1).into_bytes();
    bytes[60] = 0xe2;
    let pieces: Vec<Bytes> = bytes.chunks(1).map(Bytes::copy_from_slice).collect();
    assert!(matches!(split(CAPS, &pieces), Err(SplitError::Scan(error)) if error.kind == ScanErrorKind::NotUtf8));
}

#[test]
fn a_character_may_be_cut_by_a_chunk() {
    let body = format!("{{\"a\":\"{}\"}}", "\u{1f600}\u{e9}".repeat(50));
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{body}}}"#);
    assert_eq!(bytewise(&text).unwrap(), Outcome::Streamed(body.into_bytes(), Some(RequestId::from(1_u64))));
}

#[test]
fn fifty_mebibytes_pass_in_bounded_memory() {
    let mut splitter = ReplySplitter::new(SplitCaps::default());
    let (mut out, mut len) = (Vec::new(), 0);
    splitter.feed(&Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"text":""#), &mut out).unwrap();
    let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
    for _ in 0..800 {
        splitter.feed(&chunk, &mut out).unwrap();
        assert!(splitter.kept.len() < 128 * 1024);
        len += out.drain(..).map(|piece| if let Piece::Result(bytes) = piece { bytes.len() } else { 0 }).sum::<usize>();
    }
    assert!(splitter.is_streaming());
    splitter.feed(&Bytes::from_static(b"\"}}"), &mut out).unwrap();
    assert!(matches!(splitter.finish(), Ok(Piece::End(_))));
    assert_eq!(len, 9 + (50 << 20));
}

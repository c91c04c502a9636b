#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{fuzzing, testing};

/// The events of a whole stream, and true if it ended between two.
fn events(stream: &[u8]) -> (Vec<DecodedEvent>, bool) {
    let mut decoder = EventDecoder::new(SseCaps::default());
    let mut input = Bytes::copy_from_slice(stream);
    let events = std::iter::from_fn(|| decoder.feed(&mut input).unwrap()).collect();
    (events, decoder.is_between_events())
}

fn message(data: &str) -> DecodedEvent {
    DecodedEvent::Message {
        event: None,
        id: None,
        data: Bytes::copy_from_slice(data.as_bytes()),
    }
}

/// Bytes that make streams likely.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "data", "event", "id", "retry", "x", ":", ": ", " ", "\n", "\r", "\r\n", "\n\n",
        "\u{feff}", "a", "\0", "17", "{}", "data:", "datas:",
    ]);
    prop_oneof![
        3 => vec(word, 0..40).prop_map(|words| words.concat().into_bytes()),
        1 => vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn sse_decoding_is_chunk_invariant(stream in stream(), cuts in testing::cuts()) {
        fuzzing::sse_decode(&stream);
        let (whole, between) = events(&stream);
        let mut decoder = EventDecoder::new(SseCaps::default());
        let mut pieces = Vec::new();
        for mut chunk in testing::cut(&Bytes::from(stream), &cuts) {
            while let Some(event) = decoder.feed(&mut chunk).unwrap_or(None) {
                pieces.push(event);
            }
        }
        prop_assert_eq!(pieces, whole);
        prop_assert_eq!(decoder.is_between_events(), between);
    }

    #[test]
    fn sse_decoding_does_not_depend_on_the_line_ending(lines in vec("(data|event|id|x)?(:| :)?[ a-z]{0,5}", 0..12)) {
        let with = |ending: &str| lines.iter().map(|line| format!("{line}{ending}")).collect::<String>();
        let plain = events(with("\n").as_bytes());
        prop_assert_eq!(&events(with("\r").as_bytes()), &plain);
        prop_assert_eq!(&events(with("\r\n").as_bytes()), &plain);
    }

    // Proves D20.
    #[test]
    fn one_event_in_is_one_event_out(data in prop_oneof![stream(), vec(any::<u8>(), 0..80)]) {
        fuzzing::sse_reencode(&data);
    }
}

#[test]
fn fields_follow_the_html_standard() {
    let table: [(&str, Vec<DecodedEvent>); 14] = [
        ("data: a\n\n", vec![message("a")]),
        ("data:a\n\n", vec![message("a")]),
        ("data:  a\n\n", vec![message(" a")]),
        ("data\n\n", vec![message("")]),
        ("data:\n\n", vec![message("")]),
        ("data: a\ndata: b\n\n", vec![message("a\nb")]),
        ("data: a\ndata\ndata: b\n\n", vec![message("a\n\nb")]),
        ("\u{feff}data: a\n\n", vec![message("a")]),
        ("\u{feff}\u{feff}data: a\n\n", vec![]),
        ("Data: a\ndatax: b\n data: c\n\n", vec![]),
        ("event: x\n\ndata: a\n\n", vec![message("a")]),
        (
            "retry: 100\nretry: 1x\nretry:\n",
            vec![DecodedEvent::Retry(100)],
        ),
        (
            ": ping\n\n:\n",
            vec![DecodedEvent::Comment, DecodedEvent::Comment],
        ),
        ("data: a\n", vec![]),
    ];
    for (stream, expected) in table {
        assert_eq!(events(stream.as_bytes()).0, expected, "{stream:?}");
    }
}

#[test]
fn ids_and_types_belong_to_their_event() {
    let (found, between) = events(
        b"id: 1\nevent: message\ndata: a\n\nid: 2\n\nid: 3\nid: 4\ndata:\n\nid: a\0b\ndata: x\n\nid\ndata: y\n\n",
    );
    let with = |event: Option<&str>, id: Option<&str>, data: &'static str| DecodedEvent::Message {
        event: event.map(String::from),
        id: id.map(String::from),
        data: Bytes::from_static(data.as_bytes()),
    };
    assert!(between);
    assert_eq!(
        found,
        [
            with(Some("message"), Some("1"), "a"),
            DecodedEvent::Id("2".into()),
            with(None, Some("4"), ""),
            with(None, None, "x"),
            with(None, Some(""), "y")
        ]
    );
}

#[test]
fn stream_ending_inside_an_event_is_detected() {
    for stream in ["data: a\n", "data", "id: 1\n", "event: x\n", "d"] {
        assert!(!events(stream.as_bytes()).1, "{stream:?}");
    }
    for stream in ["", "data: a\n\n", "\r\n", ": x\n"] {
        assert!(events(stream.as_bytes()).1, "{stream:?}");
    }
}

#[test]
fn a_large_data_line_passes_as_slices_of_the_input() {
    let mut decoder = SseDecoder::new(SseCaps::default());
    let (mut seen, mut head) = (0, Bytes::from_static(b"data: "));
    assert_eq!(decoder.feed(&mut head), Ok(None));
    for _ in 0..50 {
        let chunk = Bytes::from(vec![b'x'; 1 << 20]);
        let mut input = chunk.clone();
        let Ok(Some(SseItem::Data(data))) = decoder.feed(&mut input) else {
            panic!("no data")
        };
        assert!(
            std::ptr::eq(data.as_ptr(), chunk.as_ptr()),
            "the data was copied"
        );
        assert_eq!(decoder.feed(&mut input), Ok(None));
        seen += data.len();
    }
    assert_eq!(seen, 50 << 20);
    let end = SseItem::End {
        event: None,
        id: None,
        has_data: true,
    };
    assert_eq!(
        decoder.feed(&mut Bytes::from_static(b"\n\n")),
        Ok(Some(end))
    );
}

#[test]
fn sse_decoder_caps_are_enforced() {
    let run = |caps: SseCaps, stream: &str| {
        let mut decoder = SseDecoder::new(caps);
        let mut input = Bytes::copy_from_slice(stream.as_bytes());
        loop {
            match decoder.feed(&mut input) {
                Ok(None) => break Ok(()),
                Ok(Some(_)) => {}
                Err(error) => break Err(error),
            }
        }
    };
    let caps = SseCaps {
        max_event: 5,
        max_field: 3,
    };
    assert_eq!(run(caps, "data: abcde\n\ndata: ab\ndata: cd\n\n"), Ok(()));
    assert_eq!(run(caps, "data: abcdef\n\n"), Err(SseError::EventTooLarge));
    assert_eq!(
        run(caps, "data: abc\ndata: cd\n\n"),
        Err(SseError::EventTooLarge)
    );
    assert_eq!(
        run(caps, "data\ndata\ndata\ndata\ndata\ndata\ndata\n"),
        Err(SseError::EventTooLarge)
    );
    assert_eq!(run(caps, "id: abc\nevent: abc\n\n"), Ok(()));
    assert_eq!(run(caps, "id: abcd\n"), Err(SseError::FieldTooLong));
    assert_eq!(run(caps, "event: abcd\n"), Err(SseError::FieldTooLong));
    assert_eq!(
        run(caps, ": a comment may be long\nso-may: an unknown field\n"),
        Ok(())
    );
    let mut input = Bytes::from_static(b"id: \xff\n");
    assert_eq!(
        SseDecoder::new(caps).feed(&mut input),
        Err(SseError::NotUtf8)
    );
}

// Proves D20.
#[test]
fn data_cannot_begin_a_field_or_end_an_event() {
    let mut out = BytesMut::new();
    write_event(
        &mut out,
        Some("1\nid: 2\0"),
        Some(5),
        b"a\n\nevent: evil\rid: 9\r\n\r\ndata: b",
    );
    write_comment(&mut out, "ping\n\ndata: evil");
    let (found, between) = events(&out);
    let data = Bytes::from_static(b"a\n\nevent: evil\nid: 9\n\ndata: b");
    assert!(between);
    assert_eq!(
        found,
        [
            DecodedEvent::Retry(5),
            DecodedEvent::Message {
                event: None,
                id: Some("1id: 2".into()),
                data
            },
            DecodedEvent::Comment
        ]
    );
}

#[test]
fn an_event_is_written_as_expected() {
    let mut out = BytesMut::new();
    write_event(&mut out, None, None, b"{}");
    write_event(&mut out, Some("7"), Some(1500), b"");
    write_comment(&mut out, "");
    write_retry(&mut out, 7);
    write_opening(&mut out, 8);
    assert_eq!(
        out,
        "data: {}\n\nid: 7\nretry: 1500\ndata: \n\n:\n\nretry: 7\n\nretry: 8\n:\n\n"
    );
}

#[test]
fn an_empty_chunk_parts_no_line_break() {
    let mut encoder = StreamEncoder::default();
    let mut out = vec![encoder.begin(None)];
    for chunk in ["a\r", "", "\nb"] {
        encoder.data(Bytes::from_static(chunk.as_bytes()), &mut out);
    }
    out.push(encoder.end());
    assert_eq!(out.concat(), b"data: a\ndata: b\n\n");
}

//! The bytes that a stream holds back, and those it passes unchanged.

use bytes::{Bytes, BytesMut};
use weir_clean::{BIDI_WINDOW, Cleaner, DocumentKind, HELD_MAX};

use crate::{escaped, result};

/// The most bytes that were held back while the text came byte by byte. The text must have no
/// removal.
fn held(json: &str) -> usize {
    let (mut cleaner, mut out, mut most) =
        (Cleaner::new(DocumentKind::ToolResult), BytesMut::new(), 0);
    for (fed, byte) in json.bytes().enumerate() {
        cleaner.feed(&Bytes::copy_from_slice(&[byte]), &mut out);
        most = most.max(fed + 1 - out.len());
    }
    assert_eq!(cleaner.finish(&mut out).total(), 0);
    assert_eq!(out, json.as_bytes());
    most
}

fn spelled(text: &str) -> String {
    result(
        &text
            .chars()
            .map(|one| escaped(one, false))
            .collect::<String>(),
    )
}

#[test]
fn at_most_a_bounded_number_of_bytes_is_held() {
    assert_eq!(
        held(&result("plain text, é and 😀")),
        3,
        "a character that is not whole"
    );
    let flag =
        "\u{e000}\u{e000}\u{e000}\u{1f3f4}\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}";
    let most = held(&spelled(flag));
    assert!((60..=72).contains(&most), "{most}");
    let window = usize::try_from(BIDI_WINDOW).unwrap();
    let pair = format!("\u{2066}{}\u{2069}", "😀".repeat(window - 1));
    let most = held(&spelled(&pair));
    assert!(most > 12 * window - 24 && most <= HELD_MAX, "{most}");
}

#[test]
fn an_opening_control_without_partner_holds_no_more() {
    let (mut cleaner, mut out) = (Cleaner::new(DocumentKind::ToolResult), BytesMut::new());
    let json = result(&format!("\u{202b}{}", spelled_emoji(20_000)));
    for (fed, byte) in json.bytes().enumerate() {
        cleaner.feed(&Bytes::copy_from_slice(&[byte]), &mut out);
        assert!(fed + 1 - out.len() <= HELD_MAX);
    }
    assert_eq!(cleaner.finish(&mut out).bidi, 1);
    assert_eq!(out.len(), json.len() - 3);
}

fn spelled_emoji(count: usize) -> String {
    r"\ud83d\ude00".repeat(count)
}

#[test]
fn kept_bytes_are_slices_of_their_chunk() {
    let json = Bytes::from(result(
        "It’s „plain“ text, \\\"quoted\\\"\\n 中文，標點 \\u00e9 \\ud83d\\ude00 🏴 ☺️",
    ));
    let (mut cleaner, mut out) = (Cleaner::new(DocumentKind::ToolResult), Vec::<Bytes>::new());
    cleaner.feed(&json, &mut out);
    assert_eq!(cleaner.finish(&mut out).total(), 0);
    assert_eq!(out.len(), 1, "one piece");
    assert_eq!(out[0].as_ptr(), json.as_ptr(), "and no copy");

    let json = Bytes::from(result("before\\u001b[31mafter"));
    let (mut cleaner, mut out) = (Cleaner::new(DocumentKind::ToolResult), Vec::<Bytes>::new());
    cleaner.feed(&json, &mut out);
    assert_eq!(cleaner.removed().escapes, 1);
    cleaner.finish(&mut out);
    assert_eq!(out.len(), 2, "the piece before and the piece behind");
    assert_eq!(out.concat(), result("beforeafter").as_bytes());
}

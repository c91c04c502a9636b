//! The cost of clean texts and of the dearest others, to look at: `cargo test --release -p weir-clean -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_clean::{Cleaner, Document, clean};

use crate::result;

/// The shortest of some rounds, a call.
fn time(mut call: impl FnMut()) -> Duration {
    let rounds = (0..20).map(|_| {
        let begin = Instant::now();
        let mut calls = 0;
        while begin.elapsed() < Duration::from_millis(5) {
            call();
            calls += 1;
        }
        begin.elapsed() / calls
    });
    rounds.min().unwrap_or_default()
}

#[test]
#[ignore = "prints times, and proves nothing"]
fn time_for_clean_and_for_dear_texts() {
    let plain = "The quick brown fox jumps over the lazy dog, and then some. ";
    let cases = [
        (
            "ASCII with a few escapes",
            r#"A line of an ordinary text, with a few words.\nAnd \"another\" one, which is longer than this. "#,
        ),
        ("plain ASCII", plain),
        ("JSON in text", r#"{\"name\":\"value\",\"list\":[1,2,3],\"next\":\"more\"},"#),
        ("typographic quotes", "It’s „typographic“ – mostly… "),
        ("Chinese", "中文文本，帶有標點。還有更多的文字，"),
        ("many small blocks", r#"a"},{"type":"text","number":12.5,"text":"b"#),
        ("openers without partner", "\u{202a}"),
        ("isolates full of openers", &format!("\u{2066}{}\u{2069}", "\u{202a}".repeat(300))),
        ("many short sequences", r"\u001b[m"),
        ("backslashes", r"\\\\"),
        ("escaped Chinese", r"\u4e2d\u6587\uff0c\u5e36\u6709"),
    ];
    for size in [1 << 10, 1 << 20] {
        for (name, pattern) in cases {
            let json = Bytes::from(result(&pattern.repeat(size / pattern.len())));
            let search = time(|| {
                black_box(memchr::memchr(0x1b, black_box(&json)));
            });
            let whole = time(|| {
                black_box(clean(Document::ToolResult, black_box(&json)));
            });
            let stream = time(|| {
                let (mut cleaner, mut out) = (Cleaner::new(Document::ToolResult), Vec::<Bytes>::new());
                for start in (0..json.len()).step_by(16 << 10) {
                    cleaner.feed(&json.slice(start..json.len().min(start + (16 << 10))), &mut out);
                }
                black_box(cleaner.finish(&mut out));
            });
            println!("{size:8} bytes, {name:26} memchr {search:>10.1?}  whole {whole:>10.1?}  stream {stream:>10.1?}");
        }
    }
}

//! Answers of child processes that are no valid messages: they fail their calls at once, and
//! nothing else.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_core::upstream::Upstream;

use crate::child::settings;
use crate::fixtures::*;
use crate::stdio_eras::{counted, started, starts_file};

/// Calls a tool that prints this text, in Latin-1, with the id of the call in place of `ID`.
async fn print(upstream: &Arc<dyn Upstream>, text: &str) -> Result<Value, weir_core::Failure> {
    print_both(upstream, text, None).await
}

/// Calls the same tool, which prints the other text later.
async fn print_both(
    upstream: &Arc<dyn Upstream>,
    text: &str,
    then: Option<&str>,
) -> Result<Value, weir_core::Failure> {
    let call = call_anonymously(upstream, "print", json!({"text": text, "then": then}));
    let outcome = async { outcome(call.await).await.end };
    tokio::time::timeout(Duration::from_secs(30), outcome)
        .await
        .unwrap_or_else(|_| panic!("no end of the call that is answered with {text}"))
}

/// Returns a result with this content behind the beginning of a message.
fn result(content: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":ID,"result":{{"resultType":"complete","content":[{content}]}}}}"#
    )
}

#[tokio::test]
async fn unreadable_answer_fails_its_call_at_once() {
    for manner in ["legacy", "modern"] {
        let upstream = build(settings(manner));
        let hanging = call_anonymously(&upstream, "hang", json!({})).await;
        let answers = [
            (result(r#"{"x":NaN}"#), "unexpected character"),
            (result("\"caf\u{e9}\""), "not valid UTF-8"),
            (result("\"a\tb\""), "control character"),
            (
                result(&format!("{}{}", "[".repeat(200), "]".repeat(200))),
                "nested too deeply",
            ),
            (r#"{"id":ID,"result":{}}"#.to_owned(), "`jsonrpc`"),
            (r#"{"result":{},"id":"ID"}"#.to_owned(), "`jsonrpc`"),
            (r#"{"jsonrpc":"2.0","id":ID}"#.to_owned(), "neither"),
            (
                r#"{"jsonrpc":"2.0","id":ID,"result":null}"#.to_owned(),
                "not an object",
            ),
            (result("\"a\nb\""), "control character"),
            (format!("[{}]", result("NaN")), "unexpected character"),
            (r#"[{"id":ID,"result":{}}]"#.to_owned(), "`jsonrpc`"),
        ];
        for (answer, cause) in &answers {
            let failure = print(&upstream, answer).await.unwrap_err();
            assert_eq!(failure.reason(), "bad_answer", "{manner}: {answer}");
            assert!(failure.cause().contains(cause), "{manner}: {failure:?}");
        }
        let health = upstream.health();
        assert!(!health.down, "{manner}: an answer is a sign of life");
        assert_eq!(health.in_flight, 1, "{manner}: the other call goes on");
        drop(hanging);
    }
}

#[tokio::test]
async fn byte_order_mark_before_an_answer_is_ignored() {
    let upstream = build(settings("legacy"));
    let answer = format!(
        "\u{ef}\u{bb}\u{bf}{}",
        result(r#"{"type":"text","text":"a"}"#)
    );
    let result = print(&upstream, &answer).await.unwrap();
    assert_eq!(result["content"][0]["text"], "a");
}

#[tokio::test]
async fn line_that_may_be_no_answer_leaves_its_call_to_the_answer() {
    let upstream = build(settings("legacy"));
    for line in [
        format!("received {}", result("NaN")),
        r#"{"level":50,"id":ID,"error":{"code":1},"msg":"failed"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":ID,"method":"ping","params":{"x":NaN}}"#.to_owned(),
        "{\n \"jsonrpc\": \"2.0\",\n \"id\": ID,\n \"result\": {}\n}".to_owned(),
    ] {
        let real = result(r#"{"type":"text","text":"real"}"#);
        let result = print_both(&upstream, &line, Some(&real)).await.unwrap();
        assert_eq!(result["content"][0]["text"], "real", "{line}");
    }
}

/// Some legacy servers answer a method that they do not know with text that is no message.
#[tokio::test]
async fn unreadable_answer_to_the_probe_leads_to_the_legacy_handshake() {
    let manner = "unreadable-to-discover";
    let starts = starts_file(manner);
    let upstream = build(counted(manner, &starts));
    let echoed = text(call_anonymously(&upstream, "echo", json!({"a": 1})).await).await;
    assert_eq!(echoed, r#"{"a":1}"#);
    assert_eq!(upstream.health().revision, Some("2025-11-25"));
    assert_eq!(started(&starts), 1, "the process that was asked goes on");
}

#[tokio::test]
async fn refusal_of_a_child_that_also_logs_stays_in_the_cause() {
    let upstream = build(settings("refuses-to-begin"));
    let failure = failure(call_anonymously(&upstream, "echo", json!({})).await).await;
    let cause = failure.cause();
    // The refusal, and the line of the error stream.
    for part in ["no licence for weir", "child of manner"] {
        assert!(cause.contains(part), "{cause}");
    }
}

/// Calls of a process go on over a relay after the child went to its successor.
#[tokio::test]
async fn unreadable_answer_fails_the_call_of_the_previous_process() {
    let file = |name| {
        let name = format!("weir-relayed-{}-{name}", std::process::id());
        std::env::temp_dir().join(name)
    };
    let (begun, gate) = (file("begun"), file("gate"));
    let (before, after) = (build(settings("legacy")), build(settings("legacy")));
    let arguments = json!({"text": result("NaN"), "begun": begun, "gate": gate});
    let calling = {
        let before = before.clone();
        tokio::spawn(
            async move { failure(call_anonymously(&before, "print", arguments).await).await },
        )
    };
    while !begun.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for session in before.clone().export_sessions().await {
        after.clone().import_session(session).await;
    }
    assert_eq!(after.health().sessions, 1);
    std::fs::write(&gate, "").unwrap();
    let failure = tokio::time::timeout(Duration::from_secs(30), calling)
        .await
        .expect("the call ends")
        .unwrap();
    for file in [begun, gate] {
        std::fs::remove_file(file).unwrap();
    }
    let shown = format!("{failure:?}");
    assert!(shown.contains("not a valid message"), "{shown}");
}

//! What comes behind a request on the same connection: raw bytes, a body that nobody read, more requests (A08, A09, A25).

use serde_json::{Value, json};

use super::Stage;
use super::framing::parts;
use super::raw::{Line, exchange, good, head, modern, post};
use super::stage::in_time;

#[tokio::test(flavor = "multi_thread")]
async fn a08_an_upgrade_is_never_made() {
    let mut stage = Stage::new().await;
    let (lines, body) = parts("echo");
    let length = format!("Content-Length: {}", body.len());
    for protocol in ["foo", "websocket", "h2c", "TLS/1.0"] {
        let upgrade = format!("Connection: Upgrade\r\nUpgrade: {protocol}");
        // Raw bytes follow, as if the connection were the other protocol's already.
        let bytes =
            head(&stage, "POST /mcp HTTP/1.1", &[&lines, &length, &upgrade]) + &body + "\0\u{1}raw bytes\r\n\r\n";
        let replies = exchange(&stage, bytes.as_bytes()).await;
        let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
        assert!(matches!(statuses[..], [200 | 400] | [200, 400]), "{protocol}: {replies:?}");
        let ran = stage.heard();
        assert_eq!(ran.len(), usize::from(statuses[0] == 200), "{protocol}");
        assert!(ran.iter().all(|call| call.tool() == Some("echo") && call.header("upgrade").is_none()), "{protocol}");
        stage.is_well(protocol).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a08_connect_and_trace_are_405() {
    let mut stage = Stage::new().await;
    let authority = stage.authority();
    for first in [format!("CONNECT {authority} HTTP/1.1"), "TRACE /mcp HTTP/1.1".to_owned()] {
        // What follows would go through the tunnel.
        let bytes = head(&stage, &first, &["Connection: close"]) + &good(&stage, "tools/call", Some("smuggled"), true);
        let replies = exchange(&stage, bytes.as_bytes()).await;
        assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [405], "{first}: {replies:?}");
        assert!(!replies[0].body.contains("Accept:"), "nothing is echoed");
        stage.is_well(&first).await;
    }
}

/// The answer is there before the body is; the body is another request.
#[tokio::test(flavor = "multi_thread")]
async fn a09_the_body_of_a_refused_request_never_becomes_the_next_request() {
    let mut stage = Stage::limited(json!({ "body_bytes": "4KiB" })).await;
    let smuggled = good(&stage, "tools/call", Some("smuggled"), false);
    let far = format!("{}{}", smuggled, " ".repeat(8 << 10));
    for (name, status, lines, body) in [
        ("a foreign origin", 403, "Origin: https://evil.example", smuggled.as_str()),
        ("an encoded body", 415, "Content-Encoding: gzip", &smuggled),
        ("too large a body", 413, "X-Nothing: x", &far),
    ] {
        let length = format!("Content-Length: {}", body.len());
        let mut line = Line::to(&stage).await;
        line.say(head(&stage, "POST /mcp HTTP/1.1", &[lines, &length]).as_bytes()).await.unwrap();
        let first = line.reply().await;
        assert_eq!(first.map(|reply| reply.status), Some(status), "{name}");
        // It may be closed by now: then none of this is read.
        let _ = line.say(body.as_bytes()).await;
        let _ = line.say(good(&stage, "server/discover", None, true).as_bytes()).await;
        let after = line.replies().await;
        assert!(after.len() <= 1, "{name}: {after:?}");
        assert!(
            after.iter().all(|reply| reply.status == 200 && reply.body.contains("supportedVersions")),
            "{name}: {after:?}"
        );
        stage.is_well(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_a_thousand_pipelined_requests_are_answered_in_order() {
    let mut stage = Stage::new().await;
    let line = Line::to(&stage).await;
    let mut bytes = String::new();
    for number in 0..1_000 {
        let (mut lines, body) = modern("server/discover", None, &number.to_string());
        if number == 999 {
            lines.push("Connection: close".to_owned());
        }
        bytes.push_str(&post(&stage, &lines.iter().map(String::as_str).collect::<Vec<_>>(), &body));
    }
    let (read, mut write) = line.stream.into_split();
    let writing = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        write.write_all(bytes.as_bytes()).await.unwrap();
        write
    });
    let text = in_time("every answer", async {
        use tokio::io::AsyncReadExt as _;
        let (mut read, mut text) = (read, String::new());
        read.read_to_string(&mut text).await.unwrap();
        text
    })
    .await;
    drop(writing.await.unwrap());
    let ids: Vec<Value> = text
        .split("\r\n\r\n")
        .filter_map(|part| part.find("{\"").map(|at| &part[at..]))
        .map(|part| {
            serde_json::Deserializer::from_str(part).into_iter::<Value>().next().unwrap().unwrap()["id"].clone()
        })
        .collect();
    assert_eq!(ids, (0..1_000).map(|number| json!(number.to_string())).collect::<Vec<_>>());
    stage.is_well("a thousand pipelined requests").await;
}

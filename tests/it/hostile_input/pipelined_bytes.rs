//! The bytes behind a request on the same connection: raw bytes, an unread body, more requests
//! (A08, A09, A25).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::WeirWithUpstream;
use super::raw_connection::{
    RawConnection, good_request, head, modern_request_parts, post, send_and_read_all,
};
use super::request_framing::call_without_length;
use super::weir_with_upstream::within_timeout;
use crate::harness::wait_until;

/// The time in which weir discards the body of a refused request.
const DISCARD_TIME: Duration = Duration::from_secs(1);

// Proves A08.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_is_never_made() {
    let mut stage = WeirWithUpstream::new().await;
    let (lines, body) = call_without_length("echo");
    let length = format!("Content-Length: {}", body.len());
    for protocol in ["foo", "websocket", "h2c", "TLS/1.0"] {
        let upgrade = format!("Connection: Upgrade\r\nUpgrade: {protocol}");
        // Raw bytes follow, as if the connection had already switched to the other protocol.
        let bytes = head(&stage, "POST /mcp HTTP/1.1", &[&lines, &length, &upgrade])
            + &body
            + "\0\u{1}raw bytes\r\n\r\n";
        let replies = send_and_read_all(&stage, bytes.as_bytes()).await;
        let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
        assert!(
            matches!(statuses[..], [200 | 400] | [200, 400]),
            "{protocol}: {replies:?}"
        );
        let ran = stage.take_client_requests();
        assert_eq!(ran.len(), usize::from(statuses[0] == 200), "{protocol}");
        assert!(
            ran.iter()
                .all(|call| call.tool() == Some("echo") && call.header("upgrade").is_none()),
            "{protocol}"
        );
        stage.assert_still_serving(protocol).await;
    }
}

// Proves A08.
#[tokio::test(flavor = "multi_thread")]
async fn connect_and_trace_are_405() {
    let mut stage = WeirWithUpstream::new().await;
    let authority = stage.authority();
    for first in [
        format!("CONNECT {authority} HTTP/1.1"),
        "TRACE /mcp HTTP/1.1".to_owned(),
    ] {
        // The next request would go through the tunnel.
        let bytes = head(&stage, &first, &["Connection: close"])
            + &good_request(&stage, "tools/call", Some("smuggled"), true);
        let replies = send_and_read_all(&stage, bytes.as_bytes()).await;
        assert_eq!(
            replies.iter().map(|reply| reply.status).collect::<Vec<_>>(),
            [405],
            "{first}: {replies:?}"
        );
        assert!(!replies[0].body.contains("Accept:"), "nothing is echoed");
        stage.assert_still_serving(&first).await;
    }
}

/// The answer comes before the body; the body is another request.
// Proves A09.
#[tokio::test(flavor = "multi_thread")]
async fn the_body_of_a_refused_request_never_becomes_the_next_request() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "body_bytes": "4KiB" })).await;
    let smuggled = good_request(&stage, "tools/call", Some("smuggled"), false);
    let far = format!("{}{}", smuggled, " ".repeat(8 << 10));
    for (name, status, lines, body) in [
        (
            "a foreign origin",
            403,
            "Origin: https://evil.example",
            smuggled.as_str(),
        ),
        ("an encoded body", 415, "Content-Encoding: gzip", &smuggled),
        ("too large a body", 413, "X-Nothing: x", &far),
    ] {
        let length = format!("Content-Length: {}", body.len());
        let mut line = RawConnection::to(&stage).await;
        line.write(head(&stage, "POST /mcp HTTP/1.1", &[lines, &length]).as_bytes())
            .await
            .unwrap();
        let first = line.reply().await;
        assert_eq!(first.map(|reply| reply.status), Some(status), "{name}");
        // The connection may be closed by now: then weir reads none of this.
        let _ = line.write(body.as_bytes()).await;
        let _ = line
            .write(good_request(&stage, "server/discover", None, true).as_bytes())
            .await;
        let after = line.replies().await;
        assert!(after.len() <= 1, "{name}: {after:?}");
        assert!(
            after
                .iter()
                .all(|reply| reply.status == 200 && reply.body.contains("supportedVersions")),
            "{name}: {after:?}"
        );
        stage.assert_still_serving(name).await;
    }
}

/// Waits until weir has read a head and is waiting for the rest.
fn being_answered(stage: &WeirWithUpstream) {
    wait_until("a head to be read", || {
        (stage.weir.metric("http_server_active_requests", &[]) > 0.0).then_some(())
    });
}

/// Many clients write a head and its body in two steps, so the refusal is made while the body is
/// under way.
// Proves A09.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_does_not_cost_the_next_one_its_connection() {
    let mut stage = WeirWithUpstream::new().await;
    let (_, body) = call_without_length("smuggled");
    let length = format!("Content-Length: {}", body.len());
    for (name, status, first, lines) in [
        (
            "a foreign origin",
            403,
            "POST /mcp HTTP/1.1",
            [length.as_str(), "Origin: https://evil.example"],
        ),
        (
            "no such path",
            404,
            "POST /nowhere HTTP/1.1",
            [&length, "X-Nothing: x"],
        ),
        (
            "a verb not taken",
            405,
            "PUT /mcp HTTP/1.1",
            [&length, "X-Nothing: x"],
        ),
        (
            "an encoded body",
            415,
            "POST /mcp HTTP/1.1",
            [&length, "Content-Encoding: gzip"],
        ),
        (
            "two credentials",
            400,
            "POST /mcp HTTP/1.1",
            [&length, "X-Api-Key: a\r\nX-Api-Key: b"],
        ),
        (
            "a chunked body",
            403,
            "POST /mcp HTTP/1.1",
            ["Transfer-Encoding: chunked", "Origin: https://evil.example"],
        ),
    ] {
        let sent = if name == "a chunked body" {
            format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
        } else {
            body.clone()
        };
        let mut line = RawConnection::to(&stage).await;
        for _ in 0..3 {
            let begin = Instant::now();
            line.write(head(&stage, first, &lines).as_bytes())
                .await
                .unwrap();
            being_answered(&stage);
            line.write(sent.as_bytes()).await.unwrap();
            let took = begin.elapsed();
            let reply = line
                .reply()
                .await
                .unwrap_or_else(|| panic!("{name}: closed"));
            assert_eq!(reply.status, status, "{name}");
            if took < DISCARD_TIME {
                assert_eq!(reply.header("connection"), None, "{name}");
            } else {
                // This machine stood still for so long that weir does not wait for the body.
                line = RawConnection::to(&stage).await;
            }
        }
        line.write(good_request(&stage, "server/discover", None, true).as_bytes())
            .await
            .unwrap();
        assert_eq!(
            line.reply().await.map(|reply| reply.status),
            Some(200),
            "{name}"
        );
        stage.assert_still_serving(name).await;
    }
}

// Proves A09.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_before_a_body_that_does_not_come_says_that_it_closes() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "in_flight": 1 })).await;
    for (name, length, waits) in [
        ("a body that never comes", 1_000, true),
        ("a body too large to wait for", 100_000, false),
    ] {
        let length = format!("Content-Length: {length}");
        let mut line = RawConnection::to(&stage).await;
        line.write(
            head(
                &stage,
                "POST /mcp HTTP/1.1",
                &[&length, "Origin: https://evil.example"],
            )
            .as_bytes(),
        )
        .await
        .unwrap();
        // The unread rest of the body holds no permit.
        if waits {
            being_answered(&stage);
        }
        stage.assert_still_serving(name).await;
        let replies = line.replies().await;
        assert!(
            matches!(&replies[..], [reply] if reply.status == 403 && reply.header("connection") == Some("close")),
            "{name}: {replies:?}"
        );
    }
}

// Proves A25.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_pipelined_requests_are_answered_in_order() {
    let mut stage = WeirWithUpstream::new().await;
    let line = RawConnection::to(&stage).await;
    let mut bytes = String::new();
    for number in 0..1_000 {
        let (mut lines, body) = modern_request_parts("server/discover", None, &number.to_string());
        if number == 999 {
            lines.push("Connection: close".to_owned());
        }
        bytes.push_str(&post(
            &stage,
            &lines.iter().map(String::as_str).collect::<Vec<_>>(),
            &body,
        ));
    }
    let (read, mut write) = line.stream.into_split();
    let writing = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        write.write_all(bytes.as_bytes()).await.unwrap();
        write
    });
    let text = within_timeout("every answer", async {
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
            serde_json::Deserializer::from_str(part)
                .into_iter::<Value>()
                .next()
                .unwrap()
                .unwrap()["id"]
                .clone()
        })
        .collect();
    assert_eq!(
        ids,
        (0..1_000)
            .map(|number| json!(number.to_string()))
            .collect::<Vec<_>>()
    );
    stage
        .assert_still_serving("a thousand pipelined requests")
        .await;
}

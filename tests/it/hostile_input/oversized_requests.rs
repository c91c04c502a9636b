//! Requests that are too large, too deep or too wide (A05, A06, B01, B02, R046).

use http::StatusCode;
use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockTool};
use weir_testkit::{MockBehaviour, MockServer};

use super::raw_connection::{RawConnection, good_request, head, send_and_read_all};
use super::request_draft::{assert_refused, assert_refused_unread};
use super::weir_with_upstream::usual_tools;
use super::{RequestDraft, WeirWithUpstream};

/// The growth of weir's memory that is allowed for a body that it refuses, in bytes. weir's own
/// limit is 1 MiB; the rest is for allocators and thread stacks.
const ALLOWED_GROWTH: u64 = 24 << 20;

/// Returns the peak memory of weir, in bytes.
fn peak_memory(stage: &WeirWithUpstream) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", stage.weir.process.id())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn stays_small(stage: &WeirWithUpstream, before: u64, name: &str) {
    let grown = peak_memory(stage).saturating_sub(before);
    assert!(
        grown < ALLOWED_GROWTH,
        "{name}: grew by {} KiB",
        grown >> 10
    );
}

// Proves A05.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_413_whatever_its_framing() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "body_bytes": "64KiB" })).await;
    let client = stage.modern_client();
    let over = |length: usize| {
        let mut draft = RequestDraft::of(
            &client,
            "tools/call",
            json!({ "name": "smuggled", "arguments": {} }),
        );
        let padding = length - draft.body.to_string().len() - "\"pad\":\"\",".len();
        draft.params()["arguments"] = json!({ "pad": "x".repeat(padding + 1) });
        draft
    };
    for (name, http2) in [("h1", false), ("h2", true)] {
        let draft = over((64 << 10) + 100);
        let client = if http2 {
            stage.bare_client().with_http2()
        } else {
            stage.bare_client()
        };
        let exchange = client
            .send(http::Method::POST, draft.headers, draft.body.to_string())
            .await
            .unwrap();
        assert_refused_unread(
            name,
            &exchange.finish().await.unwrap(),
            StatusCode::PAYLOAD_TOO_LARGE,
        );
        stage.assert_still_serving(name).await;
    }
    // Just under the limit the call succeeds.
    let draft = over((64 << 10) - 100);
    assert_eq!(draft.post(&stage).await.status, 200);
    assert_eq!(stage.take_client_requests().len(), 1);
}

// Proves A05.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_body_is_cut_off_and_not_kept() {
    let mut stage = WeirWithUpstream::new().await;
    stage.assert_still_serving("warming up").await;
    let before = peak_memory(&stage);
    for framing in ["Content-Length: 1000000000", "Transfer-Encoding: chunked"] {
        let mut line = RawConnection::to(&stage).await;
        let (mut lines, _) =
            super::raw_connection::modern_request_parts("tools/call", Some("smuggled"), "endless");
        lines.push(framing.to_owned());
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        line.write(head(&stage, "POST /mcp HTTP/1.1", &lines).as_bytes())
            .await
            .unwrap();
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        let mut sent = 0;
        while sent < 64 << 20 && line.write(chunk.as_bytes()).await.is_ok() {
            sent += chunk.len();
        }
        // Bytes already sent fill socket buffers at most: weir did not read 64 MiB.
        assert!(sent < 64 << 20, "{framing}: weir went on reading");
        let replies = line.replies().await;
        assert!(
            replies.len() <= 1 && replies.iter().all(|reply| reply.status == 413),
            "{framing}: {replies:?}"
        );
        stays_small(&stage, before, framing);
        stage.assert_still_serving(framing).await;
    }
}

// Proves A05, A09.
#[tokio::test(flavor = "multi_thread")]
async fn client_that_sends_all_of_a_far_too_large_body_first_gets_its_refusal() {
    const BODY: usize = 20 << 20;
    let stage = WeirWithUpstream::new().await;
    let length = format!("Content-Length: {BODY}");
    let mut request = head(&stage, "POST /mcp HTTP/1.1", &[&length]).into_bytes();
    request.resize(request.len() + BODY, b' ');
    let replies = send_and_read_all(&stage, &request).await;
    assert_eq!(
        replies.iter().map(|reply| reply.status).collect::<Vec<_>>(),
        [413],
        "{replies:?}"
    );
}

// Proves A05.
#[tokio::test(flavor = "multi_thread")]
async fn a_declared_length_over_the_limit_is_413_before_any_of_it_came() {
    let mut stage = WeirWithUpstream::new().await;
    for length in ["1048577", "1073741824", "9223372036854775807"] {
        let length = format!("Content-Length: {length}");
        let replies = send_and_read_all(
            &stage,
            head(&stage, "POST /mcp HTTP/1.1", &[&length]).as_bytes(),
        )
        .await;
        assert_eq!(
            replies.iter().map(|reply| reply.status).collect::<Vec<_>>(),
            [413],
            "{length}: {replies:?}"
        );
        assert_eq!(
            replies[0].header("connection"),
            Some("close"),
            "{length}: {replies:?}"
        );
        stage.assert_still_serving(&length).await;
    }
}

// Proves A06.
#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_is_415_and_never_inflated() {
    let mut stage = WeirWithUpstream::new().await;
    // A gzip header alone: weir must not get as far as the content.
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".to_vec();
    for encoding in [
        "gzip",
        "GZIP",
        "x-gzip",
        "br",
        "zstd",
        "deflate",
        "compress",
        "gzip, identity",
        "identity, br",
        "rot13",
    ] {
        for body in [
            gzip.clone(),
            stage.draft_call().body.to_string().into_bytes(),
        ] {
            let mut draft = stage.draft_call();
            draft.set_header("content-encoding", encoding);
            let answer = stage.send(http::Method::POST, draft.headers, body).await;
            assert_refused_unread(encoding, &answer, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        stage.assert_still_serving(encoding).await;
    }
}

// Proves R046.
#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_head_is_431() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "head_bytes": "16KiB" })).await;
    let long = format!("X-Long: {}", "x".repeat(1 << 20));
    let name = format!("{}: x", "X".repeat(20 << 10));
    let many = (0..101)
        .map(|number| format!("X-{number}: x\r\n"))
        .collect::<String>();
    for (case, lines) in [
        ("a long value", long),
        ("a long name", name),
        ("101 lines", many.trim_end().to_owned()),
    ] {
        let replies = send_and_read_all(
            &stage,
            head(&stage, "POST /mcp HTTP/1.1", &[&lines]).as_bytes(),
        )
        .await;
        // weir reads the rest of the megabyte before it closes the connection.
        assert_eq!(
            replies.iter().map(|reply| reply.status).collect::<Vec<_>>(),
            [431],
            "{case}: {replies:?}"
        );
        stage.assert_still_serving(case).await;
    }
    let replies = send_and_read_all(
        &stage,
        head(
            &stage,
            "POST /mcp HTTP/1.1",
            &[&format!("X-A: {}", "x".repeat(17 << 10))],
        )
        .as_bytes(),
    )
    .await;
    assert_eq!(
        replies.iter().map(|reply| reply.status).collect::<Vec<_>>(),
        [431]
    );
    let path = format!("POST /mcp?{} HTTP/1.1", "x".repeat(200 << 10));
    let replies = send_and_read_all(&stage, head(&stage, &path, &[]).as_bytes()).await;
    assert!(
        replies
            .iter()
            .all(|reply| [414, 431].contains(&reply.status)),
        "{replies:?}"
    );
    stage.assert_still_serving("a long path").await;
    // Below the limits the request is served.
    let padding = format!(
        "X-Padding: {}\r\nConnection: close\r\n",
        "x".repeat(8 << 10)
    );
    let fits = good_request(&stage, "server/discover", None, false).replacen(
        "Content-Type",
        &(padding + "Content-Type"),
        1,
    );
    let replies = send_and_read_all(&stage, fits.as_bytes()).await;
    assert_eq!(
        replies.iter().map(|reply| reply.status).collect::<Vec<_>>(),
        [200]
    );
}

/// Returns a call of `tool` with arguments that make the whole message this deep.
fn nested(stage: &WeirWithUpstream, tool: &str, depth: usize) -> (http::HeaderMap, String) {
    let draft = stage.draft_request(
        "tools/call",
        json!({ "name": tool, "arguments": { "deep": "HERE" } }),
    );
    // The message, its params and the arguments are three levels.
    let arrays = depth - 3;
    let bomb = "[".repeat(arrays) + &"]".repeat(arrays);
    (
        draft.headers,
        draft.body.to_string().replace("\"HERE\"", &bomb),
    )
}

// Proves B01.
#[tokio::test(flavor = "multi_thread")]
async fn depth_64_passes_and_65_does_not() {
    let mut stage = WeirWithUpstream::new().await;
    for depth in [63, 64] {
        let (headers, body) = nested(&stage, "echo", depth);
        assert_eq!(
            stage.send(http::Method::POST, headers, body).await.status,
            200,
            "{depth}"
        );
        assert_eq!(stage.take_client_requests().len(), 1, "{depth}");
    }
    for depth in [65, 66, 127, 128, 129, 1_000, 100_000, 500_000] {
        let (headers, body) = nested(&stage, "smuggled", depth);
        let id: Value = serde_json::from_str::<Value>(
            &body
                .replace(['[', ']'], "")
                .replace("\"deep\":", "\"deep\":0"),
        )
        .unwrap()["id"]
            .clone();
        let answer = stage.send(http::Method::POST, headers, body).await;
        assert_refused(&format!("depth {depth}"), &answer, 400, -32600, &id);
        stage.assert_still_serving(&format!("depth {depth}")).await;
    }
}

// Proves B01.
#[tokio::test(flavor = "multi_thread")]
async fn depth_without_a_message_is_an_error_without_an_id() {
    let mut stage = WeirWithUpstream::new().await;
    for (name, body, code) in [
        ("arrays", "[".repeat(500_000) + &"]".repeat(500_000), -32600),
        ("arrays left open", "[".repeat(1_000_000), -32600),
        ("objects left open", "{\"a\":".repeat(200_000), -32600),
    ] {
        let draft = stage.draft_call();
        let answer = stage.send(http::Method::POST, draft.headers, body).await;
        assert_refused(name, &answer, 400, code, &Value::Null);
        stage.assert_still_serving(name).await;
    }
}

// Proves B01.
#[tokio::test(flavor = "multi_thread")]
async fn a_deep_answer_of_an_upstream_is_its_fault_alone() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":"$id","result":{{"resultType":"complete","content":[],"deep":{deep}}}}}"#
    );
    let bomb = MockBehaviour::steps([AnswerStep::Send(answer)]);
    let upstream = usual_tools(MockServer::modern())
        .with(MockTool::new("deep").does(bomb.clone()))
        .tool("deep_event", bomb.as_events());
    let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    for tool in ["deep", "deep_event"] {
        let answer = stage.modern_client().call(tool, json!({})).await.unwrap();
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_eq!(answer.result()["isError"], true, "{}", answer.last());
        assert_eq!(
            answer.result()["_meta"]["dev.weir/error"]["code"],
            1003,
            "{}",
            answer.last()
        );
        assert_eq!(stage.take_client_requests().len(), 1);
        stage.assert_still_serving(tool).await;
    }
}

// Proves B02.
#[tokio::test(flavor = "multi_thread")]
async fn wide_bodies_are_refused_in_little_memory() {
    let mut stage = WeirWithUpstream::new().await;
    stage.assert_still_serving("warming up").await;
    let before = peak_memory(&stage);
    for (name, unit) in [
        ("numbers", "0,"),
        ("objects", r#"{"":0},"#),
        ("arrays", "[],"),
        ("strings", "\"\","),
    ] {
        let draft = stage.draft_request(
            "tools/call",
            json!({ "name": "smuggled", "arguments": { "wide": "HERE" } }),
        );
        let wide = unit.repeat(1_000_000 / unit.len());
        let body = draft
            .body
            .to_string()
            .replace("\"HERE\"", &format!("[{}]", wide.trim_end_matches(',')));
        for _ in 0..4 {
            let answer = stage
                .send(http::Method::POST, draft.headers.clone(), body.clone())
                .await;
            assert_refused(name, &answer, 400, -32600, &draft.body["id"]);
        }
        stage.assert_still_serving(name).await;
        stays_small(&stage, before, name);
    }
}

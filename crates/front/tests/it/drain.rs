//! The phases of a drain: streams end gracefully; calls may finish, and may be cancelled.

use std::future::ready;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use weir_testkit::RawSocket;
use weir_wire::Revision;

use crate::test_front::{TestFront, in_time, settings};

pub(crate) const LONG_DRAIN: Duration = Duration::from_secs(60);

// Proves R110, R199.
#[tokio::test]
async fn a_drain_ends_streams_with_a_result_and_lets_calls_finish() {
    let world = TestFront::anonymous(settings()).await;
    let client = world.client().modern();
    // The list is known, so that it does not change while the stream is open.
    assert_eq!(client.list_tools().await.unwrap().len(), 4);
    let mut listening = client
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    listening.next_message().await.unwrap().unwrap();
    let mut call = client
        .start_call("wait", json!({}), json!("t"))
        .await
        .unwrap();
    assert_eq!(
        call.next_message().await.unwrap().unwrap()["params"]["progressToken"],
        "t"
    );
    let front = world.front.clone();
    let drained = tokio::spawn(async move { front.drain(LONG_DRAIN, ready(())).await });
    let last = listening.next_message().await.unwrap().unwrap();
    assert_eq!(last["result"]["resultType"], "complete", "{last}");
    assert!(
        last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"].is_number(),
        "{last}"
    );
    assert!(listening.next_message().await.unwrap().is_none());
    world.upstream.release();
    assert_eq!(
        call.next_message().await.unwrap().unwrap()["result"]["content"][0]["text"],
        "waited"
    );
    drop((listening, call));
    drained.await.unwrap();
    assert!(
        client.list_tools().await.is_err(),
        "nothing listens any more"
    );
}

// Proves R095.
#[tokio::test]
async fn ended_stream_sends_retry_to_revisions_that_have_it() {
    let world = TestFront::anonymous(settings()).await;
    // The list is known, so that it does not change while the streams are open.
    assert_eq!(world.client().modern().list_tools().await.unwrap().len(), 4);
    let mut streams = Vec::new();
    for (revision, has_retry) in [
        (Revision::V2025_11_25, true),
        (Revision::V2025_06_18, false),
    ] {
        let client = world.client().legacy(revision).initialize().await.unwrap();
        let first = client.get_stream().await.unwrap();
        // A second stream of a session ends the first; the drain ends the others.
        let second = client.get_stream().await.unwrap();
        streams.extend([(first, has_retry), (second, has_retry)]);
    }
    let front = world.front.clone();
    let drained = tokio::spawn(async move { front.drain(LONG_DRAIN, ready(())).await });
    for (mut stream, has_retry) in streams {
        let mut said = Vec::new();
        while let Some(event) = stream.next_event().await.unwrap() {
            assert_eq!(
                (event.id, event.data.as_str()),
                (None, ""),
                "nothing that anybody has to handle"
            );
            said.extend(event.retry);
        }
        // At the beginning, for clients of a process that is killed, and before the end.
        assert_eq!(said.len(), if has_retry { 2 } else { 0 });
        assert!(said.iter().all(|wait| (1000..=10_000).contains(wait)));
        assert!(said.windows(2).all(|two| two[0] == two[1]));
    }
    drained.await.unwrap();
}

// Proves R212.
#[tokio::test]
async fn call_can_be_cancelled_during_a_drain() {
    let mut world = TestFront::anonymous(settings()).await;
    let alice = world.legacy("alice").await;
    let session = alice.session().unwrap().to_owned();
    // A connection opened before: a draining front accepts no new ones.
    let mut kept = RawSocket::connect(&world.url()).await.unwrap();
    let (headers, mut message) = alice.envelope(
        "tools/call",
        json!({"name": "wait", "_meta": {"progressToken": "t"}}),
    );
    message["id"] = json!("mine");
    let mut call = alice
        .send(http::Method::POST, headers, message.to_string())
        .await
        .unwrap();
    call.next_message().await.unwrap().unwrap();
    let front = world.front.clone();
    let drained = tokio::spawn(async move { front.drain(LONG_DRAIN, ready(())).await });
    // Connections are refused: the drain has begun.
    while tokio::net::TcpStream::connect(world.front.local_addr())
        .await
        .is_ok()
    {
        tokio::task::yield_now().await;
    }
    let body =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"mine"}}"#;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer alice\r\nMcp-Session-Id: {session}\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        world.front.local_addr(),
        body.len()
    );
    kept.write(head.as_bytes()).await.unwrap();
    let answer = kept.read_until("\r\n\r\n").await.unwrap().to_lowercase();
    assert!(
        answer.starts_with("http/1.1 202") && answer.contains("connection: close"),
        "{answer}"
    );
    world.cancelled.recv().await.unwrap();
    assert!(
        call.next_message().await.unwrap().is_none(),
        "no response after a cancel"
    );
    drop((call, kept));
    drained.await.unwrap();
}

#[tokio::test]
async fn call_beyond_the_drain_deadline_is_cancelled_and_its_client_gets_an_answer() {
    for is_modern in [true, false] {
        let mut world = TestFront::anonymous(settings()).await;
        let client = if is_modern {
            world.client().modern()
        } else {
            world.legacy("alice").await
        };
        let mut call = client
            .start_call("wait", json!({}), json!("t"))
            .await
            .unwrap();
        assert_eq!(call.status, StatusCode::OK);
        call.next_message().await.unwrap().unwrap();
        world.front.drain(Duration::ZERO, ready(())).await;
        world.cancelled.recv().await.unwrap();
        let last = call.next_message().await.unwrap().unwrap();
        assert_eq!(last["result"]["isError"], true, "{last}");
        let text = last["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("the call may have run"), "{text}");
        assert!(call.next_message().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn connection_that_waits_when_a_drain_begins_is_served() {
    let world = TestFront::anonymous(settings()).await;
    let url: http::Uri = world.url().parse().unwrap();
    let host = url.authority().unwrap().as_str();
    // No other task runs between these lines, so nothing accepts the connection before the drain.
    let mut waiting = std::net::TcpStream::connect(host).unwrap();
    let request = format!("GET /none HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    waiting.write_all(request.as_bytes()).unwrap();
    let answer = tokio::task::spawn_blocking(move || {
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).map(|_| answer)
    });
    world.front.drain(LONG_DRAIN, ready(())).await;
    let answer = answer.await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[tokio::test]
async fn batch_beyond_the_drain_deadline_gets_an_answer_to_each_call() {
    let world = TestFront::anonymous(settings()).await;
    let client = world.client().legacy(Revision::V2025_03_26);
    let client = client.initialize().await.unwrap();
    let call = |id: &str, tool: &str| {
        let params = json!({ "name": tool, "arguments": { "silent": true } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let batch = json!([call("held", "wait"), call("whole", "echo")]).to_string();
    let (headers, _) = client.envelope("ping", json!({}));
    let batch = client.send(http::Method::POST, headers, batch);
    let drained = async {
        world.upstream.wait_for_calls().await;
        world.front.drain(Duration::ZERO, ready(())).await;
    };
    let (answer, ()) = in_time("the answer", async { tokio::join!(batch, drained) }).await;
    let answer = answer.unwrap().finish().await.unwrap();
    assert_eq!(answer.messages.len(), 2, "{:?}", answer.messages);
    let text = |at: usize| answer.messages[at]["result"]["content"][0]["text"].to_string();
    assert!(text(0).contains("the call may have run"), "{}", text(0));
    assert!(text(1).contains("echo"), "{}", text(1));
}

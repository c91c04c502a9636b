//! Panics: each ends only the request it happens in.

use http::StatusCode;
use serde_json::json;
use weir_wire::error_code;

use crate::test_front::{TestFront, settings};

#[tokio::test]
async fn a_panic_before_the_answer_is_a_500_for_that_request_alone() {
    let world = TestFront::anonymous(settings()).await;
    let answer = world
        .modern("panic")
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.code(), error_code::INTERNAL_ERROR);
    assert_eq!(
        answer.error()["data"]["requestId"].as_str(),
        answer.header("x-request-id")
    );
    assert_eq!(world.modern("alice").list_tools().await.unwrap().len(), 4);
}

/// Two answers share an HTTP/2 connection; one of them panics.
#[tokio::test]
async fn panic_in_an_answer_does_not_affect_others_on_its_connection() {
    let world = TestFront::anonymous(settings()).await;
    let client = world.client().modern();
    let stream = tokio::net::TcpStream::connect(world.front.local_addr())
        .await
        .unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (sender, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let send = |tool: &str| {
        let params = json!({"name": tool, "arguments": {}, "_meta": {"progressToken": 1}});
        let (headers, message) = client.envelope("tools/call", params);
        let body = http_body_util::Full::new(bytes::Bytes::from(message.to_string()));
        let mut request = http::Request::post(world.url()).body(body).unwrap();
        *request.headers_mut() = headers;
        sender.clone().send_request(request)
    };
    use http_body_util::BodyExt as _;
    let mut waiting = send("wait").await.unwrap().into_body();
    let first = waiting.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"data: "), "{first:?}");
    // The reset may overtake the head.
    if let Ok(broken) = send("boom").await {
        assert!(
            broken.into_body().collect().await.is_err(),
            "the answer breaks off"
        );
    }
    world.upstream.release();
    let rest = waiting.collect().await.unwrap().to_bytes();
    assert!(
        rest.ends_with(b"\n\n") && String::from_utf8_lossy(&rest).contains("waited"),
        "{rest:?}"
    );
    drop(sender);
    drop(connection.await);
}

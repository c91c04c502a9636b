//! Memory pressure: new requests are refused, open ones go on.

use http::StatusCode;
use serde_json::json;
use weir_front::MemoryPressure;

use crate::test_front::{TestFront, settings};

// Proves F10.
#[tokio::test]
async fn memory_pressure_ends_connections_then_refuses_new_requests_and_keeps_open_ones() {
    let world = TestFront::with_tokens(settings()).await;
    let (alice, session) = (world.modern("alice"), world.legacy("alice").await);
    let mut stream = alice
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    assert_eq!(
        stream.next_message().await.unwrap().unwrap()["method"],
        "notifications/subscriptions/acknowledged"
    );
    let mut call = alice.start_call("wait", json!({}), json!(1)).await.unwrap();
    assert_eq!(
        call.next_message().await.unwrap().unwrap()["method"],
        "notifications/progress"
    );
    let pressure = world.front.pressure();
    let list = async || {
        let answer = alice.ask("tools/list", json!({})).await.unwrap();
        (
            answer.status,
            answer.header("connection").map(str::to_owned),
            answer.header("retry-after").map(str::to_owned),
        )
    };
    let close = || Some("close".to_owned());
    assert_eq!(list().await, (StatusCode::OK, None, None));
    pressure.set(MemoryPressure::Near);
    assert_eq!(
        list().await,
        (StatusCode::OK, close(), None),
        "served, and the connection with it is over"
    );
    pressure.set(MemoryPressure::Acute);
    assert_eq!(
        list().await,
        (
            StatusCode::SERVICE_UNAVAILABLE,
            close(),
            Some("1".to_owned())
        )
    );
    assert_eq!(
        session.get_stream().await.unwrap().status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    // Requests that end a session still pass: they free memory.
    assert!(session.delete().await.unwrap().status.is_success());
    world.upstream.release();
    world.upstream.release();
    let last = call.next_message().await.unwrap().unwrap();
    assert_eq!(last["result"]["content"][0]["text"], "waited", "{last}");
    tokio::select! {
        biased;
        ended = stream.next_message() => panic!("{ended:?}"),
        () = std::future::ready(()) => {}
    }
    pressure.set(MemoryPressure::None);
    assert_eq!(list().await, (StatusCode::OK, None, None));
}

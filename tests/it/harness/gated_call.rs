//! A call that runs while a test breaks or resumes its stream.

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, HttpExchange, RawClient};

use super::within_test_timeout;

/// Begins a call of the tool `gated`, which waits for a gate after a progress notification. Returns
/// its stream after the notification, and the event id of that.
///
/// # Panics
///
/// The stream does not begin with the notification.
pub async fn begin_gated_call(client: &RawClient) -> (HttpExchange, String) {
    let meta = json!({ "progressToken": 1 });
    let params = json!({ "name": "gated", "arguments": { "n": 1 }, "_meta": meta });
    let sent = within_test_timeout("tools/call", client.request("tools/call", params)).await;
    let mut exchange = sent.unwrap();
    loop {
        let event = within_test_timeout("an event", exchange.next_event()).await;
        let event = event.unwrap().unwrap();
        if !event.data.is_empty() {
            let message: Value = serde_json::from_str(&event.data).unwrap();
            assert_eq!(message["method"], "notifications/progress");
            return (exchange, event.id.unwrap());
        }
    }
}

/// Resumes a stream after this event, and reads it to its end.
pub async fn resume_to_end(client: &RawClient, event: &str) -> ClientAnswer {
    let resuming = client.clone().with_header("last-event-id", event);
    let resumed = within_test_timeout("GET", resuming.get_stream())
        .await
        .unwrap();
    within_test_timeout("the rest", resumed.finish())
        .await
        .unwrap()
}

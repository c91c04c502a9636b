//! The end of clients while their sessions are opened.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;
use weir_testkit::scripted_server::{ScriptedRequest, ScriptedServer, ServerAct};

use super::*;
use crate::tests::test_upstream::TestUpstream;

const CLIENT: SessionKey = SessionKey([1; 16]);

fn answer(request: &ScriptedRequest) -> ServerAct {
    let result = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let body = json!({ "jsonrpc": "2.0", "id": request.id(), "result": result }).to_string();
    let head = match request.method() {
        "initialize" => "200 OK\r\nmcp-session-id: one\r\ncontent-type: application/json",
        _ => "202 Accepted",
    };
    let length = body.len();
    let response = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
    ServerAct::Write(response.into())
}

#[tokio::test]
async fn session_of_a_client_that_ends_during_its_opening_is_deleted() {
    let known = Arc::new(OnceLock::<Arc<SessionPool>>::new());
    let found = known.clone();
    let server = ScriptedServer::start(move |request| {
        if request.method() == "initialize" {
            let pool = found.get().unwrap();
            pool.forward_session_news(&HashSet::from([CLIENT]), ClientSessionChange::Ended);
        }
        vec![answer(request)]
    })
    .await;
    let TestUpstream { site, http, .. } = TestUpstream::new(&server);
    let revision = Revision::parse("2025-11-25").unwrap();
    let pool = SessionPool::new(site.clone(), http, revision, SessionSharing::Principal);
    known.set(pool.clone()).unwrap();
    let key = SessionPoolKey {
        principal: None,
        class: CapabilityClass::BASE,
        session: Some(CLIENT),
    };
    let slot = pool.slots.free_slot(&key, 0).unwrap();
    pool.session(&slot, &key, None).await.unwrap();
    site.tasks.stop(Duration::from_secs(60)).await;
    let requests = server.requests();
    let deleted = requests
        .iter()
        .filter(|request| request.head.starts_with("DELETE"));
    assert_eq!(deleted.count(), 1);
}

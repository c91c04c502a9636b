//! How weir proves itself to servers, over the whole of weir: what goes out, what does not, and what a client hears when a
//! server refuses.

use serde_json::{Value, json};
use weir_testkit::{Answer, Mockup, TokenServer};
use weir_wire::Revision;

use crate::harness::{Checked, Weir};

const REVISIONS: [Revision; 3] = [Revision::V2025_03_26, Revision::V2025_11_25, Revision::MODERN];
const SECRET: &str = "CANARY-of-the-oauth-client";

/// weir in front of one server, with a client of its own at an authorization server.
fn weir(upstream: &Mockup, authority: &TokenServer, mode: &str) -> Weir {
    let auth = json!({ "mode": mode, "issuer": authority.issuer(), "client_id": "weir", "client_secret": SECRET });
    Weir::over(json!({ "one": { "url": upstream.url(), "auth": auth } }))
}

/// weir's own error in the result of a call.
fn told(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "R251: a server's refusal is none of the client: {:?}", answer.body);
    assert!(answer.header("www-authenticate").is_none(), "R251: {:?}", answer.headers);
    answer.result()["_meta"]["dev.weir/error"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c20_r250_r251_servers_get_weirs_tokens_alone_and_their_refusals_stay_here() {
    for builder in [Mockup::modern(), Mockup::legacy(Revision::NEWEST_LEGACY)] {
        let (upstream, authority) = (builder.tools(2).start().await, TokenServer::start().await);
        upstream.accept_only(&["Bearer token-1"]);
        let weir = weir(&upstream, &authority, "client_credentials");
        weir.until_listed("/mcp", &["one__tool_0000"]);
        let mut clients = Vec::new();
        for revision in REVISIONS {
            let client = Checked::open(&weir.url("/mcp"), revision).await;
            assert_eq!(client.names().await.len(), 2);
            let result = client.call("one__tool_0001", json!({ "a": 1 })).await;
            assert_eq!(result.result().get("isError"), None, "{:?}", result.body);
            clients.push(client);
        }
        let mut requests = upstream.requests();
        requests.retain(|request| request.header("authorization").is_none());
        assert!(requests.iter().all(|request| request.method() == "ping" || request.verb == "GET"), "{requests:?}");
        assert_eq!(authority.requests().len(), 1);

        let ran = upstream.total_executions();
        upstream.accept_only(&[]);
        upstream.challenge(b"Bearer realm=\"CANARY\", resource_metadata=\"http://127.0.0.1:1/\"");
        for client in &clients {
            let answer = client.call("one__tool_0001", json!({})).await;
            let error = told(&answer);
            assert_eq!((&error["reason"], &error["upstream"]), (&json!("unavailable"), &json!("one")), "{error}");
            assert!(answer.text().contains("credentials"), "{}", answer.text());
            assert!(!String::from_utf8_lossy(&answer.body).contains("CANARY"), "C19");
            assert_eq!(client.names().await.len(), 2, "R251: never an empty list");
        }
        assert_eq!(upstream.total_executions(), ran);
        assert_eq!(upstream.requests_with("CANARY").len(), 0);
        let log = weir.process.said();
        for secret in ["CANARY", "Bearer token-", "token-1"] {
            assert!(!log.contains(secret), "R219 {secret}: {log}");
        }
        assert!(!weir.admin("/metrics").contains("CANARY"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r270_a_server_that_is_called_in_its_callers_names_serves_nobody_else() {
    let (upstream, authority) = (Mockup::modern().tools(1).start().await, TokenServer::start().await);
    let weir = weir(&upstream, &authority, "token_exchange");
    weir.until_listed("/mcp", &["one__tool_0000"]);
    for revision in REVISIONS {
        // It shows a token, but weir asked for none and verified none.
        let client = Checked::open(&weir.url("/mcp"), revision).await;
        let answer = client.call("one__tool_0000", json!({})).await;
        assert_eq!(told(&answer)["reason"], "denied", "{:?}", answer.body);
    }
    assert_eq!(upstream.total_executions(), 0);
    let asked = authority.requests();
    assert!(asked.iter().all(|request| !request.form.contains_key("subject_token")), "{asked:?}");
}

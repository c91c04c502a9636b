//! weir's own authentication at servers, over the whole of weir: the credentials that it sends,
//! those that it does not, and the errors of a client if a server refuses.

mod shared_credential_urls;

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, IdentityProvider, MockServer, RawClient, TokenServer};
use weir_wire::Revision;

use crate::harness::{CheckedClient, Weir};

const REVISIONS: [Revision; 3] = [
    Revision::V2025_03_26,
    Revision::V2025_11_25,
    Revision::MODERN,
];
const SECRET: &str = "CANARY-of-the-oauth-client";

/// Starts weir in front of one server, with a client of its own at an authorization server.
fn weir(upstream: &MockServer, authority: &TokenServer, mode: &str) -> Weir {
    let auth = json!({ "mode": mode, "issuer": authority.issuer(), "client_id": "weir", "client_secret": SECRET });
    Weir::with_upstreams(json!({ "one": { "url": upstream.url(), "auth": auth } }))
}

/// Returns weir's own error in the result of a call.
fn own_error(answer: &ClientAnswer) -> Value {
    assert_eq!(
        answer.status, 200,
        "R251: a server's refusal is none of the client: {:?}",
        answer.body
    );
    assert!(
        answer.header("www-authenticate").is_none(),
        "R251: {:?}",
        answer.headers
    );
    answer.result()["_meta"]["dev.weir/error"].clone()
}

// Proves C20, R250, R251.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_get_weirs_tokens_alone_and_their_refusals_stay_here() {
    for builder in [
        MockServer::modern(),
        MockServer::legacy(Revision::NEWEST_LEGACY),
    ] {
        let (upstream, authority) = (builder.tools(2).start().await, TokenServer::start().await);
        upstream.accept_only(&["Bearer token-1"]);
        let weir = weir(&upstream, &authority, "client_credentials");
        weir.wait_until_listed("/mcp", &["one__tool_0000"]);
        let mut clients = Vec::new();
        for revision in REVISIONS {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            assert_eq!(client.list_tool_names().await.len(), 2);
            let result = client.call("one__tool_0001", json!({ "a": 1 })).await;
            assert_eq!(result.result().get("isError"), None, "{:?}", result.body);
            clients.push(client);
        }
        let mut requests = upstream.requests();
        requests.retain(|request| request.header("authorization").is_none());
        assert!(
            requests
                .iter()
                .all(|request| request.method() == "ping" || request.verb == "GET"),
            "{requests:?}"
        );
        assert_eq!(authority.requests().len(), 1);

        let ran = upstream.total_executions();
        upstream.accept_only(&[]);
        upstream
            .set_challenge(b"Bearer realm=\"CANARY\", resource_metadata=\"http://127.0.0.1:1/\"");
        for client in &clients {
            let answer = client.call("one__tool_0001", json!({})).await;
            let error = own_error(&answer);
            assert_eq!(
                (&error["reason"], &error["upstream"]),
                (&json!("unavailable"), &json!("one")),
                "{error}"
            );
            assert!(answer.text().contains("credentials"), "{}", answer.text());
            assert!(
                !String::from_utf8_lossy(&answer.body).contains("CANARY"),
                "C19"
            );
            assert_eq!(
                client.list_tool_names().await.len(),
                2,
                "R251: never an empty list"
            );
        }
        assert_eq!(upstream.total_executions(), ran);
        assert_eq!(upstream.requests_with("CANARY").len(), 0);
        let log = weir.process.output();
        for secret in ["CANARY", "Bearer token-", "token-1"] {
            assert!(!log.contains(secret), "R219 {secret}: {log}");
        }
        assert!(!weir.get_admin_page("/metrics").contains("CANARY"));
    }
}

// Proves R270.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_exchange_upstream_refuses_callers_without_a_verified_token() {
    let (upstream, authority) = (
        MockServer::modern().tools(1).start().await,
        TokenServer::start().await,
    );
    let weir = weir(&upstream, &authority, "token_exchange");
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    for revision in REVISIONS {
        // It sends a token, but weir demanded no token and verified no token.
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let answer = client.call("one__tool_0000", json!({})).await;
        assert_eq!(own_error(&answer)["reason"], "denied", "{:?}", answer.body);
    }
    assert_eq!(upstream.total_executions(), 0);
    let asked = authority.requests();
    assert!(
        asked
            .iter()
            .all(|request| !request.form.contains_key("subject_token")),
        "{asked:?}"
    );
}

// Proves C20, R250, R254.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_callers_token_is_exchanged_and_never_passed_on() {
    for builder in [
        MockServer::modern(),
        MockServer::legacy(Revision::NEWEST_LEGACY),
    ] {
        let (upstream, authority) = (builder.tools(1).start().await, TokenServer::start().await);
        let idp = IdentityProvider::start().await;
        let auth = json!({
            "mode": "token_exchange", "issuer": authority.issuer(), "client_id": "weir", "client_secret": SECRET,
        });
        let weir = Weir::with_config(json!({
            "auth": { "mode": "oauth", "issuers": [{ "issuer": idp.issuer() }] },
            "upstreams": { "one": { "url": upstream.url(), "auth": auth } },
        }));
        let url = weir.url("/mcp");
        let tokens = ["ada", "bob"].map(|who| idp.token(who, &url));
        for token in &tokens {
            call_in_each_era(&url, token).await;
        }
        let exchanged = authority
            .requests()
            .into_iter()
            .filter_map(|mut asked| asked.form.remove("subject_token"));
        assert_eq!(exchanged.collect::<Vec<_>>(), tokens, "each once");
        let calls = upstream.requests_of("tools/call");
        let shown: Vec<_> = calls
            .iter()
            .map(|request| request.header("authorization").unwrap())
            .collect();
        let (ada, bob) = shown.split_at(3);
        assert!(
            ada == [ada[0]; 3] && bob == [bob[0]; 3] && ada[0] != bob[0],
            "R254: {shown:?}"
        );
        for secret in tokens.iter().map(String::as_str).chain(["CANARY"]) {
            assert_eq!(upstream.requests_with(secret).len(), 0, "R250");
            assert!(!weir.process.output().contains(secret), "R219");
            assert!(!weir.get_admin_page("/metrics").contains(secret));
        }
    }
}

/// Makes three calls with one token, and ends the legacy session among them.
async fn call_in_each_era(url: &str, token: &str) {
    let client = RawClient::new(url).with_header("authorization", &format!("Bearer {token}"));
    let modern = client.clone().modern();
    let legacy = client
        .legacy(Revision::V2025_06_18)
        .initialize()
        .await
        .unwrap();
    for client in [&modern, &legacy, &modern] {
        let answer = client
            .call("one__tool_0000", json!({ "a": 1 }))
            .await
            .unwrap();
        assert_eq!(
            answer.result()["structuredContent"],
            json!({ "a": 1 }),
            "{:?}",
            answer.body
        );
    }
    assert!((200..300).contains(&legacy.delete().await.unwrap().status.as_u16()));
}

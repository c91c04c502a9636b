//! Sessions: a lost upstream session is opened again and never answered with an empty "success",
//! and a session cannot be used by another client.

use serde_json::{Value, json};
use weir_testkit::MockBehaviour;
use weir_wire::Revision;

use super::{BOTH, mock_server, own_error, wait_until_called, weir_over};
use crate::harness::{CheckedClient, Weir, wait_until_async};

/// Upstream sessions that are lost, at servers that answer 404 and at servers that answer 400.
// Proves E10, R077.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_upstream_sessions_are_opened_again_and_each_call_runs_once() {
    for status in [404, 400] {
        let upstream = mock_server(Revision::NEWEST_LEGACY)
            .tools(1)
            .lost_session_status(status)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            assert_eq!(
                client
                    .call("one__tool_0000", json!({ "n": 0 }))
                    .await
                    .text(),
                r#"{"n":0}"#
            );
            let (ran, opened) = (
                upstream.executions("tool_0000"),
                upstream.requests_of("initialize").len(),
            );
            upstream.drop_sessions();
            let mut calls = tokio::task::JoinSet::new();
            for n in 1..=20 {
                let client = client.clone();
                calls.spawn(
                    async move { (n, client.call("one__tool_0000", json!({ "n": n })).await) },
                );
            }
            while let Some(call) = calls.join_next().await {
                let (n, answer) = call.unwrap();
                assert_eq!(
                    answer.text(),
                    format!(r#"{{"n":{n}}}"#),
                    "{status} {revision:?}: never an empty success"
                );
            }
            assert_eq!(
                upstream.executions("tool_0000"),
                ran + 20,
                "{status} {revision:?}: one execution each"
            );
            let reopened = upstream.requests_of("initialize");
            assert!(
                reopened.iter().all(|request| request.session().is_none()),
                "R077: initialize has no session"
            );
            // One for the calls, single-flight; the listen stream opens its own, and learns of the
            // loss without a status.
            assert!(
                reopened.len() <= opened + 3,
                "{status}: {} after {opened}",
                reopened.len()
            );
        }
    }
}

/// On the endpoint of one server a client's session has one there from its beginning, unless
/// another client's would have to end for it. Clients of several servers, and those without
/// sessions, have none before they call.
// Proves R202.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_one_server_has_a_session_there_before_its_first_call() {
    let upstream = mock_server(Revision::NEWEST_LEGACY).tools(1).start().await;
    let weir = Weir::with_upstreams(
        json!({ "one": { "url": upstream.url(), "limits": { "sessions": 1 } } }),
    );
    weir.wait_until_listed("/mcp/one", &["tool_0000"]);
    for path in ["/mcp", "/mcp/one"] {
        CheckedClient::open(&weir.url(path), Revision::MODERN)
            .await
            .list_tool_names()
            .await;
    }
    CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY)
        .await
        .list_tool_names()
        .await;
    let opened = || upstream.requests_of("initialize").len();
    let before = opened();
    let first = CheckedClient::open(&weir.url("/mcp/one"), Revision::NEWEST_LEGACY).await;
    wait_until_async("its session", async || (opened() > before).then_some(())).await;
    CheckedClient::open(&weir.url("/mcp/one"), Revision::NEWEST_LEGACY)
        .await
        .list_tool_names()
        .await;
    assert!(
        first
            .call("tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    assert_eq!(
        opened(),
        before + 1,
        "the first client called in its session, and the second has no place"
    );
}

// Proves E10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_upstream_is_used_without_an_error() {
    let mut upstream = mock_server(Revision::NEWEST_LEGACY).tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in BOTH {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        assert!(
            client
                .call("one__tool_0000", json!({}))
                .await
                .result()
                .is_object()
        );
        upstream.restart().await;
        let ran = upstream.executions("tool_0000");
        let answer = client
            .call("one__tool_0000", json!({ "after": true }))
            .await;
        assert_eq!(answer.text(), r#"{"after":true}"#, "{:?}", answer.last());
        assert_eq!(upstream.executions("tool_0000"), ran + 1);
    }
}

// Proves E10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_cannot_be_opened_again_is_an_error_and_never_an_empty_success() {
    let upstream = mock_server(Revision::NEWEST_LEGACY).tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert!(
        client
            .call("one__tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    let ran = upstream.executions("tool_0000");
    upstream.add_rule(
        "initialize",
        usize::MAX,
        MockBehaviour::status(500, "text/plain", "no"),
    );
    upstream.drop_sessions();
    let refused = client.call("one__tool_0000", json!({})).await;
    assert_eq!(own_error(&refused)["code"], 1002, "E11: {}", refused.last());
    assert_eq!(upstream.executions("tool_0000"), ran);
    upstream.clear_rules();
    wait_until_called(&client, "one__tool_0000").await;
}

// Proves R075, R076, R079.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_session_is_opened_as_its_revision_says() {
    for revision in Revision::LEGACY {
        let upstream = mock_server(revision).tools(1).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        for _ in 0..3 {
            assert!(
                client
                    .call("one__tool_0000", json!({}))
                    .await
                    .result()
                    .is_object()
            );
        }
        let mut ids = std::collections::HashSet::new();
        for request in upstream.requests() {
            match request.method() {
                "initialize" => {
                    assert_eq!(
                        request.message["params"]["capabilities"],
                        json!({}),
                        "told of nothing weir cannot carry"
                    );
                    assert!(
                        request.message["params"]["clientInfo"]["name"].is_string(),
                        "R072"
                    );
                }
                "server/discover" => {}
                _ => {
                    assert!(request.session().is_some(), "R076: {request:?}");
                    let version = revision.has_version_header().then_some(revision.as_str());
                    assert_eq!(
                        request.header("mcp-protocol-version"),
                        version,
                        "R075: {request:?}"
                    );
                }
            }
            assert!(!request.message.is_array(), "R079: no batches");
            if let Some(id) = request
                .message
                .get("id")
                .filter(|_| request.session().is_some())
            {
                let fresh = ids.insert((request.session().map(str::to_owned), id.to_string()));
                assert!(fresh, "R106: an id twice in a session: {request:?}");
            }
        }
    }
}

// Proves R081, R084.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_sessions_are_unguessable_and_end() {
    let upstream = mock_server(Revision::MODERN).tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let url = weir.url("/mcp");
    let mut ids = std::collections::HashSet::new();
    for _ in 0..50 {
        let client = CheckedClient::open(&url, Revision::NEWEST_LEGACY).await;
        let id = client.raw().session().unwrap().to_owned();
        assert!(
            id.bytes().all(|byte| (0x21..=0x7E).contains(&byte)),
            "R081: {id}"
        );
        assert!(id.len() >= 22, "R082: at least 128 bits: {id}");
        assert!(ids.insert(id));
    }
    let client = CheckedClient::open(&url, Revision::NEWEST_LEGACY).await;
    let ended = client.raw().delete().await.unwrap();
    assert!(ended.status.is_success(), "R087: {}", ended.status);
    let dead = client.raw().ask("tools/list", json!({})).await.unwrap();
    assert_eq!(dead.status, 404, "R084");
    let unknown = weir_testkit::RawClient::new(&url).with_header("mcp-session-id", &"A".repeat(43));
    let (headers, _) = client.raw().envelope("tools/list", Value::Null);
    let accept = headers["accept"].to_str().unwrap();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let post = |session: Option<&'static str>| {
        let mut headers = vec![("accept", accept), ("content-type", "application/json")];
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        let (unknown, body) = (unknown.clone(), body.clone());
        async move {
            unknown
                .post_raw(&headers, body)
                .await
                .unwrap()
                .status
                .as_u16()
        }
    };
    assert_eq!(
        post(Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")).await,
        404,
        "R085"
    );
    assert_eq!(
        post(None).await,
        400,
        "R083, D05: no session is not the only session"
    );
    assert_eq!(upstream.total_executions(), 0);
}

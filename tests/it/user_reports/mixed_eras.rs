//! Both eras at once: one legacy server must not make an endpoint legacy, nor one client's revision
//! change another's.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{mock_server, weir_over};
use crate::harness::{CheckedClient, Weir, wait_until_async};

// Proves R062.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_every_revision_at_once_on_one_endpoint() {
    let old = mock_server(Revision::V2024_11_05)
        .tool("echo", MockBehaviour::progress(1))
        .start()
        .await;
    let new = MockServer::modern()
        .tool("echo", MockBehaviour::progress(1))
        .start()
        .await;
    let weir = weir_over(&[("old", &old), ("new", &new)]);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..20 {
        let url = weir.url("/mcp");
        clients.spawn(async move {
            let client = CheckedClient::open(&url, Revision::ALL[number % 5]).await;
            for round in 0..5 {
                assert_eq!(
                    client.list_tool_names().await,
                    ["old__echo", "new__echo"],
                    "config order"
                );
                for tool in ["old__echo", "new__echo"] {
                    let arguments = json!({ "client": number, "round": round });
                    let answer = client
                        .call_with_token(tool, arguments.clone(), &json!(round))
                        .await;
                    assert_eq!(
                        serde_json::from_str::<Value>(answer.text()).unwrap(),
                        arguments
                    );
                }
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(
        (old.counts("echo").completed, new.counts("echo").completed),
        (100, 100)
    );
}

// Proves R007, R063.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modern_request_with_the_id_of_an_open_session_leaves_the_session_as_it_was() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let legacy = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
    let session = legacy.raw().session().unwrap().to_owned();
    let modern = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let modern = modern.with_header("mcp-session-id", &session);
    let answer = modern.call("one__tool_0000", json!({})).await;
    assert_eq!(answer.header("mcp-session-id"), None, "not echoed");
    assert!(answer.result().is_object());
    assert_eq!(legacy.ask("ping", Value::Null).await.result(), &json!({}));
}

// Proves R051, R056.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discover_and_initialize_advertise_tools_even_with_upstreams_down() {
    let mut down = MockServer::modern().tools(1).start().await;
    down.stop().await;
    let up = mock_server(Revision::V2025_06_18).tools(1).start().await;
    for upstreams in [
        vec![("up", &up)],
        vec![("down", &down)],
        vec![("up", &up), ("down", &down)],
    ] {
        let weir = weir_over(&upstreams);
        let modern = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        let found = modern.ask("server/discover", json!({})).await;
        assert_eq!(
            found.result()["capabilities"]["tools"],
            json!({ "listChanged": true })
        );
        assert!(
            found.result()["supportedVersions"]
                .as_array()
                .unwrap()
                .contains(&json!("2026-07-28"))
        );
        assert!(
            found.result()["_meta"][weir_wire::meta::SERVER_INFO]["name"].is_string(),
            "R053"
        );
        // weir does not deny features of a server that it has not reached yet.
        let unknown = upstreams.iter().any(|(id, _)| *id == "down");
        let ttl = found.result()["ttlMs"].as_u64().unwrap();
        assert_eq!(
            ttl == 0,
            unknown,
            "kept until something changes: {}",
            found.last()
        );
        for perhaps in ["prompts", "resources", "completions"] {
            let offered = found.result()["capabilities"].get(perhaps).is_some();
            assert_eq!(offered, unknown, "{}", found.last());
        }
        for method in ["prompts/list", "resources/list", "resources/templates/list"] {
            let answer = modern.ask(method, json!({})).await;
            match unknown {
                true => assert_eq!(answer.status.as_u16(), 200, "{method}: {:?}", answer.last()),
                false => assert_eq!(
                    (answer.status.as_u16(), answer.code()),
                    (404, -32601),
                    "R030"
                ),
            }
        }
        let opened = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
        assert_eq!(
            opened.ask("ping", Value::Null).await.result(),
            &json!({}),
            "R104"
        );
    }
}

// Proves R068, R069.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_changes_its_era_is_found_out_again() {
    let legacy = mock_server(Revision::NEWEST_LEGACY).tools(1).start().await;
    let modern = MockServer::modern().tools(1).start().await;
    let proxy = weir_testkit::FaultProxy::start(legacy.address()).await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": proxy.url("/mcp") } }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert!(
        client
            .call("one__tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    for (other, calls) in [(&modern, 1), (&legacy, 2)] {
        proxy.retarget(other.address());
        proxy.reset_all();
        wait_until_async("a call to reach the other one", async || {
            // The first call may still be made in the old revision, and the new server refuses it
            // in its own way.
            let answer = client.call("one__tool_0000", json!({})).await;
            let good = answer.last().get("result").is_some() && super::own_error(&answer).is_null();
            (good && other.executions("tool_0000") >= calls).then_some(())
        })
        .await;
    }
}

// Proves R068, E17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_answer_decides_the_era_of_the_server() {
    let refusals = [
        (
            "an error",
            MockBehaviour::error(-32601, "no such method", Value::Null),
        ),
        (
            "a bad request",
            MockBehaviour::status(400, "text/plain", "Bad Request"),
        ),
        (
            "not found",
            MockBehaviour::status(404, "text/html", "<html></html>"),
        ),
        ("not allowed", MockBehaviour::status(405, "text/plain", "")),
        (
            "bad params",
            MockBehaviour::error(-32602, "no", Value::Null),
        ),
    ];
    for (name, refusal) in refusals {
        let upstream = mock_server(Revision::V2025_06_18)
            .tools(1)
            .with_rule("server/discover", refusal)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        assert_eq!(client.list_tool_names().await, ["one__tool_0000"], "{name}");
        assert!(
            client
                .call("one__tool_0000", json!({}))
                .await
                .result()
                .is_object(),
            "{name}"
        );
    }
    // R070, E17: a modern error comes from a modern server, with any status: never `initialize`.
    let picky = MockServer::modern().tools(1).start().await;
    let supported = json!({ "supported": ["2026-07-28"], "requested": "2026-07-28" });
    picky.add_rule(
        "server/discover",
        1,
        MockBehaviour::error(-32022, "not that", supported).with_status(400),
    );
    let weir = weir_over(&[("one", &picky)]);
    for (revision, looks) in [
        (Revision::MODERN, 0),
        (Revision::NEWEST_LEGACY, 1),
        (Revision::NEWEST_LEGACY, 1),
    ] {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        assert!(
            client
                .call("one__tool_0000", json!({}))
                .await
                .result()
                .is_object()
        );
        // weir checks only for clients with sessions if the server has sessions too, and checks
        // once.
        assert_eq!(picky.requests_of("initialize").len(), looks, "{revision:?}");
    }
    assert!(
        picky
            .requests_of("tools/call")
            .iter()
            .all(|call| !call.meta().is_null())
    );
}

// Proves B19, R154, R155, R170, R171, R173, R174.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modern_server_that_needs_input_asks_a_modern_client() {
    let ask = json!({ "k": { "method": "elicitation/create", "params": {
        "mode": "form", "message": "sure?", "requestedSchema": { "type": "object", "properties": {} },
    } } });
    let tool = weir_testkit::mock_server::MockTool::new("ask").does_in_turn([
        MockBehaviour::input_required(ask.clone(), Some("secret state")),
        MockBehaviour::text("done"),
    ]);
    let upstream = MockServer::modern().with(tool).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let able = json!({ "elicitation": { "form": {} } });
    let client = CheckedClient::with_capabilities(&weir.url("/mcp"), Revision::MODERN, able).await;
    let first = client.call("one__ask", json!({ "a": 1 })).await;
    let mut shown = ask.clone();
    // Of several servers, the one that asks is named.
    shown["k"]["params"]["message"] = json!("[one] sure?");
    assert_eq!(
        (
            &first.result()["resultType"],
            &first.result()["inputRequests"]
        ),
        (&json!("input_required"), &shown)
    );
    for hint in ["ttlMs", "cacheScope"] {
        assert!(first.result().get(hint).is_none(), "R154");
    }
    let state = first.result()["requestState"].as_str().unwrap().to_owned();
    assert!(!state.contains("secret"), "R173: sealed");
    let answers = json!({ "k": { "action": "accept", "content": {} } });
    let retry = async |state: &str, arguments: Value| {
        let params = json!({ "name": "one__ask", "arguments": arguments, "inputResponses": answers, "requestState": state });
        client.ask("tools/call", params).await
    };
    let mut spoilt = state.clone().into_bytes();
    let middle = spoilt.len() / 2;
    spoilt[middle] = if spoilt[middle] == b'A' { b'B' } else { b'A' };
    for (state, arguments) in [
        (std::str::from_utf8(&spoilt).unwrap(), json!({ "a": 1 })),
        (&*state, json!({ "a": 2 })),
    ] {
        let refused = retry(state, arguments).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (200, -32602),
            "R174: {}",
            refused.last()
        );
    }
    assert_eq!(
        upstream.executions("ask"),
        1,
        "bad input touches no upstream"
    );
    assert_eq!(retry(&state, json!({ "a": 1 })).await.text(), "done");
    assert_eq!(retry(&state, json!({ "a": 1 })).await.text(), "done");
    assert_eq!(
        upstream.executions("ask"),
        3,
        "R155: the answer to a retry is not kept"
    );
    let seen = upstream.requests_of("tools/call");
    let params = &seen[1].message["params"];
    assert_eq!(
        (&params["requestState"], &params["inputResponses"]),
        (&json!("secret state"), &answers),
        "R170"
    );
    assert_eq!(
        params["arguments"], seen[0].message["params"]["arguments"],
        "R171"
    );
    assert_ne!(seen[1].message["id"], seen[0].message["id"], "R171");
    // R168: a client without the capability is not asked.
    let unable = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    upstream.set_tools([weir_testkit::mock_server::MockTool::new("ask")
        .does(MockBehaviour::input_required(ask, None))]);
    let refused = unable.call("one__ask", json!({})).await;
    assert_ne!(
        refused.last()["result"]["resultType"],
        "input_required",
        "{}",
        refused.last()
    );
}

// Proves R058, R080.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_info_and_unknown_members_have_no_effect() {
    let upstream = MockServer::modern().tools(2).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    let plain = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let expected = plain.ask("tools/list", json!({})).await.result().clone();
    let extensions = json!({ "extensions": { "com.example/unheard-of": { "depth": 1 } }, "experimental": { "x": {} } });
    let odd =
        CheckedClient::with_capabilities(&weir.url("/mcp"), Revision::MODERN, extensions).await;
    for name in ["raw-client", "claude-ai", "weir", "admin", ""] {
        let info = json!({ "name": name, "version": "0", "title": "the boss" });
        let params = json!({ "_meta": { weir_wire::meta::CLIENT_INFO: info } });
        for client in [&plain, &odd] {
            let list = client.ask("tools/list", params.clone()).await;
            assert_eq!(list.result()["tools"], expected["tools"], "{name}");
            let mut call = params.clone();
            call["name"] = json!("one__tool_0000");
            call["arguments"] = json!({ "n": 1 });
            assert_eq!(
                client.ask("tools/call", call).await.text(),
                r#"{"n":1}"#,
                "{name}"
            );
        }
    }
    for call in upstream.requests_of("tools/call") {
        let told = &call.meta()[weir_wire::meta::CLIENT_CAPABILITIES];
        assert_eq!(
            told,
            &json!({}),
            "R080: what weir does not carry is not passed on"
        );
    }
}

//! Methods that no revision knows: on an endpoint with one server that server answers them.

use serde_json::{Value, json};
use weir_testkit::MockBehaviour;
use weir_wire::{Revision, meta};

use super::{BOTH, both_eras, mock_server, weir_over};
use crate::audit::{AuditFolder, of_kind};
use crate::auth::api_key;
use crate::harness::{CheckedClient, Weir, wait_until_async};

/// Returns the answer of `acme/stars`, with members that have a meaning in results of other
/// methods.
fn stars(revision: Revision) -> Value {
    let mut result = json!({
        "stars": [1, "two", null], "ttlMs": "own", "cacheScope": 7, "structuredContent": 5,
        "content": [{ "type": "odd" }], "_meta": { "acme/sky": "clear" },
    });
    if revision.is_modern() {
        result["resultType"] = json!("complete");
    }
    result
}

fn own(upstream: Revision) -> weir_testkit::mock_server::MockServerBuilder {
    mock_server(upstream)
        .tools(1)
        .with_rule("acme/stars", MockBehaviour::result(stars(upstream)))
        .with_rule(
            "acme/dark",
            MockBehaviour::error(4711, "too dark", json!({ "sky": "cloudy" })),
        )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_method_that_no_revision_knows_goes_to_the_server_of_its_endpoint_and_its_answer_comes_back()
 {
    for (revision, _) in both_eras() {
        let upstream = own(revision).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        weir.wait_until_listed("/mcp/one", &["tool_0000"]);
        for (nth, client) in [
            BOTH[0],
            BOTH[1],
            Revision::V2025_03_26,
            Revision::V2024_11_05,
        ]
        .into_iter()
        .enumerate()
        {
            let client = CheckedClient::open(&weir.url("/mcp/one"), client).await;
            let about = format!("{:?} to {revision:?}", client.revision);
            let params = json!({ "name": 5, "Arguments": [], "requestState": {}, "_meta": { "acme/own": true } });
            let answer = client.ask("acme/stars", params).await;
            let mut result = answer.result().clone();
            assert_eq!(result["_meta"]["acme/sky"], "clear", "{about}: {result}");
            if client.revision.is_modern() {
                assert_eq!(result["resultType"], "complete");
                assert!(result["_meta"].get(meta::SERVER_INFO).is_some());
            }
            // The rest is the server's own.
            let mut expected = stars(revision);
            for both in [&mut result, &mut expected] {
                let both = both.as_object_mut().unwrap();
                both.remove("resultType");
                both.remove("_meta");
            }
            assert_eq!(result, expected, "{about}");
            let sent = upstream.requests_of("acme/stars");
            assert_eq!(sent.len(), nth + 1, "{about}");
            let params = &sent[nth].message["params"];
            let kept = [
                ("name", json!(5)),
                ("Arguments", json!([])),
                ("requestState", json!({})),
            ];
            for (name, value) in kept {
                assert_eq!(params[name], value, "{about}: {params}");
            }
            assert_eq!(params["_meta"]["acme/own"], true, "{about}: {params}");
            assert_eq!(
                sent[nth].header("mcp-method").is_some(),
                revision.is_modern(),
                "{about}"
            );
            let dark = client.ask("acme/dark", json!({})).await;
            let error = &dark.last()["error"];
            assert_eq!(
                *error,
                json!({ "code": 4711, "message": "too dark", "data": { "sky": "cloudy" } }),
                "{about}"
            );
            // The server itself refuses a method that it does not have either.
            let none = client.ask("acme/none", json!({})).await;
            assert_eq!(
                (none.code(), &none.last()["error"]["message"]),
                (-32601, &json!("no such method")),
                "{about}"
            );
            assert_eq!(
                none.status.as_u16(),
                if client.revision.is_modern() {
                    404
                } else {
                    200
                },
                "{about}"
            );
        }
        assert_eq!(upstream.requests_of("acme/none").len(), 4);
        let of = |name: &str| {
            let labels =
                ["upstream=\"one\"", &format!("mcp_method_name=\"{name}\"")].map(str::to_owned);
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            weir.metric("mcp_client_operation_duration_seconds_count", &labels)
        };
        assert_eq!(
            (of("acme/stars"), of("other"), of("acme/none")),
            (4.0, 8.0, 0.0),
            "{revision:?}"
        );
    }
}

/// Returns a server that declares tools alone, but has a prompt as well.
fn undeclaring(upstream: Revision) -> weir_testkit::mock_server::MockServerBuilder {
    let mut list = json!({ "prompts": [{ "name": "rain", "description": "Of rain" }] });
    let mut got = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "It rains." } }] });
    if upstream.is_modern() {
        list["ttlMs"] = json!(0);
        list["cacheScope"] = json!("public");
        list["resultType"] = json!("complete");
        got["resultType"] = json!("complete");
    }
    mock_server(upstream)
        .tools(1)
        .with_rule("prompts/list", MockBehaviour::result(list))
        .with_rule("prompts/get", MockBehaviour::result(got))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_the_server_does_not_declare_is_asked_of_it_on_its_own_endpoint_alone() {
    let pairings = BOTH
        .into_iter()
        .flat_map(|upstream| BOTH.map(|client| (upstream, client)));
    for (upstream, client) in pairings {
        let (server, other) = (
            undeclaring(upstream).start().await,
            mock_server(upstream).tools(1).start().await,
        );
        let weir = weir_over(&[("one", &server), ("two", &other)]);
        weir.wait_until_listed("/mcp", &["one__tool_0000", "two__tool_0000"]);
        let about = format!("{client:?} to {upstream:?}");
        assert!(
            server.requests_of("prompts/list").is_empty(),
            "{about}: nobody asked yet"
        );
        let aggregate = CheckedClient::open(&weir.url("/mcp"), client).await;
        assert_eq!(
            aggregate.ask("prompts/list", json!({})).await.code(),
            -32601,
            "{about}"
        );
        assert!(
            server.requests_of("prompts/list").is_empty(),
            "{about}: an endpoint of several answers by what they declare"
        );
        let alone = CheckedClient::open(&weir.url("/mcp/one"), client).await;
        let listed = alone.ask("prompts/list", json!({})).await;
        assert_eq!(listed.result()["prompts"][0]["name"], "rain", "{about}");
        let got = alone.ask("prompts/get", json!({ "name": "rain" })).await;
        assert_eq!(
            got.result()["messages"][0]["content"]["text"],
            "It rains.",
            "{about}"
        );
        assert_eq!(
            alone
                .ask("prompts/get", json!({ "name": "snow" }))
                .await
                .code(),
            -32602,
            "{about}"
        );
        // The server itself refuses lists that it does not have, and not every client's request
        // reaches it.
        for _ in 0..3 {
            for method in ["resources/list", "resources/templates/list"] {
                assert_eq!(alone.ask(method, json!({})).await.code(), -32601, "{about}");
            }
        }
        let asked = server.requests_of("resources/list").len();
        assert!((1..=3).contains(&asked), "{about}: asked {asked} times");
    }
}

/// Methods that weir answers itself, and spellings that could be taken for them, reach no server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn methods_that_weir_answers_never_pass_in_any_spelling() {
    for (revision, builder) in both_eras() {
        let upstream = builder.tools(1).start().await;
        let other = own(revision).start().await;
        let weir = weir_over(&[("one", &upstream), ("two", &other)]);
        weir.wait_until_listed("/mcp", &["one__tool_0000", "two__tool_0000"]);
        let spelled = [
            "Initialize",
            "Server/Discover",
            "Ping",
            "Tasks/get",
            "TASKS/LIST",
            "tasks/Result",
            "Tasks/Cancel",
            "Subscriptions/Listen",
            "Logging/setLevel",
            "Notifications/Cancelled",
            "Resources/Subscribe",
            "Tools/Call",
            "tools/call ",
            " tasks/get",
            "ta\u{17f}ks/get",
            "dev.weir/extension",
            "Dev.Weir/Extension",
            "a\u{e4}",
            "",
        ];
        let known = [
            "tasks/result",
            "tasks/list",
            "tasks/update",
            "sampling/createMessage",
            "elicitation/create",
            "roots/list",
            "notifications/cancelled",
            "notifications/message",
        ];
        for client in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp/one"), client).await;
            for method in spelled.into_iter().chain(known) {
                let (mut headers, message) = client
                    .raw()
                    .envelope("tools/list", json!({ "taskId": "t" }));
                if headers.contains_key("mcp-method") {
                    // A header cannot carry these letters.
                    let said = http::HeaderValue::from_str(method.trim())
                        .unwrap_or(http::HeaderValue::from_static("x"));
                    headers.insert("mcp-method", said);
                }
                let mut message = message;
                message["method"] = json!(method);
                let answer = client
                    .raw()
                    .send(http::Method::POST, headers, message.to_string())
                    .await
                    .unwrap();
                let answer = answer.finish().await.unwrap();
                let refused = [-32601, -32602, -32600, -32020].contains(&answer.code());
                assert!(refused, "{method:?} to {revision:?}: {:?}", answer.messages);
                assert!(
                    upstream.requests_of(method).is_empty(),
                    "{method:?} to {revision:?}"
                );
            }
            // If several servers are possible, weir refuses the method.
            let merged = CheckedClient::open(&weir.url("/mcp"), client.revision).await;
            assert_eq!(merged.ask("acme/stars", json!({})).await.code(), -32601);
        }
        assert!(other.requests_of("acme/stars").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_method_that_no_revision_knows_goes_in_the_callers_own_session_and_may_ask_there() {
    let question =
        json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    let upstream = own(Revision::NEWEST_LEGACY)
        .with_rule(
            "acme/ask",
            MockBehaviour::ask("elicitation/create", question),
        )
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    weir.wait_until_listed("/mcp/one", &["tool_0000"]);
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let able = json!({ "elicitation": { "form": {} } });
        let client =
            CheckedClient::with_capabilities(&weir.url("/mcp/one"), Revision::NEWEST_LEGACY, able)
                .await;
        assert!(
            client
                .call("tool_0000", json!({}))
                .await
                .result()
                .is_object()
        );
        assert!(
            client
                .ask("acme/stars", json!({}))
                .await
                .result()
                .is_object()
        );
        let of = |method: &str| {
            upstream
                .requests_of(method)
                .pop()
                .unwrap()
                .session()
                .unwrap()
                .to_owned()
        };
        assert_eq!(of("tools/call"), of("acme/stars"));
        sessions.push(of("acme/stars"));
        let mut asking = client.start("acme/ask", json!({})).await;
        let asked = asking.next().await.unwrap();
        assert_eq!(
            (&asked["method"], &asked["params"]["message"]),
            (&json!("elicitation/create"), &json!("Who?"))
        );
        client
            .raw()
            .respond(&asked["id"], json!({ "action": "accept", "content": {} }))
            .await
            .unwrap();
        let end = asking.next().await.unwrap();
        assert!(end.get("result").is_some(), "{end}");
        let answered = upstream.answers().pop().unwrap();
        assert_eq!(answered["result"]["action"], "accept", "{answered}");
    }
    assert_ne!(sessions[0], sessions[1]);
    // A modern client is asked by rounds, which this method does not have: the server gets an error
    // and ends the call.
    let able = json!({ "elicitation": { "form": {} } });
    let modern =
        CheckedClient::with_capabilities(&weir.url("/mcp/one"), Revision::MODERN, able).await;
    let end = modern.ask("acme/ask", json!({})).await;
    assert!(
        !end.last().to_string().contains("inputRequests"),
        "{}",
        end.last()
    );
}

/// The call is subject to rules and rates, and is recorded by name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_method_that_no_revision_knows_is_for_those_alone_from_whom_nothing_of_the_server_is_hidden()
 {
    let rules = r#"
        permit(principal in Group::"all", action, resource in Upstream::"one");
        permit(principal in Group::"few", action, resource);
        @id("no-tool") forbid(principal in Group::"few", action, resource == Tool::"one/tool_0000");
    "#;
    let folder = AuditFolder::new("own-methods");
    let upstream = own(Revision::NEWEST_LEGACY).start().await;
    let machine = |name: &str, group: &str, scopes: &[&str]| {
        let (key, mut entry) = api_key(name);
        (entry["groups"], entry["scopes"]) = (json!([group]), json!(scopes));
        (key, entry)
    };
    let (all, one) = machine("all", "all", &["deep"]);
    let (few, two) = machine("few", "few", &["deep"]);
    let (shallow, three) = machine("shallow", "all", &[]);
    let config = json!({
        "auth": { "mode": "required", "api_keys": [one, two, three] },
        "upstreams": { "one": { "url": upstream.url(), "tools": { "tool_0000": { "scopes": ["deep"] } } } },
        "endpoints": {
            "/mcp/one": { "upstream": "one" },
            "/part": { "upstream": "one", "tools": { "include": ["tool_*"] } },
        },
        "policy": { "inline": rules },
        "rates": { "tools": { "one/acme/*": { "rate": "2/h" } } },
        "audit": { "file": { "path": folder.file() } },
    });
    let weir = Weir::with_config(config);
    let client = async |key: &str, path: &str, revision: Revision| {
        CheckedClient::open_with_header(&weir.url(path), revision, ("x-api-key", key)).await
    };
    for revision in BOTH {
        for (key, path) in [(&few, "/mcp/one"), (&shallow, "/mcp/one"), (&all, "/part")] {
            let refused = client(key, path, revision)
                .await
                .ask("acme/stars", json!({}))
                .await;
            assert_eq!(refused.code(), -32601, "{path}: {}", refused.last());
        }
        let answer = client(&all, "/mcp/one", revision)
            .await
            .ask("acme/stars", json!({ "arguments": {} }))
            .await;
        assert_eq!(answer.result()["structuredContent"], 5, "{}", answer.last());
    }
    let third = client(&all, "/mcp/one", Revision::MODERN)
        .await
        .ask("acme/stars", json!({}))
        .await;
    assert_eq!(
        (
            third.code(),
            &third.last()["error"]["data"]["limit"]["policy"]
        ),
        (1005, &json!("tool:one/acme/*"))
    );
    assert_eq!(upstream.requests_of("acme/stars").len(), 2);
    let file = folder.file();
    let written = wait_until_async("the records", async || {
        let calls = of_kind(&file, "call");
        (calls.len() == 7).then_some(calls)
    })
    .await;
    let of = |decision: &str| {
        written
            .iter()
            .filter(|record| record["decision"] == decision)
            .collect::<Vec<_>>()
    };
    assert!(
        written
            .iter()
            .all(|record| record["method"] == "acme/stars"),
        "{written:?}"
    );
    for record in of("allowed") {
        assert_eq!(
            (&record["upstream"], &record["outcome"]),
            (&json!("one"), &json!("complete")),
            "{record}"
        );
    }
    assert_eq!((of("allowed").len(), of("refused").len()), (2, 5));
}

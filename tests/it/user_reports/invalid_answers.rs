//! Invalid answers of upstreams, and answers to another request. The client gets one of six codes
//! instead.

use serde_json::{Value, json};
use weir_testkit::mock_server::AnswerStep;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{BOTH, both_eras, mock_server, own_error, weir_over};
use crate::harness::{CheckedClient, Weir};

// Proves E08, E12, E13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_no_answers_become_one_of_six_codes() {
    let canary = MockServer::modern().start().await;
    let elsewhere = canary.url();
    let html = MockBehaviour::status(200, "text/html", "<html>Bad gateway</html>");
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":"$id","result":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let deep = MockBehaviour::steps([weir_testkit::mock_server::AnswerStep::Send(deep)]);
    let rows: [(&str, MockBehaviour, i64); 14] = [
        ("unauthorized", MockBehaviour::unauthorized(), 1002),
        (
            "forbidden",
            MockBehaviour::status(403, "text/plain", "no"),
            1002,
        ),
        ("limited", MockBehaviour::retry_after(429, 7), 1005),
        ("busy", MockBehaviour::retry_after(503, 7), 1006),
        ("redirect", MockBehaviour::redirect(&elsewhere), 1003),
        ("html", html, 1003),
        (
            "empty",
            MockBehaviour::status(200, "application/json", ""),
            1003,
        ),
        (
            "no_content",
            MockBehaviour::status(204, "application/json", ""),
            1003,
        ),
        (
            "teapot",
            MockBehaviour::status(418, "text/plain", "short and stout"),
            1003,
        ),
        ("bad_json", MockBehaviour::bad_json(), 1003),
        (
            "not_utf8",
            MockBehaviour::status(
                200,
                "application/json",
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"\u{0}",
            ),
            1003,
        ),
        ("wrong_id", MockBehaviour::wrong_id(), 1003),
        ("deep", deep, 1003),
        ("no_answer", MockBehaviour::no_answer(), 1004),
    ];
    for (era, builder) in both_eras() {
        let builder = rows
            .iter()
            .fold(builder.tools(1), |builder, (tool, how, _)| {
                builder.tool(tool, how.clone())
            });
        let upstream = builder.start().await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for (tool, _, code) in &rows {
                let ran = upstream.executions(tool);
                let answer = client.call(&format!("one__{tool}"), json!({})).await;
                let error = own_error(&answer);
                assert_eq!(error["code"], *code, "{era:?} {tool}: {}", answer.last());
                assert_eq!(error["upstream"], "one");
                if ["limited", "busy"].contains(tool) {
                    assert_eq!(error["retryAfterMs"], 7_000, "E13: {error}");
                }
                assert_eq!(
                    upstream.executions(tool),
                    ran + 1,
                    "R142: {tool} is not tried again"
                );
                let text = answer.last().to_string();
                assert!(
                    !text.contains(&elsewhere) && !text.contains("<html"),
                    "C19: nothing of it is echoed: {text}"
                );
            }
            assert!(
                own_error(&client.call("one__tool_0000", json!({})).await).is_null(),
                "and it serves on"
            );
        }
    }
    assert_eq!(canary.connections(), 0, "E08: redirects are not followed");
}

// Proves E09.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_of_two_answers_wins_and_stray_messages_reach_no_other_call() {
    for (era, builder) in both_eras() {
        let upstream = builder
            .tool("twice", MockBehaviour::two_responses())
            .tool("again", MockBehaviour::duplicate())
            .tool("late", MockBehaviour::late_progress())
            .tool("stranger", MockBehaviour::wrong_progress_token())
            .tools(1)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let arguments = json!({ "n": 1 });
            for tool in ["twice", "again", "late", "stranger"] {
                let answer = client
                    .call_with_token(&format!("one__{tool}"), arguments.clone(), &json!("mine"))
                    .await;
                assert_eq!(
                    answer.messages.len(),
                    1,
                    "{era:?} {tool}: R208, R042: {:?}",
                    answer.messages
                );
                let text = if tool == "twice" {
                    "first"
                } else {
                    r#"{"n":1}"#
                };
                assert_eq!(answer.text(), text);
            }
        }
        let dropped = weir.metric("weir_upstream_protocol_errors_total", &["one"]);
        assert!(dropped >= 2.0, "what was dropped is counted: {dropped}");
    }
}

/// Some servers send heartbeats and other text among the events of a call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_are_no_messages_do_not_end_a_call() {
    let send = |text: &str| AnswerStep::Send(text.to_owned());
    let question = r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#;
    let large = "x".repeat(200_000);
    let large_json = format!(r#"{{"jsonrpc":"2.0","odd":[{}]"#, "1,".repeat(100_000));
    let answer_cut_off = r#"{"jsonrpc":"2.0","id":"$id","result":{"content":["#;
    for (era, builder) in both_eras() {
        let junk = ["heartbeat", "5", "{}", question, &large, &large_json];
        let steps = junk.map(send).into_iter().chain([AnswerStep::Echo]);
        let upstream = builder
            .tool("junk", MockBehaviour::steps(steps).as_events())
            .tool(
                "cut",
                MockBehaviour::steps([send(answer_cut_off)]).as_events(),
            )
            .tool(
                "only",
                MockBehaviour::steps([send("heartbeat")]).as_events(),
            )
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let answer = client.call("one__junk", json!({ "n": 1 })).await;
            assert_eq!(answer.text(), r#"{"n":1}"#, "{era:?} {}", answer.last());
            // An unreadable answer is one.
            assert_eq!(
                own_error(&client.call("one__cut", json!({})).await)["code"],
                1003
            );
            let only = client.call("one__only", json!({})).await;
            assert!(own_error(&only)["code"].is_i64(), "{}", only.last());
        }
        let dropped = weir.metric(
            "weir_upstream_protocol_errors_total",
            &["one", "not_a_message"],
        );
        assert!(dropped >= 12.0, "they are counted: {dropped}");
        let logged = weir
            .process
            .output()
            .matches("invalid message in an event stream")
            .count();
        assert_eq!(logged, 1, "and logged once");
    }
}

// Proves R049, R187.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_of_one_hop_do_not_pass_weir() {
    let codes = [
        -32000, -32001, -32002, -32020, -32021, -32022, -32042, -32050, -32099,
    ];
    for (era, builder) in both_eras() {
        let builder = codes.iter().fold(builder, |builder, code| {
            builder.tool(
                &format!("c{}", -code),
                MockBehaviour::error(*code, "of one hop", json!({ "x": 1 })),
            )
        });
        let upstream = builder
            .tool(
                "fine",
                MockBehaviour::error(-31999, "an application's", json!({ "y": 2 })),
            )
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for code in codes {
                // The client refuses reserved codes itself, see `CheckedClient`.
                let answer = client.call(&format!("one__c{}", -code), json!({})).await;
                let seen = answer.last()["error"]["code"].as_i64();
                assert!(
                    seen != Some(-32020) && seen != Some(-32022),
                    "{era:?} {code}: {}",
                    answer.last()
                );
            }
            let fine = client.call("one__fine", json!({})).await;
            assert_eq!(
                (fine.code(), &fine.error()["message"]),
                (-31999, &json!("an application's"))
            );
        }
    }
}

// Proves R074.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_of_an_unknown_type_is_no_success() {
    let upstream = MockServer::modern()
        .tool(
            "plain",
            MockBehaviour::steps([weir_testkit::mock_server::AnswerStep::Send(
                r#"{"jsonrpc":"2.0","id":"$id","result":{"content":[{"type":"text","text":"no type"}]}}"#.to_owned(),
            )]),
        )
        .tool("odd", MockBehaviour::result(json!({ "resultType": "sculpture", "content": [] })))
        .tool("task", MockBehaviour::result(json!({ "resultType": "task", "taskId": "t", "status": "working" })))
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in BOTH {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        assert_eq!(client.call("one__plain", json!({})).await.text(), "no type");
        for tool in ["one__odd", "one__task"] {
            let answer = client.call(tool, json!({})).await;
            assert_eq!(own_error(&answer)["code"], 1003, "R220: {}", answer.last());
        }
    }
}

// Proves E21, R105.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_legacy_server_that_asks_in_a_call_is_declined_and_the_call_goes_on() {
    let questions = [
        ("ping", Value::Null),
        (
            "sampling/createMessage",
            json!({ "messages": [], "maxTokens": 1 }),
        ),
        (
            "elicitation/create",
            json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } }),
        ),
        ("roots/list", Value::Null),
    ];
    for upstream_revision in Revision::LEGACY {
        let builder = questions.iter().fold(
            mock_server(upstream_revision),
            |builder, (method, params)| {
                builder.tool(
                    &method.replace('/', "_"),
                    MockBehaviour::ask(method, params.clone()),
                )
            },
        );
        let upstream = builder.start().await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for (method, _) in &questions {
                let answered = upstream.answers().len();
                let answer = client
                    .call(
                        &format!("one__{}", method.replace('/', "_")),
                        json!({ "n": 1 }),
                    )
                    .await;
                assert_eq!(
                    (answer.messages.len(), answer.text()),
                    (1, r#"{"n":1}"#),
                    "R040: {:?}",
                    answer.messages
                );
                let reply = upstream.answers().pop().unwrap();
                assert_eq!(upstream.answers().len(), answered + 1);
                match *method {
                    "ping" => assert_eq!(reply["result"], json!({}), "R105"),
                    _ => assert!(reply["error"]["code"].is_i64(), "{method}: {reply}"),
                }
            }
        }
    }
}

// Proves R103.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_array_from_a_server_of_2025_03_26_is_taken_apart() {
    let upstream = mock_server(Revision::V2025_03_26)
        .tool("batch", MockBehaviour::batch())
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in BOTH {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let answer = client
            .call_with_token("one__batch", json!({}), &json!("b"))
            .await;
        assert_eq!(answer.text(), "from a batch");
        assert_eq!(
            answer.notes("notifications/progress").count(),
            1,
            "{:?}",
            answer.messages
        );
        assert_eq!(answer.messages[0]["params"]["progressToken"], "b");
    }
}

// Proves R129, R131.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modern_servers_result_is_one_a_legacy_client_knows() {
    let list =
        json!({ "content": [{ "type": "text", "text": "[1,2]" }], "structuredContent": [1, 2] });
    let after = json!({ "type": "text", "text": "after" });
    let sound = |data: &str| json!({ "content": [{ "type": "audio", "data": data, "mimeType": "audio/wav" }, after] });
    let link =
        json!({ "content": [{ "type": "resource_link", "uri": "file:///c", "name": "c" }, after] });
    let long = json!({ "content": [{ "type": "text", "text": "x".repeat(200_000) }], "structuredContent": [1, 2] });
    let upstream = MockServer::modern()
        .tool("list", MockBehaviour::result(list))
        .tool("audio", MockBehaviour::result(sound("aGk=")))
        .tool(
            "long_audio",
            MockBehaviour::result(sound(&"aGk=".repeat(100_000))),
        )
        .tool("long_list", MockBehaviour::result(long))
        .tool("link", MockBehaviour::result(link))
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in Revision::ALL {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let answer = client.call("one__list", json!({})).await;
        assert_eq!(
            answer.result().get("structuredContent").is_some(),
            revision.is_modern(),
            "{}",
            answer.last()
        );
        assert_eq!(answer.text(), "[1,2]");
        // The schema of the client's own revision decides if a type passes, see `CheckedClient`.
        for (tool, known, told) in [
            ("audio", revision.has_audio(), "audio/wav"),
            ("long_audio", revision.has_audio(), "audio/wav"),
            ("link", revision.has_resource_link(), "file:///c"),
        ] {
            let answer = client.call(&format!("one__{tool}"), json!({})).await;
            let content = answer.result()["content"].as_array().unwrap();
            assert_eq!(
                (content.len(), &content[1]),
                (2, &after),
                "{}",
                answer.last()
            );
            let told = content[0]["type"] == "text" && answer.text().contains(told);
            assert_eq!(
                (content[0]["type"] != "text", told),
                (known, !known),
                "{revision:?} {tool}: {}",
                content[0]
            );
        }
        let long = client.call("one__long_list", json!({})).await;
        assert_eq!(
            long.result().get("structuredContent").is_some(),
            revision.is_modern(),
            "{revision:?}"
        );
        assert_eq!(long.text().len(), 200_000);
    }
}

// Proves R130, R133.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_definitions_omit_members_unknown_to_the_revision() {
    let tool = json!({
        "name": "t",
        "inputSchema": { "type": "object" },
        "outputSchema": { "type": "array" },
        "execution": { "taskSupport": "optional" },
    });
    let upstream = MockServer::dual()
        .tool_json(&tool.to_string())
        .start()
        .await;
    for protocol in ["modern", "legacy"] {
        let weir =
            Weir::with_upstreams(json!({ "one": { "url": upstream.url(), "protocol": protocol } }));
        for revision in Revision::ALL {
            let client = CheckedClient::open(&weir.url("/mcp/one"), revision).await;
            let (tools, _) = client.list_tool_pages().await;
            assert_eq!(
                tools[0].get("outputSchema").is_some(),
                revision.is_modern(),
                "R130 {revision:?}: {}",
                tools[0]
            );
            if revision.is_modern() {
                assert!(tools[0].get("execution").is_none(), "R133: {}", tools[0]);
            }
        }
    }
}

// Proves R209, R208.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_progress_becomes_few_notes_and_the_last_one_arrives() {
    for (era, builder) in both_eras() {
        let upstream = builder
            .tool("flood", MockBehaviour::progress(5_000))
            .start()
            .await;
        let weir = Weir::with_config(json!({
            "upstreams": { "one": { "url": upstream.url() } },
            "limits": { "progress_interval": "5s" },
        }));
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let answer = client
                .call_with_token("one__flood", json!({}), &json!("f"))
                .await;
            let seen: Vec<_> = answer
                .notes("notifications/progress")
                .map(|note| note["params"]["progress"].as_u64().unwrap())
                .collect();
            assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
            // The first at once and the last before the answer; between them as many as the time
            // allows.
            assert!(
                (1..=10).contains(&seen.len()),
                "{era:?}: {} notes",
                seen.len()
            );
            assert_eq!(
                seen.last(),
                Some(&5_000),
                "{era:?}: the last one is kept: {seen:?}"
            );
        }
    }
}

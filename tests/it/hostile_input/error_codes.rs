//! The status and the code for each condition, in both eras, and the codes that clients must never
//! see (R049, R050, R123, R147, R217, B14, B16).

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer};
use weir_wire::{Revision, error_code};

use super::WeirWithUpstream;
use super::request_draft::{assert_error, assert_refused};
use super::weir_with_upstream::usual_tools;

/// Conditions that both eras know: name, method, params and the code.
fn application_faults() -> Vec<(&'static str, &'static str, Value, i64)> {
    vec![
        (
            "an unknown tool",
            "tools/call",
            json!({ "name": "nobody", "arguments": {} }),
            -32602,
        ),
        (
            "an unknown tool, prefixed",
            "tools/call",
            json!({ "name": "up__echo", "arguments": {} }),
            -32602,
        ),
        (
            "a tool name in other case",
            "tools/call",
            json!({ "name": "Echo", "arguments": {} }),
            -32602,
        ),
        (
            "a tool name of 8,000 letters",
            "tools/call",
            json!({ "name": "e".repeat(8_000), "arguments": {} }),
            -32602,
        ),
        (
            "a random cursor",
            "tools/list",
            json!({ "cursor": "bogus" }),
            -32602,
        ),
        (
            "an empty cursor",
            "tools/list",
            json!({ "cursor": "" }),
            -32602,
        ),
        (
            "a cursor of 10 kB",
            "tools/list",
            json!({ "cursor": "A".repeat(10_000) }),
            -32602,
        ),
        (
            "a cursor of another alphabet",
            "tools/list",
            json!({ "cursor": "\u{0}\u{1f600}/../" }),
            -32602,
        ),
    ]
}

// Proves R123, R147, B16.
#[tokio::test(flavor = "multi_thread")]
async fn faults_of_the_application_are_200_32602_in_the_modern_era() {
    let mut stage = WeirWithUpstream::new().await;
    for (name, method, params, code) in application_faults() {
        let mut draft = stage.draft_request(method, params);
        draft.body["id"] = json!(name);
        assert_refused(name, &draft.post(&stage).await, 200, code, &json!(name));
        stage.assert_still_serving(name).await;
    }
}

// Proves R123, R147, B16.
#[tokio::test(flavor = "multi_thread")]
async fn faults_of_the_application_are_200_32602_on_sessions() {
    let mut stage = WeirWithUpstream::new().await;
    for revision in Revision::LEGACY {
        let client = stage.legacy_client(revision).await;
        for (name, method, params, code) in application_faults() {
            let answer = client.ask(method, params).await.unwrap();
            let id = answer.last()["id"].clone();
            assert!(id.is_i64(), "{name}: {:?}", answer.body);
            assert_refused(name, &answer, 200, code, &id);
        }
        stage.assert_still_serving(revision.as_str()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn params_of_the_wrong_type_are_32602() {
    let mut stage = WeirWithUpstream::new().await;
    let session = stage.legacy_client(Revision::V2025_11_25).await;
    for (name, method, params) in [
        (
            "a name that is a number",
            "tools/call",
            json!({ "name": 7, "arguments": {} }),
        ),
        (
            "a name that is a list",
            "tools/call",
            json!({ "name": ["echo"], "arguments": {} }),
        ),
        ("no name", "tools/call", json!({ "arguments": {} })),
        (
            "a cursor that is a number",
            "tools/list",
            json!({ "cursor": 7 }),
        ),
        (
            "a cursor that is an object",
            "tools/list",
            json!({ "cursor": {} }),
        ),
    ] {
        let answer = session.ask(method, params.clone()).await.unwrap();
        let id = answer.last()["id"].clone();
        assert_refused(name, &answer, 200, -32602, &id);
        let mut draft = stage.draft_request(method, params);
        draft.body["id"] = json!(name);
        if method == "tools/call" {
            draft.set_header("mcp-name", "echo");
        }
        let answer = draft.post(&stage).await;
        // A name that is not a string disagrees with its header, too.
        let code = answer.code();
        assert!(
            code == -32602 || (method == "tools/call" && code == -32020),
            "{name}: {:?}",
            answer.body
        );
        assert_error(name, &answer, code, &json!(name));
        stage.assert_still_serving(name).await;
    }
}

// Proves B14.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_method_on_a_session_is_200_32601() {
    let mut stage = WeirWithUpstream::new().await;
    for revision in Revision::LEGACY {
        let client = stage.legacy_client(revision).await;
        for method in [
            "roots/list",
            "server/discover",
            "subscriptions/listen",
            "prompts/list",
            "resources/read",
            "TOOLS/LIST",
            "",
        ] {
            let answer = client.ask(method, json!({})).await.unwrap();
            let id = answer.last()["id"].clone();
            assert_refused(method, &answer, 200, -32601, &id);
        }
        assert_eq!(
            client.ask("ping", json!({})).await.unwrap().result(),
            &json!({}),
            "the session lives"
        );
        stage.assert_still_serving(revision.as_str()).await;
    }
}

// Proves R217.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_log_level_answers_32602() {
    let mut stage = WeirWithUpstream::new().await;
    let session = stage.legacy_client(Revision::V2025_11_25).await;
    for level in [
        json!("loud"),
        json!(""),
        json!("INFO"),
        json!(7),
        json!(["info"]),
        json!({}),
    ] {
        let answer = session
            .ask("logging/setLevel", json!({ "level": level }))
            .await
            .unwrap();
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (200, -32602),
            "{level}: {:?}",
            answer.body
        );
        let mut draft = stage.draft_call();
        draft
            .meta()
            .insert(weir_wire::meta::LOG_LEVEL.to_owned(), level.clone());
        let answer = draft.post(&stage).await;
        assert_eq!(answer.code(), -32602, "{level}: {:?}", answer.body);
        stage.assert_still_serving(&level.to_string()).await;
    }
    let answer = session.ask("logging/setLevel", json!({})).await.unwrap();
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (200, -32602),
        "no level: {:?}",
        answer.body
    );
    for level in [
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
    ] {
        assert_eq!(
            session
                .ask("logging/setLevel", json!({ "level": level }))
                .await
                .unwrap()
                .result(),
            &json!({}),
            "{level}"
        );
    }
}

/// Returns the code that a client sees of a call: of the JSON-RPC error, or of the error inside a
/// result.
fn client_error_code(answer: &ClientAnswer) -> i64 {
    match answer.last().get("error") {
        Some(error) => error["code"].as_i64().unwrap(),
        None => {
            assert_eq!(answer.result()["isError"], true, "{}", answer.last());
            answer.result()["_meta"]["dev.weir/error"]["code"]
                .as_i64()
                .unwrap()
        }
    }
}

// Proves R049, R050.
#[tokio::test(flavor = "multi_thread")]
async fn clients_see_only_defined_codes_of_upstreams() {
    let codes = [
        -32000,
        -32001,
        -32002,
        -32003,
        -32004,
        -32010,
        -32019,
        -32020,
        -32022,
        -32023,
        -32042,
        -32050,
        -32098,
        -32099,
        -32100,
        -32700,
        -32600,
        -32601,
        -32602,
        -32603,
        -1,
        0,
        1,
        42,
        404,
        1001,
        1004,
        100_000,
        i64::from(i32::MAX) + 1,
    ];
    let with_tools = |builder: weir_testkit::mock_server::MockServerBuilder| {
        codes
            .iter()
            .enumerate()
            .fold(usual_tools(builder), |builder, (place, &code)| {
                let failing = MockBehaviour::error(
                    code,
                    "the upstream's own words",
                    json!({ "why": "its own data" }),
                );
                builder.tool(&format!("fails_{place}"), failing)
            })
    };
    for upstream in [
        with_tools(MockServer::modern()),
        with_tools(MockServer::legacy(Revision::V2025_11_25)),
    ] {
        let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
        let session = stage.legacy_client(Revision::V2025_11_25).await;
        for (place, code) in codes.into_iter().enumerate() {
            let tool = format!("fails_{place}");
            let modern = stage.modern_client().call(&tool, json!({})).await.unwrap();
            let legacy = session.call(&tool, json!({})).await.unwrap();
            let of_json_rpc = [-32700, -32600, -32601].contains(&code);
            assert!(
                legacy.status == 200 && (modern.status == 200 || of_json_rpc),
                "{code}: {} {}",
                legacy.status,
                modern.status
            );
            for (era, answer) in [("modern", &modern), ("legacy", &legacy)] {
                let seen = client_error_code(answer);
                assert!(
                    era == "legacy" || error_code::is_allowed_to_modern(seen),
                    "{era} {code} became {seen}"
                );
                assert!(
                    ![-32000, -32001].contains(&seen),
                    "{era} {code} became {seen}: it belongs to one hop"
                );
                assert!(
                    ![-32020, -32021, -32022].contains(&seen),
                    "{era} {code} became {seen}: it belongs to one hop"
                );
            }
            // A code of the application stays unchanged, and so do its message and data.
            if code > -32000 || [-32602, -32603].contains(&code) {
                let error = modern.error();
                assert_eq!(error["code"], code);
                assert_eq!(error["message"], "the upstream's own words");
                assert_eq!(error["data"]["why"], "its own data");
            }
        }
        stage.take_client_requests();
        stage.assert_still_serving("every code").await;
    }
}

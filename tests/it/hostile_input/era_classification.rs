//! The classification of a request by era and its outcome: every row of the classifier, and every
//! revision against every kind of message (R063 to R067, B08, B12).

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use weir_testkit::ClientAnswer;
use weir_wire::Revision;

use super::request_draft::{assert_error, assert_refused};
use super::{RequestDraft, WeirWithUpstream};

/// Returns a request without `_meta`.
fn plain(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": "plain", "method": method, "params": { "name": "smuggled", "arguments": {} } })
}

fn initialize(version: &str) -> Value {
    let client = json!({ "name": "door", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params })
}

async fn post(stage: &WeirWithUpstream, headers: &[(&str, &str)], body: &Value) -> ClientAnswer {
    stage.post(headers, body.to_string()).await
}

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const RESPONSE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
const ERROR: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#;

// Proves R032.
#[tokio::test(flavor = "multi_thread")]
async fn row_1_an_array_is_for_sessions_of_2025_03_26() {
    let mut stage = WeirWithUpstream::new().await;
    let batch = format!("[{}]", plain("tools/call"));
    for revision in Revision::LEGACY {
        let client = stage.legacy_client(revision).await;
        let pings = r#"[{"jsonrpc":"2.0","id":"p","method":"ping"}]"#;
        let answer = stage.post_as(&client, &[], pings).await;
        if revision == Revision::V2025_03_26 {
            assert_eq!(
                (answer.status.as_u16(), answer.last()),
                (200, &json!({ "jsonrpc": "2.0", "id": "p", "result": {} }))
            );
        } else {
            assert_refused(revision.as_str(), &answer, 400, -32600, &Value::Null);
        }
    }
    for version in ["2026-07-28", "2025-06-18", "2025-11-25"] {
        let answer = stage
            .post(&[("mcp-protocol-version", version)], batch.clone())
            .await;
        assert_refused(version, &answer, 400, -32600, &Value::Null);
        stage.assert_still_serving(version).await;
    }
    let draft = stage.draft_call();
    let answer = stage
        .send(Method::POST, draft.headers, format!("[{}]", draft.body))
        .await;
    assert_refused(
        "a modern request in an array",
        &answer,
        400,
        -32600,
        &Value::Null,
    );
    // Without a session a batch cannot be run.
    let answer = stage.post(&[], batch).await;
    assert_eq!(answer.status, 400, "{:?}", answer.body);
    stage.assert_still_serving("arrays").await;
}

// Proves B08, R031.
#[tokio::test(flavor = "multi_thread")]
async fn row_2_a_response_is_400_without_a_session_and_dropped_with_one() {
    let mut stage = WeirWithUpstream::new().await;
    for body in [RESPONSE, ERROR] {
        for headers in [
            vec![],
            vec![("mcp-protocol-version", "2026-07-28")],
            vec![("mcp-protocol-version", "2025-11-25")],
        ] {
            let answer = stage.post(&headers, body).await;
            assert_eq!(answer.status, 400, "{headers:?} {body}: {:?}", answer.body);
            assert!(
                answer
                    .messages
                    .iter()
                    .all(|message| message.get("result").is_none()),
                "{:?}",
                answer.body
            );
        }
        for revision in Revision::LEGACY {
            let client = stage.legacy_client(revision).await;
            let answer = stage.post_as(&client, &[], body).await;
            assert_eq!(
                (answer.status.as_u16(), answer.body.len()),
                (202, 0),
                "{revision:?}"
            );
        }
        stage.assert_still_serving(body).await;
    }
    assert!(
        stage
            .weir
            .get_admin_page("/metrics")
            .contains("weir_unexpected_responses")
    );
}

// Proves R063.
#[tokio::test(flavor = "multi_thread")]
async fn row_3_modern_meta_makes_it_modern_whatever_else_it_carries() {
    let mut stage = WeirWithUpstream::new().await;
    let client = stage.legacy_client(Revision::V2025_11_25).await;
    let session = client.session().unwrap().to_owned();
    for session in [session.as_str(), "no-such-session", ""] {
        let mut draft = stage.draft_call();
        draft.set_header("mcp-session-id", session);
        draft.set_header("last-event-id", "17");
        let answer = draft.post(&stage).await;
        assert_eq!(answer.status, 200, "{session:?}: {:?}", answer.body);
        assert_eq!(answer.result()["resultType"], "complete");
        assert_eq!(answer.header("mcp-session-id"), None, "r007");
        assert_eq!(stage.take_client_requests().len(), 1);
    }
    // The session is unchanged and answers without any modern member.
    let listed = client.ask("tools/list", json!({})).await.unwrap();
    assert_eq!(listed.result().get("resultType"), None);
    stage
        .assert_still_serving("a modern request with a session")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_4_a_modern_header_without_modern_meta_is_400_32602() {
    let mut stage = WeirWithUpstream::new().await;
    for method in [
        "tools/call",
        "tools/list",
        "server/discover",
        "ping",
        "initialize",
        "no/such",
    ] {
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
            ("mcp-name", "smuggled"),
        ];
        assert_refused(
            method,
            &post(&stage, &headers, &plain(method)).await,
            400,
            -32602,
            &json!("plain"),
        );
        stage.assert_still_serving(method).await;
    }
}

// Proves R064.
#[tokio::test(flavor = "multi_thread")]
async fn row_5_initialize_opens_a_session_whatever_session_it_names() {
    let mut stage = WeirWithUpstream::new().await;
    let live = stage.legacy_client(Revision::V2025_06_18).await;
    let live = live.session().unwrap().to_owned();
    for session in ["", "no-such-session", &live] {
        let headers = if session.is_empty() {
            vec![]
        } else {
            vec![("mcp-session-id", session)]
        };
        let answer = post(&stage, &headers, &initialize("2025-11-25")).await;
        assert_eq!(answer.status, 200, "{session:?}: {:?}", answer.body);
        assert_eq!(answer.result()["protocolVersion"], "2025-11-25");
        let minted = answer.header("mcp-session-id").unwrap();
        assert!(!minted.is_empty() && minted != session, "{session:?}");
    }
    stage.assert_still_serving("three times initialize").await;
}

// Proves R065, R066.
#[tokio::test(flavor = "multi_thread")]
async fn row_6_a_session_and_its_version_header() {
    let mut stage = WeirWithUpstream::new().await;
    for revision in Revision::LEGACY {
        let client = stage.legacy_client(revision).await;
        let session = client.session().unwrap();
        let call = |version: Option<&'static str>| {
            let mut headers = vec![("mcp-session-id", session)];
            headers.extend(version.map(|version| ("mcp-protocol-version", version)));
            headers
        };
        let mut echo = plain("tools/call");
        echo["params"]["name"] = json!("echo");
        // If the header is absent, the session's own version counts (R066).
        for version in [None, Some(revision.as_str())] {
            let answer = post(&stage, &call(version), &echo).await;
            assert_eq!(
                answer.status, 200,
                "{revision:?} {version:?}: {:?}",
                answer.body
            );
            assert_eq!(stage.take_client_requests().len(), 1);
        }
        for version in ["1999-01-01", "2099-01-01", "", "2025-11-25x", "latest"] {
            let answer = post(&stage, &call(Some(version)), &plain("tools/call")).await;
            assert_eq!(
                answer.status, 400,
                "{revision:?} {version:?}: {:?}",
                answer.body
            );
            assert_eq!(answer.last()["id"], "plain");
        }
        stage.assert_still_serving(revision.as_str()).await;
    }
    for session in [
        "no-such-session",
        &"A".repeat(22),
        &"x".repeat(5_000),
        "' OR 1=1",
        "../../etc/passwd",
    ] {
        let answer = post(&stage, &[("mcp-session-id", session)], &plain("tools/call")).await;
        assert_eq!(answer.status, 404, "{session}: {:?}", answer.body);
        stage.assert_still_serving("an unknown session").await;
    }
}

// Proves D05, R083.
#[tokio::test(flavor = "multi_thread")]
async fn row_7_a_request_without_its_session_is_400_also_while_only_one_is_live() {
    let mut stage = WeirWithUpstream::new().await;
    for alone in [true, false] {
        if !alone {
            stage.legacy_client(Revision::V2025_11_25).await;
        }
        for headers in [
            vec![],
            vec![("mcp-protocol-version", "2025-03-26")],
            vec![("mcp-protocol-version", "2025-06-18")],
            vec![("mcp-protocol-version", "2025-11-25")],
        ] {
            for method in ["tools/call", "tools/list", "logging/setLevel", "no/such"] {
                let name = format!("{method} with {headers:?}");
                let answer = post(&stage, &headers, &plain(method)).await;
                assert_eq!(answer.status, 400, "{name}: {:?}", answer.body);
                assert_error(&name, &answer, -32600, &json!("plain"));
            }
            stage.assert_still_serving(&format!("{headers:?}")).await;
        }
    }
}

// Proves R067.
#[tokio::test(flavor = "multi_thread")]
async fn row_8_an_unknown_version_without_meta_is_400_32022() {
    let mut stage = WeirWithUpstream::new().await;
    for version in [
        "2024-01-01",
        "2025-12-31",
        "v1",
        "1.0",
        "2026-07-28x",
        "2030-01-01",
    ] {
        for method in ["tools/call", "tools/list", "no/such"] {
            let headers = [("mcp-protocol-version", version)];
            let answer = post(&stage, &headers, &plain(method)).await;
            assert_refused(version, &answer, 400, -32022, &json!("plain"));
            let data = &answer.error()["data"];
            assert_eq!(data["requested"], version, "{data}");
            assert!(
                data["supported"]
                    .as_array()
                    .is_some_and(|all| !all.is_empty()),
                "{data}"
            );
        }
        stage.assert_still_serving(version).await;
    }
}

// Proves R033.
#[tokio::test(flavor = "multi_thread")]
async fn rows_9_and_10_a_notification_is_202_and_empty_or_refused_and_never_passed_on() {
    let mut stage = WeirWithUpstream::new().await;
    let unknown =
        r#"{"jsonrpc":"2.0","method":"notifications/no/such","params":{"name":"smuggled"}}"#;
    // A call without an id is a notification too.
    let call =
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"smuggled","arguments":{}}}"#;
    for body in [NOTE, unknown, call] {
        for revision in Revision::LEGACY {
            let client = stage.legacy_client(revision).await;
            let answer = stage.post_as(&client, &[], body).await;
            assert_eq!(
                (answer.status.as_u16(), answer.body.len()),
                (202, 0),
                "{revision:?} {body}: {:?}",
                answer.body
            );
        }
        let answer = stage
            .post(&[("mcp-session-id", "no-such-session")], body)
            .await;
        assert_eq!(answer.status, 404, "{body}: {:?}", answer.body);
        let answer = stage
            .post(&[("mcp-protocol-version", "2026-07-28")], body)
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.body.len()),
            (202, 0),
            "modern {body}: {:?}",
            answer.body
        );
        let answer = stage.post(&[], body).await;
        assert!(
            [202, 400].contains(&answer.status.as_u16()),
            "{body}: {:?}",
            answer.body
        );
        stage.assert_still_serving(body).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modern_notification_is_taken_whatever_session_it_names() {
    let mut stage = WeirWithUpstream::new().await;
    let live = stage.legacy_client(Revision::V2025_11_25).await;
    let notification = json!({
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": { "requestId": 1 },
    });
    for session in ["no-such-session", live.session().unwrap()] {
        for (version, status) in [
            (Some("2026-07-28"), 202),
            (
                Some("2025-11-25"),
                if session == "no-such-session" {
                    404
                } else {
                    202
                },
            ),
            (
                None,
                if session == "no-such-session" {
                    404
                } else {
                    202
                },
            ),
        ] {
            let mut headers = vec![("mcp-session-id", session)];
            headers.extend(version.map(|version| ("mcp-protocol-version", version)));
            let answer = post(&stage, &headers, &notification).await;
            assert_eq!(answer.status, status, "{headers:?}: {:?}", answer.body);
        }
    }
    stage.assert_still_serving("notifications").await;
}

// Proves R006.
#[tokio::test(flavor = "multi_thread")]
async fn get_and_delete_are_for_live_sessions() {
    let mut stage = WeirWithUpstream::new().await;
    for method in [Method::GET, Method::DELETE] {
        let headers = |session: Option<&str>, version: Option<&str>| {
            let mut draft = RequestDraft {
                headers: HeaderMap::new(),
                body: Value::Null,
            };
            draft.set_header("accept", "text/event-stream");
            for (name, value) in [
                ("mcp-session-id", session),
                ("mcp-protocol-version", version),
            ] {
                if let Some(value) = value {
                    draft.set_header(name, value);
                }
            }
            draft.headers
        };
        for version in [None, Some("2025-11-25"), Some("2026-07-28"), Some("v999")] {
            let answer = stage.send(method.clone(), headers(None, version), "").await;
            assert_eq!(
                answer.status, 405,
                "{method} {version:?}: {:?}",
                answer.body
            );
            assert!(
                answer
                    .header("allow")
                    .is_some_and(|allowed| allowed.contains("POST")),
                "{:?}",
                answer.headers
            );
        }
        let answer = stage
            .send(method.clone(), headers(Some("no-such-session"), None), "")
            .await;
        assert_eq!(answer.status, 404, "{method}: {:?}", answer.body);
        stage.assert_still_serving(method.as_str()).await;
    }
}

/// A status, and a code if one is demanded.
type ExpectedOutcome = (u16, Option<i64>);

/// A message without a session, sent with the version header of each revision: the outcomes for the
/// legacy ones and for the modern one.
// Proves B12.
#[tokio::test(flavor = "multi_thread")]
async fn every_revision_against_every_kind_of_message() {
    let mut stage = WeirWithUpstream::new().await;
    let messages: [(&str, String, ExpectedOutcome, ExpectedOutcome); 12] = [
        (
            "initialize",
            initialize("2025-06-18").to_string(),
            (200, None),
            (400, Some(-32602)),
        ),
        (
            "initialize with a modern version",
            initialize("2026-07-28").to_string(),
            (200, None),
            (400, Some(-32602)),
        ),
        (
            "ping",
            plain("ping").to_string(),
            (200, None),
            (400, Some(-32602)),
        ),
        (
            "tools/list",
            plain("tools/list").to_string(),
            (400, Some(-32600)),
            (400, Some(-32602)),
        ),
        (
            "tools/call",
            plain("tools/call").to_string(),
            (400, Some(-32600)),
            (400, Some(-32602)),
        ),
        (
            "server/discover",
            plain("server/discover").to_string(),
            (400, Some(-32600)),
            (400, Some(-32602)),
        ),
        (
            "subscriptions/listen",
            plain("subscriptions/listen").to_string(),
            (400, Some(-32600)),
            (400, Some(-32602)),
        ),
        (
            "an unknown method",
            plain("no/such").to_string(),
            (400, Some(-32600)),
            (400, Some(-32602)),
        ),
        ("a result", RESPONSE.to_owned(), (400, None), (400, None)),
        ("an error", ERROR.to_owned(), (400, None), (400, None)),
        (
            "an array",
            format!("[{}]", plain("tools/call")),
            (400, Some(-32600)),
            (400, Some(-32600)),
        ),
        (
            "no message",
            "{}".to_owned(),
            (400, Some(-32600)),
            (400, Some(-32600)),
        ),
    ];
    for revision in Revision::ALL {
        for (name, body, of_legacy, of_modern) in &messages {
            let (status, code) = if revision.is_modern() {
                of_modern
            } else {
                of_legacy
            };
            let answer = stage
                .post(&[("mcp-protocol-version", revision.as_str())], body.clone())
                .await;
            assert_eq!(
                answer.status.as_u16(),
                *status,
                "{revision:?} {name}: {:?}",
                answer.body
            );
            // The answer to a response has no request to be about, so no code is demanded.
            if code.is_some() {
                assert_eq!(
                    answer.last()["error"]["code"].as_i64(),
                    *code,
                    "{revision:?} {name}: {:?}",
                    answer.body
                );
            }
            let minted = answer.header("mcp-session-id").is_some();
            assert_eq!(
                minted,
                *status == 200 && name.starts_with("initialize"),
                "{revision:?} {name}"
            );
        }
        stage.assert_still_serving(revision.as_str()).await;
    }
}

//! `Origin` and CORS (A18, R001, R002): pages of other sites may not send requests to weir, unless
//! the config lists them.

use http::{HeaderMap, Method, StatusCode};
use serde_json::json;
use weir_wire::Revision;

use super::request_draft::assert_refused_unread;
use super::{RequestDraft, WeirWithUpstream};

const LISTED: &str = "https://app.example";

async fn stage() -> WeirWithUpstream {
    WeirWithUpstream::with_config(
        json!({ "cors": { "origins": [LISTED, "http://localhost:6274"] } }),
    )
    .await
}

fn no_permission(name: &str, headers: &HeaderMap) {
    assert_eq!(headers.get("access-control-allow-origin"), None, "{name}");
}

const FOREIGN: [&[&str]; 20] = [
    &["https://evil.example"],
    &["http://evil.example"],
    &["null"],
    &[""],
    &["*"],
    &["http://127.0.0.1.evil.example"],
    &["http://localhost.evil.example"],
    &["https://app.example.evil.example"],
    &["https://evilapp.example"],
    &["https://app.example:444"],
    &["http://app.example"],
    &["https://user@app.example"],
    &["https://app.example@evil.example"],
    &["https://app.example/"],
    &["https://app.example https://evil.example"],
    &["https://app.example, https://evil.example"],
    &["http://localhost:6275"],
    &["file://"],
    &["https://app.example", "https://evil.example"],
    &["https://evil.example", "https://app.example"],
];

// Proves A18, R001.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_origins_are_403_on_every_method() {
    let mut stage = stage().await;
    let client = stage.legacy_client(Revision::V2025_11_25).await;
    for origins in FOREIGN {
        let name = format!("{origins:?}");
        for method in [Method::POST, Method::GET, Method::DELETE, Method::PUT] {
            // POST is a good modern call; GET and DELETE name a live session.
            let mut draft = if method == Method::POST {
                stage.draft_call()
            } else {
                RequestDraft::of(&client, "ping", json!({}))
            };
            for origin in origins {
                draft.add_header("origin", origin);
            }
            let body = if method == Method::POST {
                draft.body.to_string()
            } else {
                String::new()
            };
            let answer = stage.send(method.clone(), draft.headers, body).await;
            assert_refused_unread(&format!("{method} {name}"), &answer, StatusCode::FORBIDDEN);
            no_permission(&name, &answer.headers);
        }
        stage.assert_still_serving(&name).await;
    }
    // DELETE did not end the session.
    assert_eq!(
        client.ask("ping", json!({})).await.unwrap().result(),
        &json!({})
    );
}

// Proves R001.
#[tokio::test(flavor = "multi_thread")]
async fn origin_check_precedes_all_other_checks() {
    let mut stage = stage().await;
    let mut draft = stage.draft_call();
    draft.set_header("origin", "https://evil.example");
    draft.set_header("content-type", "text/plain");
    assert_refused_unread(
        "all wrong",
        &draft.post(&stage).await,
        StatusCode::FORBIDDEN,
    );
    let answer = stage
        .weir_answers(
            "GET /nowhere HTTP/1.1",
            &["Origin: https://evil.example", "Connection: close"],
        )
        .await;
    assert_eq!(answer.status, 403, "{answer:?}");
    stage.assert_still_serving("a foreign origin").await;
}

// Proves A18, R002.
#[tokio::test(flavor = "multi_thread")]
async fn own_listed_and_absent_origins_are_served() {
    let mut stage = stage().await;
    let own = stage.weir.url("");
    for (origin, permitted) in [
        (None, false),
        (Some(own.as_str()), false),
        (Some(LISTED), true),
        (Some("http://localhost:6274"), true),
    ] {
        let mut draft = stage.draft_call();
        if let Some(origin) = origin {
            draft.set_header("origin", origin);
        }
        let answer = draft.post(&stage).await;
        assert_eq!(answer.status, 200, "{origin:?}: {:?}", answer.body);
        assert_eq!(stage.take_client_requests().len(), 1, "{origin:?}");
        let permission = answer.header("access-control-allow-origin");
        assert_ne!(permission, Some("*"), "{origin:?}");
        if permitted {
            assert_eq!(permission, origin);
            let exposed = answer
                .header("access-control-expose-headers")
                .unwrap_or_default()
                .to_lowercase();
            for name in [
                "mcp-session-id",
                "mcp-protocol-version",
                "www-authenticate",
                "retry-after",
            ] {
                assert!(exposed.contains(name), "{name} in {exposed}");
            }
            assert!(
                answer.headers.get_all("vary").iter().any(|vary| vary
                    .to_str()
                    .unwrap()
                    .to_lowercase()
                    .contains("origin"))
            );
        }
        stage
            .assert_still_serving(origin.unwrap_or("no origin"))
            .await;
    }
}

fn preflight(origin: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let wanted = "content-type, accept, mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, last-event-id, authorization, Mcp-Param-Region, x-other";
    for (name, value) in [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", wanted),
    ] {
        headers.insert(http::HeaderName::from_static(name), value.parse().unwrap());
    }
    headers
}

// Proves A18.
#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_of_a_listed_origin_is_granted() {
    let mut stage = stage().await;
    let answer = stage.send(Method::OPTIONS, preflight(LISTED), "").await;
    assert!(
        answer.status.is_success(),
        "{} {:?}",
        answer.status,
        answer.body
    );
    assert_eq!(answer.header("access-control-allow-origin"), Some(LISTED));
    let methods = answer
        .header("access-control-allow-methods")
        .unwrap_or_default();
    for method in ["POST", "GET", "DELETE"] {
        assert!(methods.contains(method), "{method} in {methods}");
    }
    let allowed = answer
        .header("access-control-allow-headers")
        .unwrap_or_default()
        .to_lowercase();
    for name in [
        "content-type",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "mcp-session-id",
        "last-event-id",
        "authorization",
        "mcp-param-region",
    ] {
        assert!(
            allowed.contains(name) && allowed != "*",
            "{name} in {allowed}"
        );
    }
    assert!(!allowed.contains("x-other"), "{allowed}");
    stage.assert_still_serving("a preflight").await;
}

// Proves A18.
#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_of_a_foreign_origin_is_403() {
    let mut stage = stage().await;
    for origin in [
        "https://evil.example",
        "null",
        "https://app.example.evil.example",
    ] {
        let answer = stage.send(Method::OPTIONS, preflight(origin), "").await;
        assert_refused_unread(origin, &answer, StatusCode::FORBIDDEN);
        no_permission(origin, &answer.headers);
        stage.assert_still_serving(origin).await;
    }
}

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::time::Duration;

use weir_core::UpstreamId;
use weir_core::failure::{AuthenticationDenial, LimitReached};

use super::*;

fn kinds() -> Vec<FailureKind> {
    let upstream = |code| {
        FailureKind::Upstream(UpstreamError {
            code,
            message: "its own words".into(),
            data: Some(Bytes::from_static(br#"{"x":1}"#)),
        })
    };
    vec![
        FailureKind::TimedOut,
        FailureKind::Unavailable,
        FailureKind::BadAnswer,
        FailureKind::ResultUnknown,
        FailureKind::Limit,
        FailureKind::Busy,
        FailureKind::MethodNotFound,
        FailureKind::InvalidParams,
        FailureKind::UnknownResource("x:y".to_owned()),
        FailureKind::UnknownTask,
        FailureKind::BadArguments,
        FailureKind::MissingCapability(Bytes::from_static(br#"{"sampling":{}}"#)),
        upstream(-32602),
        upstream(-32601),
        upstream(-32000),
        upstream(-32001),
        upstream(-32002),
        upstream(-32020),
        upstream(-32021),
        upstream(-32022),
        upstream(-32042),
        upstream(-32050),
        upstream(7),
        FailureKind::Internal,
        FailureKind::Unauthenticated(AuthenticationDenial::Missing),
        FailureKind::InsufficientScope(std::sync::Arc::new(["tools:call".into()])),
        FailureKind::Denied,
        FailureKind::Overloaded,
    ]
}

fn rendered(revision: Revision, tool_call: bool, kind: &FailureKind) -> String {
    let request = RequestName::from_bits(0x1234);
    let mut failure = Failure::new(kind.clone(), "what happened")
        .with_upstream(&UpstreamId::new("files").unwrap())
        .retry_after(Duration::from_millis(1500));
    let limited = |policy: &str, window, quota| LimitReached {
        policy: policy.into(),
        limit: 20,
        window,
        quota,
    };
    if matches!(kind, FailureKind::Limit) {
        failure = failure.limited_by(limited("principal", Duration::from_secs(86_400), true));
    } else if matches!(kind, FailureKind::Busy) {
        failure = failure.limited_by(limited("concurrency:upstream", Duration::ZERO, false));
    }
    let rendered = log_and_render(
        &failure,
        FailureContext {
            revision,
            tool_call,
            request: &request,
        },
    );
    let message = rendered.message(&RequestId::from(7u64));
    format!(
        "{} {}",
        rendered.status.as_u16(),
        std::str::from_utf8(&message).unwrap()
    )
}

/// Failure x era x method, as a reviewed document: `UPDATE=1` writes it anew.
#[test]
fn failure_table_matches_the_reviewed_file() {
    let mut table = String::new();
    for kind in kinds() {
        writeln!(table, "{kind:?}").unwrap();
        for (revision, tool_call) in [
            (Revision::MODERN, true),
            (Revision::MODERN, false),
            (Revision::NEWEST_LEGACY, true),
            (Revision::V2025_06_18, true),
        ] {
            let method = if tool_call { "tools/call" } else { "other" };
            writeln!(
                table,
                "  {revision} {method}: {}",
                rendered(revision, tool_call, &kind)
            )
            .unwrap();
        }
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/failure/table.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, &table).unwrap();
    }
    assert_eq!(
        table,
        std::fs::read_to_string(file).unwrap(),
        "review the change, then run with UPDATE=1"
    );
}

// Proves R049, R050.
#[test]
fn no_undefined_code_reaches_a_modern_client() {
    for number in -32_800..=-31_900 {
        let error = UpstreamError {
            code: number,
            message: String::new(),
            data: None,
        };
        let (_, seen) = upstream_error_code(&error, true);
        assert!(
            error_code::is_allowed_to_modern(seen),
            "{number} became {}",
            seen
        );
        // The range that implementations used before: an upstream's code may pass, but no other
        // code is mapped into it.
        assert!(
            seen == number || !(-32_019..=-32_000).contains(&seen),
            "{number} became {}",
            seen
        );
    }
}

// Proves E01, B14.
#[test]
fn only_weirs_own_state_is_a_5xx_and_404_is_modern() {
    for kind in kinds() {
        for revision in Revision::ALL {
            for tool_call in [true, false] {
                let request = RequestName::from_bits(0);
                let failure = Failure::new(kind.clone(), "");
                let rendered = log_and_render(
                    &failure,
                    FailureContext {
                        revision,
                        tool_call,
                        request: &request,
                    },
                );
                assert_eq!(
                    rendered.status.is_server_error(),
                    kind == FailureKind::Overloaded,
                    "{kind:?}"
                );
                // In a legacy session a 404 means that the session is over (2025-11-25,
                // transports).
                assert!(
                    revision.is_modern() || rendered.status != StatusCode::NOT_FOUND,
                    "{kind:?}"
                );
            }
        }
    }
}

/// The client of a stream sees neither the status nor the headers of a refusal.
#[tokio::test]
async fn every_refusal_of_a_request_has_a_form_as_a_message() {
    use http_body_util::BodyExt as _;

    let request = RequestName::from_bits(0x1234);
    for refusal in RequestRefusal::ALL {
        let row = refusal_response(refusal);
        let id = RequestId::from(7u64);
        let answer = into_message_answer(refusal.into(), Some(&id), &request);
        assert_eq!(answer.headers()["content-type"], "application/json");
        let message = answer.into_body().collect().await.unwrap().to_bytes();
        let message: serde_json::Value = serde_json::from_slice(&message).unwrap();
        let error = &message["error"];
        assert_eq!(message["id"], 7);
        assert_eq!(error["message"], row.text);
        assert_eq!(error["data"]["reason"].as_str(), row.reason);
        assert_eq!(error["data"]["requestId"], request.as_str());
        let retry = error["data"]["retryAfterMs"].as_u64();
        let has_time = matches!(
            row.advice,
            RefusalAdvice::RetryAfter(_) | RefusalAdvice::CloseAndRetryAfter(_)
        );
        assert_eq!(retry.is_some(), has_time, "{refusal:?}");
        let code = match row.status.as_u16() {
            429 => 1005,
            502 => 1004,
            503 => 1006,
            _ => -32600,
        };
        assert_eq!(error["code"], code, "{refusal:?}");
    }
}

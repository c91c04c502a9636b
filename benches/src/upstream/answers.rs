//! The answers to POST requests by a server of the upstream process.
//!
//! The envelope is read once with borrowed payloads and the arguments are echoed as raw text. So
//! the upstream takes as little as it can of the machine it shares with the measured process.

use super::streams::{self, UpstreamBody, UpstreamState, status};
use super::upstream_shape::UpstreamShape;
use crate::protocol::{Era, SESSION};
use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// The next session id. Ids count up, because a load run has no attacker.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

#[derive(Deserialize)]
struct UpstreamMessage<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct UpstreamCall<'a> {
    name: &'a str,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct EchoArguments<'a> {
    #[serde(borrow)]
    message: &'a RawValue,
}

#[derive(Default, Deserialize)]
struct ListCursor<'a> {
    cursor: Option<&'a str>,
}

/// Answers one message in the era of the path it came by.
pub(super) fn post(
    state: &UpstreamState,
    era: Era,
    index: usize,
    body: &[u8],
) -> Response<UpstreamBody> {
    let Ok(message) = serde_json::from_slice::<UpstreamMessage<'_>>(body) else {
        return failure(StatusCode::BAD_REQUEST, "null", -32700, "not JSON");
    };
    let (Some(id), Some(method)) = (message.id.map(RawValue::get), message.method) else {
        return status(StatusCode::ACCEPTED);
    };
    let params = message.params.map_or("{}", RawValue::get);
    match (method, era) {
        ("tools/call", _) => call(id, era, params),
        ("tools/list", _) => list(id, era, params, state.shape(), state.changes(index)),
        ("server/discover", Era::Modern) => discover(id, index),
        ("subscriptions/listen", Era::Modern) => streams::modern(state, index, id),
        ("initialize", Era::Legacy) => initialize(id, index),
        ("ping", Era::Legacy) => result(id, "{}"),
        (_, Era::Modern) => failure(StatusCode::NOT_FOUND, id, -32601, "no such method"),
        // A legacy server's answer to a modern probe: no session, no modern code.
        ("server/discover" | "subscriptions/listen", Era::Legacy) => {
            failure(StatusCode::BAD_REQUEST, id, -32000, "no session")
        }
        (_, Era::Legacy) => failure(StatusCode::OK, id, -32601, "no such method"),
    }
}

/// Calls a tool: `echo` answers with its message, `measure` with the length and the byte sum of its
/// arguments.
fn call(id: &str, era: Era, params: &str) -> Response<UpstreamBody> {
    let Ok(call) = serde_json::from_str::<UpstreamCall<'_>>(params) else {
        return failure(StatusCode::OK, id, -32602, "no tool named");
    };
    let arguments = call.arguments.map_or("{}", RawValue::get);
    let text = match call.name {
        "echo" => match serde_json::from_str::<EchoArguments<'_>>(arguments) {
            Ok(echo) => echo.message.get().to_owned(),
            Err(_) => return failure(StatusCode::OK, id, -32602, "no message"),
        },
        "measure" => format!("\"{}\"", measure(arguments)),
        _ => return failure(StatusCode::OK, id, -32602, "no such tool"),
    };
    let complete = complete(era);
    result(
        id,
        &format!(r#"{{{complete}"content":[{{"type":"text","text":{text}}}]}}"#),
    )
}

/// The answer of `measure` for these bytes of arguments.
pub(crate) fn measure(arguments: &str) -> String {
    let sum: u64 = arguments.bytes().map(u64::from).sum();
    format!("{} bytes, sum {sum}", arguments.len())
}

fn list(
    id: &str,
    era: Era,
    params: &str,
    shape: UpstreamShape,
    changes: u64,
) -> Response<UpstreamBody> {
    let cursor = serde_json::from_str::<ListCursor<'_>>(params)
        .unwrap_or_default()
        .cursor;
    let Ok(from) = cursor.unwrap_or("0").parse::<usize>() else {
        return failure(StatusCode::OK, id, -32602, "no such cursor");
    };
    // A server that changed has one tool more, named after the count of changes.
    let total = shape.tools + usize::from(changes > 0);
    let to = from.saturating_add(shape.page).min(total);
    let mut text = format!("{{{}\"tools\":[", complete(era));
    for index in from..to {
        let comma = if index > from { "," } else { "" };
        // Writing into a String cannot fail.
        let _ = write!(text, "{comma}{}", tool(index, shape.tools, changes));
    }
    text.push(']');
    if to < total {
        let _ = write!(text, ",\"nextCursor\":\"{to}\"");
    }
    if era == Era::Modern {
        text.push_str(r#","ttlMs":60000,"cacheScope":"public""#);
    }
    text.push('}');
    result(id, &text)
}

/// Renders one tool of about the size of real ones.
fn tool(index: usize, tools: usize, changes: u64) -> String {
    let name = match index {
        0 => "echo".to_owned(),
        1 => "measure".to_owned(),
        _ if index == tools => format!("fresh_{changes}"),
        _ => format!("tool_{index:04}"),
    };
    let schema = match index {
        0 => {
            r#"{"type":"object","properties":{"message":{"type":"string","description":"What to say back."}},"required":["message"]}"#
        }
        1 => r#"{"type":"object"}"#,
        _ => {
            r#"{"type":"object","properties":{"path":{"type":"string","description":"Where to look."},"limit":{"type":"integer","minimum":1}},"required":["path"]}"#
        }
    };
    format!(
        r#"{{"name":"{name}","title":"Tool {index}","description":"Tool {index} of a server under load: does what its name says and nothing else.","inputSchema":{schema},"annotations":{{"readOnlyHint":true}}}}"#
    )
}

fn discover(id: &str, index: usize) -> Response<UpstreamBody> {
    result(
        id,
        &format!(
            r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{"listChanged":true}}}},"ttlMs":60000,"cacheScope":"public","_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"load-{index}","version":"1"}}}}}}"#
        ),
    )
}

fn initialize(id: &str, index: usize) -> Response<UpstreamBody> {
    let mut response = result(
        id,
        &format!(
            r#"{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{"listChanged":true}}}},"serverInfo":{{"name":"load-{index}","version":"1"}}}}"#
        ),
    );
    let session = HeaderValue::from(SESSIONS.fetch_add(1, Ordering::Relaxed));
    response.headers_mut().insert(SESSION, session);
    response
}

const fn complete(era: Era) -> &'static str {
    match era {
        Era::Modern => r#""resultType":"complete","#,
        Era::Legacy => "",
    }
}

fn result(id: &str, result: &str) -> Response<UpstreamBody> {
    streams::json(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    ))
}

fn failure(code: StatusCode, id: &str, error: i32, message: &str) -> Response<UpstreamBody> {
    let mut response = streams::json(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{error},"message":"{message}"}}}}"#
    ));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::protocol;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    async fn asked(state: &UpstreamState, era: Era, body: &str) -> (StatusCode, Value) {
        let response = post(state, era, 0, body.as_bytes());
        let code = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap())
    }

    fn state() -> UpstreamState {
        UpstreamState::new(UpstreamShape {
            servers: 1,
            tools: 5,
            page: 2,
        })
    }

    #[tokio::test]
    async fn echo_returns_the_message_and_measure_counts_it() {
        let state = state();
        for era in [Era::Modern, Era::Legacy] {
            let (_, answer) = asked(
                &state,
                era,
                &protocol::call(era, 3, "echo", r#"{"message":"a\"b"}"#),
            )
            .await;
            assert_eq!(answer["id"], json!(3));
            assert_eq!(answer["result"]["content"][0]["text"], json!("a\"b"));
            let (_, answer) = asked(
                &state,
                era,
                &protocol::call(era, 4, "measure", r#"{"a":1}"#),
            )
            .await;
            assert_eq!(
                answer["result"]["content"][0]["text"],
                json!(measure(r#"{"a":1}"#))
            );
        }
    }

    #[tokio::test]
    async fn pages_hold_every_tool_once_and_a_change_adds_one() {
        let state = state();
        state.change(0);
        let (mut names, mut cursor) = (Vec::new(), Value::Null);
        for _ in 0..5 {
            let params = cursor
                .as_str()
                .map_or_else(String::new, |cursor| format!(r#""cursor":"{cursor}""#));
            let (_, answer) = asked(
                &state,
                Era::Modern,
                &protocol::request(Era::Modern, 1, "tools/list", &params),
            )
            .await;
            names.extend(
                answer["result"]["tools"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|tool| tool["name"].clone()),
            );
            cursor = answer["result"]["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert_eq!(
            names,
            [
                "echo",
                "measure",
                "tool_0002",
                "tool_0003",
                "tool_0004",
                "fresh_1"
            ]
        );
    }

    #[tokio::test]
    async fn a_modern_probe_of_a_legacy_server_gets_no_modern_code() {
        let probe = protocol::request(Era::Modern, 1, "server/discover", "");
        let (code, answer) = asked(&state(), Era::Legacy, &probe).await;
        assert_eq!(
            (code, &answer["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!(-32000))
        );
        let (code, answer) = asked(&state(), Era::Modern, &probe).await;
        assert_eq!(
            (code, &answer["result"]["supportedVersions"]),
            (StatusCode::OK, &json!(["2026-07-28"]))
        );
    }
}

//! The legacy mock server, with sessions unless the test turns them off.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use weir_wire::{LogLevel, Revision, error_code};

use crate::mock_server::breakable_stream::ResetSwitch;
use crate::mock_server::change_stream::{RenderChange, listen};
use crate::mock_server::library;
use crate::mock_server::mock_call::MockCall;
use crate::mock_server::mock_response::{MockBody, empty, error, json_text};
use crate::mock_server::player::play;
use crate::mock_server::recorded_request::RecordedRequest;
use crate::mock_server::state::{MockChange, MockSession, MockState};
use crate::mock_server::tasks;

/// The known facts of a request's session.
struct MockSessionFacts {
    revision: Revision,
    capabilities: Value,
    level: Option<LogLevel>,
    alive: Option<watch::Receiver<()>>,
}

pub(super) async fn answer(
    shared: &Arc<MockState>,
    request: &RecordedRequest,
    switch: &ResetSwitch,
) -> Response<MockBody> {
    if request.verb == Method::POST && request.method() == "initialize" {
        return initialize(shared, request);
    }
    let known = match session(shared, request) {
        Ok(known) => known,
        Err(refusal) => return *refusal,
    };
    match request.verb {
        Method::GET if shared.settings.get_stream => listen(
            shared,
            None,
            render_session_changes(shared, request),
            known.alive,
            Vec::new(),
        ),
        Method::DELETE if shared.settings.sessions => {
            shared.change(|inner| request.session().and_then(|id| inner.sessions.remove(id)));
            empty(StatusCode::NO_CONTENT)
        }
        Method::POST => post(shared, request, known, switch).await,
        _ => empty(StatusCode::METHOD_NOT_ALLOWED),
    }
}

async fn post(
    shared: &Arc<MockState>,
    request: &RecordedRequest,
    known: MockSessionFacts,
    switch: &ResetSwitch,
) -> Response<MockBody> {
    let (id, params) = (&request.message["id"], &request.message["params"]);
    if id.is_null() || request.method().is_empty() {
        accept_message(shared, request);
        return empty(StatusCode::ACCEPTED);
    }
    match request.method() {
        "ping" => result(id, "{}"),
        "logging/setLevel" => {
            let level = params["level"].as_str().and_then(LogLevel::parse);
            shared.change(|inner| {
                if let Some(session) = request.session().and_then(|id| inner.sessions.get_mut(id)) {
                    session.level = level;
                }
            });
            result(id, "{}")
        }
        "resources/subscribe" | "resources/unsubscribe" if shared.settings.library => {
            subscribe(shared, request)
        }
        "tools/list" => match shared.page(
            &known.capabilities,
            params.get("cursor").and_then(Value::as_str),
        ) {
            Some(page) => result(id, &format!("{{{page}}}")),
            None => error(
                StatusCode::OK,
                id,
                error_code::INVALID_PARAMS,
                "no such cursor",
            ),
        },
        _ if tasks::is_of_tasks(shared, request, known.revision) => {
            tasks::answer(shared, request, known.revision, switch).await
        }
        "tools/call" => match request.tool().and_then(|tool| shared.begin_call(tool)) {
            Some(behaviour) => {
                let call = MockCall {
                    // Until a level is set, this server chooses to send all messages, as the
                    // TypeScript SDK does.
                    level: known.level.or(Some(LogLevel::Debug)),
                    ..MockCall::of(request, known.revision)
                };
                play(shared, behaviour, call, switch).await
            }
            None => error(
                StatusCode::OK,
                id,
                error_code::INVALID_PARAMS,
                "no such tool",
            ),
        },
        method => {
            match library::answer(method, params, false).filter(|_| shared.settings.library) {
                Some(Ok(own)) => result(id, &own.to_string()),
                Some(Err((code, why))) => error(StatusCode::OK, id, code, why),
                None => error(
                    StatusCode::OK,
                    id,
                    error_code::METHOD_NOT_FOUND,
                    "no such method",
                ),
            }
        }
    }
}

/// Renders changes for a session's stream.
fn render_session_changes(shared: &Arc<MockState>, request: &RecordedRequest) -> RenderChange {
    let (shared, session) = (
        Arc::clone(shared),
        request.session().unwrap_or_default().to_owned(),
    );
    let note = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
    };
    Box::new(move |news| match news {
        MockChange::List => shared
            .settings
            .list_changed
            .then(|| note("notifications/tools/list_changed", json!({}))),
        MockChange::Updated(uri) => {
            let inner = shared.lock();
            let mut subscribed = inner.sessions.get(&session)?.subscribed.iter();
            // A part of a subscribed resource is reported, too.
            let of = |own: &String| {
                uri.strip_prefix(own.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            subscribed
                .any(of)
                .then(|| note("notifications/resources/updated", json!({"uri": uri})))
        }
        // The revision has another notification for that, and a server need not send it.
        MockChange::Task(_) => None,
        MockChange::SessionMessage(to, message) => (*to == session).then(|| message.clone()),
    })
}

fn subscribe(shared: &MockState, request: &RecordedRequest) -> Response<MockBody> {
    let (id, uri) = (
        &request.message["id"],
        request.message["params"]["uri"]
            .as_str()
            .unwrap_or_default(),
    );
    if !library::has_updates(uri) {
        return error(
            StatusCode::OK,
            id,
            error_code::INVALID_PARAMS,
            "this one never changes",
        );
    }
    shared.change(|inner| {
        let session = request.session().and_then(|id| inner.sessions.get_mut(id));
        session.map(|session| match request.method() {
            "resources/subscribe" => session.subscribed.insert(uri.to_owned()),
            _ => session.subscribed.remove(uri),
        })
    });
    result(id, "{}")
}

/// Takes notifications and answers to the server's own requests.
fn accept_message(shared: &MockState, request: &RecordedRequest) {
    if request.method() == "notifications/cancelled" {
        let cancel = (
            request.session().map(str::to_owned),
            request.message["params"]["requestId"].clone(),
        );
        // An error means that no call is running.
        let _ = shared.cancels.send(cancel);
    }
    let asked = request.message["id"]
        .as_str()
        .and_then(|id| shared.change(|inner| inner.pending_requests.remove(id)));
    if let Some((_, asked)) = asked {
        // An error means that the asking call is over.
        let _ = asked.send(request.message.clone());
    }
}

fn initialize(shared: &MockState, request: &RecordedRequest) -> Response<MockBody> {
    let (id, params) = (&request.message["id"], &request.message["params"]);
    let Some(newest) = shared.settings.legacy else {
        return error(
            StatusCode::BAD_REQUEST,
            id,
            error_code::METHOD_NOT_FOUND,
            "this server is modern",
        );
    };
    let asked = params["protocolVersion"].as_str().and_then(Revision::parse);
    let revision = asked.filter(|asked| *asked <= newest).unwrap_or(newest);
    let tools = if shared.settings.list_changed {
        json!({"listChanged": true})
    } else {
        json!({})
    };
    let mut capabilities = json!({"tools": tools, "logging": {}});
    if shared.settings.library {
        library::declare(&mut capabilities, shared.settings.list_changed);
    }
    if shared.settings.tasks {
        tasks::declare(&mut capabilities, revision);
    }
    let answer = json!({
        "protocolVersion": revision.as_str(),
        "capabilities": capabilities,
        "serverInfo": {"name": shared.settings.name, "version": "1.0.0"},
    });
    let mut response = result(id, &answer.to_string());
    if shared.settings.sessions {
        let session = MockSession {
            revision,
            capabilities: params["capabilities"].clone(),
            level: None,
            subscribed: BTreeSet::new(),
            alive: watch::Sender::new(()),
        };
        let name = shared.change(|inner| {
            inner.numbers += 1;
            let name = format!("session-{:08}", inner.numbers);
            inner.sessions.insert(name.clone(), session);
            name
        });
        if let Ok(name) = HeaderValue::from_str(&name) {
            response.headers_mut().insert("mcp-session-id", name);
        }
    }
    response
}

fn session(
    shared: &MockState,
    request: &RecordedRequest,
) -> Result<MockSessionFacts, Box<Response<MockBody>>> {
    if !shared.settings.sessions {
        let revision = shared.settings.legacy.unwrap_or(Revision::NEWEST_LEGACY);
        return Ok(MockSessionFacts {
            revision,
            capabilities: json!({}),
            level: None,
            alive: None,
        });
    }
    let id = &request.message["id"];
    let refuse = |status: StatusCode, why: &str| {
        Box::new(error(status, id, error_code::INVALID_REQUEST, why))
    };
    let Some(name) = request.session() else {
        return Err(refuse(StatusCode::BAD_REQUEST, "no session id"));
    };
    let inner = shared.lock();
    let Some(session) = inner.sessions.get(name) else {
        let status =
            StatusCode::from_u16(shared.settings.lost_session).unwrap_or(StatusCode::NOT_FOUND);
        return Err(refuse(status, "no such session"));
    };
    Ok(MockSessionFacts {
        revision: session.revision,
        capabilities: session.capabilities.clone(),
        level: session.level,
        alive: Some(session.alive.subscribe()),
    })
}

fn result(id: &Value, result: &str) -> Response<MockBody> {
    json_text(
        StatusCode::OK,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
    )
}

//! The modern mock server, strict about the required parts of a request.

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use weir_wire::{LogLevel, Revision, error_code, header, meta};

use crate::mock_server::breakable_stream::ResetSwitch;
use crate::mock_server::change_stream::{RenderChange, listen};
use crate::mock_server::library;
use crate::mock_server::mock_call::MockCall;
use crate::mock_server::mock_response::{MockBody, empty, error, json_text};
use crate::mock_server::player::play;
use crate::mock_server::recorded_request::RecordedRequest;
use crate::mock_server::state::{MockChange, MockState};
use crate::mock_server::tasks;

pub(super) async fn answer(
    shared: &Arc<MockState>,
    request: &RecordedRequest,
    switch: &ResetSwitch,
) -> Response<MockBody> {
    if request.verb != Method::POST {
        return empty(StatusCode::METHOD_NOT_ALLOWED);
    }
    let id = &request.message["id"];
    if id.is_null() {
        let notification = request.message.get("method").is_some();
        return empty(if notification {
            StatusCode::ACCEPTED
        } else {
            StatusCode::BAD_REQUEST
        });
    }
    if let Err((code, why)) = check(shared, request) {
        let status = if code == error_code::METHOD_NOT_FOUND {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::BAD_REQUEST
        };
        return match code {
            error_code::UNSUPPORTED_PROTOCOL_VERSION => unsupported(request),
            _ => error(status, id, code, why),
        };
    }
    match request.method() {
        "server/discover" => discover(shared, id),
        "tools/list" => list(shared, request),
        "subscriptions/listen" => subscribe(shared, request),
        _ if tasks::is_of_tasks(shared, request, Revision::MODERN) => {
            tasks::answer(shared, request, Revision::MODERN, switch).await
        }
        method
            if shared.settings.library && library::answer(method, &Value::Null, true).is_some() =>
        {
            match library::answer(method, &request.message["params"], true) {
                Some(Ok(result)) => json_text(
                    StatusCode::OK,
                    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string(),
                ),
                Some(Err((code, why))) => error(StatusCode::OK, id, code, why),
                None => error(
                    StatusCode::NOT_FOUND,
                    id,
                    error_code::METHOD_NOT_FOUND,
                    "no such method",
                ),
            }
        }
        _ => run(shared, request, switch).await,
    }
}

fn check(shared: &MockState, request: &RecordedRequest) -> Result<(), (i64, &'static str)> {
    let mismatch = |why| Err((error_code::HEADER_MISMATCH, why));
    let Some(version) = request.header("mcp-protocol-version") else {
        return mismatch("no MCP-Protocol-Version");
    };
    let Some(method) = request.header("mcp-method") else {
        return mismatch("no Mcp-Method");
    };
    let meta = request.meta();
    let Some(declared) = meta[meta::PROTOCOL_VERSION].as_str() else {
        return Err((error_code::INVALID_PARAMS, "no protocolVersion in _meta"));
    };
    if !meta[meta::CLIENT_CAPABILITIES].is_object() {
        return Err((error_code::INVALID_PARAMS, "no clientCapabilities in _meta"));
    }
    if declared != version {
        return mismatch("MCP-Protocol-Version is not the version in _meta");
    }
    if version != Revision::MODERN.as_str() {
        return Err((
            error_code::UNSUPPORTED_PROTOCOL_VERSION,
            "not a version of this server",
        ));
    }
    if method != request.method() {
        return mismatch("Mcp-Method is not the method");
    }
    match method {
        "server/discover" | "tools/list" | "subscriptions/listen" => Ok(()),
        "tools/call" => {
            let name = request
                .headers
                .get("mcp-name")
                .and_then(|name| header::decode(name.as_bytes()).ok());
            if name.as_deref() == request.tool() && name.is_some() {
                Ok(())
            } else {
                mismatch("Mcp-Name is not the name")
            }
        }
        "tasks/get" | "tasks/update" | "tasks/cancel" if shared.settings.tasks => {
            let name = request
                .headers
                .get("mcp-name")
                .and_then(|name| header::decode(name.as_bytes()).ok());
            let own = request.message["params"]["taskId"].as_str();
            if name.as_deref() == own && name.is_some() {
                Ok(())
            } else {
                mismatch("Mcp-Name is not the task")
            }
        }
        method
            if shared.settings.library && library::answer(method, &Value::Null, true).is_some() =>
        {
            let name = request
                .headers
                .get("mcp-name")
                .map(|name| header::decode(name.as_bytes()).unwrap_or_default());
            let own = library::mcp_name_member(method)
                .and_then(|member| request.message["params"][member].as_str());
            if name.as_deref() == own {
                Ok(())
            } else {
                mismatch("Mcp-Name is not the name or URI")
            }
        }
        _ => Err((error_code::METHOD_NOT_FOUND, "no such method")),
    }
}

fn unsupported(request: &RecordedRequest) -> Response<MockBody> {
    let requested = request.header("mcp-protocol-version").unwrap_or_default();
    let data = json!({"supported": [Revision::MODERN.as_str()], "requested": requested});
    let error = json!({"code": error_code::UNSUPPORTED_PROTOCOL_VERSION, "message": "not a version of this server", "data": data});
    let message = json!({"jsonrpc": "2.0", "id": request.message["id"], "error": error});
    json_text(StatusCode::BAD_REQUEST, message.to_string())
}

fn discover(shared: &MockState, id: &Value) -> Response<MockBody> {
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
        tasks::declare(&mut capabilities, Revision::MODERN);
    }
    let result = json!({
        "resultType": "complete",
        "supportedVersions": [Revision::MODERN.as_str()],
        "capabilities": capabilities,
        "ttlMs": 60_000,
        "cacheScope": "public",
        "_meta": {meta::SERVER_INFO: {"name": shared.settings.name, "version": "1.0.0"}},
    });
    json_text(
        StatusCode::OK,
        json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string(),
    )
}

fn list(shared: &MockState, request: &RecordedRequest) -> Response<MockBody> {
    let id = &request.message["id"];
    let cursor = request.message["params"]
        .get("cursor")
        .and_then(Value::as_str);
    let Some(page) = shared.page(&request.meta()[meta::CLIENT_CAPABILITIES], cursor) else {
        return error(
            StatusCode::OK,
            id,
            error_code::INVALID_PARAMS,
            "no such cursor",
        );
    };
    let hints = shared.settings.cache.as_ref();
    let hints = hints.map_or_else(String::new, |(ttl, scope)| {
        format!(r#","ttlMs":{ttl},"cacheScope":{}"#, json!(scope))
    });
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete"{hints},{page}}}}}"#
    );
    json_text(StatusCode::OK, text)
}

fn subscribe(shared: &Arc<MockState>, request: &RecordedRequest) -> Response<MockBody> {
    let wanted = request.message["params"]["notifications"]["toolsListChanged"] == true
        && shared.settings.list_changed;
    let mark = json!({meta::SUBSCRIPTION_ID: request.message["id"]});
    let mut granted = if wanted {
        json!({"toolsListChanged": true})
    } else {
        json!({})
    };
    let asked = request.message["params"]["notifications"]["resourceSubscriptions"].as_array();
    let uris = asked
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned);
    let uris: Vec<_> = uris
        .filter(|uri| shared.settings.library && library::has_updates(uri))
        .collect();
    if !uris.is_empty() {
        granted["resourceSubscriptions"] = json!(uris);
    }
    let asked = request.message["params"]["notifications"]["taskIds"].as_array();
    let own_tasks: Vec<_> = asked
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let own_tasks: Vec<_> = own_tasks
        .into_iter()
        .filter(|task| shared.lock().tasks.contains_key(task))
        .collect();
    if !own_tasks.is_empty() {
        granted["taskIds"] = json!(own_tasks);
    }
    let known = Arc::clone(shared);
    fn note(method: &str, params: &Value) -> String {
        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
    }
    let first = note(
        "notifications/subscriptions/acknowledged",
        &json!({"notifications": granted, "_meta": mark}),
    );
    let own = uris.clone();
    let tell: RenderChange = Box::new(move |news| match news {
        MockChange::List => {
            wanted.then(|| note("notifications/tools/list_changed", &json!({"_meta": mark})))
        }
        MockChange::SessionMessage(..) => None,
        MockChange::Task(task) => own_tasks.contains(task).then(|| {
            let mut state = tasks::task_notification_params(&known, task);
            state["_meta"] = mark.clone();
            note("notifications/tasks", &state)
        }),
        MockChange::Updated(uri) => {
            let of = |own: &String| {
                uri.strip_prefix(own.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let params = json!({"uri": uri, "_meta": mark});
            own.iter()
                .any(of)
                .then(|| note("notifications/resources/updated", &params))
        }
    });
    listen(shared, Some(first), tell, None, uris)
}

async fn run(
    shared: &Arc<MockState>,
    request: &RecordedRequest,
    switch: &ResetSwitch,
) -> Response<MockBody> {
    let Some(behaviour) = request.tool().and_then(|tool| shared.begin_call(tool)) else {
        return error(
            StatusCode::OK,
            &request.message["id"],
            error_code::INVALID_PARAMS,
            "no such tool",
        );
    };
    let level = request.meta()[meta::LOG_LEVEL]
        .as_str()
        .and_then(LogLevel::parse);
    let call = MockCall {
        level,
        session: None,
        ..MockCall::of(request, Revision::MODERN)
    };
    play(shared, behaviour, call, switch).await
}

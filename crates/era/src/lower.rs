//! A canonical call in the form of one server: the request's bytes, made by splicing the client's
//! own.
//!
//! Only the parts of one hop are written anew: the name, the `_meta` keys weir owns, the state of
//! an earlier round. All other members, unknown ones included, are the client's bytes. The
//! request's destination is not known here.

mod parameter_headers;

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::call::{InputMode, LogMessages, TaskMode, TraceContext};
use weir_core::{Call, CallResumption};
use weir_wire::method::Method;
use weir_wire::params::{NAMES, REF_NAMES};
use weir_wire::write::{ObjectWriter, string};
use weir_wire::{ErrorObject, LogLevel, Revision, meta, scan};

pub use parameter_headers::{
    annotated_headers, case_variant, header_values, mismatched_header, without_annotations,
};

/// The identity of the sender in `_meta` of every modern request.
#[derive(Clone, Copy, Debug)]
pub struct SenderMeta<'a> {
    /// The revision the request is in.
    pub revision: Revision,
    /// `Implementation` object of weir itself.
    pub client_info: &'a [u8],
    /// `ClientCapabilities` object of this request.
    pub capabilities: &'a [u8],
    /// The log messages that this request asks for.
    pub log_messages: LogMessages,
}

/// A call for a modern server: of a tool, of a prompt, of a resource, or to complete for one.
#[must_use]
pub fn modern_call(id: u64, call: &Call, native: &str, sender: &SenderMeta<'_>) -> Bytes {
    if call.method == Method::Extension {
        return modern_extension(id, call, native, sender);
    }
    let mut out = head(id, call.method, call.params.raw().len() + 512);
    let mut params = ObjectWriter::new(&mut out);
    let named = name(&mut params, call, native);
    // A client that is asked by requests gives no answers with its calls.
    let own = call.input_mode == InputMode::Rounds && call.input_responses.is_none();
    let gathered = if own { named } else { "inputResponses" };
    copy(
        &mut params,
        call.params.raw(),
        &[named, gathered, "_meta", "requestState", "task"],
        &NAMES,
    );
    if let Some(answers) = &call.input_responses {
        params.raw("inputResponses", answers);
    }
    if let Some(CallResumption::Upstream(state)) = &call.resume {
        params.string("requestState", state);
    }
    params.with("_meta", |out| about(out, id, call, sender));
    params.end();
    out.put_u8(b'}');
    out.freeze()
}

/// A request of a method that no revision knows: only the `_meta` of its `params` is changed.
fn modern_extension(id: u64, call: &Call, method: &str, sender: &SenderMeta<'_>) -> Bytes {
    let mut params = BytesMut::with_capacity(call.params.raw().len() + 512);
    let mut object = ObjectWriter::new(&mut params);
    copy(&mut object, call.params.raw(), &["_meta"], &[]);
    object.with("_meta", |out| about(out, id, call, sender));
    object.end();
    weir_wire::write::request(&weir_wire::RequestId::from(id), method, Some(&params))
}

/// The same for a legacy server. It gets a `_meta` only if that is not empty: its schema may have
/// no `_meta`.
fn legacy_extension(id: u64, call: &Call, method: &str) -> Bytes {
    let mut meta = BytesMut::with_capacity(256);
    let mut own = ObjectWriter::new(&mut meta);
    write_hop_meta(&mut own, id, call.wants_progress, &call.trace);
    write_peer_meta(&mut own, call);
    own.end();
    let mut params = BytesMut::with_capacity(call.params.raw().len() + meta.len() + 16);
    let mut object = ObjectWriter::new(&mut params);
    copy(&mut object, call.params.raw(), &["_meta"], &[]);
    if &meta[..] != b"{}" {
        object.raw("_meta", &meta);
    }
    object.end();
    weir_wire::write::request(&weir_wire::RequestId::from(id), method, Some(&params))
}

/// Writes the `_meta` of a modern request.
fn about(out: &mut BytesMut, id: u64, call: &Call, sender: &SenderMeta<'_>) {
    let mut meta = ObjectWriter::new(out);
    identify(&mut meta, sender);
    if let LogMessages::From(level) = sender.log_messages {
        meta.string(meta::LOG_LEVEL, level.as_str());
    }
    write_hop_meta(&mut meta, id, call.wants_progress, &call.trace);
    write_peer_meta(&mut meta, call);
    meta.end();
}

/// The same for a legacy server.
#[must_use]
pub fn legacy_call(id: u64, call: &Call, native: &str, revision: Revision) -> Bytes {
    if call.method == Method::Extension {
        return legacy_extension(id, call, native);
    }
    let mut out = head(id, call.method, call.params.raw().len() + 256);
    let mut params = ObjectWriter::new(&mut out);
    let named = name(&mut params, call, native);
    // Rounds of input and tasks are of other revisions: a server that never offered them must not
    // meet them. The context of a completion (arguments chosen before) exists from 2025-06-18 on.
    let context = if call.method == Method::CompletionComplete && revision < Revision::V2025_06_18 {
        "context"
    } else {
        named
    };
    let except = [
        named,
        context,
        "_meta",
        "requestState",
        "inputResponses",
        "task",
    ];
    copy(&mut params, call.params.raw(), &except, &NAMES);
    if let TaskMode::Wanted { ttl_ms } = call.task_mode {
        params.with("task", |out| {
            let mut task = ObjectWriter::new(out);
            if let Some(ttl) = ttl_ms.and_then(|ttl| i64::try_from(ttl).ok()) {
                task.integer("ttl", ttl);
            }
            task.end();
        });
    }
    params.with("_meta", |out| {
        let mut meta = ObjectWriter::new(out);
        write_hop_meta(&mut meta, id, call.wants_progress, &call.trace);
        write_peer_meta(&mut meta, call);
        meta.end();
    });
    params.end();
    out.put_u8(b'}');
    out.freeze()
}

/// Any other request to a modern server; `members` are the members of `params` beside `_meta`, as
/// JSON.
#[must_use]
pub fn modern_request(
    id: u64,
    method: Method,
    members: &[(&str, &[u8])],
    sender: &SenderMeta<'_>,
) -> Bytes {
    let mut out = head(id, method, 512);
    let mut params = ObjectWriter::new(&mut out);
    for (key, value) in members {
        params.raw(key, value);
    }
    params.with("_meta", |out| {
        let mut meta = ObjectWriter::new(out);
        identify(&mut meta, sender);
        meta.end();
    });
    params.end();
    out.put_u8(b'}');
    out.freeze()
}

/// Any other request to a legacy server; `members` are the members of `params`, as JSON.
#[must_use]
pub fn legacy_request(id: u64, method: Method, members: &[(&str, &[u8])]) -> Bytes {
    let mut out = head(id, method, 128);
    let mut params = ObjectWriter::new(&mut out);
    for (key, value) in members {
        params.raw(key, value);
    }
    params.end();
    out.put_u8(b'}');
    out.freeze()
}

/// `initialize`, the first request of a legacy session.
#[must_use]
pub fn initialize(id: u64, offered: Revision, capabilities: &[u8], client_info: &[u8]) -> Bytes {
    let version = json(offered.as_str());
    let members: &[(&str, &[u8])] = &[
        ("protocolVersion", &version),
        ("capabilities", capabilities),
        ("clientInfo", client_info),
    ];
    legacy_request(id, Method::Initialize, members)
}

/// `notifications/cancelled` about a request of weir's.
#[must_use]
pub fn cancelled(id: u64) -> Bytes {
    let params = format!(r#"{{"requestId":{id},"reason":"The client no longer waits"}}"#);
    weir_wire::write::notification(Method::Cancelled.as_str(), Some(params.as_bytes()))
}

/// `notifications/roots/list_changed`.
#[must_use]
pub fn roots_changed() -> Bytes {
    weir_wire::write::notification(Method::RootsListChanged.as_str(), None)
}

/// `logging/setLevel`.
#[must_use]
pub fn set_level(id: u64, level: LogLevel) -> Bytes {
    legacy_request(
        id,
        Method::LoggingSetLevel,
        &[("level", &json(level.as_str()))],
    )
}

/// The answer to a server's `ping`.
#[must_use]
pub fn pong(id: &weir_wire::RequestId) -> Bytes {
    weir_wire::write::response(id, b"{}")
}

/// The answer to a server's request that weir does not pass on.
#[must_use]
pub fn declined(id: &weir_wire::RequestId) -> Bytes {
    let error = ErrorObject::new(
        weir_wire::error_code::METHOD_NOT_FOUND,
        "The client cannot be asked for this",
    );
    weir_wire::write::error_response(Some(id), false, &error)
}

/// A text as a JSON string.
#[must_use]
pub fn json(text: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(text.len() + 2);
    string(&mut out, text);
    out.freeze()
}

fn head(id: u64, method: Method, room: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(room + 64);
    out.put_slice(br#"{"jsonrpc":"2.0","id":"#);
    let mut digits = [0; 20];
    out.put_slice(decimal(id, &mut digits));
    out.put_slice(br#","method":""#);
    out.put_slice(method.as_str().as_bytes());
    out.put_slice(br#"","params":"#);
    out
}

/// Writes the target of the call under the server's own name for it; returns the member that names
/// it.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most of the 38 methods name their target so"
)]
fn name(params: &mut ObjectWriter<'_>, call: &Call, native: &str) -> &'static str {
    match call.method {
        Method::ResourcesRead => {
            params.string("uri", native);
            "uri"
        }
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult => {
            params.string("taskId", native);
            "taskId"
        }
        Method::CompletionComplete => {
            let raw = call.params.raw();
            let given = scan::find(raw, "ref").map_or(&b"{}"[..], |range| &raw[range]);
            let is_prompt = scan::find(given, "type")
                .and_then(|range| scan::string(&given[range]))
                .as_deref()
                == Some("ref/prompt");
            let key = if is_prompt { "name" } else { "uri" };
            params.with("ref", |out| {
                let mut reference = ObjectWriter::new(out);
                reference.string(key, native);
                copy(&mut reference, given, &[key], &REF_NAMES);
                reference.end();
            });
            "ref"
        }
        _ => {
            params.string("name", native);
            "name"
        }
    }
}

/// Copies the members of `object`, except those in `except`. Keys with a `known` name are written
/// under exactly that name, all others byte for byte.
fn copy(to: &mut ObjectWriter<'_>, object: &[u8], except: &[&str], known: &[&str]) {
    for member in scan::members(object) {
        if except.iter().any(|name| member.key.eq_str(name)) {
            continue;
        }
        let known = known
            .iter()
            .find(|name| member.key.is_escaped() && member.key.eq_str(name));
        let key = known.map_or(member.key.raw(), |name| name.as_bytes());
        to.raw_member(key, &object[member.value]);
    }
}

fn identify(meta: &mut ObjectWriter<'_>, sender: &SenderMeta<'_>) {
    meta.string(meta::PROTOCOL_VERSION, sender.revision.as_str());
    meta.raw(meta::CLIENT_INFO, sender.client_info);
    meta.raw(meta::CLIENT_CAPABILITIES, sender.capabilities);
}

/// The keys that every hop makes for itself. The progress token is the request's id: unique as long
/// as the request runs.
fn write_hop_meta(meta: &mut ObjectWriter<'_>, id: u64, progress: bool, trace: &TraceContext) {
    if progress {
        let mut digits = [0; 20];
        meta.raw(meta::PROGRESS_TOKEN, decimal(id, &mut digits));
    }
    if let Some(parent) = &trace.parent {
        meta.string(meta::TRACEPARENT, parent);
        if let Some(state) = &trace.state {
            meta.string(meta::TRACESTATE, state);
        }
    }
    if let Some(baggage) = &trace.baggage {
        meta.string(meta::BAGGAGE, baggage);
    }
}

/// The `_meta` keys that belong to the peers.
fn write_peer_meta(meta: &mut ObjectWriter<'_>, call: &Call) {
    let Ok(Some(given)) = call.params.meta() else {
        return;
    };
    for member in given.unknown() {
        meta.raw_member(member.key.raw(), &given.raw()[member.value]);
    }
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        // A remainder of ten fits a byte.
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests;

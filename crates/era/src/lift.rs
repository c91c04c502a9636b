//! Requests of both eras as parts of a canonical call: the `_meta` of a modern client, and the
//! session settings of a legacy client.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::CapabilityClass;
use weir_core::call::{CallCapabilities, LogMessages, TraceContext};
use weir_wire::params::{Meta, Params, ParamsError};

use crate::capabilities::class_of;
use crate::session::LegacySessionRecord;

/// The parts of a canonical call that come from its request, beside names and ids.
#[derive(Debug)]
pub struct LiftedRequest {
    /// The client's params.
    pub params: Params,
    /// The questions that the client can be asked.
    pub capabilities: CallCapabilities,
    /// The client's progress token, as the JSON it wrote.
    pub progress_token: Option<Bytes>,
    /// The log messages that it wants.
    pub log_messages: LogMessages,
    /// Its trace context.
    pub trace: TraceContext,
}

/// Takes a modern request. Its `_meta` was found complete before.
///
/// # Errors
/// A member of `_meta` with the wrong type.
pub fn modern(params: Params) -> Result<LiftedRequest, ParamsError> {
    let meta = params.meta()?;
    let raw = meta.map(Meta::client_capabilities).transpose()?.flatten();
    let class = raw.as_deref().map(class_of).unwrap_or_default();
    Ok(LiftedRequest {
        capabilities: CallCapabilities { class, raw },
        progress_token: meta.map(Meta::progress_token).transpose()?.flatten(),
        // Without a level the server must not send log messages (2026-07-28).
        log_messages: meta
            .map(Meta::log_level)
            .transpose()?
            .flatten()
            .map_or(LogMessages::None, LogMessages::From),
        trace: trace(meta),
        params,
    })
}

/// Takes a legacy request of a client that can be asked the questions in `class` while it runs.
///
/// # Errors
/// A member of `_meta` with the wrong type.
pub fn legacy(
    params: Params,
    session: Option<&LegacySessionRecord>,
    class: CapabilityClass,
) -> Result<LiftedRequest, ParamsError> {
    let meta = params.meta()?;
    Ok(LiftedRequest {
        progress_token: meta.map(Meta::progress_token).transpose()?.flatten(),
        log_messages: session.map_or(LogMessages::ServerChoice, LegacySessionRecord::log_messages),
        trace: trace(meta),
        capabilities: CallCapabilities { class, raw: None },
        params,
    })
}

/// The trace context of `_meta`. Values that do not follow W3C are dropped, since tracing must not
/// fail a call.
fn trace(meta: Option<&Meta>) -> TraceContext {
    let (parent, state) = (
        meta.and_then(Meta::traceparent),
        meta.and_then(Meta::tracestate),
    );
    let baggage = meta.and_then(Meta::baggage);
    parse_trace(parent.as_deref(), state.as_deref(), baggage.as_deref())
}

/// The trace context of a request's params; empty if they are malformed, a failure reported
/// elsewhere.
#[must_use]
pub fn trace_of(params: &Params) -> TraceContext {
    trace(params.meta().ok().flatten())
}

/// The trace context of headers or of `_meta` (both have the same three texts). Values that do not
/// follow W3C are dropped.
#[must_use]
pub fn parse_trace(
    parent: Option<&str>,
    state: Option<&str>,
    baggage: Option<&str>,
) -> TraceContext {
    let parent: Option<Arc<str>> = parent.filter(|text| is_traceparent(text)).map(Arc::from);
    let state = state
        .filter(|text| parent.is_some() && is_plain(text, 512))
        .map(Arc::from);
    let baggage = baggage
        .filter(|text| !text.is_empty() && is_plain(text, 8192))
        .map(Arc::from);
    TraceContext {
        parent,
        state,
        baggage,
        span: None,
    }
}

/// `00-<32 hex, not all 0>-<16 hex, not all 0>-<2 hex>`; later versions may append fields.
fn is_traceparent(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut hex = |length: usize| {
        let part = parts.next().filter(|part| part.len() == length)?;
        part.bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            .then_some(part)
    };
    let (version, trace, parent, flags) = (hex(2), hex(32), hex(16), hex(2));
    let nonzero = |part: Option<&str>| part.is_some_and(|part| part.bytes().any(|b| b != b'0'));
    let known = match version {
        Some("00") => parts.next().is_none(),
        Some("ff") | None => false,
        Some(_) => true,
    };
    known && text.len() <= 128 && nonzero(trace) && nonzero(parent) && flags.is_some()
}

fn is_plain(text: &str, most: usize) -> bool {
    text.len() <= most && text.bytes().all(|b| matches!(b, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::UNIX_EPOCH;

    use weir_wire::{LogLevel, Revision};

    use super::*;

    fn params(raw: &'static str) -> Params {
        Params::parse(Some(&Bytes::from_static(raw.as_bytes()))).unwrap()
    }

    // Proves R057.
    #[test]
    fn modern_call_takes_capabilities_log_level_and_trace_from_its_meta() {
        let params = params(
            r#"{"name":"t","_meta":{"io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"progressToken":7,
                "io.modelcontextprotocol/logLevel":"warning","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "tracestate":"a=b"}}"#,
        );
        let lifted = modern(params).unwrap();
        assert_eq!(lifted.capabilities.class, CapabilityClass::SAMPLING);
        assert_eq!(lifted.progress_token.as_deref(), Some(&b"7"[..]));
        assert_eq!(lifted.log_messages, LogMessages::From(LogLevel::Warning));
        assert!(lifted.trace.parent.is_some() && lifted.trace.state.is_some());
    }

    // Proves R215.
    #[test]
    fn a_modern_call_without_a_level_wants_no_logs() {
        let params = params(r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#);
        assert_eq!(modern(params).unwrap().log_messages, LogMessages::None);
    }

    // Proves R217.
    #[test]
    fn an_unknown_level_names_itself() {
        let params = params(r#"{"_meta":{"io.modelcontextprotocol/logLevel":"loud"}}"#);
        assert!(modern(params).unwrap_err().to_string().contains("logLevel"));
    }

    // Proves R218.
    #[test]
    fn a_legacy_call_has_the_level_of_its_session() {
        let session = LegacySessionRecord {
            revision: Revision::V2025_06_18,
            class: CapabilityClass::SAMPLING,
            level: Some(LogLevel::Error),
            initialized: true,
            began: UNIX_EPOCH,
        };
        let lifted = legacy(
            params(r#"{"_meta":{"progressToken":"p"}}"#),
            Some(&session),
            session.class,
        )
        .unwrap();
        assert_eq!(lifted.log_messages, LogMessages::From(LogLevel::Error));
        assert_eq!(lifted.capabilities.class, CapabilityClass::SAMPLING);
        assert_eq!(lifted.progress_token.as_deref(), Some(&br#""p""#[..]));
    }

    #[test]
    fn a_legacy_call_without_a_level_leaves_the_choice_to_the_server() {
        let session = LegacySessionRecord {
            revision: Revision::V2025_06_18,
            class: CapabilityClass::BASE,
            level: None,
            initialized: true,
            began: UNIX_EPOCH,
        };
        for session in [Some(&session), None] {
            let lifted = legacy(params("{}"), session, CapabilityClass::BASE).unwrap();
            assert_eq!(lifted.log_messages, LogMessages::ServerChoice);
        }
    }

    // Proves F17.
    #[test]
    fn traces_that_break_w3c_are_dropped() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(is_traceparent(good));
        assert!(is_traceparent(&good.replacen("00", "01", 1)));
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        ] {
            assert!(!is_traceparent(bad), "{bad}");
        }
        assert!(!is_traceparent(&good.repeat(200)) && !is_traceparent(&"0".repeat(10_000)));
        let plain = |text: &str| is_plain(text, 512);
        assert!(plain(&"a".repeat(512)) && !plain(&"a".repeat(513)) && !plain("a=\u{1b}"));
    }
}

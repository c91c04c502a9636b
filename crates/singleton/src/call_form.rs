//! A call in the form that replicas send each other.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use weir_core::call::{
    CallCapabilities, CallResumption, InputMode, LogMessages, RequestName, SessionKey, TaskMode,
    TraceContext,
};
use weir_core::instant::millis;
use weir_core::names::EndpointId;
use weir_core::port::Random;
use weir_core::upstream::{CallDeadlines, CarriedRevision, OutboundCall};
use weir_core::{Call, CapabilityClass, Principal};
use weir_wire::LogLevel;
use weir_wire::method::{Method, MethodName};
use weir_wire::params::Params;

use crate::frame::{BadFrame, Frame, FrameKind};

/// The number of the part with `params`.
const PARAMS: usize = 0;
/// The number of the part with the client's own `ClientCapabilities`.
const CAPABILITIES: usize = 1;
/// The number of the part with `inputResponses`.
const INPUT_RESPONSES: usize = 2;
const INPUT_REFUSALS: usize = 3;

/// The facts of a call.
#[derive(Debug, Serialize, Deserialize)]
struct CallForm {
    principal: Option<(String, String)>,
    endpoint: String,
    method: String,
    native: String,
    /// The bits of the capability class.
    class: u16,
    #[serde(default)]
    wants_progress: bool,
    #[serde(default)]
    log_level: Option<String>,
    /// True if the server chooses the log messages. A replica of an earlier release ignores it, and
    /// asks for none.
    #[serde(default)]
    server_chooses_logs: bool,
    #[serde(default)]
    session: Option<[u8; 16]>,
    /// True if questions end the call, and the client makes it again with the answers.
    #[serde(default)]
    in_rounds: bool,
    /// The server's own state of a call that goes on.
    #[serde(default)]
    resumes: Option<String>,
    /// True if the call is made once more, as it was.
    #[serde(default)]
    is_again: bool,
    /// A replica of an earlier release ignores it, and fetches the result.
    #[serde(default)]
    wants_status_only: bool,
    #[serde(default)]
    task: TaskForm,
    #[serde(default)]
    extension: Option<String>,
    request: u64,
    #[serde(default)]
    trace: Option<String>,
    #[serde(default)]
    trace_state: Option<String>,
    #[serde(default)]
    baggage: Option<String>,
    /// The milliseconds since its beginning.
    age_ms: u64,
    connect_ms: u64,
    idle_ms: u64,
    hard_ms: u64,
    #[serde(default)]
    own_silence_ms: Option<u64>,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    safe_to_repeat: bool,
    #[serde(default)]
    has_capabilities: bool,
    #[serde(default)]
    has_input_responses: bool,
    #[serde(default)]
    has_input_refusals: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TaskForm {
    #[default]
    Never,
    Allowed,
    Wanted(Option<u64>),
    Awaited,
}

/// The frame of a call.
pub(crate) fn call_frame(kind: FrameKind, outbound: &OutboundCall, random: &dyn Random) -> Frame {
    let call = &outbound.call;
    let trace = call.trace.clone().next_hop(random);
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    let (resumes, is_again) = match &call.resume {
        Some(CallResumption::Upstream(state)) => (Some(state.clone()), false),
        Some(CallResumption::Again) => (None, true),
        // The router goes on with a parked call by itself.
        Some(CallResumption::Parked(_)) | None => (None, false),
    };
    let form = CallForm {
        principal: owned_name(&outbound.principal),
        endpoint: call.endpoint.as_str().to_owned(),
        method: call.method.as_str().to_owned(),
        native: outbound.native.to_string(),
        class: call.capabilities.class.bits(),
        wants_progress: call.wants_progress,
        log_level: match call.log_messages {
            LogMessages::From(level) => Some(level.as_str().to_owned()),
            LogMessages::None | LogMessages::ServerChoice => None,
        },
        server_chooses_logs: call.log_messages == LogMessages::ServerChoice,
        session: call.session.map(|SessionKey(key)| key),
        in_rounds: call.input_mode == InputMode::Rounds,
        resumes,
        is_again,
        wants_status_only: call.wants_status_only,
        task: match call.task_mode {
            TaskMode::Never => TaskForm::Never,
            TaskMode::Allowed => TaskForm::Allowed,
            TaskMode::Wanted { ttl_ms } => TaskForm::Wanted(ttl_ms),
            TaskMode::AwaitedByWeir => TaskForm::Awaited,
        },
        extension: text(&call.extension),
        request: call.request.bits(),
        trace: text(&trace.parent),
        trace_state: text(&trace.state),
        baggage: text(&trace.baggage),
        age_ms: millis(outbound.begun.elapsed()),
        connect_ms: millis(outbound.deadlines.connect),
        idle_ms: millis(outbound.deadlines.idle),
        hard_ms: millis(outbound.deadlines.hard),
        own_silence_ms: outbound.deadlines.own_silence.map(millis),
        whole: outbound.whole,
        safe_to_repeat: outbound.safe_to_repeat,
        has_capabilities: call.capabilities.raw.is_some(),
        has_input_responses: call.input_responses.is_some(),
        has_input_refusals: call.input_refusals.is_some(),
    };
    Frame::new(kind, &form)
        .with(call.params.raw().clone())
        .with(call.capabilities.raw.clone().unwrap_or_default())
        .with(call.input_responses.clone().unwrap_or_default())
        .with(call.input_refusals.clone().unwrap_or_default())
}

/// The call of a frame. Its tool is not known here: no child process needs it.
pub(crate) fn read_call(frame: &Frame) -> Result<OutboundCall, BadFrame> {
    let form: CallForm = frame.facts()?;
    let part = |number: usize, is_there: bool| is_there.then(|| frame.part(number));
    let named = form.extension.as_deref().unwrap_or(&form.method);
    // The client's replica has checked them.
    let params = Params::of(&MethodName::new(named), Some(&frame.part(PARAMS)));
    let call = Call {
        endpoint: EndpointId::new(&form.endpoint),
        method: Method::parse(&form.method).ok_or(BadFrame)?,
        params: params.map_err(|_| BadFrame)?,
        capabilities: CallCapabilities {
            class: CapabilityClass::from_bits(form.class),
            raw: part(CAPABILITIES, form.has_capabilities),
        },
        wants_progress: form.wants_progress,
        log_messages: match form.log_level.as_deref().and_then(LogLevel::parse) {
            Some(level) => LogMessages::From(level),
            None if form.server_chooses_logs => LogMessages::ServerChoice,
            None => LogMessages::None,
        },
        session: form.session.map(SessionKey),
        input_mode: if form.in_rounds {
            InputMode::Rounds
        } else {
            InputMode::Requests
        },
        resume: match form.resumes {
            Some(state) => Some(CallResumption::Upstream(state)),
            None => form.is_again.then_some(CallResumption::Again),
        },
        input_responses: part(INPUT_RESPONSES, form.has_input_responses),
        input_refusals: part(INPUT_REFUSALS, form.has_input_refusals),
        wants_status_only: form.wants_status_only,
        // The calling replica has admitted it.
        is_continuation: false,
        task_mode: match form.task {
            TaskForm::Never => TaskMode::Never,
            TaskForm::Allowed => TaskMode::Allowed,
            TaskForm::Wanted(ttl_ms) => TaskMode::Wanted { ttl_ms },
            TaskForm::Awaited => TaskMode::AwaitedByWeir,
        },
        extension: form.extension.map(Into::into),
        request: RequestName::from_bits(form.request),
        trace: TraceContext {
            parent: form.trace.map(Into::into),
            state: form.trace_state.map(Into::into),
            baggage: form.baggage.map(Into::into),
            span: None,
        },
    };
    let age = Duration::from_millis(form.age_ms);
    let now = Instant::now();
    Ok(OutboundCall {
        principal: principal_of(form.principal.as_ref()),
        token: None,
        call: Arc::new(call),
        native: form.native.into(),
        tool: None,
        begun: now.checked_sub(age).unwrap_or(now),
        deadlines: CallDeadlines {
            connect: Duration::from_millis(form.connect_ms),
            idle: Duration::from_millis(form.idle_ms),
            hard: Duration::from_millis(form.hard_ms),
            own_silence: form.own_silence_ms.map(Duration::from_millis),
        },
        whole: form.whole,
        safe_to_repeat: form.safe_to_repeat,
        carried_revision: CarriedRevision::default(),
    })
}

/// Issuer and subject of a principal; absent for the anonymous one.
pub(crate) fn owned_name(principal: &Principal) -> Option<(String, String)> {
    let (issuer, subject) = principal.owner_name()?;
    Some((issuer.to_owned(), subject.to_owned()))
}

/// The principal that another replica authenticated.
pub(crate) fn principal_of(name: Option<&(String, String)>) -> Principal {
    Principal::owner(name.map(|(issuer, subject)| (issuer.as_str(), subject.as_str())))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use bytes::Bytes;
    use weir_testkit::FakeRandom;

    use super::*;

    fn call() -> Call {
        let raw = Bytes::from_static(
            br#"{"name":"store","arguments":{"a":1},"_meta":{"progressToken":"own"}}"#,
        );
        Call {
            capabilities: CallCapabilities {
                class: CapabilityClass::ELICITATION_FORM,
                raw: Some(Bytes::from_static(b"{\"elicitation\":{}}")),
            },
            wants_progress: true,
            log_messages: LogMessages::From(LogLevel::Warning),
            session: Some(SessionKey([9; 16])),
            input_mode: InputMode::Rounds,
            resume: Some(CallResumption::Upstream("state".to_owned())),
            input_responses: Some(Bytes::from_static(b"{\"q\":{}}")),
            input_refusals: Some(Bytes::from_static(b"{\"r\":{\"code\":-1}}")),
            wants_status_only: true,
            task_mode: TaskMode::Wanted { ttl_ms: Some(5) },
            trace: TraceContext {
                state: Some("a=b".into()),
                ..TraceContext::default()
            },
            ..Call::new(
                EndpointId::new("/mcp"),
                Method::ToolsCall,
                Params::parse(Some(&raw)).unwrap(),
                RequestName::from_bits(77),
            )
        }
    }

    pub(crate) fn outbound() -> OutboundCall {
        OutboundCall {
            principal: Principal::owner(Some(("issuer", "ada"))),
            token: None,
            call: Arc::new(call()),
            native: "store".into(),
            tool: None,
            begun: Instant::now(),
            deadlines: CallDeadlines::CALL,
            whole: true,
            safe_to_repeat: true,
            carried_revision: CarriedRevision::default(),
        }
    }

    #[test]
    fn call_survives_its_frame() {
        let outbound = outbound();
        let frame = call_frame(FrameKind::Call, &outbound, &FakeRandom::new(1));
        let back = read_call(&frame).unwrap();
        assert_eq!(back.principal, outbound.principal);
        assert_eq!((back.whole, back.safe_to_repeat), (true, true));
        assert_eq!(
            (back.native, back.deadlines),
            (outbound.native, outbound.deadlines)
        );
        // All members of the call, but for the view of `params`.
        let text = |call: &Call| format!("{call:?}");
        assert_eq!(text(&back.call), text(&outbound.call));
    }

    #[test]
    fn anonymous_call_stays_anonymous() {
        assert!(owned_name(&Principal::owner(None)).is_none());
        assert!(principal_of(None).is_anonymous());
    }
}

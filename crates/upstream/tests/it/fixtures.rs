//! Shared parts of the tests: an upstream in front of a mock server, calls, and their outcomes.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use weir_core::call::{Call, CallCapabilities, InputMode, RequestName, SessionKey};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{BoxFuture, Evidence, Verifier};
use weir_core::principal::VerifiedIdentity as Sender;
use weir_core::question::PendingQuestion;
use weir_core::reply::{Payload, Reply, ReplyEnd, ReplyEvent, ReplyNote};
use weir_core::upstream::{CallDeadlines, OutboundCall, Upstream};
use weir_core::{CapabilityClass, Failure, Principal};
use weir_process::keeper::ChildKeeper;
use weir_testkit::{FakeClock, FakeRandom, TokioClock};
use weir_upstream::{
    ClientImplementation, HttpUpstreamSettings, OwnDeadlines, TransportSettings, UpstreamFactory,
    UpstreamPorts, UpstreamProtocol, UpstreamSettings,
};
use weir_wire::Params;
use weir_wire::method::Method;

use crate::child::keeper_program;

pub(crate) fn ports() -> UpstreamPorts {
    UpstreamPorts {
        clock: Arc::new(TokioClock::new()),
        random: Arc::new(FakeRandom::new(7)),
        notifier: Arc::default(),
        session_lists: weir_catalog::SessionListTable::new(Arc::default(), &FakeRandom::new(8)),
        keeper: ChildKeeper::new(keeper_program()),
        budgets: weir_core::Budgets::default(),
    }
}

/// An upstream whose clock stands still, so that all calls seem to take no time.
pub(crate) fn build_without_time(settings: UpstreamSettings) -> Arc<dyn Upstream> {
    build_with_clock(settings, Arc::new(FakeClock::new()))
}

/// An upstream with this clock. Its deadlines are tokio's.
pub(crate) fn build_with_clock(
    settings: UpstreamSettings,
    clock: Arc<FakeClock>,
) -> Arc<dyn Upstream> {
    let ports = UpstreamPorts { clock, ..ports() };
    factory_of(ports).build(settings).unwrap()
}

pub(crate) fn factory() -> UpstreamFactory {
    factory_of(ports())
}

fn factory_of(ports: UpstreamPorts) -> UpstreamFactory {
    UpstreamFactory::new(ports, ClientImplementation::new("weir", "0.1.0"))
}

pub(crate) fn id() -> UpstreamId {
    UpstreamId::new("mock").unwrap()
}

pub(crate) fn settings(url: &str) -> UpstreamSettings {
    UpstreamSettings::http(id(), url.parse().unwrap())
}

pub(crate) fn upstream(url: &str) -> Arc<dyn Upstream> {
    build(settings(url))
}

pub(crate) fn pinned(url: &str, protocol: UpstreamProtocol) -> Arc<dyn Upstream> {
    build(UpstreamSettings {
        protocol,
        ..settings(url)
    })
}

/// An upstream that speaks HTTP/2 without TLS.
pub(crate) fn over_http2(url: &str, protocol: UpstreamProtocol) -> Arc<dyn Upstream> {
    let http = HttpUpstreamSettings {
        instances: Vec::new(),
        url: url.parse().unwrap(),
        headers: Vec::new(),
        auth: None,
        ca_file: None,
        h2c: true,
    };
    build(UpstreamSettings {
        transport: TransportSettings::Http(http),
        protocol,
        ..settings(url)
    })
}

pub(crate) fn build(settings: UpstreamSettings) -> Arc<dyn Upstream> {
    factory().build(settings).unwrap()
}

#[derive(Debug)]
pub(crate) struct FixedVerifier(pub(crate) Sender);

impl Verifier for FixedVerifier {
    fn verify<'a>(&'a self, _: &'a Evidence<'a>) -> BoxFuture<'a, Result<Sender, Failure>> {
        let sender = self.0.clone();
        Box::pin(async move { Ok(sender) })
    }
}

/// Makes a principal. Only a verified request can make one.
pub(crate) async fn principal(name: Option<&str>) -> Principal {
    let sender = match name {
        Some(name) => Sender::subject("test", name),
        None => Sender::Anonymous,
    };
    let endpoint = EndpointId::new("/mcp");
    let evidence = Evidence::none([127, 0, 0, 1].into(), &endpoint);
    weir_core::authenticate(&FixedVerifier(sender), &evidence)
        .await
        .unwrap()
        .into_parts()
        .principal
}

pub(crate) fn call(tool: &str, arguments: Value) -> Call {
    let mut params = json!({"name": format!("mock__{tool}")});
    params["arguments"] = arguments;
    let params = Params::parse(Some(&Bytes::from(params.to_string()))).unwrap();
    Call::new(
        EndpointId::new("/mcp"),
        Method::ToolsCall,
        params,
        RequestName::from_bits(1),
    )
}

/// Makes a call of a client that can be asked, in a session of its own.
pub(crate) fn call_in_session(tool: &str) -> Call {
    let mut call = call(tool, json!({}));
    call.session = Some(SessionKey([1; 16]));
    call.input_mode = InputMode::Requests;
    call.capabilities = CallCapabilities {
        class: CapabilityClass::SESSIONS.with(CapabilityClass::ELICITATION_FORM),
        raw: None,
    };
    call
}

/// Makes a call of the tool `ask`, and reads its reply up to the question.
pub(crate) async fn ask(upstream: &Arc<dyn Upstream>) -> (Reply, Box<PendingQuestion>) {
    let call = call_in_session("ask");
    let mut reply = upstream.clone().call(outbound("ask", call).await).await;
    let question = question(&mut reply).await;
    (reply, question)
}

/// Reads a reply up to the question.
pub(crate) async fn question(reply: &mut Reply) -> Box<PendingQuestion> {
    loop {
        match next(reply).await {
            ReplyEvent::Ask(question) => return question,
            ReplyEvent::Note(_) => {}
            ReplyEvent::End(end) => panic!("no question, but {end:?}"),
        }
    }
}

/// Reads the next event, which comes soon.
pub(crate) async fn next(reply: &mut Reply) -> ReplyEvent {
    let event = tokio::time::timeout(Duration::from_secs(10), reply.next()).await;
    event
        .expect("an event comes in time")
        .expect("a reply ends with an end")
}

/// The default deadlines of weir's own requests, with this one for lists.
pub(crate) fn list_deadline(list: Duration) -> OwnDeadlines {
    OwnDeadlines {
        list,
        ..OwnDeadlines::default()
    }
}

/// The answer to a form.
pub(crate) fn filled() -> Result<Bytes, Bytes> {
    Ok(Bytes::from_static(
        br#"{"action":"accept","content":{"name":"Ada"}}"#,
    ))
}

pub(crate) async fn outbound(tool: &str, call: Call) -> OutboundCall {
    OutboundCall {
        principal: principal(None).await,
        token: None,
        call: Arc::new(call),
        native: tool.into(),
        tool: None,
        begun: tokio::time::Instant::now(),
        deadlines: CallDeadlines::CALL,
        whole: false,
        carried_revision: weir_core::upstream::CarriedRevision::default(),
        safe_to_repeat: false,
    }
}

/// Makes an anonymous call with arguments.
pub(crate) async fn call_anonymously(
    upstream: &Arc<dyn Upstream>,
    tool: &str,
    arguments: Value,
) -> Reply {
    let outbound = outbound(tool, call(tool, arguments)).await;
    upstream.clone().call(outbound).await
}

/// The outcome of a call, and its earlier notes.
#[derive(Debug)]
pub(crate) struct CallOutcome {
    pub(crate) notes: Vec<ReplyNote>,
    pub(crate) end: Result<Value, Failure>,
    pub(crate) input_required: bool,
}

pub(crate) async fn outcome(mut reply: Reply) -> CallOutcome {
    let mut notes = Vec::new();
    loop {
        let (payload, input_required) = match reply.next().await.expect("a reply ends with an end")
        {
            ReplyEvent::Note(note) => {
                notes.push(note);
                continue;
            }
            ReplyEvent::End(ReplyEnd::Failed(failure)) => {
                return CallOutcome {
                    notes,
                    end: Err(*failure),
                    input_required: false,
                };
            }
            ReplyEvent::End(ReplyEnd::Complete(payload)) => (payload, false),
            ReplyEvent::End(ReplyEnd::InputRequired(payload)) => (payload, true),
            ReplyEvent::End(ReplyEnd::Parked { .. }) => panic!("upstreams park nothing"),
            ReplyEvent::End(ReplyEnd::Task(_)) => panic!("nobody takes tasks"),
            // The question is not answered.
            ReplyEvent::Ask(_) => continue,
        };
        assert!(reply.next().await.is_none(), "nothing follows the end");
        let end = bytes(payload)
            .await
            .map(|bytes| serde_json::from_slice(&bytes).expect("a result is JSON"));
        return CallOutcome {
            notes,
            end,
            input_required,
        };
    }
}

async fn bytes(payload: Payload) -> Result<Bytes, Failure> {
    match payload {
        Payload::Whole(bytes) | Payload::Cleaned { result: bytes, .. } => Ok(bytes),
        Payload::Stream(mut source) => {
            let mut all = BytesMut::new();
            while let Some(chunk) = std::future::poll_fn(|cx| source.poll_chunk(cx)).await {
                all.extend_from_slice(&chunk?);
            }
            Ok(all.freeze())
        }
    }
}

/// Returns the failure; panics on a result.
pub(crate) async fn failure(reply: Reply) -> Failure {
    outcome(reply).await.end.expect_err("this call must fail")
}

/// Returns the first text block of the result.
pub(crate) async fn text(reply: Reply) -> String {
    let result = outcome(reply).await.end.expect("this call must succeed");
    result["content"][0]["text"]
        .as_str()
        .expect("a text block")
        .to_owned()
}

/// Makes a call with deadlines that pass soon.
pub(crate) async fn hurried(upstream: &Arc<dyn Upstream>, tool: &str) -> Reply {
    call_within(upstream, tool, short_deadlines()).await
}

/// Makes a call with these deadlines.
pub(crate) async fn call_within(
    upstream: &Arc<dyn Upstream>,
    tool: &str,
    deadlines: CallDeadlines,
) -> Reply {
    let mut call = call(tool, json!({}));
    call.wants_progress = true;
    let call = OutboundCall {
        deadlines,
        ..outbound(tool, call).await
    };
    upstream.clone().call(call).await
}

/// Limits that pass soon.
pub(crate) fn short_deadlines() -> CallDeadlines {
    CallDeadlines {
        connect: Duration::from_secs(2),
        idle: Duration::from_millis(150),
        hard: Duration::from_millis(600),
        own_silence: None,
    }
}

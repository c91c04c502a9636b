#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use weir_core::call::{Call, CallResumption, InputMode, LogMessages, RequestName, TraceContext};
use weir_core::names::EndpointId;
use weir_wire::method::Method;
use weir_wire::{LogLevel, Params, Revision};

use super::*;

fn call(params: &str) -> Call {
    let params = Params::parse(Some(&Bytes::copy_from_slice(params.as_bytes()))).unwrap();
    let call = Call::new(
        EndpointId::new("/mcp"),
        Method::ToolsCall,
        params,
        RequestName::from_bits(1),
    );
    Call {
        input_mode: InputMode::Rounds,
        ..call
    }
}

const SENDER: SenderMeta<'static> = SenderMeta {
    revision: Revision::MODERN,
    client_info: br#"{"name":"weir","version":"1"}"#,
    capabilities: b"{}",
    log_messages: LogMessages::None,
};

const FULL: &str = r#"{"name":"u__t","arguments":{"n": 1.0e2, "n2":12345678901234567890},"x\u0079":[ 1 ],"task":{"ttl":1},
    "_meta":{"progressToken":"theirs","io.modelcontextprotocol/clientInfo":{"name":"spy"},"traceparent":"00-theirs",
    "com.example/k":{"deep":null},"dev.weir/error":1},"requestState":"sealed","inputResponses":{"a":{}}}"#;

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

// Proves R071, R072, R207.
#[test]
fn a_modern_call_is_the_clients_bytes_with_weirs_own_meta() {
    let mut call = call(FULL);
    call.wants_progress = true;
    call.resume = Some(CallResumption::Upstream("theirs\"".into()));
    call.trace = TraceContext {
        parent: Some("00-ours".into()),
        state: Some("a=b".into()),
        ..TraceContext::default()
    };
    let sender = SenderMeta {
        log_messages: LogMessages::From(LogLevel::Info),
        ..SENDER
    };
    assert_eq!(
        text(&modern_call(42, &call, "t", &sender)),
        concat!(
            r#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"t","#,
            r#""arguments":{"n": 1.0e2, "n2":12345678901234567890},"x\u0079":[ 1 ],"inputResponses":{"a":{}},"#,
            r#""requestState":"theirs\"","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientInfo":{"name":"weir","version":"1"},"#,
            r#""io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info","#,
            r#""progressToken":42,"traceparent":"00-ours","tracestate":"a=b","com.example/k":{"deep":null}}}}"#
        )
    );
}

// Proves R079.
#[test]
fn a_legacy_call_has_nothing_of_later_revisions() {
    let mut call = call(FULL);
    call.log_messages = LogMessages::From(LogLevel::Info);
    call.resume = Some(CallResumption::Upstream("x".into()));
    assert_eq!(
        text(&legacy_call(7, &call, "t", Revision::NEWEST_LEGACY)),
        concat!(
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","#,
            r#""arguments":{"n": 1.0e2, "n2":12345678901234567890},"x\u0079":[ 1 ],"_meta":{"com.example/k":{"deep":null}}}}"#
        )
    );
}

// Proves R137.
#[test]
fn completion_context_is_sent_since_2025_06_18() {
    let given = r#"{"ref":{"type":"ref/prompt","name":"u__p"},"argument":{"name":"a","value":"x"},"context":{"arguments":{"b":"y"}}}"#;
    let call = Call {
        method: Method::CompletionComplete,
        ..call(given)
    };
    for revision in Revision::ALL
        .into_iter()
        .filter(|revision| !revision.is_modern())
    {
        let sent = legacy_call(1, &call, "p", revision);
        assert_eq!(
            text(&sent).contains("context"),
            revision >= Revision::V2025_06_18,
            "{revision:?}"
        );
        assert!(
            text(&sent).contains(r#""argument":{"name":"a","value":"x"}"#),
            "{revision:?}"
        );
    }
    assert!(
        text(&modern_call(1, &call, "p", &SENDER)).contains(r#""context":{"arguments":{"b":"y"}}"#)
    );
}

#[test]
fn absent_state_and_meta_stay_absent() {
    let sent = modern_call(0, &call(r#"{"name":"a"}"#), "a\"b", &SENDER);
    assert!(text(&sent).starts_with(
        r#"{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"a\"b","_meta":{"#
    ));
    assert!(!text(&sent).contains("requestState") && !text(&sent).contains("progressToken"));
}

#[test]
fn other_requests_are_well_formed() {
    let texts = [
        initialize(1, Revision::NEWEST_LEGACY, b"{}", SENDER.client_info),
        modern_request(2, Method::ToolsList, &[("cursor", b"\"\"")], &SENDER),
        legacy_request(3, Method::ToolsList, &[]),
        set_level(4, LogLevel::Debug),
        cancelled(u64::MAX),
    ];
    for sent in texts {
        weir_wire::Message::parse(sent, &weir_wire::JsonLimits::default()).unwrap();
    }
}

#[test]
fn known_members_go_on_under_their_exact_names_and_others_byte_for_byte() {
    let given = r#"{"n\u0061me":"u__t","argument\u0073":{"\u0061":1},"\u0078":1,"X\u0079":2,"input\u0052esponses":{"k":{}}}"#;
    let sent = modern_call(1, &call(given), "t", &SENDER);
    let params = r#"{"name":"t","arguments":{"\u0061":1},"\u0078":1,"X\u0079":2,"inputResponses":{"k":{}},"_meta":"#;
    assert!(text(&sent).contains(params), "{}", text(&sent));
    let reference = r#"{"r\u0065f":{"typ\u0065":"ref/prompt","n\u0061me":"u__p","\u0078":1},"argument":{"name":"a","value":""}}"#;
    let call = Call {
        method: Method::CompletionComplete,
        ..call(reference)
    };
    let sent = legacy_call(1, &call, "p", Revision::NEWEST_LEGACY);
    assert!(
        text(&sent)
            .contains(r#""params":{"ref":{"name":"p","type":"ref/prompt","\u0078":1},"argument":"#),
        "{}",
        text(&sent)
    );
}

#[test]
fn extension_request_changes_only_its_meta() {
    let given = r#"{"Name":1,"n\u0061me":2,"_meta":{"progressToken":1,"own":2}}"#;
    let params = Params::of(
        &weir_wire::MethodName::new("acme/do"),
        Some(&Bytes::from(given)),
    )
    .unwrap();
    let call = Call {
        method: Method::Extension,
        params,
        ..call("{}")
    };
    let sent = modern_call(1, &call, "acme/do", &SENDER);
    assert!(
        text(&sent).contains(r#""params":{"Name":1,"n\u0061me":2,"_meta":{"io.model"#),
        "{}",
        text(&sent)
    );
    assert!(text(&sent).ends_with(r#","own":2}}}"#), "{}", text(&sent));
    let sent = legacy_call(1, &call, "acme/do", Revision::V2025_06_18);
    let expected = r#"{"jsonrpc":"2.0","id":1,"method":"acme/do","params":{"Name":1,"n\u0061me":2,"_meta":{"own":2}}}"#;
    assert_eq!(text(&sent), expected);
    let asked = Call {
        wants_progress: true,
        ..call.clone()
    };
    let sent = legacy_call(7, &asked, "acme/do", Revision::V2025_06_18);
    assert!(
        text(&sent).ends_with(r#""_meta":{"progressToken":7,"own":2}}}"#),
        "{}",
        text(&sent)
    );
    let bare = Call {
        params: Params::parse(None).unwrap(),
        ..call
    };
    let sent = legacy_call(1, &bare, "acme/do", Revision::V2025_06_18);
    assert_eq!(
        text(&sent),
        r#"{"jsonrpc":"2.0","id":1,"method":"acme/do","params":{}}"#
    );
}

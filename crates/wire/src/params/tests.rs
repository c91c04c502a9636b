#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::revision::Revision;

fn view(text: &str) -> Params {
    Params::parse(Some(&Bytes::copy_from_slice(text.as_bytes()))).unwrap()
}

#[test]
fn members_are_read_as_they_came() {
    let params = view(
        r#"{"name":"a\u0062","arguments":{ "x" : 1e0 },"cursor":"","uri":"f:\/\/x","_meta":{"progressToken":7},"other":1}"#,
    );
    assert_eq!(params.name().unwrap().unwrap(), "ab");
    assert_eq!(params.arguments().unwrap().unwrap(), "{ \"x\" : 1e0 }");
    assert_eq!(
        params.cursor().unwrap().unwrap(),
        "",
        "b16: the empty cursor is a value"
    );
    assert_eq!(params.uri().unwrap().unwrap(), "f://x");
    assert_eq!(
        params
            .meta()
            .unwrap()
            .unwrap()
            .progress_token()
            .unwrap()
            .unwrap(),
        "7"
    );
    assert_eq!(params.task_id(), Ok(None));
    assert_eq!(
        view(r#"{"level":"warning"}"#).level(),
        Ok(Some(LogLevel::Warning))
    );
}

#[test]
fn mirrored_names_are_compared_with_their_own_member() {
    let params = view(r#"{"name":"a\u0062","uri":"f:\/\/x","taskId":7}"#);
    for (source, text, expected) in [
        (NameSource::Name, "ab", true),
        (NameSource::Name, r"a\u0062", false),
        (NameSource::Name, "f://x", false),
        (NameSource::Uri, "f://x", true),
        (NameSource::TaskId, "7", false),
        (NameSource::None, "ab", false),
    ] {
        assert_eq!(params.is_named(source, text), expected, "{source:?} {text}");
    }
    assert!(!view("{}").is_named(NameSource::Name, ""));
}

#[test]
fn absent_params_are_empty_ones() {
    let params = Params::parse(None).unwrap();
    assert_eq!((params.name(), params.arguments()), (Ok(None), Ok(None)));
    assert!(params.meta().unwrap().is_none());
    assert_eq!(
        Params::parse(Some(&Bytes::from_static(b"[]")))
            .unwrap_err()
            .member,
        "params"
    );
}

#[test]
fn a_wrong_type_is_named() {
    let params = view(
        r#"{"name":1,"arguments":[],"_meta":null,"level":"loud","progressToken":{},"cursor":null}"#,
    );
    let errors = [
        params.name().unwrap_err(),
        params.arguments().unwrap_err(),
        params.meta().unwrap_err(),
        params.level().unwrap_err(),
        params.progress_token().unwrap_err(),
        params.cursor().unwrap_err(),
    ];
    assert_eq!(
        errors.map(|error| error.member),
        [
            "name",
            "arguments",
            "_meta",
            "level",
            "progressToken",
            "cursor"
        ]
    );
    assert_eq!(errors[0].to_string(), "`name` must be a string");
}

// Proves R026, B13.
#[test]
fn required_meta_is_read_with_its_type() {
    let meta = Meta::parse(&Bytes::from_static(
        br#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"x":1}"#,
    ));
    assert_eq!(meta.revision(), Ok(Some(Revision::MODERN)));
    assert_eq!(meta.client_capabilities().unwrap().unwrap(), "{}");
    assert_eq!(meta.client_info(), Ok(None), "r027: it is optional");

    let meta = Meta::parse(&Bytes::from_static(
        br#"{"io.modelcontextprotocol/protocolVersion":7,"io.modelcontextprotocol/clientCapabilities":[]}"#,
    ));
    assert!(meta.has_protocol_version());
    assert_eq!(
        meta.protocol_version().unwrap_err().to_string(),
        "`_meta.io.modelcontextprotocol/protocolVersion` must be a string"
    );
    assert!(meta.client_capabilities().is_err());
    assert!(!Meta::parse(&Bytes::from_static(b"{}")).has_protocol_version());
}

#[test]
fn peer_keys_are_separated_from_hop_keys() {
    let meta = Meta::parse(&Bytes::from_static(
        br#"{"a":1,"progressToken":"t","com.example/x":{},"traceparent":"00-x","dev.weir/error":1,"\u0070rogressTokens":2,"io.modelcontextprotocol/new":3}"#,
    ));
    let unknown: Vec<_> = meta
        .unknown()
        .map(|member| member.key.decode().into_owned())
        .collect();
    assert_eq!(unknown, ["a", "com.example/x", "progressTokens"]);
    assert_eq!(meta.traceparent().unwrap(), "00-x");
}

#[test]
fn trace_keys_of_the_wrong_type_count_as_absent() {
    let meta = Meta::parse(&Bytes::from_static(
        br#"{"traceparent":1,"tracestate":{},"baggage":"a=b"}"#,
    ));
    assert_eq!(
        (
            meta.traceparent(),
            meta.tracestate(),
            meta.baggage().as_deref()
        ),
        (None, None, Some("a=b"))
    );
}

fn refused(method: &str, text: &str) -> Option<&'static str> {
    Params::of(
        &MethodName::new(method),
        Some(&Bytes::copy_from_slice(text.as_bytes())),
    )
    .err()
    .map(|error| error.member)
}

// Proves B04.
#[test]
fn names_that_differ_from_known_ones_in_case_alone_are_refused() {
    for name in NAMES {
        let upper = format!("{{\"{}\":1}}", name.to_uppercase());
        let mut letters = name.chars();
        let first: String = letters
            .next()
            .unwrap()
            .to_uppercase()
            .chain(letters)
            .collect();
        let escaped: String = name
            .to_uppercase()
            .chars()
            .map(|c| format!("\\u{:04x}", u32::from(c)))
            .collect();
        let texts = [
            upper,
            format!("{{\"{escaped}\":1}}"),
            format!("{{\"x\":0,\"{first}\":1,\"{name}\":{{}}}}"),
        ];
        for text in texts.iter().filter(|text| !text.contains("\"_meta\":1")) {
            let is_itself = first == name && text.contains(&format!("\"{first}\":1"));
            for method in ["tools/call", "notifications/cancelled", "ping"] {
                if !is_itself {
                    assert_eq!(refused(method, text), Some(name), "{text}");
                }
            }
            assert_eq!(refused("acme/anything", text), None, "{text}");
        }
        for (letter, form) in [('s', "\u{17f}"), ('k', "\u{212a}")]
            .into_iter()
            .filter(|(letter, _)| name.contains(*letter))
        {
            let text = format!("{{\"{}\":1}}", name.replace(letter, form));
            assert_eq!(refused("tools/call", &text), Some(name), "{text}");
        }
        for other in [
            name.replace('i', "\u{131}"),
            format!("{name}s"),
            format!(" {name}"),
            name.replace('e', "e\u{301}"),
        ] {
            assert_eq!(
                refused("tools/call", &format!("{{\"{other}\":1}}")),
                None,
                "{other}"
            );
        }
    }
}

// Proves B04.
#[test]
fn meta_and_references_are_held_to_their_own_names() {
    let meta = |key: &str| format!(r#"{{"_meta":{{"{key}":1}}}}"#);
    for method in ["tools/call", "acme/anything", "notifications/progress"] {
        assert_eq!(
            refused(method, &meta("ProgressToken")),
            Some("progressToken"),
            "{method}"
        );
        assert_eq!(
            refused(method, &meta(r"\u0054raceparent")),
            Some("traceparent"),
            "{method}"
        );
        assert_eq!(
            refused(method, &meta("io.modelcontextprotocol/ClientInfo")),
            Some(crate::meta::CLIENT_INFO)
        );
        assert_eq!(refused(method, &meta("io.modelcontextprotocol/new")), None);
        assert_eq!(refused(method, &meta("com.example/TraceParent")), None);
    }
    let reference = r#"{"ref":{"type":"ref/prompt","Name":"x","name":"y"}}"#;
    assert_eq!(refused("completion/complete", reference), Some("name"));
    assert_eq!(
        refused("completion/complete", r#"{"ref":{"ur\u0049":1}}"#),
        Some("uri")
    );
    assert_eq!(
        refused(
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","x":1,"uri":2}}"#
        ),
        None
    );
    assert_eq!(
        refused("tools/call", reference),
        None,
        "only a completion refers to something"
    );
    assert_eq!(refused("completion/complete", r#"{"ref":7}"#), None);
}

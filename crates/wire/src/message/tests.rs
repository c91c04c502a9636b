#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::method::Method;

fn parse(text: &str) -> Result<IncomingMessage, MessageError> {
    IncomingMessage::parse(
        Bytes::copy_from_slice(text.as_bytes()),
        &JsonLimits::default(),
    )
}

fn one(text: &str) -> Message {
    match parse(text).unwrap() {
        IncomingMessage::One(message) => message,
        IncomingMessage::Batch(_) => panic!("a batch"),
    }
}

fn refused(text: &str) -> (i64, Option<String>) {
    let error = parse(text).unwrap_err();
    assert!(!error.text.is_empty());
    (error.code, error.id.map(|id| id.to_string()))
}

#[test]
fn parsed_request_keeps_its_original_bytes() {
    let text = r#" {"params":{"n":1e0, "x" : [ ]} , "id":"a\u0062","method":"tools/call","jsonrpc":"2.0","extra":{"a":1}} "#;
    let Message::Request(request) = one(text) else {
        panic!("not a request")
    };
    assert_eq!(request.id.as_json(), br#""a\u0062""#);
    assert_eq!(request.method.known(), Some(Method::ToolsCall));
    assert_eq!(
        request.params.as_deref(),
        Some(&br#"{"n":1e0, "x" : [ ]}"#[..])
    );
    assert_eq!(request.raw, text);
}

// Proves B01.
#[test]
fn id_behind_a_failure_is_echoed_only_if_valid_json() {
    let deep = "[".repeat(200);
    let id = |id: &str| {
        refused(&format!(
            r#"{{"jsonrpc":"2.0","params":{deep}{},"id":{id}}}"#,
            "]".repeat(200)
        ))
        .1
    };
    assert_eq!(id("1").as_deref(), Some("1"));
    assert_eq!(id(r#""a""#).as_deref(), Some(r#""a""#));
    for wrong in ["01", "-01", "1.", "\"a\nb\"", r#""\x""#, "nul"] {
        assert_eq!(id(wrong), None, "{wrong}");
    }
}

#[test]
fn params_are_a_slice_of_the_body() {
    let raw = Bytes::from_static(
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
    );
    let Ok(Message::Request(request)) = Message::parse(raw.clone(), &JsonLimits::default()) else {
        panic!("not a request")
    };
    let params = request.params.unwrap();
    assert!(
        raw.as_ptr_range().contains(&params.as_ptr()),
        "the params were copied"
    );
}

#[test]
fn messages_are_classified_by_their_members() {
    assert!(matches!(
        one(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
        Message::Notification(_)
    ));
    let Message::Response(response) = one(r#"{"result":{"a":1},"jsonrpc":"2.0","id":7}"#) else {
        panic!("not a response")
    };
    assert_eq!(
        (response.id, response.outcome),
        (
            Some(RequestId::from(7_u64)),
            Ok(Bytes::from_static(br#"{"a":1}"#))
        )
    );
    let Message::Response(response) =
        one(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"x"}}"#)
    else {
        panic!("not a response")
    };
    assert_eq!(
        response.error().unwrap().unwrap(),
        ErrorObject::new(-1, "x")
    );
    let Message::Request(request) = one(r#"{"jsonrpc":"2.0","id":1,"method":"un\u006bnown/x"}"#)
    else {
        panic!("not a request")
    };
    assert_eq!(request.method, MethodName::Unknown("unknown/x".into()));
}

#[test]
fn an_error_without_a_readable_id_is_a_response_and_a_result_is_not() {
    for text in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":1,"message":""}}"#,
    ] {
        let Message::Response(response) = one(text) else {
            panic!("not a response")
        };
        assert_eq!(response.id, None);
    }
    for text in [
        r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
    ] {
        assert_eq!(refused(text), (error_code::INVALID_REQUEST, None));
    }
    let Message::Response(response) = one(r#"{"jsonrpc":"2.0","id":1,"error":{}}"#) else {
        panic!("not a response")
    };
    assert!(response.error().unwrap().is_err());
}

// Proves R034.
#[test]
fn a_refused_message_keeps_its_id() {
    for (id, shown) in [("7", "7"), (r#""x""#, r#""x""#)] {
        for rest in [
            r#""method":"a""#,
            r#""jsonrpc":"1.0","method":"a""#,
            r#""jsonrpc":2.0,"method":"a""#,
            r#""jsonrpc":"2.0""#,
            r#""jsonrpc":"2.0","method":7"#,
            r#""jsonrpc":"2.0","method":"a","result":{}"#,
            r#""jsonrpc":"2.0","result":{},"error":{}"#,
            r#""jsonrpc":"2.0","result":[]"#,
            r#""jsonrpc":"2.0","method":"a","params":[]"#,
            r#""jsonrpc":"2.0","method":"a","params":null"#,
            r#""jsonrpc":"2.0","method":"a","params":{"name":"x","name":"y"}"#,
            r#""jsonrpc":"2.0","m\u00e9thod":"a""#,
        ] {
            let expected = (error_code::INVALID_REQUEST, Some(shown.to_owned()));
            assert_eq!(
                refused(&format!("{{\"id\":{id},{rest}}}")),
                expected,
                "{rest}"
            );
            assert_eq!(
                refused(&format!("{{{rest},\"id\":{id}}}")),
                expected,
                "{rest}"
            );
        }
    }
}

// Proves R035, B07.
#[test]
fn a_bad_id_is_refused() {
    let long = format!("\"{}\"", "x".repeat(255));
    for id in ["null", "1.5", "1e3", "true", "{}", "[]", long.as_str()] {
        assert_eq!(
            refused(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)),
            (error_code::INVALID_REQUEST, None),
            "{id}"
        );
    }
}

// Proves R036, B06.
#[test]
fn invalid_json_is_a_parse_error() {
    for text in [
        &b"\xff"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3(\"}",
        b"\xef\xbb\xbf{}",
        b"",
        b"{",
        b"{\"id\":1}}",
        b"NaN",
    ] {
        let error = IncomingMessage::parse(Bytes::copy_from_slice(text), &JsonLimits::default())
            .unwrap_err();
        assert_eq!(
            (error.code, error.id),
            (error_code::PARSE_ERROR, None),
            "{}",
            String::from_utf8_lossy(text)
        );
    }
}

// Proves B01, B02, B03.
#[test]
fn json_beyond_the_limits_is_an_invalid_request() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"a","params":{{"x":{}{}}}}}"#,
        "[".repeat(63),
        "]".repeat(63)
    );
    assert_eq!(
        refused(&deep),
        (error_code::INVALID_REQUEST, Some("3".into()))
    );
    let wide = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"a","params":{{"x":[{}0]}}}}"#,
        "0,".repeat(100_000)
    );
    assert_eq!(
        refused(&wide),
        (error_code::INVALID_REQUEST, Some("3".into()))
    );
    assert_eq!(
        refused(r#"{"jsonrpc":"2.0","id":3,"method":"a","method":"b"}"#),
        (error_code::INVALID_REQUEST, Some("3".into()))
    );
    assert_eq!(
        refused(r#"{"jsonrpc":"2.0","id":3,"method":"a","id":4}"#),
        (error_code::INVALID_REQUEST, None),
        "which id is not known"
    );
}

// Proves B04.
#[test]
fn lookalike_member_names_are_unknown() {
    let text = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params \":{\"name\":\"evil\"},\"p\u{430}rams\":{},\"\u{131}d\":2}";
    let Message::Request(request) = one(text) else {
        panic!("not a request")
    };
    assert_eq!(
        (request.id.to_string().as_str(), request.params),
        ("1", None)
    );
}

// Proves R032, B05.
#[test]
fn a_batch_is_one_to_fifty_items() {
    let batch = |count: usize| {
        format!(
            "[{}]",
            vec![r#"{"jsonrpc":"2.0","method":"x"}"#; count].join(" ,\n")
        )
    };
    let IncomingMessage::Batch(items) = parse(&batch(50)).unwrap() else {
        panic!("not a batch")
    };
    assert_eq!(items.len(), 50);
    assert!(
        items
            .iter()
            .all(|item| Message::parse(item.clone(), &JsonLimits::default()).is_ok())
    );
    assert_eq!(refused(&batch(51)), (error_code::INVALID_REQUEST, None));
    assert_eq!(refused("[]"), (error_code::INVALID_REQUEST, None));
    assert_eq!(
        Message::parse(Bytes::from(batch(1)), &JsonLimits::default())
            .unwrap_err()
            .code,
        error_code::INVALID_REQUEST
    );
}

// Proves B05.
#[test]
fn a_bad_item_of_a_batch_spoils_only_itself() {
    let IncomingMessage::Batch(items) =
        parse(r#"[1,{"jsonrpc":"2.0","id":1,"method":"a"},{"a":1,"a":2}]"#).unwrap()
    else {
        panic!("not a batch")
    };
    let outcomes: Vec<bool> = items
        .into_iter()
        .map(|item| Message::parse(item, &JsonLimits::default()).is_ok())
        .collect();
    assert_eq!(outcomes, [false, true, false]);
}

#[test]
fn scalars_are_no_messages() {
    for text in ["1", "\"x\"", "null", "true"] {
        assert_eq!(refused(text), (error_code::INVALID_REQUEST, None));
    }
}

// Proves B04.
#[test]
fn a_member_that_differs_from_a_known_one_in_case_alone_is_refused() {
    let good = r#"{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{}}"#;
    for variant in [
        "Method",
        "METHOD",
        "Id",
        "ID",
        "Params",
        "param\u{17f}",
        "re\u{17f}ult",
        "JSONRPC",
        "Result",
        "eRROR",
        "JsonRpc",
        r"\u004dethod",
        r"param\u017f",
    ] {
        let text = good.replacen('{', &format!("{{\"{variant}\":1,"), 1);
        assert_eq!(
            refused(&text),
            (error_code::INVALID_PARAMS, Some("\"i\"".to_owned())),
            "{text}"
        );
        let IncomingMessage::One(_) =
            IncomingMessage::parse(Bytes::from(text), &JsonLimits::upstream()).unwrap()
        else {
            panic!("a batch")
        };
    }
    for other in [
        "m\u{e9}thod",
        "method ",
        "\u{ff4d}ethod",
        "\u{131}d",
        "\u{130}d",
        "x-vendor",
        "",
        "ids",
        r"\ud800id",
    ] {
        one(&good.replacen('{', &format!("{{\"{other}\":1,"), 1));
    }
    // In place of the real member it is refused the same way.
    for (from, to) in [
        ("\"method\"", "\"Method\""),
        ("\"jsonrpc\"", "\"Jsonrpc\""),
        ("\"params\"", "\"PARAMS\""),
    ] {
        assert_eq!(
            refused(&good.replacen(from, to, 1)),
            (error_code::INVALID_PARAMS, Some("\"i\"".to_owned()))
        );
    }
    assert_eq!(
        refused(&good.replacen("\"id\"", "\"Id\"", 1)),
        (error_code::INVALID_PARAMS, None)
    );
}

//! Messages with duplicate, missing or senseless members, and ids (B03, B04, B07, R034, R035).

use http::Method;
use serde_json::{Value, json};
use weir_wire::Revision;

use super::malformed_json::good_call_text;
use super::request_draft::{assert_error, assert_refused};
use super::{RequestDraft, WeirWithUpstream};

/// A duplicate key: a policy would read one, the upstream perhaps the other.
// Proves B03.
#[tokio::test(flavor = "multi_thread")]
async fn duplicate_keys_are_400_32600() {
    let mut stage = WeirWithUpstream::new().await;
    let (headers, good) = good_call_text(&stage);
    let id = json!("the id");
    for (name, from, to, id) in [
        (
            "jsonrpc",
            r#""jsonrpc":"2.0""#,
            r#""jsonrpc":"2.0","jsonrpc":"2.0""#,
            &id,
        ),
        (
            "method",
            r#""method":"tools/call""#,
            r#""method":"tools/call","method":"tools/call""#,
            &id,
        ),
        (
            "method, two values",
            r#""method":"tools/call""#,
            r#""method":"tools/list","method":"tools/call""#,
            &id,
        ),
        (
            "method, escaped",
            r#""method":"tools/call""#,
            r#""\u006dethod":"tools/list","method":"tools/call""#,
            &id,
        ),
        (
            "method, all escaped",
            r#""method""#,
            r#""\u006d\u0065\u0074\u0068\u006f\u0064":"ping","method""#,
            &id,
        ),
        (
            "id",
            r#""id":"the id""#,
            r#""id":"the id","id":"the id""#,
            &Value::Null,
        ),
        (
            "id, two values",
            r#""id":"the id""#,
            r#""id":"other","id":"the id""#,
            &Value::Null,
        ),
        ("params", r#""params":"#, r#""params":{},"params":"#, &id),
        (
            "name",
            r#""name":"echo""#,
            r#""name":"smuggled","name":"echo""#,
            &id,
        ),
        (
            "name, the other first",
            r#""name":"echo""#,
            r#""name":"echo","name":"smuggled""#,
            &id,
        ),
        (
            "name, escaped",
            r#""name":"echo""#,
            r#""n\u0061me":"smuggled","name":"echo""#,
            &id,
        ),
        (
            "arguments",
            r#""arguments":"#,
            r#""arguments":{},"arguments":"#,
            &id,
        ),
        ("_meta", r#""_meta":"#, r#""_meta":{},"_meta":"#, &id),
        (
            "in _meta",
            r#""_meta":{"#,
            r#""_meta":{"io.modelcontextprotocol/protocolVersion":"x","#,
            &id,
        ),
        (
            "in the arguments",
            r#"{"from":"#,
            r#"{"from":1,"from":"#,
            &id,
        ),
        (
            "an unknown member",
            r#""jsonrpc":"2.0""#,
            r#""x":1,"x":1,"jsonrpc":"2.0""#,
            &id,
        ),
    ] {
        let body = good.replacen(from, to, 1);
        assert_ne!(body, good, "{name}");
        let answer = stage.send(Method::POST, headers.clone(), body).await;
        assert_refused(name, &answer, 400, -32600, id);
        stage.assert_still_serving(name).await;
    }
}

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn lookalike_keys_are_ignored_and_not_forwarded() {
    let mut stage = WeirWithUpstream::new().await;
    let (headers, good) = good_call_text(&stage);
    // Beside the real members they are unknown members of the envelope. weir writes the envelope
    // anew.
    for member in [
        r#""method ":"x""#,
        r#""ｍethod":"x""#,
        "\"p\u{430}rams\":{}",
        "\"\u{131}d\":7",
        r#""x-vendor":true"#,
        r#""":0"#,
    ] {
        let body = good.replacen('{', &format!("{{{member},"), 1);
        let answer = stage.send(Method::POST, headers.clone(), body).await;
        assert_eq!(answer.status, 200, "{member}: {:?}", answer.body);
        let heard = stage.take_client_requests();
        assert_eq!(
            heard.iter().map(|call| call.tool()).collect::<Vec<_>>(),
            [Some("echo")],
            "{member}"
        );
        let mut members: Vec<_> = heard[0]
            .message
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        members.sort();
        assert_eq!(members, ["id", "jsonrpc", "method", "params"], "{member}");
    }
    // Instead of the real members they leave a gap.
    for (from, to) in [
        ("\"method\"", "\"method \""),
        ("\"jsonrpc\"", "\"j\u{455}onrpc\""),
    ] {
        let answer = stage
            .send(Method::POST, headers.clone(), good.replacen(from, to, 1))
            .await;
        assert_refused(to, &answer, 400, -32600, &json!("the id"));
        stage.assert_still_serving(to).await;
    }
    for (from, to) in [
        ("\"name\":\"echo\"", "\"n\u{430}me\":\"echo\""),
        ("\"params\"", "\"params \""),
    ] {
        let answer = stage
            .send(Method::POST, headers.clone(), good.replacen(from, to, 1))
            .await;
        assert_eq!(answer.status, 400, "{to}: {:?}", answer.body);
        assert_eq!(answer.last()["id"], "the id", "{to}");
        stage.assert_still_serving(to).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn non_message_json_answers_400_32600() {
    let mut stage = WeirWithUpstream::new().await;
    let (headers, good) = good_call_text(&stage);
    let id = json!("the id");
    let changed = |from: &str, to: &str| good.replacen(from, to, 1);
    for (name, body, id) in [
        ("a number", "1".to_owned(), &Value::Null),
        ("a string", "\"tools/call\"".to_owned(), &Value::Null),
        ("null", "null".to_owned(), &Value::Null),
        ("true", "true".to_owned(), &Value::Null),
        ("an empty object", "{}".to_owned(), &Value::Null),
        ("an empty batch", "[]".to_owned(), &Value::Null),
        ("a batch of nothing", "[[]]".to_owned(), &Value::Null),
        ("no jsonrpc", changed(r#""jsonrpc":"2.0""#, r#""x":1"#), &id),
        (
            "jsonrpc 1.0",
            changed(r#""jsonrpc":"2.0""#, r#""jsonrpc":"1.0""#),
            &id,
        ),
        (
            "jsonrpc as a number",
            changed(r#""jsonrpc":"2.0""#, r#""jsonrpc":2.0"#),
            &id,
        ),
        (
            "jsonrpc null",
            changed(r#""jsonrpc":"2.0""#, r#""jsonrpc":null"#),
            &id,
        ),
        (
            "no method",
            changed(r#""method":"tools/call""#, r#""x":1"#),
            &id,
        ),
        (
            "a method that is a number",
            changed(r#""method":"tools/call""#, r#""method":7"#),
            &id,
        ),
        (
            "a method that is null",
            changed(r#""method":"tools/call""#, r#""method":null"#),
            &id,
        ),
        (
            "a method that is a list",
            changed(r#""method":"tools/call""#, r#""method":["tools/call"]"#),
            &id,
        ),
        (
            "params that are a list",
            changed(r#""params":"#, r#""params":[],"was":"#),
            &id,
        ),
        (
            "params that are a text",
            changed(r#""params":"#, r#""params":"x","was":"#),
            &id,
        ),
        (
            "params that are null",
            changed(r#""params":"#, r#""params":null,"was":"#),
            &id,
        ),
        (
            "a method and a result",
            changed(r#""method":"#, r#""result":{},"method":"#),
            &id,
        ),
        (
            "a method and an error",
            changed(
                r#""method":"#,
                r#""error":{"code":1,"message":"x"},"method":"#,
            ),
            &id,
        ),
        (
            "a result and an error",
            r#"{"jsonrpc":"2.0","id":"the id","result":{},"error":{"code":1,"message":"x"}}"#
                .to_owned(),
            &id,
        ),
    ] {
        let answer = stage.send(Method::POST, headers.clone(), body).await;
        assert_refused(name, &answer, 400, -32600, id);
        stage.assert_still_serving(name).await;
    }
}

// Proves B07, R035.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_ids_answer_400_32600() {
    let mut stage = WeirWithUpstream::new().await;
    let (headers, good) = good_call_text(&stage);
    let huge = format!("\"{}\"", "i".repeat(255));
    let long = "9".repeat(60);
    for id in [
        "null",
        "1.5",
        "1.0",
        "1e2",
        "-0.5",
        "true",
        "false",
        "{}",
        "[]",
        "[1]",
        r#"{"a":1}"#,
        &huge,
        r#""\ud800""#,
    ] {
        let body = good.replacen("\"the id\"", id, 1);
        let answer = stage.send(Method::POST, headers.clone(), body).await;
        assert_refused(id, &answer, 400, -32600, &Value::Null);
        stage.assert_still_serving(id).await;
    }
    for id in [
        "0",
        "-1",
        "9007199254740993",
        "-9223372036854775808",
        &long,
        r#""""#,
        r#""a b\n\"\\""#,
        "\"\u{1f600}\"",
        r#""\u0041""#,
    ] {
        let body = good.replacen("\"the id\"", id, 1);
        let answer = stage.send(Method::POST, headers.clone(), body).await;
        assert_eq!(answer.status, 200, "{id}: {:?}", answer.body);
        assert!(
            String::from_utf8_lossy(&answer.body).contains(&format!("\"id\":{id}")),
            "{id}: {:?}",
            answer.body
        );
        let heard = stage.take_client_requests();
        assert_eq!(heard.len(), 1);
        assert!(
            id == "0" || heard[0].message["id"] != serde_json::from_str::<Value>(id).unwrap(),
            "weir's ids are its own"
        );
    }
}

// Proves R034.
#[tokio::test(flavor = "multi_thread")]
async fn every_error_echoes_the_id_in_its_own_type() {
    let mut stage = WeirWithUpstream::new().await;
    for id in [
        json!(1),
        json!("1"),
        json!(-7),
        json!(9_007_199_254_740_993_i64),
        json!("id with \"quotes\" and \u{e9}"),
        json!(""),
    ] {
        for (name, status, code, spoil) in [
            (
                "no version header",
                400,
                -32020,
                (|draft| draft.remove_header("mcp-protocol-version")) as fn(&mut RequestDraft),
            ),
            ("another method", 400, -32020, |draft| {
                draft.set_header("mcp-method", "tools/list")
            }),
            ("no capabilities", 400, -32602, |draft| {
                draft.meta().remove(weir_wire::meta::CLIENT_CAPABILITIES);
            }),
            ("an unknown version", 400, -32022, |draft| {
                draft.set_version("v999")
            }),
            ("an unknown method", 404, -32601, |draft| {
                draft.set_method("roots/list")
            }),
            ("an unknown tool", 200, -32602, |draft| {
                draft.set_header("mcp-name", "nobody");
                draft.params().insert("name".to_owned(), json!("nobody"));
            }),
        ] {
            let mut draft = stage.draft_call();
            draft.body["id"] = id.clone();
            spoil(&mut draft);
            let answer = draft.post(&stage).await;
            assert_eq!(answer.status, status, "{name}: {:?}", answer.body);
            assert_error(name, &answer, code, &id);
        }
        stage.assert_still_serving(&id.to_string()).await;
    }
}

// Proves B07.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_in_flight_many_times_is_answered_to_each_asker() {
    let mut stage = WeirWithUpstream::new().await;
    let session = stage.legacy_client(Revision::V2025_11_25).await;
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..100_u32 {
        let client = if number % 2 == 0 {
            stage.modern_client()
        } else {
            session.clone()
        };
        asked.spawn(async move {
            let params = json!({ "name": "echo", "arguments": { "mine": number } });
            let (headers, mut body) = client.envelope("tools/call", params);
            body["id"] = json!("one id for all");
            let answer = client
                .send(Method::POST, headers, body.to_string())
                .await
                .unwrap()
                .finish()
                .await
                .unwrap();
            assert_eq!(answer.last()["id"], "one id for all");
            assert_eq!(answer.text(), json!({ "mine": number }).to_string());
        });
    }
    while let Some(one) = asked.join_next().await {
        one.unwrap();
    }
    let ids: std::collections::HashSet<_> = stage
        .take_client_requests()
        .iter()
        .map(|call| call.message["id"].to_string())
        .collect();
    assert_eq!(ids.len(), 100, "weir's own ids are all different");
    stage.assert_still_serving("one id for all").await;
}

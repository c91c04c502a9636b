//! Malformed JSON, and odd JSON that must pass unchanged (B06, R036).

use http::Method;
use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockTool};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::WeirWithUpstream;
use super::request_draft::assert_refused;
use super::weir_with_upstream::usual_tools;

/// Returns a good modern call as text, with `"id":"the id"` in it, and its headers.
pub fn good_call_text(stage: &WeirWithUpstream) -> (http::HeaderMap, String) {
    let mut draft = stage.draft_call();
    draft.body["id"] = json!("the id");
    (draft.headers, draft.body.to_string())
}

/// Returns texts to send instead of the good text of a call. Each is malformed JSON.
fn no_json(good: &str) -> Vec<(&'static str, Vec<u8>)> {
    let with = |from: &str, to: &[u8]| {
        let at = good
            .find(from)
            .unwrap_or_else(|| panic!("no {from} in {good}"));
        [
            &good.as_bytes()[..at],
            to,
            &good.as_bytes()[at + from.len()..],
        ]
        .concat()
    };
    let value = r#""a spoilt call""#;
    vec![
        ("nothing", Vec::new()),
        ("a space", b" ".to_vec()),
        ("the first half", good.as_bytes()[..good.len() / 2].to_vec()),
        (
            "all but the last brace",
            good.as_bytes()[..good.len() - 1].to_vec(),
        ),
        ("one brace more", format!("{good}}}").into_bytes()),
        ("twice", format!("{good}{good}").into_bytes()),
        ("a line more", format!("{good}\n{good}").into_bytes()),
        ("a byte order mark", format!("\u{feff}{good}").into_bytes()),
        (
            "UTF-16",
            good.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        ),
        ("a form", b"jsonrpc=2.0&method=tools/call".to_vec()),
        ("a page", b"<html></html>".to_vec()),
        ("a NUL", format!("{good}\0").into_bytes()),
        ("a lone continuation byte", with(value, b"\"\x80\"")),
        ("a cut-off character", with(value, b"\"\xe2\x82\"")),
        ("an overlong slash", with(value, b"\"\xc0\xaf\"")),
        ("a surrogate in UTF-8", with(value, b"\"\xed\xa0\x80\"")),
        ("beyond Unicode", with(value, b"\"\xf4\x90\x80\x80\"")),
        ("bad UTF-8 in a key", with("\"from\"", b"\"fr\xffom\"")),
        ("a raw newline in a string", with(value, b"\"a\nb\"")),
        ("a raw NUL in a string", with(value, b"\"a\0b\"")),
        ("an escape that is none", with(value, br#""\x41""#)),
        ("half an escape", with(value, br#""\u12""#)),
        ("NaN", with(value, b"NaN")),
        ("Infinity", with(value, b"Infinity")),
        ("-Infinity", with(value, b"-Infinity")),
        ("a leading zero", with(value, b"01")),
        ("a plus", with(value, b"+1")),
        ("a bare point", with(value, b".5")),
        ("a point at the end", with(value, b"1.")),
        ("an empty exponent", with(value, b"1e")),
        ("hexadecimal", with(value, b"0x10")),
        ("a lone minus", with(value, b"-")),
        ("single quotes", with(value, b"'a'")),
        ("a comma at the end", with(value, b"[1,]")),
        ("a comment", with(value, b"/* a */ 1")),
        ("a bare word", with(value, b"yes")),
        ("True", with(value, b"True")),
        (
            "a number of 10,000 digits",
            with(value, "9".repeat(10_000).as_bytes()),
        ),
    ]
}

// Proves B06, R036.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_json_answers_400_32700() {
    let mut stage = WeirWithUpstream::new().await;
    let (headers, good) = good_call_text(&stage);
    for (name, body) in no_json(&good) {
        let answer = stage.send(Method::POST, headers.clone(), body).await;
        assert_refused(name, &answer, 400, -32700, &Value::Null);
        stage.assert_still_serving(name).await;
    }
}

// Proves B06.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_json_answers_400_32700_on_a_session() {
    let mut stage = WeirWithUpstream::new().await;
    let (_, good) = good_call_text(&stage);
    let client = stage.legacy_client(Revision::V2025_11_25).await;
    for (name, body) in no_json(&good) {
        let answer = stage.post_as(&client, &[], body).await;
        assert_refused(name, &answer, 400, -32700, &Value::Null);
    }
    assert_eq!(
        client.ask("ping", json!({})).await.unwrap().result(),
        &json!({}),
        "the session lives"
    );
    stage.assert_still_serving("a session's bad JSON").await;
}

// Proves B06.
#[tokio::test(flavor = "multi_thread")]
async fn odd_json_reaches_the_upstream_as_it_was_written() {
    let mut stage = WeirWithUpstream::new().await;
    for odd in [
        "-0",
        "0.0",
        "1.0",
        "1E2",
        "0.1e-7",
        "1e308",
        "9007199254740993",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "0.30000000000000004",
        r#""\u0041\/\ud83d\ude00""#,
        r#""\u0000""#,
        r#""\u2028\u2029""#,
        "\"\u{2028}\u{fdd0}\u{10ffff}\"",
        "[ 1 ,\t2 ]",
        r#"{"":null," ":1}"#,
        r#"{"a":1,"A":2}"#,
        r#"{"__proto__":{"x":1},"constructor":2}"#,
    ] {
        let (headers, good) = good_call_text(&stage);
        let body = good.replace(r#""a spoilt call""#, odd);
        let answer = stage.send(Method::POST, headers, body).await;
        assert_eq!(answer.status, 200, "{odd}: {:?}", answer.body);
        let heard = stage.take_client_requests();
        assert_eq!(heard.len(), 1, "{odd}");
        let heard = String::from_utf8_lossy(&heard[0].body).into_owned();
        assert!(
            heard.contains(&format!(r#"{{"from":{odd}}}"#)),
            "{odd} became {heard}"
        );
    }
    stage.assert_still_serving("odd JSON").await;
}

// Proves B06.
#[tokio::test(flavor = "multi_thread")]
async fn odd_json_reaches_the_client_as_it_was_written() {
    let odd = r#"{"big":9007199254740993,"e":1E2,"zero":-0,"s":"\u0041\/\ud83d\ude00","spaced":[ 1 , 2 ],"A":1,"a":2}"#;
    let result = format!(
        r#"{{"resultType":"complete","content":[],"structuredContent":{odd},"vendor/x":{odd}}}"#
    );
    let answer = format!(r#"{{"jsonrpc":"2.0","id":"$id","result":{result}}}"#);
    let odd_tool = MockBehaviour::steps([AnswerStep::Send(answer)]);
    let upstream = usual_tools(MockServer::modern())
        .with(MockTool::new("odd").does(odd_tool.clone()))
        .tool("odd_event", odd_tool.as_events());
    let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    for tool in ["odd", "odd_event"] {
        let answer = stage.modern_client().call(tool, json!({})).await.unwrap();
        let body = String::from_utf8_lossy(&answer.body);
        assert_eq!(body.matches(odd).count(), 2, "{tool}: {body}");
        stage.take_client_requests();
    }
    stage.assert_still_serving("an odd answer").await;
}

//! Structured content for clients of revisions without it: it is added as text, once, and every
//! other client gets the result unchanged.

use serde_json::{Value, json};
use weir_testkit::mock_server::AnswerStep;
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer, MockStdio};
use weir_wire::Revision;

use super::{both_eras, weir_over};
use crate::harness::{CheckedClient, Weir};

/// Larger results are streamed, in bytes.
const LARGE: usize = 200_000;

/// Returns the values, and the first revision that carries each.
fn values() -> [(&'static str, Value, Revision); 4] {
    [
        (
            "object",
            json!({ "b": [1, { "c": null }], "a": "é" }),
            Revision::V2025_06_18,
        ),
        ("array", json!([1, "two", null]), Revision::MODERN),
        ("text", json!("a \"quoted\" text"), Revision::MODERN),
        ("number", json!(27), Revision::MODERN),
    ]
}

/// Returns a result of these members, byte for byte in this order.
fn result(members: &[(&str, String)]) -> MockBehaviour {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    let result = format!("{{{}}}", members.join(" , "));
    MockBehaviour::steps([AnswerStep::Send(format!(
        r#"{{"jsonrpc":"2.0","id":"$id","result":{result}}}"#
    ))])
}

/// Returns a `content` with this text, behind a large text if `large` is set.
fn content(large: bool, text: &str) -> String {
    let before = if large {
        "x".repeat(LARGE)
    } else {
        "words".to_owned()
    };
    json!([{ "type": "text", "text": before }, { "type": "text", "text": text }]).to_string()
}

fn texts(answer: &ClientAnswer) -> Vec<&str> {
    let blocks = answer.result()["content"]
        .as_array()
        .unwrap_or_else(|| panic!("{}", answer.last()));
    blocks
        .iter()
        .map(|block| block["text"].as_str().unwrap())
        .collect()
}

// Proves R129.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn structured_content_becomes_one_text_block_for_older_revisions() {
    let values = || {
        let nothing = ("nothing", Value::Null, Revision::MODERN);
        values().into_iter().chain([nothing])
    };
    for (era, mut builder) in both_eras() {
        for (name, value, _) in values() {
            // The same value, and no other, in another spelling.
            let spelled = format!(" {value} ").replace('é', "\\u00e9");
            for (large, size) in [(false, "small"), (true, "large")] {
                for (text, said) in [("other", "words"), ("same", &*spelled)] {
                    let content = ("content", content(large, said));
                    let structured = ("structuredContent", value.to_string());
                    let complete = ("resultType", "\"complete\"".to_owned());
                    let first = [complete.clone(), structured.clone(), content.clone()];
                    let last = [
                        content,
                        ("isError", "false".to_owned()),
                        structured,
                        complete,
                    ];
                    builder = builder
                        .tool(&format!("{name}_{size}_{text}_first"), result(&first))
                        .tool(
                            &format!("{name}_{size}_{text}_last"),
                            result(&last).as_events(),
                        );
                }
            }
        }
        let upstream = builder.start().await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in Revision::ALL {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for (name, value, since) in values() {
                for (size, text, order) in [
                    ("small", "other", "first"),
                    ("small", "other", "last"),
                    ("small", "same", "first"),
                    ("small", "same", "last"),
                    ("large", "other", "first"),
                    ("large", "other", "last"),
                    ("large", "same", "first"),
                    ("large", "same", "last"),
                ] {
                    let case = format!("{revision}: {name}_{size}_{text}_{order}");
                    let answer = client
                        .call(&format!("one__{name}_{size}_{text}_{order}"), json!({}))
                        .await;
                    let texts = texts(&answer);
                    // The result of an older server has none then; a large one is not held for that.
                    let is_none = name == "nothing" && size == "small" && !era.is_modern();
                    let is_added = revision < since && text == "other" && !is_none;
                    assert_eq!(texts.len(), 2 + usize::from(is_added), "{case}");
                    if is_added {
                        assert_eq!(
                            serde_json::from_str::<Value>(texts[2]).unwrap(),
                            value,
                            "{case}"
                        );
                    }
                    let structured = answer.result().get("structuredContent");
                    if is_none {
                        assert_eq!(structured, None, "{case}");
                    } else if revision >= since {
                        assert_eq!(structured, Some(&value), "{case}");
                    } else {
                        assert!(structured.is_none_or(Value::is_object), "{case}");
                    }
                    assert_eq!(
                        texts[0].len(),
                        if size == "large" { LARGE } else { 5 },
                        "{case}"
                    );
                }
            }
        }
    }
}

// Proves R129.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn structured_content_beyond_the_hold_limit_is_replaced_by_a_note() {
    let value = json!(["y".repeat(LARGE)]).to_string();
    let said = [("other", "words"), ("same", &*value)];
    let builder = said
        .into_iter()
        .fold(MockServer::modern().tools(1), |builder, (text, said)| {
            let content = ("content", content(true, said));
            let structured = ("structuredContent", value.clone());
            let complete = ("resultType", "\"complete\"".to_owned());
            let members = [complete, content, structured];
            let turned = [members[0].clone(), members[2].clone(), members[1].clone()];
            builder
                .tool(&format!("{text}_last"), result(&members))
                .tool(&format!("{text}_first"), result(&turned))
        });
    let upstream = builder.start().await;
    for (hold, fits) in [("128KiB", false), ("4MiB", true)] {
        let weir = Weir::with_config(json!({
            "upstreams": { "one": { "url": upstream.url() } },
            "limits": { "hold_per_call": hold },
        }));
        for revision in Revision::ALL {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for order in ["first", "last"] {
                let same = client.call(&format!("one__same_{order}"), json!({})).await;
                assert_eq!(
                    texts(&same).len(),
                    2,
                    "{revision} {hold} {order}: its server said it, however large it is"
                );
                let other = client.call(&format!("one__other_{order}"), json!({})).await;
                let texts = texts(&other);
                if revision.is_modern() {
                    assert_eq!(texts.len(), 2);
                    continue;
                }
                assert_eq!(texts.len(), 3, "{revision} {hold} {order}");
                assert_eq!(texts[2] == value, fits, "{revision} {hold} {order}");
                assert_eq!(
                    texts[2].contains("structured content was left out"),
                    !fits,
                    "{revision} {hold} {order}"
                );
            }
            assert_eq!(client.call("one__tool_0000", json!({})).await.text(), "{}");
        }
        let held = || weir.metric("weir_hold_bytes", &[]);
        crate::harness::wait_until("what was held is given back", || {
            (held() == 0.0).then_some(())
        });
    }
}

// Proves R129.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn structured_content_becomes_text_for_older_revisions_over_stdio() {
    for (mock, name) in [
        (MockStdio::modern(), "modern"),
        (MockStdio::legacy(Revision::NEWEST_LEGACY), "legacy"),
    ] {
        let (command, args) = mock.command();
        let weir = Weir::with_upstreams(json!({ "one": { "command": command, "args": args } }));
        for revision in Revision::ALL {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for (_, value, since) in values() {
                for said in ["words".to_owned(), format!("\n{value}"), "w".repeat(LARGE)] {
                    let arguments = json!({ "text": said, "structured": value });
                    let answer = client.call("one__echo", arguments).await;
                    let is_added = revision < since && !said.starts_with('\n');
                    let case = format!("{name} {revision} {value} {:.9}", said);
                    assert_eq!(texts(&answer).len(), 1 + usize::from(is_added), "{case}");
                    if is_added {
                        assert_eq!(
                            serde_json::from_str::<Value>(texts(&answer)[1]).unwrap(),
                            value,
                            "{case}"
                        );
                    }
                }
            }
        }
    }
}

//! Hidden characters in results, whole and streamed, and results that are larger than their
//! operator allows.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockServerBuilder};
use weir_testkit::{ClientAnswer, MockBehaviour};
use weir_wire::{Revision, meta};

use super::{BOTH, both_eras, own_error};
use crate::harness::{CheckedClient, Weir};

/// Larger results are streamed, in bytes.
const LARGE: usize = 200_000;

/// A result with hidden characters, or with look-alikes, and its clean form.
struct PoisonedResult {
    name: String,
    given: String,
    clean: Value,
}

/// Returns the results of the corpus of `weir-clean` that consist of text alone.
fn corpus() -> Vec<PoisonedResult> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/clean/tests/poisoned/tool_result");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".clean.json") {
            continue;
        }
        let given = std::fs::read_to_string(&path).unwrap().trim().to_owned();
        let clean = std::fs::read_to_string(path.with_extension("clean.json"))
            .unwrap_or_else(|_| given.clone());
        let clean: Value = serde_json::from_str(&clean).unwrap();
        let blocks = clean["content"].as_array().cloned().unwrap_or_default();
        if !blocks.is_empty() && blocks.iter().all(|block| block["text"].is_string()) {
            all.push(PoisonedResult {
                name: name.trim_end_matches(".json").to_owned(),
                given,
                clean,
            });
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() > 20, "{}", all.len());
    all
}

/// The form of a result on the wire.
#[derive(Clone, Copy, Debug)]
struct ResultEncoding {
    large: bool,
    events: bool,
}

const FORMS: [ResultEncoding; 4] = [
    ResultEncoding {
        large: false,
        events: false,
    },
    ResultEncoding {
        large: false,
        events: true,
    },
    ResultEncoding {
        large: true,
        events: false,
    },
    ResultEncoding {
        large: true,
        events: true,
    },
];

impl ResultEncoding {
    fn tool(self, name: &str) -> String {
        let size = if self.large { "large" } else { "small" };
        format!("{name}_{size}_{}", if self.events { "sse" } else { "json" })
    }

    /// Sends the result in pieces that end in the midst of escapes and characters, with an unknown
    /// member first; as an event with several data lines, behind another event.
    fn behaviour(self, members: &str) -> MockBehaviour {
        let filler = "x".repeat(if self.large { LARGE } else { 1 });
        let result = format!("{{\"resultType\":\"complete\",\"filler\":\"{filler}\",\n{members}}}");
        let message = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"result\":{result}}}");
        if self.events {
            let message = message.replace('\n', "\ndata: ");
            return MockBehaviour::steps([AnswerStep::Progress(1, 2), AnswerStep::Send(message)])
                .as_events()
                .dripping(5003, Duration::ZERO);
        }
        let piece = if message.len() > LARGE / 2 { 4999 } else { 7 };
        MockBehaviour::steps([AnswerStep::Send(message)])
            .as_json()
            .dripping(piece, Duration::ZERO)
    }
}

/// Returns the members of an object.
fn members(object: &str) -> &str {
    object
        .trim()
        .strip_prefix('{')
        .unwrap()
        .strip_suffix('}')
        .unwrap()
}

fn texts(result: &Value) -> Vec<&str> {
    result["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["text"].as_str().unwrap())
        .collect()
}

fn said(answer: &ClientAnswer) -> Option<u64> {
    answer.result()["_meta"]
        .get(meta::WEIR_CLEANED)
        .map(|said| said.as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poisoned_results_are_cleaned_in_every_form_and_marked() {
    let corpus = corpus();
    for (era, mut builder) in both_eras() {
        for poison in &corpus {
            for form in FORMS {
                builder = builder.tool(
                    &form.tool(&poison.name),
                    form.behaviour(members(&poison.given)),
                );
            }
        }
        let upstream = builder.start().await;
        let weir = super::weir_over(&[("one", &upstream)]);
        let mut removed = 0;
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            // Names of tools are cut at 64 characters.
            let names = client.list_tool_names().await;
            for poison in &corpus {
                let is_clean =
                    serde_json::from_str::<Value>(&poison.given).unwrap() == poison.clean;
                let mut counts = Vec::new();
                for form in FORMS {
                    let case = format!("{era} {revision} {} {form:?}", poison.name);
                    let tool = format!("one__{}", form.tool(&poison.name));
                    assert!(names.contains(&tool), "{tool}");
                    let answer = client.call(&tool, json!({})).await;
                    assert_eq!(texts(answer.result()), texts(&poison.clean), "{case}");
                    assert_eq!(
                        answer.result()["filler"]
                            .as_str()
                            .map(|text| text.len() > LARGE / 2),
                        Some(form.large)
                    );
                    counts.push(said(&answer));
                    removed += said(&answer).unwrap_or_default();
                }
                assert!(
                    counts.iter().all(|count| *count == counts[0]),
                    "{} {counts:?}",
                    poison.name
                );
                assert_eq!(counts[0].is_none(), is_clean, "{} {counts:?}", poison.name);
            }
        }
        assert_eq!(
            weir.metric("weir_outputs_cleaned_total", &["upstream=\"one\""]),
            removed as f64,
            "{era}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_count_of_a_result_is_weirs_own_and_never_forged() {
    let forged = format!("\"_meta\":{{\"x/y\":1,\"{}\":99}}", meta::WEIR_CLEANED);
    let (poisoned, clean) = (
        r#""content":[{"type":"text","text":"a\u001b[1mb\u0007"}]"#,
        r#""content":[{"type":"text","text":"ab"}]"#,
    );
    let structured = r#""structuredContent":{"k\u0007":["\u202e"]}"#;
    // The members of a result, and the number in it, for whole results and streamed ones.
    let cases = [
        ("none", poisoned.to_owned(), Some(2)),
        ("last", format!("{poisoned},{forged}"), Some(2)),
        ("first", format!("{forged},{poisoned}"), Some(2)),
        (
            "midst",
            format!("{poisoned},{forged},\n{structured}"),
            Some(3),
        ),
        ("clean", format!("{clean},{forged}"), None),
    ];
    for (era, mut builder) in both_eras() {
        for (name, members, ..) in &cases {
            for form in FORMS {
                builder = builder.tool(&form.tool(name), form.behaviour(members));
            }
        }
        let upstream = builder.start().await;
        let weir = super::weir_over(&[("one", &upstream)]);
        for revision in Revision::ALL {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for (name, members, expected) in &cases {
                for form in FORMS {
                    let case = format!("{era} {revision} {name} {form:?}");
                    let answer = client
                        .call(&format!("one__{}", form.tool(name)), json!({}))
                        .await;
                    assert_eq!(answer.text(), "ab", "{case}");
                    assert_eq!(said(&answer), *expected, "{case}");
                    assert_eq!(
                        answer.result()["_meta"]["x/y"].is_i64(),
                        members.contains("x/y"),
                        "{case}"
                    );
                }
            }
            // On an endpoint of its own an upstream's results pass unchanged.
            let client = CheckedClient::open(&weir.url("/mcp/one"), revision).await;
            for form in FORMS {
                let answer = client.call(&form.tool("last"), json!({})).await;
                assert_eq!(
                    (answer.text(), said(&answer)),
                    ("a\u{1b}[1mb\u{7}", None),
                    "{era} {revision} {form:?}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_result_has_its_removal_count() {
    // Its text is the JSON of this value, with these two characters unescaped.
    let arguments = || json!({ "k": "a\u{e0041}b\u{202e}" });
    for (era, builder) in both_eras() {
        let upstream = builder.with_tasks().start().await;
        let weir = Weir::with_upstreams(
            json!({ "one": { "url": upstream.url(), "session": "principal" } }),
        );
        for revision in BOTH {
            let capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
            let capabilities = if revision.is_modern() {
                capabilities
            } else {
                json!({})
            };
            let client =
                CheckedClient::with_capabilities(&weir.url("/mcp"), revision, capabilities).await;
            let mut call = json!({ "name": "one__task_done", "arguments": arguments() });
            if !revision.is_modern() {
                call["task"] = json!({ "ttl": 60_000 });
            }
            let created = client.ask("tools/call", call).await;
            let task = if revision.is_modern() {
                created.result()
            } else {
                &created.result()["task"]
            };
            let about = json!({ "taskId": task["taskId"] });
            let mut state = json!({});
            for _ in 0..20 {
                state = client
                    .ask("tasks/get", about.clone())
                    .await
                    .result()
                    .clone();
                if state["status"] == "completed" {
                    break;
                }
            }
            assert_eq!(state["status"], "completed", "{era} {revision}: {state}");
            if !revision.is_modern() {
                state["result"] = client.ask("tasks/result", about).await.result().clone();
            }
            let result = &state["result"];
            let said = (
                &result["content"][0]["text"],
                &result["_meta"][meta::WEIR_CLEANED],
            );
            assert_eq!(
                said,
                (&json!(r#"{"k":"ab"}"#), &json!(2)),
                "{era} {revision}: {result}"
            );
        }
        // A client without tasks gets the result of its call, if the server makes tasks of such a
        // client's calls.
        if !era.is_modern() {
            let plain = CheckedClient::open(&weir.url("/mcp"), Revision::V2025_06_18).await;
            let answer = plain.call("one__task_only", arguments()).await;
            let said = (answer.text(), said(&answer));
            assert_eq!(said, (r#"{"k":"ab"}"#, Some(2)), "{era}: {}", answer.last());
        }
    }
}

/// Starts an upstream whose results are bounded, with `over` for the treatment of larger ones.
async fn bounded(builder: MockServerBuilder, over: &str) -> (weir_testkit::MockServer, Weir) {
    let structured = json!({ "s": "y".repeat(1500) }).to_string();
    let text = |size: usize| {
        format!(
            r#""content":[{{"type":"text","text":"{}"}}]"#,
            "é".repeat(size / 2)
        )
    };
    let cases = [
        ("small", text(1000)),
        ("long", text(LARGE)),
        (
            "both",
            format!("{},\"structuredContent\":{structured}", text(LARGE)),
        ),
        (
            "data",
            format!(
                "\"structuredContent\":{{\"s\":\"{}\"}},\"content\":[]",
                "y".repeat(LARGE)
            ),
        ),
    ];
    let mut builder = builder;
    for (name, members) in cases {
        for (suffix, events) in [("json", false), ("sse", true)] {
            let form = ResultEncoding {
                large: false,
                events,
            };
            builder = builder.tool(&format!("{name}_{suffix}"), form.behaviour(&members));
        }
    }
    let upstream = builder.start().await;
    let results = json!({ "max": "4KiB", "over": over });
    let weir =
        Weir::with_upstreams(json!({ "one": { "url": upstream.url(), "results": results } }));
    (upstream, weir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_are_too_large_lose_text_and_say_how_much() {
    for (era, builder) in both_eras() {
        let (_upstream, weir) = bounded(builder, "cut").await;
        for revision in [
            Revision::V2024_11_05,
            Revision::NEWEST_LEGACY,
            Revision::MODERN,
        ] {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for form in ["json", "sse"] {
                let case = format!("{era} {revision} {form}");
                let small = client.call(&format!("one__small_{form}"), json!({})).await;
                assert_eq!(small.text().len(), 1000, "{case}");
                for (name, least, most) in [("long", 3600, 4096), ("both", 2000, 2600)] {
                    let cut = client.call(&format!("one__{name}_{form}"), json!({})).await;
                    let (kept, note) = cut.text().rsplit_once('\n').unwrap();
                    assert!(
                        kept.chars().all(|character| character == 'é'),
                        "{case} {name}"
                    );
                    assert!(
                        (least..most).contains(&kept.len()),
                        "{case} {name}: {}",
                        kept.len()
                    );
                    let gone = LARGE - kept.len();
                    assert!(
                        note.contains(&format!("{gone} bytes of text")) && note.contains("4096"),
                        "{case}: {note}"
                    );
                }
                if revision >= Revision::V2025_06_18 {
                    let both = client.call(&format!("one__both_{form}"), json!({})).await;
                    assert_eq!(
                        both.result()["structuredContent"]["s"]
                            .as_str()
                            .map(str::len),
                        Some(1500),
                        "{case}"
                    );
                }
                // Only text can be cut.
                let data = client.call(&format!("one__data_{form}"), json!({})).await;
                assert_eq!(own_error(&data)["reason"], "bad_answer", "{case}");
                assert!(
                    data.text().contains("only its text can be cut"),
                    "{case}: {}",
                    data.text()
                );
            }
        }
        assert!(weir.metric("weir_results_oversized_total", &["action=\"cut\""]) >= 12.0);
        assert_eq!(
            weir.metric("weir_results_oversized_total", &["action=\"refused\""]),
            6.0
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_are_too_large_are_refused_where_the_operator_wants_that() {
    for (era, builder) in both_eras() {
        let (upstream, weir) = bounded(builder, "refuse").await;
        for revision in [Revision::V2024_11_05, Revision::MODERN] {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for form in ["json", "sse"] {
                assert_eq!(
                    client
                        .call(&format!("one__small_{form}"), json!({}))
                        .await
                        .text()
                        .len(),
                    1000
                );
                for name in ["long", "both", "data"] {
                    let refused = client.call(&format!("one__{name}_{form}"), json!({})).await;
                    assert_eq!(
                        own_error(&refused)["code"],
                        1003,
                        "{era} {revision} {name} {form}"
                    );
                    assert!(
                        refused.text().contains("at most 4096"),
                        "{}",
                        refused.text()
                    );
                }
            }
        }
        assert_eq!(upstream.executions("long_json"), 2);
        assert_eq!(
            weir.metric(
                "weir_results_oversized_total",
                &["action=\"refused\"", "upstream=\"one\""]
            ),
            12.0
        );
    }
}

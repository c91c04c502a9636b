//! Secrets in arguments and in answers, found by the operator's patterns.

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer};
use weir_testkit::{TestFolder, mock_server::MockServerBuilder};
use weir_wire::Revision;

use super::{both_eras, own_error};
use crate::harness::{CheckedClient, Weir, wait_until};

/// The example key of AWS's own documentation.
const SECRET: &str = "AKIAIOSFODNN7EXAMPLE";
const PATTERNS: &str =
    "aws-key: '\\bAKIA[0-9A-Z]{16}\\b'\npassword: '(?i)password\\s*[=:]\\s*(?<secret>[^\\s\"]+)'\n";
const LARGE: usize = 200_000;

/// Adds tools that return the secret in every form.
fn telling(builder: MockServerBuilder) -> MockServerBuilder {
    let text = format!(r"key {SECRET}, and password = hunter2.");
    let content = json!([{ "type": "text", "text": text }]);
    let whole =
        json!({ "content": content, "structuredContent": { "deep": [{ "key": SECRET }], "n": 1 } });
    let large = json!({ "content": [{ "type": "text", "text": "x".repeat(LARGE) }, content[0]] });
    let hidden = json!({ "content": [{ "type": "text", "text": format!("AKIA\u{e0041}\u{1b}[0m{}", &SECRET[4..]) }] });
    builder
        .tool("json", MockBehaviour::result(whole.clone()).as_json())
        .tool("sse", MockBehaviour::result(whole).as_events())
        .tool("large_json", MockBehaviour::result(large.clone()).as_json())
        .tool("large_sse", MockBehaviour::result(large).as_events())
        .tool("hidden", MockBehaviour::result(hidden))
        .tool(
            "error",
            MockBehaviour::error(-32000, &format!("no: {SECRET}"), json!({ "why": [SECRET] })),
        )
        .tool("echo", MockBehaviour::echo())
}

fn config(upstream: &MockServer, secrets: Value) -> Value {
    let mut config = json!({ "upstreams": { "one": { "url": upstream.url() } } });
    config["upstreams"]["one"]["secrets"] = secrets;
    config
}

/// Asserts that an answer is without the secret; returns it.
fn without_secret(answer: &ClientAnswer) -> &ClientAnswer {
    let said = answer
        .messages
        .iter()
        .map(Value::to_string)
        .collect::<String>();
    assert!(
        !said.contains(SECRET) && !said.contains("hunter2"),
        "{said}"
    );
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_in_answers_are_masked_wherever_they_stand() {
    for (era, builder) in both_eras() {
        let folder = TestFolder::new("patterns");
        let patterns = folder.write("secrets.yaml", PATTERNS);
        let upstream = telling(builder).start().await;
        let weir = Weir::with_config(config(&upstream, json!({ "patterns": patterns })));
        let masked = "key [masked: aws-key], and password = [masked: password]";
        let mut found = 0.0;
        for revision in [
            Revision::V2024_11_05,
            Revision::NEWEST_LEGACY,
            Revision::MODERN,
        ] {
            // On every endpoint: the server decides, not the name under which it is exposed.
            for path in ["/mcp", "/mcp/one"] {
                let client = CheckedClient::open(&weir.url(path), revision).await;
                let name = |tool: &str| {
                    if path == "/mcp" {
                        format!("one__{tool}")
                    } else {
                        tool.to_owned()
                    }
                };
                for tool in ["json", "sse"] {
                    let answer = client.call(&name(tool), json!({})).await;
                    assert!(
                        without_secret(&answer).text().starts_with(masked),
                        "{era} {revision} {}",
                        answer.text()
                    );
                    if revision >= Revision::V2025_06_18 {
                        let structured =
                            json!({ "deep": [{ "key": "[masked: aws-key]" }], "n": 1 });
                        assert_eq!(answer.result()["structuredContent"], structured);
                    }
                    found += 3.0;
                }
                for tool in ["large_json", "large_sse"] {
                    let answer = client.call(&name(tool), json!({})).await;
                    let text = without_secret(&answer).result()["content"][1]["text"]
                        .as_str()
                        .unwrap()
                        .to_owned();
                    assert!(text.starts_with(masked), "{era} {revision} {text}");
                    assert_eq!(answer.text().len(), LARGE);
                    found += 2.0;
                }
                let failed = client.call(&name("error"), json!({})).await;
                let error = without_secret(&failed).error();
                assert_eq!(
                    (&error["message"], &error["data"]["why"][0]),
                    (&json!("no: [masked: aws-key]"), &json!("[masked: aws-key]"))
                );
                found += 2.0;
                // Arguments are not searched, an echo of them is.
                let echoed = client.call(&name("echo"), json!({ "key": SECRET })).await;
                assert!(without_secret(&echoed).text().contains("[masked: aws-key]"));
                found += 2.0;
            }
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let answer = client.call("one__hidden", json!({})).await;
            assert_eq!(
                answer.text(),
                "[masked: aws-key]",
                "hidden characters in its midst are removed before"
            );
            found += 1.0;
        }
        assert_eq!(
            weir.metric(
                "weir_secrets_found_total",
                &["side=\"answers\"", "action=\"masked\""]
            ),
            found
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_with_secrets_are_refused_where_the_operator_wants_that() {
    for (era, builder) in both_eras() {
        let folder = TestFolder::new("patterns");
        let patterns = folder.write("secrets.yaml", PATTERNS);
        let upstream = telling(builder).start().await;
        let weir = Weir::with_config(config(
            &upstream,
            json!({ "patterns": patterns, "results": "refuse" }),
        ));
        for revision in [Revision::V2024_11_05, Revision::MODERN] {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for tool in ["json", "sse", "large_json", "large_sse", "hidden", "error"] {
                let answer = client.call(&format!("one__{tool}"), json!({})).await;
                assert_eq!(
                    own_error(without_secret(&answer))["reason"],
                    "bad_answer",
                    "{era} {revision} {tool}"
                );
                assert!(
                    answer.text().contains("pattern `aws-key`"),
                    "{}",
                    answer.text()
                );
            }
            assert_eq!(
                client.call("one__echo", json!({ "n": 1 })).await.text(),
                r#"{"n":1}"#
            );
        }
        assert_eq!(
            weir.metric(
                "weir_secrets_found_total",
                &["action=\"refused\"", "upstream=\"one\""]
            ),
            12.0
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_with_secrets_in_their_arguments_are_not_made() {
    for (era, builder) in both_eras() {
        let folder = TestFolder::new("patterns");
        let patterns = folder.write("secrets.yaml", PATTERNS);
        let audit = folder.file("audit.jsonl");
        let upstream = telling(builder).start().await;
        let secrets = json!({ "patterns": patterns, "arguments": "refuse", "results": "off" });
        let mut config = config(&upstream, secrets);
        config["audit"] = json!({ "file": { "path": audit } });
        let weir = Weir::with_config(config);
        for revision in Revision::ALL {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for text in [SECRET.to_owned(), format!("before {SECRET}, after")] {
                let answer = client
                    .call(
                        "one__echo",
                        json!({ "to": "x", "headers": [{ "a/b": text }] }),
                    )
                    .await;
                let last = without_secret(&answer).last().to_string();
                assert!(
                    last.contains("-32602") && last.contains("bad_arguments"),
                    "{era} {revision} {last}"
                );
                assert!(
                    last.contains("/headers/0/a~1b") && last.contains("pattern `aws-key`"),
                    "{last}"
                );
            }
            // The error has no part of a secret, even if it is in a key.
            let answer = client.call("one__echo", json!({ SECRET: [SECRET] })).await;
            assert!(
                without_secret(&answer)
                    .last()
                    .to_string()
                    .contains("have a secret (pattern"),
                "{}",
                answer.last()
            );
            assert_eq!(
                client.call("one__echo", json!({ "n": 1 })).await.text(),
                r#"{"n":1}"#
            );
            // Results are not searched.
            assert!(
                client
                    .call("one__json", json!({}))
                    .await
                    .text()
                    .contains(SECRET)
            );
        }
        assert_eq!(
            upstream.executions("echo"),
            Revision::ALL.len(),
            "{era}: only the harmless ones"
        );
        let refused = weir.metric(
            "weir_secrets_found_total",
            &["side=\"arguments\"", "action=\"refused\""],
        );
        assert_eq!(refused, 3.0 * Revision::ALL.len() as f64);
        let records = wait_until("the records", || {
            let text = std::fs::read_to_string(&audit).unwrap_or_default();
            let all: Vec<Value> = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect();
            let of_secrets: Vec<Value> = all
                .into_iter()
                .filter(|record| record.get("secrets").is_some())
                .collect();
            (of_secrets.len() == 3 * Revision::ALL.len()).then_some(of_secrets)
        });
        for record in records {
            assert_eq!(
                (&record["secrets"], &record["outcome"]),
                (&json!(1), &json!("bad_arguments"))
            );
        }
        drop(weir);
        let text = std::fs::read_to_string(&audit).unwrap();
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_file_of_patterns_counts_from_then_on_and_a_weaker_one_does_not() {
    let (_, builder) = both_eras().into_iter().next().unwrap();
    let folder = TestFolder::new("patterns");
    let patterns = folder.write("secrets.yaml", "nothing: never-said\n");
    let upstream = telling(builder).start().await;
    let weir = Weir::with_config(config(&upstream, json!({ "patterns": patterns })));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert!(
        client
            .call("one__json", json!({}))
            .await
            .text()
            .contains(SECRET)
    );
    let replace = |text: &str| {
        let next = patterns.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, &patterns).unwrap();
    };
    replace(&format!("nothing: never-said\n{PATTERNS}"));
    let mut answer = client.call("one__json", json!({})).await;
    for _ in 0..200 {
        if !answer.text().contains(SECRET) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        answer = client.call("one__json", json!({})).await;
    }
    assert!(without_secret(&answer).text().contains("[masked: aws-key]"));
    // A file that lost its end is refused, as is one that cannot be read as patterns; the old
    // patterns stay in force.
    let before = weir.metric("weir_config_reloads_total", &[]);
    for text in ["nothing: never-said\n", "aws-key: '('\n", ""] {
        let before = weir.metric("weir_config_reloads_total", &[]);
        replace(text);
        wait_until("a reload", || {
            (weir.metric("weir_config_reloads_total", &[]) > before).then_some(())
        });
        without_secret(&client.call("one__json", json!({})).await);
    }
    assert!(weir.metric("weir_config_reloads_total", &[]) >= before + 3.0);
}

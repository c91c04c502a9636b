//! Headers that repeat arguments must agree with the arguments.

use serde_json::json;
use weir_testkit::ClientAnswer;
use weir_testkit::mock_server::MockTool;
use weir_wire::Revision;

use super::{BOTH, both_eras, weir_over};
use crate::harness::CheckedClient;

// Proves R021, R022, R023, R024, R025, B11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameter_headers_are_checked_before_a_tool_hears_of_the_call() {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
        "count": { "type": "integer", "x-mcp-header": "Count" },
    }});
    for (_, builder) in both_eras() {
        let upstream = builder
            .with(MockTool::new("where").with("inputSchema", schema.clone()))
            .tools(1)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        let ask = async |headers: &[(&str, &str)], arguments: serde_json::Value| -> ClientAnswer {
            let client = headers
                .iter()
                .fold(client.clone(), |client, (name, value)| {
                    client.with_header(name, value)
                });
            client.call("one__where", arguments).await
        };
        let refused: [(&[(&str, &str)], _); 4] = [
            (&[], json!({ "region": "eu" })),
            (&[("mcp-param-region", "us")], json!({ "region": "eu" })),
            (
                &[("mcp-param-region", "=?base64?ZXU?=")],
                json!({ "region": "eu" }),
            ),
            (
                &[("mcp-param-region", "eu"), ("mcp-param-count", "41")],
                json!({ "region": "eu", "count": 42 }),
            ),
        ];
        for (headers, arguments) in refused {
            let answer = ask(headers, arguments).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (400, -32020),
                "{headers:?}: {}",
                answer.last()
            );
        }
        assert_eq!(upstream.executions("where"), 0);
        let taken: [(&[(&str, &str)], _); 4] = [
            (&[], json!({})),
            (&[("mcp-param-foo", "x")], json!({})),
            (
                &[("mcp-param-region", "=?base64?ZXU=?=")],
                json!({ "region": "eu" }),
            ),
            (
                &[("mcp-param-region", "eu"), ("mcp-param-count", "42.0")],
                json!({ "region": "eu", "count": 42 }),
            ),
        ];
        for (headers, arguments) in taken {
            let answer = ask(headers, arguments).await;
            assert_eq!(answer.status, 200, "{headers:?}: {}", answer.last());
        }
        assert_eq!(upstream.executions("where"), 4);
        // Legacy clients do not send such headers.
        let old = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
        assert!(
            old.call("one__where", json!({ "region": "eu" }))
                .await
                .result()
                .is_object()
        );
    }
}

// Proves R116, B11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_with_bad_annotations_is_left_out_or_shown_without_them_as_its_server_needs() {
    let bad = [json!(""), json!("a b"), json!("a:b"), json!("é"), json!(5)];
    let tools = bad.into_iter().enumerate().map(|(nth, name)| {
        let schema =
            json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": name } } });
        MockTool::new(&format!("bad-{nth}")).with("inputSchema", schema)
    });
    let tools: Vec<MockTool> = tools.collect();
    for (revision, builder) in both_eras() {
        let upstream = tools
            .iter()
            .cloned()
            .fold(builder, |builder, tool| builder.with(tool))
            .tools(1)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        for client in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp/one"), client).await;
            let (shown, _) = client.list_tool_pages().await;
            if revision.is_modern() {
                assert_eq!(shown.len(), 1, "{shown:?}");
                continue;
            }
            assert_eq!(shown.len(), 6, "{shown:?}");
            assert!(
                !json!(shown).to_string().contains("x-mcp-header"),
                "{shown:?}"
            );
            // No header is required then.
            assert!(
                client
                    .call("bad-1", json!({ "region": "eu" }))
                    .await
                    .text()
                    .contains("eu")
            );
        }
    }
}

/// No value of a client becomes part of a path or a query, and it becomes a header only if it stays
/// one value.
// Proves C28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_names_and_uris_change_no_path_and_inject_no_header() {
    const HOSTILE: [&str; 10] = [
        "../../admin",
        "..%2f..%2fadmin",
        "/etc/passwd",
        "a?admin=1#x",
        "a&admin=1;b",
        "a\r\nX-Evil: 1\r\n\r\nGET /admin HTTP/1.1",
        "a\nX-Evil: 1",
        "\u{0}\u{7f}",
        "http://169.254.169.254/latest",
        "\u{e9}\u{202e}",
    ];
    let schema = json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } });
    for (era, builder) in both_eras() {
        let upstream = builder
            .with(MockTool::new("where").with("inputSchema", schema.clone()))
            .tools(1)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for text in HOSTILE {
                let encoded = format!(
                    "=?base64?{}?=",
                    data_encoding::BASE64.encode(text.as_bytes())
                );
                let calling = client.clone().with_header("mcp-param-region", &encoded);
                let answer = calling.call("one__where", json!({ "region": text })).await;
                // The answer is without hidden characters.
                let shown = text.replace(['\0', '\u{7f}', '\u{202e}'], "");
                assert_eq!(
                    answer.result()["structuredContent"],
                    json!({ "region": shown }),
                    "{era:?} {revision:?}"
                );
                let seen = upstream.requests_of("tools/call").pop().unwrap();
                let mirrored = seen.header("mcp-param-region").map(str::to_owned);
                assert_eq!(mirrored.is_some(), era.is_modern(), "{mirrored:?}");
                let plain = |value: &str| value == text || value == encoded;
                assert!(
                    mirrored.as_deref().is_none_or(plain),
                    "{text:?} as {mirrored:?}"
                );
                // Names and URIs that lead elsewhere are unknown, or are in the body alone.
                let named = client.ask(
                    "tools/call",
                    json!({ "name": format!("one__{text}"), "arguments": {} }),
                );
                assert_eq!(named.await.code(), -32602, "{text:?}");
                client
                    .ask("resources/read", json!({ "uri": format!("one+x:{text}") }))
                    .await;
            }
        }
        for request in upstream.requests() {
            assert_eq!(
                (&*request.path, request.header("x-evil")),
                ("/mcp", None),
                "{era:?}"
            );
        }
    }
}

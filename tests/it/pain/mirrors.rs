//! Headers that repeat arguments must say what the arguments say.

use serde_json::json;
use weir_testkit::Answer;
use weir_testkit::mockup::Tool;
use weir_wire::Revision;

use super::{BOTH, both_eras, weir_over};
use crate::harness::Checked;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r021_r022_r023_r024_r025_b11_parameter_headers_are_checked_before_a_tool_hears_of_the_call() {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
        "count": { "type": "integer", "x-mcp-header": "Count" },
    }});
    for (_, builder) in both_eras() {
        let upstream = builder.with(Tool::new("where").with("inputSchema", schema.clone())).tools(1).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        let client = Checked::open(&weir.url("/mcp"), Revision::MODERN).await;
        let ask = async |headers: &[(&str, &str)], arguments: serde_json::Value| -> Answer {
            let client = headers.iter().fold(client.clone(), |client, (name, value)| client.with_header(name, value));
            client.call("one__where", arguments).await
        };
        let refused: [(&[(&str, &str)], _); 4] = [
            (&[], json!({ "region": "eu" })),
            (&[("mcp-param-region", "us")], json!({ "region": "eu" })),
            (&[("mcp-param-region", "=?base64?ZXU?=")], json!({ "region": "eu" })),
            (&[("mcp-param-region", "eu"), ("mcp-param-count", "41")], json!({ "region": "eu", "count": 42 })),
        ];
        for (headers, arguments) in refused {
            let answer = ask(headers, arguments).await;
            assert_eq!((answer.status.as_u16(), answer.code()), (400, -32020), "{headers:?}: {}", answer.last());
        }
        assert_eq!(upstream.executions("where"), 0);
        let taken: [(&[(&str, &str)], _); 4] = [
            (&[], json!({})),
            (&[("mcp-param-foo", "x")], json!({})),
            (&[("mcp-param-region", "=?base64?ZXU=?=")], json!({ "region": "eu" })),
            (&[("mcp-param-region", "eu"), ("mcp-param-count", "42.0")], json!({ "region": "eu", "count": 42 })),
        ];
        for (headers, arguments) in taken {
            let answer = ask(headers, arguments).await;
            assert_eq!(answer.status, 200, "{headers:?}: {}", answer.last());
        }
        assert_eq!(upstream.executions("where"), 4);
        // A session's clients know no such headers.
        let old = Checked::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
        assert!(old.call("one__where", json!({ "region": "eu" })).await.result().is_object());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r116_b11_a_tool_with_bad_annotations_is_left_out_or_shown_without_them_as_its_server_needs() {
    let bad = [json!(""), json!("a b"), json!("a:b"), json!("é"), json!(5)];
    let tools = bad.into_iter().enumerate().map(|(nth, name)| {
        let schema =
            json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": name } } });
        Tool::new(&format!("bad-{nth}")).with("inputSchema", schema)
    });
    let tools: Vec<Tool> = tools.collect();
    for (revision, builder) in both_eras() {
        let upstream = tools.iter().cloned().fold(builder, |builder, tool| builder.with(tool)).tools(1).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        for client in BOTH {
            let client = Checked::open(&weir.url("/mcp/one"), client).await;
            let (shown, _) = client.pages().await;
            if revision.is_modern() {
                assert_eq!(shown.len(), 1, "{shown:?}");
                continue;
            }
            assert_eq!(shown.len(), 6, "{shown:?}");
            assert!(!json!(shown).to_string().contains("x-mcp-header"), "{shown:?}");
            // No header is asked for then.
            assert!(client.call("bad-1", json!({ "region": "eu" })).await.text().contains("eu"));
        }
    }
}

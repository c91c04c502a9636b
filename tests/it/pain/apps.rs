//! MCP Apps: a user interface behind a `ui://` resource. weir relays no resources yet, so it must not say that it does.

use serde_json::{Value, json};
use weir_testkit::{Behaviour, Mockup};
use weir_wire::{Revision, meta};

use super::{BOTH, weir_over};
use crate::harness::Checked;

const UI: &str = "io.modelcontextprotocol/ui";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r144_the_apps_extension_is_advertised_to_nobody_while_weir_negotiates_none() {
    let mime_types = json!({ "mimeTypes": ["text/html;profile=mcp-app"] });
    let shows = json!({ "ui": { "resourceUri": "ui://shop/card", "visibility": ["model", "app"] } });
    let tool = json!({ "name": "card", "inputSchema": { "type": "object" }, "_meta": shows });
    let describes_itself = json!({
        "resultType": "complete",
        "supportedVersions": [Revision::MODERN.as_str()],
        "capabilities": {
            "tools": { "listChanged": true },
            "resources": {},
            "extensions": { UI: mime_types },
        },
        "ttlMs": 0,
        "cacheScope": "private",
    });
    let upstream = Mockup::modern()
        .on("server/discover", Behaviour::result(describes_itself))
        .tool_json(&tool.to_string())
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in BOTH {
        let declares = json!({ "extensions": { UI: mime_types } });
        let client = Checked::with_capabilities(&weir.url("/mcp/one"), revision, declares).await;
        let offers = if revision.is_modern() {
            client.ask("server/discover", json!({})).await.result()["capabilities"].clone()
        } else {
            let params = json!({
                "protocolVersion": revision.as_str(),
                "capabilities": { "extensions": { UI: mime_types } },
                "clientInfo": { "name": "c", "version": "1" },
            });
            client.ask("initialize", params).await.result()["capabilities"].clone()
        };
        assert_eq!(offers["tools"], json!({ "listChanged": true }), "{offers}");
        assert!(offers.get("extensions").is_none(), "{revision:?}: {offers}");
        // The server says that it has resources, and has none: its own word is passed on.
        let read = client.ask("resources/read", json!({ "uri": "ui://shop/card" })).await;
        let status = if revision.is_modern() { 404 } else { 200 };
        assert_eq!((read.status.as_u16(), read.code()), (status, -32601), "{revision:?}: {}", read.last());
        // What a tool says of its interface is its own: it passes.
        let (tools, _) = client.pages().await;
        assert_eq!(tools[0]["_meta"], shows, "{revision:?}");
        assert_eq!(client.call("card", json!({ "n": 1 })).await.text(), r#"{"n":1}"#);
    }
    let told: Vec<Value> =
        upstream.requests().iter().map(|sent| sent.meta()[meta::CLIENT_CAPABILITIES].clone()).collect();
    assert!(told.iter().any(Value::is_object), "{told:?}");
    assert!(told.iter().all(|told| told.get("extensions").is_none()), "the server hears of no extension: {told:?}");
}

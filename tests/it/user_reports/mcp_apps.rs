//! MCP Apps: tools that link to a user interface behind a `ui://` resource.

use serde_json::{Value, json};
use weir_testkit::mock_server::MockTool;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::{Revision, meta};

use super::BOTH;
use crate::harness::{CheckedClient, Weir};

const UI: &str = "io.modelcontextprotocol/ui";
const CARD: &str = "ui://shop/card";
const KIND: &str = "text/html;profile=mcp-app";

/// Starts a server of one era with a tool that has an interface.
async fn server(revision: Revision) -> MockServer {
    let shows = json!({ "ui": { "resourceUri": CARD, "visibility": ["model", "app"] } });
    let capabilities = json!({ "tools": {}, "resources": {}, "extensions": { UI: {} } });
    let about = json!({ "name": "shop", "version": "1" });
    let card = json!({ "uri": CARD, "name": "card", "mimeType": KIND });
    let page = json!({ "uri": CARD, "mimeType": KIND, "text": "<p>hello</p>" });
    let (builder, opening, described) = if revision.is_modern() {
        let described = json!({
            "supportedVersions": [revision.as_str()], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private",
        });
        (MockServer::modern(), "server/discover", described)
    } else {
        let described = json!({ "protocolVersion": revision.as_str(), "capabilities": capabilities, "serverInfo": about });
        (
            MockServer::legacy(revision).without_sessions(),
            "initialize",
            described,
        )
    };
    let cached = |mut result: Value| {
        if revision.is_modern() {
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
        }
        MockBehaviour::result(result)
    };
    builder
        .with_rule(opening, MockBehaviour::result(described))
        .with_rule("resources/list", cached(json!({ "resources": [card] })))
        .with_rule(
            "resources/templates/list",
            cached(json!({ "resourceTemplates": [] })),
        )
        .with_rule("resources/read", cached(json!({ "contents": [page] })))
        .with(MockTool::new("card").with("_meta", shows))
        .start()
        .await
}

// Proves R144.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_is_linked_read_and_called_under_the_names_of_each_endpoint() {
    for upstream in BOTH {
        let server = server(upstream).await;
        let weir = Weir::with_config(json!({
            "upstreams": { "one": { "url": server.url() } },
            "endpoints": {
                "/one": { "upstream": "one" },
                "/bare": { "upstreams": ["one"], "naming": { "prefix": "none" } },
                "/mcp": { "upstreams": ["one"] },
            },
        }));
        for (endpoint, tool, card) in [
            ("/one", "card", CARD),
            ("/bare", "card", CARD),
            ("/mcp", "one__card", "ui://one/shop/card"),
        ] {
            for revision in BOTH {
                let declares = json!({ "extensions": { UI: { "mimeTypes": [KIND] } } });
                let client =
                    CheckedClient::with_capabilities(&weir.url(endpoint), revision, declares).await;
                let (tools, _) = client.list_tool_pages().await;
                let link = json!({ "resourceUri": card, "visibility": ["model", "app"] });
                assert_eq!(
                    (&tools[0]["name"], &tools[0]["_meta"]["ui"]),
                    (&json!(tool), &link),
                    "{endpoint} {revision:?}"
                );
                let read = client.ask("resources/read", json!({ "uri": card })).await;
                let page = &read.result()["contents"][0];
                assert_eq!(page["uri"], card, "{endpoint} {revision:?}: {page}");
                assert_eq!(
                    (&page["mimeType"], &page["text"]),
                    (&json!(KIND), &json!("<p>hello</p>"))
                );
                assert_eq!(
                    client.call(tool, json!({ "n": 1 })).await.text(),
                    r#"{"n":1}"#
                );
                if revision.is_modern() {
                    let offers =
                        client.ask("server/discover", json!({})).await.result()["capabilities"]
                            .clone();
                    assert_eq!(
                        offers["extensions"],
                        json!({ UI: {} }),
                        "{endpoint}: {offers}"
                    );
                }
            }
        }
        let told: Vec<Value> = if upstream.is_modern() {
            server
                .requests_of("tools/call")
                .iter()
                .map(|sent| sent.meta()[meta::CLIENT_CAPABILITIES].clone())
                .collect()
        } else {
            let opened = server.requests_of("initialize");
            opened
                .iter()
                .map(|sent| sent.message["params"]["capabilities"].clone())
                .collect()
        };
        let shows = json!({ UI: { "mimeTypes": [KIND] } });
        assert!(
            told.iter().any(|told| told["extensions"] == shows),
            "the server hears what is shown: {told:?}"
        );
    }
}

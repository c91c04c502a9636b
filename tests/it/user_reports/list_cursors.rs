//! Cursors of lists: changed ones, and ones of another client's list, must be refused.

use serde_json::{Value, json};
use weir_testkit::mock_server::MockTool;
use weir_testkit::{ClientAnswer, MockServer};
use weir_wire::Revision;

use super::BOTH;
use crate::harness::{CheckedClient, Weir, wait_until_async};

async fn page(client: &CheckedClient, cursor: &str) -> ClientAnswer {
    client.ask("tools/list", json!({ "cursor": cursor })).await
}

async fn first_cursor(client: &CheckedClient) -> String {
    let list = client.ask("tools/list", json!({})).await;
    list.result()["nextCursor"]
        .as_str()
        .unwrap_or_else(|| panic!("{}", list.last()))
        .to_owned()
}

fn refused(answer: &ClientAnswer, why: &str) {
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (200, -32602),
        "{why}: {}",
        answer.last()
    );
}

/// Starts two endpoints with small pages over a server with a list that depends on the capabilities
/// of a client.
async fn two_endpoints() -> (MockServer, Weir) {
    let tools = MockTool::numbered(9)
        .into_iter()
        .chain([MockTool::new("for_asking").needing("elicitation")]);
    let upstream = MockServer::modern().start().await;
    upstream.set_tools(tools);
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "endpoints": {
            "/a": { "upstreams": ["one"], "page": { "items": 3 } },
            "/b": { "upstreams": ["one"], "page": { "items": 3 } },
        },
    }));
    (upstream, weir)
}

// Proves R147, B16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_with_any_byte_changed_is_refused() {
    let (upstream, weir) = two_endpoints().await;
    for revision in BOTH {
        let client = CheckedClient::open(&weir.url("/a"), revision).await;
        let cursor = first_cursor(&client).await;
        let walks = upstream.requests_of("tools/list").len();
        for at in 0..cursor.len() {
            let mut bytes = cursor.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            refused(
                &page(&client, std::str::from_utf8(&bytes).unwrap()).await,
                &format!("byte {at}"),
            );
        }
        let long = "A".repeat(10_000);
        for bad in [
            "",
            "x",
            &cursor[..cursor.len() - 1],
            &format!("{cursor}A"),
            " ",
            "\u{1F980}",
            "null",
            &long,
        ] {
            refused(&page(&client, bad).await, bad);
        }
        assert!(
            page(&client, &cursor).await.result()["tools"].is_array(),
            "and the right one still opens"
        );
        assert!(
            page(&client, &cursor).await.result()["tools"].is_array(),
            "as often as one likes"
        );
        assert_eq!(
            upstream.requests_of("tools/list").len(),
            walks,
            "bad input touches no upstream"
        );
    }
}

// Proves R147, B16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_of_another_endpoint_or_another_kind_of_client_is_refused() {
    let (_upstream, weir) = two_endpoints().await;
    let here = CheckedClient::open(&weir.url("/a"), Revision::MODERN).await;
    let there = CheckedClient::open(&weir.url("/b"), Revision::MODERN).await;
    let cursor = first_cursor(&here).await;
    refused(&page(&there, &cursor).await, "another endpoint");
    let able = json!({ "elicitation": { "form": {} } });
    let asking = CheckedClient::with_capabilities(&weir.url("/a"), Revision::MODERN, able).await;
    wait_until_async("its own list", async || {
        asking
            .list_tool_names()
            .await
            .contains(&"one__for_asking".to_owned())
            .then_some(())
    })
    .await;
    assert!(
        !here
            .list_tool_names()
            .await
            .contains(&"one__for_asking".to_owned()),
        "R057: each request its own capabilities"
    );
    refused(&page(&asking, &cursor).await, "another capability class");
    refused(
        &page(&here, &first_cursor(&asking).await).await,
        "another capability class",
    );
    let legacy = CheckedClient::open(&weir.url("/a"), Revision::NEWEST_LEGACY).await;
    assert!(
        page(&legacy, &cursor).await.result()["tools"].is_array(),
        "the same list, whatever the revision"
    );
}

// Proves B17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_changes_between_two_pages_stays_whole() {
    let (upstream, weir) = two_endpoints().await;
    for revision in BOTH {
        upstream.set_tools(MockTool::numbered(9));
        upstream.notify_list_changed();
        let client = CheckedClient::open(&weir.url("/a"), revision).await;
        wait_until_async("nine tools", async || {
            (client.list_tool_names().await.len() == 9).then_some(())
        })
        .await;
        let first = client.ask("tools/list", json!({})).await;
        let cursor = first.result()["nextCursor"].as_str().unwrap().to_owned();
        let mut stream = client.open_change_stream().await;
        upstream.set_tools(MockTool::numbered(30).split_off(20));
        upstream.notify_list_changed();
        stream.expect_list_changed().await;
        // The old list, to its end: no duplicates, no gaps, no items of the new one.
        let mut names = tool_names(first.result());
        let mut next = Some(cursor);
        while let Some(cursor) = next {
            let answer = page(&client, &cursor).await;
            names.extend(tool_names(answer.result()));
            next = answer.result()["nextCursor"].as_str().map(str::to_owned);
        }
        assert_eq!(
            names,
            (0..9)
                .map(|n| format!("one__tool_{n:04}"))
                .collect::<Vec<_>>()
        );
        assert_eq!(
            client.list_tool_names().await,
            (20..30)
                .map(|n| format!("one__tool_{n:04}"))
                .collect::<Vec<_>>()
        );
    }
}

fn tool_names(result: &Value) -> Vec<String> {
    result["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

//! Lists that a server changed in one session alone, over graceful restarts: their client keeps
//! them.

use serde_json::{Value, json};
use weir_wire::Revision;

use super::{is_gone, successors};
use crate::auth::api_key;
use crate::harness::{
    CheckedClient, ForeignServer, Weir, peers_are_enabled, signal, wait_until, wait_until_async,
};

/// Replaces the process that serves.
fn hand_over(weir: &Weir, processes: &mut Vec<u32>) {
    let before = processes.len() - 1;
    signal(processes[before], "USR2");
    processes.push(wait_until("the next process", || {
        successors(weir).get(before).copied()
    }));
    wait_until("the process before to end", || {
        is_gone(processes[before]).then_some(())
    });
}

async fn lists_tool(client: &CheckedClient, tool: &str) -> bool {
    let names = client.list_tool_names().await;
    names.iter().any(|name| name == tool)
}

/// A client whose call changes the lists of its session or child process keeps them over two
/// restarts; another one never sees them.
async fn expect_kept_lists(upstream: Value) {
    let [(ada, of_ada), (eve, of_eve)] = ["ada", "eve"].map(api_key);
    let weir = Weir::with_config(json!({
        "upstreams": { "peer": upstream },
        "endpoints": { "/mcp": { "upstream": "peer" } },
        "auth": { "mode": "required", "api_keys": [of_ada, of_eve] },
    }));
    let open = async |key: &str| {
        let url = weir.url("/mcp");
        let credentials = ("authorization", &*format!("Bearer {key}"));
        let client =
            CheckedClient::open_with_header(&url, Revision::NEWEST_LEGACY, credentials).await;
        wait_until_async("the list", async || {
            lists_tool(&client, "basic").await.then_some(())
        })
        .await;
        client
    };
    let (one, other) = (open(&ada).await, open(&eve).await);
    other.call("basic", json!({})).await;
    // The server's notification may arrive after its answer.
    one.call("enable", json!({ "name": "alpha" })).await;
    wait_until_async("the new tool", async || {
        lists_tool(&one, "alpha").await.then_some(())
    })
    .await;
    one.call("disable", json!({})).await;
    wait_until_async("the end of the old tool", async || {
        (!lists_tool(&one, "basic").await).then_some(())
    })
    .await;
    let mut processes = vec![weir.process.id()];
    for round in 1..3 {
        hand_over(&weir, &mut processes);
        if round == 1 {
            assert!(lists_tool(&one, "alpha").await && !lists_tool(&one, "basic").await);
        }
        // Without a list before it in the second round.
        let called = one.call("alpha", json!({})).await;
        let text = &called.result()["content"][0]["text"];
        assert_eq!(text, "alpha 1");
        let uri = json!({ "uri": "note://alpha" });
        let read = one.ask("resources/read", uri.clone()).await;
        assert_eq!(read.result()["contents"][0]["text"], "of alpha");
        let subscribed = one.ask("resources/subscribe", uri).await;
        assert_eq!(subscribed.result(), &json!({}));
        assert!(lists_tool(&other, "basic").await && !lists_tool(&other, "alpha").await);
        assert_eq!(other.call("alpha", json!({})).await.code(), -32602);
    }
    let last = processes[2];
    signal(last, "TERM");
    wait_until("the last process to end", || is_gone(last).then_some(()));
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_a_session_are_kept_over_http() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, url) = ForeignServer::Toolsets.over_http();
    expect_kept_lists(json!({ "url": url })).await;
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_a_child_process_of_one_principal_are_kept() {
    if !peers_are_enabled() {
        return;
    }
    expect_kept_lists(ForeignServer::Toolsets.as_child()).await;
}

/// The client's stream in the next process renews the subscription.
// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_to_a_resource_of_one_session_is_renewed() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, url) = ForeignServer::Toolsets.over_http();
    let weir = Weir::with_config(json!({
        "upstreams": { "peer": { "url": url } },
        "endpoints": { "/mcp": { "upstream": "peer" } },
    }));
    weir.wait_until_listed("/mcp", &["basic"]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
    client.call("enable", json!({ "name": "alpha" })).await;
    wait_until_async("the new tool", async || {
        lists_tool(&client, "alpha").await.then_some(())
    })
    .await;
    let uri = json!({ "uri": "note://alpha" });
    let subscribed = client.ask("resources/subscribe", uri.clone()).await;
    assert_eq!(subscribed.result(), &json!({}));
    let mut processes = vec![weir.process.id()];
    hand_over(&weir, &mut processes);
    let mut stream = client.open_change_stream().await;
    // One update for changes in between, and one for the call.
    let mut updates = 0;
    while updates < 2 {
        let message = stream.next().await.unwrap();
        if message["method"] == "notifications/resources/updated" {
            assert_eq!(message["params"], uri, "{message}");
            updates += 1;
            if updates == 1 {
                client.call("alpha", json!({})).await;
            }
        }
    }
    drop(stream);
    signal(processes[1], "TERM");
    wait_until("the last process to end", || {
        is_gone(processes[1]).then_some(())
    });
}

//! A server of the TypeScript SDK whose tools add tools and resources to the lists of their own
//! session: the sessions that see and call these, and the ones that do not.

use serde_json::{Value, json};
use weir_wire::Revision;

use crate::auth::api_key;
use crate::harness::{
    CheckedClient, CheckedStream, ForeignClient, ForeignServer, TestProcess, Weir,
    peers_are_enabled, wait_until_async,
};

const LEGACY: [Revision; 2] = [Revision::V2025_06_18, Revision::NEWEST_LEGACY];

/// Starts the server over HTTP behind weir: transparent on `/mcp/peer`, under prefixed names on
/// `/mcp`.
fn over_http(server: ForeignServer, more: &Value) -> (TestProcess, Weir) {
    let (running, url) = server.over_http();
    let mut upstream = json!({ "url": url });
    upstream
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let weir = Weir::with_upstreams(json!({ "peer": upstream }));
    weir.wait_until_listed("/mcp/peer", &["basic", "enable", "disable"]);
    (running, weir)
}

async fn uris(client: &CheckedClient) -> Vec<String> {
    let listed = client.ask("resources/list", json!({})).await;
    let items = listed.result()["resources"].as_array().unwrap().clone();
    items
        .iter()
        .map(|item| item["uri"].as_str().unwrap().to_owned())
        .collect()
}

async fn text(client: &CheckedClient, tool: &str) -> String {
    client.call(tool, json!({})).await.result()["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Asserts that the next messages of a client's stream are these notifications, in any order and
/// each once.
async fn hears(stream: &mut CheckedStream, mut wanted: Vec<&str>) {
    while !wanted.is_empty() {
        let message = stream.next().await.unwrap();
        let method = message["method"].as_str().unwrap();
        let at = wanted.iter().position(|wanted| *wanted == method);
        wanted.remove(at.unwrap_or_else(|| panic!("{message} beside {wanted:?}")));
    }
}

const BOTH_LISTS: [&str; 2] = [
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
];

// Proves R202.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_added_by_a_call_are_announced_listed_and_callable_only_in_its_session() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, weir) = over_http(ForeignServer::Toolsets, &json!({}));
    for (path, prefix, scheme) in [("/mcp/peer", "", ""), ("/mcp", "peer__", "peer+")] {
        for revision in LEGACY {
            let tool = |name: &str| format!("{prefix}{name}");
            let uri = |name: &str| format!("{scheme}note://{name}");
            let (one, other) = (
                CheckedClient::open(&weir.url(path), revision).await,
                CheckedClient::open(&weir.url(path), revision).await,
            );
            let modern = CheckedClient::open(&weir.url(path), Revision::MODERN).await;
            let mut stream = one.open_change_stream().await;
            let shared = one.list_tool_names().await;
            let added = one.call(&tool("enable"), json!({ "name": "alpha" })).await;
            assert_eq!(added.result()["content"][0]["text"], "alpha is there");
            hears(&mut stream, BOTH_LISTS.to_vec()).await;
            let mut own = shared.clone();
            own.push(tool("alpha"));
            assert_eq!(one.list_tool_names().await, own, "{path}");
            assert_eq!(text(&one, &tool("alpha")).await, "alpha 1");
            let bad = one.call(&tool("alpha"), json!({ "count": "many" })).await;
            assert!(
                bad.last().to_string().contains("bad_arguments"),
                "its own schema holds: {}",
                bad.last()
            );
            assert_eq!(uris(&one).await, [uri("readme"), uri("alpha")]);
            let read = one
                .ask("resources/read", json!({ "uri": uri("alpha") }))
                .await;
            assert_eq!(read.result()["contents"][0]["text"], "of alpha");
            let subscribed = one
                .ask("resources/subscribe", json!({ "uri": uri("alpha") }))
                .await;
            assert_eq!(subscribed.result(), &json!({}));
            text(&one, &tool("alpha")).await;
            let updated = stream.next().await.unwrap();
            assert_eq!(
                (&updated["method"], &updated["params"]["uri"]),
                (
                    &json!("notifications/resources/updated"),
                    &json!(uri("alpha"))
                )
            );
            for stranger in [&other, &modern] {
                assert_eq!(stranger.list_tool_names().await, shared);
                assert_eq!(uris(stranger).await, [uri("readme")]);
                assert_eq!(
                    stranger.call(&tool("alpha"), json!({})).await.code(),
                    -32602
                );
            }
            let path = format!("/admin/catalog?endpoint={path}");
            let answer = weir.get_admin_page(&path);
            let catalog: Value =
                serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            assert!(
                catalog["sessions"][0]["differing"].as_u64() >= Some(1),
                "{}",
                catalog["sessions"]
            );
            one.call(&tool("disable"), json!({})).await;
            hears(&mut stream, BOTH_LISTS[..1].to_vec()).await;
            assert!(!one.list_tool_names().await.contains(&tool("basic")));
            assert_eq!(one.call(&tool("basic"), json!({})).await.code(), -32602);
            assert_eq!(text(&other, &tool("basic")).await, "basic");
        }
    }
    assert!(weir.metric("weir_catalog_session_walks_total", &["outcome=\"differs\""]) >= 4.0);
}

/// A server that asks a client for its roots when the client listens, and then changes the list of
/// that session before any call.
// Proves R202.
#[test]
fn a_list_that_depends_on_the_clients_roots_is_heard_and_seen_before_the_first_call() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, weir) = over_http(ForeignServer::Toolsets, &json!({}));
    for client in [ForeignClient::TypeScript1, ForeignClient::Python1] {
        let watched = client.run(&weir.url("/mcp/peer"), &["watch", "--asks"]);
        assert_eq!(
            watched.only_line("asked")["method"],
            "roots/list",
            "{client:?}"
        );
        assert!(
            watched.names().contains(&"in_driver"),
            "{client:?}: {watched:?}"
        );
        let stranger = client.run(&weir.url("/mcp/peer"), &["list"]);
        assert!(
            !stranger.names().contains(&"in_driver"),
            "{client:?}: {stranger:?}"
        );
    }
}

/// Without a stream on which the server could announce it, a change is seen when the client lists,
/// or calls the added tool.
// Proves R202.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_cannot_be_heard_is_seen_at_the_next_list_and_call() {
    if !peers_are_enabled() {
        return;
    }
    for (server, more) in [
        (ForeignServer::SilentToolsets, json!({})),
        (
            ForeignServer::Toolsets,
            json!({ "limits": { "standing": 0 } }),
        ),
    ] {
        let (_running, weir) = over_http(server, &more);
        let (one, other) = (
            CheckedClient::open(&weir.url("/mcp"), LEGACY[1]).await,
            CheckedClient::open(&weir.url("/mcp"), LEGACY[1]).await,
        );
        let shared = one.list_tool_names().await;
        one.call("peer__enable", json!({ "name": "alpha" })).await;
        assert_eq!(
            text(&one, "peer__alpha").await,
            "alpha 1",
            "called before it is listed"
        );
        one.call("peer__enable", json!({ "name": "beta" })).await;
        assert_eq!(one.list_tool_names().await.len(), shared.len() + 2);
        assert_eq!(other.list_tool_names().await, shared);
    }
}

/// A cursor into a session's own list is valid in that session, and the rest of the list is its own
/// too.
// Proves R115.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_into_the_list_of_a_session_opens_there_alone() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, url) = ForeignServer::Toolsets.over_http();
    let weir = Weir::with_config(json!({
        "upstreams": { "peer": { "url": url } },
        "endpoints": { "/mcp": { "upstream": "peer", "page": { "items": 2 } } },
    }));
    weir.wait_until_listed("/mcp", &["basic", "enable", "disable"]);
    let (one, other) = (
        CheckedClient::open(&weir.url("/mcp"), LEGACY[1]).await,
        CheckedClient::open(&weir.url("/mcp"), LEGACY[1]).await,
    );
    // A change comes on another connection than the answer of the call that made it.
    let enabled = async |client: &CheckedClient, name: &str| {
        client.call("enable", json!({ "name": name })).await;
        wait_until_async(name, async || {
            client
                .list_tool_names()
                .await
                .contains(&name.to_owned())
                .then_some(())
        })
        .await;
    };
    enabled(&one, "alpha").await;
    enabled(&other, "alpha").await;
    let first = one.ask("tools/list", json!({})).await;
    let cursor = first.result()["nextCursor"].clone();
    assert_eq!(
        other
            .ask("tools/list", json!({ "cursor": cursor }))
            .await
            .code(),
        -32602
    );
    let rest = one.ask("tools/list", json!({ "cursor": cursor })).await;
    assert_eq!(rest.result()["tools"][1]["name"], "alpha");
    enabled(&one, "beta").await;
    let rest = one.ask("tools/list", json!({ "cursor": cursor })).await;
    assert_eq!(
        rest.result()["tools"].as_array().unwrap().len(),
        2,
        "the rest of the list that it began"
    );
    assert_eq!(one.list_tool_names().await.len(), 5);
}

/// Items that an endpoint does not select, or that a rule hides, stay hidden in a session's own
/// list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_hidden_by_endpoint_or_rule_stay_hidden_in_session_lists() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, url) = ForeignServer::Toolsets.over_http();
    let rules = r#"permit(principal, action, resource); forbid(principal, action, resource == Tool::"peer/secret");"#;
    let weir = Weir::with_config(json!({
        "upstreams": { "peer": { "url": url } },
        "policy": { "inline": rules },
        "endpoints": {
            "/selected": { "upstream": "peer", "tools": { "exclude": ["hidden*"] } },
            "/ruled": { "upstream": "peer" },
        },
    }));
    for (path, hidden) in [("/selected", "hidden_tool"), ("/ruled", "secret")] {
        weir.wait_until_listed(path, &["basic", "enable", "disable"]);
        let client = CheckedClient::open(&weir.url(path), LEGACY[1]).await;
        for name in [hidden, "shown"] {
            client.call("enable", json!({ "name": name })).await;
        }
        let is_there = |names: &Vec<String>| names.contains(&"shown".to_owned());
        let names = wait_until_async("its own list", async || {
            Some(client.list_tool_names().await).filter(is_there)
        })
        .await;
        assert!(!names.contains(&hidden.to_owned()), "{path}: {names:?}");
        assert_eq!(
            client.call(hidden, json!({})).await.code(),
            -32602,
            "{path}"
        );
        assert_eq!(text(&client, "shown").await, "shown 1");
    }
}

/// A child has one list, and belongs to one principal: all sessions of that principal see it, and
/// no others.
// Proves R202.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_added_in_a_stdio_child_are_visible_to_its_principal_only() {
    if !peers_are_enabled() {
        return;
    }
    let [(ada, of_ada), (eve, of_eve)] = ["ada", "eve"].map(api_key);
    let weir = Weir::with_config(json!({
        "upstreams": { "peer": ForeignServer::Toolsets.as_child() },
        "auth": { "mode": "required", "api_keys": [of_ada, of_eve] },
    }));
    let open = async |key: &str| {
        let credentials = format!("Bearer {key}");
        CheckedClient::open_with_header(
            &weir.url("/mcp/peer"),
            LEGACY[1],
            ("authorization", &credentials),
        )
        .await
    };
    let (one, two, foreign) = (open(&ada).await, open(&ada).await, open(&eve).await);
    for client in [&one, &two, &foreign] {
        wait_until_async("the list", async || {
            (client.list_tool_names().await.len() == 3).then_some(())
        })
        .await;
        assert_eq!(text(client, "basic").await, "basic");
    }
    let (mut first, mut second) = (
        one.open_change_stream().await,
        two.open_change_stream().await,
    );
    one.call("enable", json!({ "name": "alpha" })).await;
    for stream in [&mut first, &mut second] {
        hears(stream, BOTH_LISTS.to_vec()).await;
    }
    for own in [&one, &two] {
        assert!(own.list_tool_names().await.contains(&"alpha".to_owned()));
        assert_eq!(text(own, "alpha").await, "alpha 1");
    }
    assert!(
        !foreign
            .list_tool_names()
            .await
            .contains(&"alpha".to_owned())
    );
    assert_eq!(foreign.call("alpha", json!({})).await.code(), -32602);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_announced_in_a_session_without_a_client_is_listed_for_all() {
    if !peers_are_enabled() {
        return;
    }
    for sharing in ["principal", "shared"] {
        let (_running, url) = ForeignServer::Growing.over_http();
        let upstream = json!({ "url": url, "session": sharing });
        let weir = Weir::with_upstreams(json!({ "peer": upstream }));
        weir.wait_until_listed("/mcp/peer", &["grow"]);
        for (revision, name) in [
            (Revision::MODERN, "alpha"),
            (Revision::NEWEST_LEGACY, "beta"),
        ] {
            let client = CheckedClient::open(&weir.url("/mcp/peer"), revision).await;
            let added = client.call("grow", json!({ "name": name })).await;
            let text = &added.result()["content"][0]["text"];
            assert_eq!(text, &json!(format!("{name} is there")));
            weir.wait_until_listed("/mcp/peer", &[name]);
        }
    }
}

//! Handshakes on both sides: weir's own answers to clients and its requests to servers. Neither is
//! passed on unchanged.

use serde_json::{Value, json};
use weir_wire::{Revision, meta};

use super::pairing::{PairingTransport, ScenarioPairing};
use super::support_report::FeatureSupport;
use crate::harness::CheckedClient;

// Proves R051, R053, R059.
pub async fn handshake_names_weir_and_offers_the_capabilities_of_its_servers(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let (client, about) = greeted(world).await;
    let own = if world.client.is_modern() {
        &about["_meta"][meta::SERVER_INFO]
    } else {
        &about["serverInfo"]
    };
    assert_eq!(own["name"], "weir", "R053: {about}");
    let capabilities = &about["capabilities"];
    for list in ["tools", "prompts", "resources"] {
        // The modern server announces changes of its tools alone, and weir offers a modern client
        // just that.
        let is_told = !(world.client.is_modern() && world.upstream.is_modern()) || list == "tools";
        assert_eq!(
            capabilities[list]["listChanged"], is_told,
            "{list}: {about}"
        );
    }
    assert_eq!(capabilities["resources"]["subscribe"], true, "{about}");
    // 2024-11-05 has completion, but no capability for it.
    let completes = world.client > Revision::V2024_11_05;
    assert_eq!(
        capabilities.get("completions"),
        completes.then_some(&json!({})),
        "{about}"
    );
    // Clients are not offered capabilities that the server never declared.
    assert!(
        capabilities.get("tasks").is_none() && capabilities.get("extensions").is_none(),
        "{about}"
    );
    assert!(
        client
            .call("tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    FeatureSupport::Carried
}

/// Returns a client of the transparent endpoint, and weir's handshake answer to it.
async fn greeted(world: &ScenarioPairing) -> (CheckedClient, Value) {
    let client = world.direct().await;
    if world.client.is_modern() {
        let found = client.ask("server/discover", json!({})).await;
        let versions = found.result()["supportedVersions"].as_array().unwrap();
        assert!(
            versions.contains(&json!(world.client.as_str())),
            "{versions:?}"
        );
        return (client, found.result().clone());
    }
    let hello = json!({
        "protocolVersion": world.client.as_str(),
        "capabilities": { "experimental": { "com.example/odd": {} } },
        "clientInfo": { "name": "nobody-else-hears-of-this", "version": "1" },
    });
    let opened = client.raw().ask("initialize", hello).await.unwrap();
    assert_eq!(
        opened.result()["protocolVersion"],
        world.client.as_str(),
        "R059"
    );
    (client, opened.result().clone())
}

// Proves R075, R079.
pub async fn servers_are_greeted_once_for_all_in_their_own_words(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let clients = [world.direct().await, world.direct().await];
    for client in &clients {
        assert!(
            client
                .call("tool_0000", json!({}))
                .await
                .result()
                .is_object()
        );
    }
    let mock_server = &world.mock_server;
    if world.upstream.is_modern() {
        // Each process of weir probes once for a session, or a process of the legacy era, and only
        // for clients that have sessions.
        let looks = world.weir.processes() * usize::from(!world.client.is_modern());
        assert!(
            mock_server.requests_of("initialize").len() <= looks,
            "its probe was answered"
        );
        // Every request is independent; the client's capabilities are the call's.
        for request in mock_server.requests_of("tools/call") {
            assert_eq!(
                request.meta()[meta::PROTOCOL_VERSION],
                world.upstream.as_str()
            );
            assert_eq!(
                request.meta()[meta::CLIENT_CAPABILITIES],
                json!({}),
                "{request:?}"
            );
            assert_eq!(request.meta()[meta::CLIENT_INFO]["name"], "weir");
        }
    } else {
        let opened = mock_server.requests_of("initialize");
        for hello in &opened {
            assert_eq!(hello.message["params"]["clientInfo"]["name"], "weir");
            assert_eq!(
                hello.message["params"]["capabilities"],
                json!({}),
                "R079: those who can be asked nothing share"
            );
        }
        // R075. A further session may be on its way.
        mock_server
            .wait_until("each session is initialized", |mock_server| {
                let opened = mock_server.requests_of("initialize").len();
                mock_server.requests_of("notifications/initialized").len() == opened
            })
            .await;
        let sessions: std::collections::HashSet<_> = mock_server
            .requests_of("tools/call")
            .iter()
            .map(|call| call.session().map(str::to_owned))
            .collect();
        // A client's session is one of its own at a server that has sessions; a child has one for
        // all clients.
        let own = !world.client.is_modern() && world.transport == PairingTransport::Http;
        if own {
            assert_eq!(sessions.len(), 1 + clients.len());
        } else {
            assert!((1..=world.weir.processes()).contains(&sessions.len()));
        }
    }
    assert!(
        mock_server
            .requests()
            .iter()
            .all(|request| !request.contains_text("nobody-else-hears-of-this"))
    );
    FeatureSupport::Carried
}

// Proves R104, R105.
pub async fn pings_are_answered_where_they_arrive(world: &ScenarioPairing) -> FeatureSupport {
    let client = world.direct().await;
    let pinged = client.ask("ping", Value::Null).await;
    let found = if world.client.is_modern() {
        assert_eq!(
            (pinged.status.as_u16(), pinged.code()),
            (404, -32601),
            "{}",
            pinged.last()
        );
        FeatureSupport::Refused
    } else {
        assert_eq!(pinged.result(), &json!({}), "R104");
        FeatureSupport::Carried
    };
    assert!(
        world.mock_server.requests_of("ping").is_empty(),
        "no ping goes through"
    );
    if world.upstream.is_modern() || world.transport.is_single_stream() {
        // A modern server sends no requests of its own; for one stream the tests of questions cover
        // it.
        return found;
    }
    let answered = client.call("pings", json!({})).await;
    assert_eq!(answered.text(), "{}", "R105: {}", answered.last());
    found
}

/// Each client of a server of both eras speaks to the server in its own era, in any order of
/// clients.
// Proves R075.
pub async fn a_server_of_both_eras_is_spoken_to_in_each_clients_own(
    world: &ScenarioPairing,
) -> FeatureSupport {
    if !world.has_both_eras {
        return FeatureSupport::NotInRevision;
    }
    let other = if world.client.is_modern() {
        Revision::NEWEST_LEGACY
    } else {
        Revision::MODERN
    };
    for revision in [world.client, other, world.client] {
        let client = CheckedClient::open(&world.weir.url("/shop"), revision).await;
        assert!(
            client
                .call("tool_0000", json!({ "in": revision.as_str() }))
                .await
                .result()
                .is_object()
        );
        let call = world.mock_server.requests_of("tools/call").pop().unwrap();
        assert_eq!(call.message["params"]["arguments"]["in"], revision.as_str());
        assert_eq!(call.session().is_some(), !revision.is_modern(), "{call:?}");
        assert_eq!(
            call.meta().get(meta::PROTOCOL_VERSION).is_some(),
            revision.is_modern(),
            "{call:?}"
        );
    }
    FeatureSupport::Carried
}

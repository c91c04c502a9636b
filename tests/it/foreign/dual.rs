//! Servers of three SDKs that speak both eras on one URL, with the clients of the official SDKs in front, through one weir: each
//! client is asked the way its era has. A legacy one is asked by a request while its call runs, a modern one by the end of its
//! call.

use serde_json::json;

use super::asks::{asked, over};
use crate::harness::{Client, Server, needs_peers};

const LEGACY: [Client; 4] =
    [Client::TypeScript1, Client::TypeScript2("legacy"), Client::Python1, Client::Python2As("legacy")];
const MODERN: [Client; 4] = [
    Client::TypeScript2("modern"),
    Client::TypeScript2("auto"),
    Client::Python2As("modern"),
    Client::Python2As("auto"),
];

/// Both eras in turns, so that neither finds weir prepared for itself.
fn asks(server: Server) {
    if !needs_peers() {
        return;
    }
    let (_running, weir) = over(server);
    weir.until_listed("/mcp/peer", &["test_elicitation", "test_sampling"]);
    let url = weir.url("/mcp/peer");
    let pushed = [
        ("test_elicitation", json!({ "message": "Who is there?" }), "elicitation/create", "accept"),
        ("test_sampling", json!({ "prompt": "a word" }), "sampling/createMessage", "a sampled text"),
    ];
    let ended = [
        ("test_input_required_result_elicitation", json!({}), "elicitation/create", "Hello, Ada!"),
        ("test_input_required_result_sampling", json!({}), "sampling/createMessage", "a sampled text"),
    ];
    for (legacy, modern) in LEGACY.into_iter().zip(MODERN) {
        asked(legacy, &url, &pushed);
        asked(modern, &url, &ended);
    }
    asked(Client::Rmcp("legacy"), &url, &pushed);
    asked(Client::Rmcp("modern"), &url, &ended);
}

#[test]
fn r182_the_typescript_sdks_server_of_both_eras_asks_each_client_in_its_own() {
    asks(Server::DualTypeScript);
}

#[test]
fn r182_the_rust_sdks_server_of_both_eras_asks_each_client_in_its_own() {
    asks(Server::DualRust);
}

#[test]
fn r182_fastmcps_server_of_both_eras_asks_each_client_in_its_own() {
    asks(Server::DualFastMcp);
}

//! Servers of the SDKs that ask, and clients of the SDKs that answer, with weir between. Each peer
//! speaks its own revision.

use serde_json::{Value, json};

use crate::harness::{ForeignClient, ForeignServer, TestProcess, Weir, peers_are_enabled};

/// A tool that asks, its arguments, the method that it asks by, and the text of its result.
pub(super) type QuestionTry = (&'static str, Value, &'static str, &'static str);

/// Runs all tools with one client; each tool asks.
pub(super) fn asked(client: ForeignClient, url: &str, tries: &[QuestionTry]) {
    for one in tries {
        let methods = tried(client, url, one);
        assert!(
            methods.iter().any(|asked| asked == one.2),
            "{client:?} {}: {methods:?}",
            one.0
        );
    }
}

/// Runs a tool; returns the methods of the requests to its client meanwhile.
fn tried(
    client: ForeignClient,
    url: &str,
    (tool, arguments, _, says): &QuestionTry,
) -> Vec<String> {
    let seen = client.run(url, &["call", tool, &arguments.to_string(), "--asks"]);
    let result = &seen.only_line("result")["result"];
    assert!(
        result["isError"] != true && result["content"].to_string().contains(says),
        "{client:?} {tool}: {result}"
    );
    seen.lines_of("asked")
        .iter()
        .filter_map(|line| line["method"].as_str())
        .map(str::to_owned)
        .collect()
}

pub(super) fn over(server: ForeignServer) -> (TestProcess, Weir) {
    let (process, url) = server.over_http();
    (
        process,
        Weir::with_upstreams(json!({ "peer": { "url": url } })),
    )
}

/// server-everything lists tools that ask only for clients that can answer.
fn everything(client: ForeignClient) {
    if !peers_are_enabled() {
        return;
    }
    let (_running, weir) = over(ForeignServer::Everything);
    weir.wait_until_listed("/mcp/peer", &["echo"]);
    let tries = [
        (
            "trigger-sampling-request",
            json!({ "prompt": "a word" }),
            "sampling/createMessage",
            "a sampled text",
        ),
        (
            "trigger-elicitation-request",
            json!({}),
            "elicitation/create",
            "accept",
        ),
        (
            "get-roots-list",
            json!({}),
            "roots/list",
            "file:///srv/driver",
        ),
    ];
    // It asks for roots some time after a session began, in any call that runs then, and stores
    // them.
    let mut methods = Vec::new();
    for one in &tries {
        methods.extend(tried(client, &weir.url("/mcp/peer"), one));
        assert!(
            methods.iter().any(|asked| asked == one.2),
            "{client:?} {}: {methods:?}",
            one.0
        );
    }
}

/// Modern servers of two SDKs: their calls end with their questions.
fn modern(client: ForeignClient) {
    if !peers_are_enabled() {
        return;
    }
    let (_running, weir) = over(ForeignServer::Asking);
    weir.wait_until_listed("/mcp/peer", &["greet", "say", "places"]);
    let tries = [
        ("greet", json!({}), "elicitation/create", "Hello Ada"),
        (
            "say",
            json!({}),
            "sampling/createMessage",
            "It said: a sampled text",
        ),
        ("places", json!({}), "roots/list", "file:///srv/driver"),
    ];
    asked(client, &weir.url("/mcp/peer"), &tries);
    let (_running, weir) = over(ForeignServer::Fixture("modern"));
    weir.wait_until_listed("/mcp/peer", &["test_input_required_result_elicitation"]);
    let tries = [
        (
            "test_input_required_result_elicitation",
            json!({}),
            "elicitation/create",
            "Ada",
        ),
        (
            "test_input_required_result_sampling",
            json!({}),
            "sampling/createMessage",
            "a sampled text",
        ),
        (
            "test_input_required_result_list_roots",
            json!({}),
            "roots/list",
            "file:///srv/driver",
        ),
        (
            "test_input_required_result_multi_round",
            json!({}),
            "elicitation/create",
            "",
        ),
    ];
    asked(client, &weir.url("/mcp/peer"), &tries);
}

/// A server of both eras, each caller in its own: the tool asks by a request while it runs. For
/// that the SDK needs a legacy client.
// Proves R182.
#[test]
fn a_server_of_both_eras_asks_a_legacy_client_while_its_call_runs() {
    if peers_are_enabled() {
        let (_running, weir) = over(ForeignServer::Fixture("both"));
        both_eras(&weir);
    }
}

/// The same server as a child: a process for each era.
// Proves R182.
#[test]
fn a_server_of_both_eras_over_stdio_asks_a_legacy_client_while_its_call_runs() {
    if peers_are_enabled() {
        let mut upstream = ForeignServer::Fixture("both").as_child();
        upstream["session"] = json!("principal");
        both_eras(&Weir::with_upstreams(json!({ "peer": upstream })));
    }
}

fn both_eras(weir: &Weir) {
    weir.wait_until_listed("/mcp/peer", &["test_pushed_elicitation"]);
    let pushed = [(
        "test_pushed_elicitation",
        json!({}),
        "elicitation/create",
        "action=accept",
    )];
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("legacy"),
        ForeignClient::Python1,
    ] {
        asked(client, &weir.url("/mcp/peer"), &pushed);
    }
    let ended = [(
        "test_input_required_result_elicitation",
        json!({}),
        "elicitation/create",
        "Ada",
    )];
    asked(
        ForeignClient::TypeScript2("modern"),
        &weir.url("/mcp/peer"),
        &ended,
    );
}

/// An example of the SDK's own, unchanged: it asks for a form on its GET stream.
// Proves R182.
#[test]
fn an_example_server_asks_beside_its_call() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, weir) = over(ForeignServer::Example("elicitationFormExample", "PORT"));
    weir.wait_until_listed("/mcp/peer", &["register_user"]);
    let tries = [(
        "register_user",
        json!({}),
        "elicitation/create",
        "Username: Ada",
    )];
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
    ] {
        asked(client, &weir.url("/mcp/peer"), &tries);
    }
}

/// Another example: a child that asks a model to summarize.
// Proves R182.
#[test]
fn an_example_server_over_stdio_has_the_client_sample() {
    if !peers_are_enabled() {
        return;
    }
    let mut upstream = ForeignServer::Example("toolWithSampleServer", "").as_child();
    upstream["session"] = json!("principal");
    let weir = Weir::with_upstreams(json!({ "peer": upstream }));
    weir.wait_until_listed("/mcp/peer", &["summarize"]);
    let tries = [(
        "summarize",
        json!({ "text": "weir is a gateway" }),
        "sampling/createMessage",
        "a sampled text",
    )];
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
    ] {
        asked(client, &weir.url("/mcp/peer"), &tries);
    }
}

macro_rules! pairs {
    ($($of:ident: $($name:ident: $client:expr),+;)*) => {$($(
        #[test]
        fn $name() {
            $of($client);
        }
    )+)*};
}

pairs! {
    everything:
        // Proves R182.
        server_everything_asks_the_typescript_client_1: ForeignClient::TypeScript1,
        // Proves R182.
        server_everything_asks_the_typescript_client_2: ForeignClient::TypeScript2("modern"),
        // Proves R182.
        server_everything_asks_the_typescript_client_2_as_a_legacy_one: ForeignClient::TypeScript2("legacy"),
        // Proves R182.
        server_everything_asks_the_python_client_1: ForeignClient::Python1,
        // Proves R182.
        server_everything_asks_the_python_client_2: ForeignClient::Python2As("modern"),
        // Proves R182.
        server_everything_asks_the_python_client_2_as_a_legacy_one: ForeignClient::Python2As("legacy");
    modern:
        // Proves R181.
        modern_servers_ask_the_typescript_client_1: ForeignClient::TypeScript1,
        // Proves R181.
        modern_servers_ask_the_typescript_client_2: ForeignClient::TypeScript2("modern"),
        // Proves R181.
        modern_servers_ask_the_python_client_1: ForeignClient::Python1,
        // Proves R181.
        modern_servers_ask_the_python_client_2: ForeignClient::Python2As("modern");
}

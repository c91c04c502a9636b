//! `weir stdio` under the stdio clients of the official SDKs, in every revision they speak, and
//! under the Inspector.

use serde_json::{Value, json};
use weir_wire::Revision;

use super::stdio_host::StdioConfigFile;
use crate::harness::{
    DriverEvents, ForeignClient, ForeignServer, TestProcess, Weir, inspector_of_command,
    peers_are_enabled, weir_binary,
};

/// Servers of both eras, and a config in front of them.
struct StdioServers {
    config: Value,
    file: StdioConfigFile,
    _servers: [TestProcess; 3],
}

impl StdioServers {
    fn start() -> Self {
        let [everything, asking, zoo] = [
            ForeignServer::Everything,
            ForeignServer::Asking,
            ForeignServer::TypeScript1,
        ]
        .map(ForeignServer::over_http);
        let config = json!({
            "upstreams": { "ev": { "url": everything.1 }, "ask": { "url": asking.1 }, "zoo": { "url": zoo.1 } },
            "first_list_wait": "30s",
        });
        let file = StdioConfigFile::new(&config);
        Self {
            config,
            file,
            _servers: [everything.0, asking.0, zoo.0],
        }
    }

    /// Returns the command line for a host's settings.
    fn command(target: &str) -> String {
        format!("{} stdio {target}", weir_binary().display())
    }
}

/// Runs all scenarios with a client, also with the older revisions that it can be made to propose.
fn tour(client: ForeignClient, revisions: &[Revision]) {
    if !peers_are_enabled() {
        return;
    }
    let town = StdioServers::start();
    let (weir, file) = (
        Weir::with_config(town.config.clone()),
        StdioServers::command(town.file.path()),
    );
    weir.wait_until_listed("/mcp", &["ev__echo", "ask__greet", "zoo__weigh"]);
    for command in [file.clone(), StdioServers::command(&weir.url("/mcp"))] {
        everything(client, &command);
        questions(client, &command, &[], Revision::MODERN);
    }
    for revision in revisions {
        let proposed = ["--revision", revision.as_str()];
        let called = run(
            client,
            &file,
            &["call", "zoo__weigh", r#"{"animal":"cat"}"#],
            &proposed,
        );
        assert_eq!(
            called.only_line("connected")["protocolVersion"],
            revision.as_str(),
            "{called:?}"
        );
        assert!(
            called.only_line("result").to_string().contains("4.5"),
            "{called:?}"
        );
        questions(client, &file, &proposed, *revision);
    }
}

fn run(client: ForeignClient, command: &str, scenario: &[&str], more: &[&str]) -> DriverEvents {
    client.run(command, &[scenario, &["--stdio"], more].concat())
}

fn everything(client: ForeignClient, command: &str) {
    let listed = run(client, command, &["list"], &[]);
    for tool in ["ev__echo", "ask__greet", "zoo__weigh"] {
        assert!(listed.names().contains(&tool), "{tool} in {listed:?}");
    }
    let arguments = json!({ "duration": 1, "steps": 3 }).to_string();
    let called = run(
        client,
        command,
        &[
            "call-progress",
            "ev__trigger-long-running-operation",
            &arguments,
        ],
        &[],
    );
    assert!(!called.lines_of("progress").is_empty(), "{called:?}");
    called.only_line("result");
    let watched = run(
        client,
        command,
        &["watch", "--trigger", "zoo__add_tool"],
        &[],
    );
    assert!(!watched.lines_of("list_changed").is_empty(), "{watched:?}");
    assert!(watched.names().contains(&"zoo__grown_1"), "{watched:?}");
    run(client, command, &["unknown-tool"], &[]).only_line("refused");
}

/// Runs the questions of servers of both eras, which the client's own handlers answer.
fn questions(client: ForeignClient, command: &str, more: &[&str], revision: Revision) {
    let sampled = json!({ "prompt": "a word" });
    // The last one's form has types of fields that came with that revision.
    let tries = [
        (
            Revision::V2024_11_05,
            "ask__say",
            json!({}),
            "sampling/createMessage",
            "a sampled text",
        ),
        (
            Revision::V2024_11_05,
            "ev__trigger-sampling-request",
            sampled,
            "sampling/createMessage",
            "a sampled text",
        ),
        (
            Revision::V2025_06_18,
            "ask__greet",
            json!({}),
            "elicitation/create",
            "Hello Ada",
        ),
        (
            Revision::V2025_11_25,
            "ev__trigger-elicitation-request",
            json!({}),
            "elicitation/create",
            "accept",
        ),
    ];
    for (since, tool, arguments, method, says) in tries {
        if revision < since {
            continue;
        }
        let seen = run(
            client,
            command,
            &["call", tool, &arguments.to_string(), "--asks"],
            more,
        );
        let result = &seen.only_line("result")["result"];
        assert!(
            result["isError"] != true && result.to_string().contains(says),
            "{client:?} {tool}: {seen:?}"
        );
        assert!(
            seen.lines_of("asked")
                .iter()
                .any(|asked| asked["method"] == method),
            "{client:?} {tool}: {seen:?}"
        );
    }
}

const OLDER: [Revision; 3] = [
    Revision::V2024_11_05,
    Revision::V2025_03_26,
    Revision::V2025_06_18,
];

macro_rules! tours {
    ($($name:ident: $client:expr, $revisions:expr;)*) => {$(
        #[test]
        fn $name() {
            tour($client, $revisions);
        }
    )*};
}

tours! {
    typescript_sdk_1: ForeignClient::TypeScript1, &OLDER;
    typescript_sdk_2_legacy: ForeignClient::TypeScript2("legacy"), &OLDER;
    typescript_sdk_2_modern: ForeignClient::TypeScript2("modern"), &[];
    typescript_sdk_2_probing: ForeignClient::TypeScript2("auto"), &[];
    python_sdk_1: ForeignClient::Python1, &OLDER;
    python_sdk_2_legacy: ForeignClient::Python2As("legacy"), &OLDER;
    python_sdk_2_modern: ForeignClient::Python2As("modern"), &[];
    python_sdk_2_probing: ForeignClient::Python2, &[];
}

/// A server that is itself a child, as in hosts' config files: it asks the only host.
#[test]
fn a_child_asks_the_host() {
    if !peers_are_enabled() {
        return;
    }
    let config = json!({ "mcpServers": { "ev": ForeignServer::Everything.as_child() } });
    let file = StdioConfigFile::new(&config);
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
    ] {
        let scenario = ["call", "ev__trigger-elicitation-request", "{}", "--asks"];
        let seen = run(client, &StdioServers::command(file.path()), &scenario, &[]);
        assert_eq!(
            seen.only_line("asked")["method"],
            "elicitation/create",
            "{seen:?}"
        );
    }
}

#[test]
fn the_inspectors_command_line_lists_and_calls() {
    if !peers_are_enabled() {
        return;
    }
    let file = StdioConfigFile::new(
        &json!({ "mcpServers": { "fast": ForeignServer::FastMcp.as_child() } }),
    );
    let command = [
        weir_binary().display().to_string(),
        "stdio".to_owned(),
        file.path().to_owned(),
    ];
    let listed = inspector_of_command(&command, &["tools/list"]);
    let names: Vec<&Value> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert!(names.contains(&&json!("fast__add")), "{names:?}");
    let call = [
        "tools/call",
        "--tool-name",
        "fast__add",
        "--tool-arg",
        "a=2",
        "--tool-arg",
        "b=3",
    ];
    assert_eq!(
        inspector_of_command(&command, &call)["content"][0]["text"],
        "5"
    );
}

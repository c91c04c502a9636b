//! Clients of the official SDKs, which go on over hand-overs without an error.

use std::time::Duration;

use serde_json::{Value, json};

use super::{is_gone, successors};
use crate::harness::{
    ForeignClient, ForeignServer, TestProcess, Weir, peers_are_enabled, signal, wait_until,
};

const WITH_SESSIONS: [ForeignClient; 4] = [
    ForeignClient::TypeScript1,
    ForeignClient::TypeScript2("legacy"),
    ForeignClient::Python1,
    ForeignClient::Python2As("legacy"),
];

/// Clients without sessions. Their subscriptions end by a result, and open again if the program
/// that uses the SDK wants that.
const WITHOUT: [ForeignClient; 2] = [
    ForeignClient::TypeScript2("modern"),
    ForeignClient::Python2As("modern"),
];

/// More milliseconds than all hand-overs take.
const ALL_OF_IT: &str = "300000";

/// Returns the lines of a driver that are events of this name.
fn events(client: &TestProcess, name: &str) -> Vec<Value> {
    let said = client.output();
    let lines = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|event| event["event"] == name).collect()
}

/// Runs this many hand-overs while each SDK's client calls without rest, and another one waits for
/// changes.
fn hand_over(times: usize, pause: Duration) {
    if !peers_are_enabled() {
        return;
    }
    let (_zoo, zoo_url) = ForeignServer::TypeScript1.over_http();
    let weir = Weir::with_upstreams(
        json!({ "zoo": { "url": zoo_url }, "fast": ForeignServer::FastMcp.as_child() }),
    );
    weir.wait_until_listed("/mcp", &["zoo__weigh", "fast__add"]);
    let url = weir.url("/mcp");
    let calls = |client: ForeignClient, tool: &str, arguments: Value| {
        client.start(
            &url,
            &[
                "calls",
                tool,
                &arguments.to_string(),
                "--timeout",
                ALL_OF_IT,
            ],
        )
    };
    let callers: Vec<_> = WITH_SESSIONS
        .into_iter()
        .chain(WITHOUT)
        .flat_map(|client| {
            let weigh = calls(client, "zoo__weigh", json!({ "animal": "cat" }));
            let add = calls(client, "fast__add", json!({ "a": 2, "b": 3 }));
            [(client, weigh), (client, add)]
        })
        .collect();
    let watch = |client: ForeignClient| {
        (
            client,
            client.start(&url, &["watch", "--timeout", ALL_OF_IT]),
        )
    };
    let watchers: Vec<_> = WITH_SESSIONS.into_iter().map(watch).collect();
    for (client, caller) in &callers {
        wait_until(&format!("{client:?} to call"), || {
            (!events(caller, "calling").is_empty()).then_some(())
        });
    }
    for (client, watcher) in &watchers {
        wait_until(&format!("{client:?} to watch"), || {
            (!events(watcher, "watching").is_empty()).then_some(())
        });
    }

    let mut processes = vec![weir.process.id()];
    for at in 0..times {
        signal(processes[at], "USR2");
        processes.push(wait_until("the next process", || {
            successors(&weir).get(at).copied()
        }));
        // A pause, so that clients also call in this process.
        std::thread::sleep(pause);
    }
    let mut count = 0;
    for (client, mut caller) in callers {
        caller.signal("TERM");
        let code = wait_until("a client to end", || caller.wait_for_exit());
        assert_eq!(code, 0, "{client:?}: {}", caller.output());
        let calls = wait_until("its count", || {
            events(&caller, "calls").first()?["count"].as_u64()
        });
        println!("{client:?}: {calls} calls");
        count += calls;
    }
    // The list changes: each watcher gets the notification on the stream that it has opened again.
    weir.call_tool("/mcp", "zoo__add_tool", &json!({ "name": "late" }));
    for (client, mut watcher) in watchers {
        let code = wait_until(&format!("{client:?} to hear of a change"), || {
            watcher.wait_for_exit()
        });
        assert_eq!(code, 0, "{client:?}: {}", watcher.output());
    }
    println!("{times} hand-overs, {count} calls, 0 errors");
    for id in &processes[..times] {
        wait_until("an old process to end", || is_gone(*id).then_some(()));
    }
    signal(processes[times], "TERM");
    wait_until("the last process to end", || {
        is_gone(processes[times]).then_some(())
    });
}

// Proves G06.
#[test]
fn clients_of_all_sdks_go_on_over_hand_overs() {
    hand_over(2, Duration::from_millis(500));
}

// Proves G06.
#[test]
#[ignore = "takes long"]
fn clients_of_all_sdks_go_on_over_twenty_hand_overs() {
    hand_over(20, Duration::from_secs(2));
}

//! Replicas of weir that share a Redis serve the same clients behind any load balancer.

mod admin_all;
mod call_load;
mod change_streams;
mod changing_list;
mod chaos;
mod graceful_restart;
mod http_sse;
mod hung_store_times;
mod kept_tasks;
mod key_rotation;
mod legacy_sessions;
mod list_changes;
mod lost_streams;
mod mixed_versions;
mod one_instance;
mod one_instance_handovers;
mod operator_changes;
mod parked_calls;
mod principals;
mod rate_accuracy;
mod rate_limits;
mod rates_in_outages;
mod reconnecting_herd;
mod refused_reloads;
mod replica_overview;
mod server_requests;
mod session_takeover;
mod steady_memory;
mod stopped_replicas;
mod store_commands;
mod store_failovers;
mod store_outages;
mod store_refusals;
mod store_settings;
mod timed_calls;
mod traced_requests;

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_wire::Revision;

use crate::harness::{CheckedClient, Replicas};

/// The number of replicas of most scenarios: one owns a session, one gets its request, and a third
/// has no part in it.
const COUNT: usize = 3;

/// The default of `store.timeout`, for tests of a store that does not answer.
const DEFAULT_STORE_TIMEOUT: &str = "50ms";

/// Returns the number in a variable of the environment, or else the default.
fn number_of_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Every pair of replicas: the one that gets a request, and the one that gets the next.
fn replica_pairs() -> impl Iterator<Item = [usize; 2]> {
    (0..COUNT).flat_map(|first| (0..COUNT).map(move |second| [first, second]))
}

/// Returns the config of a transparent endpoint in front of one server.
fn config(upstream: &MockServer) -> Value {
    json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "endpoints": { "/mcp": { "upstream": "one" } },
        "limits": { "progress_interval": "0ms" },
        "change_window": "50ms",
    })
}

async fn start(upstream: &MockServer) -> Replicas {
    Replicas::start(COUNT, config(upstream)).await
}

/// Starts replicas that do not wait long for a store that does not answer.
async fn start_with_default_store_timeout(upstream: &MockServer) -> Replicas {
    let mut config = config(upstream);
    config["store"]["timeout"] = json!(DEFAULT_STORE_TIMEOUT);
    Replicas::start(COUNT, config).await
}

/// Returns the client with its further requests sent to one replica.
fn at(client: &CheckedClient, replicas: &Replicas, number: usize) -> CheckedClient {
    client.at_url(&replicas.replica(number).url("/mcp"))
}

/// Opens a session that this replica owns; further requests go to it, too.
async fn open_at(replicas: &Replicas, number: usize, revision: Revision) -> CheckedClient {
    CheckedClient::open(&replicas.replica(number).url("/mcp"), revision).await
}

/// Calls `tool_0000`, which must succeed.
async fn call(client: &CheckedClient, number: usize) {
    let answer = client.call("tool_0000", json!({ "n": number })).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text(), format!(r#"{{"n":{number}}}"#));
}

/// Makes a request of each kind that succeeds with a session, so many times each: a replica gets
/// requests of every kind.
async fn use_session(client: &CheckedClient, rounds: usize) {
    for number in 0..rounds {
        call(client, number).await;
    }
    for _ in 0..rounds {
        assert!(!client.list_tool_names().await.is_empty());
    }
    for _ in 0..rounds {
        assert_eq!(client.ask("ping", json!({})).await.result(), &json!({}));
    }
}

/// Checks that every replica that runs answers 404 to a session's requests.
async fn expect_session_gone(client: &CheckedClient, replicas: &Replicas) {
    for replica in replicas.running() {
        let own = client.at_url(&replica.url("/mcp"));
        let pinged = own.raw().ask("ping", json!({})).await.unwrap();
        assert_eq!(pinged.status, 404, "{:?}", pinged.body);
        assert_eq!(own.raw().get_stream().await.unwrap().status, 404);
        assert_eq!(own.raw().delete().await.unwrap().status, 404);
    }
}

/// Ends a session by DELETE.
async fn delete(client: &CheckedClient) {
    let ended = client.raw().delete().await.unwrap();
    assert!(
        ended.status.is_success(),
        "{} {:?}",
        ended.status,
        ended.body
    );
}

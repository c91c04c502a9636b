//! Reloads that are refused after the upstreams were built: an upstream that one replica runs for all
//! goes on as before, at every replica.

use serde_json::{Value, json};
use weir_testkit::{MockServer, MockStdio, TestFolder};
use weir_wire::Revision;

use super::COUNT;
use crate::harness::{CheckedClient, Replicas, Weir, wait_until};

/// The gauge of the lease.
const LEASE_HELD: &str = "weir_upstream_lease_held";

/// A child that one replica runs for all.
fn child(more: &Value) -> Value {
    let (command, args) = MockStdio::legacy(Revision::NEWEST_LEGACY).command();
    let mut upstream = json!({ "command": command, "args": args, "instances": "one" });
    for (key, value) in more.as_object().unwrap() {
        upstream[key] = value.clone();
    }
    upstream
}

fn config(upstreams: &Value) -> Value {
    json!({ "upstreams": upstreams, "change_window": "50ms" })
}

/// Rewrites the config of a replica with these upstreams.
fn rewrite(weir: &Weir, upstreams: &Value) {
    let mut config = weir.config();
    config["upstreams"] = upstreams.clone();
    weir.rewrite_config(config);
}

/// Rewrites the config of a replica so that it is refused after the upstreams were built.
fn rewrite_in_vain(weir: &Weir, upstreams: &Value) {
    let before = weir.config();
    let folder = TestFolder::new("foreign");
    // No audit may continue this file.
    let file = folder.write("audit.jsonl", "no record of weir\n");
    let mut config = before.clone();
    config["upstreams"] = upstreams.clone();
    config["audit"] = json!({ "file": { "path": file } });
    weir.rewrite_config(config);
    wait_until("the refusal", || {
        let output = weir.process.output();
        (output.contains("not applied") && output.contains("audit records")).then_some(())
    });
    weir.rewrite_config(before);
}

/// Returns the process id of the child that answers at a replica.
async fn called_child(weir: &Weir) -> u64 {
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let answer = client.call("one__count", json!({})).await;
    let pid = answer.result()["structuredContent"]["pid"].as_u64();
    pid.unwrap_or_else(|| panic!("{}", answer.last()))
}

/// Waits until all replicas list the child, and asserts that they reach the same one.
async fn assert_one_child(replicas: &Replicas) -> u64 {
    let mut children = Vec::new();
    for replica in replicas.running() {
        replica.wait_until_listed("/mcp", &["one__count"]);
        children.push(called_child(replica).await);
    }
    children.dedup();
    assert_eq!(children.len(), 1, "{children:?}");
    children[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_change_of_the_upstream_cuts_off_no_replica() {
    let replicas = Replicas::start(COUNT, config(&json!({ "one": child(&json!({})) }))).await;
    let before = assert_one_child(&replicas).await;
    let changed = json!({ "one": child(&json!({ "env": { "CHANGED": "yes" } })) });
    for replica in replicas.running() {
        rewrite_in_vain(replica, &changed);
    }
    assert_eq!(assert_one_child(&replicas).await, before);
    assert_eq!(replicas.metric(LEASE_HELD, &[]), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_of_a_refused_config_takes_no_lease() {
    let server = MockServer::modern().tools(1).start().await;
    let plain = json!({ "plain": { "url": server.url() } });
    let replicas = Replicas::start(COUNT, config(&plain)).await;
    let both = json!({ "plain": plain["plain"], "one": child(&json!({})) });
    rewrite_in_vain(replicas.replica(0), &both);
    for replica in replicas.running() {
        rewrite(replica, &both);
    }
    assert_one_child(&replicas).await;
    assert_eq!(replicas.metric(LEASE_HELD, &[]), 1.0);
    // Without the setting each replica runs its own, and there is no lease to watch.
    let of_each = json!({
        "plain": plain["plain"],
        "one": child(&json!({ "instances": "each_replica" })),
    });
    for replica in replicas.running() {
        rewrite(replica, &of_each);
        wait_until("a page without the lease", || {
            let page = replica.get_admin_page("/metrics");
            (!page.contains(LEASE_HELD)).then_some(())
        });
    }
}

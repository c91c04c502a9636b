//! A real Prometheus watches two real replicas and their store: every panel of their dashboard has
//! data, and the alert of a lost store fires and ends.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use weir_testkit::{MockServer, MockStdio};
use weir_wire::Revision;

use super::alerts_fire::{instance, poll_until, silent_queries};
use super::dashboards::{REPLICAS_BOARD, board};
use super::prometheus::Prometheus;
use crate::harness::{CheckedClient, Replicas};

const COUNT: usize = 2;

/// Returns the instances that an alert names.
fn instances_of(prometheus: &Prometheus, alert: &str) -> BTreeSet<String> {
    let firing = prometheus.firing().into_iter();
    let named = firing.filter(|one| one.labels["alertname"] == alert);
    let instances = named.filter_map(|one| one.labels["instance"].as_str().map(str::to_owned));
    instances.collect()
}

fn expect(is_met: bool, missing: impl FnOnce() -> String) -> Result<(), String> {
    if is_met { Ok(()) } else { Err(missing()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_of_replicas_shows_something_and_a_lost_store_has_its_alert() {
    let upstream = MockServer::dual().tools(1).start().await;
    let (command, args) = MockStdio::modern().command();
    let config = json!({
        "upstreams": {
            "one": { "url": upstream.url() },
            "memory": { "command": command, "args": args, "instances": "one" },
        },
        "endpoints": { "/mcp": { "upstream": "one" } },
    });
    let mut replicas = Replicas::start(COUNT, config).await;
    let instances: Vec<_> = replicas.running().map(instance).collect();
    let prometheus = Prometheus::over(&instances);
    // Every second request of this session is forwarded.
    let client = CheckedClient::open(&replicas.url("/mcp"), Revision::NEWEST_LEGACY).await;
    let calls = async {
        loop {
            assert_eq!(client.call("tool_0000", json!({})).await.status, 200);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let board = board(REPLICAS_BOARD);
    let shown = poll_until("data in every panel", Duration::ZERO, || {
        let silent = silent_queries(&prometheus, &board);
        let forwarded = prometheus.query("sum(rate(weir_forwarded_total[10s])) > 0");
        expect(silent.is_empty() && !forwarded.is_empty(), || {
            silent.join("\n")
        })
    });
    tokio::select! {
        () = calls => unreachable!("it has no end"),
        () = shown => {}
    }
    assert_eq!(prometheus.query("min(weir_replicas) == 2").len(), 1);
    assert_eq!(instances_of(&prometheus, "WeirStoreDown"), BTreeSet::new());
    replicas.redis_mut().kill();
    let all: BTreeSet<_> = instances.into_iter().collect();
    poll_until("the alert of every replica", Duration::ZERO, || {
        let named = instances_of(&prometheus, "WeirStoreDown");
        expect(named == all, || format!("{named:?}"))
    })
    .await;
    replicas.redis_mut().restart();
    poll_until("the end of the alert", Duration::ZERO, || {
        let named = instances_of(&prometheus, "WeirStoreDown");
        expect(named.is_empty(), || format!("{named:?}"))
    })
    .await;
    assert_eq!(
        instances_of(&prometheus, "WeirStoreDropping"),
        BTreeSet::new()
    );
}

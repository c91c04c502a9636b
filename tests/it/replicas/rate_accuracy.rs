//! The accuracy of a rate that several replicas share, under more calls than it admits, and its cost in
//! the shared store.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;
use weir_testkit::{MockServer, RawClient};

use super::config;
use super::timed_calls::{TimedCall, TimedCaller};
use crate::harness::Replicas;

/// Callers at each replica.
const CALLERS: usize = 4;
/// The time in which the burst is used up.
const WARM_UP: Duration = Duration::from_secs(3);
/// The measured time.
const MEASURED: Duration = Duration::from_secs(20);

/// The combined rate over a time.
struct MeasuredRate {
    admitted: usize,
    refused: usize,
    time: Duration,
    /// Scripts that Redis ran a second, without those of idle replicas.
    scripts: f64,
}

async fn measure(replicas: usize, rate: u32) -> MeasuredRate {
    let upstream = MockServer::dual().tools(1).start().await;
    let mut config = config(&upstream);
    let limit = json!({ "rate": format!("{rate}/s"), "shared": true });
    config["rates"] = json!({ "tools": { "one/tool_0000": limit } });
    let replicas = Replicas::start(replicas, config).await;
    let callers: Vec<_> = replicas
        .running()
        .flat_map(|weir| (0..CALLERS).map(|_| weir.url("/mcp")))
        .map(|url| {
            let client = RawClient::new(&url).modern().keeping_connections();
            TimedCaller::start("caller", client, "tool_0000", Duration::from_millis(1))
        })
        .collect();
    sleep(WARM_UP).await;
    let scripts = || replicas.redis().command_counts()["evalsha"];
    let (begun, before) = (Instant::now(), scripts());
    sleep(MEASURED).await;
    let (ended, after) = (Instant::now(), scripts());
    let calls: Vec<TimedCall> = callers
        .into_iter()
        .flat_map(|caller| caller.stop().1)
        .filter(|call| (begun..ended).contains(&call.begun))
        .collect();
    let admitted = calls.iter().filter(|call| call.is_admitted).count();
    let time = ended - begun;
    let heartbeats = replicas.running().count() as f64 / 2.0;
    MeasuredRate {
        admitted,
        refused: calls.len() - admitted,
        time,
        scripts: (after - before) as f64 / time.as_secs_f64() - heartbeats,
    }
}

// Proves F03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn combined_rate_of_replicas_is_the_rate() {
    for (replicas, rate) in [(2, 10), (2, 100), (2, 1000), (3, 10), (3, 100), (3, 1000)] {
        let measured = measure(replicas, rate).await;
        let due = f64::from(rate) * measured.time.as_secs_f64();
        let off = (measured.admitted as f64 / due - 1.0) * 100.0;
        println!(
            "{replicas} replicas, {rate}/s: {} admitted of {due:.0} ({off:+.2} %), {} refused; {:.1} scripts a second",
            measured.admitted, measured.refused, measured.scripts
        );
        // One lease of each replica, which lasts 50 ms to half a second.
        let leases = if rate < 100 {
            1.0
        } else {
            f64::from(rate) / 4.0
        };
        let most = due * 1.05 + leases;
        assert!(measured.admitted as f64 <= most, "more than {most:.0}");
        if measured.refused == 0 {
            println!("    not measured: this machine makes fewer calls than the rate admits");
            // Any machine makes more calls than these.
            assert!(rate > 100, "too few calls");
        }
    }
}

//! The times of calls while the shared store hangs for a minute, and the time until it is used again.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;
use weir_testkit::{MockServer, RawClient};
use weir_wire::Revision;

use super::timed_calls::{TimedCall, TimedCaller, percentile};
use super::{COUNT, DEFAULT_STORE_TIMEOUT, config, open_at};
use crate::harness::{Replicas, wait_until_async};

/// The time of calls before the store hangs, and after it goes on.
const CALM: Duration = Duration::from_secs(10);
/// The time for which the store hangs.
const HANG: Duration = Duration::from_secs(60);
/// The time in which replicas find out that the store hangs.
const FIRST_MOMENT: Duration = Duration::from_millis(250);
/// The pause between two calls of a caller.
const PAUSE: Duration = Duration::from_millis(10);
/// The pause between two calls under the small rate: three callers stay below it.
const SMALL_RATE_PAUSE: Duration = Duration::from_millis(60);

/// A tool without a rate, one with a rate by leases, and one with a rate that asks for each call.
fn rates() -> Value {
    json!({ "tools": {
        "one/tool_0001": { "rate": "10000/s", "shared": true },
        "one/tool_0002": { "rate": "90/s", "shared": true },
    } })
}

/// Starts callers of each kind: of 2026-07-28, in a session at its owner and at another replica, and
/// under both rates at each replica.
async fn start_callers(replicas: &Replicas) -> Vec<TimedCaller> {
    let modern = |number: usize| {
        let client = RawClient::new(&replicas.replica(number).url("/mcp"));
        client.modern().keeping_connections()
    };
    let session = open_at(replicas, 1, Revision::NEWEST_LEGACY).await;
    let elsewhere = session.at_url(&replicas.replica(2).url("/mcp"));
    let [owned, forwarded] =
        [session, elsewhere].map(|client| client.raw().clone().keeping_connections());
    let mut callers = vec![
        TimedCaller::start("no session", modern(0), "tool_0000", PAUSE),
        TimedCaller::start("session, at its owner", owned, "tool_0000", PAUSE),
        TimedCaller::start("session, forwarded", forwarded, "tool_0000", PAUSE),
    ];
    for number in 0..COUNT {
        let (client, small) = (modern(number), modern(number));
        callers.push(TimedCaller::start("10000/s", client, "tool_0001", PAUSE));
        let pause = SMALL_RATE_PAUSE;
        callers.push(TimedCaller::start("90/s", small, "tool_0002", pause));
    }
    callers
}

/// The calls of one kind that began in a span of time.
fn between(calls: &[TimedCall], from: Instant, to: Instant) -> Vec<TimedCall> {
    let begun = |call: &&TimedCall| (from..to).contains(&call.begun);
    calls.iter().filter(begun).copied().collect()
}

fn print_times(name: &str, calls: &[TimedCall], hung: Instant, resumed: Instant) {
    let first = hung + FIRST_MOMENT;
    let spans = [
        ("before", hung - CALM, hung),
        ("first 250 ms", hung, first),
        ("hung", first, resumed),
        ("after", resumed, resumed + 2 * CALM),
    ];
    for (span, from, to) in spans {
        let own = between(calls, from, to);
        let [middle, slow, longest] = [50, 99, 100].map(|share| percentile(&own, share));
        println!(
            "{name:24} {span:13} {:6} calls: p50 {middle:>9.2?}, p99 {slow:>9.2?}, longest {longest:>9.2?}",
            own.len()
        );
    }
}

/// Waits until every replica has written to the store, and asked it for a rate.
async fn wait_until_used(replicas: &Replicas) -> [Duration; 2] {
    let begun = Instant::now();
    let shared = ["operation=\"take_tokens\"", "result=\"ok\""];
    let trips = |number: usize| {
        let replica = replicas.replica(number);
        replica.metric("weir_store_commands_total", &shared)
    };
    let before: Vec<_> = (0..COUNT).map(trips).collect();
    wait_until_async("shared rates", async || {
        (0..COUNT)
            .all(|number| trips(number) > before[number])
            .then_some(())
    })
    .await;
    let of_rates = begun.elapsed();
    replicas.wait_until_store_is_used().await;
    [of_rates, begun.elapsed()]
}

// Proves F05.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn calls_go_on_while_the_store_hangs_for_a_minute() {
    let upstream = MockServer::dual().tools(3).start().await;
    let mut config = config(&upstream);
    config["rates"] = rates();
    config["store"]["timeout"] = json!(DEFAULT_STORE_TIMEOUT);
    let replicas = Replicas::start(COUNT, config).await;
    let callers = start_callers(&replicas).await;
    sleep(CALM).await;
    let memory: usize = replicas.running().map(crate::harness::Weir::memory).sum();
    replicas.redis().pause();
    let hung = Instant::now();
    sleep(HANG).await;
    let waiting = replicas.metric("weir_store_pending", &[]);
    let grown: usize = replicas.running().map(crate::harness::Weir::memory).sum();
    replicas.redis().resume();
    let resumed = Instant::now();
    let [of_rates, of_all] = wait_until_used(&replicas).await;
    sleep(CALM).await;
    let mut kinds: Vec<(&str, Vec<TimedCall>)> = Vec::new();
    for (name, calls) in callers.into_iter().map(TimedCaller::stop) {
        match kinds.iter_mut().find(|(other, _)| *other == name) {
            Some((_, all)) => all.extend(calls),
            None => kinds.push((name, calls)),
        }
    }
    for (name, calls) in &kinds {
        print_times(name, calls, hung, resumed);
    }
    println!(
        "rates are shared again after {of_rates:.2?}, all is written after {of_all:.2?}; at the end of the hang {waiting} writes waited, and memory was {} KiB, {} KiB before",
        grown >> 10,
        memory >> 10,
    );
    for (name, calls) in &kinds {
        let failed = calls.iter().find(|call| call.status != 200);
        assert!(failed.is_none(), "{name}: {failed:?}");
        let refused = calls.iter().filter(|call| !call.is_admitted).count();
        // The callers of the small rate are below it, and so is each at the share of its replica.
        assert_eq!(refused, 0, "{name}");
    }
    assert!(
        waiting < 100.0,
        "{waiting} writes of one session and no others"
    );
}

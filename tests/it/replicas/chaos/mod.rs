//! Faults of replicas, of Redis and of connections in random order, by a seed, while clients call.

mod chaos_callers;
mod chaos_faults;

use std::time::{Duration, Instant};

use serde_json::json;
use weir_testkit::FaultProxy;

use super::COUNT;
use super::call_load;
use crate::harness::{Replicas, wait_until_async};
use chaos_callers::ChaosCallers;
use chaos_faults::{ChaosFault, SeededRandom};

/// The time of the test of each run, and of one round of the long one: the server records every
/// request that it saw.
const SHORT: Duration = Duration::from_secs(8);
const ROUND: Duration = Duration::from_secs(60);
/// Rounds of the long test.
const ROUNDS: u64 = 30;

/// Injects faults for this time, in the order of a seed that a failure prints. Then all that runs
/// must be whole again.
async fn run(time: Duration, seed: u64) {
    println!("chaos by seed {seed}");
    let upstream = call_load::upstream().await;
    let between = FaultProxy::start(upstream.address()).await;
    let mut config = super::config(&upstream);
    config["upstreams"]["one"]["url"] = json!(between.url("/mcp"));
    config["drain"] = json!("5s");
    // A parked call whose client lost its connection waits for ten minutes.
    config["limits"]["parked_per_principal"] = json!(1000);
    let mut replicas = Replicas::start(COUNT, config).await;
    let callers = ChaosCallers::start(&replicas.url("/mcp"));
    let mut random = SeededRandom::new(seed);
    let mut faults = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < time {
        let fault = ChaosFault::choose(&mut random);
        faults.push(fault);
        fault.inject(&mut replicas, &between, &mut random).await;
        callers.wait_for_answers(random.below(40)).await;
    }
    replicas.wait_until_known().await;
    replicas.wait_until_store_is_used().await;
    // A call of each kind at least must succeed again.
    callers.wait_for_answers(200).await;
    let totals = callers.stop().await;
    println!("{} faults, {totals}: {faults:?}", faults.len());
    totals.compare_with(&upstream);
    let may_lose_sessions = faults.iter().any(ChaosFault::loses_data);
    assert!(
        totals.sessions_gone == 0 || may_lose_sessions,
        "sessions were lost: {totals}"
    );
    expect_rest(&replicas).await;
}

/// Checks that no replica had a panic, and that nothing goes on after the last call.
async fn expect_rest(replicas: &Replicas) {
    assert_eq!(replicas.metric("weir_panics_total", &[]), 0.0);
    for output in replicas.outputs() {
        assert!(!output.contains("panicked at"), "{output}");
    }
    wait_until_async("the end of all requests", async || {
        let active = replicas.metric("http_server_active_requests", &[]);
        (active < 0.5).then_some(())
    })
    .await;
}

// Proves R284, F03, F04.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_runs_twice_or_reaches_another_client_under_random_faults() {
    run(SHORT, 1).await;
}

/// `WEIR_CHAOS_SEED` sets the seed of the first round, `WEIR_CHAOS_ROUNDS` the number of rounds.
// Proves R284, F03, F04.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half an hour"]
async fn no_call_runs_twice_or_reaches_another_client_in_half_an_hour_of_random_faults() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let first = number("WEIR_CHAOS_SEED", 100);
    for seed in first..first + number("WEIR_CHAOS_ROUNDS", ROUNDS) {
        run(ROUND, seed).await;
    }
}

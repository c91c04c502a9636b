//! Faults of replicas, of Redis and of connections in random order, by a seed, while clients call.

mod chaos_blocks;
mod chaos_callers;
mod chaos_faults;
mod chaos_lists;
mod chaos_scene;
mod chaos_store;
mod chaos_totals;
mod numbered_call;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::{Replicas, SplitMixRandom, Weir, wait_until_async};
use chaos_callers::{CallRate, ChaosCallers};
use chaos_faults::ChaosFault;
use chaos_lists::{ChaosLists, ENDPOINT};
use chaos_scene::ChaosScene;
use chaos_store::StoreKind;

/// The time of a short run, and of one round of the long test: the server records every request that
/// it saw.
const SHORT_TIME: Duration = Duration::from_secs(20);
const ROUND_TIME: Duration = Duration::from_secs(60);
/// Rounds of the long test.
const ROUNDS: u64 = 30;

/// The most descriptors of a replica at rest, beside one for each call whose client was lost while
/// the call waited for input.
const MAX_DESCRIPTORS: usize = 64;

/// The length of a run, and its calls.
struct ChaosLoad {
    time: Duration,
    rate: CallRate,
    /// At most so many calls are answered between two faults.
    calls_between_faults: usize,
    /// So many calls must be answered after the last fault.
    calls_after_faults: usize,
}

impl ChaosLoad {
    /// A load that leaves the processor to other tests.
    const LIGHT: Self = Self {
        time: SHORT_TIME,
        rate: CallRate {
            callers: 1,
            pause: Duration::from_millis(500),
        },
        calls_between_faults: 20,
        calls_after_faults: 60,
    };
    const FULL: Self = Self {
        time: ROUND_TIME,
        rate: CallRate {
            callers: 2,
            pause: Duration::ZERO,
        },
        calls_between_faults: 40,
        calls_after_faults: 400,
    };
}

/// Injects faults into replicas with a store of this kind, in the order of a seed that a failure
/// prints. Then all that runs must be whole again.
async fn run(kind: StoreKind, seed: u64, load: ChaosLoad) {
    println!("chaos by seed {seed}, with a store of the kind {kind:?}");
    let mut scene = ChaosScene::start(kind).await;
    let callers = ChaosCallers::start(&scene.replicas.url("/mcp"), load.rate);
    let lists = ChaosLists::start(Arc::clone(&scene.lists), &scene.replicas.url(ENDPOINT));
    let mut random = SplitMixRandom::new(seed);
    let mut faults = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < load.time {
        let fault = ChaosFault::choose(kind, &mut random);
        faults.push(fault);
        fault.inject(&mut scene, &mut random).await;
        let calls = random.below(load.calls_between_faults);
        callers.wait_for_answers(calls).await;
    }
    scene.replicas.wait_until_known().await;
    scene.replicas.wait_until_store_is_used().await;
    callers.wait_for_answers(load.calls_after_faults).await;
    lists.stop(&scene.replicas).await;
    scene.blocks.expect_all(&scene.replicas).await;
    let totals = callers.stop().await;
    let blocks = scene.blocks.count();
    println!(
        "{} faults, {blocks} blocks, {totals}: {faults:?}",
        faults.len()
    );
    totals.compare_with(&scene.upstream);
    let may_lose_sessions = faults.iter().any(ChaosFault::loses_data);
    assert!(
        totals.sessions_gone == 0 || may_lose_sessions,
        "sessions were lost: {totals}"
    );
    expect_rest(&scene.replicas, totals.unknown).await;
}

/// Checks that no replica had a panic, and that nothing goes on or stays open after the last call.
async fn expect_rest(replicas: &Replicas, unknown_calls: usize) {
    assert_eq!(replicas.metric("weir_panics_total", &[]), 0.0);
    for output in replicas.outputs() {
        assert!(!output.contains("panicked at"), "{output}");
    }
    wait_until_async("the end of all requests", async || {
        let active = replicas.metric("http_server_active_requests", &[]);
        (active < 0.5).then_some(())
    })
    .await;
    for weir in replicas.running() {
        let most = MAX_DESCRIPTORS + unknown_calls;
        wait_until_async("closed descriptors", async || {
            (descriptors(weir) <= most).then_some(())
        })
        .await;
        println!("at rest: {} descriptors", descriptors(weir));
        assert_eq!(children(weir), "", "children of a replica without any");
    }
}

/// Counts the open descriptors of a replica.
fn descriptors(weir: &Weir) -> usize {
    let folder = format!("/proc/{}/fd", weir.process.id());
    std::fs::read_dir(folder).unwrap().count()
}

/// Returns the ids of the child processes of a replica.
fn children(weir: &Weir) -> String {
    let tasks = format!("/proc/{}/task", weir.process.id());
    let tasks = std::fs::read_dir(tasks).unwrap();
    let children = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    tasks.filter_map(|task| children(task.ok()?).ok()).collect()
}

// Proves R284, F03, F04.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_runs_twice_or_reaches_another_client_under_random_faults() {
    run(StoreKind::Single, 361, ChaosLoad::LIGHT).await;
}

// Proves R284, F03, F04, F07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_runs_twice_or_reaches_another_client_under_random_faults_and_failovers() {
    run(StoreKind::Sentinel, 92, ChaosLoad::LIGHT).await;
}

// Proves R284, F03, F04, F07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_runs_twice_or_reaches_another_client_under_random_faults_of_a_cluster() {
    run(StoreKind::Cluster, 9, ChaosLoad::LIGHT).await;
}

/// The kind of store follows from the seed. With an earlier weir (`cargo xtask prove --before BINARY`)
/// half of the replicas that start run that one. `WEIR_CHAOS_SEED` sets the seed of the first round,
/// `WEIR_CHAOS_ROUNDS` the number of rounds.
// Proves R284, F03, F04, F07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half an hour"]
async fn no_call_runs_twice_or_reaches_another_client_in_half_an_hour_of_random_faults() {
    let first = super::number_of_environment("WEIR_CHAOS_SEED", 100);
    for seed in first..first + super::number_of_environment("WEIR_CHAOS_ROUNDS", ROUNDS) {
        let kind = StoreKind::ALL[seed as usize % StoreKind::ALL.len()];
        run(kind, seed, ChaosLoad::FULL).await;
    }
}

//! Replicas under a load that stays the same keep the memory that they had after its first third.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use weir_wire::Revision;

use super::call_load::caller_group::{CallerGroup, CallerSignals};
use super::call_load::{self, CallKind, CallLoad};
use super::{delete, start};
use crate::harness::{CheckedClient, Replicas};

/// The time of the load. `WEIR_MEMORY_MINUTES` sets another.
const MINUTES: u64 = 30;
/// Samples of the memory. A third of them is the time in which caches, books and allocator grow.
const SAMPLES: usize = 90;
/// The pause of each caller after a call: the server records every request that it saw.
const CALL_PAUSE: Duration = Duration::from_millis(50);
/// The pause of a client between two sessions.
const SESSION_PAUSE: Duration = Duration::from_millis(20);
/// The memory by which a replica may grow from the second third of the samples to the last: a
/// twentieth of it. At 80 calls a second of each replica, 50 bytes that every call keeps are more.
const MAX_GROWTH: usize = 20;

/// The memory of all replicas, and of their Redis, in bytes.
struct MemorySample {
    replicas: Vec<usize>,
    redis: usize,
}

impl MemorySample {
    fn take(replicas: &Replicas) -> Self {
        let info = replicas.redis().run(&["INFO", "memory"]).text();
        let used = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        Self {
            replicas: replicas.running().map(|weir| weir.memory()).collect(),
            redis: used.unwrap().trim().parse().unwrap(),
        }
    }
}

/// Opens, uses and ends one session after the other; returns their number.
async fn open_and_end_sessions(url: String, signals: CallerSignals) -> usize {
    let mut count = 0;
    while !signals.is_stopped() {
        let client = CheckedClient::open(&url, Revision::NEWEST_LEGACY).await;
        assert!(!client.list_tool_names().await.is_empty());
        delete(&client).await;
        count += 1;
        sleep(SESSION_PAUSE).await;
    }
    count
}

fn median(mut numbers: Vec<usize>) -> usize {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Redis keeps the mark of an ended session for a day, so its memory is printed and not compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half an hour"]
async fn memory_of_replicas_stays_the_same_under_a_steady_load() {
    let upstream = call_load::upstream().await;
    let replicas = start(&upstream).await;
    let url = replicas.url("/mcp");
    let load = CallLoad::start_paced(&url, &CallKind::ALL, CALL_PAUSE).await;
    let mut sessions = CallerGroup::new();
    sessions.spawn(|signals| open_and_end_sessions(url, signals));
    let minutes = super::number_of_environment("WEIR_MEMORY_MINUTES", MINUTES);
    let interval = Duration::from_secs(60 * minutes) / SAMPLES as u32;
    let begun = Instant::now();
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        sleep(interval).await;
        let sample = MemorySample::take(&replicas);
        println!(
            "{:4} s: replicas {:?} KiB, Redis {} KiB",
            begun.elapsed().as_secs(),
            sample
                .replicas
                .iter()
                .map(|bytes| bytes >> 10)
                .collect::<Vec<_>>(),
            sample.redis >> 10
        );
        samples.push(sample);
    }
    let ended = sessions.stop().await;
    println!("{ended:?} sessions, {:?}", load.stop(&upstream).await);
    for number in 0..super::COUNT {
        let third = |from: usize| {
            let part = samples[from..].iter().take(SAMPLES / 3);
            median(part.map(|sample| sample.replicas[number]).collect())
        };
        let [second, last] = [third(SAMPLES / 3), third(SAMPLES / 3 * 2)];
        println!("replica {number}: {second} bytes, then {last}");
        assert!(
            last <= second + second / MAX_GROWTH,
            "replica {number} grew from {second} to {last} bytes"
        );
    }
}

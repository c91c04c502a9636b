//! Long tests and measurements: left out by default, run by `cargo xtask prove` on an optimized
//! build, one at a time. Two values are compared within one run; absolute times are asserted only
//! against bounds far above any noise.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use weir_testkit::{FaultProxy, MockServer, RawClient};
use weir_wire::Revision;

use crate::harness::{Weir, measure_p99, wait_until, within_test_timeout};

async fn weir_over_one() -> (MockServer, Weir) {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": upstream.url() } }));
    (upstream, weir)
}

/// The number of slow heads at once.
const SLOW_HEADS: usize = 5_000;

/// Connections that send a head one byte at a time delay only themselves.
// Proves A01, A02.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn slow_heads_do_not_slow_others() {
    let (_upstream, weir) = weir_over_one().await;
    let client = RawClient::new(&weir.url("/mcp")).modern();
    measure_p99(&client, 200).await;
    let alone = measure_p99(&client, 1000).await;
    let address = weir.url("").replace("http://", "");
    let mut slow = Vec::new();
    for _ in 0..SLOW_HEADS {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"POST /mcp HT").await.unwrap();
        slow.push(stream);
    }
    let drip = async {
        // A byte more for each, over and over: a head that grows is still a slow one.
        for round in 0.. {
            let stream: &mut TcpStream = &mut slow[round % SLOW_HEADS];
            let _closed_already = stream.write_all(b"T").await;
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    };
    let beside = tokio::select! {
        beside = measure_p99(&client, 1000) => beside,
        () = drip => unreachable!("it has no end"),
    };
    println!(
        "p99 of a call: {alone:?} alone, {beside:?} beside {SLOW_HEADS} heads that grow a byte at a time"
    );
    assert!(
        beside < alone * 10 + Duration::from_millis(50),
        "{beside:?} against {alone:?}"
    );
    // Each is closed once its timeout is over.
    for mut stream in slow {
        let mut rest = Vec::new();
        let closed = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest);
        tokio::time::timeout(Duration::from_secs(60), closed)
            .await
            .unwrap()
            .ok();
    }
}

/// An upstream that comes and goes is probed now and then, even under many calls, and costs its
/// neighbour no time.
// Proves E14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn a_flapping_upstream_is_probed_and_not_stormed() {
    let (good, mut flaps) = (
        MockServer::modern().tools(1).start().await,
        MockServer::modern().tools(1).start().await,
    );
    let between = FaultProxy::start(flaps.address()).await;
    let weir = Weir::with_upstreams(
        json!({ "one": { "url": good.url() }, "flaps": { "url": between.url("/mcp") } }),
    );
    let client = RawClient::new(&weir.url("/mcp")).modern();
    measure_p99(&client, 200).await;
    let alone = measure_p99(&client, 1000).await;
    let calls = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let stormers: Vec<_> = (0..4)
        .map(|_| {
            let (client, calls) = (client.clone(), calls.clone());
            tokio::spawn(async move {
                loop {
                    let answer = client.call("flaps__tool_0000", json!({})).await.unwrap();
                    let failed = answer.result()["isError"] == json!(true);
                    calls[usize::from(failed)].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let connected = || between.connections();
    let (before, begun) = (connected(), Instant::now());
    let flapping = async {
        for _ in 0..10 {
            flaps.stop().await;
            between.reset_all();
            tokio::time::sleep(Duration::from_millis(700)).await;
            flaps.restart().await;
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    };
    let beside = async {
        (
            measure_p99(&client, 1000).await,
            measure_p99(&client, 1000).await,
        )
    };
    let ((), (first, second)) = tokio::join!(flapping, beside);
    let (took, attempts) = (begun.elapsed(), connected() - before);
    let [good_ones, failed] = [0, 1].map(|which| calls[which].load(Ordering::Relaxed));
    stormers.iter().for_each(tokio::task::JoinHandle::abort);
    println!(
        "{good_ones} calls went well and {failed} failed in {took:?} of flapping, over {attempts} connections"
    );
    println!(
        "p99 of a call to the neighbour: {alone:?} before, {first:?} and {second:?} meanwhile"
    );
    assert!(
        good_ones > 0 && failed > 0,
        "it served while it was there, and only then"
    );
    assert!(
        usize::try_from(attempts).unwrap() < (good_ones + failed) / 2,
        "calls do not each try it anew"
    );
    assert!(
        first.min(second) < alone * 10 + Duration::from_millis(50),
        "{first:?}, {second:?} against {alone:?}"
    );
    // Once it stays up it is used again, without a restart.
    within_test_timeout("it serves again", async {
        while client
            .call("flaps__tool_0000", json!({}))
            .await
            .unwrap()
            .result()["isError"]
            == json!(true)
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Sessions that are opened and ended leave no memory behind.
// Proves D08.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long"]
async fn sessions_that_come_and_go_leave_no_memory() {
    let (_upstream, weir) = weir_over_one().await;
    let churn = async |sessions: usize| {
        for _ in 0..sessions {
            let client = RawClient::new(&weir.url("/mcp"))
                .legacy(Revision::NEWEST_LEGACY)
                .initialize()
                .await
                .unwrap();
            assert!(client.delete().await.unwrap().status.is_success());
        }
    };
    churn(2000).await;
    let warm = weir.memory();
    churn(10_000).await;
    let after = weir.memory();
    println!(
        "{} KiB after 2,000 sessions, {} KiB after 12,000",
        warm / 1024,
        after / 1024
    );
    assert!(after < warm + (8 << 20), "{after} bytes against {warm}");
    assert!(
        weir.get_admin_page("/metrics")
            .lines()
            .any(|line| line.starts_with("weir_sessions") && line.ends_with(" 0"))
    );
}

/// The number of sessions that are never ended.
const ABANDONED_SESSIONS: usize = 1_000_000;
/// One in this many has a session of its own at the upstream, and a GET stream that its client
/// drops.
const HOLDING: usize = 100;

/// Clients that leave silently: their sessions expire, tens of thousands in one sweep, with
/// everything that they held.
// Proves D08.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn a_million_abandoned_sessions_leave_nothing() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tools(1)
        .start()
        .await;
    let weir = Arc::new(Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url(), "limits": { "sessions": 10_000 } } },
        "limits": { "session_idle": "1s" },
    })));
    let next = Arc::new(AtomicUsize::new(0));
    let abandon = async |sessions: usize| {
        let mut clients = tokio::task::JoinSet::new();
        next.store(0, Ordering::Relaxed);
        for _ in 0..32 {
            let (weir, next) = (weir.clone(), next.clone());
            clients.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= sessions {
                        return;
                    }
                    let client = RawClient::new(&weir.url("/mcp")).legacy(Revision::NEWEST_LEGACY);
                    let asks = if number % HOLDING == 0 {
                        json!({ "elicitation": {} })
                    } else {
                        json!({})
                    };
                    let (client, _) = client.initialize_with(asks).await.unwrap();
                    if number % HOLDING == 0 {
                        assert_eq!(
                            client
                                .call("one__tool_0000", json!({}))
                                .await
                                .unwrap()
                                .status
                                .as_u16(),
                            200
                        );
                        drop(client.get_stream().await.unwrap());
                    }
                }
            });
        }
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
        wait_until("every session to expire", || {
            (weir.metric("weir_sessions", &[]) == 0.0).then_some(())
        });
        // The sessions of the listen streams stay.
        wait_until("sessions of the upstream to end", || {
            (weir.metric("weir_upstream_sessions", &[]) <= 2.0).then_some(())
        });
    };
    abandon(ABANDONED_SESSIONS / 10).await;
    let warm = weir.memory();
    abandon(ABANDONED_SESSIONS).await;
    // The allocator gives the memory of a wave back in the seconds after it.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut after = weir.memory();
    while after >= warm + warm / 5 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_secs(1)).await;
        after = weir.memory();
    }
    println!(
        "{} KiB after {} abandoned sessions, {} KiB after {ABANDONED_SESSIONS} more",
        warm / 1024,
        ABANDONED_SESSIONS / 10,
        after / 1024
    );
    assert!(after < warm + warm / 5, "{after} bytes against {warm}");
}

/// A list comes from memory: an upstream that never answers does not make it slower.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn t5b_a_hanging_upstream_costs_a_list_nothing() {
    let good = MockServer::modern().tools(50).start().await;
    let hanging = MockServer::modern()
        .tools(1)
        .with_rule("*", weir_testkit::MockBehaviour::hang())
        .start()
        .await;
    let time = async |weir: &Weir| {
        let client = RawClient::new(&weir.url("/mcp")).modern();
        let mut times = Vec::new();
        for _ in 0..500 {
            let begun = Instant::now();
            assert_eq!(client.list_tools().await.unwrap().len(), 50);
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        times[times.len() / 2]
    };
    let without = time(&Weir::with_upstreams(
        json!({ "good": { "url": good.url() } }),
    ))
    .await;
    let with = time(&Weir::with_upstreams(
        json!({ "good": { "url": good.url() }, "hanging": { "url": hanging.url() } }),
    ))
    .await;
    println!("median of a list: {without:?} without, {with:?} with a hanging upstream");
    assert!(
        with < without * 5 + Duration::from_millis(20),
        "{with:?} against {without:?}"
    );
}

/// The times of many clients during a period, each of which calls as soon as it has its answer.
struct LoadTimes {
    made: Vec<Duration>,
    refused: Vec<Duration>,
}

impl LoadTimes {
    async fn of(client: &RawClient, clients: usize, time: Duration) -> Self {
        let end = Instant::now() + time;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..clients {
            let client = client.clone();
            tasks.spawn(async move {
                let mut load = Self {
                    made: Vec::new(),
                    refused: Vec::new(),
                };
                while Instant::now() < end {
                    let begun = Instant::now();
                    let answer = client
                        .call("one__tool_0000", json!({ "n": 1 }))
                        .await
                        .unwrap();
                    match answer.status.as_u16() {
                        200 => load.made.push(begun.elapsed()),
                        503 => load.refused.push(begun.elapsed()),
                        other => panic!("{other}"),
                    }
                }
                load
            });
        }
        let mut all = Self {
            made: Vec::new(),
            refused: Vec::new(),
        };
        while let Some(load) = tasks.join_next().await {
            let load = load.unwrap();
            all.made.extend(load.made);
            all.refused.extend(load.refused);
        }
        all.made.sort_unstable();
        all.refused.sort_unstable();
        all
    }

    /// Returns the 99th percentile.
    fn slow(times: &[Duration]) -> Duration {
        times
            .get(times.len() * 99 / 100)
            .copied()
            .unwrap_or_default()
    }
}

/// The permits for requests, for the test of load shedding.
const PERMITS: usize = 16;

/// Four times as many clients as permits: some calls are refused, no refused call reaches the
/// upstream, and afterwards the throughput recovers. The throughput during the overload needs
/// clients on a processor of their own: the part `overload` of the benchmarks measures it.
// Proves F11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn overload_is_refused_before_the_upstream_and_throughput_recovers() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url() } },
        // With the default wait each of these clients would get its turn in time.
        "limits": { "in_flight": PERMITS, "in_flight_wait": "0ms" },
    }));
    let client = RawClient::new(&weir.url("/mcp")).modern();
    measure_p99(&client, 500).await;
    let time = Duration::from_secs(5);
    let peak = LoadTimes::of(&client, PERMITS, time).await;
    let over = LoadTimes::of(&client, PERMITS * 4, time).await;
    let after = LoadTimes::of(&client, PERMITS, time).await;
    for (what, load) in [
        ("as many as places", &peak),
        ("four times as many", &over),
        ("afterwards", &after),
    ] {
        let (made, refused) = (LoadTimes::slow(&load.made), LoadTimes::slow(&load.refused));
        println!(
            "{what}: {} made (p99 {made:?}), {} refused (p99 {refused:?})",
            load.made.len(),
            load.refused.len()
        );
    }
    assert!(!over.refused.is_empty());
    assert!(
        after.made.len() * 2 > peak.made.len(),
        "{} of {}: it did not recover",
        after.made.len(),
        peak.made.len()
    );
    assert_eq!(
        upstream.total_executions(),
        500 + peak.made.len() + over.made.len() + after.made.len()
    );
}

//! One client floods, the others work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_testkit::RawClient;

use super::{from, weir_with};
use crate::harness::measure_p99;

/// The rate of the flooding client: its burst, and its calls a second.
const RATE: u32 = 50;

/// Calls at this many times the rate until `stop` is set; returns the numbers of admitted and
/// refused calls, and the time.
async fn flood(client: RawClient, times: u32, stop: Arc<AtomicBool>) -> (usize, usize, Duration) {
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut tick = tokio::time::interval(Duration::from_secs(1) / (RATE * times));
    let mut calls = tokio::task::JoinSet::new();
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        tick.tick().await;
        let (client, counts) = (client.clone(), counts.clone());
        calls.spawn(async move {
            let answer = client.call("one__tool_0001", json!({})).await.unwrap();
            assert!(
                [200, 429].contains(&answer.status.as_u16()),
                "{}",
                answer.status
            );
            counts[usize::from(answer.status == 429)].fetch_add(1, Ordering::Relaxed);
        });
        while calls.try_join_next().is_some() {}
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    let count = |at: usize| counts[at].load(Ordering::Relaxed);
    (count(0), count(1), begun.elapsed())
}

// Proves F12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn at_ten_times_its_rate_one_gets_429s_and_the_others_keep_their_pace() {
    let (_upstream, weir) = weir_with(json!({ "address": { "rate": format!("{RATE}/s") } })).await;
    // The working client's own rate must not limit the measurement.
    let (abuser, worker) = (
        from(&weir, "203.0.113.7"),
        RawClient::new(&weir.url("/mcp")).modern(),
    );
    measure_p99(&worker, 300).await;
    let alone = measure_p99(&worker, 2000).await;
    let mut beside = Vec::new();
    for times in [1, 10] {
        let enough = Arc::new(AtomicBool::new(false));
        let flooding = tokio::spawn(flood(abuser.clone(), times, enough.clone()));
        beside.push(measure_p99(&worker, 2000).await);
        enough.store(true, Ordering::Relaxed);
        let (admitted, refused, took) = flooding.await.unwrap();
        println!("at {times} times its rate: {admitted} let in, {refused} refused in {took:?}");
        // The bucket may have been full at the beginning.
        let most = f64::from(RATE) * (1.0 + took.as_secs_f64());
        assert!(admitted as f64 <= most, "{admitted} let in in {took:?}");
        assert!(
            times == 1 || refused > admitted,
            "{refused} refused, {admitted} let in"
        );
    }
    let [within, above] = [beside[0], beside[1]];
    let ratio = |base: Duration| above.as_secs_f64() / base.as_secs_f64();
    println!(
        "p99 of another's call: {alone:?} alone, {within:?} beside one at its rate, {above:?} beside one at 10 times that: \
         ratio {:.2} and {:.2}",
        ratio(alone),
        ratio(within)
    );
    assert!(
        above < alone * 10 + Duration::from_millis(50),
        "{above:?} against {alone:?}"
    );
}

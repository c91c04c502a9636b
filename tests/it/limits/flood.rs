//! One floods, the others work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_testkit::RawClient;

use super::{from, weir_with};

/// What the flooding one may, and at how many times that it comes.
const RATE: u32 = 50;
const TIMES: u32 = 10;

/// The 99th percentile of so many calls, one after the other, none of which is refused.
async fn p99(client: &RawClient, calls: usize) -> Duration {
    let mut times = Vec::with_capacity(calls);
    for number in 0..calls {
        let begun = Instant::now();
        let answer = client.call("one__tool_0000", json!({ "n": number })).await.unwrap();
        times.push(begun.elapsed());
        assert_eq!(answer.text(), format!(r#"{{"n":{number}}}"#));
    }
    times.sort_unstable();
    times[calls * 99 / 100]
}

/// Comes at ten times the rate until told to stop; gives how many were let in and how many refused, and for how long.
async fn flood(client: RawClient, stop: Arc<AtomicBool>) -> (usize, usize, Duration) {
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut tick = tokio::time::interval(Duration::from_secs(1) / (RATE * TIMES));
    let mut calls = tokio::task::JoinSet::new();
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        tick.tick().await;
        let (client, counts) = (client.clone(), counts.clone());
        calls.spawn(async move {
            let answer = client.call("one__tool_0001", json!({})).await.unwrap();
            assert!([200, 429].contains(&answer.status.as_u16()), "{}", answer.status);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn f12_at_ten_times_its_rate_one_gets_429s_and_the_others_keep_their_pace() {
    let (_upstream, weir) = weir_with(json!({ "address": { "rate": format!("{RATE}/s") } })).await;
    // The working client's rate is not what is measured.
    let (abuser, worker) = (from(&weir, "203.0.113.7"), RawClient::new(&weir.url("/mcp")).modern());
    p99(&worker, 300).await;
    let alone = p99(&worker, 2000).await;
    let enough = Arc::new(AtomicBool::new(false));
    let flooding = tokio::spawn(flood(abuser, enough.clone()));
    let beside = p99(&worker, 2000).await;
    enough.store(true, Ordering::Relaxed);
    let (admitted, refused, took) = flooding.await.unwrap();
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    println!(
        "p99 of a call: {alone:?} alone, {beside:?} beside a flood of {TIMES} times its rate: ratio {ratio:.2}; \
         the flood: {admitted} in, {refused} refused in {took:?}"
    );
    assert!(refused > admitted, "{refused} refused, {admitted} let in");
    assert!(beside < alone * 10 + Duration::from_millis(50), "{beside:?} against {alone:?}");
}

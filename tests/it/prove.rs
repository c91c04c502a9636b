//! What takes long or measures time: left out by default, run by `cargo xtask prove` on a release build, one at a time.
//! Two things are compared within one run; no absolute time is asserted but bounds far above any noise.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use weir_testkit::{Mockup, RawClient};
use weir_wire::Revision;

use crate::harness::Weir;

/// The 99th percentile of so many calls, one after the other.
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

async fn weir_over_one() -> (Mockup, Weir) {
    let upstream = Mockup::modern().tools(1).start().await;
    let weir = Weir::over(json!({ "one": { "url": upstream.url() } }));
    (upstream, weir)
}

/// Connections that send a head one byte at a time cost their own patience and nobody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn a01_a02_slow_heads_do_not_slow_others() {
    let (_upstream, weir) = weir_over_one().await;
    let client = RawClient::new(&weir.url("/mcp")).modern();
    p99(&client, 200).await;
    let alone = p99(&client, 1000).await;
    let address = weir.url("").replace("http://", "");
    let mut slow = Vec::new();
    for _ in 0..2000 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"POST /mcp HT").await.unwrap();
        slow.push(stream);
    }
    let beside = p99(&client, 1000).await;
    println!("p99 of a call: {alone:?} alone, {beside:?} beside 2,000 slow heads");
    assert!(beside < alone * 10 + Duration::from_millis(50), "{beside:?} against {alone:?}");
    // Each is closed once its time is over.
    for mut stream in slow {
        let mut rest = Vec::new();
        let closed = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest);
        tokio::time::timeout(Duration::from_secs(60), closed).await.unwrap().ok();
    }
}

/// Sessions that are opened and ended leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long"]
async fn d08_sessions_that_come_and_go_leave_no_memory() {
    let (_upstream, weir) = weir_over_one().await;
    let churn = async |sessions: usize| {
        for _ in 0..sessions {
            let client = RawClient::new(&weir.url("/mcp")).legacy(Revision::NEWEST_LEGACY).initialize().await.unwrap();
            assert!(client.delete().await.unwrap().status.is_success());
        }
    };
    churn(2000).await;
    let warm = weir.memory();
    churn(10_000).await;
    let after = weir.memory();
    println!("{} KiB after 2,000 sessions, {} KiB after 12,000", warm / 1024, after / 1024);
    assert!(after < warm + (8 << 20), "{after} bytes against {warm}");
    assert!(weir.admin("/metrics").lines().any(|line| line.starts_with("weir_sessions") && line.ends_with(" 0")));
}

/// A list comes from memory: an upstream that never answers does not make it slower.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures time"]
async fn t5b_a_hanging_upstream_costs_a_list_nothing() {
    let good = Mockup::modern().tools(50).start().await;
    let hanging = Mockup::modern().tools(1).on("*", weir_testkit::Behaviour::hang()).start().await;
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
    let without = time(&Weir::over(json!({ "good": { "url": good.url() } }))).await;
    let with = time(&Weir::over(json!({ "good": { "url": good.url() }, "hanging": { "url": hanging.url() } }))).await;
    println!("median of a list: {without:?} without, {with:?} with a hanging upstream");
    assert!(with < without * 5 + Duration::from_millis(20), "{with:?} against {without:?}");
}

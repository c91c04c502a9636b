//! The shared parts of the scenarios: the weir process, foreign processes, clients of every
//! revision, and waits for conditions instead of blind sleeps.

mod browser;
mod bystander;
mod checked_client;
mod client_driver;
mod foreign_peers;
mod gated_call;
mod listening_ports;
mod parked_call;
mod replicas;
mod seeded_random;
mod sse_client;
mod test_process;
mod weir_process;

pub use browser::render_page;
pub use bystander::Bystander;
pub use checked_client::{CheckedClient, CheckedStream, check_message, within_test_timeout};
pub use foreign_peers::{
    DriverEvents, ForeignClient, ForeignServer, inspector, inspector_of_command, node_peer_command,
    peers_are_enabled, python_peer_command,
};
pub use gated_call::{begin_gated_call, resume_to_end};
pub use listening_ports::listening_ports_of_process;
pub use parked_call::retry_params;
pub use replicas::{Replicas, WeirDeployment, sealing_keys};
pub use seeded_random::SplitMixRandom;
pub use sse_client::SseClient;
pub use test_process::{TestProcess, signal};
pub use weir_process::{Weir, peers, weir_binary};

use std::time::{Duration, Instant};

use serde_json::json;
use weir_testkit::RawClient;

/// The time after which a test gives up waiting. It is far above the time that any step takes on a
/// busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Repeats `attempt` until it returns a value.
///
/// # Panics
///
/// After [`TEST_TIMEOUT`].
pub fn wait_until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "waited in vain for {what}");
        // A poll of another process: there is no event to wait on.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the 99th percentile of the times of this many calls, one after another, each of which
/// must succeed.
pub async fn measure_p99(client: &RawClient, calls: usize) -> Duration {
    let mut times = Vec::with_capacity(calls);
    for number in 0..calls {
        let begun = Instant::now();
        let answer = client
            .call("one__tool_0000", json!({ "n": number }))
            .await
            .unwrap();
        times.push(begun.elapsed());
        assert_eq!(answer.text(), format!(r#"{{"n":{number}}}"#));
    }
    times.sort_unstable();
    times[calls * 99 / 100]
}

/// Does the same as [`wait_until`] for an attempt that waits itself.
///
/// # Panics
///
/// After [`TEST_TIMEOUT`].
pub async fn wait_until_async<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = attempt().await {
            return done;
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

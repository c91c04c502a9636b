//! What the scenarios share: the weir process, foreign processes, clients of every revision, and
//! how to wait for things without sleeping blindly.

mod browser;
mod checked;
mod driver;
mod foreign;
mod ports;
mod process;
mod watch;
mod weir;

pub use browser::browse;
pub use checked::{Checked, Stream, hold, soon};
pub use foreign::{
    Client, Seen, Server, inspector, inspector_of_command, needs_peers, peer_command,
    python_command,
};
pub use process::{Process, signal};
pub use watch::Bystander;
pub use weir::{Weir, binary, fresh_path, peers};

use std::time::{Duration, Instant};

use serde_json::json;
use weir_testkit::RawClient;

/// How long anything may take before a test gives up. Far above what it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Tries until `attempt` gives something.
///
/// # Panics
/// After [`PATIENCE`].
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        // A poll of another process: there is no event to wait on.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The 99th percentile of so many calls, one after the other, each of which has to be answered
/// well.
pub async fn p99(client: &RawClient, calls: usize) -> Duration {
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

/// The same as [`until`] for an attempt that waits itself.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn until_it<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = attempt().await {
            return done;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

//! The shared parts of the scenarios: the weir process, foreign processes, clients of every
//! revision, and waits for conditions instead of blind sleeps.

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

/// The time after which a test gives up waiting. It is far above the time that any step takes on a
/// busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats `attempt` until it returns a value.
///
/// # Panics
///
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

/// Returns the 99th percentile of the times of this many calls, one after another, each of which
/// must succeed.
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

/// Does the same as [`until`] for an attempt that waits itself.
///
/// # Panics
///
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

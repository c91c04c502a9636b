//! Callers that make one call after the other over one connection, and the times of their calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;
use weir_testkit::RawClient;

/// A caller with a thread of its own, so that callers do not wait for each other.
pub(super) struct TimedCaller {
    name: &'static str,
    is_over: Arc<AtomicBool>,
    calling: JoinHandle<Vec<TimedCall>>,
}

/// One call, its status, and if its result is no error.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedCall {
    pub(super) begun: Instant,
    pub(super) taken: Duration,
    pub(super) status: u16,
    pub(super) is_admitted: bool,
}

impl TimedCaller {
    /// Starts a caller of a tool that returns its arguments, with a pause between its calls.
    pub(super) fn start(
        name: &'static str,
        client: RawClient,
        tool: &'static str,
        pause: Duration,
    ) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let until = is_over.clone();
        let calling = std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            runtime.block_on(call_until(client, tool, pause, &until))
        });
        Self {
            name,
            is_over,
            calling,
        }
    }

    /// Stops the caller after its present call. Returns its name and its calls.
    pub(super) fn stop(self) -> (&'static str, Vec<TimedCall>) {
        self.is_over.store(true, Ordering::Relaxed);
        let calls = self.calling.join();
        (self.name, calls.expect("each call is answered"))
    }
}

async fn call_until(
    client: RawClient,
    tool: &str,
    pause: Duration,
    is_over: &AtomicBool,
) -> Vec<TimedCall> {
    let mut calls = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let answer = client.call(tool, json!({})).await;
        let answer = answer.expect("the call is answered");
        let taken = begun.elapsed();
        let status = answer.status.as_u16();
        let is_admitted = status == 200 && answer.result()["isError"] != json!(true);
        if is_admitted {
            assert_eq!(answer.text(), "{}");
        }
        calls.push(TimedCall {
            begun,
            taken,
            status,
            is_admitted,
        });
        sleep(pause).await;
    }
    calls
}

/// The share of calls, in percent, that took at most the returned time.
pub(super) fn percentile(calls: &[TimedCall], share: usize) -> Duration {
    let mut times: Vec<_> = calls.iter().map(|call| call.taken).collect();
    times.sort_unstable();
    let at = times.len().saturating_sub(1) * share / 100;
    times.get(at).copied().unwrap_or_default()
}

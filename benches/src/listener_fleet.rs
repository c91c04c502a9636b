//! Thousands of listening clients in a process of their own, because a process may open only so
//! many files.
//!
//! It takes commands by lines (`open N`, `arm`, `wait MILLIS`) and answers each with one line of
//! JSON. Times are microseconds since 1970, the clock it shares with the run that started it.

use crate::listener::StreamListener;
use crate::machine::unix_micros;
use crate::process::commands;
use crate::protocol::Era;
use anyhow::{Context as _, Result, bail};
use futures_util::{StreamExt as _, stream};
use http::Uri;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The count of streams that are opened at a time.
const MAX_OPENING_STREAMS: usize = 128;

/// The server to listen to.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FleetTarget {
    /// Address to connect to.
    #[arg(long)]
    pub(crate) addr: SocketAddr,
    /// Path of the MCP endpoint.
    #[arg(long)]
    pub(crate) path: Uri,
    /// Era: modern or legacy.
    #[arg(long)]
    pub(crate) era: String,
}

/// The report of the fleet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FleetReport {
    /// Streams open now.
    pub(crate) open: usize,
    /// Streams that did not open, ended, or sent a wrong message.
    pub(crate) broken: usize,
    /// Streams that were notified of a change since `arm`.
    pub(crate) told: usize,
    /// Notifications beyond one a stream since `arm`.
    pub(crate) extra: usize,
    /// The time at which half of them were notified.
    pub(crate) p50_at: u64,
    /// The time at which 99 of 100 were notified.
    pub(crate) p99_at: u64,
    /// The time at which the last one was notified.
    pub(crate) last_at: u64,
    /// The first error.
    pub(crate) error: Option<String>,
}

#[derive(Default)]
struct FleetLog {
    inner: Mutex<FleetState>,
    progress: Notify,
}

#[derive(Default)]
struct FleetState {
    now: FleetReport,
    /// Per stream: true if it was notified since `arm`.
    heard: Vec<bool>,
    /// The time of each stream's notification, in order of arrival.
    arrivals: Vec<u64>,
}

/// Serves commands until standard input ends.
///
/// # Errors
/// An unknown command.
pub(crate) async fn serve(target: FleetTarget) -> Result<()> {
    let era = Era::from_word(&target.era).context("era is modern or legacy")?;
    let log = Arc::new(FleetLog::default());
    let mut commands = commands();
    while let Some(line) = commands.recv().await {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("open", count) => open(&log, &target, era, count.parse()?).await,
            ("arm", _) => log.arm(),
            ("wait", millis) => {
                log.wait_for_all(Duration::from_millis(millis.parse()?))
                    .await
            }
            _ => bail!("unknown command {line}"),
        }
        println!("{}", serde_json::to_string(&log.report())?);
    }
    Ok(())
}

/// Opens `count` more streams and starts a task that reads each.
async fn open(log: &Arc<FleetLog>, target: &FleetTarget, era: Era, count: usize) {
    let first = log.inner.lock().heard.len();
    log.inner.lock().heard.resize(first + count, false);
    let opening = stream::iter(first..first + count).map(|index| async move {
        let opened = StreamListener::open(target.addr, &target.path, era, index as u64 + 1);
        let opened = timeout(Duration::from_secs(20), opened)
            .await
            .context("not open after 20 s");
        (index, opened.and_then(|listener| listener))
    });
    let mut opening = std::pin::pin!(opening.buffer_unordered(MAX_OPENING_STREAMS));
    while let Some((index, opened)) = opening.next().await {
        match opened {
            Ok(listener) => {
                log.inner.lock().now.open += 1;
                // Owned by this process, which has no other work and ends with its standard input.
                tokio::spawn(follow(Arc::clone(log), listener, index));
            }
            Err(error) => log.broken(&error),
        }
    }
}

async fn follow(log: Arc<FleetLog>, mut listener: StreamListener, index: usize) {
    loop {
        match listener.read().await {
            Ok(0) => {}
            Ok(changes) => log.record_changes(index, changes),
            Err(error) => {
                log.inner.lock().now.open -= 1;
                log.broken(&error);
                return;
            }
        }
    }
}

impl FleetLog {
    fn arm(&self) {
        let mut inner = self.inner.lock();
        inner.heard.fill(false);
        inner.arrivals.clear();
        inner.now.extra = 0;
    }

    fn record_changes(&self, index: usize, changes: usize) {
        let mut inner = self.inner.lock();
        let first = !std::mem::replace(&mut inner.heard[index], true);
        inner.now.extra += changes - usize::from(first);
        if first {
            inner.arrivals.push(unix_micros());
            if inner.arrivals.len() >= inner.now.open {
                self.progress.notify_one();
            }
        }
    }

    fn broken(&self, error: &anyhow::Error) {
        let mut inner = self.inner.lock();
        inner.now.broken += 1;
        inner.now.error.get_or_insert_with(|| format!("{error:#}"));
        self.progress.notify_one();
    }

    /// Waits until every open stream was notified, at most `limit`.
    async fn wait_for_all(&self, limit: Duration) {
        let all = async {
            while {
                let inner = self.inner.lock();
                inner.arrivals.len() < inner.now.open
            } {
                self.progress.notified().await;
            }
        };
        // The report shows streams without a notification.
        let _ = timeout(limit, all).await;
    }

    fn report(&self) -> FleetReport {
        let inner = self.inner.lock();
        let mut arrivals = inner.arrivals.clone();
        arrivals.sort_unstable();
        let told = arrivals.len();
        let at = |percent: usize| {
            arrivals
                .get((told * percent).div_ceil(100).saturating_sub(1))
                .copied()
                .unwrap_or(0)
        };
        FleetReport {
            told,
            p50_at: at(50),
            p99_at: at(99),
            last_at: at(100),
            ..inner.now.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[tokio::test]
    async fn a_second_notification_is_extra_and_arming_forgets() {
        let log = FleetLog::default();
        log.inner.lock().heard = vec![false; 2];
        log.inner.lock().now.open = 2;
        log.record_changes(0, 1);
        log.record_changes(0, 1);
        log.record_changes(1, 3);
        log.wait_for_all(Duration::from_secs(60)).await;
        let told = log.report();
        assert_eq!((told.told, told.extra, told.open), (2, 3, 2));
        assert!(told.p50_at <= told.p99_at && told.p99_at <= told.last_at);
        log.arm();
        let told = log.report();
        assert_eq!((told.told, told.extra, told.last_at), (0, 0, 0));
    }

    #[tokio::test]
    async fn unnotified_stream_does_not_block_the_run() {
        let log = FleetLog::default();
        log.inner.lock().heard = vec![false; 2];
        log.inner.lock().now.open = 2;
        log.record_changes(0, 1);
        log.wait_for_all(Duration::ZERO).await;
        assert_eq!(log.report().told, 1);
    }
}

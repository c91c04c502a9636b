//! A group of clients that call as fast as they are answered, for the length of a round.
//!
//! Closed loop: each client has one call in flight. A round therefore reports throughput at a
//! concurrency, and latency under exactly that load.

use crate::client::{LoadClient, ToolAddress};
use crate::process::ChildProcess;
use crate::protocol::Era;
use crate::settings::RunSettings;
use crate::stats::{LatencyHistogram, RoundFigures, median};
use anyhow::{Context as _, Result, anyhow};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The most time after its round that a client may wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The count of errors after which a client stops for the rest of a round.
const MAX_WORKER_ERRORS: u64 = 5;
/// The count of calls after which a client ends its round early: far above the count that a round
/// can hold.
const MAX_ROUND_CALLS: u64 = 10_000_000;

/// The work of a group: the called tools and their clients.
#[derive(Clone, Debug)]
pub(crate) struct LoadWork {
    /// The tools, called in turn; each client starts at another one.
    pub(crate) sites: Arc<[ToolAddress]>,
    pub(crate) era: Era,
    /// Legacy sessions of each client, used in turn.
    pub(crate) sessions: usize,
    /// Bytes of the message that is echoed.
    pub(crate) payload: usize,
}

/// The connected clients.
#[derive(Debug)]
pub(crate) struct ClientGroup {
    work: LoadWork,
    workers: Vec<LoadWorker>,
}

/// A round and its first error.
#[derive(Debug)]
pub(crate) struct RoundOutcome {
    pub(crate) round: RoundFigures,
    pub(crate) error: Option<String>,
}

/// One target of calls in turns, and its measured rounds.
#[derive(Debug)]
pub(crate) struct TargetLane<'a> {
    crew: ClientGroup,
    process: &'a ChildProcess,
    pub(crate) rounds: Vec<RoundFigures>,
    /// The first error, during the warm-up or later.
    pub(crate) error: Option<String>,
}

#[derive(Debug)]
struct LoadWorker {
    client: Option<LoadClient>,
    turn: usize,
    sent: u64,
    number: usize,
    errors: u64,
    error: Option<String>,
}

impl ClientGroup {
    /// Connects `size` clients, legacy ones with a session each.
    ///
    /// # Errors
    /// A client that does not connect.
    pub(crate) async fn open(work: LoadWork, size: usize) -> Result<Self> {
        let mut workers = Vec::with_capacity(size);
        for number in 0..size {
            let client = connect(&work).await?;
            workers.push(LoadWorker {
                client: Some(client),
                turn: number,
                sent: 0,
                number,
                errors: 0,
                error: None,
            });
        }
        Ok(Self { work, workers })
    }

    /// Calls for `length`; CPU time is counted for `process`.
    ///
    /// # Errors
    /// The process has ended. A wrong or missing answer is counted and no error here.
    pub(crate) async fn round(
        &mut self,
        length: Duration,
        process: &ChildProcess,
    ) -> Result<RoundOutcome> {
        let latencies = LatencyHistogram::new();
        let cpu = process.cpu_nanos()?;
        let start = Instant::now();
        let mut working = JoinSet::new();
        for worker in self.workers.drain(..) {
            working.spawn(worker.work(self.work.clone(), latencies.clone(), start + length));
        }
        while let Some(worker) = working.join_next().await {
            self.workers.push(worker?);
        }
        let elapsed = start.elapsed();
        let cpu = process.cpu_nanos()?.saturating_sub(cpu);
        let errors = self
            .workers
            .iter_mut()
            .map(|worker| std::mem::take(&mut worker.errors))
            .sum();
        let error = self
            .workers
            .iter_mut()
            .filter_map(|worker| worker.error.take())
            .last();
        Ok(RoundOutcome {
            round: latencies.round(elapsed, cpu, errors),
            error,
        })
    }

    /// Calls once in each session of every client.
    ///
    /// # Errors
    /// A wrong or missing answer.
    pub(crate) async fn call_in_each_session(&mut self) -> Result<()> {
        let mut working = JoinSet::new();
        for mut worker in self.workers.drain(..) {
            let work = self.work.clone();
            working.spawn(async move {
                for _ in 0..work.sessions {
                    timeout(ANSWER_TIMEOUT, worker.one_call(&work))
                        .await
                        .context("no answer")??;
                }
                anyhow::Ok(worker)
            });
        }
        while let Some(worker) = working.join_next().await {
            self.workers.push(worker??);
        }
        Ok(())
    }

    /// Ends the last used session of each client, and closes the connections.
    ///
    /// # Errors
    /// A session that does not end.
    pub(crate) async fn close(self) -> Result<()> {
        for client in self.workers.into_iter().filter_map(|worker| worker.client) {
            timeout(ANSWER_TIMEOUT, client.close())
                .await
                .context("a session does not end")??;
        }
        Ok(())
    }
}

impl<'a> TargetLane<'a> {
    /// A lane of connected clients; CPU time is counted for `process`.
    pub(crate) fn new(crew: ClientGroup, process: &'a ChildProcess) -> Self {
        Self {
            crew,
            process,
            rounds: Vec::new(),
            error: None,
        }
    }

    /// The medians of its rounds. An error of the warm-up counts as an error too.
    pub(crate) fn medians(&self) -> RoundFigures {
        let mut medians = RoundFigures::medians(&self.rounds);
        medians.errors = medians.errors.max(u64::from(self.error.is_some()));
        medians
    }

    /// The median of `compare` over this lane and another in the same round; no value without
    /// comparable rounds.
    pub(crate) fn against(
        &self,
        other: &Self,
        compare: fn(&RoundFigures, &RoundFigures) -> f64,
    ) -> Option<f64> {
        let both = self
            .rounds
            .iter()
            .zip(&other.rounds)
            .filter(|(ours, theirs)| ours.calls > 0 && theirs.calls > 0);
        let compared: Vec<f64> = both.map(|(ours, theirs)| compare(ours, theirs)).collect();
        (!compared.is_empty()).then(|| median(compared))
    }

    /// Ends its sessions.
    ///
    /// # Errors
    /// A session that does not end.
    pub(crate) async fn close(self) -> Result<()> {
        self.crew.close().await
    }

    async fn round(&mut self, length: Duration) -> Result<RoundFigures> {
        let RoundOutcome { round, error } = self.crew.round(length, self.process).await?;
        self.error = self.error.take().or(error);
        Ok(round)
    }
}

/// Calls all lanes in turns, with the count and length of rounds from the settings.
///
/// # Errors
/// A process has ended.
pub(crate) async fn run_in_turns(
    lanes: &mut [TargetLane<'_>],
    settings: &RunSettings,
) -> Result<()> {
    let length = Duration::from_millis(settings.round_ms);
    for lane in &mut *lanes {
        // Connections, pools and branch predictors warm up uncounted; a wrong answer counts all the
        // same.
        lane.round(length / 4).await?;
    }
    for round in 0..settings.rounds {
        let count = lanes.len();
        for turn in 0..count {
            // Each round begins with another lane, so that no lane always follows the same one.
            let lane = &mut lanes[(turn + round) % count];
            let measured = lane.round(length).await?;
            lane.rounds.push(measured);
        }
    }
    Ok(())
}

impl LoadWorker {
    async fn work(mut self, work: LoadWork, latencies: LatencyHistogram, end: Instant) -> Self {
        let limit = end.saturating_duration_since(Instant::now()) + ANSWER_TIMEOUT;
        let calls = self.calls(&work, &latencies, end);
        if timeout(limit, calls).await.is_err() {
            self.failed(&anyhow!("no answer {ANSWER_TIMEOUT:?} after the round"));
        }
        self
    }

    async fn calls(&mut self, work: &LoadWork, latencies: &LatencyHistogram, end: Instant) {
        let last = self.sent + MAX_ROUND_CALLS;
        // At least one call, also in a round that is over before this worker begins.
        loop {
            match self.one_call(work).await {
                Ok(latency) => latencies.record(latency),
                Err(error) => self.failed(&error),
            }
            if Instant::now() >= end || self.sent >= last || self.errors >= MAX_WORKER_ERRORS {
                break;
            }
        }
    }

    async fn one_call(&mut self, work: &LoadWork) -> Result<Duration> {
        // Taken out while it is used: a call that is dropped or fails must not leave a half-used
        // connection.
        let mut client = match self.client.take() {
            Some(client) => client,
            None => connect(work).await?,
        };
        self.sent += 1;
        let site = &work.sites[self.turn % work.sites.len()];
        self.turn += 1;
        let message = message(self.number, self.sent, work.payload);
        let start = Instant::now();
        client.echo(site, &message).await?;
        let latency = start.elapsed();
        client.turn_session();
        self.client = Some(client);
        Ok(latency)
    }

    fn failed(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.error.get_or_insert_with(|| format!("{error:#}"));
    }
}

async fn connect(work: &LoadWork) -> Result<LoadClient> {
    let site = work.sites.first().context("nothing to call")?;
    let connected =
        LoadClient::connect_as(site.credential.clone(), site.addr, &site.path, work.era);
    let mut client = timeout(ANSWER_TIMEOUT, connected)
        .await
        .context("no connection")??;
    if work.era == Era::Legacy {
        client.open_sessions(work.sessions).await?;
    }
    Ok(client)
}

/// Returns a unique message, filled up to `size` bytes.
pub(crate) fn message(worker: usize, number: u64, size: usize) -> String {
    let mut message = format!("{worker}-{number}-");
    let missing = size.saturating_sub(message.len());
    message.extend(std::iter::repeat_n('x', missing));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_of_the_size_asked_for_and_differ() {
        assert_eq!(message(3, 14, 100).len(), 100);
        assert_ne!(message(1, 11, 100), message(11, 1, 100));
        assert_eq!(message(1, 2, 0), "1-2-");
    }
}

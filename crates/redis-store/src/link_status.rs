//! The state of the shared store as commands find it, with its log lines and its gauge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use parking_lot::Mutex;
use tokio::time::Instant;
use weir_core::telemetry::instruments;

use crate::server_checks::ServerRisk;

/// The least number of refused writes in a row, and the least time between the first and the last of
/// them, after which the store is of no use. A replica writes a heartbeat every two seconds, so one
/// refused kind of write alone does not last so long.
const REFUSED_WRITES: u32 = 3;
const REFUSING_TIME: Duration = Duration::from_secs(3);

/// The state of the link to the shared store. It logs changes alone.
#[derive(Debug, Default)]
pub(crate) struct LinkStatus {
    values: Mutex<StatusValues>,
    /// Writes in a row that the server refused: the time of the first, and their number.
    refused: Mutex<Option<(Instant, u32)>>,
    /// The time of the first of the rounds of session writes that failed in a row.
    rounds_failing_since: Mutex<Option<Instant>>,
    /// True if a write succeeded while those rounds failed, and none was refused since.
    is_written_meanwhile: AtomicBool,
}

/// The values of a [`LinkStatus`].
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusValues {
    /// `None` before the first answer.
    pub(crate) is_reachable: Option<bool>,
    /// The last error, kept after the store is reachable again.
    pub(crate) last_error: Option<Arc<str>>,
    /// The duration of the last command.
    pub(crate) latency: Duration,
    /// Settings of the server that endanger records.
    pub(crate) risks: Vec<ServerRisk>,
}

/// The effect of a command on the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEffect {
    /// It leaves them as they are, at least in most cases: its success proves no write.
    Reads,
    /// It removes data, or adds data in some cases only. A full server permits it then, so its success
    /// proves no write either; but its refusal counts as one of a write.
    MayWrite,
    /// It adds data, at least in most cases.
    Writes,
}

impl LinkStatus {
    /// The values now.
    pub(crate) fn values(&self) -> StatusValues {
        self.values.lock().clone()
    }

    /// Takes note of the answer to a command. Only a write proves that the store is of use: a full
    /// server, or a read-only one, still answers everything else.
    pub(crate) fn note_answer(&self, latency: Duration, effect: CommandEffect) {
        self.values.lock().latency = latency;
        if effect == CommandEffect::Writes {
            self.note_write();
        }
    }

    /// Takes note that data were added.
    pub(crate) fn note_write(&self) {
        if self.has_failing_rounds() {
            self.is_written_meanwhile.store(true, Ordering::Relaxed);
            return;
        }
        let before = self.values.lock().is_reachable.replace(true);
        self.refused.lock().take();
        if before != Some(true) {
            instruments().store_up.record(1, &[]);
        }
        if before == Some(false) {
            tracing::info!("shared store reachable again");
        }
    }

    /// Takes note of a failed command.
    pub(crate) fn note_failure(&self, error: &str) {
        self.values.lock().last_error = Some(error.into());
    }

    /// Takes note of a write that the server refused. Answers to reads do not end a row of them: a full
    /// server gives those.
    pub(crate) fn note_refused_write(&self, error: &str) {
        self.is_written_meanwhile.store(false, Ordering::Relaxed);
        let (since, count) = {
            let mut refused = self.refused.lock();
            let row = refused.get_or_insert_with(|| (Instant::now(), 0));
            row.1 = row.1.saturating_add(1);
            *row
        };
        if count >= REFUSED_WRITES && since.elapsed() >= REFUSING_TIME {
            self.note_unreachable(error);
        }
    }

    /// Takes note of a round of session writes. One node of a cluster may refuse them, or be missing,
    /// while the heartbeats reach another one.
    pub(crate) fn note_round(&self, has_failures: bool) {
        if has_failures {
            self.rounds_failing_since
                .lock()
                .get_or_insert_with(Instant::now);
            if self.has_failing_rounds() {
                self.note_unreachable(&self.values().last_error.unwrap_or_default());
            }
            return;
        }
        self.rounds_failing_since.lock().take();
        // The sessions whose writes failed may also have ended.
        if self.is_written_meanwhile.swap(false, Ordering::Relaxed) {
            self.note_write();
        }
    }

    /// Reports if the rounds of session writes have failed for a while.
    fn has_failing_rounds(&self) -> bool {
        let since = self.rounds_failing_since.lock();
        since.is_some_and(|since| since.elapsed() >= REFUSING_TIME)
    }

    /// Takes note that the store does not answer, or refuses writes.
    pub(crate) fn note_unreachable(&self, error: &str) {
        let before = {
            let mut values = self.values.lock();
            values.last_error = Some(error.into());
            values.is_reachable.replace(false)
        };
        if before != Some(false) {
            instruments().store_up.record(0, &[]);
            tracing::warn!(error, "shared store unreachable");
        }
    }

    /// Takes note of settings of the server that endanger records. Each is logged once.
    pub(crate) fn note_risks(&self, risks: &[ServerRisk]) {
        let known = std::mem::replace(&mut self.values.lock().risks, risks.to_vec());
        for risk in risks.iter().filter(|risk| !known.contains(risk)) {
            tracing::warn!(reason = risk.text(), "shared store may lose sessions");
        }
        for risk in ServerRisk::ALL {
            let has = u64::from(risks.contains(&risk));
            let setting = KeyValue::new("setting", risk.setting());
            instruments().store_risks.record(has, &[setting]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refuse_for(status: &LinkStatus, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() <= until {
            status.note_refused_write("OOM");
            tokio::time::advance(Duration::from_millis(500)).await;
            status.note_answer(Duration::ZERO, CommandEffect::Reads);
            status.note_answer(Duration::ZERO, CommandEffect::MayWrite);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refused_writes_in_a_row_are_an_outage_though_reads_are_answered() {
        let status = LinkStatus::default();
        status.note_answer(Duration::ZERO, CommandEffect::Writes);
        refuse_for(&status, REFUSING_TIME).await;
        assert_eq!(status.values().is_reachable, Some(false));
        assert_eq!(status.values().last_error.as_deref(), Some("OOM"));
        status.note_answer(Duration::ZERO, CommandEffect::Writes);
        assert_eq!(status.values().is_reachable, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn rounds_of_session_writes_that_fail_are_an_outage_though_heartbeats_are_written() {
        let status = LinkStatus::default();
        let beat = || {
            status.note_answer(Duration::ZERO, CommandEffect::Writes);
            status.values().is_reachable
        };
        status.note_round(true);
        assert_eq!(beat(), Some(true));
        tokio::time::advance(REFUSING_TIME).await;
        status.note_round(true);
        assert_eq!(beat(), Some(false));
        status.note_round(false);
        assert_eq!(status.values().is_reachable, Some(true));
        status.note_round(true);
        assert_eq!(beat(), Some(true));
        // Sessions that end while the server is full are no proof of writes.
        tokio::time::advance(REFUSING_TIME).await;
        status.note_round(true);
        beat();
        status.note_refused_write("OOM");
        status.note_round(false);
        assert_eq!(status.values().is_reachable, Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn refused_writes_between_others_are_no_outage() {
        let status = LinkStatus::default();
        for _ in 0..10 {
            status.note_answer(Duration::ZERO, CommandEffect::Writes);
            refuse_for(&status, Duration::from_secs(2)).await;
            assert_eq!(status.values().is_reachable, Some(true));
        }
    }
}

//! The state of the shared store as commands find it, with its log lines and its gauge.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_core::telemetry::instruments;

use crate::locking::lock;
use crate::server_checks::ServerRisk;

/// The state of the link to the shared store. It logs changes alone.
#[derive(Debug, Default)]
pub(crate) struct LinkStatus(Mutex<StatusValues>);

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
    /// It leaves them as they are.
    Reads,
    /// It may change them.
    Writes,
}

impl LinkStatus {
    /// The values now.
    pub(crate) fn values(&self) -> StatusValues {
        lock(&self.0).clone()
    }

    /// Takes note of the answer to a command. Only a write proves that the store is of use: a full
    /// server, or a read-only one, still answers everything else.
    pub(crate) fn note_answer(&self, latency: Duration, effect: CommandEffect) {
        let before = {
            let mut values = lock(&self.0);
            values.latency = latency;
            if effect == CommandEffect::Reads {
                return;
            }
            values.is_reachable.replace(true)
        };
        if before != Some(true) {
            instruments().store_up.record(1, &[]);
        }
        if before == Some(false) {
            tracing::info!("shared store reachable again");
        }
    }

    /// Takes note of a failed command.
    pub(crate) fn note_failure(&self, error: &str) {
        lock(&self.0).last_error = Some(error.into());
    }

    /// Takes note that the store does not answer.
    pub(crate) fn note_unreachable(&self, error: &str) {
        let before = {
            let mut values = lock(&self.0);
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
        let known = std::mem::replace(&mut lock(&self.0).risks, risks.to_vec());
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

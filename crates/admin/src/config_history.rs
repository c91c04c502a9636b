//! The applied config, the time it was applied at, and the outcome of the last reload: for
//! operators.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use weir_config::Config;

/// The config in force and its history.
#[derive(Debug)]
pub struct ConfigHistory {
    config: ArcSwap<Config>,
    history: Mutex<ConfigHistoryState>,
}

#[derive(Clone, Debug)]
pub(super) struct ConfigHistoryState {
    pub(crate) started: SystemTime,
    pub(crate) applied: SystemTime,
    /// Changed settings that take effect only at a restart.
    pub(super) needs_restart: Vec<&'static str>,
    pub(crate) last: Option<ReloadOutcome>,
}

/// The outcome of a reload.
#[derive(Clone, Debug)]
pub(super) struct ReloadOutcome {
    pub(crate) at: SystemTime,
    /// The error, if the config was rejected.
    pub(crate) error: Option<String>,
}

impl ConfigHistory {
    /// Begins the history with the config of the start.
    pub fn new(config: Arc<Config>, now: SystemTime) -> Self {
        let history = ConfigHistoryState {
            started: now,
            applied: now,
            needs_restart: Vec::new(),
            last: None,
        };
        Self {
            config: ArcSwap::new(config),
            history: Mutex::new(history),
        }
    }

    /// Records a newly applied config, with the settings that wait for a restart.
    pub(crate) fn record_applied(
        &self,
        config: Arc<Config>,
        unmoved: Vec<&'static str>,
        now: SystemTime,
    ) {
        self.config.store(config);
        let mut history = self.history.lock();
        (history.applied, history.needs_restart) = (now, unmoved);
        history.last = Some(ReloadOutcome {
            at: now,
            error: None,
        });
    }

    /// Records a reload that found the config in force unchanged, but perhaps in files with another
    /// digest. It clears the error of an earlier rejection.
    pub(crate) fn record_unchanged(&self, config: Arc<Config>, now: SystemTime) {
        self.config.store(config);
        self.history.lock().last = Some(ReloadOutcome {
            at: now,
            error: None,
        });
    }

    /// Records a rejected config.
    pub(crate) fn record_rejected(&self, why: String, now: SystemTime) {
        self.history.lock().last = Some(ReloadOutcome {
            at: now,
            error: Some(why),
        });
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    pub(super) fn snapshot(&self) -> ConfigHistoryState {
        self.history.lock().clone()
    }
}

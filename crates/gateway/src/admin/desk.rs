//! What operators see and change: handles on the parts of weir that own it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot};
use weir_core::Catalog;
use weir_core::live::LiveCalls;
use weir_core::port::{Action, Audit, Clock};
use weir_front::Overview;
use weir_policy::limit::Limits;
use weir_policy::{Blocked, Credentials};

use super::book::Book;
use super::chronicle::Chronicle;
use super::gate::Gate;
use crate::config::Config;
use crate::explain::Explainer;
use crate::telemetry::{LogControl, Metrics};

/// The parts.
pub(crate) struct Parts {
    pub(crate) metrics: Metrics,
    pub(crate) ready: Ready,
    pub(crate) explainer: Arc<Explainer>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) live: Arc<LiveCalls>,
    pub(crate) front: Overview,
    pub(crate) limits: Arc<Limits>,
    pub(crate) blocked: Arc<Blocked>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) chronicle: Chronicle,
    pub(crate) gate: Gate,
    pub(crate) audit: Arc<dyn Audit>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Where operators ask.
pub(crate) struct Desk {
    parts: Parts,
    /// The changes that are in force.
    pub(super) book: Book,
    levers: OnceLock<Levers>,
}

/// What whoever runs the process lets operators do to it.
#[derive(Debug)]
pub(crate) struct Levers {
    pub(crate) log: LogControl,
    /// Has the config read again, and says when that is done.
    pub(crate) reload: mpsc::Sender<oneshot::Sender<()>>,
}

impl Desk {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts, book: Book::default(), levers: OnceLock::new() }
    }

    /// Lets operators change the log and reload from now on.
    pub(crate) fn give(&self, levers: Levers) {
        // There is one process, which gives them once.
        let _second = self.levers.set(levers);
    }

    pub(super) fn levers(&self) -> Option<&Levers> {
        self.levers.get()
    }

    /// Another config was applied, but for these settings.
    pub(crate) fn applied_now(&self, config: Arc<Config>, unmoved: Vec<&'static str>) {
        self.chronicle.applied(config, unmoved, self.now());
    }

    /// The config in force is the one in the files again.
    pub(crate) fn kept(&self) {
        self.chronicle.kept(self.now());
    }

    /// Another config was not taken.
    pub(crate) fn refused(&self, why: String) {
        self.chronicle.refused(why, self.now());
    }

    pub(super) fn now(&self) -> SystemTime {
        self.clock.wall()
    }

    /// Puts on record what an operator did.
    pub(super) fn operated(&self, who: &str, what: &str, detail: &str, done: bool) {
        tracing::info!(who, what, detail, done, "an operator's change");
        self.audit.operated(&Action { who, what, detail, done });
    }
}

impl std::ops::Deref for Desk {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Desk")
    }
}

/// Whether weir wants traffic: the config is applied, clients can be known, and it is not draining.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    wanted: Arc<AtomicBool>,
    credentials: Arc<Credentials>,
}

impl Ready {
    /// Not yet.
    pub(crate) fn new(credentials: Arc<Credentials>) -> Self {
        Self { wanted: Arc::default(), credentials }
    }

    pub(crate) fn set(&self, ready: bool) {
        self.wanted.store(ready, Ordering::Release);
    }

    pub(crate) fn is(&self) -> bool {
        self.wanted.load(Ordering::Acquire) && self.credentials.is_ready()
    }
}

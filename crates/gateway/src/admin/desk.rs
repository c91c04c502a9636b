//! What operators see and change: handles on the parts of weir that own it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot};
use weir_core::live::{LiveCall, LiveCalls};
use weir_core::port::{Action, Audit, Clock, Parking};
use weir_core::{Catalog, ParkedCall};
use weir_front::Overview;
use weir_policy::limit::Limits;
use weir_policy::{Blocked, Credentials};

use super::book::Book;
use super::chronicle::Chronicle;
use super::gate::Gate;
use super::heirs::{self, Noted};
use crate::config::Config;
use crate::explain::Explainer;
use crate::telemetry::{LogControl, Metrics};
use crate::weir::Strictness;

/// The parts.
pub(crate) struct Parts {
    pub(crate) metrics: Metrics,
    pub(crate) ready: Ready,
    pub(crate) explainer: Arc<Explainer>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) live: Arc<LiveCalls>,
    pub(crate) parking: Arc<dyn Parking>,
    pub(crate) front: Overview,
    pub(crate) limits: Arc<Limits>,
    pub(crate) blocked: Arc<Blocked>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) chronicle: Chronicle,
    pub(crate) gate: Gate,
    pub(crate) audit: Arc<dyn Audit>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The address that clients connect to.
    pub(crate) clients: SocketAddr,
}

/// Where operators ask.
pub(crate) struct Desk {
    parts: Parts,
    /// The changes that are in force.
    pub(super) book: Arc<Book>,
    levers: OnceLock<Levers>,
    /// Another process takes this one's place.
    leaving: AtomicBool,
}

/// What whoever runs the process lets operators do to it.
#[derive(Debug)]
pub(crate) struct Levers {
    pub(crate) log: LogControl,
    /// Has the config read again.
    pub(crate) reload: mpsc::Sender<ReloadRequest>,
}

/// An operator's wish to have the config read again.
#[derive(Debug)]
pub(crate) struct ReloadRequest {
    /// Whether a weaker config is taken, this once.
    pub(crate) strictness: Strictness,
    /// Told when it is done.
    pub(crate) done: oneshot::Sender<()>,
}

impl Desk {
    pub(crate) fn new(parts: Parts, book: Arc<Book>) -> Self {
        Self {
            parts,
            book,
            levers: OnceLock::new(),
            leaving: AtomicBool::new(false),
        }
    }

    /// Lets operators change the log and reload from now on; a log level that the process before
    /// left is taken up.
    pub(crate) fn give(&self, levers: Levers) {
        if let Some(Err(error)) = self.book.log().map(|level| levers.log.set(&level)) {
            tracing::error!(
                error,
                "the log level that an operator set before cannot be taken up"
            );
        }
        // There is one process, which gives them once.
        let _second = self.levers.set(levers);
    }

    /// Refuses changes from now on, and gives those that are in force.
    pub(crate) fn leave(&self) -> Vec<Noted> {
        self.leaving.store(true, Ordering::Release);
        heirs::notes(&self.book)
    }

    /// Nothing came of the other process.
    pub(crate) fn stay(&self) {
        self.leaving.store(false, Ordering::Release);
    }

    /// Whether changes are refused, because another process would not know of them.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
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

    /// The calls that run, the oldest first; only those of one upstream, where one is named.
    pub(super) fn running(&self, upstream: Option<&str>) -> Vec<LiveCall> {
        let mut all = self.live.all();
        all.retain(|call| upstream.is_none_or(|id| call.item.tool.upstream.as_str() == id));
        all
    }

    /// The same of those that wait for their clients.
    pub(super) fn waiting(&self, upstream: Option<&str>) -> Vec<ParkedCall> {
        let mut all = self.parking.waiting();
        all.retain(|call| upstream.is_none_or(|id| call.stay.upstream.as_str() == id));
        all
    }

    pub(super) fn now(&self) -> SystemTime {
        self.clock.wall()
    }

    /// Puts on record what an operator did.
    pub(super) fn operated(&self, who: &str, what: &str, detail: &str, done: bool) {
        tracing::info!(who, what, detail, done, "an operator's change");
        self.audit.operated(&Action {
            who,
            what,
            detail,
            done,
        });
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
        Self {
            wanted: Arc::default(),
            credentials,
        }
    }

    pub(crate) fn set(&self, ready: bool) {
        self.wanted.store(ready, Ordering::Release);
    }

    pub(crate) fn is(&self) -> bool {
        self.wanted.load(Ordering::Acquire) && self.credentials.is_ready()
    }
}

//! A server that weir starts itself: one child process for everybody, or one for each principal.
//!
//! Started with the first call or watch, restarted on need with backoff, ended when unused or retired.

mod child;
mod environment;
mod greet;
mod pipe;
mod tail;
mod talk;
mod updates;
mod watching;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use weir_core::principal::Principal;
use weir_core::reply::Reply;
use weir_core::upstream::{Outbound, Updates, Watch};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::hop::{Proof, Tongue};
use weir_wire::LogLevel;

use crate::pace::Pace;
use crate::refusal::Refusal;
use crate::settings::{Protocol, Sharing, StdioSettings};
use crate::site::Site;
use crate::slots::{Slot, Slots};
use child::Child;
use greet::{Greeted, Rude, greet};
use updates::StdioUpdates;
use watching::StdioWatch;

/// A child that ended sooner than this after its start counts as a failure: the next start waits.
const STEADY: Duration = Duration::from_secs(30);

/// One server over standard streams.
#[derive(Debug)]
pub(crate) struct StdioServer {
    site: Arc<Site>,
    settings: StdioSettings,
    protocol: Protocol,
    sharing: Sharing,
    slots: Arc<Slots<Option<Principal>, Running>>,
    pace: Mutex<Pace>,
    /// What the last child turned out to speak.
    known: Mutex<Option<Tongue>>,
    swept: AtomicBool,
}

/// A child that is ready for calls.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    greeted: Greeted,
    since: Instant,
    /// The least severe level the server was asked for.
    level: tokio::sync::Mutex<Option<LogLevel>>,
}

impl StdioServer {
    pub(crate) fn new(site: Arc<Site>, settings: StdioSettings, protocol: Protocol, sharing: Sharing) -> Self {
        let most = match sharing {
            Sharing::Shared => 1,
            // One more, for the watch: it belongs to no principal.
            Sharing::Principal => settings.max_processes.saturating_add(1),
        };
        Self {
            site,
            settings,
            protocol,
            sharing,
            slots: Arc::new(Slots::new(most)),
            pace: Mutex::default(),
            known: Mutex::default(),
            swept: AtomicBool::new(false),
        }
    }

    /// Makes one attempt at a call.
    pub(crate) async fn call(&self, outbound: &Outbound) -> Result<Reply, Refusal> {
        let principal = match self.sharing {
            Sharing::Shared => None,
            Sharing::Principal => Some(outbound.principal.clone()),
        };
        let running = self.running(principal).await?;
        talk::call(&self.site, running, outbound).await
    }

    /// Opens a watch: on the child that everybody shares, or on one that belongs to nobody.
    pub(crate) async fn watch(&self, class: CapabilityClass) -> Result<Box<dyn Watch>, Refusal> {
        let running = self.running(None).await?;
        let class = class.cut(running.greeted.tongue.carries());
        Ok(Box::new(StdioWatch::open(self.site.clone(), running, class).await?))
    }

    /// Opens a line for updates of single resources, on the same child as a watch.
    pub(crate) async fn updates(&self) -> Result<Box<dyn Updates>, Refusal> {
        let running = self.running(None).await?;
        Ok(Box::new(StdioUpdates::open(self.site.clone(), running)?))
    }

    /// What the server is may have changed: the next child is asked again.
    pub(crate) fn doubt(&self) {
        *self.lock_known() = None;
    }

    /// What is carried to the server as it is now known to be.
    pub(crate) fn carries(&self) -> CapabilityClass {
        self.lock_known().map_or(CapabilityClass::BASE, Tongue::carries)
    }

    pub(crate) fn revision(&self) -> Option<&'static str> {
        self.lock_known().map(|tongue| tongue.revision().as_str())
    }

    pub(crate) fn processes(&self) -> usize {
        self.slots.len()
    }

    /// Ends all children.
    pub(crate) async fn close(&self) {
        let all = self.slots.take_all();
        futures_util::future::join_all(all.iter().map(|running| running.child.stopped())).await;
    }

    async fn running(&self, principal: Option<Principal>) -> Result<Arc<Running>, Refusal> {
        let Some((slot, gone)) = self.slots.slot(&principal, self.site.millis()) else {
            let text = "The upstream runs as many processes as it may: try again later";
            return Err(self.site.fail(FailureKind::Busy, text).into());
        };
        drop(gone);
        self.sweep();
        if let Some(running) = alive(&slot) {
            return Ok(running);
        }
        let _one = slot.opening.lock().await;
        if let Some(running) = alive(&slot) {
            return Ok(running);
        }
        let running = Arc::new(self.restart(slot.current.swap(None)).await?);
        slot.current.store(Some(running.clone()));
        Ok(running)
    }

    async fn restart(&self, before: Option<Arc<Running>>) -> Result<Running, Refusal> {
        if let Some(before) = before {
            if before.since.elapsed() >= STEADY {
                self.pace().succeeded();
            } else {
                self.pace().failed(self.site.now(), &*self.site.random);
            }
        }
        self.pace().admit(self.site.now()).map_err(|wait| {
            let text = "The upstream's process ended and is not started again yet: try again shortly";
            self.site.fail(FailureKind::Unavailable, text).retry_after(wait)
        })?;
        match tokio::time::timeout(self.settings.start, self.start()).await {
            Ok(Ok(running)) => Ok(running),
            Ok(Err(failure)) => Err(self.not_started(failure)),
            Err(_) => {
                let text = "The upstream's process was started and did not answer in time";
                Err(self.not_started(self.site.fail(FailureKind::Unavailable, text)))
            }
        }
    }

    fn not_started(&self, failure: Failure) -> Refusal {
        self.pace().failed(self.site.now(), &*self.site.random);
        Refusal::new(failure).unreached()
    }

    async fn start(&self) -> Result<Running, Failure> {
        let known = self.lock_known().map(|tongue| match tongue.carries() {
            CapabilityClass::BASE => Protocol::Legacy,
            _ => Protocol::Modern,
        });
        let protocol = if self.protocol == Protocol::Auto { known.unwrap_or_default() } else { self.protocol };
        let child = Child::start(&self.site, &self.settings)?;
        match greet(&child.pipe, protocol).await {
            Ok(greeted) => Ok(self.ready(child, greeted)),
            Err(Rude::EndedOnProbe) => {
                let child = Child::start(&self.site, &self.settings)?;
                match greet(&child.pipe, Protocol::Legacy).await {
                    Ok(greeted) => Ok(self.ready(child, greeted)),
                    Err(rude) => Err(self.explain(&child, rude)),
                }
            }
            Err(rude) => Err(self.explain(&child, rude)),
        }
    }

    fn ready(&self, child: Child, greeted: Greeted) -> Running {
        *self.lock_known() = Some(greeted.tongue);
        if greeted.tongue.carries() != CapabilityClass::BASE {
            child.pipe.set_modern();
        }
        Running { child, greeted, since: Instant::now(), level: tokio::sync::Mutex::default() }
    }

    /// The failure, and for the log what the process said last.
    fn explain(&self, child: &Child, rude: Rude) -> Failure {
        let failure = match rude {
            Rude::EndedOnProbe => {
                self.site.fail(FailureKind::Unavailable, "The upstream's process ended before it was ready")
            }
            Rude::Failed(failure) => failure,
        };
        match child.errors.last_line() {
            Some(line) => failure.because(format!("its last words: {line}")),
            None => failure,
        }
    }

    /// Starts the task that ends unused processes, once; not for a shared one, which the watch always uses.
    fn sweep(&self) {
        if self.sharing == Sharing::Shared || self.swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let (slots, site) = (Arc::downgrade(&self.slots), self.site.clone());
        let idle = self.site.bounds.session_idle;
        self.site.background(async move {
            loop {
                tokio::time::sleep((idle / 4).max(Duration::from_millis(10))).await;
                let Some(slots) = slots.upgrade() else { return };
                let before = site.millis().saturating_sub(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
                // Dropping a child ends its process.
                drop(slots.take_unused(before));
            }
        });
    }

    fn lock_known(&self) -> std::sync::MutexGuard<'_, Option<Tongue>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn alive(slot: &Slot<Running>) -> Option<Arc<Running>> {
    slot.current.load_full().filter(|running| !running.child.is_over())
}

/// The process ended before the request was given to it.
fn not_sent(failure: Failure) -> Refusal {
    Refusal::new(failure).proven(Some(Proof::NotSent))
}

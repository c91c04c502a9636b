//! The legacy era of a stdio server that speaks both eras. A process speaks one era, that of its
//! first message. So clients with sessions have processes of their own, which can ask them while a
//! call runs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_core::telemetry::instruments;
use weir_core::upstream::OutboundCall;
use weir_core::{CapabilityClass, FailureKind};
use weir_era::upstream_messages::RevisionDialect;

use super::{ChildAndTurn, ChildKey, StdioUpstream, lock};
use crate::failed_attempt::FailedAttempt;
use crate::retry_backoff::RetryBackoff;
use crate::settings::UpstreamProtocol;

/// The most processes in a row that may fail to begin in the legacy era before the server is taken
/// for one without it.
const MAX_LEGACY_FAILURES: u32 = 3;

/// The extra time, beyond that of the first process, for a process to begin in the legacy era while
/// it is unknown if it can.
const EXTRA_START_TIME: Duration = Duration::from_secs(5);

/// One era of a server: its revision, once known, and the backoff of process starts.
#[derive(Debug, Default)]
pub(super) struct ChildEra {
    tongue: Mutex<Option<RevisionDialect>>,
    pub(super) pace: Mutex<RetryBackoff>,
}

impl ChildEra {
    /// Returns the protocol of the last process.
    pub(super) fn tongue(&self) -> Option<RevisionDialect> {
        *lock(&self.tongue)
    }

    /// Stores the protocol of a process and returns the previous one.
    pub(super) fn set(&self, tongue: Option<RevisionDialect>) -> Option<RevisionDialect> {
        std::mem::replace(&mut *lock(&self.tongue), tongue)
    }
}

/// The legacy era of a modern server. It is probed when the first client with a session calls.
#[derive(Debug, Default)]
pub(super) struct StdioSecondEra {
    pub(super) era: ChildEra,
    /// True once the server has refused to be initialized, until its era is in doubt again.
    is_refused: AtomicBool,
    failures: AtomicU32,
    /// Held during the probe: other callers wait for its outcome.
    looking: tokio::sync::Mutex<()>,
}

impl StdioSecondEra {
    /// Forgets earlier refusals: the server may have been replaced.
    pub(super) fn forget_refusal(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.is_refused.store(false, Ordering::Release);
    }

    /// Notes a process that did not begin in the legacy era.
    pub(super) fn record_failure(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= MAX_LEGACY_FAILURES && self.era.tongue().is_none() {
            self.record_refusal();
        }
    }

    /// Notes that the server has no legacy era.
    pub(super) fn record_refusal(&self) {
        self.era.set(None);
        self.is_refused.store(true, Ordering::Release);
    }

    /// Notes a process that began in the legacy era. True if it is the first.
    pub(super) fn record_found(&self, tongue: RevisionDialect) -> bool {
        self.forget_refusal();
        self.era.set(Some(tongue)).is_none()
    }

    fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }
}

impl StdioUpstream {
    /// True if a client of this class is served by a process in the legacy era, provided the server
    /// has that beside its modern one.
    fn may_be_legacy(&self, class: CapabilityClass) -> bool {
        class.has(CapabilityClass::SESSIONS)
            && self.protocol == UpstreamProtocol::Auto
            && self
                .first_era
                .tongue()
                .is_some_and(|tongue| tongue.revision().is_modern())
            && !self.second_era.is_refused()
    }

    /// Returns the protocol of legacy processes for clients of this class; absent unless the server
    /// is known to have both eras.
    pub(super) fn second_for(&self, class: CapabilityClass) -> Option<RevisionDialect> {
        self.second_era
            .era
            .tongue()
            .filter(|_| self.may_be_legacy(class))
    }

    /// Returns the older revision that the server speaks as well, if it is known to have one.
    pub(crate) fn second_revision(&self) -> Option<&'static str> {
        self.second_for(CapabilityClass::SESSIONS)
            .map(|tongue| tongue.revision().as_str())
    }

    /// Returns the server's revision for a client of this class, once it is known.
    pub(crate) fn revision_for(&self, class: CapabilityClass) -> Option<&'static str> {
        let tongue = self.second_for(class).or_else(|| self.first_era.tongue());
        tongue.map(|tongue| tongue.revision().as_str())
    }

    /// Returns a process in the legacy era for a call of a client with a session. Absent if the
    /// call is to go over the bridge: the client has no session, the server has no such era or
    /// could not be probed now, or runs as many processes as allowed and the client has no
    /// capabilities.
    ///
    /// # Errors
    /// A server that is known to have that era cannot be called in it now.
    pub(super) async fn take_legacy(
        self: &Arc<Self>,
        outbound: &OutboundCall,
    ) -> Result<Option<ChildAndTurn>, FailedAttempt> {
        if !self.may_be_legacy(outbound.call.capabilities.class) {
            return Ok(None);
        }
        let looking = match self.second_era.era.tongue() {
            Some(_) => None,
            None => Some(self.second_era.looking.lock().await),
        };
        // An earlier caller may have finished the probe by now.
        let is_known = self.second_era.era.tongue().is_some();
        let _looking = looking.filter(|_| !is_known);
        if self.second_era.is_refused() {
            return Ok(None);
        }
        let key = self.key(outbound, true);
        // A client without capabilities does not justify ending another client's process.
        let is_asked_nothing = key.class == CapabilityClass::BASE;
        if is_asked_nothing && self.slots.free_slot(&key, self.site.millis()).is_none() {
            instruments().upstream_bridged.add(1, &[self.site.label()]);
            return Ok(None);
        }
        match self.take(key, outbound).await {
            Ok(taken) => Ok(Some(taken)),
            Err(refusal) if !is_known && *refusal.failure.kind() != FailureKind::Busy => {
                // Frees the slot that was made for it.
                drop(self.slots.take_where(|key| key.is_legacy));
                Ok(None)
            }
            Err(_) if self.second_era.is_refused() => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Returns the time limit of a process of this key up to the answer to the first message.
    pub(super) fn start_timeout(&self, key: &ChildKey) -> Duration {
        let patience = self.origin.start_timeout(&self.site);
        if key.is_legacy && self.second_era.era.tongue().is_none() {
            // A server without such an era may not answer at all, and a caller waits.
            let first = *lock(&self.first_start_time);
            return patience.min(first + EXTRA_START_TIME);
        }
        patience
    }
}

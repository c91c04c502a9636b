//! The eras of a stdio server. Some servers speak both. A process speaks one era, that of its
//! first message. So clients with sessions have processes of their own, which can ask them while a
//! call runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use weir_core::CapabilityClass;
use weir_era::upstream_messages::RevisionDialect;
use weir_upstream_core::retry_backoff::RetryBackoff;
use weir_upstream_core::settings::UpstreamProtocol;
use weir_wire::Revision;

/// The most processes in a row that may fail to begin in the legacy era before the server is taken
/// for one without it.
const MAX_LEGACY_FAILURES: u32 = 3;

/// The extra time, beyond that of the first process, for a process to begin in the legacy era while
/// it is unknown if it can.
const EXTRA_START_TIME: Duration = Duration::from_secs(5);

/// One era of a server: its revision, once known, and the backoff of process starts.
#[derive(Debug, Default)]
struct ChildEra {
    dialect: Mutex<Option<RevisionDialect>>,
    pace: Mutex<RetryBackoff>,
}

impl ChildEra {
    /// Returns the protocol of the last process.
    fn dialect(&self) -> Option<RevisionDialect> {
        *self.dialect.lock()
    }

    /// Stores the protocol of a process and returns the previous one.
    fn set(&self, dialect: Option<RevisionDialect>) -> Option<RevisionDialect> {
        std::mem::replace(&mut *self.dialect.lock(), dialect)
    }
}

/// The legacy era of a modern server. It is probed when the first client with a session calls.
#[derive(Debug, Default)]
struct StdioSecondEra {
    era: ChildEra,
    /// True once the server has refused to be initialized, until its era is in doubt again.
    is_refused: AtomicBool,
    failures: AtomicU32,
    /// True once a process did not begin in the legacy era, until one does.
    /// Further processes start beside the calls.
    has_failed: AtomicBool,
    /// Held during the probe: other callers wait for its outcome.
    looking: Arc<tokio::sync::Mutex<()>>,
}

impl StdioSecondEra {
    /// Forgets earlier refusals: the server may have been replaced.
    fn forget_refusal(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.is_refused.store(false, Ordering::Release);
    }

    /// Notes a process that did not begin in the legacy era.
    fn record_failure(&self) {
        self.has_failed.store(true, Ordering::Release);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= MAX_LEGACY_FAILURES && self.era.dialect().is_none() {
            self.record_refusal();
        }
    }

    /// Notes that the server has no legacy era.
    fn record_refusal(&self) {
        self.era.set(None);
        self.is_refused.store(true, Ordering::Release);
    }

    /// Notes a process that began in the legacy era. True if it is the first.
    fn record_found(&self, dialect: RevisionDialect) -> bool {
        self.forget_refusal();
        self.has_failed.store(false, Ordering::Release);
        self.era.set(Some(dialect)).is_none()
    }

    fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }
}

/// The eras of one server.
#[derive(Debug)]
pub(super) struct ChildEras {
    protocol: UpstreamProtocol,
    /// The era that the server was found to speak first.
    first: ChildEra,
    /// The legacy era of a modern server that speaks both.
    second: StdioSecondEra,
    /// The time that the last process of the first era took to answer the first message.
    first_start_time: Mutex<Duration>,
}

impl ChildEras {
    pub(super) fn new(protocol: UpstreamProtocol) -> Self {
        Self {
            protocol,
            first: ChildEra::default(),
            second: StdioSecondEra::default(),
            first_start_time: Mutex::default(),
        }
    }

    /// Returns the protocol of the last process of the first era.
    pub(super) fn first_dialect(&self) -> Option<RevisionDialect> {
        self.first.dialect()
    }

    /// Forgets the era, because the server may have been replaced: the next child is probed again.
    pub(super) fn doubt(&self) {
        self.first.set(None);
        self.second.forget_refusal();
    }

    /// True if a client of this class is served by a process in the legacy era, provided the server
    /// has that beside its modern one.
    pub(super) fn may_be_legacy(&self, class: CapabilityClass) -> bool {
        class.has(CapabilityClass::SESSIONS)
            && self.protocol == UpstreamProtocol::Auto
            && self
                .first
                .dialect()
                .is_some_and(|dialect| dialect.revision().is_modern())
            && !self.second.is_refused()
    }

    /// Returns the protocol of legacy processes for clients of this class; absent unless the server
    /// is known to have both eras.
    pub(super) fn second_for(&self, class: CapabilityClass) -> Option<RevisionDialect> {
        self.second
            .era
            .dialect()
            .filter(|_| self.may_be_legacy(class))
    }

    /// True if the server is known to have a legacy era beside its modern one.
    pub(super) fn has_second(&self) -> bool {
        self.second.era.dialect().is_some()
    }

    /// True if the server is known to have no legacy era beside its modern one.
    pub(super) fn is_second_refused(&self) -> bool {
        self.second.is_refused()
    }

    /// True if it is unknown if the server has a legacy era, because a process did not begin in it:
    /// no call waits for another.
    pub(super) fn is_second_era_unproven(&self) -> bool {
        !self.has_second() && self.second.has_failed.load(Ordering::Acquire)
    }

    /// Takes the turn to find out if the server has a legacy era; absent if another caller has it,
    /// or the era is known or not to be looked for now.
    pub(super) fn try_look_for_second(&self, now: Duration) -> Option<OwnedMutexGuard<()>> {
        let looking = self.second.looking.clone().try_lock_owned().ok()?;
        let is_due = self.pace(true).admit(now).is_ok();
        (is_due && !self.has_second() && !self.is_second_refused()).then_some(looking)
    }

    /// Waits for the turn to find out if the server has a legacy era; absent if that is known.
    pub(super) async fn look_for_second(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.has_second() {
            return None;
        }
        let looking = self.second.looking.lock().await;
        // An earlier caller may have finished the probe by now.
        (!self.has_second()).then_some(looking)
    }

    /// Returns the older revision that the server speaks as well, if it is known to have one.
    pub(super) fn second_revision(&self) -> Option<Revision> {
        self.second_for(CapabilityClass::SESSIONS)
            .map(RevisionDialect::revision)
    }

    /// Returns the server's revision for a client of this class, once it is known.
    pub(super) fn revision_for(&self, class: CapabilityClass) -> Option<Revision> {
        self.second_for(class)
            .or_else(|| self.first.dialect())
            .map(RevisionDialect::revision)
    }

    /// Returns the protocol of the first message to a child.
    pub(super) fn protocol_of(&self, is_legacy: bool) -> UpstreamProtocol {
        match (self.protocol, self.first.dialect()) {
            (UpstreamProtocol::Auto, _) if is_legacy => UpstreamProtocol::Legacy,
            (UpstreamProtocol::Auto, Some(dialect)) if dialect.revision().is_modern() => {
                UpstreamProtocol::Modern
            }
            (UpstreamProtocol::Auto, Some(_)) => UpstreamProtocol::Legacy,
            (protocol, _) => protocol,
        }
    }

    /// Notes the protocol of a child, and the time that its start took. True if it is the first in
    /// the legacy era of a modern server.
    pub(super) fn record_dialect(
        &self,
        is_legacy: bool,
        dialect: RevisionDialect,
        begun: Instant,
    ) -> bool {
        if is_legacy {
            return self.second.record_found(dialect);
        }
        self.first.set(Some(dialect));
        *self.first_start_time.lock() = begun.elapsed();
        false
    }

    /// Notes a process that did not begin.
    pub(super) fn record_failure(&self, is_legacy: bool) {
        if is_legacy {
            self.second.record_failure();
        }
    }

    /// Notes a process that refused to be initialized.
    pub(super) fn record_refusal(&self, is_legacy: bool) {
        if is_legacy {
            self.second.record_refusal();
        }
    }

    /// Returns the time limit of a process up to the answer to the first message: `usual`, or
    /// less.
    pub(super) fn start_timeout(&self, is_legacy: bool, usual: Duration) -> Duration {
        if is_legacy && !self.has_second() && !self.is_second_era_unproven() {
            // A server without such an era may not answer at all, and a caller waits for the first
            // process.
            let first = *self.first_start_time.lock();
            return usual.min(first + EXTRA_START_TIME);
        }
        usual
    }

    /// Returns the backoff of process starts.
    pub(super) fn pace(&self, is_legacy: bool) -> MutexGuard<'_, RetryBackoff> {
        let pace = if is_legacy {
            &self.second.era.pace
        } else {
            &self.first.pace
        };
        pace.lock()
    }
}

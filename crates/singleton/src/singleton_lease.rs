//! The lease of one upstream: kept while this replica runs its children, watched while another one
//! does.
//!
//! The lease is renewed at a third of its time. This replica stops using it at three quarters, by its
//! own monotonic clock, and ends its children: they have the last quarter to end.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use weir_core::names::UpstreamId;
use weir_core::port::{
    Clock, LeaseIntent, LeaseRequest, LeaseState, LeaseStore, LeaseToken, Random, ReplicaId,
    StoreError,
};
use weir_core::telemetry::LeaseMeter;
use weir_upstream_core::lease_fence::LeaseFence;

use crate::lease_view::{LeaseHolder, LeaseOwner, LeaseView};

/// The least time between two requests to the store.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// The longest time that children have to end before the lease is given back.
const CHILD_END_TIME: Duration = Duration::from_secs(15);

/// The ports of a lease.
#[derive(Clone)]
pub(crate) struct LeasePorts {
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// This replica.
    pub(crate) own: ReplicaId,
    /// The time of each lease.
    pub(crate) time: Duration,
}

/// The lease of one upstream.
pub(crate) struct SingletonLease {
    upstream: UpstreamId,
    meter: Arc<LeaseMeter>,
    ports: LeasePorts,
    pub(crate) fence: Arc<LeaseFence>,
    control: Mutex<LeaseControl>,
    view: watch::Sender<LeaseView>,
    wake: Notify,
    handed_over: CancellationToken,
    /// Cancelled once the children move to a successor process, or end in order: the streams of
    /// other replicas go on elsewhere.
    streams_end: CancellationToken,
    /// One request at a time.
    turn: tokio::sync::Mutex<()>,
    /// An answer is taken before the lease is handed over, or not at all.
    changing: Mutex<()>,
}

#[derive(Debug)]
struct LeaseControl {
    token: LeaseToken,
    known_epoch: u64,
    /// The token and the epoch of the process before, until the next request.
    inherited: Option<(LeaseToken, u64)>,
    phase: LeasePhase,
    /// The end of the lease by the monotonic clock, while this replica holds it.
    ending: Option<Duration>,
}

/// The part of this replica in the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeasePhase {
    /// It takes the lease if it is free.
    Competing,
    /// It keeps a lease that it holds, and takes none.
    Draining,
    /// A successor process goes on with the lease.
    HandedOver,
    /// It asks no more.
    Ended,
}

impl SingletonLease {
    /// A lease that is not asked for yet.
    pub(crate) fn new(upstream: UpstreamId, ports: LeasePorts, fence: Arc<LeaseFence>) -> Self {
        let mut token = [0; 8];
        ports.random.fill(&mut token);
        Self {
            meter: LeaseMeter::new(&upstream),
            upstream,
            ports,
            fence,
            control: Mutex::new(LeaseControl {
                token: LeaseToken(token),
                known_epoch: 0,
                inherited: None,
                phase: LeasePhase::Competing,
                ending: None,
            }),
            view: watch::Sender::default(),
            wake: Notify::new(),
            handed_over: CancellationToken::new(),
            streams_end: CancellationToken::new(),
            turn: tokio::sync::Mutex::default(),
            changing: Mutex::default(),
        }
    }

    /// The time of the lease.
    pub(crate) fn time(&self) -> Duration {
        self.ports.time
    }

    /// The randomness of pauses.
    pub(crate) fn random(&self) -> &Arc<dyn Random> {
        &self.ports.random
    }

    /// The state as this replica last saw it.
    pub(crate) fn view(&self) -> LeaseView {
        self.view.borrow().clone()
    }

    /// The epoch of this replica's lease; absent if it holds none now.
    pub(crate) fn own_epoch(&self) -> Option<u64> {
        match self.view.borrow().holder {
            LeaseHolder::Own { epoch }
                if self.fence.is_open() || self.handed_over.is_cancelled() =>
            {
                Some(epoch)
            }
            LeaseHolder::Own { .. }
            | LeaseHolder::Unknown
            | LeaseHolder::Free
            | LeaseHolder::Other(_) => None,
        }
    }

    /// True if forwarded requests of this epoch may begin here.
    pub(crate) fn accepts(&self, epoch: u64) -> bool {
        self.own_epoch() == Some(epoch) && self.control.lock().phase == LeasePhase::Competing
    }

    /// The token that is cancelled once the streams of other replicas are to be opened again, where
    /// the upstream goes on.
    pub(crate) fn streams_end(&self) -> &CancellationToken {
        &self.streams_end
    }

    /// Ends the streams of other replicas.
    pub(crate) fn end_streams(&self) {
        self.streams_end.cancel();
    }

    /// Waits for a view that is newer than `seen`, and has the store asked for it. Returns after
    /// `most` at the latest. Cancel safe.
    pub(crate) async fn refresh(&self, seen: u64, most: Duration) {
        self.wake.notify_one();
        let mut views = self.view.subscribe();
        let newer = views.wait_for(|view| view.version != seen);
        let _in_time = timeout(most, newer).await;
    }

    /// Asks for the lease, keeps it, and takes it when it is free. Ends once the lease is handed over
    /// or given up.
    pub(crate) async fn keep(&self) {
        loop {
            let wait = {
                let _turn = self.turn.lock().await;
                if matches!(
                    self.control.lock().phase,
                    LeasePhase::HandedOver | LeasePhase::Ended
                ) {
                    return;
                }
                self.ask_in_time().await
            };
            sleep(wait.min(MIN_PAUSE)).await;
            tokio::select! {
                () = sleep(wait) => {}
                () = self.wake.notified() => {}
                () = self.wait_for_ending() => {
                    self.unless_handed_over(|| {
                        self.lose("its time ended without an answer of the store");
                    });
                }
            }
        }
    }

    /// Asks once, and returns the time until the next request. The children end in time, also while
    /// the store does not answer.
    async fn ask_in_time(&self) -> Duration {
        let begun = self.ports.clock.monotonic();
        let outcome = {
            let mut asking = pin!(self.ask());
            tokio::select! {
                biased;
                outcome = &mut asking => outcome,
                () = self.wait_for_ending() => {
                    self.unless_handed_over(|| {
                        self.lose("its time ended while the store did not answer");
                    });
                    asking.await
                }
            }
        };
        let noted = self.unless_handed_over(|| match outcome {
            Ok(state) => self.note_state(state, begun),
            Err(error) => self.note_error(&error),
        });
        noted.unwrap_or(MIN_PAUSE)
    }

    /// Takes an answer of the store, or the end of the lease, unless the lease has gone on to a
    /// successor process meanwhile: its children, and the calls at them, are not this process's to
    /// end.
    fn unless_handed_over<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        let _changing = self.changing.lock();
        let phase = self.control.lock().phase;
        (phase != LeasePhase::HandedOver).then(change)
    }

    async fn ask(&self) -> Result<LeaseState, StoreError> {
        let is_held = self.fence.is_open();
        // A child of before may still be ending.
        let may_take = is_held || self.fence.is_vacant();
        let (token, known_epoch, phase) = {
            let mut control = self.control.lock();
            // A lease that this process has taken by itself is under its own token.
            if let Some((token, epoch)) = control.inherited.take()
                && !is_held
            {
                control.token = token;
                control.known_epoch = control.known_epoch.max(epoch);
            }
            (control.token, control.known_epoch, control.phase)
        };
        let intent = match phase {
            LeasePhase::Competing if may_take => LeaseIntent::Take,
            LeasePhase::Competing
            | LeasePhase::Draining
            | LeasePhase::HandedOver
            | LeasePhase::Ended => LeaseIntent::Look,
        };
        let request = LeaseRequest {
            name: self.upstream.as_str(),
            token,
            time: self.ports.time,
            intent,
            known_epoch,
            is_held,
        };
        self.ports.store.ask(request).await
    }

    fn note_state(&self, state: LeaseState, begun: Duration) -> Duration {
        let renewal = self.ports.time / 3;
        match state {
            LeaseState::Own { epoch } => {
                self.gain(epoch, begun);
                renewal
            }
            LeaseState::Other {
                replica,
                epoch,
                left,
            } => {
                self.lose("another replica holds it");
                self.note_epoch(epoch);
                self.show(LeaseHolder::Other(LeaseOwner { replica, epoch }), None);
                renewal.min(left).max(MIN_PAUSE)
            }
            LeaseState::Free { after } => {
                self.lose("the store has no holder");
                self.show(LeaseHolder::Free, None);
                renewal.min(after).max(MIN_PAUSE)
            }
        }
    }

    fn gain(&self, epoch: u64, begun: Duration) {
        let ending = begun + self.ports.time * 3 / 4;
        self.control.lock().ending = Some(ending);
        let goes_on = self.fence.extend(ending);
        if self.note_epoch(epoch) || !goes_on {
            tracing::info!(upstream = %self.upstream, epoch, "upstream lease taken: its child processes run here");
        }
        self.show(LeaseHolder::Own { epoch }, None);
        self.meter.set_held(true);
    }

    fn note_error(&self, error: &StoreError) -> Duration {
        let (holder, is_first) = {
            let view = self.view.borrow();
            (view.holder.clone(), view.error.is_none())
        };
        if self.fence.is_open() {
            if is_first {
                tracing::warn!(upstream = %self.upstream, %error, "upstream lease not renewed");
            }
        } else if matches!(holder, LeaseHolder::Own { .. }) {
            self.lose("its time ended without an answer of the store");
        }
        let holder = match self.view.borrow().holder.clone() {
            LeaseHolder::Own { .. } if !self.fence.is_open() => LeaseHolder::Unknown,
            holder @ (LeaseHolder::Own { .. }
            | LeaseHolder::Unknown
            | LeaseHolder::Free
            | LeaseHolder::Other(_)) => holder,
        };
        self.show(holder, Some(error));
        self.ports.time / 15
    }

    /// Ends the use of the lease, if this replica had it.
    fn lose(&self, reason: &'static str) {
        let had = self.control.lock().ending.take().is_some();
        self.fence.close();
        if had {
            tracing::warn!(upstream = %self.upstream, reason, "upstream lease lost: child processes end");
            self.meter.set_held(false);
            self.view.send_modify(|view| {
                view.version += 1;
                view.holder = LeaseHolder::Unknown;
            });
        }
    }

    /// Waits for the end of the lease by the clock; without a lease it never returns.
    async fn wait_for_ending(&self) {
        loop {
            let Some(ending) = self.control.lock().ending else {
                return std::future::pending().await;
            };
            let now = self.ports.clock.monotonic();
            if now >= ending {
                return;
            }
            sleep(ending - now).await;
        }
    }

    /// Takes no lease from now on. One that is held is kept.
    pub(crate) fn begin_drain(&self) {
        let mut control = self.control.lock();
        if control.phase == LeasePhase::Competing {
            control.phase = LeasePhase::Draining;
        }
    }

    /// Leaves the lease to a successor process; returns the token and the epoch for it. `None` if
    /// this replica does not hold the lease.
    pub(crate) fn hand_over(&self) -> Option<(LeaseToken, u64)> {
        let _changing = self.changing.lock();
        let epoch = self.own_epoch()?;
        let mut control = self.control.lock();
        control.phase = LeasePhase::HandedOver;
        // The end of the lease here is not the end of the children.
        control.ending = None;
        let token = control.token;
        drop(control);
        self.fence.hand_over();
        self.handed_over.cancel();
        self.end_streams();
        self.wake.notify_one();
        self.meter.set_held(false);
        Some((token, epoch))
    }

    /// Goes on with the lease of the process before, from the next request on, unless this process
    /// holds the lease by then. Waits up to `most` until the store confirms a lease of this
    /// process; false if it does not.
    pub(crate) async fn adopt(&self, token: LeaseToken, epoch: u64, most: Duration) -> bool {
        self.control.lock().inherited = Some((token, epoch));
        self.wake.notify_one();
        self.wait_until_owned(most).await
    }

    /// Waits up to `most` until the store confirms a lease of this process; false if it does not.
    pub(crate) async fn wait_until_owned(&self, most: Duration) -> bool {
        let mut views = self.view.subscribe();
        let owned = views.wait_for(|view| matches!(view.holder, LeaseHolder::Own { .. }));
        timeout(most, owned).await.is_ok_and(|view| view.is_ok())
    }

    /// Ends the children, and gives the lease back. `is_last` ends the requests for it as well.
    pub(crate) async fn release(&self, is_last: bool) {
        let _turn = self.turn.lock().await;
        {
            let mut control = self.control.lock();
            match control.phase {
                LeasePhase::HandedOver | LeasePhase::Ended => return,
                LeasePhase::Competing | LeasePhase::Draining if is_last => {
                    control.phase = LeasePhase::Ended;
                }
                LeasePhase::Competing | LeasePhase::Draining => {
                    control.phase = LeasePhase::Draining;
                }
            }
        }
        self.wake.notify_one();
        let had = self.control.lock().ending.take().is_some();
        self.end_streams();
        self.fence.close();
        self.fence.wait_until_vacant(CHILD_END_TIME).await;
        if had && self.fence.is_vacant() {
            self.give_back().await;
        }
    }

    async fn give_back(&self) {
        let (token, known_epoch) = {
            let control = self.control.lock();
            (control.token, control.known_epoch)
        };
        let request = LeaseRequest {
            name: self.upstream.as_str(),
            token,
            time: self.ports.time,
            intent: LeaseIntent::Release,
            known_epoch,
            is_held: false,
        };
        self.meter.set_held(false);
        match self.ports.store.ask(request).await {
            Ok(_) => {
                self.show(LeaseHolder::Free, None);
                tracing::info!(upstream = %self.upstream, "upstream lease released");
            }
            // It ends by itself.
            Err(error) => {
                self.show(LeaseHolder::Unknown, Some(&error));
                tracing::warn!(upstream = %self.upstream, %error, "upstream lease not released");
            }
        }
    }

    fn show(&self, holder: LeaseHolder, error: Option<&StoreError>) {
        self.view.send_modify(|view| {
            if let LeaseHolder::Other(owner) = &holder
                && view.holder != holder
            {
                let (replica, epoch) = (replica_text(&owner.replica), owner.epoch);
                if owner.replica == self.ports.own {
                    // The process before this one, or the upstream as configured before a reload.
                    tracing::info!(upstream = %self.upstream, epoch, "upstream lease not passed on yet in this replica");
                } else {
                    tracing::info!(upstream = %self.upstream, replica, epoch, "upstream runs at another replica");
                }
            }
            view.version += 1;
            view.holder = holder;
            view.error = error.map(|error| error.to_string().into());
        });
    }

    /// Takes note of the epoch of a holder; true if it is a new one.
    fn note_epoch(&self, epoch: u64) -> bool {
        let mut control = self.control.lock();
        let is_new = control.known_epoch != epoch;
        if is_new {
            control.known_epoch = epoch;
            self.meter.count_change();
        }
        is_new
    }
}

/// The name of a replica as operators see it.
fn replica_text(replica: &ReplicaId) -> String {
    replica.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for SingletonLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingletonLease")
            .field("upstream", &self.upstream)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

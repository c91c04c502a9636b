//! The child that serves a call: by principal, capability class, era, and the turn to be asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use weir_core::call::TaskMode;
use weir_core::instant::millis;
use weir_core::telemetry::instruments;
use weir_core::upstream::OutboundCall;
use weir_core::{Call, CapabilityClass, FailureKind};
use weir_era::server_questions;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::keyed_slots::{KeyedSlot, KeyedSlots};
use weir_upstream_core::settings::SessionSharing;
use weir_wire::method::Method;

use crate::StdioUpstream;
use crate::asking_turn::{AskingPermit, AskingQueue};
use crate::child_key::ChildKey;
use crate::child_source::ChildSource;
use crate::handshake::ChildClients;
use crate::running_child::RunningChild;

/// A child for a call, and the turn to be asked in it, if the call takes one.
pub(crate) type ChildAndTurn = (Arc<RunningChild>, Option<AskingPermit>);

/// The most children of one principal and class.
const MAX_CHILDREN_PER_CLASS: u8 = 4;
/// The wait before another child is started after one could not be, while calls have the turns of
/// all others.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The time before the limit of a call at which it stops to wait for a turn: it was not run, as its
/// client is to learn.
const REPORT_TIME: Duration = Duration::from_millis(100);

/// The outcome of the search for a child with a free turn.
enum TurnSearch {
    /// This one is taken.
    Found(ChildAndTurn),
    /// Other calls have the turns of all children. If another child could not be started, it may
    /// be after this wait.
    AllHeld { again: Option<Duration> },
}

impl StdioUpstream {
    /// Returns a process in the legacy era for a call of a client with a session. Absent if the
    /// call is to go over the bridge: the client has no session, the server has no such era,
    /// could not be probed now or failed to begin in it before, or runs as many processes as
    /// allowed and the client has no capabilities.
    ///
    /// # Errors
    /// A server that is known to have that era cannot be called in it now.
    pub(crate) async fn take_legacy(
        self: &Arc<Self>,
        outbound: &OutboundCall,
    ) -> Result<Option<ChildAndTurn>, FailedAttempt> {
        if !self
            .starter
            .eras
            .may_be_legacy(outbound.call.capabilities.class)
        {
            return Ok(None);
        }
        if self.starter.eras.is_second_era_unproven() {
            self.probe_second_era_beside_calls(outbound);
            return Ok(None);
        }
        let looking = self.starter.eras.look_for_second().await;
        let is_known = looking.is_none();
        // The probe of an earlier caller may have failed meanwhile.
        if self.starter.eras.is_second_refused() || self.starter.eras.is_second_era_unproven() {
            return Ok(None);
        }
        let key = self.key(outbound, true);
        if !self.reserve_slot(&key) {
            instruments()
                .upstream_bridged
                .add(1, &[self.context.label.attribute()]);
            return Ok(None);
        }
        match self.take(key.clone(), outbound).await {
            Ok(taken) => Ok(Some(taken)),
            Err(refusal) if !is_known && *refusal.failure.kind() != FailureKind::Busy => {
                // The start of another caller's process may have gone on without its caller.
                self.slots.remove_slot(&key);
                Ok(None)
            }
            Err(_) if self.starter.eras.is_second_refused() => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Makes the slot of a process in the legacy era for a client without capabilities, which does
    /// not justify ending another client's process. False if there is no room for it. Other clients
    /// get their slot when the process starts.
    fn reserve_slot(&self, key: &ChildKey) -> bool {
        let now = self.context.clock.millis();
        key.class != CapabilityClass::BASE || self.slots.free_slot(key, now).is_some()
    }

    /// Starts a process in the legacy era to find out if the server has it, while calls go over the
    /// bridge.
    fn probe_second_era_beside_calls(self: &Arc<Self>, outbound: &OutboundCall) {
        let now = self.context.clock.now();
        let Some(turn) = self.starter.eras.try_look_for_second(now) else {
            return;
        };
        let key = self.key(outbound, true);
        if !self.reserve_slot(&key) {
            return;
        }
        let (upstream, clients) = (self.clone(), key.clients(outbound));
        self.context.tasks.spawn_endless(async move {
            let _turn = turn;
            if upstream
                .running(&upstream.slots, &key, clients)
                .await
                .is_err()
            {
                upstream.slots.remove_slot(&key);
            }
        });
    }

    /// Returns a child for a call, with the turn to be asked if it takes one.
    pub(crate) async fn take(
        self: &Arc<Self>,
        key: ChildKey,
        outbound: &OutboundCall,
    ) -> Result<ChildAndTurn, FailedAttempt> {
        let may_be_asked =
            key.class != CapabilityClass::BASE && server_questions::may_ask_in(&outbound.call);
        if !may_be_asked || key.session.is_some() || is_about_task_result(&outbound.call) {
            return Ok((
                self.running(&self.slots, &key, key.clients(outbound))
                    .await?,
                None,
            ));
        }
        // On the heap: other calls need no turn.
        Box::pin(self.take_with_turn(key, outbound)).await
    }

    /// Returns the key of the child for a call.
    pub(crate) fn key(&self, outbound: &OutboundCall, is_legacy: bool) -> ChildKey {
        let class = outbound
            .call
            .capabilities
            .class
            .cut(self.declared_at_start(is_legacy));
        match self.sharing {
            SessionSharing::Shared if class == CapabilityClass::BASE => ChildKey {
                is_legacy,
                ..ChildKey::SHARED
            },
            SessionSharing::Shared | SessionSharing::Principal => {
                let session = match &self.starter.origin {
                    ChildSource::Process(..) => None,
                    ChildSource::Sse(_) => outbound
                        .call
                        .session
                        .filter(|_| class != CapabilityClass::BASE),
                };
                ChildKey {
                    principal: Some(outbound.principal.clone()),
                    class,
                    session,
                    nth: 0,
                    is_legacy,
                }
            }
        }
    }

    /// Returns the capabilities that are declared to a child at its start. To a modern one they are
    /// declared with each call. While the era is unknown they are declared, since only the answer
    /// shows the era.
    pub(crate) fn declared_at_start(&self, is_legacy: bool) -> CapabilityClass {
        match self.starter.eras.first_dialect() {
            Some(dialect) if dialect.revision().is_modern() && !is_legacy => CapabilityClass::BASE,
            Some(_) | None => self.context.permissions.asks(),
        }
    }

    /// Returns a child with its turn: one that asks the same session, or else the first free one,
    /// or a new one within the bound, or the first to become free. Calls get a free or new one in
    /// the order that they came.
    async fn take_with_turn(
        self: &Arc<Self>,
        key: ChildKey,
        outbound: &OutboundCall,
    ) -> Result<ChildAndTurn, FailedAttempt> {
        let queue = self.queues.queue(&key);
        if let Some(joined) = self.join_turn(&key, outbound, &queue) {
            return Ok(joined);
        }
        let limit = outbound.deadlines.idle.min(outbound.deadlines.hard);
        let until = outbound.begun + limit.saturating_sub(REPORT_TIME);
        let Ok(_front) = timeout_at(until, queue.front.lock()).await else {
            return Err(self.busy_failure());
        };
        loop {
            let again = match self.look_for_turn(&key, outbound, &queue).await? {
                TurnSearch::Found(found) => return Ok(found),
                TurnSearch::AllHeld { again } => again,
            };
            let again = again.map_or(until, |wait| until.min(Instant::now() + wait));
            let freed = timeout_at(again, queue.freed.notified()).await;
            if freed.is_err() && again == until {
                return Err(self.busy_failure());
            }
        }
    }

    /// Takes the turn of a child that calls of the same session have already.
    fn join_turn(
        &self,
        key: &ChildKey,
        outbound: &OutboundCall,
        queue: &Arc<AskingQueue>,
    ) -> Option<ChildAndTurn> {
        let session = outbound.call.session?;
        (0..MAX_CHILDREN_PER_CLASS).find_map(|nth| {
            let running = self.living(&key.clone().with_number(nth))?;
            let turn = &running.legacy.as_ref()?.turn;
            let permit = turn.try_join(Some(session), queue)?;
            Some((running, Some(permit)))
        })
    }

    /// Looks for a child with a free turn, and starts one within the bound. After a start that
    /// failed only the running ones are looked at.
    async fn look_for_turn(
        self: &Arc<Self>,
        key: &ChildKey,
        outbound: &OutboundCall,
        queue: &Arc<AskingQueue>,
    ) -> Result<TurnSearch, FailedAttempt> {
        let (mut refused, mut is_held) = (None, false);
        for nth in 0..MAX_CHILDREN_PER_CLASS {
            let key = key.clone().with_number(nth);
            let running = if refused.is_some() {
                self.living(&key)
            } else {
                let starting = self.running(&self.slots, &key, key.clients(outbound));
                // A start can take longer than another call, and goes on without its caller.
                let started = tokio::select! {
                    biased;
                    started = starting => started,
                    () = queue.freed.notified() => {
                        return Ok(TurnSearch::AllHeld { again: Some(Duration::ZERO) });
                    }
                };
                started.map_err(|refusal| refused = Some(refusal)).ok()
            };
            let Some(running) = running else { continue };
            let Some(legacy) = &running.legacy else {
                return Ok(TurnSearch::Found((running, None)));
            };
            if let Some(permit) = legacy.turn.try_take(outbound.call.session, queue) {
                return Ok(TurnSearch::Found((running, Some(permit))));
            }
            is_held = true;
        }
        match refused {
            Some(refusal) if !is_held => Err(refusal),
            // Where no further child is allowed, one of these has to become free.
            refused => Ok(TurnSearch::AllHeld {
                again: refused
                    .filter(|refusal| *refusal.failure.kind() != FailureKind::Busy)
                    .map(|refusal| refusal.failure.retry_delay().unwrap_or(LOOK_AGAIN)),
            }),
        }
    }

    /// Returns the running child of a key.
    fn living(&self, key: &ChildKey) -> Option<Arc<RunningChild>> {
        let running = self.slots.value(key);
        running.filter(|running| !running.child.is_over())
    }

    /// Makes the refusal of a call that got no turn within its time.
    fn busy_failure(&self) -> FailedAttempt {
        let text = "The upstream is busy with other calls that may ask their clients: this one was not run. Try again later";
        let failure = self.context.label.fail(FailureKind::Busy, text);
        FailedAttempt::new(failure).mark_not_attempted()
    }

    /// Returns the running child of a key, or starts it.
    pub(crate) async fn running(
        self: &Arc<Self>,
        slots: &KeyedSlots<ChildKey, RunningChild>,
        key: &ChildKey,
        clients: ChildClients,
    ) -> Result<Arc<RunningChild>, FailedAttempt> {
        let is_own = |other: &ChildKey| key.principal.is_some() && other.principal == key.principal;
        let Some((slot, gone)) = slots.slot_of(key, self.context.clock.millis(), is_own) else {
            return Err(self.starter.origin.full_failure(&self.context).into());
        };
        drop(gone);
        self.sweep(key);
        if let Some(running) = alive(&slot) {
            return Ok(running);
        }
        if let ChildSource::Process(_, keeper) = &self.starter.origin {
            keeper.wait_for_children().await;
        }
        let opening = slot.opening.clone().lock_owned().await;
        if let Some(running) = alive(&slot) {
            return Ok(running);
        }
        // On the heap: few calls start a process.
        Box::pin(
            self.starter
                .clone()
                .start_detached(slot, key.clone(), clients, opening),
        )
        .await
    }

    /// Starts the task that ends unused processes, once. A child that all clients share needs no
    /// such task, because the watch always uses it.
    fn sweep(&self, key: &ChildKey) {
        let is_alone = self.sharing == SessionSharing::Shared
            && self.context.permissions.asks() == CapabilityClass::BASE
            && !key.is_legacy;
        if is_alone || self.swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let (slots, watched) = (Arc::downgrade(&self.slots), Arc::downgrade(&self.watched));
        let context = self.context.clone();
        let idle = self.context.bounds.session_idle;
        self.context.tasks.spawn_endless(async move {
            loop {
                tokio::time::sleep((idle / 4).max(Duration::from_millis(10))).await;
                let (Some(slots), Some(watched)) = (slots.upgrade(), watched.upgrade()) else {
                    return;
                };
                let before = context.clock.millis().saturating_sub(millis(idle));
                // Dropping a child ends its process.
                drop((slots.take_unused(before), watched.take_unused(before)));
            }
        });
    }
}

/// True for calls about tasks. A task is asked after in the child that began it, and asks while
/// other calls run, so these calls go to the first child, and wait for no turn.
fn is_about_task_result(call: &Call) -> bool {
    let about = matches!(
        call.method,
        Method::TasksGet | Method::TasksResult | Method::TasksUpdate | Method::TasksCancel
    );
    about || matches!(call.task_mode, TaskMode::Wanted { .. })
}

fn alive(slot: &KeyedSlot<RunningChild>) -> Option<Arc<RunningChild>> {
    slot.current
        .load_full()
        .filter(|running| !running.child.is_over())
}

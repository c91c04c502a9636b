//! A server that weir starts itself: one child process for all clients, or one for each principal
//! and capability class.
//!
//! A child is started with the first call or watch, restarted on demand with backoff, and ended
//! when unused or retired.

mod asking_turn;
mod child;
mod claim;
mod environment;
mod greet;
mod message_memory;
mod moving;
mod origin;
mod other_lines;
mod pipe;
mod relay;
mod second_era;
mod session_lists;
pub(crate) mod sse;
mod starting;
mod tail;
mod talk;
mod updates;
mod watching;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use weir_core::call::TaskMode;
use weir_core::principal::Principal;
use weir_core::reply::Reply;
use weir_core::upstream::{
    ClientSessionChange, ListWatch, OutboundCall, ResourceUpdates, TaskNotifications,
};
use weir_core::{Call, CapabilityClass, Failure, SessionKey};
use weir_era::upstream_messages::ResendProof;
use weir_era::{lower, server_questions};
use weir_wire::LogLevel;
use weir_wire::method::Method;

use crate::refusal::Refusal;
use crate::settings::{Protocol, Sharing};
use crate::site::Site;
use crate::slots::{Slot, Slots};
use asking_turn::{AskingPermit, AskingTurn};
use child::Child;
use greet::{Clients, Greeted};
pub(crate) use origin::Origin;
use second_era::{Era, SecondEra};
use starting::StartingChild;
use updates::StdioUpdates;
use watching::StdioWatch;

/// One server over standard streams.
#[derive(Debug)]
pub(crate) struct StdioServer {
    site: Arc<Site>,
    origin: Origin,
    protocol: Protocol,
    sharing: Sharing,
    slots: Arc<Slots<Key, Running>>,
    /// Children for watches alone, for capability classes other than the base: a server may list by
    /// the declared capabilities.
    watched: Arc<Slots<Key, Running>>,
    /// The era that the server was found to speak first.
    first: Era,
    /// The legacy era of a modern server that speaks both.
    second: SecondEra,
    /// The time that the last process of the first era took to answer the first message.
    took: Mutex<Duration>,
    /// The process that was started last and has not answered yet.
    starting: Mutex<Option<Arc<StartingChild>>>,
    swept: AtomicBool,
}

/// The key of a child: two principals never share one, unless the operator allows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    principal: Option<Principal>,
    /// The capabilities of its clients; the base class for a child that all clients share.
    class: CapabilityClass,
    /// The client's session, if it can be asked, for an HTTP+SSE server. A child process belongs to
    /// no single client.
    session: Option<SessionKey>,
    /// The number of the child. One that may ask takes calls of one client at a time: another
    /// client's call at the same time has a second child.
    nth: u8,
    /// True for one in the legacy era of a server with other children in the modern era.
    is_legacy: bool,
}

impl Key {
    const SHARED: Self = Self {
        principal: None,
        class: CapabilityClass::BASE,
        session: None,
        nth: 0,
        is_legacy: false,
    };
    const NOBODYS: Clients = Clients {
        class: CapabilityClass::BASE,
        session: None,
    };

    /// Returns the clients behind the call that a child is started for.
    fn clients(&self, outbound: &OutboundCall) -> Clients {
        let session = outbound
            .call
            .session
            .filter(|_| self.class != CapabilityClass::BASE);
        Clients {
            class: self.class,
            session,
        }
    }
}

/// A child for a call, and the turn to be asked in it, if the call takes one.
type Taken = (Arc<Running>, Option<AskingPermit>);

/// The most capability classes that are watched apart; the catalog follows no more.
const MOST_WATCHED: usize = 16;
/// The most children of one principal and class.
const MOST_AT_ONCE: u8 = 4;

/// A child that is ready for calls.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    greeted: Greeted,
    since: Instant,
    /// The capabilities that were declared to it.
    class: CapabilityClass,
    /// True if `roots.listChanged` was declared to it.
    declares_roots_changes: bool,
    /// The turn of calls in a child that can ask and does not name the call.
    turn: Arc<AskingTurn>,
    /// The time of its last use, in milliseconds of the site's clock.
    used: Arc<AtomicU64>,
    /// The least severe log level that the server was asked for.
    level: tokio::sync::Mutex<Option<LogLevel>>,
}

impl StdioServer {
    pub(crate) fn new(
        site: Arc<Site>,
        origin: Origin,
        protocol: Protocol,
        sharing: Sharing,
    ) -> Self {
        let most = match sharing {
            // One for each era.
            Sharing::Shared if site.asks() == CapabilityClass::BASE => origin.most(&site).min(2),
            // One more, for the watch, which belongs to no principal.
            Sharing::Shared | Sharing::Principal => origin.most(&site).saturating_add(1),
        };
        let idle = origin.idle(&site);
        Self {
            site,
            origin,
            protocol,
            sharing,
            slots: Arc::new(Slots::new(most, idle)),
            watched: Arc::new(Slots::new(MOST_WATCHED, idle)),
            first: Era::default(),
            second: SecondEra::default(),
            took: Mutex::default(),
            starting: Mutex::default(),
            swept: AtomicBool::new(false),
        }
    }

    /// Makes one attempt at a call.
    pub(crate) async fn call(self: &Arc<Self>, outbound: &OutboundCall) -> Result<Reply, Refusal> {
        let taken = match Box::pin(self.take_legacy(outbound)).await? {
            Some(taken) => taken,
            None => self.take(self.key(outbound, false), outbound).await?,
        };
        talk::call(&self.site, taken, outbound).await
    }

    /// Returns a child for a call, with the turn to be asked if it takes one.
    async fn take(self: &Arc<Self>, key: Key, outbound: &OutboundCall) -> Result<Taken, Refusal> {
        let may_be_asked =
            key.class != CapabilityClass::BASE && server_questions::may_ask_in(&outbound.call);
        if !may_be_asked || key.session.is_some() || is_of_task(&outbound.call) {
            return Ok((
                self.running(&self.slots, &key, key.clients(outbound))
                    .await?,
                None,
            ));
        }
        self.in_turn(key, outbound).await
    }

    fn key(&self, outbound: &OutboundCall, is_legacy: bool) -> Key {
        let class = outbound.call.capabilities.class.cut(self.told(is_legacy));
        match self.sharing {
            Sharing::Shared if class == CapabilityClass::BASE => Key {
                is_legacy,
                ..Key::SHARED
            },
            Sharing::Shared | Sharing::Principal => {
                let session = match &self.origin {
                    Origin::Process(..) => None,
                    Origin::Line(_) => outbound
                        .call
                        .session
                        .filter(|_| class != CapabilityClass::BASE),
                };
                Key {
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
    fn told(&self, is_legacy: bool) -> CapabilityClass {
        match self.first.tongue() {
            Some(tongue) if tongue.revision().is_modern() && !is_legacy => CapabilityClass::BASE,
            Some(_) | None => self.site.asks(),
        }
    }

    /// Returns a child with its turn: the first free one, or a new one within the bound, or else
    /// the first to become free.
    async fn in_turn(
        self: &Arc<Self>,
        mut key: Key,
        outbound: &OutboundCall,
    ) -> Result<Taken, Refusal> {
        let (mut first, session) = (None, outbound.call.session);
        for nth in 0..MOST_AT_ONCE {
            key.nth = nth;
            let running = match self.running(&self.slots, &key, key.clients(outbound)).await {
                Err(refusal) if first.is_none() => return Err(refusal),
                Err(_) => break,
                Ok(running) => running,
            };
            if running.greeted.tongue.revision().is_modern() {
                return Ok((running, None));
            }
            if let Some(turn) = running.turn.try_take(session) {
                return Ok((running, Some(turn)));
            }
            first.get_or_insert(running);
        }
        let Some(running) = first else {
            return Err(Failure::internal("a child was not looked for").into());
        };
        let turn = running.turn.take(session).await;
        Ok((running, Some(turn)))
    }

    /// Opens a watch: on the child that all clients share, or on one without a principal. For
    /// clients with sessions it uses the legacy era, if the server has that beside its modern one.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        class: CapabilityClass,
    ) -> Result<Box<dyn ListWatch>, Refusal> {
        let is_legacy = self.second_for(class).is_some();
        let told = class.cut(self.told(is_legacy));
        let key = Key {
            class: told,
            is_legacy,
            ..Key::SHARED
        };
        let is_for_calls =
            told == CapabilityClass::BASE && (!is_legacy || self.sharing == Sharing::Shared);
        let slots = if is_for_calls {
            &self.slots
        } else {
            &self.watched
        };
        let running = self
            .running(
                slots,
                &key,
                Clients {
                    class: told,
                    session: None,
                },
            )
            .await?;
        let class = class.cut(self.site.carries(running.greeted.tongue));
        Ok(Box::new(
            StdioWatch::open(self.site.clone(), running, class).await?,
        ))
    }

    /// Opens a subscription to updates of single resources, on the same child as a watch.
    pub(crate) async fn updates(self: &Arc<Self>) -> Result<Box<dyn ResourceUpdates>, Refusal> {
        let running = self
            .running(&self.slots, &Key::SHARED, Key::NOBODYS)
            .await?;
        Ok(Box::new(StdioUpdates::open(self.site.clone(), running)?))
    }

    /// Subscribes to a task's status in the child that handles requests about it. Absent if the
    /// child has no such subscription.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        outbound: &OutboundCall,
    ) -> Option<TaskNotifications> {
        let key = self.key(
            outbound,
            self.second_for(outbound.call.capabilities.class).is_some(),
        );
        let running = self
            .running(&self.slots, &key, key.clients(outbound))
            .await
            .ok()?;
        updates::follow(&self.site, running, outbound).await
    }

    /// Forgets the era, because the server may have been replaced: the next child is probed again.
    pub(crate) fn doubt(&self) {
        self.first.set(None);
        self.second.renew();
    }

    /// Returns the capabilities that are carried to the server, by its known eras.
    pub(crate) fn carries(&self) -> CapabilityClass {
        let first = self
            .first
            .tongue()
            .map_or(CapabilityClass::BASE, |tongue| self.site.carries(tongue));
        match self.second_for(CapabilityClass::SESSIONS) {
            Some(tongue) => first
                .with(self.site.carries(tongue))
                .with(CapabilityClass::SESSIONS),
            None => first,
        }
    }

    pub(crate) fn revision(&self) -> Option<&'static str> {
        self.first.tongue().map(|tongue| tongue.revision().as_str())
    }

    pub(crate) fn processes(&self) -> usize {
        self.slots.len()
    }

    /// Forwards news of client sessions to the children that belong to them.
    pub(crate) fn tell(&self, sessions: &HashSet<SessionKey>, news: ClientSessionChange) {
        let is_its_own = |key: &Key| {
            key.session
                .is_some_and(|session| sessions.contains(&session))
        };
        let speaks_to = |running: &Running| {
            running
                .child
                .pipe
                .client
                .get()
                .is_some_and(|own| sessions.contains(&own))
        };
        match news {
            // Dropping a child ends its process.
            ClientSessionChange::Ended => {
                drop(self.slots.take_where(is_its_own));
                let over = self
                    .slots
                    .those(|_| true)
                    .into_iter()
                    .filter(|running| speaks_to(running));
                over.for_each(|running| {
                    running.child.pipe.client.set(None);
                });
            }
            ClientSessionChange::RootsChanged => {
                let told = self
                    .slots
                    .those(|key| key.class.has(CapabilityClass::ROOTS))
                    .into_iter();
                let told = told.filter(|running| {
                    speaks_to(running)
                        && running.declares_roots_changes
                        && !running.child.pipe.is_modern()
                });
                told.for_each(|running| running.child.pipe.tell(lower::roots_changed()));
            }
        }
    }

    /// Ends all children.
    pub(crate) async fn close(&self) {
        let mut all = self.slots.take_all();
        all.extend(self.watched.take_all());
        futures_util::future::join_all(all.iter().map(|running| running.child.stopped())).await;
    }

    async fn running(
        self: &Arc<Self>,
        slots: &Slots<Key, Running>,
        key: &Key,
        clients: Clients,
    ) -> Result<Arc<Running>, Refusal> {
        let is_own = |other: &Key| key.principal.is_some() && other.principal == key.principal;
        let Some((slot, gone)) = slots.slot_of(key, self.site.millis(), is_own) else {
            return Err(self.origin.no_place(&self.site).into());
        };
        drop(gone);
        self.sweep(key);
        if let Some(running) = alive(&slot) {
            return Ok(running);
        }
        if let Origin::Process(_, keeper) = &self.origin {
            keeper.children_arrived().await;
        }
        let opening = slot.opening.clone().lock_owned().await;
        if let Some(running) = alive(&slot) {
            return Ok(running);
        }
        // On the heap: few calls start a process.
        Box::pin(
            self.clone()
                .start_apart((slot, key.clone()), clients, opening),
        )
        .await
    }

    /// Starts the task that ends unused processes, once. A child that all clients share needs no
    /// such task, because the watch always uses it.
    fn sweep(&self, key: &Key) {
        let is_alone = self.sharing == Sharing::Shared
            && self.site.asks() == CapabilityClass::BASE
            && !key.is_legacy;
        if is_alone || self.swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let (slots, watched) = (Arc::downgrade(&self.slots), Arc::downgrade(&self.watched));
        let site = self.site.clone();
        let idle = self.site.bounds.session_idle;
        self.site.background(async move {
            loop {
                tokio::time::sleep((idle / 4).max(Duration::from_millis(10))).await;
                let (Some(slots), Some(watched)) = (slots.upgrade(), watched.upgrade()) else {
                    return;
                };
                let before = site
                    .millis()
                    .saturating_sub(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
                // Dropping a child ends its process.
                drop((slots.take_unused(before), watched.take_unused(before)));
            }
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True for calls about tasks. A task is asked after in the child that began it, and asks while
/// other calls run, so these calls go to the first child, and wait for no turn.
fn is_of_task(call: &Call) -> bool {
    let about = matches!(
        call.method,
        Method::TasksGet | Method::TasksResult | Method::TasksUpdate | Method::TasksCancel
    );
    about || matches!(call.task_mode, TaskMode::Wanted { .. })
}

fn alive(slot: &Slot<Running>) -> Option<Arc<Running>> {
    slot.current
        .load_full()
        .filter(|running| !running.child.is_over())
}

/// Makes the refusal of a process that ended before the request was given to it.
fn not_sent(failure: Failure) -> Refusal {
    Refusal::new(failure).proven(Some(ResendProof::NotSent))
}

//! Refusals that are counted, minute by minute, so that a flood of them cannot fill the disk.
//! Refusals without an identity are counted by network, endpoint and reason. Refusals of a
//! principal are counted beyond the number that get a record each.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use weir_core::Principal;
use weir_core::names::EndpointId;
use weir_core::network::SenderNetwork;
use weir_core::port::Clock;

use crate::record::event::{AuditEvent, AuditLifecycle, EventContent};
use crate::record::refusal_count::{RefusalCount, RefusalGroup, RefusalTally};

/// Combinations of network, endpoint and reason that a minute tells apart. The rest is counted by
/// its reason.
pub(crate) const MAX_NETWORKS: usize = 1024;
/// Denials of a principal in a minute that have a record each. Further ones are counted.
pub(crate) const DENIALS_A_MINUTE: u32 = 600;
/// Logins of operators that failed in a minute and have a record each. Further ones are counted.
const LOGINS: u32 = 60;
/// Principals that a minute tells apart; denials of further ones get no record of their own.
const MAX_PRINCIPALS: usize = 16_384;
/// Counts of past minutes that were not taken yet, because their file cannot be written.
const MAX_FINISHED: usize = 16 * MAX_NETWORKS;

/// The refusals of the running minute.
pub(crate) struct RefusalCounter {
    clock: Arc<dyn Clock>,
    state: Mutex<RefusalState>,
}

#[derive(Default)]
struct RefusalState {
    /// The running minute of the Unix epoch.
    minute: u64,
    networks: HashMap<(SenderNetwork, EndpointId, &'static str), RefusalTally>,
    rest: BTreeMap<&'static str, RefusalTally>,
    principals: HashMap<[u8; 16], PrincipalDenials>,
    logins: u32,
    /// Counts of past minutes.
    finished: Vec<AuditEvent>,
    /// Counts without room there.
    lost: u64,
}

struct PrincipalDenials {
    kept: u32,
    principal: Principal,
    beyond: Option<RefusalTally>,
}

impl RefusalCounter {
    /// A counter without counts.
    #[must_use]
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Counts a refusal of a request without an identity.
    pub(super) fn count(&self, peer: IpAddr, endpoint: &EndpointId, reason: &'static str) {
        let (mut state, now) = self.now();
        let key = (SenderNetwork::of(peer), endpoint.clone(), reason);
        let RefusalState { networks, rest, .. } = &mut *state;
        let is_full = networks.len() >= MAX_NETWORKS;
        match networks.get_mut(&key) {
            Some(count) => count.add(now),
            None if !is_full => {
                networks.insert(key, RefusalTally::of(now));
            }
            None => {
                rest.entry(reason)
                    .and_modify(|count| count.add(now))
                    .or_insert(RefusalTally::of(now));
            }
        }
    }

    /// Returns `true` if a denial of this principal gets a record of its own; counts it otherwise.
    pub(super) fn admit_denial(&self, principal: &Principal) -> bool {
        let (mut state, now) = self.now();
        let RefusalState {
            principals, rest, ..
        } = &mut *state;
        if let Some(denials) = principals.get_mut(principal.digest()) {
            if denials.kept < DENIALS_A_MINUTE {
                denials.kept += 1;
                return true;
            }
            denials.beyond = Some(
                denials
                    .beyond
                    .map_or(RefusalTally::of(now), |count| count.and(now)),
            );
            return false;
        }
        if principals.len() < MAX_PRINCIPALS {
            principals.insert(
                *principal.digest(),
                PrincipalDenials {
                    kept: 1,
                    principal: principal.clone(),
                    beyond: None,
                },
            );
            return true;
        }
        rest.entry("denied")
            .and_modify(|count| count.add(now))
            .or_insert(RefusalTally::of(now));
        false
    }

    /// Returns `true` if a failed login of an operator gets a record of its own; counts it
    /// otherwise.
    pub(super) fn admit_login(&self) -> bool {
        let (mut state, now) = self.now();
        let admitted = state.logins < LOGINS;
        if admitted {
            state.logins += 1;
        } else {
            state
                .rest
                .entry("login")
                .and_modify(|count| count.add(now))
                .or_insert(RefusalTally::of(now));
        }
        admitted
    }

    /// Takes the counts of all past minutes, and with `open` those of the running one.
    #[must_use]
    pub(crate) fn take(&self, open: bool) -> Vec<AuditEvent> {
        let (mut state, now) = self.now();
        if open {
            state.finish();
        }
        let lost = std::mem::take(&mut state.lost);
        let mut events = std::mem::take(&mut state.finished);
        drop(state);
        if lost > 0 {
            events.push(AuditEvent::life(now, AuditLifecycle::Lost { events: lost }));
        }
        events
    }

    /// The time until the running minute is over.
    #[must_use]
    pub(crate) fn until_minute_ends(&self) -> Duration {
        let since = self
            .clock
            .wall()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Duration::from_secs(60)
            - Duration::from_secs(since.as_secs() % 60)
            - Duration::from_nanos(since.subsec_nanos().into())
    }

    fn now(&self) -> (MutexGuard<'_, RefusalState>, SystemTime) {
        let now = self.clock.wall();
        let minute = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 60;
        let mut state = self.state.lock();
        if state.minute != minute {
            state.finish();
            state.minute = minute;
            state.principals.clear();
            state.logins = 0;
        }
        (state, now)
    }
}

impl RefusalState {
    /// Moves the counts of the running minute to the finished ones. The number of recorded denials
    /// of each principal stays.
    fn finish(&mut self) {
        let networks = std::mem::take(&mut self.networks).into_iter();
        let networks = networks.map(|((network, endpoint, reason), count)| {
            (RefusalGroup::Network(network, endpoint, reason), count)
        });
        let rest = std::mem::take(&mut self.rest)
            .into_iter()
            .map(|(reason, count)| (RefusalGroup::Rest(reason), count));
        let principals = self.principals.values_mut().filter_map(|denials| {
            let count = denials.beyond.take()?;
            Some((RefusalGroup::Principal(denials.principal.clone()), count))
        });
        let mut counts: Vec<_> = networks.chain(rest).chain(principals).collect();
        counts.sort_by_key(|(_, count)| count.last);
        for (of, count) in counts {
            if self.finished.len() < MAX_FINISHED {
                self.finished.push(AuditEvent {
                    time: count.last,
                    content: EventContent::Refusals(Box::new(RefusalCount { of, count })),
                });
            } else {
                self.lost += count.count;
            }
        }
    }
}

impl fmt::Debug for RefusalCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusalCounter").finish_non_exhaustive()
    }
}

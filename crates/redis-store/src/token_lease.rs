//! The tokens of one shared bucket that this replica holds, and the requests that wait for more.
//!
//! It does no IO and reads no clock.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::sync::oneshot;
use weir_core::port::Rate;
use weir_store::{LeasePlan, LocalShare};

/// The decision on a charge: `Ok`, or the time until it may pass.
pub(crate) type LeaseDecision = Result<(), Duration>;

/// The tokens of one bucket that this replica holds.
#[derive(Debug)]
pub(crate) struct TokenLease {
    rate: Rate,
    tokens: u32,
    /// The mark for the next lease: it is fetched once fewer tokens are left.
    low_mark: u32,
    refusal: Option<StoreRefusal>,
    /// True from the order of a trip until its result.
    is_asking: bool,
    /// Those that wait for the trip. Bounded by the requests in flight.
    waiters: VecDeque<TokenWaiter>,
    share: LocalShare,
    used_at: Duration,
}

/// A refusal of the store, remembered so that no refused request makes a trip.
#[derive(Clone, Copy, Debug)]
struct StoreRefusal {
    /// The least cost that is refused.
    cost: u32,
    until: Duration,
}

/// A request that waits for tokens.
#[derive(Debug)]
struct TokenWaiter {
    cost: u32,
    reply: oneshot::Sender<LeaseDecision>,
}

/// An answer from the tokens and refusals that are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseAnswer {
    /// The tokens are taken.
    Taken,
    /// The tokens are taken, and few are left: the next lease is due.
    TakenLow,
    /// The bucket does not have the tokens for this long.
    Refused(Duration),
    /// Only the store knows.
    Unknown,
}

/// The purpose of a trip to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TripPurpose {
    /// To bring tokens.
    Tokens,
    /// To see if the store answers again. It takes no tokens: a store that answers too late would
    /// lose them.
    Look,
}

/// The demand of a trip to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenDemand {
    /// The least number of tokens that are of use.
    pub(crate) need: u32,
    /// The number of tokens that are taken if they are there.
    pub(crate) want: u32,
    /// True if requests wait for the trip.
    pub(crate) is_awaited: bool,
    /// The part of the wanted tokens that this replica admitted alone while the store did not answer.
    pub(crate) owed: u32,
}

/// The store's reply to a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenReply {
    /// The number of tokens that were taken, at most the wanted number.
    pub(crate) granted: u32,
    /// If fewer than wanted were taken: the time until the needed tokens are there, or one more if
    /// some were taken.
    pub(crate) wait: Duration,
}

impl TokenDemand {
    const LOOK: Self = Self {
        need: 1,
        want: 0,
        is_awaited: false,
        owed: 0,
    };
}

impl TokenLease {
    /// A lease without tokens.
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            tokens: 0,
            low_mark: 0,
            refusal: None,
            is_asking: false,
            waiters: VecDeque::new(),
            share: LocalShare::default(),
            used_at: Duration::ZERO,
        }
    }

    /// The rate of the bucket.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes `cost` from the tokens that are here.
    pub(crate) fn take(&mut self, cost: NonZeroU32, now: Duration) -> LeaseAnswer {
        self.used_at = now;
        match self.look(cost, now) {
            LeaseAnswer::Taken => {
                self.tokens -= self.bounded(cost);
                let is_due = self.tokens < self.low_mark
                    && !self.is_asking
                    && self.refusal_of(1, now).is_none();
                if is_due {
                    LeaseAnswer::TakenLow
                } else {
                    LeaseAnswer::Taken
                }
            }
            answer @ (LeaseAnswer::TakenLow | LeaseAnswer::Refused(_) | LeaseAnswer::Unknown) => {
                answer
            }
        }
    }

    /// The answer that [`Self::take`] would give, without taking.
    pub(crate) fn look(&self, cost: NonZeroU32, now: Duration) -> LeaseAnswer {
        let cost = self.bounded(cost);
        if cost <= self.tokens {
            return LeaseAnswer::Taken;
        }
        self.refusal_of(cost, now)
            .map_or(LeaseAnswer::Unknown, LeaseAnswer::Refused)
    }

    /// Takes `cost` from this replica's own share of the bucket.
    pub(crate) fn take_alone(
        &mut self,
        cost: NonZeroU32,
        replicas: usize,
        now: Duration,
    ) -> LeaseDecision {
        self.share.take(&self.rate, replicas, cost, now)
    }

    /// Takes `cost` from this replica's own share for a request whose trip may have run: the shared
    /// bucket may have given its tokens, so they are not owed.
    pub(crate) fn take_unanswered(
        &mut self,
        cost: NonZeroU32,
        replicas: usize,
        now: Duration,
    ) -> LeaseDecision {
        let before = self.share.owed(&self.rate, replicas, now);
        let decision = self.take_alone(cost, replicas, now);
        self.share.set_owed(before);
        decision
    }

    /// The time until this replica's own share of the bucket has `cost`.
    pub(crate) fn wait_alone(&self, cost: NonZeroU32, replicas: usize, now: Duration) -> Duration {
        self.share.wait(&self.rate, replicas, cost, now)
    }

    /// Waits for `cost`. The sender is dropped if the lease is.
    pub(crate) fn enqueue(&mut self, cost: NonZeroU32) -> oneshot::Receiver<LeaseDecision> {
        let (reply, receiver) = oneshot::channel();
        let cost = self.bounded(cost);
        self.waiters.push_back(TokenWaiter { cost, reply });
        receiver
    }

    /// Reserves the right to make a trip; false while one is under way. Then [`Self::begin_trip`],
    /// [`Self::finish_trip`] or [`Self::fail_trip`] must follow.
    pub(crate) fn order_trip(&mut self) -> bool {
        !std::mem::replace(&mut self.is_asking, true)
    }

    /// The demand of the ordered trip; `None` ends the trip: there are enough tokens.
    pub(crate) fn begin_trip(
        &mut self,
        plan: &LeasePlan,
        purpose: TripPurpose,
        now: Duration,
    ) -> Option<TokenDemand> {
        self.low_mark = plan.low_mark;
        if purpose == TripPurpose::Look {
            return Some(TokenDemand::LOOK);
        }
        // Requests that were given up.
        self.waiters.retain(|waiter| !waiter.reply.is_closed());
        let first = self.waiters.front().map(|waiter| waiter.cost);
        let waiting = self
            .waiters
            .iter()
            .fold(0u32, |sum, waiter| sum.saturating_add(waiter.cost));
        let need = first.unwrap_or(1).saturating_sub(self.tokens).max(1);
        let owed = self.share.owed(&self.rate, plan.replicas, now);
        self.share.set_owed(owed);
        let want = plan.size.saturating_add(waiting);
        let want = want.saturating_sub(self.tokens).saturating_add(owed);
        if want == 0 {
            self.is_asking = false;
            return None;
        }
        Some(TokenDemand {
            need,
            want: want.max(need).min(self.rate.burst.get()),
            is_awaited: first.is_some(),
            owed,
        })
    }

    /// Takes in the store's reply, and decides on all waiting requests that it suffices for. Returns
    /// true if others need a further trip, which is ordered then.
    pub(crate) fn finish_trip(
        &mut self,
        demand: TokenDemand,
        reply: TokenReply,
        plan: &LeasePlan,
        now: Duration,
    ) -> bool {
        self.refusal = (reply.granted < demand.want).then(|| {
            // After a partial grant the bucket is empty: every cost is refused.
            let cost = match reply.granted {
                0 => demand.need.saturating_add(self.tokens),
                _ => 1,
            };
            StoreRefusal {
                cost,
                until: now + reply.wait.max(plan.pause),
            }
        });
        if demand != TokenDemand::LOOK {
            let paid = reply.granted.min(demand.owed);
            let granted = reply.granted - paid;
            self.share.pay(paid);
            self.share
                .note_granted(&self.rate, plan.replicas, granted, now);
            self.tokens = self.tokens.saturating_add(granted);
        }
        self.is_asking = self.serve_waiters(now);
        self.is_asking
    }

    /// Decides on waiting requests in order. Returns true if the next one needs a trip.
    fn serve_waiters(&mut self, now: Duration) -> bool {
        while let Some(waiter) = self.waiters.front() {
            let cost = waiter.cost;
            let decision = if cost <= self.tokens {
                Ok(())
            } else if let Some(wait) = self.refusal_of(cost, now) {
                Err(wait)
            } else {
                return true;
            };
            let Some(waiter) = self.waiters.pop_front() else {
                return false;
            };
            // The tokens of a request that was given up stay.
            if waiter.reply.send(decision).is_ok() && decision.is_ok() {
                self.tokens -= cost;
            }
        }
        false
    }

    /// Ends a trip without a reply: decides on all waiting requests by this replica's own share.
    /// Returns their number.
    pub(crate) fn fail_trip(&mut self, replicas: usize, now: Duration) -> u64 {
        self.is_asking = false;
        let mut decided = 0;
        while let Some(TokenWaiter { cost, reply }) = self.waiters.pop_front() {
            let cost = NonZeroU32::new(cost).unwrap_or(NonZeroU32::MIN);
            let before = self.share;
            let decision = self.take_unanswered(cost, replicas, now);
            if reply.send(decision).is_ok() {
                decided += 1;
            } else {
                // The request stopped waiting, and takes from the share itself.
                self.share = before;
            }
        }
        decided
    }

    /// Gives away all tokens, unless one was used since `before` or a trip is under way.
    pub(crate) fn give_up_idle(&mut self, before: Duration) -> u32 {
        if self.is_asking || self.used_at > before {
            return 0;
        }
        std::mem::take(&mut self.tokens)
    }

    /// Reports if there are tokens.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens > 0
    }

    /// The rest of the time for which a cost is refused.
    fn refusal_of(&self, cost: u32, now: Duration) -> Option<Duration> {
        let refusal = self.refusal.filter(|refusal| cost >= refusal.cost)?;
        let left = refusal.until.saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }

    /// A cost above the burst takes a full bucket.
    fn bounded(&self, cost: NonZeroU32) -> u32 {
        cost.min(self.rate.burst).get()
    }
}

#[cfg(test)]
mod tests;

//! The turn to be asked in a legacy child, and the queue of the calls that wait for one. The
//! questions of such a child do not name their call.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_core::SessionKey;

use crate::child_key::ChildKey;

/// The turn of one child. One call has it, or all calls of one client's session; the newest of them
/// is asked.
#[derive(Debug, Default)]
pub(crate) struct AskingTurn(Mutex<TurnHolder>);

#[derive(Debug, Default)]
struct TurnHolder {
    calls: usize,
    session: Option<SessionKey>,
}

/// The queue of the calls of one principal and class for the turns of their children.
#[derive(Debug, Default)]
pub(crate) struct AskingQueue {
    /// Held by the call that looks for a turn. The others wait for it in the order that they came.
    pub(crate) front: tokio::sync::Mutex<()>,
    /// Notified when a turn becomes free, for the call in front.
    pub(crate) freed: Notify,
}

/// The queues of all principals and classes with calls, by the keys of their first children.
#[derive(Debug, Default)]
pub(crate) struct AskingQueues(Mutex<HashMap<ChildKey, Weak<AskingQueue>>>);

/// The turn of one call. Dropping it releases the turn.
#[derive(Debug)]
pub(crate) struct AskingPermit {
    turn: Arc<AskingTurn>,
    queue: Arc<AskingQueue>,
}

impl AskingQueues {
    /// Returns the queue of a principal and class. It ends with the last call that has it.
    pub(crate) fn queue(&self, key: &ChildKey) -> Arc<AskingQueue> {
        let mut queues = self.0.lock();
        if let Some(queue) = queues.get(key).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::default();
        queues.insert(key.clone(), Arc::downgrade(&queue));
        queue
    }
}

impl AskingTurn {
    /// Takes the turn if no call has it, or calls of the same session have it.
    pub(crate) fn try_take(
        self: &Arc<Self>,
        session: Option<SessionKey>,
        queue: &Arc<AskingQueue>,
    ) -> Option<AskingPermit> {
        self.take_if(session, queue, |_| true)
    }

    /// Takes the turn if calls of the same session have it.
    pub(crate) fn try_join(
        self: &Arc<Self>,
        session: Option<SessionKey>,
        queue: &Arc<AskingQueue>,
    ) -> Option<AskingPermit> {
        self.take_if(session, queue, |holder| holder.calls > 0)
    }

    fn take_if(
        self: &Arc<Self>,
        session: Option<SessionKey>,
        queue: &Arc<AskingQueue>,
        may_take: impl FnOnce(&TurnHolder) -> bool,
    ) -> Option<AskingPermit> {
        let mut holder = self.0.lock();
        let is_others = holder.calls > 0 && (session.is_none() || holder.session != session);
        if is_others || !may_take(&holder) {
            return None;
        }
        holder.calls += 1;
        holder.session = session;
        Some(AskingPermit {
            turn: self.clone(),
            queue: queue.clone(),
        })
    }
}

impl Drop for AskingPermit {
    fn drop(&mut self) {
        let mut holder = self.turn.0.lock();
        holder.calls -= 1;
        if holder.calls == 0 {
            drop(holder);
            self.queue.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_turn_is_held_by_one_call_or_by_one_session() {
        let (turn, queue) = (Arc::<AskingTurn>::default(), Arc::default());
        let [one, other] = [1, 2].map(|byte| Some(SessionKey([byte; 16])));
        assert!(turn.try_join(one, &queue).is_none(), "no call has it");
        let held = turn.try_take(one, &queue);
        assert!(held.is_some());
        for session in [other, None] {
            assert!(turn.try_take(session, &queue).is_none());
            assert!(turn.try_join(session, &queue).is_none());
        }
        let second = turn.try_join(one, &queue);
        assert!(second.is_some());
        drop(held);
        assert!(turn.try_take(other, &queue).is_none(), "the second has it");
        drop(second);
        let alone = turn.try_take(None, &queue);
        assert!(alone.is_some());
        assert!(turn.try_take(None, &queue).is_none());
    }

    #[tokio::test]
    async fn call_in_front_learns_of_a_turn_that_became_free_before_it_waits() {
        let (turn, queue) = (Arc::<AskingTurn>::default(), Arc::default());
        let held = turn.try_take(None, &queue);
        let _front = queue.front.lock().await;
        assert!(turn.try_take(None, &queue).is_none());
        drop(held);
        queue.freed.notified().await;
        assert!(turn.try_take(None, &queue).is_some());
    }

    #[test]
    fn queue_is_shared_while_a_call_has_it_and_forgotten_then() {
        let queues = AskingQueues::default();
        let queue = queues.queue(&ChildKey::SHARED);
        assert!(Arc::ptr_eq(&queue, &queues.queue(&ChildKey::SHARED)));
        drop(queue);
        let other = ChildKey {
            is_legacy: true,
            ..ChildKey::SHARED
        };
        let _held = queues.queue(&other);
        assert_eq!(queues.0.lock().len(), 1);
    }
}

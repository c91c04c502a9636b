//! The turn to be asked in a legacy child. The questions of such a child do not name their call.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_core::SessionKey;

/// The turn of one child. One call has it, or all calls of one client's session; the newest of them
/// is asked.
#[derive(Debug, Default)]
pub(crate) struct AskingTurn {
    holder: Mutex<TurnHolder>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct TurnHolder {
    calls: usize,
    session: Option<SessionKey>,
}

/// The turn of one call. Dropping it releases the turn.
#[derive(Debug)]
pub(crate) struct AskingPermit(Arc<AskingTurn>);

impl AskingTurn {
    /// Takes the turn if no call has it, or calls of the same session have it.
    pub(crate) fn try_take(self: &Arc<Self>, session: Option<SessionKey>) -> Option<AskingPermit> {
        let mut holder = self.holder.lock();
        if holder.calls > 0 && (session.is_none() || holder.session != session) {
            return None;
        }
        holder.calls += 1;
        holder.session = session;
        Some(AskingPermit(self.clone()))
    }

    /// Waits for the turn.
    pub(crate) async fn wait_for_turn(
        self: &Arc<Self>,
        session: Option<SessionKey>,
    ) -> AskingPermit {
        loop {
            let freed = self.freed.notified();
            if let Some(permit) = self.try_take(session) {
                // Other calls of the session may wait, too.
                self.freed.notify_one();
                return permit;
            }
            freed.await;
        }
    }
}

impl Drop for AskingPermit {
    fn drop(&mut self) {
        let mut holder = self.0.holder.lock();
        holder.calls -= 1;
        if holder.calls == 0 {
            drop(holder);
            self.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn asking_turn_is_held_by_one_call_or_by_one_session() {
        let turn = Arc::<AskingTurn>::default();
        let [one, other] = [1, 2].map(|byte| Some(SessionKey([byte; 16])));
        let held = turn.try_take(one);
        assert!(held.is_some());
        assert!(turn.try_take(other).is_none() && turn.try_take(None).is_none());
        let second = turn.try_take(one);
        assert!(second.is_some());
        drop(held);
        assert!(turn.try_take(other).is_none(), "the second still has it");
        let mut waiting = [other, other].map(|session| Box::pin(turn.wait_for_turn(session)));
        assert!(
            futures_util::poll!(&mut waiting[0]).is_pending()
                && futures_util::poll!(&mut waiting[1]).is_pending()
        );
        drop(second);
        let [first, second] = waiting;
        let (_first, _second) = (first.await, second.await);
        assert!(turn.try_take(None).is_none());
    }

    #[tokio::test]
    async fn calls_without_a_session_have_it_one_after_another() {
        let turn = Arc::<AskingTurn>::default();
        let held = turn.wait_for_turn(None).await;
        assert!(turn.try_take(None).is_none());
        drop(held);
        drop(turn.wait_for_turn(None).await);
        assert!(turn.try_take(None).is_some());
    }
}

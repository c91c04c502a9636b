//! Announcements that other replicas have not confirmed: a client that was notified here may have got
//! an older list there. It is notified once more.

use parking_lot::Mutex;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use weir_core::port::LateReplicas;
use weir_core::upstream::ListKinds;

type Confirmation = BoxFuture<'static, Option<ListKinds>>;

/// The confirmations that are awaited, with the changed lists of each announcement. Each ends within
/// seconds, and walks are paced, so there are few. The lock is never waited for: it makes the watcher
/// `Sync`.
#[derive(Default)]
pub(super) struct LateConfirmations(Mutex<FuturesUnordered<Confirmation>>);

impl LateConfirmations {
    /// Adds the confirmations of an announcement, if some are awaited.
    pub(super) fn push(&mut self, late: Option<LateReplicas>, changed: ListKinds) {
        if let Some(late) = late.filter(|_| !changed.is_empty()) {
            self.awaited()
                .push(Box::pin(async move { late.await.then_some(changed) }));
        }
    }

    /// Waits for the lists of which clients are to be notified once more. Cancel safe.
    pub(super) async fn next(&mut self) -> ListKinds {
        loop {
            match self.awaited().next().await {
                Some(Some(kinds)) => return kinds,
                Some(None) => {}
                None => std::future::pending().await,
            }
        }
    }

    fn awaited(&mut self) -> &mut FuturesUnordered<Confirmation> {
        self.0.get_mut()
    }
}

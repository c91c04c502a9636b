//! The budget for the answers of one batch: bounded for each batch, and taken from the memory of
//! all waiting messages.

use std::sync::atomic::{AtomicUsize, Ordering};

use weir_core::budget::{BudgetOwner, ByteBudget, ByteReservation};
use weir_core::{Failure, FailureKind};
use weir_layers::http::answer::RenderedMessage;

/// The bytes that the answers of one batch may have together.
pub(crate) struct BatchBudget {
    left: AtomicUsize,
    budget: ByteBudget,
    owner: BudgetOwner,
}

impl BatchBudget {
    /// A budget of `bytes`.
    pub(crate) fn new(bytes: usize, budget: &ByteBudget, owner: BudgetOwner) -> Self {
        Self {
            left: AtomicUsize::new(bytes),
            budget: budget.clone(),
            owner,
        }
    }

    /// An empty reservation for one answer.
    pub(super) fn share(&self) -> ByteReservation {
        self.budget.empty_of(self.owner)
    }

    /// Grows a reservation.
    ///
    /// # Errors
    /// The batch is at its limit, or the memory is in use.
    pub(super) fn grow(&self, share: &mut ByteReservation, bytes: usize) -> Result<(), Failure> {
        let less = |left: usize| left.checked_sub(bytes);
        let is_left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok();
        if is_left && share.try_grow(bytes) {
            return Ok(());
        }
        Err(Failure::new(
            FailureKind::BadAnswer,
            "The result is too large for a batch: call the tool alone",
        ))
    }

    /// Reserves memory for a whole answer.
    ///
    /// # Errors
    /// As for [`BatchBudget::grow`].
    pub(crate) fn hold(&self, said: RenderedMessage) -> Result<RenderedMessage, Failure> {
        let mut share = self.share();
        self.grow(&mut share, said.message.len())?;
        Ok(RenderedMessage {
            message: share.hold(said.message),
            memory: None,
            ..said
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use weir_layers::failure;
    use weir_layers::request::outcome::RequestOutcome;

    #[test]
    fn the_answers_of_a_batch_share_its_room() {
        let budget = ByteBudget::new("messages");
        let owner = BudgetOwner::Principal([1; 16]);
        let room = BatchBudget::new(100, &budget, owner);
        let said =
            |bytes: usize| failure::ok_message(Bytes::from(vec![b'x'; bytes]), RequestOutcome::Ok);
        let held = (0..50)
            .filter_map(|_| room.hold(said(30)).ok())
            .collect::<Vec<_>>();
        assert_eq!((held.len(), budget.used()), (3, 90));
        drop(held);
        assert_eq!(budget.used(), 0);
        budget.set_limit(10);
        assert!(
            BatchBudget::new(100, &budget, owner)
                .hold(said(30))
                .is_err(),
            "others have the memory"
        );
        // One principal leaves a fourth to others, with any number of batches.
        budget.set_limit(1000);
        let of = |owner| BatchBudget::new(1000, &budget, owner);
        let own: Vec<_> = (0..100)
            .filter_map(|_| of(owner).hold(said(30)).ok())
            .collect();
        assert_eq!((own.len(), budget.used()), (25, 750));
        assert!(
            of(BudgetOwner::Principal([2; 16])).hold(said(30)).is_ok(),
            "another one finds some"
        );
    }
}

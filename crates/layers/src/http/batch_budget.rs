//! The budget for the answers of one batch: bounded for each batch, and taken from the memory of
//! all waiting messages.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::http::answer::RenderedMessage;
use bytes::Bytes;
use weir_core::budget::{BudgetOwner, ByteBudget, ByteReservation};
use weir_core::{Failure, FailureKind};

/// The bytes that the answers of one batch may have together.
#[derive(Debug)]
pub struct BatchBudget {
    left: AtomicUsize,
    budget: ByteBudget,
    owner: BudgetOwner,
}

/// The kind of an answer in a batch: it decides what the client is told if there is no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchedAnswer {
    /// The result of a tool, which ran.
    ToolResult,
    /// The error of a server to a call of its tool, which may have run.
    ToolError,
    /// The answer to any other request. The client may send it again.
    Other,
}

impl BatchedAnswer {
    /// The failure of an answer that the rest of the batch leaves no room for.
    fn beyond_limit(self) -> Failure {
        let text = "The result is too large for a batch";
        match self.tool_state() {
            Some(state) => Failure::new(
                FailureKind::ResultUnknown,
                format!("{text}. {state}: check before calling it again, alone"),
            ),
            None => Failure::new(
                FailureKind::BadAnswer,
                format!("{text}: send the request alone"),
            ),
        }
    }

    /// The failure of an answer whose memory others have.
    fn without_memory(self) -> Failure {
        let text =
            "There is no memory for the result: other answers wait for clients that read slowly";
        let failure = match self.tool_state() {
            Some(state) => Failure::new(
                FailureKind::ResultUnknown,
                format!("{text}. {state}: check before calling again"),
            ),
            None => Failure::new(FailureKind::Busy, text),
        };
        failure.retry_after(Duration::from_secs(1))
    }

    fn tool_state(self) -> Option<&'static str> {
        match self {
            Self::ToolResult => Some("The tool ran"),
            Self::ToolError => Some("The tool may have run"),
            Self::Other => None,
        }
    }
}

impl BatchBudget {
    /// A budget of `bytes`.
    #[must_use]
    pub fn new(bytes: usize, budget: &ByteBudget, owner: BudgetOwner) -> Self {
        Self {
            left: AtomicUsize::new(bytes),
            budget: budget.clone(),
            owner,
        }
    }

    /// An empty share for one answer.
    #[must_use]
    pub fn share(&self, kind: BatchedAnswer) -> BatchShare<'_> {
        BatchShare {
            room: self,
            memory: self.budget.empty_of(self.owner),
            kind,
        }
    }

    /// Reserves memory for a whole answer.
    ///
    /// # Errors
    /// As for [`BatchShare::grow`].
    pub fn hold(
        &self,
        answer: RenderedMessage,
        kind: BatchedAnswer,
    ) -> Result<RenderedMessage, Failure> {
        let mut share = self.share(kind);
        share.grow(answer.message.len())?;
        Ok(RenderedMessage {
            message: share.hold(answer.message),
            memory: None,
            ..answer
        })
    }
}

/// The part of one answer. If it is dropped, the other answers of the batch may have it.
#[derive(Debug)]
pub struct BatchShare<'a> {
    room: &'a BatchBudget,
    memory: ByteReservation,
    kind: BatchedAnswer,
}

impl BatchShare<'_> {
    /// Grows the share.
    ///
    /// # Errors
    /// The batch is at its limit, or the memory is in use.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        let left = &self.room.left;
        let less = |left: usize| left.checked_sub(bytes);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .map_err(|_| self.kind.beyond_limit())?;
        if self.memory.try_grow(bytes) {
            return Ok(());
        }
        left.fetch_add(bytes, Ordering::Relaxed);
        Err(self.kind.without_memory())
    }

    /// The answer, which has the share until its last part is dropped.
    #[must_use]
    pub fn hold(mut self, answer: Bytes) -> Bytes {
        let none = self.room.budget.empty();
        std::mem::replace(&mut self.memory, none).hold(answer)
    }
}

impl Drop for BatchShare<'_> {
    fn drop(&mut self) {
        self.room
            .left
            .fetch_add(self.memory.bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure;
    use crate::request::outcome::RequestOutcome;

    #[test]
    fn the_answers_of_a_batch_share_its_room() {
        let budget = ByteBudget::new("messages");
        let owner = BudgetOwner::Principal([1; 16]);
        let room = BatchBudget::new(100, &budget, owner);
        let said =
            |bytes: usize| failure::ok_message(Bytes::from(vec![b'x'; bytes]), RequestOutcome::Ok);
        let held = (0..50)
            .filter_map(|_| room.hold(said(30), BatchedAnswer::Other).ok())
            .collect::<Vec<_>>();
        assert_eq!((held.len(), budget.used()), (3, 90));
        drop(held);
        assert_eq!(budget.used(), 0);
        budget.set_limit(10);
        assert!(
            BatchBudget::new(100, &budget, owner)
                .hold(said(30), BatchedAnswer::Other)
                .is_err(),
            "others have the memory"
        );
        // One principal leaves a fourth to others, with any number of batches.
        budget.set_limit(1000);
        let of = |owner| BatchBudget::new(1000, &budget, owner);
        let own: Vec<_> = (0..100)
            .filter_map(|_| of(owner).hold(said(30), BatchedAnswer::Other).ok())
            .collect();
        assert_eq!((own.len(), budget.used()), (25, 750));
        assert!(
            of(BudgetOwner::Principal([2; 16]))
                .hold(said(30), BatchedAnswer::Other)
                .is_ok(),
            "another one finds some"
        );
    }

    #[test]
    fn refused_and_dropped_shares_leave_their_room_to_other_answers() {
        let budget = ByteBudget::new("messages");
        let room = BatchBudget::new(100, &budget, BudgetOwner::Principal([1; 16]));
        budget.set_limit(10);
        assert!(room.share(BatchedAnswer::Other).grow(100).is_err());
        budget.set_limit(1000);
        let mut partial = room.share(BatchedAnswer::Other);
        assert!(partial.grow(60).is_ok() && partial.grow(41).is_err());
        drop(partial);
        let mut whole = room.share(BatchedAnswer::Other);
        assert!(whole.grow(100).is_ok());
        let held = whole.hold(Bytes::from_static(b"answer"));
        assert!(room.share(BatchedAnswer::Other).grow(1).is_err());
        assert_eq!(budget.used(), 100);
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn only_a_tool_that_ran_is_not_to_be_called_again_unchecked() {
        let budget = ByteBudget::new("messages");
        let room = BatchBudget::new(1, &budget, BudgetOwner::Principal([1; 16]));
        for (limit, kind, reason, text) in [
            (
                9,
                BatchedAnswer::ToolResult,
                "result_unknown",
                "The tool ran: check",
            ),
            (
                9,
                BatchedAnswer::ToolError,
                "result_unknown",
                "The tool may have run: check",
            ),
            (
                9,
                BatchedAnswer::Other,
                "bad_answer",
                "send the request alone",
            ),
            (
                0,
                BatchedAnswer::ToolResult,
                "result_unknown",
                "The tool ran: check",
            ),
            (
                0,
                BatchedAnswer::ToolError,
                "result_unknown",
                "The tool may have run: check",
            ),
            (0, BatchedAnswer::Other, "busy", "no memory for the result"),
        ] {
            budget.set_limit(limit);
            let bytes = if limit == 0 { 1 } else { 2 };
            let failure = room.share(kind).grow(bytes).err().map(|failure| {
                assert!(failure.message().contains(text), "{}", failure.message());
                failure.reason()
            });
            assert_eq!(failure, Some(reason), "{kind:?} {limit}");
        }
    }
}

//! The silence of a child since calls to it passed their deadlines. A child that hangs answers
//! nothing; one that is only slow still writes messages.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use weir_core::upstream::CallDeadlines;

/// The messages of one child, and the calls that it left unanswered since the last one.
#[derive(Debug, Default)]
pub(crate) struct ChildSilence {
    messages: AtomicU64,
    unanswered: AtomicU32,
    /// True while the child is asked for a sign of life.
    is_asked: AtomicBool,
}

impl ChildSilence {
    /// Notes a message of the child.
    pub(super) fn note_message(&self) {
        self.messages.fetch_add(1, Ordering::AcqRel);
        self.unanswered.store(0, Ordering::Release);
    }

    /// Notes a call that passed its deadline.
    fn note_unanswered(&self) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of calls that passed their deadlines since the last message.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered.load(Ordering::Acquire)
    }

    /// Begins to ask for a sign of life; false if the child is asked already.
    pub(crate) fn begin_check(&self) -> bool {
        !self.is_asked.swap(true, Ordering::AcqRel)
    }

    /// Notes that the child is not asked any more.
    pub(crate) fn end_check(&self) {
        self.is_asked.store(false, Ordering::Release);
    }

    /// Returns the number of messages so far.
    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Acquire)
    }
}

/// The wait of one call for its next message.
#[derive(Debug)]
pub(super) struct CallWait {
    last: Instant,
    most: Duration,
}

impl CallWait {
    /// Makes the wait of a call that began at `begun`.
    pub(super) fn new(begun: Instant, deadlines: CallDeadlines) -> Self {
        Self {
            last: begun,
            most: deadlines.silence(),
        }
    }

    /// Notes a message for the call.
    pub(super) fn note_message(&mut self) {
        self.last = Instant::now();
    }

    /// Notes that the caller gave the call up. One that did so earlier than at the deadline did it
    /// for a reason of its own.
    pub(super) fn end_unanswered(&self, silence: &ChildSilence) {
        if self.last.elapsed() >= self.most {
            silence.note_unanswered();
        }
    }
}

//! Lists that a server does not give while it gives its other lists, and the walks that ask for them
//! again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use weir_core::failure::{Failure, FailureKind};
use weir_core::port::doubled;
use weir_core::upstream::{ListKind, ListKinds};

/// The failure of one list of an upstream whose other lists were read.
#[derive(Clone, Debug)]
pub struct ListFault {
    /// The cause of the last failure, for operators.
    pub error: Arc<str>,
    /// The first failure in a row.
    pub since: SystemTime,
    /// The time to drop the last good items.
    pub expiry: Instant,
    /// The time to ask for the list again.
    pub retry_at: Instant,
    /// Failures in a row.
    pub failures: u32,
}

/// The reason for a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkTrigger {
    /// The connection is new, an operator or a client asks, or another replica has other lists.
    Requested,
    /// The server announced changes of these lists.
    Announced(ListKinds),
    /// It is time to look for changes.
    Poll,
    /// It is time to ask again for a list that the server did not give.
    Retry,
}

impl WalkTrigger {
    /// True if a walk leaves a list as it is. A list without an answer would hold up the others with
    /// each walk.
    pub fn leaves(self, kind: ListKind, fault: Option<&ListFault>, now: Instant) -> bool {
        let is_waiting = fault.is_some_and(|fault| now < fault.retry_at);
        match self {
            Self::Requested => false,
            Self::Announced(kinds) => is_waiting && !kinds.has(kind),
            Self::Poll => is_waiting,
            Self::Retry => is_waiting || fault.is_none(),
        }
    }
}

/// True if a failure is about the one list that was asked for: the server answered, or did not
/// answer in time. Any other failure is of the connection.
pub fn is_of_list_alone(failure: &Failure) -> bool {
    let is_of_list = matches!(
        failure.kind(),
        FailureKind::TimedOut
            | FailureKind::BadAnswer
            | FailureKind::Limit
            | FailureKind::Busy
            | FailureKind::ResultUnknown
            | FailureKind::Upstream(_)
            | FailureKind::MethodNotFound
            | FailureKind::InvalidParams
    );
    is_of_list && !failure.is_connection_lost()
}

/// The longest pause that a server may ask for.
const MAX_REQUESTED_PAUSE: Duration = Duration::from_secs(3600);

/// The pause that the server asks for before it is asked again (`Retry-After`), within bounds. The
/// last good items stay for the `grace`: a server that is back by then is asked before they go.
pub fn requested_pause(failure: &Failure, grace: Duration) -> Duration {
    let delay = failure.retry_delay().unwrap_or_default();
    delay.min(MAX_REQUESTED_PAUSE).min(grace / 2)
}

/// True if two causes differ in numbers only: times, ports and process ids change with each
/// attempt.
pub fn is_same_cause(one: &str, other: &str) -> bool {
    let without_numbers = |text: &str| {
        text.chars()
            .filter(|c| !c.is_ascii_digit())
            .collect::<String>()
    };
    without_numbers(one) == without_numbers(other)
}

/// True if the server did not answer in time. Such a list is asked for after the others, and seldom.
pub fn is_late(failure: &Failure) -> bool {
    matches!(failure.kind(), FailureKind::TimedOut)
}

/// The longest pause before a list without an answer is asked for again, in intervals of polls.
const MAX_PAUSE_POLLS: u32 = 16;

/// The pause before a list is asked for again that had no answer in time so often in a row.
pub fn pause_after_late(poll: Duration, failures: u32) -> Duration {
    doubled(poll, failures, poll * MAX_PAUSE_POLLS)
}

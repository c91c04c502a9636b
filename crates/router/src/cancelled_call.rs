//! The mark of the failures of cancelled calls: neither their upstream nor weir failed, so they do
//! not count as failures.

use std::error::Error as _;
use std::fmt;

use weir_core::CallOutcome;
use weir_core::failure::Failure;

/// The source of the failure that the client of a cancelled call gets: an operator stopped the
/// call, or its session ended.
#[derive(Debug)]
pub struct CancelledCall;

impl CancelledCall {
    /// True if the failure is that of a cancelled call.
    #[must_use]
    pub fn is_source_of(failure: &Failure) -> bool {
        failure.source().is_some_and(|source| source.is::<Self>())
    }
}

impl fmt::Display for CancelledCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call was cancelled")
    }
}

impl std::error::Error for CancelledCall {}

/// The outcome of a call that ended with this failure.
pub(crate) fn outcome_of(failure: &Failure) -> CallOutcome {
    if CancelledCall::is_source_of(failure) {
        CallOutcome::Cancelled
    } else {
        failure.into()
    }
}

//! The port that keeps parked calls.

use crate::call::ParkedId;
use crate::failure::Failure;
use crate::parked::{ParkedCall, ParkedCallDetails, SharedParkedReply};
use crate::principal::Principal;

/// Calls that wait for input, each for its principal. They hold a connection to their upstream, so
/// they stay on the replica that made them; a client that comes back with one is led there.
pub trait CallParking: std::fmt::Debug + Send + Sync {
    /// Keeps a call for a while, under a fresh name, or under the one it was just taken from.
    ///
    /// # Errors
    ///
    /// `Busy`: the principal has as many as it may, or all principals together have. The call is
    /// dropped, which cancels it.
    fn park(
        &self,
        details: ParkedCallDetails,
        again: Option<ParkedId>,
        parked: SharedParkedReply,
    ) -> Result<ParkedId, Failure>;

    /// Takes a call out: a name is good once. Unknown, foreign, used and expired ones are all the
    /// same.
    fn take(&self, principal: &Principal, id: ParkedId) -> Option<SharedParkedReply>;

    /// True if a call of the principal is parked under this name. It stays parked.
    fn is_parked(&self, principal: &Principal, id: ParkedId) -> bool;

    /// Drops the calls that are over time: their upstreams receive a cancellation. To be called now
    /// and then.
    fn sweep(&self);

    /// The calls that wait, the oldest first.
    fn waiting(&self) -> Vec<ParkedCall>;

    /// Drops the calls that the predicate selects: their upstreams receive a cancellation. Returns
    /// their number.
    fn stop(&self, which: &dyn Fn(u64, &ParkedCallDetails) -> bool) -> usize;
}

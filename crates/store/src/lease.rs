//! "At most one replica does this now", with a single replica.

use std::time::Duration;

use weir_core::port::{Fut, ReplicaLease, StoreError};

/// A lease that this replica always holds, because there is no other. It has no state, so it needs
/// no bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryLease;

impl ReplicaLease for MemoryLease {
    fn take<'a>(&'a self, _name: &'a str, _ttl: Duration) -> Fut<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn release<'a>(&'a self, _name: &'a str) -> Fut<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

//! "At most one replica does this now", where there is one replica.

use std::time::Duration;

use weir_core::port::{Fut, Lease, StoreError};

/// Every lease is this replica's: there is no other that could hold it. Nothing is kept, so nothing
/// is bounded.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryLease;

impl Lease for MemoryLease {
    fn take<'a>(&'a self, _name: &'a str, _ttl: Duration) -> Fut<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn release<'a>(&'a self, _name: &'a str) -> Fut<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

//! The port of leases: of the replicas that ask for one, a single one holds it.

use std::time::Duration;

use crate::port::{BoxFuture, ReplicaId, StoreError};

/// The name of one holder: random, and another one for each object that asks for a lease. A
/// successor process goes on under the token of the process before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseToken(pub [u8; 8]);

/// The intent of a request for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseIntent {
    /// To take the lease if it is free, or to renew it.
    Take,
    /// To learn the holder. A lease that the asker holds is renewed.
    Look,
    /// To give the lease back.
    Release,
}

/// A request for a lease.
#[derive(Clone, Debug)]
pub struct LeaseRequest<'a> {
    /// The name of the lease.
    pub name: &'a str,
    /// The token of the asker.
    pub token: LeaseToken,
    /// The time for which it is taken or renewed.
    pub time: Duration,
    /// The intent.
    pub intent: LeaseIntent,
    /// The newest epoch that the asker has seen; 0 before the first.
    pub known_epoch: u64,
    /// True if the asker holds the lease by its own clock. After the store lost its data, such a
    /// holder goes on.
    pub is_held: bool,
}

/// The state of a lease after a request. Each holder has an epoch, greater than all before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// The asker holds it, for the requested time from the moment of the request on.
    Own {
        /// Its epoch.
        epoch: u64,
    },
    /// Another asker holds it.
    Other {
        /// The replica of the holder.
        replica: ReplicaId,
        /// The epoch of the holder.
        epoch: u64,
        /// The time that is left to it.
        left: Duration,
    },
    /// No asker holds it. It can be taken after this time: the store may have lost the last holder,
    /// whose lease must have ended by then.
    Free {
        /// The time until it can be taken.
        after: Duration,
    },
}

/// The store of leases that all replicas share.
pub trait LeaseStore: std::fmt::Debug + Send + Sync {
    /// Asks for a lease. A request without an answer may have been carried out.
    ///
    /// # Errors
    /// The store does not answer.
    fn ask<'a>(
        &'a self,
        request: LeaseRequest<'a>,
    ) -> BoxFuture<'a, Result<LeaseState, StoreError>>;
}

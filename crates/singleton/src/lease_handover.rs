//! A lease as one process of a replica describes it to the next.

use serde::{Deserialize, Serialize};
use weir_core::port::LeaseToken;
use weir_core::upstream::HandoverSession;

/// A lease on its way to the next process. The description of a child has no such member.
#[derive(Debug, Serialize, Deserialize)]
struct ExportedLease {
    lease_token: [u8; 8],
    lease_epoch: u64,
}

/// Describes a lease.
pub(crate) fn exported_lease(token: LeaseToken, epoch: u64) -> Option<HandoverSession> {
    let lease = ExportedLease {
        lease_token: token.0,
        lease_epoch: epoch,
    };
    Some(HandoverSession {
        description: serde_json::to_vec(&lease).ok()?.into(),
        descriptors: Vec::new(),
    })
}

/// Reads the description of a lease; `None` if it is that of a child.
pub(crate) fn imported_lease(session: &HandoverSession) -> Option<(LeaseToken, u64)> {
    let lease: ExportedLease = serde_json::from_slice(&session.description).ok()?;
    Some((LeaseToken(lease.lease_token), lease.lease_epoch))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn lease_survives_its_description_and_a_child_is_none() {
        let lease = (LeaseToken([7; 8]), 9);
        let session = exported_lease(lease.0, lease.1).unwrap();
        assert_eq!(imported_lease(&session), Some(lease));
        let child = HandoverSession {
            description: r#"{"owner":"shared","nth":0}"#.into(),
            descriptors: Vec::new(),
        };
        assert_eq!(imported_lease(&child), None);
    }
}

//! A lease as one process of a replica describes it to the next.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_core::port::LeaseToken;
use weir_core::upstream::{HandoverSession, Upstream};

use crate::singleton_lease::SingletonLease;

/// The longest wait for the lease of the process before.
const ADOPTION_WAIT: Duration = Duration::from_secs(2);

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

/// Goes on with the lease of the process before, or with a child of it. The child waits for the
/// lease, since both may be imported at the same time.
pub(crate) async fn import_session(
    lease: &SingletonLease,
    local: Arc<dyn Upstream>,
    session: HandoverSession,
) {
    match imported_lease(&session) {
        Some((token, epoch)) => {
            if !lease.adopt(token, epoch, ADOPTION_WAIT).await {
                tracing::warn!(upstream = %local.id(), "upstream lease of the previous process not confirmed: its child processes end");
            }
        }
        None => {
            // Without the lease the import ends the child.
            lease.wait_until_owned(ADOPTION_WAIT).await;
            local.import_session(session).await;
        }
    }
}

/// Reads the description of a lease; `None` if it is that of a child.
fn imported_lease(session: &HandoverSession) -> Option<(LeaseToken, u64)> {
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

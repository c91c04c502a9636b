//! Sends a call again on proof that it did not run.

use opentelemetry::KeyValue;
use weir_core::reply::Reply;
use weir_core::telemetry::instruments;
use weir_core::upstream::OutboundCall;
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;

use crate::call_attempts::CallAttempts;
use crate::instances::InstanceRoute;

/// The most times that a call is sent again because the server did not read it: a server that ends
/// its connections after a few requests may end the next one, too.
const MAX_UNREAD: usize = 2;

/// Makes a call, and sends it again on proof that it did not run, at most once for each kind of
/// proof, twice if the server did not read it. `used` has the proofs that were taken before, `route`
/// is the way of the call over several URLs.
pub(crate) async fn call_with_resend(
    attempts: &CallAttempts,
    outbound: &OutboundCall,
    used: &mut Vec<ResendProof>,
    route: Option<&InstanceRoute>,
) -> Result<Reply, FailedAttempt> {
    loop {
        let refusal = match attempts.call(outbound, used.last().copied(), route).await {
            Ok(reply) => return Ok(reply),
            Err(refusal) => refusal,
        };
        let Some(proof) = refusal.proof.filter(|proof| may_resend(*proof, used)) else {
            return Err(refusal);
        };
        let labels = [
            attempts.context().label.attribute(),
            KeyValue::new("reason", proof.metric_label()),
        ];
        instruments().upstream_retries.add(1, &labels);
        used.push(proof);
    }
}

/// True if a call may be sent again on this proof after those `used` before.
fn may_resend(proof: ResendProof, used: &[ResendProof]) -> bool {
    match proof {
        ResendProof::NotSent | ResendProof::Unread => {
            let is_unread =
                |proof: &&ResendProof| matches!(proof, ResendProof::NotSent | ResendProof::Unread);
            used.iter().filter(is_unread).count() < MAX_UNREAD
        }
        ResendProof::SessionLost | ResendProof::HeaderMismatch | ResendProof::Version => {
            !used.contains(&proof)
        }
    }
}

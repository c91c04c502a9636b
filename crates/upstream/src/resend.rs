//! Sends a call again on proof that it did not run.

use opentelemetry::KeyValue;
use weir_core::reply::Reply;
use weir_core::telemetry::instruments;
use weir_core::upstream::OutboundCall;
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;

use crate::call_attempts::CallAttempts;
use crate::instances::InstanceRoute;

/// Makes a call, and sends it again on proof that it did not run, at most once for each kind of
/// proof. `used` has the proofs that were taken before, `route` is the way of the call over several
/// URLs.
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
        let Some(proof) = refusal.proof.filter(|proof| !used.contains(proof)) else {
            return Err(refusal);
        };
        let labels = [
            attempts.site.label.attribute(),
            KeyValue::new("reason", proof.metric_label()),
        ];
        instruments().upstream_retries.add(1, &labels);
        used.push(proof);
    }
}

//! The time limits over all attempts at one call.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use weir_core::call_limits::{CallLimits, CallTimeLimits, TimeoutHandler};
use weir_core::port::Fut;
use weir_core::reply::Reply;

/// The longest wait for a call's first event before its reply is handed on without it.
const FIRST_EVENT_WAIT: Duration = Duration::from_secs(1);

/// Runs a call with its permit and within its time limits. Returns the reply once its first event
/// is known, or after [`FIRST_EVENT_WAIT`].
pub(crate) async fn call_within_limits(
    server: impl TimeoutHandler + 'static,
    limits: CallTimeLimits,
    permit: OwnedSemaphorePermit,
    mut running: Fut<'static, Reply>,
) -> Reply {
    let patience = limits
        .next_deadline()
        .min(limits.last_activity() + FIRST_EVENT_WAIT);
    let reply = match tokio::time::timeout_at(patience, &mut running).await {
        Ok(reply) => reply,
        Err(_) => Reply::of_call(running),
    };
    reply.with_limits(|| CallLimits::new(server, limits, permit))
}

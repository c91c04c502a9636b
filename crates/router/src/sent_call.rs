//! A call on its way: sent to its upstream, with the parts that handle its reply.

use std::future::Future;

use tokio::time::Instant;
use weir_core::port::BoxFuture;
use weir_core::reply::Reply;

use crate::live_calls::LiveCallGuard;
use crate::parking::ParkingContext;
use crate::recorded_reply::ReplyHandling;
use crate::tasks::awaited_task::TaskAwaiting;

/// A call at its upstream, with the parts that handle its reply.
pub(super) struct SentCall {
    pub(super) making: BoxFuture<'static, Reply>,
    pub(super) handling: ReplyHandling,
    pub(super) live: LiveCallGuard,
    /// The parts that wait for the task that the call becomes; absent if its client takes tasks.
    pub(super) awaited_task: Option<TaskAwaiting>,
    pub(super) parking: Option<ParkingContext>,
    pub(super) until: Instant,
}

impl SentCall {
    /// Waits for the reply.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async function has its arguments twice"
    )]
    pub(super) fn reply(mut self) -> impl Future<Output = Reply> + Send {
        async move {
            let reply = match self.live.unless_stopped(self.making).await {
                Ok(reply) => reply,
                Err(stopped) => Reply::ended(stopped),
            };
            self.handling.record.set_live(self.live);
            let reply = match self.awaited_task {
                Some(awaiting) => awaiting.wrap_reply(reply),
                None => reply,
            };
            let reply = match self.parking {
                Some(place) => place.wrap_reply(reply),
                None => reply,
            };
            self.handling.wrap_reply(reply).with_deadline(self.until)
        }
    }
}

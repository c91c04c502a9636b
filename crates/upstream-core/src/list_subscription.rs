//! The subscription of a watch to changes of lists. It is requested beside the reading of the lists,
//! which a server may give though it acknowledges no subscription.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout};
use weir_core::Failure;
use weir_core::port::{Random, doubled, half_jitter};
use weir_core::upstream::ListKinds;

use crate::background_tasks::TaskOutcome;
use crate::failed_attempt::FailedAttempt;
use crate::list_page::list_filter;
use crate::subscription_outcome::SubscriptionAnswer;
use crate::upstream_context::UpstreamContext;

/// The first and the longest wait before a refused subscription is requested again; the wait
/// doubles.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(300);

/// The outcome of one request for a subscription.
type RequestOutcome<S> = Result<SubscriptionAnswer<S>, FailedAttempt>;

/// Makes one request for the subscription.
type RequestFactory<S> =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = RequestOutcome<S>> + Send>> + Send>;

/// The subscription of one watch: the request for it, which is repeated after a refusal. The lists
/// are polled until it is open.
pub struct ListSubscription<S> {
    context: Arc<UpstreamContext>,
    request: RequestFactory<S>,
    running: Option<RunningRequest<S>>,
    retry: SubscriptionRetry,
}

/// A request in a task of its own. Dropping it ends the task, and with it the request.
struct RunningRequest<S>(TaskOutcome<RequestOutcome<S>>);

impl<S: Send + 'static> ListSubscription<S> {
    /// A subscription that is never requested, for a server that declares no changes.
    pub fn none(context: Arc<UpstreamContext>) -> Self {
        Self {
            context,
            request: Box::new(|| Box::pin(pending())),
            running: None,
            retry: SubscriptionRetry::default(),
        }
    }

    /// Makes the subscription to changes of these lists, and requests it, unless there are none.
    /// `request` makes one request with this filter.
    pub fn for_lists<F>(
        context: Arc<UpstreamContext>,
        declared: ListKinds,
        request: impl Fn(Bytes) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = RequestOutcome<S>> + Send + 'static,
    {
        let none = Self::none(context);
        if declared.is_empty() {
            return none;
        }
        let filter = list_filter(declared);
        let mut subscription = Self {
            request: Box::new(move || Box::pin(request(filter.clone()))),
            ..none
        };
        subscription.send_request();
        subscription
    }

    /// Waits a moment for the first acknowledgment, because lists that are read after it need not be
    /// read a second time. Returns the open subscription and the `params` of its acknowledgment;
    /// [`Self::opened`] waits for a later one. Absent at once if no request runs.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn opened_first(&mut self) -> Result<Option<(S, Bytes)>, FailedAttempt> {
        if self.running.is_none() {
            return Ok(None);
        }
        let wait = self.context.own_requests.deadlines.stream_head;
        match timeout(wait, self.answer()).await {
            Ok(answer) => Ok(self.accept(answer?)),
            Err(_) => Ok(None),
        }
    }

    /// Waits until the subscription is open, and requests it again after a refusal. Returns it with
    /// the `params` of its acknowledgment, once. Cancel safe.
    pub async fn opened(&mut self) -> (S, Bytes) {
        loop {
            if self.running.is_none() {
                self.retry.due().await;
                self.send_request();
            }
            let answer = self.answer().await;
            let answer = answer.unwrap_or_else(|lost| SubscriptionAnswer::Refused(lost.failure));
            if let Some(opened) = self.accept(answer) {
                return opened;
            }
        }
    }

    fn send_request(&mut self) {
        let task = self.context.tasks.run_endless((self.request)());
        self.running = Some(RunningRequest(task));
    }

    /// Waits for the answer to the request that runs. Cancel safe.
    async fn answer(&mut self) -> RequestOutcome<S> {
        let Some(running) = &mut self.running else {
            return pending().await;
        };
        let answer = (&mut running.0).await;
        self.running = None;
        answer.unwrap_or_else(|| Err(FailedAttempt::removed(&self.context.label)))
    }

    fn accept(&mut self, answer: SubscriptionAnswer<S>) -> Option<(S, Bytes)> {
        match answer.opened() {
            Ok(opened) => {
                self.retry = SubscriptionRetry::default();
                Some(opened)
            }
            Err(refusal) => {
                self.retry.note(&refusal, self.context.clock.random());
                None
            }
        }
    }
}

impl<S> fmt::Debug for ListSubscription<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListSubscription")
            .field("is_requested", &self.running.is_some())
            .finish_non_exhaustive()
    }
}

impl<S> Drop for RunningRequest<S> {
    fn drop(&mut self) {
        if let Some(task) = self.0.abort_handle() {
            task.abort();
        }
    }
}

/// The time of the next request after a refusal.
#[derive(Debug, Default)]
struct SubscriptionRetry {
    at: Option<Instant>,
    refusals: u32,
}

impl SubscriptionRetry {
    /// Notes a refusal. A server that does not know the method is not asked again.
    fn note(&mut self, refusal: &Failure, random: &dyn Random) {
        let ceiling = doubled(FIRST_RETRY, self.refusals, LAST_RETRY);
        self.refusals = self.refusals.saturating_add(1);
        let wait = half_jitter(ceiling, random);
        self.at = (!refusal.is_missing_method()).then(|| Instant::now() + wait);
    }

    /// Waits for the time of the next request. Cancel safe.
    async fn due(&self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::FailureKind;
    use weir_testkit::FixedRandom;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_server_that_does_not_know_the_method_is_not_asked_again() {
        let mut retry = SubscriptionRetry::default();
        let began = Instant::now();
        for seconds in [1, 2, 4] {
            retry.note(
                &Failure::new(FailureKind::Busy, "not now"),
                &FixedRandom(255),
            );
            let wait = retry.at.expect("it is asked again") - began;
            assert_eq!(wait.as_secs_f64().ceil(), f64::from(seconds));
        }
        retry.due().await;
        retry.note(
            &Failure::new(FailureKind::MethodNotFound, "none"),
            &FixedRandom(255),
        );
        assert_eq!(retry.at, None);
    }
}

//! Status reports of tasks on a listen stream (SEP-2663, "Task Status Notifications").
//!
//! A task is polled, and its changes are reported: when the task's server announces a change, when
//! another request about the task finds another state or changes it, and otherwise as often as the
//! task wants. A stream without a reader polls no task.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use bytes::Bytes;
use futures_util::stream::{self, SelectAll};
use futures_util::{Stream, StreamExt as _};
use tokio::time::{Duration, Instant, sleep_until, timeout_at};
use weir_core::call::{InputMode, LogMessages};
use weir_core::upstream::TaskNotifications;
use weir_core::{Authenticated, Call, Failure, FailureKind};
use weir_era::lift::LiftedRequest;
use weir_era::tasks::{self, TaskStatus};
use weir_layers::request::request_context::HttpRequestContext;
use weir_router::{PollBackoff, TaskChanges, TaskHolders, TaskRequests};
use weir_session::StreamPermit;
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::scan;

use crate::method::canonical_call::canonical_call;
use crate::method::offered_methods::check_offered;
use crate::method::subscriptions::{ACKNOWLEDGMENT_TIME, SUBSCRIBED_AT_ONCE, subscription_permit};

/// The limits of a task's poll interval.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The poll interval of a task without its own.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The poll interval while the server announces changes, because it may miss some.
const ANNOUNCED_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The member of a subscription's filter that names tasks.
const TASK_IDS_MEMBER: &str = "taskIds";

/// States of tasks, as they change.
#[derive(Default)]
pub(crate) struct FollowedTasks(SelectAll<Pin<Box<dyn Stream<Item = Bytes> + Send>>>);

impl FollowedTasks {
    /// The next changed state.
    pub(crate) fn poll_state(&mut self, cx: &mut Task<'_>) -> Poll<Bytes> {
        match self.0.poll_next_unpin(cx) {
            Poll::Ready(Some(state)) => Poll::Ready(state),
            // Finished tasks have no further states.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

/// The tasks that a client wants to follow.
pub(crate) struct NamedTasks {
    pub(crate) names: Vec<Arc<str>>,
    /// The other processes that may have them.
    pub(crate) holders: Option<Arc<dyn TaskHolders>>,
}

/// The tasks that a filter names, each once, at most `most`; `None` if they are no strings.
pub(crate) fn tasks_of_filter(filter: &Bytes, most: usize) -> Option<Vec<Arc<str>>> {
    weir_era::subscription_filter::strings_of_filter(filter, TASK_IDS_MEMBER, most)
}

/// Begins to follow tasks; returns the names of those that exist, in order.
pub(crate) async fn follow_tasks(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    named: NamedTasks,
    lifted: &LiftedRequest,
) -> (Vec<Arc<str>>, FollowedTasks) {
    let NamedTasks { names, holders } = named;
    if check_offered(context, Method::TasksGet).is_err() {
        return (Vec::new(), FollowedTasks::default());
    }
    // The acknowledgment waits for all of them.
    let until = Instant::now() + ACKNOWLEDGMENT_TIME;
    let requests = &context.shared().router.tasks().with_holders(holders);
    let one = |name: Arc<str>| async move {
        if Instant::now() >= until {
            return None;
        }
        let mut follower = TaskFollower::new(context, sender, requests, &name, lifted).ok()?;
        let state = timeout_at(until, follower.state()).await.ok()?.ok()?;
        Some((name, follower.states(state)))
    };
    let begun: Vec<_> = stream::iter(names)
        .map(one)
        .buffered(SUBSCRIBED_AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let (names, states): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
    (names, FollowedTasks(states.into_iter().collect()))
}

struct TaskFollower {
    requests: TaskRequests,
    call: Authenticated<Arc<Call>>,
    last: Option<Bytes>,
    next: Instant,
    backoff: PollBackoff,
    announcements: TaskAnnouncements,
    /// The changes that other requests about the task find.
    changes: TaskChanges,
    _permit: StreamPermit,
}

/// The announcements of a task's server.
enum TaskAnnouncements {
    /// The server was not asked to announce yet.
    Unasked,
    /// The server announces changes.
    Announced(TaskNotifications),
    /// The server announces no changes, or no longer.
    Silent,
}

impl TaskFollower {
    fn new(
        context: &HttpRequestContext,
        sender: &Authenticated<()>,
        requests: &TaskRequests,
        name: &str,
        lifted: &LiftedRequest,
    ) -> Result<Self, Failure> {
        let permit = subscription_permit(context, sender, name)?;
        let params = Params::of_task(name);
        let (capabilities, trace) = (lifted.capabilities.clone(), lifted.trace.clone());
        let lifted = LiftedRequest {
            params,
            capabilities,
            progress_token: None,
            log_messages: LogMessages::None,
            trace,
        };
        let call = Call {
            input_mode: InputMode::Rounds,
            ..canonical_call(context, Method::TasksGet, lifted)
        };
        let call = sender.for_payload(Arc::new(call));
        Ok(Self {
            requests: requests.clone(),
            changes: requests.task_changes(&call, name),
            call,
            last: None,
            next: Instant::now(),
            backoff: PollBackoff::default(),
            announcements: TaskAnnouncements::Unasked,
            _permit: permit,
        })
    }

    async fn state(&mut self) -> Result<Bytes, Failure> {
        self.requests
            .followed_state(self.call.for_payload(self.call.inner().clone()))
            .await
    }

    /// This state, and the following ones up to the last.
    fn states(self, first: Bytes) -> Pin<Box<dyn Stream<Item = Bytes> + Send>> {
        Box::pin(stream::unfold(
            (self, Some(first)),
            |(mut follower, first)| async move {
                let state = follower.next_changed_state(first).await?;
                Some((state, (follower, None)))
            },
        ))
    }

    /// Waits for the next poll of the task.
    async fn wait_for_next_poll(&mut self) {
        if matches!(self.announcements, TaskAnnouncements::Unasked) {
            if let Some(stream) = self.requests.follow_task(&self.call).await {
                // The next poll covers changes from before the request to announce.
                self.announcements = TaskAnnouncements::Announced(stream);
                return;
            }
            self.announcements = TaskAnnouncements::Silent;
        }
        let soonest = Instant::now() + MIN_POLL_INTERVAL;
        let is_changed = tokio::select! {
            is_changed = self.announcements.next() => is_changed,
            () = self.changes.wait_for_other_state(self.last.as_ref()) => true,
            () = sleep_until(self.next) => false,
        };
        if is_changed {
            // News without pause is no reason to poll without pause.
            sleep_until(soonest.min(self.next)).await;
        }
    }

    /// The next state that differs from the last; `None` after the end.
    async fn next_changed_state(&mut self, mut at_hand: Option<Bytes>) -> Option<Bytes> {
        if self
            .last
            .as_ref()
            .and_then(|last| TaskStatus::of(last))
            .is_some_and(TaskStatus::is_final)
        {
            return None;
        }
        loop {
            let looked = match at_hand.take() {
                Some(state) => Ok(state),
                None => {
                    self.wait_for_next_poll().await;
                    self.state().await
                }
            };
            let state = match looked {
                Ok(state) => state,
                Err(failure) if is_gone(&failure) => return None,
                Err(failure) => {
                    self.next = Instant::now() + self.backoff.note_failure(&failure);
                    continue;
                }
            };
            self.backoff.reset();
            let interval = tasks::interval(&state)
                .map_or(DEFAULT_POLL_INTERVAL, Duration::from_millis)
                .clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL);
            let interval = if matches!(self.announcements, TaskAnnouncements::Announced(_)) {
                ANNOUNCED_POLL_INTERVAL
            } else {
                interval
            };
            self.next = Instant::now() + interval;
            if self.last.as_ref() != Some(&state) {
                self.last = Some(state.clone());
                return Some(state);
            }
        }
    }
}

impl TaskAnnouncements {
    /// Waits for the next announcement; returns false if there will be no more.
    async fn next(&mut self) -> bool {
        let Self::Announced(stream) = self else {
            return std::future::pending().await;
        };
        let is_announced = stream.next().await.is_some();
        if !is_announced {
            *self = Self::Silent;
        }
        is_announced
    }
}

/// True if a task does not exist any more, or no longer belongs to the client's owner.
fn is_gone(failure: &Failure) -> bool {
    let kind = failure.kind();
    matches!(kind, FailureKind::UnknownTask | FailureKind::InvalidParams)
}

/// Returns true if a filter names tasks.
pub(crate) fn names_tasks(filter: &[u8]) -> bool {
    scan::find(filter, TASK_IDS_MEMBER).is_some_and(|at| &filter[at] != b"null")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves R224.
    #[test]
    fn a_filter_names_tasks_as_strings() {
        let of = |text: &'static str| {
            tasks_of_filter(&Bytes::from_static(text.as_bytes()), 8).map(|names| names.len())
        };
        assert_eq!(of("{}"), Some(0));
        assert_eq!(of(r#"{"taskIds":["a","b","a"]}"#), Some(2));
        assert_eq!(of(r#"{"taskIds":"a"}"#), None);
        assert!(
            names_tasks(br#"{"taskIds":[]}"#)
                && !names_tasks(b"{}")
                && !names_tasks(br#"{"taskIds":null}"#)
        );
    }
}

//! Status reports of tasks on a listen stream (SEP-2663, "Task Status Notifications").
//!
//! A task is polled, and its changes are reported: when the task's server announces news, and
//! otherwise as often as the task wants. A stream without a reader polls no task.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use bytes::Bytes;
use futures_util::stream::{self, SelectAll};
use futures_util::{Stream, StreamExt as _};
use tokio::time::{Duration, Instant, sleep_until, timeout};
use weir_core::call::InputMode;
use weir_core::upstream::TaskNotifications;
use weir_core::{Authenticated, Call, Failure, FailureKind};
use weir_era::lift::LiftedRequest;
use weir_era::tasks::{self, TaskStatus};
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::scan;

use crate::modern::{canonical, offered};
use crate::places::Place;
use crate::stack::Context;
use crate::subscriptions::{ACKNOWLEDGED_WITHIN, AT_ONCE, place};

/// The limits of a task's poll interval.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(10);
/// The poll interval of a task without its own, or with an unreachable server.
const USUAL: Duration = Duration::from_secs(1);
/// The poll interval while the server announces news, because it may miss some.
const SELDOM: Duration = Duration::from_secs(30);

/// The member of a subscription's filter that names tasks.
const TASKS: &str = "taskIds";

/// States of tasks, as they change.
#[derive(Default)]
pub(crate) struct Followed(SelectAll<Pin<Box<dyn Stream<Item = Bytes> + Send>>>);

impl Followed {
    /// The next changed state.
    pub(crate) fn poll_state(&mut self, cx: &mut Task<'_>) -> Poll<Bytes> {
        match self.0.poll_next_unpin(cx) {
            Poll::Ready(Some(state)) => Poll::Ready(state),
            // Finished tasks have no further states.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

/// The tasks that a filter names, each once, at most `most`; `None` if they are no strings.
pub(crate) fn wanted(filter: &Bytes, most: usize) -> Option<Vec<Arc<str>>> {
    crate::subscriptions::texts(filter, TASKS, most)
}

/// Begins to follow tasks; returns the names of those that exist, in order.
pub(crate) async fn follow(
    context: &Context,
    known: &Authenticated<()>,
    names: Vec<Arc<str>>,
    lifted: &LiftedRequest,
) -> (Vec<Arc<str>>, Followed) {
    if offered(context, Method::TasksGet).is_err() {
        return (Vec::new(), Followed::default());
    }
    let one = |name: Arc<str>| async move {
        let mut follower = Follower::new(context, known, &name, lifted).ok()?;
        let state = timeout(ACKNOWLEDGED_WITHIN, follower.state())
            .await
            .ok()?
            .ok()?;
        Some((name, follower.states(state)))
    };
    let begun: Vec<_> = stream::iter(names)
        .map(one)
        .buffered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let (names, states): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
    (names, Followed(states.into_iter().collect()))
}

struct Follower {
    context: Context,
    call: Authenticated<Arc<Call>>,
    last: Option<Bytes>,
    next: Instant,
    news: News,
    _place: Place,
}

/// The announcements of a task's server.
enum News {
    /// The server was not asked to announce yet.
    Unasked,
    /// The server announces news.
    Rings(TaskNotifications),
    /// The server announces no news, or no longer.
    Silent,
}

impl Follower {
    fn new(
        context: &Context,
        known: &Authenticated<()>,
        name: &str,
        lifted: &LiftedRequest,
    ) -> Result<Self, Failure> {
        let place = place(context, known, name)?;
        let params = Params::of_task(name);
        let (capabilities, trace) = (lifted.capabilities.clone(), lifted.trace.clone());
        let lifted = LiftedRequest {
            params,
            capabilities,
            progress_token: None,
            log_level: None,
            trace,
        };
        let call = Call {
            input_mode: InputMode::Rounds,
            ..canonical(context, Method::TasksGet, lifted)
        };
        let call = known.for_item(Arc::new(call));
        Ok(Self {
            context: context.clone(),
            call,
            last: None,
            next: Instant::now(),
            news: News::Unasked,
            _place: place,
        })
    }

    async fn state(&mut self) -> Result<Bytes, Failure> {
        self.context
            .shared
            .router
            .request_task(self.call.for_item(self.call.inner().clone()))
            .await
    }

    /// This state, and the following ones up to the last.
    fn states(self, first: Bytes) -> Pin<Box<dyn Stream<Item = Bytes> + Send>> {
        Box::pin(stream::unfold(
            (self, Some(first)),
            |(mut follower, first)| async move {
                let state = follower.news(first).await?;
                Some((state, (follower, None)))
            },
        ))
    }

    /// Waits for the next poll of the task.
    async fn due(&mut self) {
        match &mut self.news {
            News::Unasked => {
                let rings = self.context.shared.router.follow_task(&self.call).await;
                // The next poll covers changes from before the request to announce.
                self.news = rings.map_or(News::Silent, News::Rings);
                if matches!(self.news, News::Silent) {
                    sleep_until(self.next).await;
                }
            }
            News::Silent => sleep_until(self.next).await,
            News::Rings(rings) => {
                let soonest = Instant::now() + SOONEST;
                tokio::select! {
                    rung = rings.next() => match rung {
                        // A server that announces without pause is not polled without pause.
                        Some(()) => sleep_until(soonest.min(self.next)).await,
                        None => self.news = News::Silent,
                    },
                    () = sleep_until(self.next) => {}
                }
            }
        }
    }

    /// The next state that differs from the last; `None` after the end.
    async fn news(&mut self, mut at_hand: Option<Bytes>) -> Option<Bytes> {
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
                    self.due().await;
                    self.state().await
                }
            };
            let state = match looked {
                Ok(state) => state,
                // The task is gone, or no longer belongs to this owner.
                Err(failure) if *failure.kind() == FailureKind::InvalidParams => return None,
                Err(_) => {
                    self.next = Instant::now() + USUAL;
                    continue;
                }
            };
            let interval = tasks::interval(&state)
                .map_or(USUAL, Duration::from_millis)
                .clamp(SOONEST, LATEST);
            let interval = if matches!(self.news, News::Rings(_)) {
                SELDOM
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

/// Returns true if a filter names tasks.
pub(crate) fn are_named(filter: &[u8]) -> bool {
    scan::find(filter, TASKS).is_some_and(|at| &filter[at] != b"null")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r224_a_filter_names_tasks_as_strings() {
        let of = |text: &'static str| {
            wanted(&Bytes::from_static(text.as_bytes()), 8).map(|names| names.len())
        };
        assert_eq!(of("{}"), Some(0));
        assert_eq!(of(r#"{"taskIds":["a","b","a"]}"#), Some(2));
        assert_eq!(of(r#"{"taskIds":"a"}"#), None);
        assert!(
            are_named(br#"{"taskIds":[]}"#)
                && !are_named(b"{}")
                && !are_named(br#"{"taskIds":null}"#)
        );
    }
}

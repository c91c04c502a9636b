//! The watch of the lists of a server with several instances: at one of them at a time. It moves to
//! another instance if the watched one cannot be reached, or does not give its lists.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use weir_core::port::BoxFuture;
use weir_core::upstream::{
    ListKind, ListKinds, ListPage, ListWatch, ResourceUpdates, ServerDescription,
};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_upstream_core::failed_attempt::FailedAttempt;

use crate::instances::server_instance::is_not_now;
use crate::instances::watched_instance::WatchedInstance;
use crate::instances::{ServerInstance, ServerInstances};
use crate::single_server::is_answered;

/// The longest wait for a list of another instance, while the watched one does not give it.
const OTHER_LIST_WAIT: Duration = Duration::from_secs(10);

/// An attempt to open a watch at one instance. An attempt that is given up moves the watch on, so
/// that the next one does not wait for the same instance.
struct WatchAttempt<'a> {
    watched: &'a WatchedInstance,
    from: usize,
    /// The instance after it; absent once the attempt has ended.
    next: Option<usize>,
}

impl Drop for WatchAttempt<'_> {
    fn drop(&mut self) {
        if let Some(next) = self.next {
            self.watched.move_on(self.from, next);
        }
    }
}

impl ServerInstances {
    /// Opens a watch of the lists at the watched instance, or at another one.
    pub(crate) async fn watch(
        &self,
        class: CapabilityClass,
    ) -> Result<Box<dyn ListWatch>, FailedAttempt> {
        let (index, opened) = self
            .open_at_one(|instance| Box::pin(instance.http.watch(class)))
            .await?;
        Ok(Box::new(InstanceWatch {
            inner: opened,
            place: WatchPlace {
                all: self.all.clone(),
                index,
                class,
                watched: self.watched.clone(),
            },
        }))
    }

    /// Opens a subscription to updates of single resources, at the watched instance or another one.
    pub(crate) async fn updates(&self) -> Result<Box<dyn ResourceUpdates>, FailedAttempt> {
        let opened = self
            .open_at_one(|instance| Box::pin(instance.http.updates()))
            .await?;
        Ok(opened.1)
    }

    /// Opens something at the first instance that allows it, the watched one first. Instances with
    /// an open breaker come last. One that asked for a pause is not asked, unless all of them pause. Of
    /// those that did not give their lists lately, the first is the one whose pause ends first.
    async fn open_at_one<T>(
        &self,
        open: impl for<'a> Fn(&'a ServerInstance) -> BoxFuture<'a, Result<T, FailedAttempt>>,
    ) -> Result<(usize, T), FailedAttempt> {
        let (first, now) = (self.watched.index(), self.context.clock.now());
        let mut order: Vec<usize> = (0..self.all.len())
            .map(|step| (first + step) % self.all.len())
            .collect();
        order.sort_by_key(|index| {
            let instance = &self.all[*index];
            let (requested, pause) = (
                instance.list_pause.requested_left(now),
                instance.list_pause.left(now),
            );
            let is_last = (instance.breaker.is_open(), instance.weight == 0);
            (!pause.is_zero(), is_last, requested, pause)
        });
        let left = |instance: &ServerInstance| instance.list_pause.requested_left(now);
        let do_all_pause = self.all.iter().all(|one| !left(one).is_zero());
        let (mut last, mut wait) = (None, Duration::MAX);
        for (step, index) in order.iter().copied().enumerate() {
            let instance = &self.all[index];
            if !do_all_pause && !left(instance).is_zero() {
                wait = wait.min(left(instance));
                continue;
            }
            let mut attempt = WatchAttempt {
                watched: &self.watched,
                from: first,
                next: Some(order[(step + 1) % order.len()]),
            };
            let start = instance.begin_attempt();
            let opened = open(instance).await;
            attempt.next = None;
            match opened {
                Ok(opened) => {
                    instance.record_success();
                    self.watched.move_on(first, index);
                    return Ok((index, opened));
                }
                Err(refusal) => {
                    instance.record_refusal(start, &refusal);
                    instance.pause_lists_after(&refusal.failure);
                    let delay = refusal.failure.retry_delay().unwrap_or_default();
                    wait = wait.min(delay.max(left(instance)));
                    last = Some(refusal);
                }
            }
        }
        let mut last = last.unwrap_or_else(|| self.unavailable(None));
        if last.failure.retry_delay().is_some() {
            // Another instance may be asked earlier.
            last.failure = last.failure.retry_after(wait);
        }
        Err(last)
    }
}

/// A watch at one instance.
struct InstanceWatch {
    inner: Box<dyn ListWatch>,
    place: WatchPlace,
}

/// The instance of a watch, among the others.
struct WatchPlace {
    all: Arc<[Arc<ServerInstance>]>,
    index: usize,
    class: CapabilityClass,
    watched: WatchedInstance,
}

impl WatchPlace {
    /// Returns the failure of a list that the instance does not give. The watch is lost if another
    /// instance gives the list: the other lists would be lost for nothing otherwise. If none does,
    /// the list fails alone, and is asked for again no later than another instance may be.
    async fn fail_list(&self, kind: ListKind, failure: Failure) -> Failure {
        let instance = &self.all[self.index];
        instance.pause_lists_after(&failure);
        let others = (1..self.all.len()).map(|step| (self.index + step) % self.all.len());
        let mut wait = None;
        for index in others {
            let other = &self.all[index];
            if other.list_wait() == Some(Duration::ZERO) {
                let asking = other.gives_list(kind, self.class);
                if let Ok(true) = timeout(OTHER_LIST_WAIT, Box::pin(asking)).await {
                    self.watched.move_on(self.index, index);
                    let now = instance.context.clock.now();
                    instance.list_pause.begin(now, failure.retry_delay());
                    let label = &instance.context.label;
                    return label
                        .fail(FailureKind::Unavailable, failure.message().to_owned())
                        .with_cause(failure.cause());
                }
            }
            let left = other.list_wait().filter(|left| !left.is_zero());
            wait = wait.into_iter().chain(left).min();
        }
        match wait {
            Some(wait) if failure.retry_delay().is_some_and(|own| wait < own) => {
                failure.retry_after(wait)
            }
            Some(_) | None => failure,
        }
    }
}

impl ListWatch for InstanceWatch {
    fn about(&self) -> &ServerDescription {
        self.inner.about()
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let place = &self.place;
            let instance = &place.all[place.index];
            let mut attempt = WatchAttempt {
                watched: &place.watched,
                from: place.index,
                next: Some((place.index + 1) % place.all.len()),
            };
            let is_declared = self.inner.about().offers.has(kind);
            let listed = self.inner.list(kind, cursor).await;
            let is_answered = is_answered(&listed);
            if is_answered {
                instance.record_life();
            }
            if is_answered || listed.as_ref().is_err_and(is_not_now) {
                attempt.next = None;
            }
            drop(attempt);
            match listed {
                Ok(page) => {
                    place.watched.note_given(kind);
                    Ok(page)
                }
                // An undeclared list that is not given is no reason to leave the instance. Nor is an
                // error that may be the answer of all of them.
                Err(failure)
                    if is_declared
                        && (is_not_now(&failure)
                            || is_answered && place.watched.was_given(kind)) =>
                {
                    Err(place.fail_list(kind, failure).await)
                }
                Err(failure) => Err(failure),
            }
        })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        // A stream that ended is opened again at the same instance first.
        self.inner.next_change()
    }
}

//! The watch of the lists of a server with several instances: at one of them at a time. It moves to
//! another instance if the watched one cannot be reached, or does not give its lists.

use std::sync::Arc;
use std::time::Duration;

use weir_core::port::Fut;
use weir_core::upstream::{
    ListKind, ListKinds, ListPage, ListWatch, ResourceUpdates, ServerDescription,
};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_upstream_core::failed_attempt::FailedAttempt;

use super::server_instance::is_not_now;
use super::watched_instance::WatchedInstance;
use super::{ServerInstance, ServerInstances};
use crate::single_server::is_answered;

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
            all: self.all.clone(),
            index,
            watched: self.watched.clone(),
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
    /// an open breaker come last. One that asked for a pause is not asked, unless all of them pause.
    async fn open_at_one<T>(
        &self,
        open: impl for<'a> Fn(&'a ServerInstance) -> Fut<'a, Result<T, FailedAttempt>>,
    ) -> Result<(usize, T), FailedAttempt> {
        let (first, now) = (self.watched.index(), self.context.clock.now());
        let mut order: Vec<usize> = (0..self.all.len())
            .map(|step| (first + step) % self.all.len())
            .collect();
        order.sort_by_key(|index| {
            let instance = &self.all[*index];
            let is_paused = !instance.list_pause.left(now).is_zero();
            (is_paused, instance.breaker.is_open(), instance.weight == 0)
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
    all: Arc<[Arc<ServerInstance>]>,
    index: usize,
    watched: WatchedInstance,
}

impl InstanceWatch {
    /// Returns the failure of a list that the instance does not give now. The watch is lost if
    /// another instance may be asked. Otherwise the list fails alone, and is asked for again no
    /// later than another instance may be.
    fn fail_not_now(&self, failure: Failure) -> Failure {
        let instance = &self.all[self.index];
        instance.pause_lists_after(&failure);
        let others = self.all.iter().filter(|one| !Arc::ptr_eq(one, instance));
        match others.filter_map(|one| one.list_wait()).min() {
            Some(Duration::ZERO) => {
                let label = &instance.context.label;
                label
                    .fail(FailureKind::Unavailable, failure.message().to_owned())
                    .with_cause(failure.cause())
            }
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
    ) -> Fut<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let mut attempt = WatchAttempt {
                watched: &self.watched,
                from: self.index,
                next: Some((self.index + 1) % self.all.len()),
            };
            let listed = match self.inner.list(kind, cursor).await {
                // An undeclared list that is not given is no reason to leave the instance.
                Err(failure) if is_not_now(&failure) && self.about().offers.has(kind) => {
                    Err(self.fail_not_now(failure))
                }
                listed => listed,
            };
            if is_answered(&listed) {
                self.all[self.index].record_life();
            }
            if is_answered(&listed) || listed.as_ref().is_err_and(is_not_now) {
                attempt.next = None;
            }
            drop(attempt);
            listed
        })
    }

    fn next_change(&mut self) -> Fut<'_, Result<ListKinds, Failure>> {
        // A stream that ended is opened again at the same instance first.
        self.inner.next_change()
    }
}

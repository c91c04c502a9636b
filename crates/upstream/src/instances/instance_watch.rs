//! The watch of the lists of a server with several instances: at one of them at a time. It moves to
//! another instance if the watched one cannot be reached, or does not give its lists.

use std::sync::Arc;

use weir_core::port::Fut;
use weir_core::upstream::{
    ListKind, ListKinds, ListPage, ListWatch, ResourceUpdates, ServerDescription,
};
use weir_core::{CapabilityClass, Failure};
use weir_upstream_core::failed_attempt::FailedAttempt;

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
            instance: self.all[index].clone(),
            index,
            next: self.after(index),
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
    /// an open breaker come last.
    async fn open_at_one<T>(
        &self,
        open: impl for<'a> Fn(&'a ServerInstance) -> Fut<'a, Result<T, FailedAttempt>>,
    ) -> Result<(usize, T), FailedAttempt> {
        let first = self.watched.index();
        let mut order: Vec<usize> = (0..self.all.len())
            .map(|step| (first + step) % self.all.len())
            .collect();
        order.sort_by_key(|index| {
            let instance = &self.all[*index];
            (instance.breaker.is_open(), instance.weight == 0)
        });
        let mut last = None;
        for (step, index) in order.iter().copied().enumerate() {
            let instance = &self.all[index];
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
                    last = Some(refusal);
                }
            }
        }
        Err(last.unwrap_or_else(|| self.unavailable(None)))
    }

    fn after(&self, index: usize) -> usize {
        (index + 1) % self.all.len()
    }
}

/// A watch at one instance.
struct InstanceWatch {
    inner: Box<dyn ListWatch>,
    instance: Arc<ServerInstance>,
    index: usize,
    /// The instance that is watched next if this one does not give its lists.
    next: usize,
    watched: WatchedInstance,
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
                next: Some(self.next),
            };
            let listed = self.inner.list(kind, cursor).await;
            if is_answered(&listed) {
                attempt.next = None;
                self.instance.record_life();
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

//! Callers that run side by side until they are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::task::JoinSet;

use crate::harness::{wait_until_async, within_test_timeout};

/// The signals between the callers of a group and the test.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerSignals {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
}

impl CallerSignals {
    /// True once the caller is to make no further call.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Counts an answered call.
    pub(crate) fn count_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// A group of callers, each of which returns its counts.
pub(crate) struct CallerGroup<T> {
    signals: CallerSignals,
    callers: JoinSet<T>,
}

impl<T: Send + 'static> CallerGroup<T> {
    /// A group without callers.
    pub(crate) fn new() -> Self {
        Self {
            signals: CallerSignals::default(),
            callers: JoinSet::new(),
        }
    }

    /// Starts a caller, which heeds the signals that it gets.
    pub(crate) fn spawn<F>(&mut self, call_until_stopped: impl FnOnce(CallerSignals) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.callers.spawn(call_until_stopped(self.signals.clone()));
    }

    /// Waits until this many more calls are answered.
    pub(crate) async fn wait_for_answers(&self, count: usize) {
        let answered = &self.signals.answered;
        let wanted = answered.load(Ordering::Relaxed) + count;
        wait_until_async("more answers", async || {
            (answered.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    /// Stops the callers; returns the counts of each.
    pub(crate) async fn stop(mut self) -> Vec<T> {
        self.signals.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        while let Some(own) = within_test_timeout("the callers", self.callers.join_next()).await {
            all.push(own.unwrap());
        }
        all
    }
}

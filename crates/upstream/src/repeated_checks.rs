//! Checks of a server that is down, by requests of weir's own: without calls and without walks of
//! its lists it would stay down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_core::port::half_jitter;
use weir_upstream_core::retry_backoff::least_wait;
use weir_upstream_core::upstream_context::UpstreamContext;

/// The checks of one server: at most one task makes them.
#[derive(Debug, Default)]
pub(crate) struct RepeatedChecks {
    is_running: AtomicBool,
}

/// A server that is checked again and again while it is down.
pub(crate) trait CheckedServer: Send + Sync + 'static {
    /// Its handles.
    fn context(&self) -> &UpstreamContext;

    /// Its checks.
    fn checks(&self) -> &RepeatedChecks;

    /// True while it has to be checked.
    fn is_awaited(&self) -> bool;

    /// The step of the waits at which new checks begin ([`least_wait`]).
    fn first_step(&self) -> u32;

    /// Checks it once, and records the outcome.
    fn check(&self) -> impl Future<Output = ()> + Send;
}

/// Starts the task that checks a server until it answers. The waits double, with jitter.
pub(crate) fn check_until_it_answers<S: CheckedServer>(server: &Arc<S>) {
    if server.checks().is_running.swap(true, Ordering::AcqRel) {
        return;
    }
    let checked = server.clone();
    server.context().tasks.spawn_endless(async move {
        let mut step = checked.first_step();
        while checked.is_awaited() {
            let random = checked.context().clock.random();
            tokio::time::sleep(half_jitter(least_wait(step), random)).await;
            step = step.saturating_add(1);
            checked.check().await;
        }
        checked.checks().is_running.store(false, Ordering::Release);
        // It may be down again since the last look.
        if checked.is_awaited() {
            check_until_it_answers(&checked);
        }
    });
}

//! Clients that call while faults happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_testkit::{ModernEnvelope, RawClient};

use super::super::call_load::CallKind;
use super::super::call_load::caller_group::{CallerGroup, CallerSignals};
use super::chaos_totals::{CallEnd, ChaosTotals};
use super::numbered_call::NumberedCall;
use crate::harness::within_test_timeout;

/// Attempts to open a session, and the pause after each.
const ATTEMPTS: u32 = 300;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);

/// The rate of the calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallRate {
    /// Callers of each kind.
    pub(super) callers: usize,
    /// The pause of a caller after a call.
    pub(super) pause: Duration,
}

/// Callers of all kinds that run until they are stopped.
pub(super) struct ChaosCallers(CallerGroup<ChaosTotals>);

impl ChaosCallers {
    /// Starts the callers at this URL.
    pub(super) fn start(url: &str, rate: CallRate) -> Self {
        let mut callers = CallerGroup::new();
        let numbers = Arc::<AtomicU64>::default();
        for kind in CallKind::ALL {
            for _ in 0..rate.callers {
                let caller = ChaosCaller {
                    kind,
                    url: url.to_owned(),
                    pause: rate.pause,
                    numbers: Arc::clone(&numbers),
                };
                callers.spawn(|signals| caller.call_until_stopped(signals));
            }
        }
        Self(callers)
    }

    /// Waits until this many more calls are answered.
    pub(super) async fn wait_for_answers(&self, count: usize) {
        self.0.wait_for_answers(count).await;
    }

    /// Stops the callers and returns the ends of all calls.
    pub(super) async fn stop(self) -> ChaosTotals {
        let mut totals = ChaosTotals::default();
        for own in self.0.stop().await {
            totals.add(own);
        }
        totals
    }
}

struct ChaosCaller {
    kind: CallKind,
    url: String,
    pause: Duration,
    /// The number of the next call of all callers.
    numbers: Arc<AtomicU64>,
}

impl ChaosCaller {
    async fn call_until_stopped(self, signals: CallerSignals) -> ChaosTotals {
        let mut totals = ChaosTotals::default();
        let mut client = None;
        while !signals.is_stopped() {
            let open = match client.take() {
                Some(open) => open,
                None => self.open().await,
            };
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let name = format!("call {number} of {:?}", self.kind);
            let call = NumberedCall {
                kind: self.kind,
                client: &open,
                number,
            };
            let ended = within_test_timeout(&name, call.run()).await;
            totals.count(number, ended);
            if ended == CallEnd::Answered {
                signals.count_answer();
            }
            if ended != CallEnd::SessionGone {
                client = Some(open);
            }
            tokio::time::sleep(self.pause).await;
        }
        if let Some(open) = client.filter(|open| open.session().is_some()) {
            let _may_be_gone = open.delete().await;
        }
        totals
    }

    /// Opens a client, over as many attempts as it takes.
    async fn open(&self) -> RawClient {
        let capabilities = self.kind.capabilities();
        let bare = || self.kind.connected(RawClient::new(&self.url));
        if self.kind.revision().is_modern() {
            return bare().modern_with(ModernEnvelope {
                capabilities,
                ..Default::default()
            });
        }
        for _ in 0..ATTEMPTS {
            let opening = bare().legacy(self.kind.revision());
            match opening.initialize_with(capabilities.clone()).await {
                Ok((client, answer)) if answer.status.is_success() => return client,
                Ok(_) | Err(_) => tokio::time::sleep(ATTEMPT_PAUSE).await,
            }
        }
        panic!("no session within {:?}", ATTEMPT_PAUSE * ATTEMPTS);
    }
}

//! A server behind one URL, or a child process: its transport, its circuit breaker, and the record
//! of what is known of its state.

use std::sync::Arc;
use std::time::Duration;

use weir_core::port::BoxFuture;
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription};
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::{FailedAttempt, Reach};
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::breaker::{AttemptStart, Breaker};
use crate::instances::instance_name::InstanceName;
use crate::repeated_checks::{CheckedServer, RepeatedChecks, check_until_it_answers};
use crate::server_transport::ServerTransport;

/// The first step of the waits between checks of a server that is not reached: the wait is 0.8 to
/// 1.6 s.
const FIRST_CHECK: u32 = 4;

/// A server behind one URL, or a child process.
#[derive(Debug)]
pub(crate) struct SingleServer {
    pub(crate) context: Arc<UpstreamContext>,
    pub(crate) transport: ServerTransport,
    pub(crate) breaker: Breaker,
    /// The name of the URL: an upstream may have had several URLs when a task began.
    pub(crate) name: Option<InstanceName>,
    checks: RepeatedChecks,
}

impl SingleServer {
    /// Makes a server that was not called yet. `name` is that of its URL, if it has one.
    pub(crate) fn new(
        context: Arc<UpstreamContext>,
        transport: ServerTransport,
        name: Option<InstanceName>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            transport,
            breaker: Breaker::default(),
            name,
            checks: RepeatedChecks::default(),
        })
    }

    /// Records the outcome of opening a watch. In a running process that asks it nothing, so that
    /// it is no sign of life of a silent one.
    pub(crate) fn record_opened(
        self: &Arc<Self>,
        start: AttemptStart,
        refusal: Option<&FailedAttempt>,
    ) {
        if refusal.is_some() || !self.transport.has_silent_process() {
            self.record(start, refusal);
        }
    }

    /// Records the outcome of an attempt.
    pub(crate) fn record(self: &Arc<Self>, start: AttemptStart, refusal: Option<&FailedAttempt>) {
        let now = self.context.clock.now();
        let Some(refusal) = refusal else {
            self.breaker.record_answer(now, start);
            return;
        };
        if refusal.era_in_doubt {
            self.transport.doubt_era();
        }
        self.context.record.note_error(&refusal.failure);
        match refusal.reach {
            Reach::NotReached => {
                self.breaker.record_unreached(now);
                self.look_after_failure();
            }
            Reach::Reached if is_connection_lost(refusal) => {
                if self.breaker.record_lost(now, start) {
                    self.look_after_failure();
                }
            }
            Reach::Reached => self.breaker.record_answer(now, start),
            Reach::NotAttempted | Reach::TooEarly => {}
        }
    }

    /// Records a sign of life on a connection that was open before.
    pub(crate) fn record_life(&self) {
        self.breaker.record_life(self.context.clock.now());
    }

    /// Records a call that passed its deadline after this `silence`. It counts if the server showed
    /// no life at all for the time `limit`.
    pub(crate) fn record_silence(
        self: &Arc<Self>,
        failure: &Failure,
        silence: Duration,
        limit: Duration,
    ) {
        self.context.record.note_error(failure);
        if self
            .breaker
            .record_silence(self.context.clock.now(), silence, limit)
        {
            self.look_after_failure();
        }
    }

    fn look_after_failure(self: &Arc<Self>) {
        if self.breaker.is_open() {
            self.transport.check_processes();
        }
        if self.breaker.is_down() {
            check_until_it_answers(self);
        }
    }
}

impl CheckedServer for SingleServer {
    fn context(&self) -> &UpstreamContext {
        &self.context
    }

    fn checks(&self) -> &RepeatedChecks {
        &self.checks
    }

    fn is_awaited(&self) -> bool {
        self.breaker.is_down()
    }

    fn first_step(&self) -> u32 {
        if self.breaker.is_unreached() {
            FIRST_CHECK
        } else {
            // Calls of one client may open the breaker of a server that serves all others.
            0
        }
    }

    async fn check(&self) {
        if self.breaker.is_down() && self.transport.answers().await {
            self.breaker.record_success(self.context.clock.now());
        }
    }
}

/// True if the connection was lost before any answer.
fn is_connection_lost(refusal: &FailedAttempt) -> bool {
    let was_not_sent = refusal.proof == Some(ResendProof::NotSent);
    was_not_sent || refusal.failure.is_connection_lost()
}

/// True if a page of a list shows that the server lives. An error of the server itself, such as an
/// unknown method, is an answer.
pub(crate) fn is_answered(listed: &Result<ListPage, Failure>) -> bool {
    listed.as_ref().map_or_else(
        |failure| matches!(failure.kind(), FailureKind::Upstream(_)),
        |_| true,
    )
}

/// A watch whose pages are signs of life of the server.
pub(crate) struct SingleServerWatch {
    pub(crate) inner: Box<dyn ListWatch>,
    pub(crate) server: Arc<SingleServer>,
}

impl ListWatch for SingleServerWatch {
    fn about(&self) -> &ServerDescription {
        self.inner.about()
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let start = self.server.breaker.begin();
            let listed = self.inner.list(kind, cursor).await;
            if is_answered(&listed) {
                self.server.record(start, None);
            }
            listed
        })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        self.inner.next_change()
    }
}

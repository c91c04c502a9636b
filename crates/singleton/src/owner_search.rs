//! The search for the replica that runs an upstream, and the streams to it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use weir_core::names::UpstreamId;
use weir_core::port::doubled;
use weir_core::{Failure, FailureKind};

use crate::event_form::RefusalForm;
use crate::forwarded_reply::read_failure;
use crate::frame::{Frame, FrameKind};
use crate::frame_stream::{FrameStream, OpenError, OwnerClient, StreamLost};
use crate::lease_view::{LeaseHolder, LeaseOwner};
use crate::remote_record::RemoteRecord;
use crate::singleton_lease::SingletonLease;

/// The time beyond that of a lease in which a request waits for a replica that runs the upstream: a
/// killed one is replaced after its lease.
const OWNER_WAIT: Duration = Duration::from_secs(5);
/// The pauses before the next attempt at the same holder, at first and at most. They are not random:
/// each attempt reads what this replica knows, and goes to another one only if that changed.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);

const NO_OWNER: &str = "No replica can run the upstream now: try again shortly";
const NO_STORE: &str = "No replica is known to run the upstream while the shared store does not answer: try again shortly";

/// The way to the replica that runs an upstream.
pub(crate) struct OwnerAccess {
    pub(crate) lease: Arc<SingletonLease>,
    pub(crate) client: OwnerClient,
    pub(crate) record: RemoteRecord,
}

/// The replica that a request goes to.
pub(crate) enum OwnerRoute {
    /// This one.
    Here,
    /// Another one.
    Other(LeaseOwner),
}

/// The search for the replica that runs the upstream, of one request.
pub(crate) struct OwnerSearch {
    deadline: Instant,
    attempts: u32,
    /// The version of the view that the last attempt was made by.
    seen: Option<u64>,
    /// The reason that the last attempt did not run, for operators.
    last: Option<String>,
    /// True if an outage of the store does not end the search.
    waits_for_store: bool,
}

/// The reason that a request has no stream at the replica that it was sent to.
pub(crate) enum BeginError {
    /// The replica was not reached: the request did not run.
    Unreachable,
    /// The replica does not hold the lease any more, or drains: the request did not run.
    Refused,
    /// The request may have run.
    Lost(StreamLost),
}

impl BeginError {
    /// The label of the metric of calls.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Lost(_) => "lost",
        }
    }
}

impl OwnerAccess {
    /// The longest time of a search.
    pub(crate) fn max_wait(&self) -> Duration {
        self.lease.time() + OWNER_WAIT
    }

    /// A search of a request that has so much time left.
    pub(crate) fn search(&self, left: Duration) -> OwnerSearch {
        OwnerSearch {
            deadline: Instant::now() + left.min(self.max_wait()),
            attempts: 0,
            seen: None,
            last: None,
            waits_for_store: false,
        }
    }

    /// A search of a request without a time limit of its own.
    pub(crate) fn longest_search(&self) -> OwnerSearch {
        self.search(self.max_wait())
    }

    /// A search that also waits while the store does not answer. It is for requests of this replica
    /// itself, such as watches of lists. Their callers repeat a failure after ever longer pauses, and
    /// the last pause would outlast the outage.
    pub(crate) fn patient_search(&self) -> OwnerSearch {
        OwnerSearch {
            waits_for_store: true,
            ..self.longest_search()
        }
    }

    fn upstream(&self) -> &UpstreamId {
        &self.client.upstream
    }

    /// Returns the replica that runs the upstream. Waits while there is none, or the last attempt at
    /// it did not run.
    ///
    /// # Errors
    /// There is none in time, or the store does not answer.
    pub(crate) async fn route(&self, search: &mut OwnerSearch) -> Result<OwnerRoute, Failure> {
        loop {
            if self.lease.own_epoch().is_some() {
                return Ok(OwnerRoute::Here);
            }
            let view = self.lease.view();
            let is_new = search.seen != Some(view.version);
            // After a failed attempt, the last known holder is of no use without an answer of the
            // store.
            let is_usable = view.error.is_none() || search.last.is_none();
            if let LeaseHolder::Other(owner) = &view.holder
                && is_new
                && is_usable
            {
                search.seen = Some(view.version);
                return Ok(OwnerRoute::Other(owner.clone()));
            }
            let left = search.deadline.saturating_duration_since(Instant::now());
            let ends_at_once = is_new && view.error.is_some() && !search.waits_for_store;
            if left.is_zero() || ends_at_once {
                return Err(self.no_owner(search, view.error.as_deref()));
            }
            let pause = doubled(FIRST_PAUSE, search.attempts, MAX_PAUSE);
            search.attempts = search.attempts.saturating_add(1);
            sleep(pause.min(left)).await;
            self.lease.refresh(view.version, left).await;
        }
    }

    fn no_owner(&self, search: &mut OwnerSearch, store: Option<&str>) -> Failure {
        let text = if store.is_some() { NO_STORE } else { NO_OWNER };
        let failure = Failure::new(FailureKind::Unavailable, text)
            .with_upstream(self.upstream())
            .retry_after(self.lease.time() / 3);
        let cause = match (search.last.take(), store) {
            (Some(last), Some(store)) => format!("{last}; {store}"),
            (Some(cause), None) => cause,
            (None, Some(store)) => store.to_owned(),
            (None, None) => "the lease of the upstream has no holder".to_owned(),
        };
        let failure = failure.because(cause);
        self.record.note_failure(&failure);
        failure
    }

    /// Opens a stream to the replica that runs the upstream, and reads its first frame. The search
    /// goes on if the request did not run there.
    ///
    /// # Errors
    /// The request did not run there, or the stream was lost.
    pub(crate) async fn begin(
        &self,
        search: &mut OwnerSearch,
        owner: &LeaseOwner,
        request: &Frame,
    ) -> Result<(FrameStream, Frame), BeginError> {
        let mut stream = match self.client.open(owner, request).await {
            Ok(stream) => stream,
            Err(OpenError::NotRun(cause)) => {
                search.last = Some(cause);
                return Err(BeginError::Unreachable);
            }
            Err(OpenError::Lost(cause)) => return Err(BeginError::Lost(StreamLost(cause))),
        };
        let first = stream.next_frame().await.map_err(BeginError::Lost)?;
        if first.kind == FrameKind::Refused {
            let refusal: RefusalForm = first.facts().unwrap_or_default();
            search.last = Some(refusal.reason);
            return Err(BeginError::Refused);
        }
        self.record.note_reached();
        Ok((stream, first))
    }

    /// Opens a stream for a request other than a call, which may be made twice: at this replica
    /// (`None`), or at the holder.
    ///
    /// # Errors
    /// There is no holder in time, or the request failed there.
    pub(crate) async fn open(
        &self,
        request: &Frame,
        mut search: OwnerSearch,
    ) -> Result<Option<(FrameStream, Frame)>, Failure> {
        loop {
            let owner = match self.route(&mut search).await? {
                OwnerRoute::Here => return Ok(None),
                OwnerRoute::Other(owner) => owner,
            };
            match self.begin(&mut search, &owner, request).await {
                Ok((_, first)) if first.kind == FrameKind::Failed => {
                    let failure = read_failure(&first, self.upstream());
                    self.record.note_failure(&failure);
                    return Err(failure);
                }
                Ok(opened) => return Ok(Some(opened)),
                Err(BeginError::Unreachable | BeginError::Refused) => {}
                Err(BeginError::Lost(StreamLost(cause))) => search.last = Some(cause),
            }
        }
    }
}

//! All upstreams of this replica with `instances: one`: their leases, and the service of their
//! streams for the other replicas.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use weir_core::names::UpstreamId;
use weir_core::upstream::Upstream;
use weir_listen::{ForwardedBody, ReplicaStreams, RequestBody};
use weir_upstream_core::lease_fence::LeaseFence;
use weir_upstream_core::settings::UpstreamBounds;

use crate::event_form::refusal_frame;
use crate::frame::{Frame, FrameKind};
use crate::owner_stream::{FrameReader, FrameWriter, OwnerStream, ServedStream, StreamGone};
use crate::serve_call::serve_call;
use crate::serve_watch::{serve_progress, serve_task, serve_updates, serve_watch};
use crate::singleton_lease::{LeasePorts, SingletonLease};
use crate::singleton_ports::SingletonPorts;
use crate::singleton_upstream::SingletonUpstream;
use crate::stream_form::read_session_change;
use crate::stream_head::read_stream_headers;

/// The most bytes of the first frame of a stream, before its upstream is known.
const MAX_FIRST_FRAME: usize = 256 << 20;

/// The longest wait for the tasks of leases at the end.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);

/// An upstream with `instances: one` that takes no part in its lease yet.
#[must_use]
pub struct PreparedSingleton {
    upstream: Arc<SingletonUpstream>,
    singletons: Arc<Singletons>,
}

impl PreparedSingleton {
    /// The upstream as callers use it.
    #[must_use]
    pub fn upstream(&self) -> Arc<dyn Upstream> {
        self.upstream.clone()
    }

    /// Shares the upstream with the other replicas. It takes part in the lease from now on, until it
    /// is retired, and serves their requests in place of an earlier upstream of the same name. Must
    /// be called inside a tokio runtime.
    pub fn share(self) {
        let Self {
            upstream,
            singletons,
        } = self;
        let lease = upstream.lease.clone();
        singletons.tasks.spawn(async move { lease.keep().await });
        let mut upstreams = singletons.upstreams.lock();
        upstreams.retain(|_, upstream| upstream.strong_count() > 0);
        upstreams.insert(upstream.local.id().clone(), Arc::downgrade(&upstream));
    }
}

impl fmt::Debug for PreparedSingleton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedSingleton")
            .field(&self.upstream)
            .finish()
    }
}

/// All upstreams of this replica with `instances: one`.
#[derive(Debug)]
pub struct Singletons {
    ports: SingletonPorts,
    upstreams: Mutex<HashMap<UpstreamId, Weak<SingletonUpstream>>>,
    tasks: TaskTracker,
}

impl Singletons {
    /// No upstreams yet.
    #[must_use]
    pub fn new(ports: SingletonPorts) -> Arc<Self> {
        Arc::new(Self {
            ports,
            upstreams: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// A fence for the children of one upstream. It opens with the lease.
    #[must_use]
    pub fn fence(&self) -> Arc<LeaseFence> {
        Arc::new(LeaseFence::new(self.ports.clock.clone()))
    }

    /// Prepares an upstream, whose children are behind `fence`, to be shared with the other
    /// replicas. This has no effect before [`PreparedSingleton::share`]: a config with it may still
    /// be refused.
    pub fn prepare(
        self: &Arc<Self>,
        local: Arc<dyn Upstream>,
        fence: Arc<LeaseFence>,
        bounds: UpstreamBounds,
    ) -> PreparedSingleton {
        let ports = LeasePorts {
            store: self.ports.leases.clone(),
            clock: self.ports.clock.clone(),
            random: self.ports.random.clone(),
            own: self.ports.own.clone(),
            time: self.ports.lease_time,
        };
        let id = local.id().clone();
        let lease = Arc::new(SingletonLease::new(id, ports, fence));
        let tasks = self.tasks.clone();
        PreparedSingleton {
            upstream: SingletonUpstream::new(local, lease, bounds, &self.ports, tasks),
            singletons: self.clone(),
        }
    }

    /// Gives all leases back before this replica ends, each once the calls of its upstream have
    /// ended. Ends after `most` at the latest; leases that are still held then go with the end of
    /// their upstreams.
    pub async fn drain(&self, most: Duration) {
        let upstreams: Vec<_> = self
            .upstreams
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let drains = upstreams.iter().map(|upstream| upstream.drain());
        let _in_time = timeout(most, join_all(drains)).await;
    }

    /// Waits a moment for the tasks of the leases, which end with their upstreams.
    pub async fn shutdown(&self) {
        self.tasks.close();
        let _in_time = timeout(SHUTDOWN_WAIT, self.tasks.wait()).await;
    }

    fn find(&self, id: &UpstreamId) -> Option<Arc<SingletonUpstream>> {
        self.upstreams.lock().get(id)?.upgrade()
    }

    /// Serves one stream of another replica.
    async fn serve_stream(
        self: Arc<Self>,
        request: Request<RequestBody>,
        writer: FrameWriter,
    ) -> Result<(), StreamGone> {
        let (head, body) = request.into_parts();
        let mut reader = FrameReader::new(body, MAX_FIRST_FRAME);
        let Some((id, epoch)) = read_stream_headers(&head.headers) else {
            return writer
                .send(&refusal_frame("unknown form of a stream"))
                .await;
        };
        let Some(upstream) = self.find(&id) else {
            let refusal = refusal_frame("the upstream is not in the config of the replica");
            return writer.send(&refusal).await;
        };
        let first = reader.next_frame().await?;
        // Last, right before the request begins.
        if !upstream.lease.accepts(epoch) {
            let refusal = refusal_frame("the replica does not hold the lease, or is ending");
            return writer.send(&refusal).await;
        }
        reader.set_most(upstream.max_frame());
        serve_request(upstream, &first, OwnerStream { reader, writer }).await
    }
}

async fn serve_request(
    upstream: Arc<SingletonUpstream>,
    request: &Frame,
    stream: OwnerStream,
) -> Result<(), StreamGone> {
    let local = upstream.local.clone();
    if request.kind == FrameKind::Call {
        return serve_call(local, &upstream.lease, request, stream).await;
    }
    let end = upstream.lease.streams_end();
    tokio::select! {
        biased;
        // Asked first: the end of the child follows, and is no failure of a stream that goes on
        // elsewhere.
        () = end.cancelled() => Ok(()),
        served = serve_stream_of(local, request, stream) => served,
    }
}

/// Serves a request that has no end of its own.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of many kinds of frames a stream begins with few"
)]
async fn serve_stream_of(
    local: Arc<dyn Upstream>,
    request: &Frame,
    stream: OwnerStream,
) -> Result<(), StreamGone> {
    match request.kind {
        FrameKind::Watch => serve_watch(local, request, stream).await,
        FrameKind::Updates => serve_updates(local, stream).await,
        FrameKind::FollowTask => serve_task(local, request, stream).await,
        FrameKind::TaskProgress => serve_progress(local, request, stream).await,
        FrameKind::SessionChange => {
            if let Ok((sessions, change)) = read_session_change(request) {
                local.notify_sessions(&sessions.collect(), change);
            }
            Ok(())
        }
        _ => stream.writer.send(&refusal_frame("unknown request")).await,
    }
}

impl ReplicaStreams for Singletons {
    fn serve(self: Arc<Self>, request: Request<RequestBody>) -> Response<ForwardedBody> {
        let body = ServedStream::new(move |writer| {
            Box::pin(async move {
                // The other replica has gone, or speaks another version: there is none to tell.
                let _gone = self.serve_stream(request, writer).await;
            })
        });
        Response::new(Box::pin(body))
    }
}

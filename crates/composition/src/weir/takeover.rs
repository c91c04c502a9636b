//! The hand-over of a running weir to another process.

use std::sync::Arc;

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use weir_admin::AdminListener;
use weir_audit::{AuditService, ChainHead};
use weir_core::HandoverArrival;
use weir_core::port::BoxFuture;
use weir_front::{OtherProcess, ProcessRequests};
use weir_handover::{
    HandoverResources, HandoverState, MovableState, ProcessStreams, RunningGateway, Successor,
};

use crate::weir::Weir;
use crate::weir::components::{ProcessForwarders, Stores};
use crate::weir::replica_links::ReplicaLinks;

impl RunningGateway for Weir {
    fn handover_resources(&self) -> std::io::Result<HandoverResources> {
        let operators = self
            .listeners
            .admin
            .as_ref()
            .map(AdminListener::socket)
            .transpose()?;
        Ok(HandoverResources {
            clients: Some(self.listeners.front.socket()?.into()),
            cluster: self.listeners.front.cluster_socket()?.map(Into::into),
            operators: operators.map(Into::into),
            sealing: Some(self.components.base.sealing.clone()),
            state: None,
            keeper: self.components.base.keeper.clone_pipe()?.map(Into::into),
        })
    }

    async fn prepare_handover(&self) -> HandoverState {
        // Its clients may come here with what they have from it, once it serves.
        self.components.processes.successor.await_stream();
        // Child processes move as soon as the successor serves.
        self.components.catalog.begin_ending();
        let changes = self.listeners.admin_state.begin_handover();
        let audit = self.components.policy.auditing.release_files().await;
        let text = |head: Option<ChainHead>| head.map(|head| head.to_string());
        let replicas = self.components.replicas.as_ref();
        HandoverState {
            audit: text(audit.calls),
            refusals: text(audit.refusals),
            changes,
            replica: None,
            other_replicas: replicas.and_then(ReplicaLinks::export_view),
            generation: self.components.base.generation.saturating_add(1),
        }
        .with_replica(&self.components.base.replica)
    }

    fn session_state(&self) -> MovableState {
        let Stores {
            records,
            replays,
            tasks,
            bus,
            ..
        } = &self.components.stores;
        MovableState {
            records: records.clone(),
            replays: replays.clone(),
            tasks: tasks.clone(),
            bus: bus.clone(),
            front: self.listeners.front.moving_sessions(),
            upstreams: self
                .applied
                .lock()
                .upstreams
                .iter()
                .map(|(_, upstream)| upstream.clone())
                .collect(),
            requests: Arc::new(ForwardedStreams {
                served: self.listeners.front.process_requests().clone(),
                forwarders: self.components.processes.clone(),
            }),
        }
    }
}

/// The requests to and from the processes before and after this one.
#[derive(Debug)]
struct ForwardedStreams {
    served: Arc<ProcessRequests>,
    forwarders: ProcessForwarders,
}

impl ProcessStreams for ForwardedStreams {
    fn serve(&self, from: OtherProcess, stream: UnixStream) {
        self.served.serve(from, stream);
    }

    fn forward(
        &self,
        to: OtherProcess,
        stream: Option<UnixStream>,
        last_messages: HandoverArrival,
    ) -> BoxFuture<'static, ()> {
        let forwarder = match to {
            OtherProcess::Predecessor => self.forwarders.predecessor.clone(),
            OtherProcess::Successor => self.forwarders.successor.clone(),
        };
        Box::pin(async move {
            match stream {
                Some(stream) => forwarder.run(stream, &last_messages).await,
                None => forwarder.end(),
            }
        })
    }
}

impl Weir {
    /// Notes that this process took over from one that has ended once the token is cancelled. This
    /// process ends after it.
    pub fn set_predecessor(&mut self, predecessor_ended: CancellationToken) {
        self.predecessor_ended = Some(predecessor_ended);
    }

    /// Stops waiting for the state of the previous process, because it is gone.
    pub fn stop_awaiting_predecessor(&self) {
        self.components.stores.records.complete();
        self.components.processes.predecessor.end();
    }

    /// Records the outcome of a hand-over: the successor's process id, or the reason. After a
    /// successful one [`Self::shutdown`] closes the operators' listener first.
    ///
    /// # Errors
    ///
    /// The reason of a failed hand-over.
    pub fn record_handover(&mut self, outcome: Result<Successor, String>) -> Result<u32, String> {
        let outcome = outcome.map(|successor| self.successor.insert(successor).id);
        if outcome.is_err() {
            self.components.processes.successor.end();
            self.components.catalog.abort_ending();
            self.listeners.admin_state.abort_handover();
            self.components.policy.auditing.take_back_files();
        }
        let detail = match &outcome {
            Ok(successor) => format!("process {successor} serves"),
            Err(why) => why.clone(),
        };
        self.record_action("signal", "hand over", &detail, outcome.is_ok());
        outcome
    }

    /// The audit.
    pub fn auditing(&self) -> &Arc<AuditService> {
        &self.components.policy.auditing
    }

    /// Returns a future that sends the messages for a successor that wait at its first poll, for a
    /// bounded time: for a process that ends without [`Self::shutdown`], which sends them too.
    pub fn flush_to_successor(&self) -> impl Future<Output = ()> + Send + use<> {
        let flushing = self.successor.as_ref().map(Successor::flush);
        async move {
            if let Some(flushing) = flushing {
                flushing.await;
            }
        }
    }

    /// Reports if another process has taken over.
    pub fn has_successor(&self) -> bool {
        self.successor.is_some()
    }
}

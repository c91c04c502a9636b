//! An upstream for tests: its exports and imports wait until others run, too.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Barrier;
use weir_core::names::UpstreamId;
use weir_core::port::Fut;
use weir_core::reply::Reply;
use weir_core::upstream::{
    HandoverSession, ListWatch, OutboundCall, ResourceUpdates, Upstream, UpstreamHealth,
};
use weir_core::{CapabilityClass, Failure};

/// An upstream that exports and imports sessions once all others of the barrier do so.
struct MeetingUpstream {
    id: UpstreamId,
    all: Arc<Barrier>,
}

/// Returns the upstreams of these ids.
pub(crate) fn meeting_upstreams(ids: &[&str], all: &Arc<Barrier>) -> Vec<Arc<dyn Upstream>> {
    ids.iter()
        .map(|id| -> Arc<dyn Upstream> {
            Arc::new(MeetingUpstream {
                id: UpstreamId::new(id).unwrap(),
                all: all.clone(),
            })
        })
        .collect()
}

impl Upstream for MeetingUpstream {
    fn id(&self) -> &UpstreamId {
        &self.id
    }

    fn call(self: Arc<Self>, _outbound: OutboundCall) -> Fut<'static, Reply> {
        Box::pin(pending())
    }

    fn watch(
        self: Arc<Self>,
        _class: CapabilityClass,
    ) -> Fut<'static, Result<Box<dyn ListWatch>, Failure>> {
        Box::pin(pending())
    }

    fn updates(self: Arc<Self>) -> Fut<'static, Result<Box<dyn ResourceUpdates>, Failure>> {
        Box::pin(pending())
    }

    fn carries(&self) -> CapabilityClass {
        CapabilityClass::BASE
    }

    fn export_sessions(self: Arc<Self>) -> Fut<'static, Vec<HandoverSession>> {
        Box::pin(async move {
            self.all.wait().await;
            vec![HandoverSession {
                description: Bytes::copy_from_slice(self.id.as_str().as_bytes()),
                descriptors: Vec::new(),
            }]
        })
    }

    fn import_session(self: Arc<Self>, _session: HandoverSession) -> Fut<'static, ()> {
        Box::pin(async move {
            self.all.wait().await;
        })
    }

    fn health(&self) -> UpstreamHealth {
        UpstreamHealth::default()
    }

    fn retire(self: Arc<Self>, _grace: Duration) -> Fut<'static, ()> {
        Box::pin(pending())
    }
}

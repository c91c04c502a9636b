//! An upstream that does nothing but hand its sessions over and take others over.

use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_core::names::UpstreamId;
use weir_core::port::BoxFuture;
use weir_core::reply::Reply;
use weir_core::upstream::{
    HandoverSession, ListWatch, OutboundCall, ResourceUpdates, Upstream, UpstreamHealth,
};
use weir_core::{CapabilityClass, Failure};

type Export = Box<dyn Fn() -> BoxFuture<'static, Vec<HandoverSession>> + Send + Sync>;
type Import = Box<dyn Fn(HandoverSession) -> BoxFuture<'static, ()> + Send + Sync>;

/// An upstream whose calls never end, with the exports and imports of the test.
pub struct HandoverUpstream {
    id: UpstreamId,
    export: Export,
    import: Import,
    predecessor_runs: AtomicBool,
}

impl HandoverUpstream {
    /// An upstream without sessions of its own.
    pub fn new(
        id: UpstreamId,
        import: impl Fn(HandoverSession) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            id,
            export: Box::new(|| Box::pin(ready(Vec::new()))),
            import: Box::new(import),
            predecessor_runs: AtomicBool::new(false),
        }
    }

    /// The same upstream with the sessions that `export` describes.
    #[must_use]
    pub fn with_export(
        mut self,
        export: impl Fn() -> BoxFuture<'static, Vec<HandoverSession>> + Send + Sync + 'static,
    ) -> Self {
        self.export = Box::new(export);
        self
    }
}

impl Upstream for HandoverUpstream {
    fn id(&self) -> &UpstreamId {
        &self.id
    }

    fn call(self: Arc<Self>, _outbound: OutboundCall) -> BoxFuture<'static, Reply> {
        Box::pin(pending())
    }

    fn watch(
        self: Arc<Self>,
        _class: CapabilityClass,
    ) -> BoxFuture<'static, Result<Box<dyn ListWatch>, Failure>> {
        Box::pin(pending())
    }

    fn updates(self: Arc<Self>) -> BoxFuture<'static, Result<Box<dyn ResourceUpdates>, Failure>> {
        Box::pin(pending())
    }

    fn carries(&self) -> CapabilityClass {
        CapabilityClass::BASE
    }

    fn export_sessions(self: Arc<Self>) -> BoxFuture<'static, Vec<HandoverSession>> {
        (self.export)()
    }

    fn import_session(self: Arc<Self>, session: HandoverSession) -> BoxFuture<'static, ()> {
        (self.import)(session)
    }

    fn set_predecessor_running(&self, runs: bool) {
        self.predecessor_runs.store(runs, Ordering::Relaxed);
    }

    fn health(&self) -> UpstreamHealth {
        UpstreamHealth {
            predecessor_runs: self.predecessor_runs.load(Ordering::Relaxed),
            ..UpstreamHealth::default()
        }
    }

    fn retire(self: Arc<Self>, _grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }
}

impl fmt::Debug for HandoverUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandoverUpstream({})", self.id)
    }
}

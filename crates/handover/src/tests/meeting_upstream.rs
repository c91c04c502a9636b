//! Upstreams for tests: their exports and imports wait until others run, too.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Barrier;
use weir_core::names::UpstreamId;
use weir_core::port::BoxFuture;
use weir_core::upstream::{HandoverSession, Upstream};
use weir_testkit::HandoverUpstream;

/// Returns the upstreams of these ids. They export and import sessions once all others of the
/// barrier do so.
pub(crate) fn meeting_upstreams(ids: &[&str], all: &Arc<Barrier>) -> Vec<Arc<dyn Upstream>> {
    ids.iter().map(|id| meeting_upstream(id, all)).collect()
}

fn meeting_upstream(id: &str, all: &Arc<Barrier>) -> Arc<dyn Upstream> {
    let (description, exporting, importing) = (
        Bytes::copy_from_slice(id.as_bytes()),
        all.clone(),
        all.clone(),
    );
    let import = move |_| -> BoxFuture<'static, ()> {
        let all = importing.clone();
        Box::pin(async move {
            all.wait().await;
        })
    };
    let export = move || -> BoxFuture<'static, Vec<HandoverSession>> {
        let (description, all) = (description.clone(), exporting.clone());
        Box::pin(async move {
            all.wait().await;
            vec![HandoverSession {
                description,
                descriptors: Vec::new(),
            }]
        })
    };
    Arc::new(HandoverUpstream::new(UpstreamId::new(id).unwrap(), import).with_export(export))
}

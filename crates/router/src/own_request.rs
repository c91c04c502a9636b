//! Requests of weir's own to upstreams.

use std::sync::Arc;

use tokio::time::Instant;
use weir_core::Authenticated;
use weir_core::call::Call;
use weir_core::upstream::{CallDeadlines, CarriedRevision, OutboundCall};

/// A request of weir's own for the sender of `request`, about the target `native`. It has the time of
/// a list.
pub(crate) fn own_request(
    request: &Authenticated<Arc<Call>>,
    call: Arc<Call>,
    native: Arc<str>,
) -> OutboundCall {
    OutboundCall {
        principal: request.principal().clone(),
        token: request.token().cloned(),
        call,
        native,
        tool: None,
        begun: Instant::now(),
        deadlines: CallDeadlines::LIST,
        whole: false,
        safe_to_repeat: false,
        carried_revision: CarriedRevision::default(),
    }
}

//! The failure of a connection that was lost after a request was sent.

use weir_core::{Failure, FailureKind};
use weir_upstream_core::upstream_label::UpstreamLabel;

/// Makes the failure of a connection that was lost after the request was sent.
pub(crate) fn connection_lost_failure(label: &UpstreamLabel) -> Failure {
    let text = "The connection to the upstream was lost after the call was sent: it may have run. Check before calling again";
    label
        .fail(FailureKind::ResultUnknown, text)
        .connection_lost()
}

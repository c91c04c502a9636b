//! The end of a response that is not needed, read so that its connection can be used again.

use std::time::Duration;

use futures_util::FutureExt;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::response_reader::ResponseReader;

/// Reads the rest of a response, for a moment.
pub(crate) fn drain_response(context: &UpstreamContext, mut answer: ResponseReader) {
    if matches!(answer.part().now_or_never(), Some(Ok(None) | Err(_))) {
        return;
    }
    // Each such response keeps its connection for this long: beyond the bound it is closed at once.
    let Ok(permit) = context.responses.drain_permits.clone().try_acquire_owned() else {
        return;
    };
    context.tasks.spawn(async move {
        let _permit = permit;
        let rest = async { while let Ok(Some(_)) = answer.part().await {} };
        // The connection of a server that keeps the stream open is closed.
        let _kept_open = tokio::time::timeout(Duration::from_secs(1), rest).await;
    });
}

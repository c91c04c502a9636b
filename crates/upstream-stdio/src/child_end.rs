//! The end of a child process: by itself, or because weir ends it.

use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use weir_process::keeper::ChildControlSocket;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::child_channel::ChildChannel;
use crate::value_claim::ValueClaims;

/// The parts that are notified when the process has ended, for every end of its supervision.
#[derive(Debug)]
pub(super) struct ChildEndNotifier {
    pub(super) context: Arc<UpstreamContext>,
    pub(super) channel: Arc<ChildChannel>,
    pub(super) ended: CancellationToken,
    pub(super) status: Arc<OnceLock<String>>,
    /// Shows the lease that the child still runs.
    pub(super) _mark: Option<TaskTrackerToken>,
}

impl Drop for ChildEndNotifier {
    fn drop(&mut self) {
        self.channel.close("the process was ended");
        self.context.label.add_open_sessions(-1);
        self.ended.cancel();
    }
}

/// Waits for the child's end, or ends it: with the input closed, the keeper sends SIGTERM and
/// SIGKILL in their times, and ends its descendants.
pub(super) async fn supervise(
    mut control: ChildControlSocket,
    stop: CancellationToken,
    input: CancellationToken,
    mut watched: ChildEndNotifier,
    mut claims: ValueClaims<(ChildControlSocket, ChildEndNotifier)>,
) {
    let closed = watched.channel.closed();
    let status = loop {
        let claim = tokio::select! {
            biased;
            status = control.ended() => break status,
            () = stop.cancelled() => break end_child(&mut control, &input, &watched).await,
            () = closed.cancelled() => break end_child(&mut control, &input, &watched).await,
            claim = claims.next() => claim,
        };
        match claim.send((control, watched)) {
            Ok(()) => return,
            Err(parts) => (control, watched) = parts,
        }
    };
    let why = match &status {
        Ok(status) => format!("the process ended: {status}"),
        Err(error) => format!("the process was lost: {error}"),
    };
    tracing::info!(upstream = %watched.context.label.id, why, "child process exited");
    // This is the only place that sets it.
    let _ = watched.status.set(why.clone());
    watched.channel.close(&why);
    match status {
        Ok(_) => input.cancel(),
        // The process still runs, and the keeper cannot end it.
        Err(_) => control.end_without_keeper(&input).await,
    }
}

/// Ends the child: requests that of the keeper, then closes the input.
async fn end_child(
    control: &mut ChildControlSocket,
    input: &CancellationToken,
    watched: &ChildEndNotifier,
) -> io::Result<ExitStatus> {
    watched.channel.close("weir ended the process");
    match control.close().await {
        Some(ended) => ended,
        None => {
            input.cancel();
            control.ended().await
        }
    }
}

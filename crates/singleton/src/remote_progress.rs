//! The progress of a task of an upstream that runs at another replica. It goes on after a graceful
//! restart of that replica.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use weir_core::Principal;
use weir_core::upstream::{ProgressReports, Upstream};

use crate::call_form::owned_name;
use crate::frame::{Frame, FrameKind};
use crate::frame_stream::FrameStream;
use crate::owner_search::OwnerAccess;
use crate::stream_form::ProgressForm;

/// Returns the progress reports of a task of `local`, from the replica that runs it. Their stream
/// is opened with the first poll.
pub(crate) fn remote_progress(
    local: Arc<dyn Upstream>,
    access: Arc<OwnerAccess>,
    principal: &Principal,
    native: &str,
) -> ProgressReports {
    let form = ProgressForm {
        principal: owned_name(principal),
        native: native.to_owned(),
    };
    let reader = ProgressReader {
        request: Frame::new(FrameKind::TaskProgress, &form),
        principal: principal.clone(),
        native: native.to_owned(),
        local,
        access,
        current: None,
    };
    Box::pin(stream::unfold(reader, ProgressReader::next))
}

struct ProgressReader {
    local: Arc<dyn Upstream>,
    access: Arc<OwnerAccess>,
    request: Frame,
    principal: Principal,
    native: String,
    /// Absent before the first report, and once the replica has ended its stream in order.
    current: Option<ProgressSource>,
}

enum ProgressSource {
    /// The upstream in this process.
    Local(ProgressReports),
    Remote(FrameStream),
}

impl ProgressReader {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            let mut current = match self.current.take() {
                Some(current) => current,
                None => self.open().await?,
            };
            let report = match &mut current {
                ProgressSource::Local(reports) => reports.next().await?,
                ProgressSource::Remote(stream) => match stream.next_frame().await {
                    Ok(frame) if frame.kind == FrameKind::Item => frame.part(0),
                    Err(_) if stream.has_ended() => continue,
                    Ok(_) | Err(_) => return None,
                },
            };
            self.current = Some(current);
            return Some((report, self));
        }
    }

    /// Finds the reports where the upstream runs now. `None` if the task has none there.
    async fn open(&mut self) -> Option<ProgressSource> {
        let search = self.access.longest_search();
        match self.access.open(&self.request, search).await.ok()? {
            Some((stream, _)) => Some(ProgressSource::Remote(stream)),
            None => {
                let reports = self.local.task_progress(&self.principal, &self.native)?;
                Some(ProgressSource::Local(reports))
            }
        }
    }
}

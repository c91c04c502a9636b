//! The progress of a task of an upstream that runs at another replica. It goes on after a graceful
//! restart of that replica, and after a lost connection to it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::time::sleep;
use weir_core::Principal;
use weir_core::port::{Backoff, BoxFuture, Random};
use weir_core::upstream::{ProgressReports, Upstream};

use crate::call_form::owned_name;
use crate::frame::{Frame, FrameKind};
use crate::frame_stream::{FrameStream, StreamLost};
use crate::owner_search::OwnerAccess;
use crate::stream_form::ProgressForm;

/// The pauses after a stream that was lost, at first and at most. They grow until a report comes.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Reports until their stream is lost. If it ends otherwise, there will be no more.
type OpenedReports = Pin<Box<dyn Stream<Item = Result<Bytes, StreamLost>> + Send>>;

/// Opens the reports of one task. Absent if the task has none.
type OpenReports =
    Box<dyn FnMut() -> BoxFuture<'static, Result<Option<OpenedReports>, StreamLost>> + Send>;

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
    let random = access.lease.random().clone();
    let source = Arc::new(ProgressSource {
        request: Frame::new(FrameKind::TaskProgress, &form),
        principal: principal.clone(),
        native: native.to_owned(),
        local,
        access,
    });
    let open: OpenReports = Box::new(move || {
        let source = source.clone();
        Box::pin(async move { source.open().await })
    });
    continued_reports(open, random)
}

/// The reports of streams that are opened one after the other.
fn continued_reports(open: OpenReports, random: Arc<dyn Random>) -> ProgressReports {
    let reader = ProgressReader {
        open,
        current: None,
        pauses: Backoff::new(FIRST_PAUSE, MAX_PAUSE),
        random,
    };
    Box::pin(stream::unfold(reader, ProgressReader::next))
}

struct ProgressReader {
    open: OpenReports,
    /// Absent before the first report, and after a stream was lost.
    current: Option<OpenedReports>,
    pauses: Backoff,
    random: Arc<dyn Random>,
}

impl ProgressReader {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            let opened = match self.current.take() {
                Some(current) => Ok(Some(current)),
                None => (self.open)().await,
            };
            let reported = match opened {
                Ok(Some(mut current)) => {
                    let reported = current.next().await?;
                    self.current = Some(current);
                    reported
                }
                Ok(None) => return None,
                Err(lost) => Err(lost),
            };
            if let Ok(report) = reported {
                self.pauses.reset();
                return Some((report, self));
            }
            self.current = None;
            sleep(self.pauses.next(&*self.random)).await;
        }
    }
}

/// A task whose reports are asked for where the upstream runs.
struct ProgressSource {
    local: Arc<dyn Upstream>,
    access: Arc<OwnerAccess>,
    request: Frame,
    principal: Principal,
    native: String,
}

impl ProgressSource {
    /// Finds the reports where the upstream runs now. `None` if the task has none there.
    async fn open(&self) -> Result<Option<OpenedReports>, StreamLost> {
        let search = self.access.longest_search();
        let opened = self.access.open(&self.request, search).await;
        match opened.map_err(|failure| StreamLost(failure.cause()))? {
            Some((_, first)) if first.kind != FrameKind::Opened => Ok(None),
            Some((stream, _)) => Ok(Some(Box::pin(stream::unfold(stream, next_report)))),
            None => {
                let reports = self.local.task_progress(&self.principal, &self.native);
                Ok(reports.map(|reports| Box::pin(reports.map(Ok)) as OpenedReports))
            }
        }
    }
}

/// The next report of another replica. `None` once that replica says that there are no more.
async fn next_report(mut stream: FrameStream) -> Option<(Result<Bytes, StreamLost>, FrameStream)> {
    let reported = match stream.next_frame().await {
        Ok(frame) if frame.kind == FrameKind::Item => Ok(frame.part(0)),
        Ok(_) => return None,
        Err(lost) => Err(lost),
    };
    Some((reported, stream))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use weir_testkit::FixedRandom;

    use super::*;

    type Attempt = Result<Option<Vec<Result<&'static str, StreamLost>>>, StreamLost>;

    /// The reports of streams that end like these, and the time until the last one.
    async fn read(attempts: Vec<Attempt>) -> (Vec<Bytes>, Duration) {
        let mut attempts = VecDeque::from(attempts);
        let began = tokio::time::Instant::now();
        let open: OpenReports = Box::new(move || {
            let attempt = attempts.pop_front().unwrap_or(Ok(None));
            let opened = attempt.map(|opened| {
                let reports = opened?.into_iter();
                let reports = reports.map(|report| report.map(Bytes::from));
                Some(Box::pin(stream::iter(reports.collect::<Vec<_>>())) as OpenedReports)
            });
            Box::pin(async move { opened })
        });
        let reports = continued_reports(open, Arc::new(FixedRandom(255)));
        (reports.collect().await, began.elapsed())
    }

    fn lost() -> StreamLost {
        StreamLost("reset".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn progress_goes_on_after_lost_streams() {
        let (reports, _) = read(vec![
            Ok(Some(vec![Ok("1"), Err(lost())])),
            Err(lost()),
            Ok(Some(vec![Err(lost())])),
            Ok(Some(vec![Ok("2")])),
            Ok(Some(vec![Ok("3")])),
        ])
        .await;
        assert_eq!(
            reports,
            ["1", "2"],
            "the last stream was replaced or is over"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_between_lost_streams_grow() {
        let attempts = (0..40).map(|_| Ok(Some(vec![Err(lost())])));
        let (reports, time) = read(attempts.collect()).await;
        assert!(reports.is_empty() && time > 30 * MAX_PAUSE, "{time:?}");
    }
}

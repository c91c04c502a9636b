//! The export of spans and metrics to an OpenTelemetry collector, by OTLP over HTTP or gRPC.
//!
//! Requests never wait for this: spans wait in a bounded queue, or are dropped and counted, and
//! both tasks give a collector its timeout and no more. Audit records are exported separately, by
//! `weir-audit`, because none of them may be lost.

mod export_messages;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{BufMut, Bytes, BytesMut};
use opentelemetry::KeyValue;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use weir_core::port::{DocumentPoster, PostEncoding, PostResponse, fill_batch};
use weir_core::telemetry::{instruments, process_resource};
use weir_core::trace::{FinishedSpan, SpanSink};
use weir_upstream::{TlsError, UpstreamFactory};

use crate::metrics::Metrics;
use crate::telemetry_plan::OtlpPlan;

/// The most finished spans that wait.
const QUEUE: usize = 2048;
/// The most spans of one request.
const BATCH: usize = 512;
/// The time that a batch waits for more spans.
const BATCH_WAIT: Duration = Duration::from_secs(1);
/// The seconds between attempts to send the same spans; after the last they are dropped. Metrics
/// are not sent again, because the next request has the new totals.
const RETRY_SECONDS: [u64; 3] = [1, 2, 4];
/// The time that the last request has at weir's end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// The prepared exporters of both signals, not started yet.
pub(super) struct OtlpExporters {
    metrics: SignalExporter,
    traces: SignalExporter,
    interval: Duration,
}

/// The running export tasks. If this is dropped, they end after their current request.
#[derive(Debug)]
pub(super) struct ExportTasks {
    stop: DropGuard,
    tasks: TaskTracker,
}

/// The channel to the task that sends spans.
#[derive(Debug)]
pub(super) struct SpanSender(mpsc::Sender<FinishedSpan>);

impl SpanSink for SpanSender {
    fn offer(&self, span: FinishedSpan) {
        if self.0.try_send(span).is_err() {
            dropped("traces", "queue", 1);
        }
    }
}

impl OtlpExporters {
    /// # Errors
    ///
    /// The certificate file in the settings is not usable.
    pub(super) fn new(
        plan: &OtlpPlan,
        metrics: &Metrics,
        factory: &UpstreamFactory,
    ) -> Result<Self, TlsError> {
        let exporter = |signal, settings, rejected: fn(&[u8]) -> u64| {
            let post = factory.document_poster(settings)?;
            Ok(SignalExporter {
                signal,
                rejected,
                post,
                form: plan.form(),
                within: plan.timeout,
                metrics: metrics.clone(),
            })
        };
        let (metrics, traces) = (
            exporter("metrics", &plan.metrics, export_messages::rejected_points)?,
            exporter("traces", &plan.traces, export_messages::rejected_spans)?,
        );
        Ok(Self {
            metrics,
            traces,
            interval: plan.interval,
        })
    }

    /// Starts to send. Must be called inside a tokio runtime.
    pub(super) fn start(self) -> (ExportTasks, Arc<dyn SpanSink>) {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (sender, receiver) = mpsc::channel(QUEUE);
        tasks.spawn(self.traces.spans(receiver, stop.clone()));
        tasks.spawn(self.metrics.series(self.interval, stop.clone()));
        tasks.close();
        (
            ExportTasks {
                stop: stop.drop_guard(),
                tasks,
            },
            Arc::new(SpanSender(sender)),
        )
    }
}

impl ExportTasks {
    /// Sends the waiting data within a bounded time, and ends.
    pub(super) async fn shutdown(self) {
        let Self { stop, tasks } = self;
        drop(stop);
        // A hanging collector does not block the end of the process.
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, tasks.wait()).await;
    }
}

/// The exporter of one signal.
struct SignalExporter {
    signal: &'static str,
    /// The number of rejected items in a response.
    rejected: fn(&[u8]) -> u64,
    post: Arc<dyn DocumentPoster>,
    form: PostEncoding,
    within: Duration,
    metrics: Metrics,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportOutcome {
    Accepted,
    /// Refused for now; a later attempt may succeed.
    Retry,
    Rejected,
}

impl SignalExporter {
    async fn spans(self, mut spans: mpsc::Receiver<FinishedSpan>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let some = tokio::select! {
                biased;
                count = spans.recv_many(&mut batch, BATCH) => count > 0,
                () = stop.cancelled() => false,
            };
            if !some {
                return;
            }
            fill_batch(&mut batch, BATCH, &mut spans, BATCH_WAIT, stop.cancelled()).await;
            let waiting = |spans: &mpsc::Receiver<FinishedSpan>| {
                instruments()
                    .telemetry_queue
                    .record(spans.len() as u64, &[KeyValue::new("signal", "traces")]);
            };
            waiting(&spans);
            let count = batch.len() as u64;
            let resource = process_resource();
            let body = export_messages::trace_request(resource, batch.drain(..)).encode_to_vec();
            self.until_sent(body.into(), count, &stop).await;
            waiting(&spans);
        }
    }

    async fn until_sent(&self, body: Bytes, count: u64, stop: &CancellationToken) {
        for wait in RETRY_SECONDS.into_iter().map(Some).chain([None]) {
            match (self.send(body.clone(), count).await, wait) {
                (ExportOutcome::Accepted | ExportOutcome::Rejected, _) => return,
                (ExportOutcome::Retry, Some(wait)) if !stop.is_cancelled() => tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(wait)) => {}
                    () = stop.cancelled() => {}
                },
                (ExportOutcome::Retry, _) => break,
            }
        }
        dropped(self.signal, "lost", count);
    }

    async fn series(self, interval: Duration, stop: CancellationToken) {
        let mut last = false;
        while !last {
            last = tokio::select! {
                () = tokio::time::sleep(interval) => false,
                // The last time too, so that the end's values are exported.
                () = stop.cancelled() => true,
            };
            let families = self.metrics.families();
            let count = families
                .iter()
                .map(|family| family.points.len() as u64)
                .sum();
            let (resource, now) = (process_resource(), SystemTime::now());
            let body = export_messages::metrics_request(resource, families, now).encode_to_vec();
            if self.send(body.into(), count).await == ExportOutcome::Retry {
                dropped(self.signal, "lost", count);
            }
        }
    }

    /// Sends one document, and counts the outcome.
    async fn send(&self, body: Bytes, count: u64) -> ExportOutcome {
        let framed = if self.form == PostEncoding::Grpc {
            framed(&body)
        } else {
            body
        };
        let (sent, result, why) = match self.post.post(self.form, framed, self.within).await {
            Ok(posted) => {
                let sent = outcome_of(self.form, &posted);
                let result = if sent == ExportOutcome::Accepted {
                    "ok"
                } else {
                    "refused"
                };
                if sent == ExportOutcome::Accepted {
                    let own = if self.form == PostEncoding::Grpc {
                        posted.body.get(5..)
                    } else {
                        Some(&posted.body[..])
                    };
                    dropped(
                        self.signal,
                        "refused",
                        (self.rejected)(own.unwrap_or_default()).min(count),
                    );
                }
                (
                    sent,
                    result,
                    format!("it answers {}{}", posted.status, GrpcCode(posted.code)),
                )
            }
            Err(failure) if failure.reason() == "timed_out" => {
                (ExportOutcome::Retry, "late", failure.cause())
            }
            Err(failure) => (ExportOutcome::Retry, "failed", failure.cause()),
        };
        if sent == ExportOutcome::Rejected {
            dropped(self.signal, "refused", count);
        }
        if sent != ExportOutcome::Accepted {
            tracing::warn!(signal = self.signal, why, "telemetry export failed");
        }
        let labels = [
            KeyValue::new("signal", self.signal),
            KeyValue::new("result", result),
        ];
        instruments().telemetry_exports.add(1, &labels);
        sent
    }
}

/// Returns the outcome of a response (OTLP specification, failures): of HTTP by its status, of gRPC
/// by its code. A successful HTTP status without a gRPC code is a refusal.
fn outcome_of(form: PostEncoding, posted: &PostResponse) -> ExportOutcome {
    match (posted.status, posted.code) {
        (200..=299, None) if form == PostEncoding::Grpc => ExportOutcome::Rejected,
        (200..=299, None | Some(0)) => ExportOutcome::Accepted,
        (200, Some(1 | 4 | 8 | 10 | 11 | 14 | 15)) => ExportOutcome::Retry,
        _ if posted.is_to_retry() => ExportOutcome::Retry,
        _ => ExportOutcome::Rejected,
    }
}

/// Frames a gRPC message: not compressed, the length, the message.
fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 5);
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
    out.freeze()
}

/// A gRPC status code, for people.
struct GrpcCode(Option<u16>);

impl std::fmt::Display for GrpcCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |code| write!(f, ", gRPC {code}"))
    }
}

fn dropped(signal: &'static str, reason: &'static str, count: u64) {
    if count > 0 {
        let labels = [
            KeyValue::new("signal", signal),
            KeyValue::new("reason", reason),
        ];
        instruments().telemetry_dropped.add(count, &labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_as_the_protocol_says() {
        let of = |form, status, code: Option<u16>| {
            outcome_of(
                form,
                &PostResponse {
                    status,
                    code,
                    body: Bytes::new(),
                },
            )
        };
        let posted = |status, code: Option<u16>| {
            of(
                if code.is_some() {
                    PostEncoding::Grpc
                } else {
                    PostEncoding::Protobuf
                },
                status,
                code,
            )
        };
        assert_eq!(
            (posted(200, None), posted(200, Some(0))),
            (ExportOutcome::Accepted, ExportOutcome::Accepted)
        );
        for later in [
            posted(429, None),
            posted(503, None),
            posted(200, Some(14)),
            posted(200, Some(8)),
        ] {
            assert_eq!(later, ExportOutcome::Retry);
        }
        for never in [
            posted(400, None),
            posted(404, Some(12)),
            posted(200, Some(12)),
            posted(301, None),
        ] {
            assert_eq!(never, ExportOutcome::Rejected);
        }
        assert_eq!(
            (
                of(PostEncoding::Grpc, 200, None),
                of(PostEncoding::Grpc, 503, None)
            ),
            (ExportOutcome::Rejected, ExportOutcome::Retry),
            "a proxy, not it"
        );
        assert_eq!(framed(b"ab"), &b"\0\0\0\0\x02ab"[..]);
    }
}

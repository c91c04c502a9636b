//! The export of records to an OpenTelemetry collector: OTLP over HTTP in its JSON encoding, a
//! batch a request.
//!
//! The body of a log record is the line of the file, so that the chain can be verified from the
//! collector's copy. A collector that is slow or away costs memory up to a bound, and then records;
//! never a call.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::record::SealedRecord;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_core::port::{DocumentPoster, PostEncoding, fill_batch};
use weir_core::telemetry::process_resource;

use crate::audit_service::copy_backlog::{BACKLOG, dropped};

/// The most records of one request.
const BATCH: usize = 512;
/// The time that a batch waits for more records.
const BATCH_WAIT: Duration = Duration::from_millis(500);
/// The timeout of a request to the collector.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The same at the end of the process.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The seconds between two attempts; the last value repeats.
const RETRY_SECONDS: [u64; 5] = [1, 2, 4, 8, 16];
/// OTLP's severities INFO and WARN.
const SEVERITY: [(u8, &str); 2] = [(9, "INFO"), (13, "WARN")];

/// The channel to the task that sends.
#[derive(Clone, Debug)]
pub(super) struct AuditExporter(mpsc::Sender<Arc<SealedRecord>>);

impl AuditExporter {
    /// Returns an exporter, and the future that sends its records: spawn it as a task. It ends when
    /// the exporter is dropped, and soon after `stop`.
    pub(super) fn new(
        post: Arc<dyn DocumentPoster>,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        dropped("otlp", 0);
        let (sender, receiver) = mpsc::channel(BACKLOG);
        (Self(sender), send_all(receiver, post, stop))
    }

    /// Offers a record; without room in the queue it is counted and dropped.
    pub(super) fn offer(&self, sealed: Arc<SealedRecord>) {
        if self.0.try_send(sealed).is_err() {
            dropped("otlp", 1);
        }
    }
}

async fn send_all(
    mut receiver: mpsc::Receiver<Arc<SealedRecord>>,
    post: Arc<dyn DocumentPoster>,
    stop: CancellationToken,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while receiver.recv_many(&mut batch, BATCH).await > 0 {
        fill_batch(
            &mut batch,
            BATCH,
            &mut receiver,
            BATCH_WAIT,
            stop.cancelled(),
        )
        .await;
        let count = batch.len() as u64;
        let body = bytes::Bytes::from(document(&batch).to_string());
        batch.clear();
        if !send(&*post, body, count, &stop).await && stop.is_cancelled() {
            // At the end the collector is away, or refuses records: the remaining ones are only in
            // the file, if there is one.
            dropped("otlp", receiver.len() as u64);
            return;
        }
    }
}

/// Sends one batch until it is accepted, refused for good, or time is up.
async fn send(
    post: &dyn DocumentPoster,
    body: bytes::Bytes,
    count: u64,
    stop: &CancellationToken,
) -> bool {
    let mut waits = RETRY_SECONDS
        .into_iter()
        .chain(std::iter::repeat(RETRY_SECONDS[RETRY_SECONDS.len() - 1]));
    let mut has_warned = false;
    loop {
        let within = if stop.is_cancelled() {
            LAST_REQUEST_TIMEOUT
        } else {
            REQUEST_TIMEOUT
        };
        let why = match post.post(PostEncoding::Json, body.clone(), within).await {
            Ok(answer) if (200..300).contains(&answer.status) => {
                let refused = refused(&answer.body);
                if refused > 0 {
                    tracing::warn!(
                        records = refused,
                        "audit export partially rejected by the collector"
                    );
                    dropped("otlp", refused);
                }
                return true;
            }
            Ok(answer) if !answer.is_to_retry() => {
                tracing::error!(
                    status = answer.status,
                    records = count,
                    "audit export rejected by the collector"
                );
                dropped("otlp", count);
                return false;
            }
            Ok(answer) => format!("it answers {}", answer.status),
            Err(failure) => failure.cause(),
        };
        if !std::mem::replace(&mut has_warned, true) {
            tracing::warn!(why, "audit export failed, retrying");
        }
        if stop.is_cancelled() {
            dropped("otlp", count);
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(waits.next().unwrap_or_default())) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Returns the number of records that the collector rejected in an accepted batch.
fn refused(body: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let rejected = &answer["partialSuccess"]["rejectedLogRecords"];
    rejected
        .as_u64()
        .or_else(|| rejected.as_str()?.parse().ok())
        .unwrap_or(0)
}

/// Returns an `ExportLogsServiceRequest` (opentelemetry-proto, logs/v1) in its JSON encoding.
fn document(batch: &[Arc<SealedRecord>]) -> Value {
    let resource: Vec<Value> = process_resource()
        .iter()
        .map(|(name, value)| text(name, value))
        .collect();
    let records: Vec<Value> = batch.iter().map(|sealed| record(sealed)).collect();
    json!({ "resourceLogs": [{
        "resource": { "attributes": resource },
        "scopeLogs": [{ "scope": { "name": "weir.audit" }, "logRecords": records }],
    }] })
}

fn record(sealed: &SealedRecord) -> Value {
    let nanos = sealed
        .time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos()
        .to_string();
    let (number, severity) = SEVERITY[usize::from(sealed.trouble)];
    let mut record = json!({
        "timeUnixNano": nanos,
        "observedTimeUnixNano": nanos,
        "severityNumber": number,
        "severityText": severity,
        "body": { "stringValue": sealed.line.trim_end_matches('\n') },
        "attributes": [
            text("weir.audit.kind", sealed.kind),
            json!({ "key": "weir.audit.seq", "value": { "intValue": sealed.seq.to_string() } }),
        ],
    });
    if let Some(trace) = &sealed.trace {
        record["traceId"] = json!(trace);
    }
    record
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[cfg(test)]
mod tests;

//! The requests to a collector, and the fate of records without one.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::record::{AuditChain, AuditEvent, AuditLifecycle, ChainHead};
use bytes::Bytes;
use weir_core::port::{BoxFuture, PostResponse};
use weir_core::telemetry::set_process_resource;
use weir_core::{Failure, FailureKind};

use super::*;

/// A collector that answers as scripted, then with 200.
#[derive(Default)]
struct FakeCollector {
    answers: Mutex<VecDeque<Result<(u16, &'static str), ()>>>,
    got: Mutex<Vec<Value>>,
}

impl DocumentPoster for FakeCollector {
    fn post(
        &self,
        _form: PostEncoding,
        json: Bytes,
        _within: Duration,
    ) -> BoxFuture<'_, Result<PostResponse, Failure>> {
        self.got.lock().push(serde_json::from_slice(&json).unwrap());
        let answer = self.answers.lock().pop_front().unwrap_or(Ok((200, "{}")));
        let answer = answer.map(|(status, body)| PostResponse {
            status,
            code: None,
            body: body.into(),
        });
        Box::pin(async { answer.map_err(|()| Failure::new(FailureKind::Unavailable, "away")) })
    }
}

fn collector(answers: &[Result<(u16, &'static str), ()>]) -> Arc<FakeCollector> {
    Arc::new(FakeCollector {
        answers: Mutex::new(answers.iter().copied().collect()),
        got: Mutex::default(),
    })
}

fn records(count: usize) -> Vec<Arc<SealedRecord>> {
    let mut chain = AuditChain::after(ChainHead::genesis(), None);
    let time = UNIX_EPOCH + Duration::from_millis(1_785_542_400_123);
    (0..count)
        .map(|n| {
            Arc::new(chain.seal(&AuditEvent::life(
                time,
                AuditLifecycle::Lost { events: n as u64 },
            )))
        })
        .collect()
}

fn lines(got: &[Value]) -> Vec<String> {
    let batches = got.iter().flat_map(|document| {
        document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
            .as_array()
            .unwrap()
    });
    batches
        .map(|record| record["body"]["stringValue"].as_str().unwrap().to_owned())
        .collect()
}

// Proves F18.
#[tokio::test(start_paused = true)]
async fn a_collector_gets_the_lines_of_the_chain_in_batches() {
    let collector = collector(&[]);
    let (exporter, work) = AuditExporter::new(collector.clone(), CancellationToken::new());
    let records = records(1000);
    records
        .iter()
        .for_each(|sealed| exporter.offer(sealed.clone()));
    drop(exporter);
    work.await;
    let got = collector.got.lock();
    assert_eq!(got.len(), 2);
    assert_eq!(
        lines(&got),
        records
            .iter()
            .map(|sealed| sealed.line.trim_end().to_owned())
            .collect::<Vec<_>>()
    );
    let record = &got[0]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(record["timeUnixNano"], "1785542400123000000");
    assert_eq!(
        (&record["severityNumber"], &record["severityText"]),
        (&13.into(), &"WARN".into())
    );
    assert_eq!(record["attributes"][1]["value"]["intValue"], "1");
    assert!(record.get("traceId").is_none());
}

#[tokio::test(start_paused = true)]
async fn records_have_the_resource_of_the_process() {
    let own = [("service.name", "tools"), ("service.instance.id", "weir-7")];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    set_process_resource(own.into());
    let collector = collector(&[]);
    let (exporter, work) = AuditExporter::new(collector.clone(), CancellationToken::new());
    exporter.offer(records(1)[0].clone());
    drop(exporter);
    work.await;
    let got = collector.got.lock();
    let expected = json!([
        { "key": "service.name", "value": { "stringValue": "tools" } },
        { "key": "service.instance.id", "value": { "stringValue": "weir-7" } },
    ]);
    assert_eq!(
        got[0]["resourceLogs"][0]["resource"]["attributes"],
        expected
    );
}

// Proves F13.
#[tokio::test(start_paused = true)]
async fn a_batch_is_sent_again_until_the_collector_has_it_or_refuses_it() {
    let collector = collector(&[
        Err(()),
        Ok((503, "")),
        Ok((429, "")),
        Ok((200, "{}")),
        Ok((400, "")),
        Ok((200, "{}")),
    ]);
    let (exporter, work) = AuditExporter::new(collector.clone(), CancellationToken::new());
    let records = records(3 * BATCH);
    records
        .iter()
        .for_each(|sealed| exporter.offer(sealed.clone()));
    drop(exporter);
    work.await;
    let got = collector.got.lock();
    assert_eq!(got.len(), 6);
    assert_eq!(
        got[..4]
            .iter()
            .map(|batch| lines(std::slice::from_ref(batch)))
            .collect::<Vec<_>>()
            .windows(2)
            .filter(|pair| pair[0] != pair[1])
            .count(),
        0
    );
    assert_ne!(
        got[4], got[5],
        "a batch that is refused for good is given up"
    );
}

// Proves F13.
#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_holds_up_nothing() {
    let away = collector(&[Err(()); 64]);
    let stop = CancellationToken::new();
    let (exporter, work) = AuditExporter::new(away.clone(), stop.clone());
    let task = tokio::spawn(work);
    let records = records(2 * BACKLOG);
    records
        .iter()
        .for_each(|sealed| exporter.offer(sealed.clone()));
    while away.got.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    task.await.unwrap();
    assert!(away.got.lock().len() <= 3, "it does not try on at the end");
}

#[test]
fn rejected_records_are_counted() {
    assert_eq!(
        refused(br#"{"partialSuccess":{"rejectedLogRecords":"3"}}"#),
        3
    );
    assert_eq!(
        refused(br#"{"partialSuccess":{"rejectedLogRecords":2}}"#),
        2
    );
    for none in ["", "{}", "[]", r#"{"partialSuccess":{}}"#, "\x08\x01"] {
        assert_eq!(refused(none.as_bytes()), 0);
    }
}

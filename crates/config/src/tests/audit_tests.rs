//! `audit:` and its settings.

use std::time::Duration;

use weir_audit::{ArgumentPointer, ArgumentRecording, AuditKey};

use super::*;

#[test]
fn audit_is_off_by_default_and_has_defaults() {
    assert_eq!(
        good("upstreams: { a: { url: http://127.0.0.1:1/mcp } }").audit,
        None
    );
    let folder = TestFolder::new("audit");
    let plan = good(&format!(
        "audit: {{ file: {{ path: {}/audit.jsonl }} }}",
        folder.path().display()
    ))
    .audit
    .unwrap();
    let file = plan.file.unwrap();
    assert_eq!((file.size, file.keep, file.keep_for), (64 << 20, 32, None));
    assert_eq!(
        (plan.stdout, plan.otlp, plan.closed, plan.key),
        (false, None, false, None)
    );
    assert_eq!(
        (plan.sync, plan.queue, plan.shape),
        (
            Duration::from_millis(100),
            16_384,
            ArgumentRecording::default()
        )
    );
}

#[test]
fn every_audit_key_is_applied() {
    let plan = good(
        "audit:
  file: { path: audit.jsonl, rotate: { size: 1MiB, keep: 5, keep_for: 90d } }
  stdout: true
  otlp: { url: 'http://127.0.0.1:4318', headers: { Authorization: 'Bearer ${TOKEN}' } }
  on_failure: closed
  sync: 20ms
  queue: 64
  arguments: none
  show: [/path, '/list/*/id']
  key: { id: 3, secret: '${WEIR_KEY}' }",
    );
    let plan = plan.audit.unwrap();
    let file = plan.file.as_ref().unwrap();
    assert!(file.path.ends_with("audit.jsonl"));
    assert_eq!(
        (file.size, file.keep, file.keep_for),
        (1 << 20, 5, Some(Duration::from_secs(90 * 86_400)))
    );
    let otlp = plan.otlp.as_ref().unwrap();
    assert_eq!(
        (otlp.url.to_string().as_str(), otlp.headers.len()),
        ("http://127.0.0.1:4318/v1/logs", 1)
    );
    assert_eq!(
        (plan.stdout, plan.closed, plan.sync, plan.queue),
        (true, true, Duration::from_millis(20), 64)
    );
    let show = ["/path", "/list/*/id"]
        .map(|text| ArgumentPointer::parse(text).unwrap())
        .to_vec();
    assert_eq!(
        plan.shape,
        ArgumentRecording {
            digest: false,
            show
        }
    );
    assert_eq!(plan.key.as_ref().map(AuditKey::id), Some(3));
    let printed = format!("{plan:?}");
    assert!(
        !printed.contains("canary") && !printed.contains("0, 1, 2"),
        "f15: {printed}"
    );
}

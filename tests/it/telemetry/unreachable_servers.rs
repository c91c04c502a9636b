//! Servers of documents that weir cannot reach: collectors and issuers. The log has the reason.

use serde_json::{Value, json};
use weir_testkit::ClosedPort;

use crate::harness::{Weir, wait_until};

#[test]
fn log_has_the_reason_why_a_collector_or_an_issuer_is_not_reached() {
    let nowhere = ClosedPort::new();
    let url = format!("http://127.0.0.1:{}", nowhere.address().port());
    let weir = Weir::start_unready(json!({
        "auth": { "mode": "oauth", "issuers": [{ "issuer": url, "audience": ["weir"] }] },
        "audit": { "otlp": { "url": url } },
        "log": { "format": "json" },
        "telemetry": { "otlp": { "endpoint": url, "interval": "200ms" } },
        "upstreams": {},
    }));
    for message in [
        "telemetry export failed",
        "audit export failed, retrying",
        "jwks fetch failed, no cached keys, rejecting tokens",
    ] {
        let line = wait_until(message, || {
            let said = weir.process.output();
            let mut lines = said
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["message"] == message)
        });
        let why = line["why"].as_str().unwrap_or_default();
        assert!(
            why.contains(&url) && why.contains("Connection refused"),
            "{line}"
        );
    }
}

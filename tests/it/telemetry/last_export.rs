//! The identity of a process in its exports, and the last export at its end.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_wire::Revision;

use super::collectors::{TypedCollector, attribute};
use super::otlp_push::weir_telling;
use crate::harness::{CheckedClient, Weir, peers_are_enabled};

/// Checks the last export of a weir that lived for less than one interval.
fn last_export(collector: &TypedCollector) {
    let done = |point: &Value| attribute(point, "outcome").as_deref() == Some("complete");
    let calls = collector.points("mcp.client.operation.duration", "histogram", done);
    let call = calls
        .iter()
        .find(|point| attribute(point, "gen_ai.tool.name").as_deref() == Some("tool_0000"))
        .unwrap_or_else(|| panic!("{calls:?}"));
    assert_eq!(
        (attribute(call, "upstream").as_deref(), &call["count"]),
        (Some("one"), &json!("1"))
    );
    let up = collector.points("weir.upstream.up", "gauge", |_| true);
    assert_eq!(attribute(&up[0], "upstream").as_deref(), Some("one"));
    let sent = collector.points("weir.upstream.io", "sum", |_| true);
    assert_eq!(attribute(&sent[0], "upstream").as_deref(), Some("one"));
}

/// Returns the ids of the instances that all requests of a signal named.
fn instances(collector: &TypedCollector, signal: &str) -> BTreeSet<String> {
    let part = if signal == "traces" {
        "resourceSpans"
    } else {
        "resourceMetrics"
    };
    let requests = collector.requests(signal);
    let ids = requests.iter().map(|request| {
        let resource = &request["message"][part][0]["resource"];
        attribute(resource, "service.instance.id").unwrap_or_else(|| panic!("{resource}"))
    });
    ids.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_export_has_the_calls_and_names_the_instance() {
    if !peers_are_enabled() {
        return;
    }
    let upstream = MockServer::modern().tools(1).start().await;
    let collector = TypedCollector::start(&[]);
    let mut ids = BTreeSet::new();
    for processes in 1..=2 {
        let otlp = json!({ "endpoint": collector.url("http"), "interval": "1h" });
        let telemetry = json!({ "traces": { "sample": 1.0 }, "otlp": otlp });
        let mut weir = weir_telling(&upstream, telemetry);
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        client.call("one__tool_0000", json!({})).await;
        weir.process.stop_gracefully();
        last_export(&collector);
        ids = instances(&collector, "metrics");
        assert_eq!(ids.len(), processes, "each process has its own: {ids:?}");
    }
    assert_eq!(ids, instances(&collector, "traces"));
}

#[test]
fn environment_names_the_service_and_the_instance() {
    let config = json!({ "upstreams": {} });
    let attributes = "service.name=tools,service.instance.id=weir-7,team=red";
    let variable = format!("OTEL_RESOURCE_ATTRIBUTES={attributes}");
    let weir = Weir::start_with_wrapper(&["env", &variable], config);
    let text = weir.get_admin_page("/metrics");
    let info = text
        .lines()
        .find(|line| line.starts_with("target_info{"))
        .unwrap();
    for label in [
        r#"service_name="tools""#,
        r#"service_instance_id="weir-7""#,
        r#"team="red""#,
    ] {
        assert!(info.contains(label), "{label}: {info}");
    }
}

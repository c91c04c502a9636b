//! Spans and metrics at a collector, and the behaviour without one.

use serde_json::{Value, json};
use weir_testkit::mock_server::{MockTool, RecordedRequest};
use weir_testkit::{ClosedPort, MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use super::collectors::{RawCollector, TypedCollector, attribute};
use crate::harness::{CheckedClient, Weir, peers_are_enabled, wait_until, wait_until_async};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Returns an id in the JSON form of the official types.
fn base64(hex: &str) -> String {
    data_encoding::BASE64.encode(&data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap())
}

pub(super) fn weir_telling(upstream: &MockServer, telemetry: Value) -> Weir {
    let mut config = json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "log": { "format": "json" },
    });
    config["telemetry"] = telemetry;
    let weir = Weir::with_log_filter(config, "debug");
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    weir
}

fn of_kind<'a>(spans: &'a [Value], kind: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["kind"] == kind).collect()
}

/// Returns the trace and the span that an upstream got: the same by header and in `_meta`.
fn upstream_trace(seen: &RecordedRequest) -> (String, String) {
    let parent = seen.meta()["traceparent"].as_str().unwrap().to_owned();
    assert_eq!(seen.header("traceparent"), Some(parent.as_str()));
    let parts: Vec<&str> = parent.split('-').collect();
    assert_eq!(parts[3], "01", "weir tells of it");
    (parts[1].to_owned(), parts[2].to_owned())
}

// Proves R139.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_leads_from_the_client_to_the_upstream_over_grpc_and_over_http() {
    if !peers_are_enabled() {
        return;
    }
    for protocol in ["grpc", "http"] {
        let collector = TypedCollector::start(&[]);
        let upstream = MockServer::modern()
            .tools(1)
            .tool("fails", MockBehaviour::error(4242, "sold out", json!({})))
            .with(MockTool::new("strict").with(
                "inputSchema",
                json!({ "type": "object", "required": ["n"] }),
            ))
            .start()
            .await;
        let otlp = json!({ "endpoint": collector.url(protocol), "protocol": protocol, "interval": "500ms",
            "headers": { "x-collector-key": "open" } });
        let weir = weir_telling(
            &upstream,
            json!({ "traces": { "sample": 1.0 }, "otlp": otlp }),
        );
        for revision in [Revision::MODERN, Revision::NEWEST_LEGACY] {
            one_trace(&weir, &collector, &upstream, revision).await;
        }
        failures(&weir, &collector).await;
        metrics(&collector, protocol);
        let mut weir = weir;
        weir.process.stop_gracefully();
    }
}

/// Checks a call whose client has a trace: weir adds two spans to it, and the ids at the upstream
/// and in the log agree.
async fn one_trace(
    weir: &Weir,
    collector: &TypedCollector,
    upstream: &MockServer,
    revision: Revision,
) {
    let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
    let parent = format!("00-{TRACE}-{SPAN}-00");
    let params =
        json!({ "name": "one__tool_0000", "arguments": {}, "_meta": { "traceparent": parent } });
    let before = collector.spans().len();
    assert!(client.ask("tools/call", params).await.result().is_object());
    let (trace, span) = upstream_trace(&upstream.requests_of("tools/call").pop().unwrap());
    assert_eq!(trace, TRACE);
    let spans = wait_until("the spans of the call", || {
        let spans = collector.spans()[before..].to_vec();
        let own: Vec<Value> = spans
            .into_iter()
            .filter(|span| span["traceId"] == base64(TRACE))
            .collect();
        (own.len() == 2).then_some(own)
    });
    let (server, asked) = (
        of_kind(&spans, "SPAN_KIND_SERVER")[0],
        of_kind(&spans, "SPAN_KIND_CLIENT")[0],
    );
    assert_eq!(
        (&server["parentSpanId"], &asked["parentSpanId"]),
        (&json!(base64(SPAN)), &server["spanId"])
    );
    assert_eq!(
        asked["spanId"],
        base64(&span),
        "what the upstream was told of"
    );
    assert_eq!(
        (&server["name"], &asked["name"]),
        (
            &json!("tools/call one__tool_0000"),
            &json!("tools/call tool_0000")
        )
    );
    for (span, name, expected) in [
        (server, "mcp.method.name", "tools/call"),
        (server, "gen_ai.tool.name", "one__tool_0000"),
        (server, "gen_ai.operation.name", "execute_tool"),
        (server, "weir.endpoint", "/mcp"),
        (server, "http.response.status_code", "200"),
        (server, "network.transport", "tcp"),
        (asked, "mcp.method.name", "tools/call"),
        (asked, "gen_ai.tool.name", "tool_0000"),
        (asked, "weir.upstream", "one"),
        (asked, "weir.outcome", "complete"),
    ] {
        assert_eq!(
            attribute(span, name).as_deref(),
            Some(expected),
            "{name} of {span}"
        );
    }
    let version = attribute(server, "mcp.protocol.version");
    assert_eq!(
        version.as_deref(),
        revision.is_modern().then_some("2026-07-28")
    );
    wait_until(
        "the line of the request in the log, by its trace and span",
        || {
            let said = weir.process.output();
            let mut lines = said
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let is_own = |span: &Value| {
                span["trace_id"] == TRACE && hex_is(&server["spanId"], &span["span_id"])
            };
            lines.find(|line| line["message"] == "request completed" && is_own(&line["span"]))
        },
    );
}

/// Reports if an id of the official types' JSON form is this one in hexadecimal digits.
fn hex_is(id: &Value, hex: &Value) -> bool {
    hex.as_str().is_some_and(|hex| *id == base64(hex))
}

/// Checks that a failed call is marked as one, and that an unknown name is not exported.
async fn failures(weir: &Weir, collector: &TypedCollector) {
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    client.call("one__fails", json!({})).await;
    client.call("one__strict", json!({})).await;
    client.call("nothing-has-this-name", json!({})).await;
    let failed = wait_until("the spans of what failed", || {
        let spans = collector.spans();
        let failed: Vec<Value> = spans
            .into_iter()
            .filter(|span| span["status"]["code"] == "STATUS_CODE_ERROR")
            .collect();
        (failed.len() >= 4).then_some(failed)
    });
    let names: Vec<&str> = failed
        .iter()
        .map(|span| span["name"].as_str().unwrap())
        .collect();
    for name in [
        "tools/call one__fails",
        "tools/call fails",
        "tools/call one__strict",
        "tools/call",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert!(
        !names.contains(&"tools/call strict"),
        "a call that was not sent: {names:?}"
    );
    assert!(
        failed
            .iter()
            .all(|span| attribute(span, "error.type").is_some())
    );
}

/// Checks the metrics, with the traces of the slowest among them.
fn metrics(collector: &TypedCollector, protocol: &str) {
    let ok = |point: &Value| {
        attribute(point, "outcome").as_deref() == Some("ok") && point["exemplars"].is_array()
    };
    let points = collector.points("mcp.server.operation.duration", "histogram", ok);
    let point = points
        .iter()
        .find(|p| attribute(p, "mcp.method.name").as_deref() == Some("tools/call"))
        .unwrap();
    assert_eq!(point["exemplars"][0]["traceId"], base64(TRACE));
    let buckets: u64 = point["bucketCounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(point["count"], buckets.to_string());
    let up = collector.points("weir.upstream.up", "gauge", |_| true);
    assert_eq!(
        (attribute(&up[0], "upstream").as_deref(), &up[0]["asInt"]),
        (Some("one"), &json!("1"))
    );
    let sent = collector.points("weir.upstream.io", "sum", |_| true);
    assert!(
        sent.iter()
            .all(|point| point["asInt"].as_str().unwrap() != "0"),
        "{sent:?}"
    );
    for signal in ["traces", "metrics"] {
        let request = collector.requests(signal).pop().unwrap();
        assert_eq!(
            (
                &request["transport"],
                &request["headers"]["x-collector-key"]
            ),
            (&json!(protocol), &json!("open"))
        );
    }
    let resource =
        &collector.requests("traces").pop().unwrap()["message"]["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name").as_deref(), Some("weir"));
}

/// Asserts that a walk is a span, with a span for each page below it.
fn walk_has_spans_of_its_own(collector: &TypedCollector) {
    let walk = wait_until("the walk", || {
        let spans = collector.spans();
        let walk = of_kind(&spans, "SPAN_KIND_INTERNAL")
            .first()
            .copied()?
            .clone();
        let own = |span: &&Value| {
            span["traceId"] == walk["traceId"] && span["parentSpanId"] == walk["spanId"]
        };
        let pages: Vec<Value> = spans.iter().filter(own).cloned().collect();
        Some((walk, pages))
    });
    let (walk, pages) = walk;
    assert_eq!(
        (
            &walk["name"],
            walk["parentSpanId"].as_str().unwrap_or_default()
        ),
        (&json!("catalog walk"), "")
    );
    assert_eq!(attribute(&walk, "weir.upstream").as_deref(), Some("one"));
    assert_eq!(
        attribute(&walk, "weir.outcome").as_deref(),
        Some("complete")
    );
    let listed = pages
        .iter()
        .find(|page| page["name"] == "tools/list")
        .unwrap();
    assert_eq!(
        (
            &listed["kind"],
            attribute(listed, "weir.upstream").as_deref()
        ),
        (&json!("SPAN_KIND_CLIENT"), Some("one"))
    );
}

// Proves R139.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_batch_request_and_each_list_walk_has_its_own_span() {
    if !peers_are_enabled() {
        return;
    }
    let collector = TypedCollector::start(&[]);
    let upstream = MockServer::modern()
        .tools(1)
        .tool("fails", MockBehaviour::error(4242, "sold out", json!({})))
        .start()
        .await;
    let otlp =
        json!({ "endpoint": collector.url("http"), "protocol": "http", "interval": "500ms" });
    let weir = weir_telling(
        &upstream,
        json!({ "traces": { "sample": 1.0 }, "otlp": otlp }),
    );

    walk_has_spans_of_its_own(&collector);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::V2025_03_26).await;
    let call = |id: u64, tool: &str| {
        let parent = format!("00-{TRACE}-{SPAN}-00");
        let params = json!({ "name": tool, "arguments": {}, "_meta": { "traceparent": parent } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let (headers, _) = client.raw().envelope("ping", Value::Null);
    let body = json!([
        call(71, "one__tool_0000"),
        call(72, "one__fails"),
        call(73, "nothing")
    ])
    .to_string();
    let answer = client
        .raw()
        .send(http::Method::POST, headers, body)
        .await
        .unwrap()
        .finish()
        .await
        .unwrap();
    assert_eq!(answer.messages.len(), 3, "{:?}", answer.body);
    let spans = wait_until("the spans of the batch", || {
        let own: Vec<Value> = collector
            .spans()
            .into_iter()
            .filter(|span| span["traceId"] == base64(TRACE))
            .collect();
        (own.len() == 5).then_some(own)
    });
    for (id, name, outcome, below) in [
        ("71", "tools/call one__tool_0000", "ok", Some("complete")),
        (
            "72",
            "tools/call one__fails",
            "protocol_error",
            Some("upstream_error"),
        ),
        ("73", "tools/call", "protocol_error", None),
    ] {
        let server = of_kind(&spans, "SPAN_KIND_SERVER").into_iter();
        let server =
            server.filter(|span| attribute(span, "jsonrpc.request.id").as_deref() == Some(id));
        let [server] = server.collect::<Vec<_>>()[..] else {
            panic!("{id}: {spans:#?}")
        };
        assert_eq!(
            (&server["name"], &server["parentSpanId"]),
            (&json!(name), &json!(base64(SPAN)))
        );
        assert_eq!(attribute(server, "weir.outcome").as_deref(), Some(outcome));
        let asked = of_kind(&spans, "SPAN_KIND_CLIENT")
            .into_iter()
            .find(|span| span["parentSpanId"] == server["spanId"]);
        assert_eq!(
            asked
                .and_then(|span| attribute(span, "weir.outcome"))
                .as_deref(),
            below,
            "{id}"
        );
    }
}

// Proves F17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_cannot_force_sampling_unless_configured() {
    let collector = RawCollector::start();
    let upstream = MockServer::modern().tools(1).start().await;
    let forced = format!("00-{TRACE}-{SPAN}-01");
    for (by_clients, flag) in [(false, "00"), (true, "01")] {
        let traces = json!({ "sample": 0.0, "by_clients": by_clients });
        let otlp = json!({ "endpoint": collector.url(), "interval": "1h" });
        let weir = weir_telling(&upstream, json!({ "traces": traces, "otlp": otlp }));
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN)
            .await
            .with_header("traceparent", &forced);
        client.call("one__tool_0000", json!({})).await;
        let parent = upstream
            .requests_of("tools/call")
            .pop()
            .unwrap()
            .header("traceparent")
            .unwrap()
            .to_owned();
        assert!(
            parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with(flag),
            "{by_clients}: {parent}"
        );
        if by_clients {
            wait_until("the span", || {
                collector
                    .got()
                    .contains("tools/call one__tool_0000")
                    .then_some(())
            });
        }
        // An invalid trace, or an oversized one, is ignored.
        for bad in [
            "x".repeat(10_000),
            format!("{forced}-{}", "0".repeat(10_000)),
            format!("ff-{TRACE}-{SPAN}-01"),
        ] {
            let client = RawClient::new(&weir.url("/mcp"))
                .with_header("traceparent", &bad)
                .modern();
            let answer = client
                .ask(
                    "tools/call",
                    json!({ "name": "one__tool_0000", "arguments": {} }),
                )
                .await
                .unwrap();
            assert_eq!(answer.status, 200);
            assert_eq!(
                upstream
                    .requests_of("tools/call")
                    .pop()
                    .unwrap()
                    .header("traceparent"),
                None
            );
        }
        if !by_clients {
            // Pending spans are exported at the end.
            let mut weir = weir;
            weir.process.stop_gracefully();
            assert!(
                !collector.got().contains("tools/call one__tool_0000"),
                "a span was told of"
            );
        }
    }
}

// Proves F13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_or_hangs_costs_spans_and_no_call() {
    let upstream = MockServer::modern().tools(1).start().await;
    let silent = RawCollector::silent();
    let closed = ClosedPort::new();
    let away = format!("http://{}", closed.address());
    for (endpoint, protocol, result) in [
        (silent.url(), "http", "late"),
        (silent.url(), "grpc", "late"),
        (away.as_str(), "http", "failed"),
        (away.as_str(), "grpc", "failed"),
    ] {
        let otlp = json!({ "endpoint": endpoint, "protocol": protocol, "interval": "300ms", "timeout": "300ms" });
        let weir = weir_telling(
            &upstream,
            json!({ "traces": { "sample": 1.0 }, "otlp": otlp }),
        );
        let client = RawClient::new(&weir.url("/mcp")).modern();
        let call = async || {
            let answer = client
                .ask(
                    "tools/call",
                    json!({ "name": "one__tool_0000", "arguments": {} }),
                )
                .await
                .unwrap();
            assert_eq!(answer.status, 200);
        };
        // More spans than the queue holds.
        for _ in 0..1500 {
            call().await;
        }
        let ok = weir.metric(
            "mcp_server_operation_duration_seconds_count",
            &["tools/call", "outcome=\"ok\""],
        );
        assert!((1500.0..1501.0).contains(&ok), "{ok}");
        let result = format!("result=\"{result}\"");
        for signal in ["signal=\"traces\"", "signal=\"metrics\""] {
            wait_until("an attempt", || {
                (weir.metric("weir_telemetry_exports_total", &[signal, &result]) > 0.0)
                    .then_some(())
            });
        }
        // On a slow machine the exporter gave up some batches meanwhile, and the queue is not full yet.
        wait_until_async("what finds no room", async || {
            for _ in 0..50 {
                call().await;
            }
            (weir.metric(
                "weir_telemetry_dropped_total",
                &["signal=\"traces\"", "reason=\"queue\""],
            ) > 0.0)
                .then_some(())
        })
        .await;
        let mut weir = weir;
        weir.process.signal("TERM");
        assert_eq!(
            weir.process.wait_for_exit(),
            Some(0),
            "{endpoint} {protocol}: it does not hold the end either"
        );
    }
}

// Proves F13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_or_refusing_otlp_collector_is_counted_and_delays_no_call() {
    if !peers_are_enabled() {
        return;
    }
    let upstream = MockServer::modern().tools(1).start().await;
    let (stopped, refusing) = (
        TypedCollector::start(&[]),
        TypedCollector::start(&["--refuse"]),
    );
    for protocol in ["grpc", "http"] {
        let otlp = |collector: &TypedCollector| {
            json!({ "traces": { "sample": 1.0 }, "otlp":
            { "endpoint": collector.url(protocol), "protocol": protocol, "interval": "300ms", "timeout": "500ms" } })
        };
        let weir = weir_telling(&upstream, otlp(&stopped));
        let client = RawClient::new(&weir.url("/mcp")).modern();
        let call = async || {
            let answer = client
                .ask(
                    "tools/call",
                    json!({ "name": "one__tool_0000", "arguments": {} }),
                )
                .await
                .unwrap();
            assert_eq!(answer.status, 200);
        };
        call().await;
        wait_until("the first span", || {
            (!stopped.spans().is_empty()).then_some(())
        });
        stopped.process.signal("STOP");
        for _ in 0..100 {
            call().await;
        }
        wait_until("a late answer", || {
            (weir.metric("weir_telemetry_exports_total", &["late"]) > 0.0).then_some(())
        });
        let before = stopped.requests("metrics").len();
        stopped.process.signal("CONT");
        wait_until("it to go on", || {
            (stopped.requests("metrics").len() > before + 1).then_some(())
        });
        // Another collector by a reload: one that refuses.
        let config = json!({ "upstreams": { "one": { "url": upstream.url() } }, "telemetry": otlp(&refusing) });
        weir.rewrite_config(config);
        wait_until("a refusal", || {
            let refused = weir.metric(
                "weir_telemetry_dropped_total",
                &["signal=\"metrics\"", "reason=\"refused\""],
            );
            (refused > 0.0).then_some(())
        });
        call().await;
    }
}

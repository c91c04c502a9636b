//! `/metrics`, as Prometheus reads it.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;
use weir_testkit::{MockBehaviour, MockServer, RawClient};
use weir_wire::{LogLevel, Revision};

use super::RawCollector;
use crate::deploy::prometheus::Prometheus;
use crate::harness::{CheckedClient, Weir, wait_until, wait_until_async};

async fn page(weir: &Weir, accept: &str) -> (String, String) {
    let client = RawClient::new(&format!("{}/metrics", weir.admin_url()));
    let headers = [("accept", accept)]
        .into_iter()
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let answer = client
        .send(http::Method::GET, headers.collect(), "")
        .await
        .unwrap()
        .finish()
        .await
        .unwrap();
    let kind = answer
        .headers
        .get("content-type")
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    (kind, String::from_utf8(answer.body.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrape_names_traces_where_openmetrics_is_wanted_and_promtool_has_nothing_to_say() {
    let (collector, upstream) = (
        RawCollector::start(),
        MockServer::modern().tools(1).start().await,
    );
    let otlp = json!({ "endpoint": collector.url() });
    let weir = Weir::with_config(json!({ "upstreams": { "one": { "url": upstream.url() } },
        "telemetry": { "traces": { "sample": 1.0 }, "otlp": otlp } }));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    for revision in [Revision::MODERN, Revision::NEWEST_LEGACY] {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        client.call("one__tool_0000", json!({})).await;
        client.call("nothing", json!({})).await;
    }
    let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let (kind, open) = page(&weir, prometheus).await;
    assert_eq!(
        kind,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert!(open.ends_with("# EOF\n"));
    for name in [
        "mcp_server_operation_duration_seconds_bucket{",
        "mcp_client_operation_duration_seconds_bucket{",
    ] {
        let own = |line: &&str| {
            line.starts_with(name)
                && line.contains("tools/call")
                && line.contains(" # {trace_id=\"")
        };
        assert!(open.lines().any(|line| own(&line)), "{name}: {open}");
    }
    let (kind, plain) = page(&weir, "text/plain").await;
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    assert!(!plain.contains("trace_id") && !plain.contains("EOF"));
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("`promtool` of the package prometheus");
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(plain.as_bytes())
        .unwrap();
    let judged = promtool.wait_with_output().unwrap();
    let said = [judged.stdout, judged.stderr]
        .map(|said| String::from_utf8_lossy(&said).into_owned())
        .concat();
    assert!(judged.status.success() && said.is_empty(), "{said}");
}

// Proves F16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "for `cargo xtask prove`: what is printed is a time"]
async fn how_long_a_scrape_of_two_thousand_series_takes() {
    let upstream = MockServer::modern().tools(200).start().await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": upstream.url() } }));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let client = RawClient::new(&weir.url("/mcp")).modern();
    for number in 0..200 {
        let params = json!({ "name": format!("one__tool_{number:04}"), "arguments": {} });
        assert_eq!(client.ask("tools/call", params).await.unwrap().status, 200);
    }
    let mut times = Vec::new();
    let mut lines = 0;
    for _ in 0..100 {
        let began = std::time::Instant::now();
        let (_, text) = page(&weir, "application/openmetrics-text").await;
        times.push(began.elapsed());
        lines = text.lines().count();
    }
    times.sort();
    assert!(lines > 1000, "{lines}");
    println!(
        "f16: a scrape of {lines} lines: median {:?}, slowest {:?}",
        times[50], times[99]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_keeps_the_exemplars_of_a_scrape() {
    let (collector, upstream) = (
        RawCollector::start(),
        MockServer::modern().tools(1).start().await,
    );
    let weir = Weir::with_config(json!({ "upstreams": { "one": { "url": upstream.url() } },
        "telemetry": { "traces": { "sample": 1.0 }, "otlp": { "endpoint": collector.url() } } }));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let prometheus = Prometheus::over(&[weir.admin_url().trim_start_matches("http://").to_owned()]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let found = wait_until_async("an exemplar in Prometheus", async || {
        client.call("one__tool_0000", json!({})).await;
        let all = prometheus.exemplars("mcp_server_operation_duration_seconds_bucket");
        let mut all = all.as_array()?.iter();
        let own = all.find(|series| series["seriesLabels"]["mcp_method_name"] == "tools/call");
        own.map(|series| series["exemplars"][0].clone())
    })
    .await;
    assert_eq!(
        found["labels"]["trace_id"].as_str().map(str::len),
        Some(32),
        "{found}"
    );
    assert_eq!(
        found["labels"]["span_id"].as_str().map(str::len),
        Some(16),
        "{found}"
    );
}

// Proves R286.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deprecated_features_are_counted_and_methods_are_those_that_were_verified() {
    let upstream = MockServer::modern()
        .tool("asks", MockBehaviour::echo())
        .start()
        .await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": upstream.url() } }));
    weir.wait_until_listed("/mcp", &["one__asks"]);
    let used = |feature: &str| {
        weir.metric(
            "weir_deprecated_uses_total",
            &[&format!("feature=\"{feature}\"")],
        )
    };
    let modern = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    modern.call("one__asks", json!({})).await;
    assert_eq!((used("logging"), used("http_sse")), (0.0, 0.0));
    modern
        .with_log_level(LogLevel::Info)
        .await
        .call("one__asks", json!({}))
        .await;
    wait_until("the log level to be counted", || {
        (used("logging") == 1.0).then_some(())
    });
    let line = RawClient::new(&weir.url("/mcp/sse"));
    let headers = [(
        "accept".parse().unwrap(),
        "text/event-stream".parse().unwrap(),
    )]
    .into_iter()
    .collect();
    drop(line.send(http::Method::GET, headers, "").await.unwrap());
    wait_until("the stream to be counted", || {
        (used("http_sse") == 1.0).then_some(())
    });
    // A header that differs from the body is refused, and makes no series of its own.
    let lying = RawClient::new(&weir.url("/mcp"))
        .modern()
        .with_header("mcp-method", "made/up");
    lying.ask("tools/list", json!({})).await.unwrap();
    let text = weir.get_admin_page("/metrics");
    assert!(!text.contains("made/up"), "{text}");
}

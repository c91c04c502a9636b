//! The process's metrics. Instruments belong to the process and count from their first use, so
//! these tests have a binary of their own and take turns in it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use opentelemetry::KeyValue;
use parking_lot::{Mutex, MutexGuard};
use weir_core::telemetry::{ItemMeter, UpstreamMeter, instruments};
use weir_core::upstream::ListKind;
use weir_core::{CallOutcome, UpstreamId};
use weir_telemetry::Metrics;
use weir_wire::method::Method;

/// The most series of an instrument, besides the one for the rest.
const SERIES: usize = 1000;

static TURN: Mutex<()> = Mutex::new(());

/// Returns the metrics, for one test at a time, because the number of series is asserted.
fn metrics() -> (Metrics, MutexGuard<'static, ()>) {
    let turn = TURN.lock();
    (Metrics::install(true, &weir_system::SystemRandom), turn)
}

/// Returns the series of one metric.
fn series<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines()
        .filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ', '_']))
        })
        .collect()
}

#[test]
fn instruments_are_scraped_and_removed_upstreams_are_not() {
    let (metrics, _turn) = metrics();
    let a = UpstreamMeter::of(&UpstreamId::new("a").unwrap());
    let tool = ItemMeter::new(&a, ListKind::Tools, "order".to_owned());
    tool.record_call(
        Method::ToolsCall,
        CallOutcome::Failed("timed_out"),
        Duration::from_millis(150),
        None,
    );
    a.sent(12);
    instruments()
        .refusals
        .add(1, &[KeyValue::new("reason", "host")]);
    for upstream in ["a", "gone"] {
        instruments()
            .upstream_up
            .record(1, &[KeyValue::new("upstream", upstream)]);
    }
    let text = metrics.text();
    for line in [
        "weir_refusals_total{reason=\"host\"} 1",
        "mcp_client_operation_duration_seconds_bucket{upstream=\"a\",mcp_method_name=\"tools/call\",gen_ai_tool_name=\"order\",outcome=\"timed_out\",error_type=\"timed_out\",le=\"0.2\"} 1",
        "weir_upstream_io_bytes_total{network_io_direction=\"transmit\",upstream=\"a\"} 12",
        "weir_upstream_up{upstream=\"a\"} 1",
        "weir_build_info{version=",
        "process_start_time_seconds ",
        "target_info{",
    ] {
        assert!(
            text.lines().any(|own| own.starts_with(line)),
            "{line} in {text}"
        );
    }
    assert!(!text.contains("gone"), "{text}");
}

// Proves F16.
#[test]
fn instrument_series_are_capped_and_the_rest_overflow() {
    let (metrics, _turn) = metrics();
    for number in 0..100_000 {
        instruments()
            .connections_closed
            .add(1, &[KeyValue::new("reason", format!("made-up-{number}"))]);
    }
    let text = metrics.text();
    let own = series(&text, "weir_connections_closed_total");
    assert!(
        (SERIES / 2..=SERIES + 1).contains(&own.len()),
        "{}",
        own.len()
    );
    let rest = own
        .iter()
        .find(|line| line.contains("otel_metric_overflow"))
        .expect("the rest is counted together");
    let count = rest
        .rsplit(' ')
        .next()
        .and_then(|count| count.parse::<f64>().ok());
    assert!(count.is_some_and(|count| count > 90_000.0), "{rest}");
}

// Proves F16.
#[test]
fn a_million_names_are_two_thousand_series_and_less_than_a_mebibyte() {
    let (metrics, _turn) = metrics();
    let upstream = UpstreamMeter::of(&UpstreamId::new("liar").unwrap());
    let mut listed = Vec::new();
    for number in 0..1_000_000 {
        let name = format!("{number:0>64}");
        let tool = ItemMeter::new(&upstream, ListKind::Tools, name);
        tool.record_call(
            Method::ToolsCall,
            CallOutcome::Complete,
            Duration::from_millis(number % 1000),
            None,
        );
        if listed.len() < 1000 {
            listed.push(tool);
        }
    }
    let text = metrics.text();
    let own = series(&text, "mcp_client_operation_duration_seconds");
    assert!((500..=2000).contains(&own.len()), "{} series", own.len());
    assert!(own.iter().map(|line| line.len()).sum::<usize>() < 1 << 20);
    assert!(text.contains("gen_ai_tool_name=\"other\""));
}

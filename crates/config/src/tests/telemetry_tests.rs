//! `telemetry:` and the environment variables that replace it.

use std::time::Duration;

use weir_core::telemetry::DEFAULT_MAX_NAMES;
use weir_core::trace::SpanSampling;

use super::*;

const UPSTREAM: &str = "upstreams: { a: { url: http://127.0.0.1:1/mcp } }";

#[test]
fn telemetry_measures_without_export_by_default() {
    let plan = good(UPSTREAM).telemetry;
    assert_eq!(plan, weir_telemetry::TelemetryPlan::default());
    assert_eq!(
        (plan.measured, plan.names, plan.otlp),
        (true, DEFAULT_MAX_NAMES, None)
    );
}

#[test]
fn every_telemetry_key_is_applied() {
    let plan = good(
        "telemetry:
  metrics: { enabled: false, max_names: 5 }
  traces: { sample: 0.25, by_clients: true }
  otlp: { endpoint: 'http://127.0.0.1:4317/', protocol: grpc, headers: { Authorization: 'Bearer ${TOKEN}' }, interval: 5s, timeout: 1s }",
    )
    .telemetry;
    assert_eq!(
        (plan.measured, plan.names, plan.sampling),
        (
            false,
            5,
            SpanSampling {
                ratio: 0.25,
                by_clients: true
            }
        )
    );
    let otlp = plan.otlp.as_ref().unwrap();
    let traces = "http://127.0.0.1:4317/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    assert_eq!(
        (
            otlp.traces.url.to_string().as_str(),
            otlp.grpc,
            otlp.traces.h2c
        ),
        (traces, true, true)
    );
    assert_eq!(
        (otlp.interval, otlp.timeout),
        (Duration::from_secs(5), Duration::from_secs(1))
    );
    assert_eq!(
        (otlp.metrics.headers.len(), otlp.traces.headers.len()),
        (1, 1)
    );
    assert!(!format!("{plan:?}").contains("canary"), "f15");
    let plan = good("telemetry: { otlp: { endpoint: 'http://127.0.0.1:4318/tenant' } }").telemetry;
    let otlp = plan.otlp.unwrap();
    assert_eq!(otlp.metrics.url, "http://127.0.0.1:4318/tenant/v1/metrics");
    assert_eq!((otlp.grpc, otlp.interval), (false, Duration::from_secs(60)));
    let plan = good("telemetry: { otlp: { endpoint: 'http://127.0.0.1:4318/?key=canary' } }");
    let otlp = plan.telemetry.otlp.unwrap();
    assert_eq!(
        otlp.traces.url,
        "http://127.0.0.1:4318/v1/traces?key=canary"
    );
}

/// Loads a config with these environment variables.
fn load_with(text: &str, variables: &[(&str, &str)]) -> LoadOutcome {
    let find = |name: &str| {
        variables
            .iter()
            .find(|(own, _)| *own == name)
            .map(|(_, value)| (*value).to_owned())
    };
    let source = ConfigSource::Text {
        name: "weir.yaml".to_owned(),
        text: text.to_owned(),
    };
    ConfigLoader::new(source, &find).load()
}

#[test]
fn wrong_environment_variables_are_named() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
    let warned = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/canary"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,canary"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "canary"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_TRACES_SAMPLER", "canary"),
        ("OTEL_SDK_DISABLED", "canary"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1"),
    ];
    for wrong in warned {
        let outcome = load_with(UPSTREAM, &[endpoint, wrong]);
        let report = outcome.report.to_string();
        assert!(
            report.starts_with(&format!("environment: warning: {}: ", wrong.0)),
            "{report}"
        );
        assert!(
            !report.contains("canary") && !report.contains('\n'),
            "{report}"
        );
        assert!(outcome.config.unwrap().telemetry.otlp.is_some(), "{report}");
    }
    let argument = [
        endpoint,
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
    ];
    let report = load_with(UPSTREAM, &argument).report.to_string();
    assert!(
        report.starts_with("environment: warning: OTEL_TRACES_SAMPLER_ARG: "),
        "{report}"
    );
    for wrong in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "canary:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x canary=b"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/a.pem"),
    ] {
        let outcome = load_with(UPSTREAM, &[wrong, endpoint]);
        let report = outcome.report.to_string();
        assert!(
            report.starts_with(&format!("environment: error: {}: ", wrong.0)),
            "{report}"
        );
        assert!(outcome.config.is_none(), "{report}");
    }
    // The file's keys come first, so the variables are not used.
    let own = format!(
        "{UPSTREAM}\ntelemetry: {{ traces: {{ sample: 0.1 }}, otlp: {{ endpoint: 'http://127.0.0.1:9' }} }}"
    );
    let report = load_with(&own, &warned).report;
    assert_eq!(report.problems(), [], "{report}");
    // No key of the file replaces the resource.
    let resource = |value| load_with(&own, &[("OTEL_RESOURCE_ATTRIBUTES", value)]).report;
    assert_eq!(
        resource("team=one,canary").to_string(),
        "environment: warning: OTEL_RESOURCE_ATTRIBUTES: has an entry without `=`, which is ignored"
    );
    assert_eq!(resource("team=one,,region=two,").problems(), []);
}

#[test]
fn environment_variables_replace_absent_telemetry_keys() {
    let loaded = |text: &str, variables: &[(&str, &str)]| {
        load_with(text, variables).config.unwrap().telemetry
    };
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
    let all = [
        endpoint,
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc, x-other=d=e"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
    ];
    let plan = loaded(UPSTREAM, &all);
    let otlp = plan.otlp.unwrap();
    assert_eq!(
        (otlp.grpc, otlp.interval, plan.sampling.ratio),
        (true, Duration::from_millis(1500), 0.5)
    );
    let headers: Vec<_> = otlp
        .traces
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(headers, ["x-key", "x-other"]);
    let own = format!(
        "{UPSTREAM}\ntelemetry: {{ traces: {{ sample: 0.1 }}, otlp: {{ endpoint: 'http://127.0.0.1:9' }} }}"
    );
    let plan = loaded(&own, &all);
    assert_eq!(
        (plan.otlp.unwrap().grpc, plan.sampling.ratio),
        (false, 0.1),
        "the file goes before"
    );
    assert_eq!(
        loaded(UPSTREAM, &[endpoint, ("OTEL_SDK_DISABLED", "true")]).otlp,
        None
    );
}

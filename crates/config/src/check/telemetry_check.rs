//! `telemetry`: metrics, traces, and the collector that they are sent to.

use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::env::Environment;
use weir_config_file::raw::{RawPush, RawPushProtocol, RawTelemetry, RawUpstream, Time};
use weir_core::telemetry::DEFAULT_MAX_NAMES;
use weir_core::trace::SpanSampling;
use weir_telemetry::{OtlpPlan, TelemetryPlan};
use weir_upstream::HttpUpstreamSettings;

use crate::check::telemetry_variables::{self, TelemetryVariables};
use crate::check::upstreams_check;
use weir_config_file::http_url::http_url;

/// The default of `interval`, from the specification of the environment variables.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
/// The default of `timeout`, from the specification of the environment variables.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest `max_names`, for a scrape of readable size.
const MAX_NAMES: usize = 100_000;

/// The paths of metrics and traces at a collector.
const BY_HTTP: [&str; 2] = ["/v1/metrics", "/v1/traces"];
const BY_GRPC: [&str; 2] = [
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
];

pub(super) fn check(
    raw: Option<RawTelemetry>,
    folder: &std::path::Path,
    environment: Environment<'_>,
    report: &mut ConfigReport,
) -> TelemetryPlan {
    let at = ConfigPath::at("telemetry");
    let RawTelemetry {
        metrics,
        traces,
        otlp,
    } = raw.unwrap_or_default();
    let metrics = metrics.unwrap_or_default();
    let names = metrics.max_names.unwrap_or(DEFAULT_MAX_NAMES);
    if names > MAX_NAMES {
        report.add(ConfigProblem::error(
            at.key("metrics").key("max_names"),
            "must be at most 100000",
        ));
    }
    let traces = traces.unwrap_or_default();
    if traces
        .sample
        .is_some_and(|share| !(0.0..=1.0).contains(&share))
    {
        let problem = ConfigProblem::error(at.key("traces").key("sample"), "must be from 0 to 1");
        report.add(problem.hint("write 0.01 for one of a hundred requests"));
    }
    let fallback = TelemetryPlan::SAMPLING;
    let variables = TelemetryVariables(environment);
    let mut of_variables = ConfigReport::default();
    variables.check_resource(&mut of_variables);
    let ratio = traces
        .sample
        .or_else(|| variables.sampled_share(&mut of_variables))
        .unwrap_or(fallback.ratio);
    let sampling = SpanSampling {
        ratio,
        by_clients: traces.by_clients.unwrap_or(fallback.by_clients),
    };
    let otlp = match otlp {
        Some(raw) => push(raw, folder, &at.key("otlp"), report),
        None => variables.collector(&mut of_variables).and_then(|raw| {
            let mut found = ConfigReport::default();
            let plan = push(raw, folder, &ConfigPath::root(), &mut found);
            telemetry_variables::name_variables(&found, &mut of_variables);
            plan
        }),
    };
    of_variables.set_file(telemetry_variables::ENVIRONMENT, |_| 0);
    report.append(of_variables);
    TelemetryPlan {
        measured: metrics.enabled.unwrap_or(true),
        names,
        sampling,
        otlp,
    }
}

fn push(
    raw: RawPush,
    folder: &std::path::Path,
    at: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<OtlpPlan> {
    let RawPush {
        endpoint,
        protocol,
        headers,
        ca_file,
        interval,
        timeout,
    } = raw;
    for (key, time) in [("interval", interval), ("timeout", timeout)] {
        if time.is_some_and(|Time(time)| time.is_zero()) {
            report.add(ConfigProblem::error(at.key(key), "must not be zero"));
        }
    }
    if endpoint.is_none() {
        if !report.has_error_under(at) {
            report.add(
                ConfigProblem::error(at.key("endpoint"), "is missing")
                    .hint("write http://127.0.0.1:4318"),
            );
        }
        return None;
    }
    if let Some(Err(error)) = endpoint.as_deref().map(http_url) {
        let problem = ConfigProblem::error(at.key("endpoint"), error.to_string());
        report.add(problem.hint("write http://127.0.0.1:4318, and credentials in `headers`"));
        return None;
    }
    let grpc = matches!(protocol, Some(RawPushProtocol::Grpc));
    let place = RawUpstream {
        url: endpoint,
        headers,
        ca_file,
        ..RawUpstream::default()
    };
    let mut settings = upstreams_check::http(place, folder, at, report)?;
    // gRPC needs HTTP/2, which TLS negotiates by itself.
    settings.h2c = grpc && settings.url.scheme_str() == Some("http");
    let [metrics, traces] =
        if grpc { BY_GRPC } else { BY_HTTP }.map(|path| with_path_below(&settings, path));
    Some(OtlpPlan {
        metrics,
        traces,
        grpc,
        interval: interval.map_or(DEFAULT_INTERVAL, |Time(time)| time),
        timeout: timeout.map_or(DEFAULT_TIMEOUT, |Time(time)| time),
    })
}

/// Returns the settings with a path below their own. The query stays: collectors may take a key
/// there.
fn with_path_below(settings: &HttpUpstreamSettings, path: &str) -> HttpUpstreamSettings {
    let mut parts = settings.url.clone().into_parts();
    let query = settings.url.query().map(|query| format!("?{query}"));
    let full = format!(
        "{}{path}{}",
        settings.url.path().trim_end_matches('/'),
        query.unwrap_or_default()
    );
    parts.path_and_query = PathAndQuery::try_from(full).ok();
    let url = Uri::from_parts(parts).unwrap_or_else(|_| settings.url.clone());
    HttpUpstreamSettings {
        url,
        ..settings.clone()
    }
}

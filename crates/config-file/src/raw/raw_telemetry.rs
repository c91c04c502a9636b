//! `telemetry:` as written in the file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config_secret::ConfigSecret;
use crate::raw::OrderedMap;
use crate::raw::Time;

/// Metrics and traces, and the collector that they are sent to. Metrics are always at the
/// operators' listener, under `/metrics`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTelemetry {
    /// Metrics.
    pub metrics: Option<RawTelemetryMetrics>,
    /// Traces.
    pub traces: Option<RawTraces>,
    /// Sends both to an OpenTelemetry collector. Absent: the environment variables
    /// `OTEL_EXPORTER_OTLP_*` apply.
    pub otlp: Option<RawPush>,
}

/// Metrics.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTelemetryMetrics {
    /// False turns all measurement off, to compare its cost. Default true.
    pub enabled: Option<bool>,
    /// The number of names of tools and prompts with series of their own. The others are counted
    /// together as `other`. Default 80.
    pub max_names: Option<usize>,
}

/// Traces.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTraces {
    /// The share of requests that are traced, from 0 to 1. Absent: that of `OTEL_TRACES_SAMPLER`
    /// and `OTEL_TRACES_SAMPLER_ARG`, or else 0.01. Without a collector no request is traced.
    pub sample: Option<f64>,
    /// Lets the sampled flag of a client's `traceparent` decide if its request is traced. Only for
    /// clients whose tracing cost you accept. Default false.
    pub by_clients: Option<bool>,
}

/// An OpenTelemetry collector.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawPush {
    /// The URL of the collector: `http://host:4318`, or `http://host:4317` for `grpc`. A path is
    /// put before that of each signal.
    pub endpoint: Option<String>,
    /// The protocol. Default `http`.
    pub protocol: Option<RawPushProtocol>,
    /// Headers on every request to the collector. Keep secrets out of the file: `Bearer ${TOKEN}`.
    pub headers: Option<OrderedMap<ConfigSecret>>,
    /// A PEM file with further root certificates for the collector.
    pub ca_file: Option<String>,
    /// The time between two pushes of metrics. Default `60s`.
    pub interval: Option<Time>,
    /// The timeout of one request. Default `10s`.
    pub timeout: Option<Time>,
}

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawPushProtocol {
    /// OTLP over HTTP, in Protocol Buffers.
    Http,
    /// OTLP over gRPC.
    Grpc,
}

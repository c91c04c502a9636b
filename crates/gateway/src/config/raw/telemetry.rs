//! `telemetry:` as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Ordered;
use super::units::Time;
use crate::config::Secret;

/// What is measured and told, and to whom. Metrics are always at the operators' listener, under
/// `/metrics`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTelemetry {
    /// Metrics.
    pub(crate) metrics: Option<RawMetrics>,
    /// Traces.
    pub(crate) traces: Option<RawTraces>,
    /// Send both to an OpenTelemetry collector. Absent: what the environment variables
    /// `OTEL_EXPORTER_OTLP_*` say.
    pub(crate) otlp: Option<RawPush>,
}

/// Metrics.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawMetrics {
    /// False measures nothing at all, to see what measuring costs. Default true.
    pub(crate) enabled: Option<bool>,
    /// How many names of tools and prompts have series of their own; the others are counted
    /// together as `other`. Default 80.
    pub(crate) max_names: Option<usize>,
}

/// Traces.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTraces {
    /// The share of requests that are told of, from 0 to 1. Default 0.01, where there is a
    /// collector.
    pub(crate) sample: Option<f64>,
    /// Whether the flag of a client's `traceparent` decides for what it calls. Only for clients
    /// that may cost what they like. Default false.
    pub(crate) by_clients: Option<bool>,
}

/// An OpenTelemetry collector.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawPush {
    /// Where it is: `http://host:4318`, or `http://host:4317` for `grpc`. A path goes before that
    /// of each signal.
    pub(crate) endpoint: Option<String>,
    /// How it is spoken to. Default `http`.
    pub(crate) protocol: Option<RawPushProtocol>,
    /// Headers on every request to it. Keep secrets out of the file: `Bearer ${TOKEN}`.
    pub(crate) headers: Option<Ordered<Secret>>,
    /// A PEM file with further root certificates for it.
    pub(crate) ca_file: Option<String>,
    /// Between two pushes of metrics. Default `60s`.
    pub(crate) interval: Option<Time>,
    /// How long it may take for one request. Default `10s`.
    pub(crate) timeout: Option<Time>,
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawPushProtocol {
    /// OTLP over HTTP, in Protocol Buffers.
    Http,
    /// OTLP over gRPC.
    Grpc,
}

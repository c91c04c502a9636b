//! The settings of metrics and traces.

use std::time::Duration;

use weir_core::port::PostEncoding;
use weir_core::telemetry::DEFAULT_MAX_NAMES;
use weir_core::trace::SpanSampling;
use weir_upstream::HttpUpstreamSettings;

/// The settings of metrics and traces.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryPlan {
    /// False if all measurement is off.
    pub measured: bool,
    /// The number of names with series of their own.
    pub names: usize,
    /// The selection of requests that are traced.
    pub sampling: SpanSampling,
    /// The collector.
    pub otlp: Option<OtlpPlan>,
}

/// A collector.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpPlan {
    /// The endpoint for metrics.
    pub metrics: HttpUpstreamSettings,
    /// The endpoint for spans.
    pub traces: HttpUpstreamSettings,
    /// True for gRPC.
    pub grpc: bool,
    /// The time between two pushes of metrics.
    pub interval: Duration,
    /// The timeout of one request.
    pub timeout: Duration,
}

/// The default share of traced requests. A busy service gets about one trace a second, at
/// negligible cost.
const SAMPLE: f64 = 0.01;

impl TelemetryPlan {
    /// The default selection of requests that are traced.
    pub const SAMPLING: SpanSampling = SpanSampling {
        ratio: SAMPLE,
        by_clients: false,
    };
}

impl Default for TelemetryPlan {
    fn default() -> Self {
        Self {
            measured: true,
            names: DEFAULT_MAX_NAMES,
            sampling: Self::SAMPLING,
            otlp: None,
        }
    }
}

impl OtlpPlan {
    /// Returns the encoding of its documents.
    pub fn form(&self) -> PostEncoding {
        if self.grpc {
            PostEncoding::Grpc
        } else {
            PostEncoding::Protobuf
        }
    }
}

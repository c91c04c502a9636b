//! What the config says of telemetry.

use std::time::Duration;

use weir_core::port::Form;
use weir_core::telemetry::NAMES;
use weir_core::trace::Sampling;
use weir_upstream::HttpSettings;

/// What is measured and told.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryPlan {
    /// False where nothing is measured at all.
    pub measured: bool,
    /// How many names have series of their own.
    pub names: usize,
    /// Which requests are told of.
    pub sampling: Sampling,
    /// The collector.
    pub otlp: Option<OtlpPlan>,
}

/// A collector.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpPlan {
    /// Where metrics go.
    pub metrics: HttpSettings,
    /// Where spans go.
    pub traces: HttpSettings,
    /// Whether by gRPC.
    pub grpc: bool,
    /// Between two pushes of metrics.
    pub interval: Duration,
    /// How long one request may take.
    pub timeout: Duration,
}

/// Enough to have one of every second's calls of a busy service, and too little to cost anything.
const SAMPLE: f64 = 0.01;

impl TelemetryPlan {
    /// The requests that are told of where the config does not say.
    pub(crate) const SAMPLING: Sampling = Sampling {
        ratio: SAMPLE,
        by_clients: false,
    };
}

impl Default for TelemetryPlan {
    fn default() -> Self {
        Self {
            measured: true,
            names: NAMES,
            sampling: Self::SAMPLING,
            otlp: None,
        }
    }
}

impl OtlpPlan {
    /// What its documents are.
    pub(crate) fn form(&self) -> Form {
        if self.grpc {
            Form::Grpc
        } else {
            Form::Protobuf
        }
    }
}

//! Telemetry as the config has it: how many names, which requests, and to whom.

use std::sync::{Arc, Mutex, PoisonError};

use weir_core::telemetry::limit_names;
use weir_core::trace::{self, SpanSink};
use weir_upstream::{Factory, TlsError};

use super::Metrics;
use super::otlp::Pushing;
use crate::config::{OtlpPlan, TelemetryPlan};

/// What runs of it.
#[derive(Debug)]
pub(crate) struct Telemetry {
    metrics: Metrics,
    factory: Arc<Factory>,
    pushing: Mutex<Option<Push>>,
}

/// A plan made ready; `None` inside: it sends as before.
pub(crate) struct Prepared(Option<Option<Push>>);

/// To a collector.
struct Push {
    plan: OtlpPlan,
    tasks: Pushing,
    spans: Arc<dyn SpanSink>,
}

impl Telemetry {
    /// Begins as `plan` says. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The collector's certificate file is not usable.
    pub(crate) fn start(plan: &TelemetryPlan, metrics: Metrics, factory: Arc<Factory>) -> Result<Self, TlsError> {
        let telemetry = Self { metrics, factory, pushing: Mutex::new(None) };
        telemetry.take(telemetry.prepare(plan)?, plan);
        Ok(telemetry)
    }

    /// Makes another plan ready, without any effect yet. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn prepare(&self, plan: &TelemetryPlan) -> Result<Prepared, TlsError> {
        let now = self.pushing.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|push| push.plan.clone());
        if now == plan.otlp {
            // A collector that stays the same misses nothing.
            return Ok(Prepared(None));
        }
        let started = plan.otlp.as_ref().map(|otlp| {
            let (tasks, spans) = Pushing::start(otlp, &self.metrics, &self.factory)?;
            Ok(Push { plan: otlp.clone(), tasks, spans })
        });
        Ok(Prepared(Some(started.transpose()?)))
    }

    /// Goes by a plan that was made ready.
    pub(crate) fn take(&self, prepared: Prepared, plan: &TelemetryPlan) {
        let mut pushing = self.pushing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Prepared(Some(push)) = prepared {
            *pushing = push;
        }
        limit_names(plan.names);
        trace::tell(pushing.as_ref().map(|push| push.spans.clone()), plan.sampling);
    }

    /// Sends what is there, if that is done soon.
    pub(crate) async fn shutdown(self) {
        trace::tell(None, TelemetryPlan::SAMPLING);
        let pushing = self.pushing.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(Push { tasks, spans, .. }) = pushing {
            drop(spans);
            tasks.shutdown().await;
        }
    }
}

impl std::fmt::Debug for Push {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Push").field(&self.tasks).finish()
    }
}

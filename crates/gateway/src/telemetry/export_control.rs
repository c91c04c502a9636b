//! Telemetry by the config: the cap on names, the sampled requests, and the collector.

use std::sync::{Arc, Mutex, PoisonError};

use weir_core::telemetry::set_max_names;
use weir_core::trace::{self, SpanSink};
use weir_upstream::{TlsError, UpstreamFactory};

use super::otlp::{ExportTasks, OtlpExporters};
use crate::config::telemetry_plan::{OtlpPlan, TelemetryPlan};
use crate::telemetry::metrics::Metrics;

/// The running telemetry.
#[derive(Debug)]
pub(crate) struct Telemetry {
    metrics: Metrics,
    factory: Arc<UpstreamFactory>,
    pushing: Mutex<Option<RunningExport>>,
}

/// A prepared plan. The outer `None` means no change, the inner one no exporter.
pub(crate) struct PreparedTelemetry(Option<Option<(OtlpPlan, OtlpExporters)>>);

/// The running export to a collector.
struct RunningExport {
    plan: OtlpPlan,
    tasks: ExportTasks,
    spans: Arc<dyn SpanSink>,
}

impl Telemetry {
    /// Starts by `plan`. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The collector's certificate file is not usable.
    pub(crate) fn start(
        plan: &TelemetryPlan,
        metrics: Metrics,
        factory: Arc<UpstreamFactory>,
    ) -> Result<Self, TlsError> {
        let telemetry = Self {
            metrics,
            factory,
            pushing: Mutex::new(None),
        };
        telemetry.take(telemetry.prepare(plan)?, plan);
        Ok(telemetry)
    }

    /// Prepares another plan, without any effect yet.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn prepare(&self, plan: &TelemetryPlan) -> Result<PreparedTelemetry, TlsError> {
        let now = self
            .pushing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|push| push.plan.clone());
        if now == plan.otlp {
            // The exporter of an unchanged collector keeps running, and loses no data.
            return Ok(PreparedTelemetry(None));
        }
        let ready = plan.otlp.as_ref().map(|otlp| {
            Ok((
                otlp.clone(),
                OtlpExporters::new(otlp, &self.metrics, &self.factory)?,
            ))
        });
        Ok(PreparedTelemetry(Some(ready.transpose()?)))
    }

    /// Applies a prepared plan. Must be called inside a tokio runtime.
    pub(crate) fn take(&self, prepared: PreparedTelemetry, plan: &TelemetryPlan) {
        let mut pushing = self.pushing.lock().unwrap_or_else(PoisonError::into_inner);
        let PreparedTelemetry(other) = prepared;
        let before = other.and_then(|ready| {
            let push = ready.map(|(plan, lines)| {
                let (tasks, spans) = lines.start();
                RunningExport { plan, tasks, spans }
            });
            std::mem::replace(&mut *pushing, push)
        });
        set_max_names(plan.names);
        trace::set_sampling(
            pushing.as_ref().map(|push| push.spans.clone()),
            plan.sampling,
        );
        // Only now, after the last span was offered to it.
        drop(before);
    }

    /// Sends the waiting data within a bounded time.
    pub(crate) async fn shutdown(self) {
        trace::set_sampling(None, TelemetryPlan::SAMPLING);
        let pushing = self
            .pushing
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(RunningExport { tasks, spans, .. }) = pushing {
            drop(spans);
            tasks.shutdown().await;
        }
    }
}

impl std::fmt::Debug for RunningExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Push").field(&self.tasks).finish()
    }
}

#[cfg(test)]
mod tests {
    use weir_core::session_notifier::SessionNotifier;
    use weir_upstream::{ClientImplementation, UpstreamPorts};

    use super::*;
    use crate::config::{ConfigLoader, ConfigSource};
    use crate::system::{SystemClock, SystemRandom};

    #[tokio::test]
    async fn prepared_plan_sends_no_data_before_it_is_applied() {
        let ports = UpstreamPorts {
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            bells: Arc::<SessionNotifier>::default(),
            session_lists: weir_core::catalog::SessionListTable::new(Arc::default(), &SystemRandom),
            keeper: weir_upstream::keeper::ChildKeeper::unavailable(),
            budgets: weir_core::Budgets::default(),
        };
        let factory = Arc::new(UpstreamFactory::new(
            ports,
            ClientImplementation::new("weir", "0"),
        ));
        let none = TelemetryPlan::default();
        let telemetry = Telemetry::start(&none, Metrics::install(true), factory)
            .expect("there is nothing to send to");
        let text = "telemetry: { otlp: { endpoint: 'http://127.0.0.1:9' } }\nupstreams: { a: { command: x } }\n";
        let source = ConfigSource::Text {
            name: "test".to_owned(),
            text: text.to_owned(),
        };
        let plan = ConfigLoader::new(source, &|_| None)
            .load()
            .config
            .expect("a good config")
            .telemetry;
        let tasks = || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
        };
        let before = tasks();
        // As at a reload that another part of weir refuses.
        drop(telemetry.prepare(&plan).expect("no certificates are named"));
        assert_eq!(tasks(), before);
        telemetry.take(
            telemetry.prepare(&plan).expect("no certificates are named"),
            &plan,
        );
        assert_eq!(tasks(), before + 2, "one for spans, one for metrics");
        telemetry.shutdown().await;
    }
}

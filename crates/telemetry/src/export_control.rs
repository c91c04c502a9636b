//! Telemetry by the config: the cap on names, the sampled requests, and the collector.

use std::sync::Arc;

use parking_lot::Mutex;
use weir_core::telemetry::set_max_names;
use weir_core::trace::{self, SpanSink};
use weir_upstream::{TlsError, UpstreamFactory};

use crate::held_series::HeldSeries;
use crate::metrics::Metrics;
use crate::otlp::{ExportTasks, OtlpExporters};
use crate::telemetry_plan::{OtlpPlan, TelemetryPlan};

/// The running telemetry.
#[derive(Debug)]
pub struct Telemetry {
    metrics: Metrics,
    factory: Arc<UpstreamFactory>,
    pushing: Mutex<Option<RunningExport>>,
}

/// A prepared plan. The outer `None` means no change, the inner one no exporter.
pub struct PreparedTelemetry(Option<Option<(OtlpPlan, OtlpExporters)>>);

/// The running export to a collector.
struct RunningExport {
    plan: OtlpPlan,
    tasks: ExportTasks,
    spans: Arc<dyn SpanSink>,
}

impl std::fmt::Debug for PreparedTelemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let exports = match &self.0 {
            None => "as before",
            Some(None) => "no exports",
            Some(Some(_)) => "new exports",
        };
        write!(f, "PreparedTelemetry({exports})")
    }
}

impl Telemetry {
    /// Starts by `plan`. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The collector's certificate file is not usable.
    pub fn start(
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
    pub fn prepare(&self, plan: &TelemetryPlan) -> Result<PreparedTelemetry, TlsError> {
        let now = self.pushing.lock().as_ref().map(|push| push.plan.clone());
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
    pub fn take(&self, prepared: PreparedTelemetry, plan: &TelemetryPlan) {
        let mut pushing = self.pushing.lock();
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

    /// Holds the series of the upstreams, with their values of now, so that the export at the
    /// shutdown has them after the upstreams have ended.
    pub fn hold_series(&self) -> HeldSeries {
        self.metrics.hold_series()
    }

    /// Sends the waiting data within a bounded time.
    pub async fn shutdown(self) {
        trace::set_sampling(None, TelemetryPlan::SAMPLING);
        let pushing = self.pushing.into_inner();
        if let Some(RunningExport { tasks, spans, .. }) = pushing {
            drop(spans);
            tasks.shutdown().await;
        }
    }
}

impl std::fmt::Debug for RunningExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RunningExport").field(&self.tasks).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use weir_core::session_notifier::SessionNotifier;

    use weir_core::names::UpstreamId;
    use weir_system::{SystemClock, SystemRandom};
    use weir_upstream::{ClientImplementation, TransportSettings, UpstreamPorts, UpstreamSettings};

    use super::*;

    #[tokio::test]
    async fn prepared_plan_sends_no_data_before_it_is_applied() {
        let ports = UpstreamPorts {
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            notifier: Arc::<SessionNotifier>::default(),
            session_lists: weir_catalog::SessionListTable::new(Arc::default(), &SystemRandom),
            keeper: weir_process::keeper::ChildKeeper::unavailable(),
            budgets: weir_core::Budgets::default(),
        };
        let factory = Arc::new(UpstreamFactory::new(
            ports,
            ClientImplementation::new("weir", "0"),
        ));
        let none = TelemetryPlan::default();
        let telemetry = Telemetry::start(&none, Metrics::install(true, &SystemRandom), factory)
            .expect("there is nothing to send to");
        let id = UpstreamId::new("collector").expect("a legal id");
        let url = "http://127.0.0.1:9".parse().expect("a URL");
        let TransportSettings::Http(collector) = UpstreamSettings::http(id, url).transport else {
            panic!("a URL is reached over HTTP");
        };
        let plan = TelemetryPlan {
            otlp: Some(OtlpPlan {
                metrics: collector.clone(),
                traces: collector,
                grpc: false,
                interval: Duration::from_secs(60),
                timeout: Duration::from_secs(10),
            }),
            ..TelemetryPlan::default()
        };
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

//! Durations of the store's operations.

use std::sync::OnceLock;
use std::time::Instant;

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundHistogram;
use weir_core::telemetry::instruments;

/// One operation of a store, for `weir.store.duration`. A `static` beside its implementation.
pub(crate) struct StoreOperation {
    store: &'static str,
    name: &'static str,
    series: OnceLock<BoundHistogram<f64>>,
}

impl StoreOperation {
    /// The operation of this name of the store `store`.
    #[must_use]
    pub(crate) const fn new(store: &'static str, name: &'static str) -> Self {
        Self {
            store,
            name,
            series: OnceLock::new(),
        }
    }

    /// Runs `work`, and records its duration.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let outcome = work();
        let bind = || {
            let labels = [
                KeyValue::new("store", self.store),
                KeyValue::new("operation", self.name),
            ];
            instruments().store_duration.bind(&labels)
        };
        self.series
            .get_or_init(bind)
            .record(began.elapsed().as_secs_f64());
        outcome
    }
}

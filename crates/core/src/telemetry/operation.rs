//! How long the store takes for an operation.

use std::sync::OnceLock;
use std::time::Instant;

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundHistogram;

use super::instruments;

/// One operation of a store, for `weir.store.duration`. A `static` beside what does it.
pub struct Operation {
    store: &'static str,
    name: &'static str,
    series: OnceLock<BoundHistogram<f64>>,
}

impl Operation {
    /// The operation of this name of what keeps `store`.
    #[must_use]
    pub const fn new(store: &'static str, name: &'static str) -> Self {
        Self {
            store,
            name,
            series: OnceLock::new(),
        }
    }

    /// Does it, and takes the time.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
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

//! The events of a run, in order.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The events of a run, and what was found to be wrong. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Arc<Mutex<TraceLines>>);

#[derive(Debug, Default)]
struct TraceLines {
    events: Vec<String>,
    violations: Vec<String>,
}

impl Trace {
    /// Adds an event.
    pub(crate) fn note(&self, at: Duration, event: impl AsRef<str>) {
        let line = format!("{:>7.3} {}", at.as_secs_f64(), event.as_ref());
        self.0.lock().events.push(line);
    }

    /// Adds a violation of an invariant.
    pub(crate) fn violate(&self, at: Duration, violation: impl AsRef<str>) {
        let line = format!("{:>7.3} VIOLATED: {}", at.as_secs_f64(), violation.as_ref());
        let mut lines = self.0.lock();
        lines.events.push(line.clone());
        lines.violations.push(line);
    }

    /// All events.
    pub(crate) fn events(&self) -> Vec<String> {
        self.0.lock().events.clone()
    }

    /// All violations.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.0.lock().violations.clone()
    }
}

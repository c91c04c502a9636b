//! Keeps the series of upstreams until the last export, which comes after their end.

use std::sync::Arc;

use weir_core::telemetry::{DurationSeries, HISTOGRAMS, UpstreamMeter, present_meters};

/// The series of the upstreams and items that were present. They are shown as long as this is held.
#[must_use]
pub struct HeldSeries {
    _meters: Vec<Arc<UpstreamMeter>>,
    _durations: Vec<Arc<DurationSeries>>,
}

impl HeldSeries {
    /// Holds the series of all that is present.
    pub(super) fn of_present() -> Self {
        let durations = HISTOGRAMS.iter().flat_map(|one| one.live_series());
        Self {
            _meters: present_meters(),
            _durations: durations.collect(),
        }
    }
}

impl std::fmt::Debug for HeldSeries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldSeries").finish_non_exhaustive()
    }
}

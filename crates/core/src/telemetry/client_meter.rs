//! The metrics of each client, so that the source of a flood has a name. A bounded number of
//! clients have one of their own: the first that came.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;
use parking_lot::Mutex;

use crate::telemetry::instruments;
use crate::telemetry::meters::{OTHER_NAME, max_names};

/// Characters of a client's name that a label keeps.
const LENGTH: usize = 64;

static CLIENTS: LazyLock<Mutex<HashMap<Arc<str>, Arc<ClientMeter>>>> =
    LazyLock::new(Mutex::default);
static ANONYMOUS: LazyLock<Arc<ClientMeter>> = LazyLock::new(|| ClientMeter::new("anonymous"));
static OTHERS: LazyLock<Arc<ClientMeter>> = LazyLock::new(|| ClientMeter::new(OTHER_NAME));

/// The counters of one client.
pub struct ClientMeter {
    requests: BoundCounter<u64>,
    limited: BoundCounter<u64>,
}

impl ClientMeter {
    /// The meter of the client of this name: its own, or the one that all others share.
    #[must_use]
    pub fn of(name: &str) -> Arc<Self> {
        let name: String = name
            .chars()
            .filter(|c| !c.is_control())
            .take(LENGTH)
            .collect();
        let mut all = CLIENTS.lock();
        if let Some(meter) = all.get(name.as_str()) {
            return meter.clone();
        }
        if all.len() >= max_names() {
            return OTHERS.clone();
        }
        let meter = Self::new(&name);
        all.insert(name.into(), meter.clone());
        meter
    }

    /// The meter of all requests without credentials.
    #[must_use]
    pub fn anonymous() -> &'static Self {
        &ANONYMOUS
    }

    fn new(name: &str) -> Arc<Self> {
        let label = [KeyValue::new("client", name.to_owned())];
        let (requests, limited) = (
            instruments().client_requests.bind(&label),
            instruments().client_limited.bind(&label),
        );
        Arc::new(Self { requests, limited })
    }

    /// Counts a request.
    pub fn request(&self) {
        self.requests.add(1);
    }

    /// Counts a refusal by a limit.
    pub fn limited(&self) {
        self.limited.add(1);
    }
}

impl fmt::Debug for ClientMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientMeter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::DEFAULT_MAX_NAMES;

    // Proves F16.
    #[test]
    fn client_meter_names_are_capped() {
        let first = ClientMeter::of("client-0");
        for number in 0..100_000 {
            ClientMeter::of(&format!("client-{number}")).request();
        }
        assert_eq!(CLIENTS.lock().len(), DEFAULT_MAX_NAMES);
        assert!(Arc::ptr_eq(&first, &ClientMeter::of("client-0")));
        assert!(Arc::ptr_eq(&OTHERS, &ClientMeter::of("one more")));
    }
}

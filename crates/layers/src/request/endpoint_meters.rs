//! Metrics of an endpoint's requests. Series are looked up once: a lookup costs a call more than an
//! update.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use http::{Method, StatusCode, Version};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundHistogram, BoundUpDownCounter};
use parking_lot::Mutex;
use weir_core::EndpointId;
use weir_core::telemetry::{DurationSeries, MetricLabel, SERVER_DURATION, instruments};
use weir_core::trace::SpanContext;

use crate::request::message_labels::MessageLabels;
use crate::request::outcome::RequestOutcome;

/// The metrics of one endpoint.
#[derive(Debug, Default)]
pub struct EndpointMeters {
    /// The endpoint's path; absent for requests without an endpoint.
    endpoint: Option<Arc<str>>,
    /// Successful calls, modern and legacy: these two series are those of nearly all requests.
    calls: [OnceLock<Arc<DurationSeries>>; 2],
    others: Mutex<HashMap<(MessageLabels, RequestOutcome), Arc<DurationSeries>>>,
    /// POSTs answered with 200: HTTP/1.1 and HTTP/2, without and with TLS.
    posts: [OnceLock<BoundHistogram<f64>>; 4],
    received: OnceLock<BoundHistogram<u64>>,
    sent: OnceLock<BoundHistogram<u64>>,
}

/// The metrics of the present endpoints.
static ENDPOINTS: LazyLock<Mutex<HashMap<EndpointId, Weak<EndpointMeters>>>> =
    LazyLock::new(Mutex::default);
static WITHOUT_ENDPOINT: LazyLock<EndpointMeters> = LazyLock::new(EndpointMeters::default);
static POSTS: [LazyLock<BoundUpDownCounter<i64>>; 2] = [
    LazyLock::new(|| bind_active("POST", false)),
    LazyLock::new(|| bind_active("POST", true)),
];

/// The labels of a request that its head determines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpLabels {
    method: &'static str,
    version: &'static str,
    secure: bool,
}

impl HttpLabels {
    pub(crate) fn of(method: &Method, version: Version, secure: bool) -> Self {
        let known = [
            "POST", "GET", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH", "CONNECT", "TRACE",
        ];
        let method = known
            .into_iter()
            .find(|known| method.as_str() == *known)
            .unwrap_or("_OTHER");
        Self {
            method,
            version: if version == Version::HTTP_2 {
                "2"
            } else {
                "1.1"
            },
            secure,
        }
    }

    /// Adds `change` to the number of requests in progress.
    pub(crate) fn add_active(&self, change: i64) {
        match self.method {
            "POST" => POSTS[usize::from(self.secure)].add(change),
            method => instruments()
                .http_active
                .add(change, &head_labels(method, self.secure)),
        }
    }
}

fn bind_active(method: &'static str, secure: bool) -> BoundUpDownCounter<i64> {
    instruments().http_active.bind(&head_labels(method, secure))
}

fn head_labels(method: &'static str, secure: bool) -> [KeyValue; 2] {
    let scheme = if secure { "https" } else { "http" };
    [
        KeyValue::new("http.request.method", method),
        KeyValue::new("url.scheme", scheme),
    ]
}

impl EndpointMeters {
    /// The metrics of this endpoint: the existing ones, or new ones. A reload makes a new route
    /// while the old one serves, so the endpoint keeps its metrics.
    pub fn of(endpoint: &EndpointId) -> Arc<Self> {
        let mut all = ENDPOINTS.lock();
        if let Some(meters) = all.get(endpoint).and_then(Weak::upgrade) {
            return meters;
        }
        all.retain(|_, meters| meters.strong_count() > 0);
        let meters = Arc::new(Self {
            endpoint: Some(endpoint.as_str().into()),
            ..Self::default()
        });
        all.insert(endpoint.clone(), Arc::downgrade(&meters));
        meters
    }

    /// The metrics of requests without an endpoint.
    pub(crate) fn without_endpoint() -> &'static Self {
        &WITHOUT_ENDPOINT
    }

    /// Counts a finished request.
    pub(crate) fn count_request(
        &self,
        message: MessageLabels,
        outcome: RequestOutcome,
        took: Duration,
        span: Option<SpanContext>,
    ) {
        let series = || self.series(message, outcome);
        let is_usual = message.method == "tools/call" && outcome == RequestOutcome::Ok;
        match message.era.filter(|_| is_usual) {
            Some(era) => self.calls[era as usize]
                .get_or_init(series)
                .record(took, span),
            None => {
                let mut others = self.others.lock();
                others
                    .entry((message, outcome))
                    .or_insert_with(series)
                    .record(took, span);
            }
        }
    }

    fn series(&self, message: MessageLabels, outcome: RequestOutcome) -> Arc<DurationSeries> {
        let mut labels: Vec<MetricLabel> = Vec::with_capacity(5);
        labels.extend(self.endpoint.clone().map(|endpoint| ("endpoint", endpoint)));
        labels.extend([
            ("mcp.method.name", message.method.into()),
            ("era", message.era_label().into()),
            ("outcome", outcome.as_str().into()),
        ]);
        if outcome != RequestOutcome::Ok {
            labels.push(("error.type", outcome.as_str().into()));
        }
        SERVER_DURATION.series(&labels)
    }

    /// Counts a finished HTTP request: its duration, and the size of its answer. Without an answer
    /// there is no status.
    pub(crate) fn count_http(
        &self,
        http: &HttpLabels,
        status: Option<StatusCode>,
        took: Duration,
        sent: u64,
    ) {
        let seconds = took.as_secs_f64();
        if http.method == "POST" && status.is_some_and(|status| status.as_u16() == 200) {
            let at = usize::from(http.version == "2") * 2 + usize::from(http.secure);
            let bind = || {
                instruments()
                    .http_duration
                    .bind(&self.answer_labels(http, status))
            };
            self.posts[at].get_or_init(bind).record(seconds);
        } else {
            instruments()
                .http_duration
                .record(seconds, &self.answer_labels(http, status));
        }
        if http.method == "POST" {
            self.sent
                .get_or_init(|| {
                    instruments()
                        .http_response_size
                        .bind(&self.route_labels("POST"))
                })
                .record(sent);
        } else {
            instruments()
                .http_response_size
                .record(sent, &self.route_labels(http.method));
        }
    }

    /// Counts a body that was read.
    pub(crate) fn count_received(&self, bytes: usize) {
        let bind = || {
            instruments()
                .http_request_size
                .bind(&self.route_labels("POST"))
        };
        self.received.get_or_init(bind).record(bytes as u64);
    }

    fn answer_labels(&self, http: &HttpLabels, status: Option<StatusCode>) -> Vec<KeyValue> {
        let mut all = head_labels(http.method, http.secure).to_vec();
        all.extend(
            status.map(|status| {
                KeyValue::new("http.response.status_code", i64::from(status.as_u16()))
            }),
        );
        all.push(KeyValue::new("network.protocol.version", http.version));
        all.extend(self.route());
        all
    }

    fn route_labels(&self, method: &'static str) -> Vec<KeyValue> {
        [KeyValue::new("http.request.method", method)]
            .into_iter()
            .chain(self.route())
            .collect()
    }

    fn route(&self) -> Option<KeyValue> {
        self.endpoint
            .clone()
            .map(|endpoint| KeyValue::new("http.route", endpoint))
    }
}

#[cfg(test)]
mod tests {
    use weir_core::telemetry::SERVER_DURATION;

    use super::*;

    fn counted(endpoint: &str) -> Option<u64> {
        let all = SERVER_DURATION.live_series();
        let mut own = all
            .iter()
            .filter(|series| &*series.labels()[0].1 == endpoint);
        own.next()
            .map(|series| series.counts().buckets.iter().sum())
    }

    #[test]
    fn metrics_of_an_endpoint_outlive_its_route_and_end_with_the_endpoint() {
        let id = EndpointId::new("/kept");
        let count = |meters: &EndpointMeters| {
            let labels = MessageLabels::of(weir_wire::Era::Legacy, "tools/call");
            meters.count_request(labels, RequestOutcome::Ok, Duration::from_millis(1), None);
        };
        let before = EndpointMeters::of(&id);
        count(&before);
        // A reload makes the next route while the one before still serves.
        let after = EndpointMeters::of(&id);
        // A call that began before the reload ends after it.
        count(&before);
        drop(before);
        count(&after);
        assert_eq!(counted("/kept"), Some(3));
        drop(after);
        assert_eq!(counted("/kept"), None, "the endpoint is gone");
    }
}

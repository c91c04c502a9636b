//! The settings of the limiter: rates, daily quotas and concurrency caps. Values only; no config
//! format here.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;
use sha2::{Digest as _, Sha256};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::Rate;
use weir_core::principal::Principal;
use weir_core::telemetry::instruments;

/// A day of UTC.
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// All limits of a service. The default limits no rate, and holds the caps of
/// [`ConcurrencyLimits::default`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitSettings {
    /// Requests of an address, before authentication. Its `daily` is ignored.
    pub address: Option<RateLimit>,
    /// The limit of a principal without a more specific entry below.
    pub principal: Option<RateLimit>,
    /// The same on one endpoint, in place of `principal`; each endpoint with a budget of its own.
    pub endpoints: HashMap<EndpointId, RateLimit>,
    /// The same for members of a group, in place of both; of several groups the first one here
    /// counts.
    pub groups: Vec<(Arc<str>, RateLimit)>,
    /// The same for principals that come through an OAuth client, and for subjects and ids of API
    /// keys, in place of all three.
    pub clients: HashMap<Arc<str>, RateLimit>,
    /// Tools; the first pattern that matches counts.
    pub tools: Vec<ToolLimit>,
    /// Calls of an upstream, of all principals together.
    pub upstreams: HashMap<UpstreamId, RateLimit>,
    /// Caps of concurrent calls.
    pub concurrency: ConcurrencyLimits,
    /// The decision on a call with a daily quota that cannot be counted.
    pub uncounted: UncountedQuota,
}

impl LimitSettings {
    /// True if there is a rate or a quota. Concurrency caps hold in any case.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        let general =
            self.address.is_some() || self.principal.is_some() || !self.endpoints.is_empty();
        let for_some = !self.groups.is_empty() || !self.clients.is_empty();
        general || for_some || !self.tools.is_empty() || !self.upstreams.is_empty()
    }

    /// Every limit, in no order.
    fn all(&self) -> impl Iterator<Item = &RateLimit> {
        self.address.iter().chain(self.all_but_address())
    }

    /// Every limit but that of addresses, in no order.
    pub(super) fn all_but_address(&self) -> impl Iterator<Item = &RateLimit> {
        let named = self
            .endpoints
            .values()
            .chain(self.clients.values())
            .chain(self.upstreams.values());
        let groups = self.groups.iter().map(|(_, limit)| limit);
        let general = self.principal.iter().chain(named);
        general
            .chain(groups)
            .chain(self.tools.iter().map(|tool| &tool.limit))
    }

    /// Initializes the decision counters of every limit with 0.
    pub(super) fn start_at_zero(&self) {
        for limit in self.all() {
            let outcomes = [
                Some("allowed"),
                Some("refused"),
                limit.daily.map(|_| "quota"),
                limit.daily.map(|_| "uncounted"),
                limit.daily.map(|_| "uncountable"),
            ];
            for outcome in outcomes.into_iter().flatten() {
                let labels = [
                    KeyValue::new("limit", limit.name.clone()),
                    KeyValue::new("outcome", outcome),
                ];
                instruments().limit_decisions.add(0, &labels);
            }
        }
    }

    /// The one limit that holds for a principal on an endpoint. No limit for the anonymous
    /// principal, since it stands for all anonymous callers.
    pub(super) fn of(&self, principal: &Principal, endpoint: &EndpointId) -> Option<&RateLimit> {
        let subject = principal.subject()?;
        // The entry of a single key comes before that of its subject.
        let mut clients = subject.client.iter().chain(subject.client_name());
        let client = clients.find_map(|client| self.clients.get(client));
        let group = || {
            self.groups
                .iter()
                .find(|(name, _)| subject.groups.contains(name))
                .map(|(_, limit)| limit)
        };
        client
            .or_else(group)
            .or_else(|| self.endpoints.get(endpoint))
            .or(self.principal.as_ref())
    }
}

/// A rate and a daily quota. Without either it limits no calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub(super) name: Arc<str>,
    pub(super) rate: Option<Rate>,
    pub(super) daily: Option<u64>,
    /// A digest of name and rate: counts continue as long as both stay the same.
    pub(super) digest: u64,
    allowed: AllowedCounter,
}

/// The counter of the requests that a limit allowed, looked up once. Not part of the limit itself,
/// so all are equal.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedCounter(Arc<OnceLock<BoundCounter<u64>>>);

impl PartialEq for AllowedCounter {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for AllowedCounter {}

impl AllowedCounter {
    /// Counts a request that the limit of this name allowed.
    pub(super) fn count_one(&self, name: &str) {
        let bind = || {
            let labels = [
                KeyValue::new("limit", name.to_owned()),
                KeyValue::new("outcome", "allowed"),
            ];
            instruments().limit_decisions.bind(&labels)
        };
        self.0.get_or_init(bind).add(1);
    }
}

impl RateLimit {
    /// Counts a request that it allowed.
    pub(super) fn count_allowed(&self) {
        self.allowed.count_one(&self.name);
    }

    /// A limit with a rate and a quota for a day of UTC. Its name (unique among all limits) stands
    /// in refusals and metrics.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, rate: Option<Rate>, daily: Option<u64>) -> Self {
        let name = name.into();
        let mut hash = Sha256::new();
        if let Some(Rate { count, per, burst }) = rate {
            hash.update(count.get().to_be_bytes());
            hash.update(burst.get().to_be_bytes());
            hash.update(per.as_nanos().to_be_bytes());
        }
        hash.update(name.as_bytes());
        let full: [u8; 32] = hash.finalize().into();
        let mark = full[..8]
            .iter()
            .fold(0, |mark, &byte| mark << 8 | u64::from(byte));
        Self {
            name,
            rate,
            daily,
            digest: mark,
            allowed: AllowedCounter::default(),
        }
    }

    /// Its rate.
    #[must_use]
    pub fn rate(&self) -> Option<&Rate> {
        self.rate.as_ref()
    }

    /// The quota of a day of UTC.
    #[must_use]
    pub fn daily(&self) -> Option<u64> {
        self.daily
    }
}

/// The limit of some tools.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolLimit {
    /// The tools.
    pub pattern: ToolPattern,
    /// The limit of all tools of the pattern together.
    pub limit: RateLimit,
    /// The cost of one call against its principal's and its upstream's limits, in requests.
    pub cost: NonZeroU32,
    /// True if all principals share the budget, false if each has its own.
    pub shared: bool,
}

/// Selects tools by upstream and by their own names there, such as `files/write_*` or `*/delete_*`:
/// the limit holds under every name that an endpoint gives a tool.
#[derive(Clone)]
pub struct ToolPattern {
    text: Arc<str>,
    upstream: GlobMatcher,
    native: GlobMatcher,
}

impl ToolPattern {
    /// Reads a pattern: two globs with a `/` between them; the first contains no `/`.
    ///
    /// # Errors
    /// The fault of the pattern.
    pub fn new(text: &str) -> Result<Self, String> {
        let (upstream, native) = text
            .split_once('/')
            .ok_or("has no `/` between upstream and tool")?;
        if upstream.is_empty() || native.is_empty() {
            return Err("names no upstream or no tool".to_owned());
        }
        Ok(Self {
            text: text.into(),
            upstream: glob(upstream)?,
            native: glob(native)?,
        })
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True if all tools of another pattern are tools of this one. Decided by the texts: false in
    /// doubt.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let is_plain = !self.text.contains(['?', '[', '{', '\\']);
        let parts = other.text.split_once('/').filter(|_| is_plain);
        parts.is_some_and(|(upstream, native)| {
            self.upstream.is_match(upstream) && self.native.is_match(native)
        })
    }

    /// True if the pattern has tools of this upstream.
    #[must_use]
    pub fn is_of_upstream(&self, upstream: &UpstreamId) -> bool {
        self.upstream.is_match(upstream.as_str())
    }

    pub(super) fn matches(&self, upstream: &UpstreamId, native: &str) -> bool {
        self.upstream.is_match(upstream.as_str()) && self.native.is_match(native)
    }
}

fn glob(text: &str) -> Result<GlobMatcher, String> {
    // A tool's name is no path: `*` also matches `/`. A backslash always escapes.
    let glob = GlobBuilder::new(text)
        .literal_separator(false)
        .backslash_escape(true)
        .build();
    glob.map(|glob| glob.compile_matcher())
        .map_err(|error| error.kind().to_string())
}

impl PartialEq for ToolPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Caps of concurrent calls, and of their queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConcurrencyLimits {
    /// Calls of one principal in flight. Does not bind the anonymous one.
    pub principal: usize,
    /// Calls in flight at an upstream; without an entry there is no cap.
    pub upstreams: HashMap<UpstreamId, usize>,
    /// Calls that wait for one principal's slots.
    pub queue: usize,
    /// Calls that wait for one upstream's slots.
    pub upstream_queue: usize,
    /// The longest wait of a call for all of its slots together.
    pub wait: Duration,
}

impl Default for ConcurrencyLimits {
    /// The defaults. `principal` is more than an agent and its helpers need at once, and less than
    /// an upstream's usual slots (256), so that one principal never has them all. `wait` is shorter
    /// than the time after which people take a tool for dead. Under overload a call refused at once
    /// is retried at once, and then refusals take the processor: an upstream's queue holds the
    /// calls of about a thousand clients. That is a tenth of all calls that may be in flight, so
    /// that a hung upstream leaves room for the others.
    fn default() -> Self {
        let wait = Duration::from_secs(2);
        Self {
            principal: 64,
            upstreams: HashMap::new(),
            queue: 128,
            upstream_queue: 1024,
            wait,
        }
    }
}

/// The decision on a call with a daily quota that cannot be counted, because the store fails (F09).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UncountedQuota {
    /// It is allowed: rates still hold.
    #[default]
    Allowed,
    /// It is refused.
    Refused,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_pattern_names_upstream_and_tool() {
        for bad in ["", "files", "/x", "files/", "files/[", "{/x"] {
            assert!(ToolPattern::new(bad).is_err(), "{bad}");
        }
        let matches = |pattern: &str, upstream: &str, native: &str| {
            ToolPattern::new(pattern)
                .unwrap()
                .matches(&UpstreamId::new(upstream).unwrap(), native)
        };
        assert!(
            matches("files/write_*", "files", "write_file")
                && matches("files/write_*", "files", "write_a/b")
        );
        assert!(
            !matches("files/write_*", "files-2", "write_file")
                && !matches("files/write_*", "files", "overwrite")
        );
        assert!(matches("*/a/b", "files", "a/b") && !matches("*/a/b", "files", "b"));
    }
}

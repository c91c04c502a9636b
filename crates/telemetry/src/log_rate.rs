//! The rate limit of the log: 100 lines a second of one kind, then one line with the count.
//!
//! A kind is a call site in the code and the line's upstream, if it has one. So a noisy upstream
//! does not hide the others.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use weir_core::telemetry::LogLineRate;

use crate::log_queue::{LogQueue, count_dropped};

/// The most kinds. Call sites are few; beyond this number upstreams share a kind.
const MAX_KINDS: usize = 4096;
/// The most characters of a kind's message that its count repeats.
const MESSAGE: usize = 120;
/// The target of lines with counts. They have no limit themselves: each kind has one a second.
const COUNTS: &str = "weir_gateway::log";

/// The layer that suppresses lines beyond the rate.
#[derive(Clone, Debug)]
pub(super) struct LogRateLimit(Arc<LogLineKinds>);

#[derive(Debug)]
struct LogLineKinds {
    rates: RwLock<HashMap<(Identifier, u64), Arc<LogLineKind>>>,
    hasher: RandomState,
    began: Instant,
    /// True if lines were suppressed and not reported yet.
    owing: AtomicBool,
    queue: Arc<LogQueue>,
}

#[derive(Debug)]
struct LogLineKind {
    metadata: &'static Metadata<'static>,
    message: String,
    upstream: Option<String>,
    rate: LogLineRate,
}

impl LogRateLimit {
    pub(super) fn new(queue: Arc<LogQueue>) -> Self {
        Self(Arc::new(LogLineKinds {
            rates: RwLock::default(),
            hasher: RandomState::new(),
            began: Instant::now(),
            owing: AtomicBool::new(false),
            queue,
        }))
    }

    /// Logs the number of suppressed lines of each kind, once its second is over, or at once with
    /// `now`. Returns the time until the next report.
    pub(super) fn report(&self, now: bool) -> Option<Duration> {
        if !self.0.owing.swap(false, Ordering::AcqRel) {
            return None;
        }
        let at = self.0.began.elapsed();
        // Not under the lock, because the lines logged here take it too.
        let kinds: Vec<_> = self.0.rates.read().values().cloned().collect();
        for kind in kinds {
            let lines = if now {
                Some(kind.rate.take_all_left_out())
            } else {
                kind.rate.take_left_out(at)
            };
            if let Some(lines) = lines.filter(|lines| *lines > 0) {
                kind.log_count(lines);
            }
        }
        // Lines of the current second are still to be counted. It ends within one.
        let later = self.0.owes();
        self.0.owing.fetch_or(later, Ordering::AcqRel);
        later.then_some(Duration::from_secs(1))
    }

    fn admits(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        if metadata.target() == COUNTS || !metadata.is_event() {
            return true;
        }
        let kind = self.0.kind(event);
        let admitted = kind.rate.admit(self.0.began.elapsed());
        if !admitted {
            count_dropped("rate", 1);
            if !self.0.owing.swap(true, Ordering::AcqRel) {
                self.0.queue.wake();
            }
        }
        admitted
    }
}

impl LogLineKinds {
    fn owes(&self) -> bool {
        let rates = self.rates.read();
        rates.values().any(|kind| kind.rate.has_left_out())
    }

    fn kind(&self, event: &Event<'_>) -> Arc<LogLineKind> {
        let metadata = event.metadata();
        let mut upstream = UpstreamField(None);
        if metadata.fields().field("upstream").is_some() {
            event.record(&mut upstream);
        }
        let tell = |upstream: &Option<String>| {
            upstream
                .as_ref()
                .map_or(0, |name| self.hasher.hash_one(name))
        };
        let mut key = (metadata.callsite(), tell(&upstream.0));
        {
            let rates = self.rates.read();
            if let Some(kind) = rates.get(&key) {
                return kind.clone();
            }
            if rates.len() >= MAX_KINDS {
                (upstream, key.1) = (UpstreamField(None), 0);
            }
        }
        let mut message = MessageField(String::new());
        event.record(&mut message);
        let kind = LogLineKind {
            metadata,
            message: message.0,
            upstream: upstream.0,
            rate: LogLineRate::default(),
        };
        let mut rates = self.rates.write();
        rates.entry(key).or_insert(Arc::new(kind)).clone()
    }
}

impl LogLineKind {
    fn log_count(&self, lines: u64) {
        let (source, message, upstream) = (
            self.metadata.target(),
            &*self.message,
            self.upstream.as_deref(),
        );
        macro_rules! say {
            ($level:expr) => {
                tracing::event!(target: COUNTS, $level, lines, source, line = message, upstream, "log rate limited: more than 100 lines a second of one kind")
            };
        }
        match *self.metadata.level() {
            Level::ERROR => say!(Level::ERROR),
            Level::WARN => say!(Level::WARN),
            Level::INFO => say!(Level::INFO),
            Level::DEBUG => say!(Level::DEBUG),
            Level::TRACE => say!(Level::TRACE),
        }
    }
}

impl<S: Subscriber> Layer<S> for LogRateLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.admits(event)
    }
}

/// The field `upstream` of a line.
struct UpstreamField(Option<String>);

impl Visit for UpstreamField {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "upstream" {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "upstream" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

/// The message of a line.
struct MessageField(String);

impl Visit for MessageField {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}").chars().take(MESSAGE).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::super::logs::QueueWriter;
    use super::*;

    /// Returns the log's lines that `work` causes.
    fn logged(work: impl FnOnce(&LogRateLimit)) -> Vec<String> {
        let queue = Arc::new(LogQueue::default());
        let limit = LogRateLimit::new(queue.clone());
        let log = fmt()
            .json()
            .flatten_event(true)
            .with_writer(QueueWriter(queue.clone()))
            .finish();
        tracing::subscriber::with_default(log.with(limit.clone()), || work(&limit));
        queue
            .take(Some(Duration::ZERO))
            .into_iter()
            .map(|line| String::from_utf8(line).unwrap())
            .collect()
    }

    // Proves E22.
    #[test]
    fn one_kind_of_line_does_not_hide_another_and_its_count_is_one_line() {
        let lines = logged(|limit| {
            for n in 0..5000 {
                tracing::warn!(n, upstream = "noisy", "it says something");
            }
            tracing::warn!(n = 1, upstream = "quiet", "another kind");
            assert!(
                limit
                    .report(false)
                    .is_none_or(|again| again <= Duration::from_secs(1))
            );
            limit.report(true);
            assert_eq!(limit.report(true), None, "a count is said once");
        });
        let of = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        let written = of("\"message\":\"it says something\"");
        // The seconds that pass meanwhile depend on the machine.
        assert!(
            (100..5000).contains(&written) && written.is_multiple_of(100),
            "{written}"
        );
        assert_eq!(of("another kind"), 1);
        let counts = lines
            .iter()
            .filter(|line| line.contains("log rate limited"));
        let counts: Vec<serde_json::Value> = counts
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let left_out: u64 = counts
            .iter()
            .map(|count| count["lines"].as_u64().unwrap())
            .sum();
        assert_eq!(left_out + written as u64, 5000, "{counts:?}");
        assert_eq!(
            (&counts[0]["level"], &counts[0]["upstream"]),
            (&"WARN".into(), &"noisy".into())
        );
        assert_eq!(counts[0]["line"], "it says something");
    }

    // Proves E22.
    #[test]
    fn upstreams_have_their_own_bounds_at_one_place_of_the_code() {
        let lines = logged(|_| {
            for n in 0..300 {
                let upstream = if n < 200 { "one" } else { "two" };
                tracing::info!(%upstream, "the same place");
            }
        });
        for upstream in ["one", "two"] {
            let written = lines
                .iter()
                .filter(|line| line.contains(&format!("\"upstream\":\"{upstream}\"")))
                .count();
            assert!(written >= 100, "{upstream}: {written}");
        }
    }
}

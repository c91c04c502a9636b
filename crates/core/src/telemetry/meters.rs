//! The metrics of an upstream and of its items. This is the one place at which names that upstreams
//! choose become labels: a bounded number have series of their own, and the others are counted
//! together as `other` (F16).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;
use parking_lot::Mutex;
use weir_wire::Revision;
use weir_wire::method::Method;

use crate::call_outcome::CallOutcome;
use crate::list_kind::ListKind;
use crate::names::UpstreamId;
use crate::telemetry::duration_histogram::{CLIENT_DURATION, DurationSeries, MetricLabel};
use crate::telemetry::instruments;
use crate::telemetry::zeroed_counters::start_upstream_at_zero;
use crate::trace::SpanContext;

/// Names with series of their own, unless the config sets another number. With the buckets of one
/// outcome each these are about 1,600 lines of a scrape.
pub const DEFAULT_MAX_NAMES: usize = 80;
/// The label of names beyond that number.
pub const OTHER_NAME: &str = "other";
/// The attribute for a method's name.
const METHOD: &str = "mcp.method.name";

static MAX_NAMES: AtomicUsize = AtomicUsize::new(DEFAULT_MAX_NAMES);
/// The names with series of their own: upstream, attribute and name.
type NameSlots = HashMap<(UpstreamId, &'static str, Arc<str>), Weak<NameSlot>>;

static NAME_SLOTS: LazyLock<Mutex<NameSlots>> = LazyLock::new(Mutex::default);
static UPSTREAMS: LazyLock<Mutex<HashMap<UpstreamId, Weak<UpstreamMeter>>>> =
    LazyLock::new(Mutex::default);

/// The label of an upstream.
#[must_use]
pub fn upstream_label(upstream: &UpstreamId) -> KeyValue {
    KeyValue::new("upstream", upstream.to_string())
}

/// Sets the number of names with series of their own from now on. Names that have some keep them.
pub fn set_max_names(most: usize) {
    MAX_NAMES.store(most, Ordering::Relaxed);
}

/// The number of names with series of their own.
pub(super) fn max_names() -> usize {
    MAX_NAMES.load(Ordering::Relaxed)
}

/// The present upstreams: metrics of others are not shown any more.
#[must_use]
pub fn upstreams() -> HashSet<String> {
    let all = UPSTREAMS.lock();
    all.iter()
        .filter(|(_, meter)| meter.strong_count() > 0)
        .map(|(id, _)| id.to_string())
        .collect()
}

/// The meters of the present upstreams.
pub fn present_meters() -> Vec<Arc<UpstreamMeter>> {
    UPSTREAMS
        .lock()
        .values()
        .filter_map(Weak::upgrade)
        .collect()
}

/// The metrics of one upstream. They are shown as long as this is alive.
pub struct UpstreamMeter {
    id: UpstreamId,
    sent: BoundCounter<u64>,
    received: BoundCounter<u64>,
    /// Calls by the revision they were carried in, in the order of [`Revision::ALL`].
    calls: [OnceLock<BoundCounter<u64>>; Revision::ALL.len()],
    /// Series of items without a name of their own, by attribute, method and outcome.
    unnamed: SeriesByKey,
    /// Methods that no revision knows, by name.
    methods: Mutex<HashMap<Arc<str>, MethodSeries>>,
}

/// The series of one method by outcome, and its slot among the names that have series of their own.
struct MethodSeries {
    by_outcome: Vec<(CallOutcome, Arc<DurationSeries>)>,
    _slot: Option<Arc<NameSlot>>,
}

/// Series by their labels besides the name.
type SeriesByKey = Mutex<Vec<(SeriesKey, Arc<DurationSeries>)>>;

/// The labels of a series besides the name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SeriesKey {
    /// The attribute of the name; absent for items without one.
    attribute: Option<&'static str>,
    method: Method,
    outcome: CallOutcome,
}

impl UpstreamMeter {
    /// The meter of an upstream: the existing one, or a new one.
    #[must_use]
    pub fn of(id: &UpstreamId) -> Arc<Self> {
        let mut all = UPSTREAMS.lock();
        if let Some(meter) = all.get(id).and_then(Weak::upgrade) {
            return meter;
        }
        all.retain(|_, meter| meter.strong_count() > 0);
        let io = |direction| {
            let labels = [
                KeyValue::new("upstream", id.to_string()),
                KeyValue::new("network.io.direction", direction),
            ];
            instruments().upstream_io.bind(&labels)
        };
        let (sent, received) = (io("transmit"), io("receive"));
        let meter = Arc::new(Self {
            id: id.clone(),
            sent,
            received,
            calls: Default::default(),
            unnamed: Mutex::default(),
            methods: Mutex::default(),
        });
        all.insert(id.clone(), Arc::downgrade(&meter));
        start_upstream_at_zero(id);
        meter
    }

    /// Counts bytes of messages that went to it.
    pub fn sent(&self, bytes: usize) {
        self.sent.add(bytes as u64);
    }

    /// Counts bytes that it sent.
    pub fn received(&self, bytes: usize) {
        self.received.add(bytes as u64);
    }

    fn count_revision(&self, revision: Revision) {
        let counter = self.calls[revision as usize].get_or_init(|| {
            let version = KeyValue::new("mcp.protocol.version", revision.as_str());
            instruments()
                .upstream_calls
                .bind(&[KeyValue::new("upstream", self.id.to_string()), version])
        });
        counter.add(1);
    }

    /// The series of items without a name of their own.
    fn series(
        &self,
        attribute: Option<&'static str>,
        method: Method,
        outcome: CallOutcome,
    ) -> Arc<DurationSeries> {
        let name = attribute.map(|attribute| (attribute, Arc::from(OTHER_NAME)));
        let key = SeriesKey {
            attribute,
            method,
            outcome,
        };
        bound_series(&self.unnamed, key, || {
            labels(&self.id, name, method, outcome)
        })
    }

    /// The series of a method that no revision knows. It takes a slot with its first call that
    /// completes: calls of names that a client made up fail.
    fn method(&self, name: &Arc<str>, outcome: CallOutcome) -> Arc<DurationSeries> {
        let mut methods = self.methods.lock();
        if outcome == CallOutcome::Complete && !methods.contains_key(name) {
            let slot = NameSlot::take(&self.id, METHOD, name);
            if slot.is_some() {
                methods.insert(
                    name.clone(),
                    MethodSeries {
                        by_outcome: Vec::new(),
                        _slot: slot,
                    },
                );
            }
        }
        let name = if methods.contains_key(name) {
            name.clone()
        } else {
            Arc::from(OTHER_NAME)
        };
        let none = || MethodSeries {
            by_outcome: Vec::new(),
            _slot: None,
        };
        let series_by_key = &mut methods.entry(name.clone()).or_insert_with(none).by_outcome;
        if let Some((_, series)) = series_by_key.iter().find(|(own, _)| *own == outcome) {
            return series.clone();
        }
        let series = CLIENT_DURATION.series(&with_outcome(
            vec![("upstream", self.id.shared()), (METHOD, name)],
            outcome,
        ));
        series_by_key.push((outcome, series.clone()));
        series
    }
}

fn bound_series(
    series_by_key: &SeriesByKey,
    key: SeriesKey,
    labels: impl FnOnce() -> Vec<MetricLabel>,
) -> Arc<DurationSeries> {
    let mut series_by_key = series_by_key.lock();
    if let Some((_, series)) = series_by_key.iter().find(|(own, _)| *own == key) {
        return series.clone();
    }
    let series = CLIENT_DURATION.series(&labels());
    series_by_key.push((key, series.clone()));
    series
}

fn labels(
    upstream: &UpstreamId,
    name: Option<MetricLabel>,
    method: Method,
    outcome: CallOutcome,
) -> Vec<MetricLabel> {
    let mut all = vec![
        ("upstream", upstream.shared()),
        (METHOD, method.as_str().into()),
    ];
    all.extend(name);
    with_outcome(all, outcome)
}

fn with_outcome(mut all: Vec<MetricLabel>, outcome: CallOutcome) -> Vec<MetricLabel> {
    all.push(("outcome", outcome.as_str().into()));
    if outcome.is_failed() {
        all.push(("error.type", outcome.as_str().into()));
    }
    all
}

/// The metrics of one item of an upstream: a tool, a prompt, its resources.
pub struct ItemMeter {
    /// Lists that are kept for cursors hold items of removed upstreams, whose metrics are not shown.
    upstream: Weak<UpstreamMeter>,
    kind: ListKind,
    /// True for a method that no revision knows.
    is_method: bool,
    name: Arc<str>,
    /// The slot of its name, if it has series of its own; taken with its first call, so that items
    /// that are only listed take none.
    slot: OnceLock<Option<Arc<NameSlot>>>,
    /// The series of calls that completed, looked up once: to look it up costs more than to count
    /// in it.
    completed: OnceLock<Arc<DurationSeries>>,
    others: SeriesByKey,
}

/// A name that has series of its own.
struct NameSlot;

impl ItemMeter {
    /// The meter of a listed item, by its name in the form of a label.
    #[must_use]
    pub fn new(upstream: &Arc<UpstreamMeter>, kind: ListKind, name: String) -> Arc<Self> {
        Arc::new(Self::unused(upstream, kind, name.into()))
    }

    /// The meter of a method that no revision knows.
    #[must_use]
    pub fn of_method(upstream: &Arc<UpstreamMeter>, name: &str) -> Arc<Self> {
        Arc::new(Self {
            is_method: true,
            ..Self::unused(upstream, ListKind::Resources, name.into())
        })
    }

    fn unused(upstream: &Arc<UpstreamMeter>, kind: ListKind, name: Arc<str>) -> Self {
        let upstream = Arc::downgrade(upstream);
        let (slot, completed, others) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        Self {
            upstream,
            kind,
            is_method: false,
            name,
            slot,
            completed,
            others,
        }
    }

    /// Counts a call that ended with this outcome.
    pub fn record_call(
        &self,
        method: Method,
        outcome: CallOutcome,
        time: Duration,
        span: Option<SpanContext>,
    ) {
        let is_usual =
            !self.is_method && outcome == CallOutcome::Complete && method == self.kind.used_by();
        if is_usual && let Some(series) = self.completed.get() {
            return series.record(time, span);
        }
        let Some(series) = self.series(method, outcome) else {
            return;
        };
        series.record(time, span);
        if is_usual {
            // Another call may have set the same series.
            let _ = self.completed.set(series);
        }
    }

    /// Counts a call that was carried in this revision.
    pub fn count_revision(&self, revision: Revision) {
        if let Some(upstream) = self.upstream.upgrade() {
            upstream.count_revision(revision);
        }
    }

    /// Its attribute and its name, in the form of labels.
    #[must_use]
    pub fn name(&self) -> Option<(&'static str, &Arc<str>)> {
        Some((self.kind.name_attribute()?, &self.name))
    }

    /// The series of its calls with this outcome; absent if its upstream is removed.
    fn series(&self, method: Method, outcome: CallOutcome) -> Option<Arc<DurationSeries>> {
        let upstream = self.upstream.upgrade()?;
        if self.is_method {
            return Some(upstream.method(&self.name, outcome));
        }
        let attribute = self.kind.name_attribute();
        let slot = self
            .slot
            .get_or_init(|| NameSlot::take(&upstream.id, attribute?, &self.name));
        let Some((attribute, _)) = attribute.zip(slot.as_ref()) else {
            return Some(upstream.series(attribute, method, outcome));
        };
        let name = (attribute, self.name.clone());
        let key = SeriesKey {
            attribute: Some(attribute),
            method,
            outcome,
        };
        Some(bound_series(&self.others, key, || {
            labels(&upstream.id, Some(name), method, outcome)
        }))
    }
}

impl NameSlot {
    /// Takes a slot among the names that have series of their own: the one that this name has, or
    /// one that is free.
    fn take(upstream: &UpstreamId, attribute: &'static str, name: &Arc<str>) -> Option<Arc<Self>> {
        let mut slots = NAME_SLOTS.lock();
        let key = (upstream.clone(), attribute, name.clone());
        if let Some(slot) = slots.get(&key).and_then(Weak::upgrade) {
            return Some(slot);
        }
        let most = max_names();
        if slots.len() >= most {
            slots.retain(|_, slot| slot.strong_count() > 0);
        }
        // An item with the name `other` is one of the others.
        if slots.len() >= most || **name == *OTHER_NAME {
            return None;
        }
        let slot = Arc::new(Self);
        slots.insert(key, Arc::downgrade(&slot));
        Some(slot)
    }
}

impl fmt::Debug for UpstreamMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamMeter({})", self.id)
    }
}

impl fmt::Debug for ItemMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ItemMeter({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_of_a_removed_upstream_does_not_keep_its_metrics() {
        let id = UpstreamId::new("removed").expect("an id");
        let upstream = UpstreamMeter::of(&id);
        let tool = ItemMeter::new(&upstream, ListKind::Tools, "order".to_owned());
        let call = || {
            let time = Duration::from_millis(1);
            tool.record_call(Method::ToolsCall, CallOutcome::Complete, time, None);
            tool.count_revision(Revision::MODERN);
        };
        call();
        assert!(upstreams().contains("removed"));
        drop(upstream);
        call();
        assert!(!upstreams().contains("removed"));
    }

    // Proves F16.
    #[test]
    fn a_method_that_no_revision_knows_has_series_once_a_call_of_it_completed() {
        let id = UpstreamId::new("maker").expect("an id");
        let upstream = UpstreamMeter::of(&id);
        let took = |name: &str, outcome: CallOutcome| {
            let meter = ItemMeter::of_method(&upstream, name);
            meter.record_call(
                weir_wire::method::Method::Extension,
                outcome,
                Duration::from_millis(3),
                None,
            );
        };
        let names = || {
            let all = CLIENT_DURATION
                .live_series()
                .into_iter()
                .filter(|series| series.labels()[0].1.as_ref() == "maker");
            let name = |series: &Arc<DurationSeries>| {
                (
                    series.labels()[1].1.to_string(),
                    series.counts().buckets.iter().sum(),
                )
            };
            let mut names: Vec<(String, u64)> = all.map(|series| name(&series)).collect();
            names.sort();
            names
        };
        for number in 0..1000 {
            took(
                &format!("made/up-{number}"),
                CallOutcome::Failed("upstream_error"),
            );
        }
        took("acme/stars", CallOutcome::Failed("upstream_error"));
        took("acme/stars", CallOutcome::Complete);
        took("acme/stars", CallOutcome::Complete);
        took("acme/stars", CallOutcome::Failed("upstream_error"));
        let expected = [
            ("acme/stars".to_owned(), 1),
            ("acme/stars".to_owned(), 2),
            (OTHER_NAME.to_owned(), 1001),
        ];
        assert_eq!(names(), expected);
    }

    // Proves F16.
    #[test]
    fn names_make_as_many_series_as_the_config_says_and_one_for_the_others() {
        let id = UpstreamId::new("liar").expect("an id");
        let upstream = UpstreamMeter::of(&id);
        let name_of = |series: &Arc<DurationSeries>| {
            series
                .labels()
                .iter()
                .find(|label| label.0 == "gen_ai.tool.name")
                .cloned()
        };
        let own = || {
            let all = CLIENT_DURATION.live_series();
            let of_liar = |series: &Arc<DurationSeries>| series.labels()[0].1.as_ref() == "liar";
            all.into_iter()
                .filter(of_liar)
                .filter_map(|series| name_of(&series))
                .count()
        };
        let mut alive = Vec::new();
        for number in 0..20_000 {
            let meter = ItemMeter::new(&upstream, ListKind::Tools, format!("tool-{number}"));
            meter.record_call(
                Method::ToolsCall,
                CallOutcome::Complete,
                Duration::from_millis(3),
                None,
            );
            // Most items change every time, and some stay.
            if number < 1000 {
                alive.push(meter);
            }
        }
        assert_eq!(own(), DEFAULT_MAX_NAMES + 1);
        let other = upstream.series(
            Some("gen_ai.tool.name"),
            Method::ToolsCall,
            CallOutcome::Complete,
        );
        assert_eq!(
            other.counts().buckets.iter().sum::<u64>(),
            20_000 - DEFAULT_MAX_NAMES as u64
        );
        // A dropped item leaves its slot to others.
        alive.clear();
        assert_eq!(own(), 1, "the others' sum stays");
        let new = ItemMeter::new(&upstream, ListKind::Tools, "new".to_owned());
        new.record_call(
            Method::ToolsCall,
            CallOutcome::ToolError,
            Duration::from_millis(3),
            None,
        );
        assert_eq!(own(), 2);
        assert!(upstreams().contains("liar"));
        drop((other, new, upstream));
        assert!(
            !upstreams().contains("liar"),
            "and its series are not shown any more"
        );
        assert_eq!(own(), 0);
    }
}

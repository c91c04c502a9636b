//! The cache of an issuer's keys: one fetch at a time, ahead of their expiry, and at most one per
//! cooldown because a request needs an unknown key, or has a signature of none of the known keys.
//!
//! Requests never fetch: they notify the background task ([`KeyKeeper::run`]) and wait a bounded
//! time for its next attempt. A client that disconnects cannot cancel a fetch that others wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use jsonwebtoken::DecodingKey;
use opentelemetry::KeyValue;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use weir_core::port::{FetchRequest, UrlSource, doubled, jittered_by};
use weir_core::telemetry::instruments;

use crate::jwks::discovery::{self, KeysLocation};
use crate::jwks::{JwkSet, MAX_KEY_SET_BYTES};
use crate::settings::{KeySource, SignatureAlgorithm};
use crate::token::JwtParts;
use crate::verifier_ports::VerifierPorts;

/// The time for one document.
const FETCH_TIME: Duration = Duration::from_secs(5);
/// The longest wait of a request for an attempt. Metadata at three locations and the keys, if all
/// of them are slow, take longer: then the request gets "unavailable".
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(6);
/// The shortest time between two fetches that requests cause (C15).
const COOLDOWN: Duration = Duration::from_secs(30);
/// The most requests that may wait for a fetch.
const MAX_WAITING: usize = 1024;
/// The bounds of the lifetime of keys, for any `max-age` of their issuer, and the default without
/// one.
const MIN_KEY_LIFETIME: Duration = Duration::from_secs(300);
const MAX_KEY_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const DEFAULT_KEY_LIFETIME: Duration = Duration::from_secs(3600);
/// The time that the location of the keys is used until the issuer's metadata is read again.
const METADATA_LIFETIME: Duration = Duration::from_secs(3600);
/// The time that the last good keys are used while no others can be fetched.
const MAX_STALE_TIME: Duration = Duration::from_secs(24 * 3600);
/// The time without fresh keys until an error is logged.
const STALE_ALARM_AFTER: Duration = Duration::from_secs(3600);
/// The first and the longest wait after a failure.
const RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The key that a token can be signed with.
pub(crate) struct FoundKey {
    pub(crate) key: DecodingKey,
    /// The generation of the issuer's keys that it is of.
    pub(crate) generation: u64,
}

/// The answer to [`KeyKeeper::find`].
pub(crate) enum KeyLookup {
    /// The key.
    Found(FoundKey),
    /// The issuer has no such key.
    Unknown,
    /// The keys are not available now.
    Unavailable,
    /// The issuer may have published the key since the last fetch, and the next one is possible
    /// after this time.
    New(Duration),
}

/// The keys of one issuer.
pub(crate) struct KeyKeeper {
    issuer: Arc<str>,
    at: KeySource,
    /// The algorithms of the issuer's list. A reload may replace them.
    algorithms: ArcSwap<Vec<SignatureAlgorithm>>,
    ports: VerifierPorts,
    known: ArcSwapOption<KnownKeys>,
    /// Counts the attempts that have ended, for requests that wait for the next one.
    attempts: watch::Sender<u64>,
    wanted: Notify,
    fetching: AtomicBool,
    waiting: AtomicUsize,
    fetch_state: Mutex<FetchState>,
}

/// Keys, and the time of their fetch.
#[derive(Clone)]
struct KnownKeys {
    keys: Arc<JwkSet>,
    /// The URL that they are from.
    url: Arc<str>,
    /// Changes when the keys do.
    generation: u64,
    fetched: Duration,
    /// The time of the first of the failures since then.
    failing_since: Option<Duration>,
}

#[derive(Default)]
struct FetchState {
    /// The time of the last fetch that a request caused.
    forced: Option<Duration>,
    /// Failures in a row.
    failures: u32,
    /// The location that the issuer's metadata names, and the time when it was read.
    place: Option<(KeysLocation, Duration)>,
    alarmed: bool,
}

impl KeyKeeper {
    /// A keeper without keys, or one with the keys of the one `before` it if these are from the
    /// same URL.
    pub(crate) fn new(
        issuer: Arc<str>,
        at: KeySource,
        algorithms: Vec<SignatureAlgorithm>,
        ports: VerifierPorts,
        before: Option<&Self>,
    ) -> Arc<Self> {
        let known = before
            .and_then(|before| before.known.load_full())
            .filter(|known| matches!(&at, KeySource::Url(url) if **url == *known.url));
        Arc::new(Self {
            issuer,
            at,
            algorithms: ArcSwap::from_pointee(algorithms),
            ports,
            known: ArcSwapOption::new(known),
            attempts: watch::Sender::new(0),
            wanted: Notify::new(),
            fetching: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            fetch_state: Mutex::default(),
        })
    }

    /// True if it keeps keys of this location.
    pub(crate) fn is_same_source(&self, at: &KeySource) -> bool {
        self.at == *at
    }

    /// Takes the algorithms of new settings. The keys stay; if none of them fits the algorithms,
    /// they are fetched again at once.
    pub(crate) fn use_algorithms(&self, algorithms: &[SignatureAlgorithm]) {
        if **self.algorithms.load() == algorithms {
            return;
        }
        self.algorithms.store(Arc::new(algorithms.to_vec()));
        let known = self.known.load();
        if !known
            .as_ref()
            .is_some_and(|known| known.keys.has_any_of(algorithms))
        {
            self.wanted.notify_one();
        }
    }

    /// True once keys were fetched.
    pub(crate) fn is_ready(&self) -> bool {
        self.known.load().is_some()
    }

    /// Returns if there are keys to check with, the number of failures in a row, and the age of the
    /// keys.
    pub(crate) fn status(&self) -> (bool, u32, Option<Duration>) {
        let now = self.ports.clock.monotonic();
        let age = self
            .known
            .load()
            .as_ref()
            .map(|known| now.saturating_sub(known.fetched));
        (
            self.fresh().is_some(),
            self.fetch_state.lock().failures,
            age,
        )
    }

    /// A number that changes whenever the keys do; results with earlier keys must be checked again.
    pub(crate) fn generation(&self) -> u64 {
        self.fresh().map_or(0, |known| known.generation)
    }

    /// Looks the key of a token up. For an unknown key it waits for a fetch if one is in progress or
    /// may be made now. Cancel safe.
    ///
    /// `tried` is the generation of the keys that the token's signature does not fit. These keys
    /// count as unknown, because an issuer may have replaced a key under its id, or without one.
    pub(crate) async fn find(&self, parts: &JwtParts<'_>, tried: Option<u64>) -> KeyLookup {
        let (kid, algorithm) = (parts.kid.as_deref(), parts.algorithm);
        let look_up = |known: &KnownKeys| {
            let generation = known.generation;
            let key = known.keys.find(kid, algorithm);
            key.filter(|_| tried != Some(generation))
                .map(|key| FoundKey { key, generation })
        };
        // Subscribed before the lookup, so that an attempt that ends after it is not missed.
        let mut attempts = self.attempts.subscribe();
        let known = self.fresh();
        if let Some(found) = known.as_deref().and_then(look_up) {
            return KeyLookup::Found(found);
        }
        let missing = |known: Option<&KnownKeys>| match known {
            // The issuer may have published the key since the last fetch that did not fail. A
            // signature that does not fit its known key is forged as a rule.
            Some(known) if known.failing_since.is_none() || tried.is_some() => KeyLookup::Unknown,
            _ => KeyLookup::Unavailable,
        };
        // No key id is remembered as unknown: a token may use a key before its issuer publishes it.
        if !self.fetching.load(Ordering::Acquire)
            && let Err(cooldown) = self.request_fetch()
        {
            let is_newer = |known: &KnownKeys| {
                let issued = parts.claimed_issue_time();
                tried.is_none() && issued.is_some_and(|issued| issued >= self.fetch_time(known))
            };
            let lookup = missing(known.as_deref());
            let is_unknown = matches!(lookup, KeyLookup::Unknown);
            // Any sender can cause the last fetch, so the first token of a new key may come within
            // its cooldown.
            return if is_unknown && known.as_deref().is_some_and(is_newer) {
                KeyLookup::New(cooldown)
            } else {
                lookup
            };
        }
        let Some(_waiting) = KeyWaiter::begin(&self.waiting) else {
            return KeyLookup::Unavailable;
        };
        if tokio::time::timeout(LOOKUP_TIMEOUT, attempts.changed())
            .await
            .is_err()
        {
            return KeyLookup::Unavailable;
        }
        let known = self.fresh();
        match known.as_deref().and_then(look_up) {
            Some(found) => KeyLookup::Found(found),
            None => missing(known.as_deref()),
        }
    }

    /// The keys, unless no others could be fetched for too long.
    fn fresh(&self) -> Option<Arc<KnownKeys>> {
        let known = self.known.load_full()?;
        let is_stale = known.failing_since.is_some_and(|since| {
            self.ports.clock.monotonic().saturating_sub(since) >= MAX_STALE_TIME
        });
        (!is_stale).then_some(known)
    }

    /// The wall-clock time of the fetch of keys, in seconds since 1970.
    fn fetch_time(&self, known: &KnownKeys) -> u64 {
        let clock = &self.ports.clock;
        let age = clock.monotonic().saturating_sub(known.fetched);
        let now = clock.wall().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().saturating_sub(age).as_secs()
    }

    /// Requests a fetch from the background task. The result of the last one does not matter.
    ///
    /// # Errors
    ///
    /// The time that is left of the cooldown since the last request.
    fn request_fetch(&self) -> Result<(), Duration> {
        let now = self.ports.clock.monotonic();
        let mut state = self.fetch_state.lock();
        let since = state.forced.map(|last| now.saturating_sub(last));
        if let Some(since) = since.filter(|since| *since < COOLDOWN) {
            return Err(COOLDOWN - since);
        }
        state.forced = Some(now);
        // A new key may be at a new location, while the old one still answers.
        state.place = None;
        drop(state);
        self.fetching.store(true, Ordering::Release);
        self.wanted.notify_one();
        Ok(())
    }

    /// The background task: fetches at once, then ahead of every expiry, after failures, and on
    /// request. Never ends; drop it to end it.
    pub(crate) async fn run(self: Arc<Self>) {
        for result in ["ok", "error"] {
            self.count_fetch(result, 0);
        }
        loop {
            self.fetching.store(true, Ordering::Release);
            let next = self.attempt().await;
            self.fetching.store(false, Ordering::Release);
            self.attempts.send_modify(|count| *count += 1);
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = self.wanted.notified() => {}
            }
        }
    }

    fn count_fetch(&self, result: &'static str, count: u64) {
        let labels = [
            KeyValue::new("issuer", self.issuer.to_string()),
            KeyValue::new("result", result),
        ];
        instruments().jwks_fetches.add(count, &labels);
    }

    /// Fetches the keys; returns the time until the next attempt.
    async fn attempt(&self) -> Duration {
        let outcome = self.fetch().await;
        let now = self.ports.clock.monotonic();
        let wait = match outcome {
            Ok((keys, url, max_age)) => {
                self.count_fetch("ok", 1);
                self.keep_keys(keys, url, now);
                let age = max_age
                    .unwrap_or(DEFAULT_KEY_LIFETIME)
                    .clamp(MIN_KEY_LIFETIME, MAX_KEY_LIFETIME);
                // At 80 % of their lifetime, to survive a short outage of the provider.
                jittered_by(age.mul_f64(0.8), 0.1, &*self.ports.random)
            }
            Err(why) => {
                self.count_fetch("error", 1);
                self.fail(&why, now)
            }
        };
        let age = self
            .known
            .load()
            .as_ref()
            .map(|known| now.saturating_sub(known.fetched).as_secs());
        if let Some(age) = age {
            instruments()
                .jwks_age
                .record(age, &[KeyValue::new("issuer", self.issuer.to_string())]);
        }
        wait
    }

    fn keep_keys(&self, keys: JwkSet, url: String, now: Duration) {
        let before = self.known.load_full();
        let changed = before.as_ref().is_none_or(|known| *known.keys != keys);
        let generation = before.map_or(0, |known| known.generation) + u64::from(changed);
        if changed {
            tracing::info!(issuer = &*self.issuer, keys = keys.len(), "jwks fetched");
            if keys.left_out() > 0 {
                tracing::warn!(
                    issuer = &*self.issuer,
                    keys = keys.len(),
                    left_out = keys.left_out(),
                    "jwks has too many keys, ignoring the last ones"
                );
            }
        }
        self.known.store(Some(Arc::new(KnownKeys {
            keys: Arc::new(keys),
            url: url.into(),
            generation,
            fetched: now,
            failing_since: None,
        })));
        let mut state = self.fetch_state.lock();
        state.failures = 0;
        state.alarmed = false;
    }

    fn fail(&self, why: &str, now: Duration) -> Duration {
        let mut state = self.fetch_state.lock();
        state.failures += 1;
        // The metadata may have moved.
        state.place = None;
        let old = self.known.load_full().map(|known| {
            let since = known.failing_since.unwrap_or(now);
            if known.failing_since.is_none() {
                self.known.store(Some(Arc::new(KnownKeys {
                    failing_since: Some(since),
                    ..KnownKeys::clone(&known)
                })));
            }
            now.saturating_sub(since)
        });
        let issuer = &*self.issuer;
        match old {
            Some(outage) if outage >= STALE_ALARM_AFTER && !state.alarmed => {
                state.alarmed = true;
                tracing::error!(
                    issuer,
                    why,
                    "jwks fetch failing for an hour, cached keys expire after a day"
                );
            }
            Some(_) => tracing::warn!(issuer, why, "jwks fetch failed, using cached keys"),
            None => tracing::warn!(
                issuer,
                why,
                "jwks fetch failed, no cached keys, rejecting tokens"
            ),
        }
        let wait = doubled(RETRY, state.failures - 1, MAX_RETRY);
        drop(state);
        jittered_by(wait, 0.5, &*self.ports.random)
    }

    /// Fetches the keys without keeping them; returns their number.
    pub(crate) async fn count_keys(&self) -> Result<usize, String> {
        self.fetch().await.map(|(keys, ..)| keys.len())
    }

    async fn fetch(&self) -> Result<(JwkSet, String, Option<Duration>), String> {
        let place = self.place().await?;
        let ask = FetchRequest {
            url: &place.url,
            form: None,
            authorization: None,
            limit: MAX_KEY_SET_BYTES,
            timeout: FETCH_TIME,
            url_source: place.named_by,
        };
        let fetched = self
            .ports
            .fetch
            .fetch(ask)
            .await
            .map_err(|failure| format!("{}: {}", place.url, failure.cause()))?;
        if fetched.status != 200 {
            return Err(format!("{}: status {}", place.url, fetched.status));
        }
        let keys = JwkSet::read(&fetched.body);
        let keys = keys.ok_or_else(|| format!("{}: holds no key that could be used", place.url))?;
        let listed = self.algorithms.load();
        if !keys.has_any_of(&listed) {
            let (held, listed) = (keys.algorithms(), listed.iter().copied());
            return Err(format!(
                "{}: its keys are for {}, and `algorithms` has {}",
                place.url,
                names(held),
                names(listed)
            ));
        }
        Ok((keys, place.url, fetched.max_age))
    }

    async fn place(&self) -> Result<KeysLocation, String> {
        match &self.at {
            KeySource::Url(url) => Ok(KeysLocation {
                url: url.clone(),
                named_by: UrlSource::Operator,
            }),
            KeySource::Metadata => {
                let now = self.ports.clock.monotonic();
                let known = self.fetch_state.lock().place.clone();
                if let Some((place, read)) = known
                    && now.saturating_sub(read) < METADATA_LIFETIME
                {
                    return Ok(place);
                }
                let place = discovery::find(&*self.ports.fetch, &self.issuer, FETCH_TIME).await?;
                self.fetch_state.lock().place = Some((place.clone(), now));
                Ok(place)
            }
        }
    }
}

/// The names of algorithms, each once.
fn names(algorithms: impl Iterator<Item = SignatureAlgorithm>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in algorithms.map(SignatureAlgorithm::name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// A request that waits; their number is bounded.
struct KeyWaiter<'a>(&'a AtomicUsize);

impl<'a> KeyWaiter<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let place = Self(count);
        // Dropped, and so counted back, if the bound is reached.
        (count.fetch_add(1, Ordering::AcqRel) < MAX_WAITING).then_some(place)
    }
}

impl Drop for KeyWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

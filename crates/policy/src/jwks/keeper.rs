//! The cache of an issuer's keys: one fetch at a time, ahead of their expiry, and at most one per
//! cooldown because a request needs an unknown key.
//!
//! Requests never fetch: they notify the background task ([`Keeper::keep`]) and wait a bounded time
//! for its next attempt. A client that disconnects cannot cancel a fetch that others wait for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jsonwebtoken::DecodingKey;
use opentelemetry::KeyValue;
use tokio::sync::{Notify, watch};
use weir_core::port::{Clock, DocumentFetcher, FetchRequest, Random, UrlSource};
use weir_core::telemetry::instruments;

use super::discovery::{self, Place};
use super::{KeySet, LARGEST};
use crate::settings::{Algorithm, KeysAt};

/// The time for one document.
const FETCH_TIME: Duration = Duration::from_secs(5);
/// The longest wait of a request for an attempt. Metadata at three locations and the keys, if all
/// of them are slow, take longer: then the request gets "unavailable".
const WAIT: Duration = Duration::from_secs(6);
/// The shortest time between two fetches that unknown keys cause (C15).
const COOLDOWN: Duration = Duration::from_secs(30);
/// The most requests that may wait for a fetch.
const MOST_WAITING: usize = 1024;
/// The bounds of the lifetime of keys, for any `max-age` of their issuer, and the default without
/// one.
const SHORTEST: Duration = Duration::from_secs(300);
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const USUAL: Duration = Duration::from_secs(3600);
/// The time that the last good keys are used if no others can be fetched.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// The time without fresh keys until an error is logged.
const ALARM: Duration = Duration::from_secs(3600);
/// The first and the longest wait after a failure.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// The ports that the keeper depends on.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) fetch: Arc<dyn DocumentFetcher>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
}

/// The answer to [`Keeper::find`].
pub(crate) enum Lookup {
    /// The key.
    Found(DecodingKey),
    /// The issuer has no such key.
    Unknown,
    /// The keys are not available now.
    Unavailable,
}

/// The keys of one issuer.
pub(crate) struct Keeper {
    issuer: Arc<str>,
    at: KeysAt,
    algorithms: Vec<Algorithm>,
    world: World,
    known: ArcSwapOption<Known>,
    /// Counts the attempts that have ended, for requests that wait for the next one.
    attempts: watch::Sender<u64>,
    wanted: Notify,
    fetching: AtomicBool,
    waiting: AtomicUsize,
    book: Mutex<Book>,
}

/// Keys, and the time of their fetch.
struct Known {
    keys: KeySet,
    /// Changes when the keys do.
    generation: u64,
    fetched: Duration,
}

#[derive(Default)]
struct Book {
    /// The time of the last fetch that unknown keys caused.
    forced: Option<Duration>,
    /// Failures in a row.
    failures: u32,
    place: Option<Place>,
    alarmed: bool,
}

impl Keeper {
    pub(crate) fn new(
        issuer: Arc<str>,
        at: KeysAt,
        algorithms: Vec<Algorithm>,
        world: World,
    ) -> Arc<Self> {
        Arc::new(Self {
            issuer,
            at,
            algorithms,
            world,
            known: ArcSwapOption::empty(),
            attempts: watch::Sender::new(0),
            wanted: Notify::new(),
            fetching: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            book: Mutex::default(),
        })
    }

    /// True if it keeps keys of this location for these algorithms.
    pub(crate) fn is_of(&self, at: &KeysAt, algorithms: &[Algorithm]) -> bool {
        self.at == *at && self.algorithms == algorithms
    }

    /// True once keys were fetched.
    pub(crate) fn is_ready(&self) -> bool {
        self.known.load().is_some()
    }

    /// Returns if there are keys to check with, the number of failures in a row, and the age of the
    /// keys.
    pub(crate) fn status(&self) -> (bool, u32, Option<Duration>) {
        let now = self.world.clock.monotonic();
        let age = self
            .known
            .load()
            .as_ref()
            .map(|known| now.saturating_sub(known.fetched));
        (self.fresh().is_some(), self.book().failures, age)
    }

    /// A number that changes whenever the keys do; results with earlier keys must be checked again.
    pub(crate) fn generation(&self) -> u64 {
        self.fresh().map_or(0, |known| known.generation)
    }

    /// Looks a key up. For an unknown key it waits for a fetch if one is in progress or may be made
    /// now. Cancel safe.
    pub(crate) async fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Lookup {
        // Subscribed before the lookup, so that an attempt that ends after it is not missed.
        let mut attempts = self.attempts.subscribe();
        let known = self.fresh();
        if let Some(key) = known
            .as_ref()
            .and_then(|known| known.keys.find(kid, algorithm))
        {
            return Lookup::Found(key);
        }
        let missing = if known.is_some() {
            Lookup::Unknown
        } else {
            Lookup::Unavailable
        };
        // No key id is remembered as unknown: a token may use a key before its issuer publishes it.
        let asked = self.fetching.load(Ordering::Acquire) || self.may_force();
        if !asked {
            return missing;
        }
        let Some(_waiting) = Waiting::begin(&self.waiting) else {
            return Lookup::Unavailable;
        };
        if tokio::time::timeout(WAIT, attempts.changed())
            .await
            .is_err()
        {
            return Lookup::Unavailable;
        }
        let Some(known) = self.fresh() else {
            return Lookup::Unavailable;
        };
        match known.keys.find(kid, algorithm) {
            Some(key) => Lookup::Found(key),
            None => Lookup::Unknown,
        }
    }

    /// The keys, unless they are too old to be trusted.
    fn fresh(&self) -> Option<Arc<Known>> {
        let known = self.known.load_full()?;
        (self.world.clock.monotonic().saturating_sub(known.fetched) < STALE).then_some(known)
    }

    /// Requests a fetch from the background task, if the cooldown since the last request is over.
    /// The result of the last one does not matter.
    fn may_force(&self) -> bool {
        let now = self.world.clock.monotonic();
        let mut book = self.book();
        if book
            .forced
            .is_some_and(|last| now.saturating_sub(last) < COOLDOWN)
        {
            return false;
        }
        book.forced = Some(now);
        drop(book);
        self.fetching.store(true, Ordering::Release);
        self.wanted.notify_one();
        true
    }

    /// The background task: fetches at once, then ahead of every expiry, after failures, and on
    /// request. Never ends; drop it to end it.
    pub(crate) async fn keep(self: Arc<Self>) {
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
        let now = self.world.clock.monotonic();
        let wait = match outcome {
            Ok((keys, max_age)) => {
                self.count_fetch("ok", 1);
                self.keep_keys(keys, now);
                let age = max_age.unwrap_or(USUAL).clamp(SHORTEST, LONGEST);
                // At 80 % of their lifetime, to survive a short outage of the provider.
                self.jitter(age.mul_f64(0.8), 0.1)
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

    fn keep_keys(&self, keys: KeySet, now: Duration) {
        let before = self.known.load_full();
        let changed = before.as_ref().is_none_or(|known| known.keys != keys);
        let generation = before.map_or(0, |known| known.generation) + u64::from(changed);
        if changed {
            tracing::info!(
                issuer = &*self.issuer,
                keys = keys.len(),
                "the keys of an issuer are there"
            );
        }
        self.known.store(Some(Arc::new(Known {
            keys,
            generation,
            fetched: now,
        })));
        let mut book = self.book();
        book.failures = 0;
        book.alarmed = false;
    }

    fn fail(&self, why: &str, now: Duration) -> Duration {
        let mut book = self.book();
        book.failures += 1;
        // The metadata may have moved.
        book.place = None;
        let old = self
            .known
            .load()
            .as_ref()
            .map(|known| now.saturating_sub(known.fetched));
        let issuer = &*self.issuer;
        match old {
            Some(age) if age >= ALARM && !book.alarmed => {
                book.alarmed = true;
                tracing::error!(
                    issuer,
                    why,
                    "no fresh keys of this issuer for an hour: the old ones serve for a day"
                );
            }
            Some(_) => tracing::warn!(
                issuer,
                why,
                "keys of an issuer cannot be fetched: the last ones serve on"
            ),
            None => tracing::warn!(
                issuer,
                why,
                "keys of an issuer cannot be fetched: its tokens are not taken yet"
            ),
        }
        let wait = RETRY
            .saturating_mul(1 << (book.failures - 1).min(6))
            .min(LONGEST_RETRY);
        drop(book);
        self.jitter(wait, 0.5)
    }

    async fn fetch(&self) -> Result<(KeySet, Option<Duration>), String> {
        let place = self.place().await?;
        let ask = FetchRequest {
            url: &place.url,
            form: None,
            authorization: None,
            limit: LARGEST,
            timeout: FETCH_TIME,
            url_source: place.named_by,
        };
        let fetched = self
            .world
            .fetch
            .fetch(ask)
            .await
            .map_err(|failure| format!("{}: {failure}", place.url))?;
        if fetched.status != 200 {
            return Err(format!("{}: status {}", place.url, fetched.status));
        }
        let keys = KeySet::read(&fetched.body, &self.algorithms);
        let keys = keys.ok_or_else(|| format!("{}: holds no key that could be used", place.url))?;
        Ok((keys, fetched.max_age))
    }

    async fn place(&self) -> Result<Place, String> {
        match &self.at {
            KeysAt::Url(url) => Ok(Place {
                url: url.clone(),
                named_by: UrlSource::Operator,
            }),
            KeysAt::Metadata => {
                if let Some(place) = self.book().place.clone() {
                    return Ok(place);
                }
                let place = discovery::find(&*self.world.fetch, &self.issuer, FETCH_TIME).await?;
                self.book().place = Some(place.clone());
                Ok(place)
            }
        }
    }

    /// `time`, shorter or longer by at most this fraction, so that replicas do not fetch all at
    /// once.
    fn jitter(&self, time: Duration, part: f64) -> Duration {
        let mut luck = [0];
        self.world.random.fill(&mut luck);
        time.mul_f64(1.0 - part + 2.0 * part * f64::from(luck[0]) / 255.0)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits; their number is bounded.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let place = Self(count);
        // Dropped, and so counted back, if the bound is reached.
        (count.fetch_add(1, Ordering::AcqRel) < MOST_WAITING).then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

//! DNS for upstreams: a cache of a server's addresses, one look-up at a time, and never more than
//! two addresses to dial.
//!
//! The machine's resolver gives no lifetime of an answer, so weir uses it for a few seconds: a
//! burst of new connections asks once, and a server that moved is found soon. While look-ups fail,
//! the last answer serves for a minute: a resolver that is down or slow does not take down servers
//! that did not move.
//!
//! The cache is not used for names that outsiders give: those are looked up for every connection
//! (see `guard`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use hyper_util::client::legacy::connect::dns::Name;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::Service;
use weir_core::port::BoxFuture;

/// The time for which an answer is used without asking again.
const DNS_TTL: Duration = Duration::from_secs(5);
/// The time for which an answer is used if asking again fails.
const STALE_TTL: Duration = Duration::from_secs(60);
/// The longest wait for a new answer while the last one can still be used.
const STALE_WAIT: Duration = Duration::from_millis(500);

/// A resolver of names.
pub(crate) trait AddressLookup: Send + Sync {
    /// Looks up all current addresses of a name.
    fn addresses(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The machine's own resolver.
#[derive(Debug)]
pub(crate) struct SystemLookup;

impl AddressLookup for SystemLookup {
    fn addresses(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            // The port does not matter to a look-up.
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The resolver of a client's connector. It gives at most two addresses of a name.
#[derive(Clone)]
pub(crate) struct DnsResolver(Arc<dyn AddressLookup>);

impl DnsResolver {
    /// Resolves names by `names`.
    pub(crate) fn new(names: Arc<dyn AddressLookup>) -> Self {
        Self(names)
    }
}

impl Service<Name> for DnsResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = self.0.addresses(name.as_str().to_owned());
        Box::pin(async move {
            let found = lookup.await?;
            let dialled: Vec<_> = select_two(&found)
                .map(|address| SocketAddr::new(address, 0))
                .collect();
            Ok(dialled.into_iter())
        })
    }
}

/// Selects at most two addresses: the first, which the machine prefers, and the first of the other
/// family, or else the second. The connector tries one of the other family shortly after the first
/// (RFC 8305), and one of the same family after half of its time, so a longer list would only be a
/// longer wait.
fn select_two(found: &[IpAddr]) -> impl Iterator<Item = IpAddr> + use<> {
    let first = found.first().copied();
    let other = found
        .iter()
        .find(|address| first.is_some_and(|first| first.is_ipv4() != address.is_ipv4()));
    first.into_iter().chain(other.or(found.get(1)).copied())
}

/// A look-up in flight, shared by all that wait for it. An abandoned look-up is kept for the next
/// caller: its thread cannot be cancelled, and a new one each time would use the threads up.
type SharedLookup = Shared<BoxFuture<'static, Result<DnsAnswer, Arc<io::Error>>>>;

#[derive(Clone)]
struct DnsAnswer {
    found: Arc<[IpAddr]>,
    at: Instant,
}

#[derive(Default)]
struct DnsCacheState {
    name: String,
    last: Option<DnsAnswer>,
    flight: Option<SharedLookup>,
}

/// The cached addresses of one server's name. Clones share the cache.
#[derive(Clone)]
pub(crate) struct DnsCache {
    names: Arc<dyn AddressLookup>,
    state: Arc<Mutex<DnsCacheState>>,
}

impl DnsCache {
    /// Looks names up by `names`.
    pub(crate) fn new(names: Arc<dyn AddressLookup>) -> Self {
        Self {
            names,
            state: Arc::default(),
        }
    }

    /// Returns the addresses of `name`. Fails if the look-up fails and the cache has no answer of
    /// the last minute. Dropping the future leaves the look-up to the next caller.
    async fn resolve(self, name: String) -> Result<Arc<[IpAddr]>, Arc<io::Error>> {
        let (last, flight) = {
            let mut state = self.state.lock();
            if state.name != name {
                *state = DnsCacheState {
                    name: name.clone(),
                    ..DnsCacheState::default()
                };
            }
            if let Some(answer) = state
                .last
                .as_ref()
                .filter(|answer| answer.at.elapsed() < DNS_TTL)
            {
                return Ok(answer.found.clone());
            }
            (
                state
                    .last
                    .clone()
                    .filter(|answer| answer.at.elapsed() < STALE_TTL),
                self.shared_lookup(&mut state),
            )
        };
        let answered = match &last {
            None => Some(flight.clone().await),
            Some(_) => tokio::time::timeout(STALE_WAIT, flight.clone()).await.ok(),
        };
        match (answered, last) {
            (Some(Ok(answer)), _) => {
                self.finish_lookup(&name, &flight, Some(answer.clone()));
                Ok(answer.found)
            }
            (Some(Err(error)), last) => {
                self.finish_lookup(&name, &flight, None);
                last.map(|answer| answer.found).ok_or(error)
            }
            (None, Some(answer)) => Ok(answer.found),
            // Without a last answer the look-up has no time limit here.
            (None, None) => Err(Arc::new(io::ErrorKind::TimedOut.into())),
        }
    }

    fn shared_lookup(&self, state: &mut DnsCacheState) -> SharedLookup {
        let begin = || {
            let lookup = self.names.addresses(state.name.clone());
            let answered: BoxFuture<'static, _> = Box::pin(async move {
                match lookup.await {
                    Ok(found) if found.is_empty() => Err(Arc::new(io::ErrorKind::NotFound.into())),
                    Ok(found) => Ok(DnsAnswer {
                        found: found.into(),
                        at: Instant::now(),
                    }),
                    Err(error) => Err(Arc::new(error)),
                }
            });
            answered.shared()
        };
        state.flight.get_or_insert_with(begin).clone()
    }

    fn finish_lookup(&self, name: &str, flight: &SharedLookup, answer: Option<DnsAnswer>) {
        let mut state = self.state.lock();
        if state.name != name
            || !state
                .flight
                .as_ref()
                .is_some_and(|current| current.ptr_eq(flight))
        {
            return;
        }
        state.flight = None;
        if answer.is_some() {
            state.last = answer;
        }
    }
}

impl AddressLookup for DnsCache {
    fn addresses(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let lookup = self.clone().resolve(name);
        Box::pin(async move {
            let found = lookup
                .await
                .map_err(|error| io::Error::new(error.kind(), error))?;
            Ok(found.to_vec())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The delay of a look-up in milliseconds, and its outcome.
    type LookupStep = (u64, Result<Vec<IpAddr>, io::ErrorKind>);

    struct ScriptedLookup {
        steps: Mutex<VecDeque<LookupStep>>,
        asked: AtomicUsize,
    }

    impl AddressLookup for ScriptedLookup {
        fn addresses(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let (after, answer) = self.steps.lock().pop_front().unwrap();
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                answer.map_err(io::Error::from)
            })
        }
    }

    fn script(steps: impl IntoIterator<Item = LookupStep>) -> (DnsCache, Arc<ScriptedLookup>) {
        let script = Arc::new(ScriptedLookup {
            steps: Mutex::new(steps.into_iter().collect()),
            asked: AtomicUsize::new(0),
        });
        (DnsCache::new(script.clone()), script)
    }

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    async fn dialled(addresses: &DnsCache) -> Result<Vec<IpAddr>, String> {
        let name = "server.example".parse().unwrap();
        let found = DnsResolver::new(Arc::new(addresses.clone()))
            .call(name)
            .await
            .map_err(|error| error.to_string())?;
        Ok(found.map(|address| address.ip()).collect())
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    // Proves E19.
    #[tokio::test(start_paused = true)]
    async fn answer_is_cached_for_seconds() {
        let (addresses, script) = script([(0, Ok(vec![v4(1)])), (0, Ok(vec![v4(2)]))]);
        for _ in 0..100 {
            assert_eq!(dialled(&addresses).await.unwrap(), [v4(1)]);
        }
        assert_eq!(script.asked.load(Ordering::Relaxed), 1);
        pass(6).await;
        assert_eq!(dialled(&addresses).await.unwrap(), [v4(2)], "moved");
    }

    // Proves E19.
    #[tokio::test(start_paused = true)]
    async fn while_names_cannot_be_looked_up_the_last_answer_serves_for_a_minute() {
        let gone = || (0, Err(io::ErrorKind::NotFound));
        let steps = [
            (0, Ok(vec![v4(1)])),
            gone(),
            (0, Ok(Vec::new())),
            gone(),
            (0, Ok(vec![v4(3)])),
        ];
        let (addresses, _) = script(steps);
        assert_eq!(dialled(&addresses).await.unwrap(), [v4(1)]);
        for _ in 0..2 {
            pass(10).await;
            assert_eq!(dialled(&addresses).await.unwrap(), [v4(1)]);
        }
        pass(50).await;
        assert!(dialled(&addresses).await.is_err(), "a minute is over");
        assert_eq!(
            dialled(&addresses).await.unwrap(),
            [v4(3)],
            "a failure is not kept"
        );
    }

    // Proves E19.
    #[tokio::test(start_paused = true)]
    async fn slow_lookup_is_shared_and_the_stale_answer_serves_meanwhile() {
        let (addresses, script) = script([
            (0, Ok(vec![v4(1)])),
            (30_000, Ok(vec![v4(2)])),
            (0, Ok(vec![v4(4)])),
        ]);
        assert_eq!(dialled(&addresses).await.unwrap(), [v4(1)]);
        pass(6).await;
        let begun = Instant::now();
        let all = futures_util::future::join_all((0..50).map(|_| dialled(&addresses))).await;
        assert!(all.iter().all(|found| found.as_ref().unwrap() == &[v4(1)]));
        assert!(begun.elapsed() <= STALE_WAIT * 2, "{:?}", begun.elapsed());
        pass(30).await;
        assert_eq!(
            dialled(&addresses).await.unwrap(),
            [v4(2)],
            "the slow answer was not lost"
        );
        assert_eq!(script.asked.load(Ordering::Relaxed), 2);
    }

    // Proves E19.
    #[tokio::test(start_paused = true)]
    async fn a_thousand_addresses_are_two_dials_one_of_each_family_where_there_are_both() {
        let many: Vec<_> = (0..1000)
            .map(|n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes()))
            .collect();
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        let mixed: Vec<_> = many.iter().copied().chain([six]).collect();
        let (addresses, _) = script([(0, Ok(many.clone())), (0, Ok(mixed))]);
        assert_eq!(dialled(&addresses).await.unwrap(), many[..2]);
        pass(6).await;
        assert_eq!(dialled(&addresses).await.unwrap(), [many[0], six]);
    }

    // Proves E19.
    #[tokio::test(start_paused = true)]
    async fn abandoned_lookup_serves_the_next_caller() {
        let (addresses, script) = script([(20_000, Ok(vec![v4(1)]))]);
        for _ in 0..3 {
            let given_up = tokio::time::timeout(Duration::from_secs(5), dialled(&addresses)).await;
            assert!(given_up.is_err());
        }
        assert_eq!(dialled(&addresses).await.unwrap(), [v4(1)]);
        assert_eq!(script.asked.load(Ordering::Relaxed), 1);
    }
}

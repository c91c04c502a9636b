//! The subscribers of one upstream's resources, and the subscriptions that the server has consented
//! to.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::KeyValue;
use tokio::sync::{Notify, oneshot};

use super::Consent;
use super::inbox::Inbox;
use crate::catalog::Item;
use crate::failure::Failure;
use crate::names::{EndpointId, UpstreamId};
use crate::principal::Principal;
use crate::telemetry::instruments;
use crate::upstream::Unheard;

/// A client's subscription to one resource.
#[derive(Clone)]
pub(in crate::catalog) struct Subscriber {
    pub(in crate::catalog) principal: Principal,
    pub(in crate::catalog) endpoint: EndpointId,
    /// The resource, under the client's name for it.
    pub(in crate::catalog) item: Item,
    pub(in crate::catalog) inbox: Inbox,
}

/// The table of one upstream.
pub(super) struct Table {
    pub(super) upstream: UpstreamId,
    /// Notified when the wanted subscriptions changed.
    pub(super) bell: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the server's own URIs. Bounded by the clients' subscriptions.
    wanted: HashMap<Arc<str>, Wanted>,
    next: u64,
    /// True if the server does not know the wanted subscriptions yet.
    changed: bool,
}

#[derive(Default)]
struct Wanted {
    subscribers: Vec<(u64, Subscriber)>,
    /// True once the server consented, until its stream is lost.
    held: bool,
    waiting: Vec<oneshot::Sender<Result<(), Failure>>>,
}

impl Table {
    pub(super) fn new(upstream: UpstreamId) -> Self {
        Self {
            upstream,
            bell: Notify::new(),
            state: Mutex::default(),
        }
    }

    /// Adds a client. Returns its number, and the server's consent as soon as that is known.
    pub(super) fn enter(&self, subscriber: Subscriber) -> (u64, Consent) {
        let mut state = self.lock();
        state.next += 1;
        let nth = state.next;
        let wanted = state
            .wanted
            .entry(subscriber.item.tool.native.clone())
            .or_default();
        wanted.subscribers.push((nth, subscriber));
        let consent = (!wanted.held).then(|| {
            let (told, consent) = oneshot::channel();
            wanted.waiting.push(told);
            consent
        });
        if consent.is_some() {
            state.changed = true;
            self.bell.notify_one();
        }
        instruments().subscriptions.add(1, &[self.label()]);
        (nth, consent)
    }

    pub(super) fn leave(&self, native: &Arc<str>, nth: u64) {
        let mut state = self.lock();
        let Some(wanted) = state.wanted.get_mut(native) else {
            return;
        };
        wanted.subscribers.retain(|(own, _)| *own != nth);
        if wanted.subscribers.is_empty() {
            state.wanted.remove(native);
            state.changed = true;
            self.bell.notify_one();
        }
        instruments().subscriptions.add(-1, &[self.label()]);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().wanted.is_empty()
    }

    /// The wanted resources, in order, if they changed since the last time.
    pub(super) fn changed(&self) -> Option<Vec<Arc<str>>> {
        let mut state = self.lock();
        if !std::mem::take(&mut state.changed) {
            return None;
        }
        let mut wanted: Vec<_> = state.wanted.keys().cloned().collect();
        wanted.sort_unstable();
        Some(wanted)
    }

    /// Records the server's consent to all of `wanted` but `refused`.
    pub(super) fn settle(&self, wanted: &[Arc<str>], mut refused: Unheard) {
        let mut state = self.lock();
        for uri in wanted {
            let refusal = refused
                .iter()
                .position(|(own, _)| own == uri)
                .map(|at| refused.swap_remove(at).1);
            let Some(own) = state.wanted.get_mut(uri) else {
                continue;
            };
            own.held = refusal.is_none();
            for told in own.waiting.drain(..) {
                // The waiting client may have gone.
                let _gone = told.send(
                    refusal
                        .as_ref()
                        .map_or(Ok(()), |refusal| Err(again(refusal))),
                );
            }
        }
    }

    /// The stream to the server is lost, or could not be opened: waiting clients get the failure,
    /// and all subscriptions have to be sent again.
    pub(super) fn lost(&self, failure: &Failure) {
        let mut state = self.lock();
        state.changed = true;
        for own in state.wanted.values_mut() {
            own.held = false;
            for told in own.waiting.drain(..) {
                let _gone = told.send(Err(again(failure)));
            }
        }
    }

    /// The subscribers of an updated URI, and of the resources that it may be a part of.
    pub(super) fn told(&self, uri: &str) -> Vec<Subscriber> {
        let state = self.lock();
        let mut found: Vec<_> = wholes(uri)
            .filter_map(|whole| state.wanted.get(whole))
            .collect();
        if found.is_empty() && state.wanted.len() == 1 {
            // A server may name parts as it likes, and there is only one resource that it can mean.
            found.extend(state.wanted.values());
        }
        found
            .iter()
            .flat_map(|wanted| &wanted.subscribers)
            .map(|(_, subscriber)| subscriber.clone())
            .collect()
    }

    /// All subscribers.
    pub(super) fn all(&self) -> Vec<Subscriber> {
        let state = self.lock();
        state
            .wanted
            .values()
            .flat_map(|wanted| &wanted.subscribers)
            .map(|(_, subscriber)| subscriber.clone())
            .collect()
    }

    pub(super) fn label(&self) -> KeyValue {
        KeyValue::new("upstream", self.upstream.as_str().to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Table({} of {})",
            self.lock().wanted.len(),
            self.upstream
        )
    }
}

/// A URI and the resources that it may be a part of: its beginnings up to each boundary, with and
/// without it.
fn wholes(uri: &str) -> impl Iterator<Item = &str> {
    let boundaries = uri
        .char_indices()
        .filter(|(_, c)| matches!(c, '/' | '?' | '#'));
    let beginnings = boundaries.flat_map(move |(at, _)| [&uri[..at], &uri[..=at]]);
    std::iter::once(uri).chain(beginnings.filter(move |beginning| *beginning != uri))
}

/// A copy of the failure for one more waiting client.
fn again(failure: &Failure) -> Failure {
    let mut copy = Failure::new(failure.kind().clone(), failure.message().to_owned());
    if let Some(upstream) = failure.upstream() {
        copy = copy.at(upstream);
    }
    if let Some(wait) = failure.wait() {
        copy = copy.retry_after(wait);
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r205_parts_are_of_the_whole_they_begin_with() {
        let all = |uri| wholes(uri).collect::<Vec<_>>();
        assert_eq!(all("a:b"), ["a:b"]);
        assert_eq!(all("a:b/c"), ["a:b/c", "a:b", "a:b/"]);
        assert_eq!(all("a:b/"), ["a:b/", "a:b"]);
        assert_eq!(
            all("a:b?c#d"),
            ["a:b?c#d", "a:b", "a:b?", "a:b?c", "a:b?c#"]
        );
    }
}

//! Ports of core in their smallest form.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{broadcast, mpsc};
use weir_core::admit::Gates;
use weir_core::catalog::Item;
use weir_core::failure::Denial;
use weir_core::port::{
    Action, Attempt, Audience, Audit, Authorizer, Bus, BusMessage, Decision, Ended, Entrance,
    Entry, Evidence, Expect, Fut, Limiter, Mailbox, Permit, Record, RecordKey, RecordKind, Records,
    Replay, Replays, ReplicaId, Sight, StoreError, StreamKey, Verdict, Verifier, Written,
};
use weir_core::principal::Identity;
use weir_core::{Call, EndpointId, Failure, FailureKind, Principal, SessionKey};

/// A replay log that keeps no events.
pub(crate) struct NoReplays;

impl Replays for NoReplays {
    fn begin(&self, _: StreamKey) -> bool {
        false
    }
    fn keep(&self, _: StreamKey, _: u64, _: Bytes) {}
    fn end(&self, _: StreamKey) {}
    fn after(&self, _: StreamKey, _: u64) -> Fut<'_, Result<Option<Replay>, StoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    fn moves(&self, _: StreamKey) -> Option<tokio::sync::watch::Receiver<u64>> {
        None
    }
    fn forget(&self, _: SessionKey) {}
    fn expire(&self) {}
}

/// A verifier that takes a token as its bearer's name. `at ADDRESS` is valid from that address
/// alone; `panic` panics. Without a token, the caller is anonymous if that is allowed; otherwise a
/// certificate makes it `whoever`.
pub(crate) struct Names {
    pub(crate) anonymous: bool,
}

impl Verifier for Names {
    fn verify<'a>(&'a self, evidence: &'a Evidence<'a>) -> Fut<'a, Result<Identity, Failure>> {
        Box::pin(async move {
            match evidence.bearer.map(|bearer| bearer.expose()) {
                Some("panic") => panic!("a bug in the verifier"),
                Some(name)
                    if name
                        .strip_prefix("at ")
                        .is_some_and(|at| at != evidence.peer.to_string()) =>
                {
                    Err(Failure::new(
                        FailureKind::Unauthenticated(Denial::Invalid("elsewhere")),
                        "not from here",
                    ))
                }
                Some(name) => Ok(Identity::subject("test", name)),
                None if self.anonymous => Ok(Identity::Anonymous),
                None if evidence.certificate.is_some() => Ok(Identity::subject("mtls", "whoever")),
                None => Err(Failure::new(
                    FailureKind::Unauthenticated(Denial::Missing),
                    "who are you",
                )),
            }
        })
    }
}

/// Allows every call, and keeps no audit.
pub(crate) struct Lenient;

impl Lenient {
    pub(crate) fn gates() -> Gates {
        Gates {
            authorizer: Arc::new(Self),
            limiter: Arc::new(Self),
            audit: Arc::new(Self),
        }
    }
}

impl Authorizer for Lenient {
    fn may_enter(&self, _: &Principal, _: &EndpointId) -> Result<(), Failure> {
        Ok(())
    }

    fn audience(&self, _: &Principal, _: &EndpointId) -> Option<Audience> {
        None
    }

    fn may_see(&self, _: &Principal, _: &EndpointId, _: &Item) -> Sight {
        Sight::Seen
    }

    fn may_call(&self, _: &Principal, _: &Call, _: &Item) -> Result<Verdict, Failure> {
        Ok(Verdict::default())
    }
}

/// Admits the first caller, and denies all later ones.
#[derive(Default)]
pub(crate) struct Closing(AtomicBool);

impl Authorizer for Closing {
    fn may_enter(&self, _: &Principal, _: &EndpointId) -> Result<(), Failure> {
        let is_closed = self.0.swap(true, Ordering::SeqCst);
        if is_closed {
            Err(Failure::new(FailureKind::Denied, "blocked by now"))
        } else {
            Ok(())
        }
    }

    fn audience(&self, principal: &Principal, endpoint: &EndpointId) -> Option<Audience> {
        Lenient.audience(principal, endpoint)
    }

    fn may_see(&self, principal: &Principal, endpoint: &EndpointId, item: &Item) -> Sight {
        Lenient.may_see(principal, endpoint, item)
    }

    fn may_call(
        &self,
        principal: &Principal,
        call: &Call,
        item: &Item,
    ) -> Result<Verdict, Failure> {
        Lenient.may_call(principal, call, item)
    }
}

impl Limiter for Lenient {
    fn arrive(&self, _: IpAddr) -> Result<(), Failure> {
        Ok(())
    }

    fn request(&self, _: &Principal, _: &EndpointId) -> Result<(), Failure> {
        Ok(())
    }

    fn call<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a Call,
        _: &'a Item,
    ) -> Result<Entry<'a>, Failure> {
        Ok(Entry::Now(Permit::free()))
    }
}

impl Audit for Lenient {
    fn entered(&self, _: &Entrance<'_>) {}

    fn decided(&self, _: &Attempt<'_>, _: Decision<'_>) -> Result<(), Failure> {
        Ok(())
    }

    fn ended(&self, _: &Attempt<'_>, _: &Ended) {}

    fn operated(&self, _: &Action<'_>) {}
}

/// Records that live until they are removed.
#[derive(Default)]
pub(crate) struct Kept(Mutex<HashMap<RecordKey, Record>>, Mutex<Vec<RecordKey>>);

impl Kept {
    /// Empty records, with these keys expired since the last query.
    pub(crate) fn with_expired(keys: Vec<RecordKey>) -> Self {
        Self(Mutex::default(), Mutex::new(keys))
    }
}

impl Records for Kept {
    fn load<'a>(
        &'a self,
        key: &'a RecordKey,
        _: Option<Duration>,
    ) -> Fut<'a, Result<Option<Record>, StoreError>> {
        Box::pin(async { Ok(self.0.lock().unwrap().get(key).cloned()) })
    }

    fn store<'a>(
        &'a self,
        key: &'a RecordKey,
        value: Bytes,
        _ttl: Duration,
        expect: Expect,
    ) -> Fut<'a, Result<Written, StoreError>> {
        Box::pin(async move {
            Ok(match (self.0.lock().unwrap().entry(key.clone()), expect) {
                (Slot::Vacant(free), Expect::Absent) => {
                    Written::Yes(free.insert(Record { value, version: 1 }).version)
                }
                (Slot::Occupied(mut had), Expect::Version(version))
                    if had.get().version == version =>
                {
                    *had.get_mut() = Record {
                        value,
                        version: version + 1,
                    };
                    Written::Yes(version + 1)
                }
                _ => Written::Conflict,
            })
        })
    }

    fn remove<'a>(&'a self, key: &'a RecordKey) -> Fut<'a, Result<bool, StoreError>> {
        Box::pin(async { Ok(self.0.lock().unwrap().remove(key).is_some()) })
    }

    fn count(&self, _kind: RecordKind) -> usize {
        self.0.lock().unwrap().len()
    }

    fn visit(&self, _kind: RecordKind, look: &mut dyn FnMut(&RecordKey, &[u8])) {
        self.0
            .lock()
            .unwrap()
            .iter()
            .for_each(|(key, record)| look(key, &record.value));
    }

    fn expired(&self, _kind: RecordKind) -> Vec<RecordKey> {
        std::mem::take(&mut *self.1.lock().unwrap())
    }
}

/// A bus with one replica on it.
#[derive(Default)]
pub(crate) struct OwnBus(Mutex<HashMap<&'static str, broadcast::Sender<BusMessage>>>);

impl OwnBus {
    fn topic(&self, topic: &'static str) -> broadcast::Sender<BusMessage> {
        self.0
            .lock()
            .unwrap()
            .entry(topic)
            .or_insert_with(|| broadcast::channel(64).0)
            .clone()
    }
}

impl Bus for OwnBus {
    fn publish(&self, message: BusMessage) {
        // A topic may have no subscribers.
        drop(self.topic(message.topic).send(message));
    }

    fn subscribe(&self, topic: &'static str) -> broadcast::Receiver<BusMessage> {
        self.topic(topic).subscribe()
    }
}

/// A mailbox that never receives.
pub(crate) struct Empty(pub(crate) ReplicaId);

impl Mailbox for Empty {
    fn own(&self) -> &ReplicaId {
        &self.0
    }

    fn send<'a>(
        &'a self,
        _to: &'a ReplicaId,
        _message: BusMessage,
    ) -> Fut<'a, Result<bool, StoreError>> {
        Box::pin(async { Ok(false) })
    }

    fn receive(&self) -> Option<mpsc::Receiver<BusMessage>> {
        None
    }
}

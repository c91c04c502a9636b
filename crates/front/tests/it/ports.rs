//! Ports of core in their smallest form.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{broadcast, mpsc};
use weir_core::port::{
    Audit, Authorizer, Bus, BusMessage, Evidence, Expect, Fut, Limiter, Mailbox, Record, RecordKey, RecordKind,
    Records, ReplicaId, StoreError, Verifier, Visible, Written,
};
use weir_core::principal::Identity;
use weir_core::{Call, EndpointId, Failure, FailureKind, Principal};

/// A token is its bearer's name. `panic` is a bug in the verifier; no token is nobody, where nobody may come.
pub(crate) struct Names {
    pub(crate) anonymous: bool,
}

impl Verifier for Names {
    fn verify<'a>(&'a self, evidence: &'a Evidence<'a>) -> Fut<'a, Result<Identity, Failure>> {
        Box::pin(async move {
            match evidence.bearer.map(|bearer| bearer.expose()) {
                Some("panic") => panic!("a bug in the verifier"),
                Some(name) => Ok(Identity::Subject { issuer: "test".into(), subject: name.into() }),
                None if self.anonymous => Ok(Identity::Anonymous),
                None => Err(Failure::new(FailureKind::Unauthenticated, "who are you")),
            }
        })
    }
}

/// Lets everybody do everything, and tells nobody.
pub(crate) struct Lenient;

impl Authorizer for Lenient {
    fn may_call(&self, _principal: &Principal, _call: &Call) -> Result<(), Failure> {
        Ok(())
    }

    fn visible(&self, _principal: &Principal, _endpoint: &EndpointId) -> Visible {
        Visible::All
    }
}

impl Limiter for Lenient {
    fn take(&self, _principal: &Principal, _call: &Call) -> Result<(), Failure> {
        Ok(())
    }
}

impl Audit for Lenient {
    fn decided(&self, _principal: &Principal, _call: &Call, _allowed: bool) {}

    fn ended(&self, _principal: &Principal, _call: &Call, _outcome: &'static str, _took: Duration) {}
}

/// Records that live until they are removed.
#[derive(Default)]
pub(crate) struct Kept(Mutex<HashMap<RecordKey, Record>>);

impl Records for Kept {
    fn load<'a>(&'a self, key: &'a RecordKey, _: Option<Duration>) -> Fut<'a, Result<Option<Record>, StoreError>> {
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
                (Entry::Vacant(free), Expect::Absent) => {
                    Written::Yes(free.insert(Record { value, version: 1 }).version)
                }
                (Entry::Occupied(mut had), Expect::Version(version)) if had.get().version == version => {
                    *had.get_mut() = Record { value, version: version + 1 };
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

    fn expired(&self, _kind: RecordKind) -> Vec<RecordKey> {
        Vec::new()
    }
}

/// A bus with one replica on it.
#[derive(Default)]
pub(crate) struct OwnBus(Mutex<HashMap<&'static str, broadcast::Sender<BusMessage>>>);

impl OwnBus {
    fn topic(&self, topic: &'static str) -> broadcast::Sender<BusMessage> {
        self.0.lock().unwrap().entry(topic).or_insert_with(|| broadcast::channel(64).0).clone()
    }
}

impl Bus for OwnBus {
    fn publish(&self, message: BusMessage) {
        // Nobody need be listening.
        drop(self.topic(message.topic).send(message));
    }

    fn subscribe(&self, topic: &'static str) -> broadcast::Receiver<BusMessage> {
        self.topic(topic).subscribe()
    }
}

/// A mailbox without post.
pub(crate) struct Empty(pub(crate) ReplicaId);

impl Mailbox for Empty {
    fn own(&self) -> &ReplicaId {
        &self.0
    }

    fn send<'a>(&'a self, _to: &'a ReplicaId, _message: BusMessage) -> Fut<'a, Result<bool, StoreError>> {
        Box::pin(async { Ok(false) })
    }

    fn receive(&self) -> Option<mpsc::Receiver<BusMessage>> {
        None
    }
}

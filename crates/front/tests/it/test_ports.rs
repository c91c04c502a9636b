//! Ports of core in their smallest form.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::future::ready;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::AuthenticationDenial;
use weir_core::port::{
    Audience, AuditLog, Authorizer, BoxFuture, BusMessage, CallAttempt, CallPermission, CallPermit,
    EndedCall, Evidence, GateDecision, Limiter, MessageBus, OperatorAction, PermitWait,
    RateDecision, ReadyOrBoxFuture, RecordKey, RecordStore, SenderEntrance, StoreError,
    StoredRecord, Verifier, Visibility, WriteCondition, WriteOutcome,
};
use weir_core::principal::{Subject, VerifiedIdentity};
use weir_core::{Call, EndpointId, Failure, FailureKind, Principal};
use weir_policy::rules::PolicyAuthorizer;
use weir_router::Gates;

/// A verifier that takes a token as its bearer's name. `at ADDRESS` is valid from that address
/// alone; `panic` panics. Without a token, the caller is anonymous if that is allowed; otherwise a
/// certificate makes it `whoever`.
#[derive(Debug)]
pub(crate) struct NameVerifier {
    pub(crate) anonymous: bool,
}

impl Verifier for NameVerifier {
    fn verify<'a>(
        &'a self,
        evidence: &'a Evidence<'a>,
    ) -> BoxFuture<'a, Result<VerifiedIdentity, Failure>> {
        Box::pin(async move {
            match evidence.bearer.map(|bearer| bearer.expose()) {
                Some("panic") => panic!("a bug in the verifier"),
                Some(name)
                    if name
                        .strip_prefix("at ")
                        .is_some_and(|at| at != evidence.peer.to_string()) =>
                {
                    Err(Failure::new(
                        FailureKind::Unauthenticated(AuthenticationDenial::Invalid("elsewhere")),
                        "not from here",
                    ))
                }
                Some(name) => Ok(VerifiedIdentity::subject("test", name)),
                None if self.anonymous => Ok(VerifiedIdentity::Anonymous),
                None if evidence.certificate.is_some() => {
                    Ok(VerifiedIdentity::subject("mtls", "whoever"))
                }
                None => Err(Failure::new(
                    FailureKind::Unauthenticated(AuthenticationDenial::Missing),
                    "who are you",
                )),
            }
        })
    }
}

/// Allows every call, and keeps no audit.
pub(crate) fn open_gates() -> Gates {
    Gates {
        authorizer: Arc::new(PolicyAuthorizer::default()),
        limiter: Arc::new(NoLimits),
        audit: Arc::new(RefusedSenders::default()),
    }
}

/// No rate is limited.
#[derive(Debug)]
pub(crate) struct NoLimits;

impl Limiter for NoLimits {
    fn admit_address(&self, _peer: IpAddr) -> Result<(), Failure> {
        Ok(())
    }

    fn admit_request<'a>(
        &'a self,
        _principal: &'a Principal,
        _endpoint: &'a EndpointId,
    ) -> RateDecision<'a, Failure> {
        RateDecision::Now(Ok(()))
    }

    fn admit_call<'a>(
        &'a self,
        _principal: &'a Principal,
        _call: &'a Call,
        _item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure> {
        Ok(PermitWait::Now(CallPermit::free()))
    }

    fn admit_continuation<'a>(
        &'a self,
        _principal: &'a Principal,
        _item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure> {
        Ok(PermitWait::Now(CallPermit::free()))
    }
}

/// An audit that keeps the reasons of refused senders.
#[derive(Debug, Default)]
pub(crate) struct RefusedSenders(Mutex<Vec<&'static str>>);

impl RefusedSenders {
    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        self.0.lock().clone()
    }
}

impl AuditLog for RefusedSenders {
    fn record_entrance(&self, entrance: &SenderEntrance<'_>) {
        if let Err(rejection) = entrance.outcome {
            self.0.lock().push(rejection.reason);
        }
    }

    fn record_decision(&self, _: &CallAttempt<'_>, _: GateDecision<'_>) -> Result<(), Failure> {
        Ok(())
    }

    fn record_end(&self, _: &CallAttempt<'_>, _: &EndedCall) {}

    fn record_operator_action(&self, _: &OperatorAction<'_>) {}
}

/// The validity of all credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Valid,
    Revoked,
    /// Those that begin with `old` are.
    OldRevoked,
    /// They are those of another principal.
    Reassigned,
    /// Their principal is in other groups.
    Regrouped,
    /// They are valid, and their principal may not use the endpoint.
    NotAdmitted,
    /// The verifier cannot check them.
    Unavailable,
}

/// A verifier of names whose answers change while streams are open. [`EntranceGate::of`] is the
/// authorizer beside it.
#[derive(Debug)]
pub(crate) struct ChangingAccess {
    validity: Mutex<Validity>,
    /// The number of checks that could not be made.
    pub(crate) unavailable: watch::Sender<usize>,
}

impl ChangingAccess {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            validity: Mutex::new(Validity::Valid),
            unavailable: watch::Sender::new(0),
        })
    }

    pub(crate) fn set(&self, validity: Validity) {
        *self.validity.lock() = validity;
    }

    fn validity(&self) -> Validity {
        *self.validity.lock()
    }
}

impl Verifier for ChangingAccess {
    fn verify<'a>(
        &'a self,
        evidence: &'a Evidence<'a>,
    ) -> BoxFuture<'a, Result<VerifiedIdentity, Failure>> {
        let token = evidence.bearer.map(|bearer| bearer.expose());
        // A principal may have several credentials.
        let name = token.and_then(|token| token.rsplit(' ').next());
        let refused = |kind| Err(Failure::new(kind, "no longer"));
        Box::pin(ready(match self.validity() {
            Validity::Valid | Validity::NotAdmitted => {
                Ok(VerifiedIdentity::subject("test", name.unwrap_or_default()))
            }
            Validity::Regrouped => {
                let mut subject = Subject::new("test", name.unwrap_or_default());
                subject.groups = Arc::new(["others".into()]);
                Ok(VerifiedIdentity::Subject(Arc::new(subject)))
            }
            Validity::Reassigned => Ok(VerifiedIdentity::subject("test", "another")),
            Validity::OldRevoked if token.is_some_and(|token| !token.starts_with("old ")) => {
                Ok(VerifiedIdentity::subject("test", name.unwrap_or_default()))
            }
            Validity::Revoked | Validity::OldRevoked => {
                let denial = AuthenticationDenial::Invalid("revoked");
                refused(FailureKind::Unauthenticated(denial))
            }
            Validity::Unavailable => {
                self.unavailable.send_modify(|count| *count += 1);
                refused(FailureKind::Unavailable)
            }
        }))
    }
}

/// An authorizer with an answer of its own to callers that enter; it allows all else.
pub(crate) struct EntranceGate(Box<dyn Fn() -> Result<(), Failure> + Send + Sync>);

impl std::fmt::Debug for EntranceGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntranceGate").finish_non_exhaustive()
    }
}

impl EntranceGate {
    /// Admits the first caller, and denies all later ones.
    pub(crate) fn once() -> Arc<Self> {
        let is_closed = AtomicBool::new(false);
        Arc::new(Self(Box::new(move || {
            if is_closed.swap(true, Ordering::SeqCst) {
                Err(Failure::new(FailureKind::Denied, "blocked by now"))
            } else {
                Ok(())
            }
        })))
    }

    /// Admits callers as far as this access allows it.
    pub(crate) fn of(access: Arc<ChangingAccess>) -> Arc<Self> {
        Arc::new(Self(Box::new(move || {
            if access.validity() != Validity::NotAdmitted {
                return Ok(());
            }
            let scopes = FailureKind::InsufficientScope(Arc::new(["new".into()]));
            Err(Failure::new(scopes, "a new scope"))
        })))
    }
}

impl Authorizer for EntranceGate {
    fn may_enter(&self, _: &Principal, _: &EndpointId) -> Result<(), Failure> {
        (self.0)()
    }

    fn audience(&self, _: &Principal, _: &EndpointId) -> Option<Audience> {
        None
    }

    fn may_see(&self, _: &Principal, _: &EndpointId, _: &CatalogItem) -> Visibility {
        Visibility::Visible
    }

    fn may_call(
        &self,
        _: &Principal,
        _: &Call,
        _: &CatalogItem,
    ) -> Result<CallPermission, Failure> {
        Ok(CallPermission::default())
    }
}

/// Records that live until they are removed.
#[derive(Debug, Default)]
pub(crate) struct TestRecords {
    stored: Mutex<HashMap<RecordKey, StoredRecord>>,
    expired: Mutex<Vec<RecordKey>>,
    lost: watch::Sender<Vec<RecordKey>>,
    /// The number of times that a record got a new time to live.
    renewals: watch::Sender<u64>,
    /// True if no write of a new record is confirmed.
    holds_new: bool,
}

impl TestRecords {
    /// Empty records, with these keys expired since the last query.
    pub(crate) fn with_expired(keys: Vec<RecordKey>) -> Self {
        Self {
            expired: Mutex::new(keys),
            ..Self::default()
        }
    }

    /// Empty records, which take new ones and never confirm it.
    pub(crate) fn with_held_writes() -> Self {
        Self {
            holds_new: true,
            ..Self::default()
        }
    }

    /// Reports all records as lost to another replica, until it is heard. They are here no more,
    /// unless they came back meanwhile.
    pub(crate) async fn lose_all(&self, came_back: bool) {
        let keys: Vec<_> = {
            let mut stored = self.stored.lock();
            let keys = stored.keys().cloned().collect();
            if !came_back {
                stored.clear();
            }
            keys
        };
        self.lost.send_replace(keys);
        let mut heard = self.lost.subscribe();
        heard.wait_for(Vec::is_empty).await.unwrap();
    }

    /// Reads the number of times that a record got a new time to live.
    pub(crate) fn renewals(&self) -> watch::Receiver<u64> {
        self.renewals.subscribe()
    }
}

impl RecordStore for TestRecords {
    fn load<'a>(
        &'a self,
        key: &'a RecordKey,
        touch: Option<Duration>,
    ) -> ReadyOrBoxFuture<'a, Result<Option<StoredRecord>, StoreError>> {
        if touch.is_some() {
            self.renewals.send_modify(|renewals| *renewals += 1);
        }
        Either::Left(ready(Ok(self.stored.lock().get(key).cloned())))
    }

    fn store<'a>(
        &'a self,
        key: &'a RecordKey,
        value: Bytes,
        _ttl: Duration,
        expect: WriteCondition,
    ) -> BoxFuture<'a, Result<WriteOutcome, StoreError>> {
        Box::pin(async move {
            let outcome = match (self.stored.lock().entry(key.clone()), expect) {
                (Slot::Vacant(free), WriteCondition::Absent) => {
                    WriteOutcome::Stored(free.insert(StoredRecord { value, version: 1 }).version)
                }
                (Slot::Occupied(mut had), WriteCondition::Version(version))
                    if had.get().version == version =>
                {
                    *had.get_mut() = StoredRecord {
                        value,
                        version: version + 1,
                    };
                    WriteOutcome::Stored(version + 1)
                }
                _ => WriteOutcome::Conflict,
            };
            if self.holds_new && expect == WriteCondition::Absent {
                std::future::pending::<()>().await;
            }
            Ok(outcome)
        })
    }

    fn remove<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async { Ok(self.stored.lock().remove(key).is_some()) })
    }

    fn contains(&self, key: &RecordKey) -> bool {
        self.stored.lock().contains_key(key)
    }

    fn count(&self) -> usize {
        self.stored.lock().len()
    }

    fn visit(&self, look: &mut dyn FnMut(&RecordKey, &[u8])) {
        self.stored
            .lock()
            .iter()
            .for_each(|(key, record)| look(key, &record.value));
    }

    fn expired(&self) -> Vec<RecordKey> {
        std::mem::take(&mut *self.expired.lock())
    }

    fn lost(&self) -> Vec<RecordKey> {
        self.lost.send_replace(Vec::new())
    }
}

/// A bus with one replica on it.
#[derive(Debug, Default)]
pub(crate) struct SingleReplicaBus(Mutex<HashMap<&'static str, broadcast::Sender<BusMessage>>>);

impl SingleReplicaBus {
    fn topic(&self, topic: &'static str) -> broadcast::Sender<BusMessage> {
        self.0
            .lock()
            .entry(topic)
            .or_insert_with(|| broadcast::channel(64).0)
            .clone()
    }
}

impl MessageBus for SingleReplicaBus {
    fn publish(&self, message: BusMessage) {
        // A topic may have no subscribers.
        drop(self.topic(message.topic).send(message));
    }

    fn subscribe(&self, topic: &'static str) -> broadcast::Receiver<BusMessage> {
        self.topic(topic).subscribe()
    }
}

//! The ports: weir's needs of the outside world, each a trait that another crate implements. Every
//! session, answer and cancellation goes through them, so that replicas can share them later.

mod backoff;
pub(crate) mod borrowed_secret;
pub(crate) mod call_parking;
pub(crate) mod decisions;
mod document_fetch;
mod document_post;
pub(crate) mod environment;
mod leases;
mod records;
mod replay_log;
mod replicas;
mod session_lists;
mod shared_changes;
mod shared_lists;
mod shared_rates;
pub(crate) mod task_book;

use std::future::Ready;

use futures_util::future::Either;

pub use backoff::{Backoff, doubled};
pub use borrowed_secret::BorrowedSecret;
pub use call_parking::CallParking;
pub use decisions::{
    Audience, AuditLog, Authorizer, CallAttempt, CallPermission, CallPermit, ContentChanges,
    EndedCall, Evidence, GateDecision, Limiter, OperatorAction, PermitWait, SenderEntrance,
    SenderRejection, Verifier, Visibility,
};
pub use document_fetch::{DocumentFetcher, FetchRequest, FetchResponse, UrlSource};
pub use document_post::{DocumentPoster, PostEncoding, PostResponse, fill_batch};
pub use environment::{
    Clock, Random, full_jitter, half_jitter, jittered, jittered_by, random_id, random_share,
};
pub use futures_util::future::BoxFuture;
pub use leases::{LeaseIntent, LeaseRequest, LeaseState, LeaseStore, LeaseToken};
pub use records::{
    RecordKey, RecordPlace, RecordStore, StoredRecord, WriteCondition, WriteOutcome,
};
pub use replay_log::{LOST_ANSWER, ReplayLog, ReplayedEvents, StreamKey};
pub use replicas::{
    BusMessage, CounterAddition, CounterValue, MessageBus, OutageCounting, ReplicaDirectory,
    ReplicaId, ReplicaSeen, SharedCounters,
};
pub use session_lists::{ListSession, SessionListObserver, SessionListRegistry};
pub use shared_changes::{
    ChangeDraft, ChangeMap, ChangeTarget, ChangeVersion, SharedChange, SharedChanges,
};
pub use shared_lists::{
    AnnouncedLists, AnnouncementMap, LateReplicas, ListAnnouncements, ListDigests, ListGroup,
    MadeAnnouncement,
};
pub use shared_rates::{Rate, RateBucket, RateDecision, RateUnit, SharedRates};
pub use task_book::{KeptTask, TaskBook};

/// A result that is known at once, without an allocation, or a boxed future.
pub type ReadyOrBoxFuture<'a, T> = Either<Ready<T>, BoxFuture<'a, T>>;

/// A store's own failure: it is unreachable or refused. Its text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("store: {0}")]
pub struct StoreError(pub String);

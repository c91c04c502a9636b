//! Finds the owner of a record, and takes the record over if its owner has ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use weir_core::port::{
    RecordKey, RecordPlace, RecordStore, ReplicaId, StoreError, WriteCondition, WriteOutcome,
};
use weir_core::telemetry::instruments;

use crate::record_commands::ClaimOutcome;
use crate::record_seal::{RecordName, record_name};
use crate::record_writer::RecordWriter;
use crate::registry_view::OwnerState;
use crate::remembered_owners::RememberedOwners;
use crate::replica_registry::ReplicaRegistry;

/// Claims of one record in a row: its owner may end, and the next one, too.
const MAX_ROUNDS: usize = 3;
/// Further attempts of a claim after an error, within the time limit of its request.
const CLAIM_RETRIES: usize = 5;
/// The wait before a further attempt: a connection to a server that is there opens in less.
const CLAIM_RETRY_WAIT: Duration = Duration::from_millis(10);

/// The claims of records, one for each record at a time.
pub(crate) struct RecordClaims {
    writer: Arc<RecordWriter>,
    registry: Arc<ReplicaRegistry>,
    local: Arc<dyn RecordStore>,
    owners: Arc<RememberedOwners>,
    flights: Mutex<HashMap<RecordName, ClaimFlight>>,
}

/// The outcome of a claim that several requests wait for.
type ClaimFlight = Arc<OnceCell<Result<RecordPlace, Arc<str>>>>;

impl RecordClaims {
    /// Claims for the replica of `writer`.
    pub(crate) fn new(
        writer: Arc<RecordWriter>,
        registry: Arc<ReplicaRegistry>,
        local: Arc<dyn RecordStore>,
        owners: Arc<RememberedOwners>,
    ) -> Self {
        Self {
            writer,
            registry,
            local,
            owners,
            flights: Mutex::default(),
        }
    }

    /// Finds the place of a record that is not here.
    pub(crate) async fn locate(
        &self,
        key: &RecordKey,
        opened_by: &ReplicaId,
    ) -> Result<RecordPlace, StoreError> {
        if self.writer.has_ended(key).await? {
            return Ok(RecordPlace::Gone);
        }
        let name = record_name(key);
        let remembered = self.owners.get(&name);
        let fresh = remembered
            .clone()
            .filter(|owner| self.owners.is_fresh(owner));
        let candidate = fresh.map_or_else(|| opened_by.clone(), |owner| owner.id);
        if self.is_live(&candidate) {
            return Ok(RecordPlace::Elsewhere(candidate));
        }
        let limit = self.writer.commands().takeover_limit();
        let outcome = match timeout(limit, self.share_claim(key, &candidate)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError(format!("no owner found within {limit:?}"))),
        };
        // An owner of some seconds ago is better than an error, while the store does not answer.
        match (outcome, remembered) {
            (Err(_), Some(owner)) if self.is_live(&owner.id) => {
                let labels = [KeyValue::new("operation", "locate")];
                instruments().store_fallbacks.add(1, &labels);
                Ok(RecordPlace::Elsewhere(owner.id))
            }
            (outcome, _) => outcome,
        }
    }

    fn is_live(&self, replica: &ReplicaId) -> bool {
        let is_other = replica != self.writer.commands().own();
        is_other && self.registry.state(replica) == OwnerState::Live
    }

    /// Joins the claim of the record that is under way, or begins one.
    async fn share_claim(
        &self,
        key: &RecordKey,
        candidate: &ReplicaId,
    ) -> Result<RecordPlace, StoreError> {
        let name = record_name(key);
        let flight = self.flights.lock().entry(name).or_default().clone();
        let _end = FlightEnd {
            claims: self,
            name,
            flight: flight.clone(),
        };
        let mut is_first = false;
        let first = &mut is_first;
        let outcome = flight
            .get_or_init(|| async {
                *first = true;
                let outcome = self.claim(key, candidate).await;
                outcome.map_err(|StoreError(text)| text.into())
            })
            .await;
        match outcome.clone() {
            // One request hears of the take-over: the others find the record here.
            Ok(RecordPlace::TakenOver(record)) if !is_first => Ok(RecordPlace::Here(record)),
            Ok(place) => Ok(place),
            Err(text) => Err(StoreError(text.as_ref().to_owned())),
        }
    }

    async fn claim(
        &self,
        key: &RecordKey,
        candidate: &ReplicaId,
    ) -> Result<RecordPlace, StoreError> {
        // A record may have come here while this request waited for another one's claim.
        if let Some(record) = self.local.load(key, None).await? {
            return Ok(RecordPlace::Here(record));
        }
        if !self.registry.has_view() {
            self.registry.refresh().await?;
            if self.is_live(candidate) {
                return Ok(RecordPlace::Elsewhere(candidate.clone()));
            }
        }
        let commands = self.writer.commands();
        let mut ended = if self.registry.state(candidate) == OwnerState::Ended {
            candidate.clone()
        } else {
            // No record is taken from an owner that may be live.
            commands.own().clone()
        };
        for _ in 0..MAX_ROUNDS {
            match self.claim_once(key, &ended).await? {
                ClaimOutcome::Claimed { value, left } => {
                    let Some(value) = value else {
                        return Ok(RecordPlace::Gone);
                    };
                    // The owner before may run, and only not be reached from here.
                    if ended != *commands.own() {
                        self.writer.notices().send(key);
                    }
                    return self.keep(key, value, left).await;
                }
                ClaimOutcome::Ended => {
                    self.writer.note_ended(key);
                    return Ok(RecordPlace::Gone);
                }
                ClaimOutcome::Missing => return self.judge_missing(candidate).await,
                ClaimOutcome::Other(owner) => match self.state_of(&owner).await? {
                    OwnerState::Live => return Ok(self.remember(key, owner)),
                    // A live owner may not be listed again yet.
                    OwnerState::Unknown if self.registry.is_emptied_lately() => {
                        return Err(emptied());
                    }
                    OwnerState::Ended | OwnerState::Unknown => ended = owner,
                },
            }
        }
        Err(StoreError("the owner of the record changes".to_owned()))
    }

    /// Sends one claim, again after an error: a connection that broke while no command was on it
    /// fails the next one, and is opened anew. A repeated claim changes no more than one.
    async fn claim_once(
        &self,
        key: &RecordKey,
        ended: &ReplicaId,
    ) -> Result<ClaimOutcome, StoreError> {
        let commands = self.writer.commands();
        for _ in 0..CLAIM_RETRIES {
            if let Ok(outcome) = commands.claim(key, ended).await {
                return Ok(outcome);
            }
            tokio::time::sleep(CLAIM_RETRY_WAIT).await;
        }
        commands.claim(key, ended).await
    }

    /// The state of another replica. One that is not listed may have begun since the last
    /// heartbeat, so the list is fetched anew.
    async fn state_of(&self, replica: &ReplicaId) -> Result<OwnerState, StoreError> {
        let state = self.registry.state(replica);
        if state != OwnerState::Unknown {
            return Ok(state);
        }
        self.registry.refresh().await?;
        Ok(self.registry.state(replica))
    }

    fn remember(&self, key: &RecordKey, id: ReplicaId) -> RecordPlace {
        self.owners.insert(record_name(key), id.clone());
        RecordPlace::Elsewhere(id)
    }

    /// Puts a claimed record in.
    async fn keep(
        &self,
        key: &RecordKey,
        value: bytes::Bytes,
        left: Duration,
    ) -> Result<RecordPlace, StoreError> {
        self.owners.remove(&record_name(key));
        let stored = self
            .local
            .store(key, value, left, WriteCondition::Absent)
            .await?;
        match stored {
            WriteOutcome::Stored(_) => {
                let found = self.local.load(key, None).await?;
                Ok(found.map_or(RecordPlace::Gone, RecordPlace::TakenOver))
            }
            WriteOutcome::Conflict => {
                let found = self.local.load(key, None).await?;
                Ok(found.map_or(RecordPlace::Gone, RecordPlace::Here))
            }
            // This replica owns the record in the shared store, and claims it again with the next
            // request.
            WriteOutcome::OwnerFull => Err(StoreError(
                "the principal has too many records here".to_owned(),
            )),
            WriteOutcome::Full => Err(StoreError("too many records are here".to_owned())),
        }
    }

    /// A record that the shared store does not have is gone, unless the store lost it, or has not got
    /// it yet from the replica that opened it.
    async fn judge_missing(&self, candidate: &ReplicaId) -> Result<RecordPlace, StoreError> {
        if self.registry.is_emptied_lately() || self.registry.has_new_data().await? {
            return Err(emptied());
        }
        // A replica that has just begun is not listed yet, and its first records are written late if
        // the store is slow.
        let is_other = candidate != self.writer.commands().own();
        if is_other && self.state_of(candidate).await? == OwnerState::Live {
            return Ok(RecordPlace::Elsewhere(candidate.clone()));
        }
        Ok(RecordPlace::Gone)
    }
}

fn emptied() -> StoreError {
    StoreError("the shared store was emptied: sessions are being written again".to_owned())
}

/// Forgets a claim once a request has its outcome, or is given up. Another claim may begin while the
/// rest wait, without harm: a claim by the owner changes no record.
struct FlightEnd<'a> {
    claims: &'a RecordClaims,
    name: RecordName,
    flight: ClaimFlight,
}

impl Drop for FlightEnd<'_> {
    fn drop(&mut self) {
        let mut flights = self.claims.flights.lock();
        let is_same = |flight: &ClaimFlight| Arc::ptr_eq(flight, &self.flight);
        if flights.get(&self.name).is_some_and(is_same) {
            flights.remove(&self.name);
        }
    }
}

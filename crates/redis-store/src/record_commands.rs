//! The commands for records in the shared store: save, claim, release, end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::port::{RecordKey, ReplicaId, StoreError};

use crate::record_seal::RecordSeal;
use crate::redis_link::{RedisLink, RunningCommand};
use crate::scripts::{CLAIM, END, RELEASE, SAVE};
use crate::write_queue::RecordEnd;

/// The time to live of the mark of an ended record: longer than any client keeps trying.
const END_TTL: Duration = Duration::from_secs(24 * 3600);

/// A takeover may take that many times as long as another command: it is rare, comes in bursts when
/// a replica ends, and without it the request fails.
const TAKEOVER_PATIENCE: u32 = 10;

/// The time that a claimed record has to live at least, so that the request of the claim finds it.
const MIN_TTL: Duration = Duration::from_secs(1);

/// Runs the scripts for records, for one replica.
pub(crate) struct RecordCommands {
    link: Arc<RedisLink>,
    seal: RecordSeal,
    own: ReplicaId,
}

/// The outcome of a save.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SaveOutcome {
    /// It is written.
    Saved,
    /// Another replica owns the record now, or it has ended, without an owner.
    Lost(Option<ReplicaId>),
}

/// The outcome of the end of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOutcome {
    /// It was there, and has ended.
    Ended,
    /// It was not there.
    Absent,
    /// Another replica owns it, and keeps it.
    OwnedElsewhere,
}

/// The outcome of a claim.
#[derive(Debug)]
pub(crate) enum ClaimOutcome {
    /// This replica owns the record.
    Claimed {
        /// The value; absent if it does not open, and is given back.
        value: Option<Bytes>,
        /// The time it has left to live.
        left: Duration,
    },
    /// Another replica owns it.
    Other(ReplicaId),
    /// It has ended.
    Ended,
    /// There is no record.
    Missing,
}

impl RecordCommands {
    /// Commands of the replica `own`.
    pub(crate) fn new(link: Arc<RedisLink>, seal: RecordSeal, own: ReplicaId) -> Self {
        Self { link, seal, own }
    }

    /// The name of this replica.
    pub(crate) fn own(&self) -> &ReplicaId {
        &self.own
    }

    /// The time limit of commands that a request waits for.
    pub(crate) fn request_limit(&self) -> Duration {
        self.link.command_timeout()
    }

    /// The time limit of a takeover.
    pub(crate) fn takeover_limit(&self) -> Duration {
        self.link.command_timeout() * TAKEOVER_PATIENCE
    }

    /// The link.
    pub(crate) fn link(&self) -> &RedisLink {
        &self.link
    }

    /// Writes a record, unless another replica owns it.
    pub(crate) async fn save(
        &self,
        key: &RecordKey,
        value: &[u8],
        ttl: Duration,
        limit: Duration,
    ) -> Result<SaveOutcome, StoreError> {
        let mut call = SAVE.prepare_invoke();
        call.key(self.seal.shared_name(key))
            .arg(self.own.to_string())
            .arg(self.seal.seal(key, value))
            .arg(millis_text(ttl));
        // A record that is lost is not written.
        let command = RunningCommand::may_write("save");
        let reply: Vec<Vec<u8>> = self.link.run_script(command, limit, &call).await?;
        let mut reply = texts(reply);
        if reply.next().as_deref() == Some("saved") {
            self.link.status().note_write();
            return Ok(SaveOutcome::Saved);
        }
        let owner = reply.next().unwrap_or_default();
        Ok(SaveOutcome::Lost(ReplicaId::from_text(&owner)))
    }

    /// Takes a record over if it has no owner, or `ended` owns it.
    pub(crate) async fn claim(
        &self,
        key: &RecordKey,
        ended: &ReplicaId,
    ) -> Result<ClaimOutcome, StoreError> {
        let mut call = CLAIM.prepare_invoke();
        call.key(self.seal.shared_name(key))
            .arg(self.own.to_string())
            .arg(ended.to_string());
        let limit = self.takeover_limit();
        // Most claims only find the owner.
        let command = RunningCommand::may_write("claim");
        let reply: Vec<Vec<u8>> = self.link.run_script(command, limit, &call).await?;
        let mut reply = texts(reply);
        let kind = reply.next().unwrap_or_default();
        let first = reply.next().unwrap_or_default();
        match kind.as_str() {
            "ended" => Ok(ClaimOutcome::Ended),
            "missing" => Ok(ClaimOutcome::Missing),
            "other" => {
                Ok(ReplicaId::from_text(&first).map_or(ClaimOutcome::Missing, ClaimOutcome::Other))
            }
            "claimed" => {
                let left = reply.next().unwrap_or_default();
                let left = Duration::from_millis(left.parse().unwrap_or_default());
                let left = left.max(MIN_TTL);
                let value = self.seal.open(key, &first);
                if value.is_none() {
                    tracing::warn!("session in the shared store cannot be opened");
                    self.release(key, &reply.next().unwrap_or_default()).await?;
                }
                Ok(ClaimOutcome::Claimed { value, left })
            }
            other => Err(StoreError(format!("unknown reply to a claim: {other}"))),
        }
    }

    async fn release(&self, key: &RecordKey, owner_before: &str) -> Result<(), StoreError> {
        let mut call = RELEASE.prepare_invoke();
        call.key(self.seal.shared_name(key))
            .arg(self.own.to_string())
            .arg(owner_before);
        self.link
            .invoke("release", self.takeover_limit(), &call)
            .await
    }

    /// Ends a record.
    pub(crate) async fn end(
        &self,
        key: &RecordKey,
        end: RecordEnd,
        limit: Duration,
    ) -> Result<EndOutcome, StoreError> {
        let mut call = END.prepare_invoke();
        call.key(self.seal.shared_name(key))
            .arg(self.own.to_string())
            .arg(match end {
                RecordEnd::Removed => "removed",
                RecordEnd::Unknown => "unknown",
                RecordEnd::Expired => "expired",
            })
            .arg(millis_text(END_TTL));
        // A full server permits it, because it begins with a removal.
        let command = RunningCommand::may_write("end");
        let outcome: i64 = self.link.run_script(command, limit, &call).await?;
        Ok(match outcome {
            1 => EndOutcome::Ended,
            2 => EndOutcome::OwnedElsewhere,
            _ => EndOutcome::Absent,
        })
    }
}

/// Milliseconds of a time to live: at least one, because zero would delete.
fn millis_text(ttl: Duration) -> String {
    ttl.as_millis().max(1).to_string()
}

/// The texts of a reply. Changed bytes in the store are no failure of the command.
fn texts(reply: Vec<Vec<u8>>) -> impl Iterator<Item = String> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    reply.into_iter().map(text)
}

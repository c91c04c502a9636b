//! Leases that one replica holds at a time, with the fencing epoch of each holder.
//!
//! A lease is one hash, with its epoch in it. An absent hash, or one that was written while another
//! server (or another run of this one) had the data, may lack a holder: then no replica takes the lease
//! for as long as a holder may go on by its own clock.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use data_encoding::HEXLOWER;
use redis::Script;
use weir_core::port::{
    BoxFuture, LeaseIntent, LeaseRequest, LeaseState, LeaseStore, ReplicaId, StoreError,
};

use crate::redis_link::{BACKGROUND_TIMEOUT, RedisLink, RunningCommand};

/// The time after which an unused lease is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Asks for a lease. Key: its hash, of the replica (`o`), the token of the holder (`t`), its epoch
/// (`e`), the time of its end (`x`) and the run of the server that has the data (`r`). Arguments: the
/// replica, its token, the milliseconds of the lease, `take`, `look` or `release`, the newest epoch
/// that it knows, 1 if it holds the lease by its own clock, the milliseconds after which the lease is
/// forgotten.
///
/// Returns `own` and the epoch; `other`, the epoch, the milliseconds that are left, and the replica;
/// or `free`, the epoch, and the milliseconds until it can be taken.
static LEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
local lease = redis.pcall('HMGET', KEYS[1], 'o', 't', 'e', 'x', 'r')
if lease.err then
  redis.call('DEL', KEYS[1])
  lease = {false, false, false, false, false}
end
local replica, token, ending = lease[1] or '', lease[2] or '', tonumber(lease[4] or 0)
local epoch, known = tonumber(lease[3] or 0), tonumber(ARGV[5])
local length, held = tonumber(ARGV[3]), ARGV[6] == '1'
local is_sure = lease[3] and lease[5] == run
local function write(of_replica, of_token, of_epoch, until_time)
  redis.call('HSET', KEYS[1], 'o', of_replica, 't', of_token, 'e', string.format('%.0f', of_epoch),
    'x', string.format('%.0f', until_time), 'r', run)
  redis.call('PEXPIRE', KEYS[1], ARGV[7])
end
local function own(of_epoch)
  write(ARGV[1], ARGV[2], of_epoch, now + length)
  return {'own', string.format('%.0f', of_epoch), '0', ARGV[1]}
end
if ARGV[4] == 'release' then
  if token == ARGV[2] then
    replica, token, ending = '', '', 0
    write(replica, token, epoch, ending)
  end
elseif token == ARGV[2] and (held or (is_sure and ending > now)) then
  return own(math.max(epoch, known))
elseif held and (epoch < known or (epoch == known and token == '')) then
  -- The data of the lease was lost, and no other replica took it since.
  return own(known + 1)
end
epoch = math.max(epoch, known)
if not is_sure then
  if token == ARGV[2] then replica, token = '', '' end
  ending = math.max(ending, now + length)
  write(replica, token, epoch, ending)
end
if ending <= now and ARGV[4] == 'take' then return own(epoch + 1) end
local left = string.format('%.0f', math.max(ending - now, 0))
if token ~= '' and ending > now then
  return {'other', string.format('%.0f', epoch), left, replica}
end
return {'free', string.format('%.0f', epoch), left, ''}
",
    )
});

/// The leases in the shared store, of one replica as an asker.
pub struct RedisLeases {
    link: Arc<RedisLink>,
    namespace: String,
    own: ReplicaId,
}

impl RedisLeases {
    /// Leases below a namespace, asked for by the replica `own`.
    pub(crate) fn new(link: Arc<RedisLink>, namespace: String, own: ReplicaId) -> Self {
        Self {
            link,
            namespace,
            own,
        }
    }

    async fn ask_once(&self, request: &LeaseRequest<'_>) -> Result<LeaseState, StoreError> {
        let intent = match request.intent {
            LeaseIntent::Take => "take",
            LeaseIntent::Look => "look",
            LeaseIntent::Release => "release",
        };
        let mut call = LEASE.prepare_invoke();
        call.key(format!("{}:u:{}", self.namespace, request.name))
            .arg(self.own.to_string())
            .arg(HEXLOWER.encode(&request.token.0))
            .arg(request.time.as_millis().max(1).to_string())
            .arg(intent)
            .arg(request.known_epoch)
            .arg(u8::from(request.is_held))
            .arg(FORGET_AFTER.as_millis().to_string());
        // Replicas other than the holder only read.
        let command = RunningCommand::may_write("lease");
        let reply: (String, u64, u64, String) = self
            .link
            .run_script(command, BACKGROUND_TIMEOUT, &call)
            .await?;
        read_state(&reply)
    }
}

fn read_state(reply: &(String, u64, u64, String)) -> Result<LeaseState, StoreError> {
    let (state, epoch, left, replica) = reply;
    let (epoch, left) = (*epoch, Duration::from_millis(*left));
    match state.as_str() {
        "own" => Ok(LeaseState::Own { epoch }),
        "free" => Ok(LeaseState::Free { after: left }),
        _ => match ReplicaId::from_text(replica) {
            Some(replica) => Ok(LeaseState::Other {
                replica,
                epoch,
                left,
            }),
            None => Err(StoreError("invalid holder of a lease".to_owned())),
        },
    }
}

impl LeaseStore for RedisLeases {
    fn ask<'a>(
        &'a self,
        request: LeaseRequest<'a>,
    ) -> BoxFuture<'a, Result<LeaseState, StoreError>> {
        Box::pin(async move { self.ask_once(&request).await })
    }
}

impl fmt::Debug for RedisLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLeases").finish_non_exhaustive()
    }
}

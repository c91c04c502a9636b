//! The scripts that run in the shared store. Each touches one key, or keys of one hash tag, so that
//! they run in a cluster.

use std::sync::LazyLock;

use redis::Script;

/// Registers a replica and returns all of them.
///
/// Keys: `seen` (a sorted set of ids by the time of their last heartbeat), `info` (a hash by id),
/// `born` (a random value, as old as the data). Arguments: the id, its info, a value for `born`, and
/// the milliseconds after which a silent replica is forgotten. An empty info removes the replica.
///
/// Returns `born`, the milliseconds since the replica's last heartbeat (-1: none), and a row for
/// each replica: id, time of its last heartbeat, milliseconds since then, info.
pub(crate) static HEARTBEAT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)
local before = redis.call('ZSCORE', KEYS[1], ARGV[1])
if ARGV[2] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('SET', KEYS[3], ARGV[3], 'NX')
  redis.call('ZADD', KEYS[1], stamp, ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
end
local forgotten = string.format('(%.0f', now - ARGV[4])
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', forgotten)) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
end
local rows = {}
local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local info = redis.call('HGET', KEYS[2], all[i]) or ''
  rows[#rows + 1] = {all[i], all[i + 1], now - tonumber(all[i + 1]), info}
end
local silent = -1
if before then silent = now - tonumber(before) end
return {redis.call('GET', KEYS[3]) or '', silent, rows}
",
    )
});

/// Takes a record over. Key: the record. Arguments: the id of this replica, and the id of an owner
/// that has ended.
///
/// Returns `ended`; `missing`; `other` and the id of the owner; or `claimed`, the value, the
/// milliseconds that it has left to live, and the id of the owner before.
pub(crate) static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local record = redis.pcall('HMGET', KEYS[1], 'v', 'o', 'x')
if record.err then return {'missing'} end
if record[3] then return {'ended'} end
if not record[1] then return {'missing'} end
local owner = record[2] or ''
if owner ~= '' and owner ~= ARGV[1] and owner ~= ARGV[2] then return {'other', owner} end
redis.call('HSET', KEYS[1], 'o', ARGV[1])
return {'claimed', record[1], tostring(redis.call('PTTL', KEYS[1])), owner}
",
    )
});

/// Gives a record back to the owner before, because its value does not open here. Key: the record.
/// Arguments: the id of this replica, the id of the owner before.
pub(crate) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('HGET', KEYS[1], 'o') == ARGV[1] then
  redis.call('HSET', KEYS[1], 'o', ARGV[2])
end
return 1
",
    )
});

/// Writes a record of this replica. Key: the record. Arguments: the id of this replica, the value,
/// the milliseconds that it has to live.
///
/// Returns `saved`; or `lost` with the id of another owner, which is empty if the record has ended.
pub(crate) static SAVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local record = redis.pcall('HMGET', KEYS[1], 'o', 'x')
if record.err then
  redis.call('DEL', KEYS[1])
  record = {false, false}
end
if record[2] then return {'lost', ''} end
if record[1] and record[1] ~= '' and record[1] ~= ARGV[1] then return {'lost', record[1]} end
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'o', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'saved', ''}
",
    )
});

/// Ends a record, and leaves a mark so that no replica writes or claims it again. Key: the record.
/// Arguments: the id of this replica; `removed`, `expired` (ends it only if this replica owns it) or
/// `unknown` (ends it only if it is there); the milliseconds that the mark lives.
///
/// Returns 1 if there was a value, 2 if another replica owns the record and it was left alone, or 0.
pub(crate) static END: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local record = redis.pcall('HMGET', KEYS[1], 'v', 'o')
if record.err then
  redis.call('DEL', KEYS[1])
  record = {false, false}
end
if ARGV[2] == 'expired' and record[2] and record[2] ~= ARGV[1] then return 2 end
if ARGV[2] == 'unknown' and not record[1] then return 0 end
redis.call('HDEL', KEYS[1], 'v')
redis.call('HSET', KEYS[1], 'x', '1', 'o', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return record[1] and 1 or 0
",
    )
});

/// Adds to a counter, which falls away a time after its first use, unless it would exceed its highest
/// value. Key: the counter. Arguments: the amount, the milliseconds that it lives, a value that it
/// had (a lower one means that data was lost, and the amount is added to the value that it had), and
/// its highest value. Returns its value, the milliseconds that are left of its life, and 1 if the
/// amount was added.
pub(crate) static COUNT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local value = redis.call('INCRBY', KEYS[1], 0)
local lost = ARGV[3] - value
if lost > 0 then value = redis.call('INCRBY', KEYS[1], lost) end
local added = value + ARGV[1] <= tonumber(ARGV[4])
if added then value = redis.call('INCRBY', KEYS[1], ARGV[1]) end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  left = tonumber(ARGV[2])
end
return {value, left, added and 1 or 0}
",
    )
});

/// Takes tokens out of the bucket of a rate, or gives some back. A bucket that is not there is full.
/// Key: the bucket, a text of its tokens and of the time at which it had them. Arguments: the tokens
/// that the rate adds, and the microseconds in which it does; the tokens of a full bucket; the least
/// number to take, and the number to take if they are there; and the number to give back.
///
/// Takes nothing if the least number is not there. Returns the number taken, and the microseconds
/// until the least number is there, or one token more if some were taken; 0 if it is there now.
pub(crate) static TAKE_TOKENS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local speed = ARGV[1] / ARGV[2]
local burst, need, want = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local returned = tonumber(ARGV[6])
local tokens, is_stale = burst, false
local saved = redis.pcall('GET', KEYS[1])
if type(saved) == 'string' then
  local had, at = string.match(saved, '^(%S+) (%S+)$')
  had, at = tonumber(had), tonumber(at)
  if had and at then
    tokens = had + math.max(0, now - at) * speed
    -- The server's clock was set back: the bucket fills from now on.
    is_stale = at > now
  end
end
tokens = math.min(burst, tokens + returned)
local granted = 0
if tokens >= need then
  granted = math.min(want, math.floor(tokens))
  tokens = tokens - granted
  need = granted > 0 and 1 or need
end
if granted > 0 or returned > 0 or is_stale then
  local full = math.ceil((burst - tokens) / speed / 1000) + 1
  local value = string.format('%.17g %.0f', tokens, now)
  redis.call('SET', KEYS[1], value, 'PX', string.format('%.0f', full))
end
return {granted, math.min(1e15, math.max(0, math.ceil((need - tokens) / speed)))}
",
    )
});

/// Writes operators' changes, and removes entries that are over. Key: the hash. Arguments: the name
/// of the field with the stamp, a random text, the time as entries have it, and for each change: its
/// field, its value, and a value that it may replace though that is as new. A value begins with 32 characters of
/// its version and 16 of its end. An older version replaces no newer one.
///
/// Returns the stamp before, and the stamp now.
pub(crate) static WRITE_CHANGES: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local before = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local is_changed = false
for i = 4, #ARGV, 3 do
  local found = redis.call('HGET', KEYS[1], ARGV[i])
  if not found or found == ARGV[i + 2]
    or string.sub(found, 1, 32) < string.sub(ARGV[i + 1], 1, 32) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    is_changed = true
  end
end
if not is_changed then return {before, before} end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if #all[i] == 64 and string.sub(all[i + 1], 33, 48) < ARGV[3] then
    redis.call('HDEL', KEYS[1], all[i])
  end
end
local stamp = redis.call('HINCRBY', KEYS[1], 'count', 1) .. ':' .. ARGV[2]
redis.call('HSET', KEYS[1], ARGV[1], stamp)
return {before, stamp}
",
    )
});

/// Writes events of a replay log. Key: the log. Arguments: the milliseconds that it lives from now,
/// the number of values, the name of the field and the value of each, the names of removed fields.
pub(crate) static WRITE_LOG: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local last = 2 + 2 * ARGV[2]
for i = 3, last, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
for i = last + 1, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
",
    )
});

/// Announces lists of upstreams, and removes announcements that are too old. Keys: `versions` (a
/// sorted set of groups by version) and `digests` (a hash by group). Arguments: the milliseconds
/// that an announcement lives, the channel and the message for other replicas, and for each group its
/// field and its value. A value that is the same behind its second colon is no change. A version is
/// the time, or one more than the newest before.
///
/// Returns the version of each group.
pub(crate) static ANNOUNCE_LISTS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stale = string.format('(%.0f', now - ARGV[1])
for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', stale, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], field)
  redis.call('HDEL', KEYS[2], field)
end
local last = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0)
local function digests(value) return string.match(value, '^[^:]*:[^:]*:(.*)$') end
local versions, is_changed = {}, false
for i = 4, #ARGV, 2 do
  local found = redis.call('HGET', KEYS[2], ARGV[i])
  local version = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if not found or not version or digests(found) ~= digests(ARGV[i + 1]) then
    last = math.max(last + 1, now)
    version = string.format('%.0f', last)
    redis.call('ZADD', KEYS[1], version, ARGV[i])
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    is_changed = true
  end
  versions[#versions + 1] = version
end
if is_changed then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], ARGV[1])
  redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return versions
",
    )
});

/// Changes the entry of a task in its owner's list. Keys: `order` (a sorted set of fields by position)
/// and `entries` (a hash by field). Arguments: the field, the entry, the milliseconds that the entry
/// lives, the most entries, and the milliseconds that the list lives. An empty entry removes the task.
/// The position of a task is the time of its first entry, or one more than the last one; the oldest
/// gives way.
pub(crate) static LIST_TASK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if ARGV[2] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
  return 1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  local last = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0)
  redis.call('ZADD', KEYS[1], string.format('%.0f', math.max(last + 1, now)), ARGV[1])
end
redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f:%s', now + ARGV[3], ARGV[2]))
for _, field in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1 - ARGV[4])) do
  redis.call('ZREM', KEYS[1], field)
  redis.call('HDEL', KEYS[2], field)
end
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return 1
",
    )
});

/// Reads entries of a list of tasks, and removes those that are over. Keys: as of [`LIST_TASK`].
/// Arguments: the position after which they stand, and the most entries.
///
/// Returns the position and the entry of each.
pub(crate) static READ_TASKS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rows = {}
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf', 'WITHSCORES')
for i = 1, #found, 2 do
  if #rows == tonumber(ARGV[2]) then break end
  local entry = redis.call('HGET', KEYS[2], found[i]) or ''
  local ends, value = string.match(entry, '^(%d+):(.*)$')
  if ends and tonumber(ends) > now then
    rows[#rows + 1] = {found[i + 1], value}
  else
    redis.call('ZREM', KEYS[1], found[i])
    redis.call('HDEL', KEYS[2], found[i])
  end
end
return rows
",
    )
});

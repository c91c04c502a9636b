//! The scripts of weir as the simulated server runs them: one function for each, found by the digest
//! of its text. A script that changes is unknown here until its function is changed with it.

use crate::redis_data::{RedisData, Reply, Text};

/// The call of a script.
pub(crate) struct ScriptCall<'a> {
    pub(crate) data: &'a mut RedisData,
    pub(crate) keys: &'a [Text],
    pub(crate) args: &'a [Text],
    /// The name of the data's history, another one after a failover.
    pub(crate) replication_id: &'a str,
    /// Messages that the script publishes.
    pub(crate) published: &'a mut Vec<(Text, Text)>,
}

/// A script.
pub(crate) type ScriptFn = fn(&mut ScriptCall<'_>) -> Reply;

/// The function of a script with this text, or its digest.
pub(crate) fn find_script(digest: &str) -> Option<ScriptFn> {
    let found = SCRIPTS.iter().find(|(known, _, _)| *known == digest);
    found.map(|(_, _, script)| *script)
}

/// True if the script of this digest has this name.
pub(crate) fn has_name(digest: &str, name: &str) -> bool {
    SCRIPTS
        .iter()
        .any(|(known, of, _)| *known == digest && *of == name)
}

/// The scripts by the SHA-1 of their texts.
const SCRIPTS: &[(&str, &str, ScriptFn)] = &[
    (
        "3b5a2f966d58f970bc8b138a1b508b1dce724f52",
        "HEARTBEAT",
        heartbeat,
    ),
    ("eec65b7ee6f912b6a81ddce5d9215328c0bcb81b", "CLAIM", claim),
    (
        "c10f6cd6f29aeef1633702ece92bec3185a8b3de",
        "RELEASE",
        release,
    ),
    ("72129ac1b7215c9e67707251440f4160b62a3384", "SAVE", save),
    ("82b5b6f29ae3f8feb8e283796f7e28b780093d4e", "END", end),
    ("8f7169b61611a613eda29dc223f24b0f1631686a", "COUNT", count),
    (
        "b4992ef74ab5bac54b66d11fd3e7cce1986023a4",
        "TAKE_TOKENS",
        take_tokens,
    ),
    (
        "879a44b3674092d651054495f200f32fbb9d0031",
        "WRITE_CHANGES",
        write_changes,
    ),
    (
        "a52e23860aea0205604e77b92308904f7c4e1897",
        "WRITE_LOG",
        write_log,
    ),
    (
        "4e4a0a397d9219d23314f2139c8242bd08c10a4d",
        "ANNOUNCE_LISTS",
        announce_lists,
    ),
    (
        "090f31989553a157c2e18a311c415b8b2473b419",
        "LIST_TASK",
        list_task,
    ),
    (
        "5c99e9f25059c7e7f1e6f341649692211563ed0d",
        "READ_TASKS",
        read_tasks,
    ),
    ("23075b87ef6b781280b1bb8bac5b8883a25ec340", "LEASE", lease),
];

impl ScriptCall<'_> {
    fn arg(&self, index: usize) -> &[u8] {
        self.args.get(index).map_or(&[], Vec::as_slice)
    }

    fn number(&self, index: usize) -> f64 {
        number(self.arg(index))
    }

    fn millis(&self, index: usize) -> u64 {
        whole(self.number(index))
    }

    fn texts(all: &[&[u8]]) -> Reply {
        Reply::Many(all.iter().map(|one| Reply::Bulk(one.to_vec())).collect())
    }
}

fn number(text: &[u8]) -> f64 {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times and counts"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "times of milliseconds have 41 bits"
)]
fn float(number: u64) -> f64 {
    number as f64
}

fn millis_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn heartbeat(call: &mut ScriptCall<'_>) -> Reply {
    let [seen, info, born] = call.keys else {
        return Reply::Error("ERR keys");
    };
    let now = call.data.now;
    let id = call.arg(0).to_vec();
    let before = call.data.score(seen, &id);
    if call.arg(1).is_empty() {
        call.data.remove_member(seen, &id);
        call.data.remove_field(info, &id);
    } else {
        if call.data.get(born).is_none() {
            call.data.set(born, call.args[2].clone(), None);
        }
        call.data.set_score(seen, &id, float(now));
        call.data.set_field(info, &id, call.args[1].clone());
    }
    let forgotten = float(now) - call.number(3);
    for (member, _) in call
        .data
        .members(seen)
        .into_iter()
        .filter(|(_, at)| *at < forgotten)
    {
        call.data.remove_member(seen, &member);
        call.data.remove_field(info, &member);
    }
    let rows = call.data.members(seen).into_iter().map(|(member, at)| {
        let about = call.data.field(info, &member).cloned().unwrap_or_default();
        let age = millis_number(now) - millis_number(whole(at));
        let stamp = Reply::text(format!("{at:.0}"));
        Reply::Many(vec![
            Reply::Bulk(member),
            stamp,
            Reply::Number(age),
            Reply::Bulk(about),
        ])
    });
    let rows = Reply::Many(rows.collect());
    let silent = before.map_or(-1, |before| {
        millis_number(now) - millis_number(whole(before))
    });
    let born = call.data.get(born).cloned().unwrap_or_default();
    Reply::Many(vec![Reply::Bulk(born), Reply::Number(silent), rows])
}

fn claim(call: &mut ScriptCall<'_>) -> Reply {
    let key = &call.keys[0];
    let Some(record) = call.data.hash(key) else {
        return ScriptCall::texts(&[b"missing"]);
    };
    if record.contains_key(b"x".as_slice()) {
        return ScriptCall::texts(&[b"ended"]);
    }
    let Some(value) = record.get(b"v".as_slice()).cloned() else {
        return ScriptCall::texts(&[b"missing"]);
    };
    let owner = record.get(b"o".as_slice()).cloned().unwrap_or_default();
    if !owner.is_empty() && owner != call.arg(0) && owner != call.arg(1) {
        return ScriptCall::texts(&[b"other", &owner]);
    }
    let own = call.arg(0).to_vec();
    call.data.set_field(key, b"o", own);
    let left = call.data.left(key).to_string();
    ScriptCall::texts(&[b"claimed", &value, left.as_bytes(), &owner])
}

fn release(call: &mut ScriptCall<'_>) -> Reply {
    let key = &call.keys[0];
    if call.data.field(key, b"o").map(Vec::as_slice) == Some(call.arg(0)) {
        let owner = call.arg(1).to_vec();
        call.data.set_field(key, b"o", owner);
    }
    Reply::Number(1)
}

fn save(call: &mut ScriptCall<'_>) -> Reply {
    let key = &call.keys[0];
    if let Some(record) = call.data.hash(key) {
        if record.contains_key(b"x".as_slice()) {
            return ScriptCall::texts(&[b"lost", b""]);
        }
        let owner = record.get(b"o".as_slice()).cloned().unwrap_or_default();
        if !owner.is_empty() && owner != call.arg(0) {
            return ScriptCall::texts(&[b"lost", &owner]);
        }
    }
    let (own, value, life) = (call.arg(0).to_vec(), call.arg(1).to_vec(), call.millis(2));
    call.data.set_field(key, b"v", value);
    call.data.set_field(key, b"o", own);
    call.data.expire(key, life);
    ScriptCall::texts(&[b"saved", b""])
}

fn end(call: &mut ScriptCall<'_>) -> Reply {
    let key = &call.keys[0];
    let owner = call.data.field(key, b"o").cloned();
    let had = call.data.field(key, b"v").is_some();
    if call.arg(1) == b"expired" && owner.is_some_and(|owner| owner != call.arg(0)) {
        return Reply::Number(2);
    }
    if call.arg(1) == b"unknown" && !had {
        return Reply::Number(0);
    }
    let (own, life) = (call.arg(0).to_vec(), call.millis(2));
    call.data.set_field(key, b"x", b"1".to_vec());
    call.data.remove_field(key, b"v");
    call.data.set_field(key, b"o", own);
    call.data.expire(key, life);
    Reply::Number(i64::from(had))
}

fn count(call: &mut ScriptCall<'_>) -> Reply {
    let key = &call.keys[0];
    let before = call.data.get(key).map_or(0.0, |text| number(text));
    let known = before.max(call.number(2));
    let is_added = known + call.number(0) <= call.number(3);
    let value = whole(known + if is_added { call.number(0) } else { 0.0 });
    let left = call.data.left(key);
    let life = if left < 0 {
        call.millis(1)
    } else {
        u64::try_from(left).unwrap_or(0)
    };
    call.data
        .set(key, value.to_string().into_bytes(), Some(life));
    Reply::Many(vec![
        Reply::Number(millis_number(value)),
        Reply::Number(millis_number(life)),
        Reply::Number(i64::from(is_added)),
    ])
}

fn take_tokens(call: &mut ScriptCall<'_>) -> Reply {
    let key = &call.keys[0];
    let now = float(call.data.now * 1000);
    let speed = call.number(0) / call.number(1);
    let (burst, mut need, want) = (call.number(2), call.number(3), call.number(4));
    let returned = call.number(5);
    let (mut tokens, mut is_stale) = (burst, false);
    let saved = call
        .data
        .get(key)
        .map(|text| String::from_utf8_lossy(text).into_owned());
    if let Some((had, at)) = saved.as_deref().and_then(|saved| saved.split_once(' ')) {
        let (had, at) = (number(had.as_bytes()), number(at.as_bytes()));
        tokens = had + (now - at).max(0.0) * speed;
        is_stale = at > now;
    }
    tokens = burst.min(tokens + returned);
    let mut granted = 0.0;
    if tokens >= need {
        granted = want.min(tokens.floor());
        tokens -= granted;
        need = if granted > 0.0 { 1.0 } else { need };
    }
    if granted > 0.0 || returned > 0.0 || is_stale {
        let full = ((burst - tokens) / speed / 1000.0).ceil() + 1.0;
        call.data.set(
            key,
            format!("{tokens:e} {now:.0}").into_bytes(),
            Some(whole(full)),
        );
    }
    let wait = ((need - tokens) / speed).ceil().clamp(0.0, 1e15);
    Reply::Many(
        [granted, wait]
            .map(|number| Reply::Number(millis_number(whole(number))))
            .into(),
    )
}

fn write_changes(call: &mut ScriptCall<'_>) -> Reply {
    let key = &call.keys[0];
    let stamp_field = call.arg(0).to_vec();
    let before = call
        .data
        .field(key, &stamp_field)
        .cloned()
        .unwrap_or_default();
    let mut is_changed = false;
    for change in call.args[3..].chunks(3) {
        let [field, value, replaceable] = change else {
            break;
        };
        let is_newer = match call.data.field(key, field) {
            None => true,
            Some(found) => found == replaceable || prefix(found, 32) < prefix(value, 32),
        };
        if is_newer {
            call.data.set_field(key, field, value.clone());
            is_changed = true;
        }
    }
    if !is_changed {
        return ScriptCall::texts(&[&before, &before]);
    }
    let now = call.arg(2).to_vec();
    let all = call.data.hash(key).cloned().unwrap_or_default();
    let is_over = |value: &Text| value.get(32..48).is_some_and(|ends| ends < &*now);
    let over = all
        .into_iter()
        .filter(|(field, value)| field.len() == 64 && is_over(value));
    for (field, _) in over {
        call.data.remove_field(key, &field);
    }
    let count = whole(
        call.data
            .field(key, b"count")
            .map_or(0.0, |text| number(text)),
    ) + 1;
    call.data
        .set_field(key, b"count", count.to_string().into_bytes());
    let stamp = [count.to_string().as_bytes(), b":", call.arg(1)].concat();
    call.data.set_field(key, &stamp_field, stamp.clone());
    ScriptCall::texts(&[&before, &stamp])
}

fn prefix(text: &[u8], bytes: usize) -> &[u8] {
    text.get(..bytes).unwrap_or(text)
}

fn write_log(call: &mut ScriptCall<'_>) -> Reply {
    let key = &call.keys[0];
    let written = usize::try_from(call.millis(1)).unwrap_or(0) * 2;
    for pair in call.args[2..2 + written].chunks(2) {
        call.data.set_field(key, &pair[0], pair[1].clone());
    }
    for field in &call.args[2 + written..] {
        call.data.remove_field(key, field);
    }
    let life = call.millis(0);
    call.data.expire(key, life);
    Reply::Number(1)
}

fn announce_lists(call: &mut ScriptCall<'_>) -> Reply {
    let [versions, digests] = call.keys else {
        return Reply::Error("ERR keys");
    };
    let now = float(call.data.now);
    let stale = now - call.number(0);
    let old = call
        .data
        .members(versions)
        .into_iter()
        .filter(|(_, at)| *at < stale);
    for (field, _) in old.take(100) {
        call.data.remove_member(versions, &field);
        call.data.remove_field(digests, &field);
    }
    let mut last = call
        .data
        .members(versions)
        .last()
        .map_or(0.0, |(_, at)| *at);
    let (mut answer, mut is_changed) = (Vec::new(), false);
    for group in call.args[3..].chunks(2) {
        let [field, value] = group else { break };
        let found = call
            .data
            .field(digests, field)
            .map(|found| behind_colons(found).to_vec());
        let known = call.data.score(versions, field);
        let is_same = found.as_deref() == Some(behind_colons(value));
        let version = match known.filter(|_| is_same) {
            Some(known) => known,
            None => {
                last = now.max(last + 1.0);
                call.data.set_score(versions, field, last);
                call.data.set_field(digests, field, value.clone());
                is_changed = true;
                last
            }
        };
        answer.push(Reply::text(format!("{version:.0}")));
    }
    if is_changed {
        let life = call.millis(0);
        call.data.expire(versions, life);
        call.data.expire(digests, life);
        call.published
            .push((call.arg(1).to_vec(), call.arg(2).to_vec()));
    }
    Reply::Many(answer)
}

/// The part behind the second colon.
fn behind_colons(value: &[u8]) -> &[u8] {
    value
        .splitn(3, |byte| *byte == b':')
        .nth(2)
        .unwrap_or_default()
}

fn list_task(call: &mut ScriptCall<'_>) -> Reply {
    let [order, entries] = call.keys else {
        return Reply::Error("ERR keys");
    };
    let field = call.arg(0).to_vec();
    if call.arg(1).is_empty() {
        call.data.remove_member(order, &field);
        call.data.remove_field(entries, &field);
        return Reply::Number(1);
    }
    let now = float(call.data.now);
    if call.data.score(order, &field).is_none() {
        let last = call.data.members(order).last().map_or(0.0, |(_, at)| *at);
        call.data.set_score(order, &field, now.max(last + 1.0));
    }
    let ends = format!("{:.0}:", now + call.number(2));
    let entry = [ends.as_bytes(), call.arg(1)].concat();
    call.data.set_field(entries, &field, entry);
    let (all, most) = (
        call.data.members(order),
        usize::try_from(call.millis(3)).unwrap_or(0),
    );
    for (field, _) in &all[..all.len().saturating_sub(most)] {
        call.data.remove_member(order, field);
        call.data.remove_field(entries, field);
    }
    let life = call.millis(4);
    call.data.expire(order, life);
    call.data.expire(entries, life);
    Reply::Number(1)
}

fn read_tasks(call: &mut ScriptCall<'_>) -> Reply {
    let [order, entries] = call.keys else {
        return Reply::Error("ERR keys");
    };
    let (after, most) = (call.number(0), usize::try_from(call.millis(1)).unwrap_or(0));
    let mut rows = Vec::new();
    for (field, at) in call
        .data
        .members(order)
        .into_iter()
        .filter(|(_, at)| *at > after)
    {
        if rows.len() == most {
            break;
        }
        let entry = call
            .data
            .field(entries, &field)
            .cloned()
            .unwrap_or_default();
        let mut parts = entry.splitn(2, |byte| *byte == b':');
        let (ends, value) = (parts.next().unwrap_or_default(), parts.next());
        match value.filter(|_| number(ends) > float(call.data.now)) {
            Some(value) => rows.push(ScriptCall::texts(&[format!("{at:.0}").as_bytes(), value])),
            None => {
                call.data.remove_member(order, &field);
                call.data.remove_field(entries, &field);
            }
        }
    }
    Reply::Many(rows)
}

/// The hash of a lease.
struct Lease {
    replica: Text,
    token: Text,
    epoch: f64,
    ending: f64,
}

fn write_lease(call: &mut ScriptCall<'_>, lease: &Lease) {
    let key = &call.keys[0];
    call.data.set_field(key, b"o", lease.replica.clone());
    call.data.set_field(key, b"t", lease.token.clone());
    call.data
        .set_field(key, b"e", format!("{:.0}", lease.epoch).into_bytes());
    call.data
        .set_field(key, b"x", format!("{:.0}", lease.ending).into_bytes());
    call.data
        .set_field(key, b"r", call.replication_id.as_bytes().to_vec());
    let life = call.millis(6);
    call.data.expire(key, life);
}

fn own_lease(call: &mut ScriptCall<'_>, epoch: f64) -> Reply {
    let lease = Lease {
        replica: call.arg(0).to_vec(),
        token: call.arg(1).to_vec(),
        epoch,
        ending: float(call.data.now) + call.number(2),
    };
    write_lease(call, &lease);
    let epoch = format!("{epoch:.0}");
    ScriptCall::texts(&[b"own", epoch.as_bytes(), b"0", &lease.replica])
}

fn lease(call: &mut ScriptCall<'_>) -> Reply {
    let now = float(call.data.now);
    let field = |name: &[u8]| call.data.field(&call.keys[0], name).cloned();
    let is_sure =
        field(b"e").is_some() && field(b"r").as_deref() == Some(call.replication_id.as_bytes());
    let mut found = Lease {
        replica: field(b"o").unwrap_or_default(),
        token: field(b"t").unwrap_or_default(),
        epoch: field(b"e").map_or(0.0, |text| number(&text)),
        ending: field(b"x").map_or(0.0, |text| number(&text)),
    };
    let (known, length) = (call.number(4), call.number(2));
    let (is_held, is_own) = (call.arg(5) == b"1", found.token == call.arg(1));
    if call.arg(3) == b"release" {
        if is_own {
            (found.replica, found.token, found.ending) = (Vec::new(), Vec::new(), 0.0);
            write_lease(call, &found);
        }
    } else if is_own && (is_held || (is_sure && found.ending > now)) {
        return own_lease(call, found.epoch.max(known));
    } else if is_held
        && (found.epoch < known || (known - found.epoch).abs() < 0.5 && found.token.is_empty())
    {
        return own_lease(call, known + 1.0);
    }
    found.epoch = found.epoch.max(known);
    if !is_sure {
        if found.token == call.arg(1) {
            (found.replica, found.token) = (Vec::new(), Vec::new());
        }
        found.ending = found.ending.max(now + length);
        write_lease(call, &found);
    }
    if found.ending <= now && call.arg(3) == b"take" {
        return own_lease(call, found.epoch + 1.0);
    }
    let left = format!("{:.0}", (found.ending - now).max(0.0));
    let epoch = format!("{:.0}", found.epoch);
    if !found.token.is_empty() && found.ending > now {
        return ScriptCall::texts(&[b"other", epoch.as_bytes(), left.as_bytes(), &found.replica]);
    }
    ScriptCall::texts(&[b"free", epoch.as_bytes(), left.as_bytes(), b""])
}

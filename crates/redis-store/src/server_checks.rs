//! Checks of a server: of its state, in which it may take no writes, and of its settings, which may
//! lose records.

use redis::{ErrorKind, RedisResult, ServerErrorKind, Value, cmd};

use crate::redis_connection::RedisConnection;

/// A setting of the server that endangers records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerRisk {
    /// Keys are removed when the memory of the server is full.
    Eviction,
    /// Nothing is written to disk.
    NoPersistence,
    /// The server answers a write before any of its replicas has it.
    UnconfirmedWrites,
}

impl ServerRisk {
    /// All risks.
    pub(crate) const ALL: [Self; 3] =
        [Self::Eviction, Self::NoPersistence, Self::UnconfirmedWrites];

    /// The setting, as the server names it.
    pub(crate) const fn setting(self) -> &'static str {
        match self {
            Self::Eviction => "maxmemory-policy",
            Self::NoPersistence => "appendonly",
            Self::UnconfirmedWrites => "min-replicas-to-write",
        }
    }

    /// The setting with its consequence, for operators.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Eviction => {
                "maxmemory-policy is not noeviction: a full server removes sessions of running clients"
            }
            Self::NoPersistence => {
                "appendonly is off and save is empty: a restart of the server loses all sessions"
            }
            Self::UnconfirmedWrites => {
                "min-replicas-to-write is 0: a primary server that is cut off from its replicas still takes writes, and a failover loses them"
            }
        }
    }
}

/// The server starts, and does not have its data yet.
const IS_LOADING: &str = "the server is loading its data";
/// Another server is the primary one.
const IS_REPLICA: &str = "the server is a read-only replica of another one";

/// Reads the `INFO` of the server. It is empty if the credentials do not permit it.
///
/// # Errors
/// The connection is of no use: it is lost, or the server demands other credentials.
pub(crate) async fn read_info(mut connection: RedisConnection) -> RedisResult<String> {
    match cmd("INFO").query_async::<Value>(&mut connection).await {
        Ok(info) => Ok(joined_texts(&info)),
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {
            Ok(String::new())
        }
        Err(error) => Err(error),
    }
}

/// Returns the reason for which a server with this `INFO` takes no writes now, if there is one.
pub(crate) fn write_refusal(info: &str) -> Option<&'static str> {
    let is = |name: &str, value: &str| value_in(info, name) == Some(value);
    if is("loading", "1") {
        return Some(IS_LOADING);
    }
    let is_readable_alone = is("role", "slave") && is("slave_read_only", "1");
    is_readable_alone.then_some(IS_REPLICA)
}

/// Returns the names of the runs of the servers with this `INFO`: each has another one after a start.
pub(crate) fn server_runs(info: &str) -> impl Iterator<Item = &str> {
    values_in(info, "run_id")
}

/// Returns the product and version of a server with this `INFO`.
pub(crate) fn server_version(info: &str) -> Option<String> {
    let valkey = value_in(info, "valkey_version").map(|version| format!("Valkey {version}"));
    valkey.or_else(|| value_in(info, "redis_version").map(|version| format!("Redis {version}")))
}

/// Returns the settings of a server with this `INFO` that endanger records, as far as the
/// credentials permit to read them.
pub(crate) async fn server_risks(info: &str, connection: RedisConnection) -> Vec<ServerRisk> {
    // Each refusal would be in the server's log of refusals, so it is not asked without a need.
    let save = if values_in(info, "aof_enabled").any(|enabled| enabled == "0") {
        read_save(connection).await
    } else {
        None
    };
    risks_of(info, save.as_deref())
}

async fn read_save(mut connection: RedisConnection) -> Option<String> {
    let mut get = cmd("CONFIG");
    get.arg("GET").arg("save");
    let reply: Value = get.query_async(&mut connection).await.ok()?;
    Some(joined_texts(&reply))
}

/// Judges the text of `INFO` and the reply to `CONFIG GET save`, a name and a value.
fn risks_of(info: &str, save: Option<&str>) -> Vec<ServerRisk> {
    let mut risks = Vec::new();
    if values_in(info, "maxmemory_policy").any(|policy| policy != "noeviction") {
        risks.push(ServerRisk::Eviction);
    }
    let has_no_snapshots = save.is_some_and(|reply| reply.trim() == "save");
    if values_in(info, "aof_enabled").any(|enabled| enabled == "0") && has_no_snapshots {
        risks.push(ServerRisk::NoPersistence);
    }
    // A server has the number of replicas in good state exactly if the setting is above 0.
    let replicated = values_in(info, "connected_slaves").filter(|number| *number != "0");
    if replicated.count() > values_in(info, "min_slaves_good_slaves").count() {
        risks.push(ServerRisk::UnconfirmedWrites);
    }
    risks
}

/// Returns the value of the first line of `INFO` with this name.
fn value_in<'a>(info: &'a str, name: &'a str) -> Option<&'a str> {
    values_in(info, name).next()
}

/// Returns the values of all lines with this name: the nodes of a cluster have one each.
fn values_in<'a>(info: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    info.lines()
        .filter_map(move |line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

/// The texts in a reply, one a line. A cluster replies with one text for each node.
fn joined_texts(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => format!("{}\n", String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) => format!("{text}\n"),
        Value::VerbatimString { text, .. } => format!("{text}\n"),
        Value::Array(values) | Value::Set(values) => values.iter().map(joined_texts).collect(),
        Value::Map(pairs) => pairs
            .iter()
            .map(|(name, value)| joined_texts(name) + &joined_texts(value))
            .collect(),
        Value::Nil
        | Value::Int(_)
        | Value::Okay
        | Value::Attribute { .. }
        | Value::Double(_)
        | Value::Boolean(_)
        | Value::BigNumber(_)
        | Value::Push { .. }
        | Value::ServerError(_)
        | _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_lose_records_are_found() {
        let good = "# Memory\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        let none: [ServerRisk; 0] = [];
        assert_eq!(risks_of(good, Some("save\n\n")), none);
        let bad = "maxmemory_policy:allkeys-lru\r\naof_enabled:0\r\nconnected_slaves:1\r\n";
        assert_eq!(risks_of(bad, Some("save\n\n")), ServerRisk::ALL);
        let snapshots = "maxmemory_policy:noeviction\r\naof_enabled:0\r\nconnected_slaves:0\r\n";
        assert_eq!(risks_of(snapshots, Some("save\n3600 1\n")), none);
        assert_eq!(risks_of(snapshots, None), none);
        assert_eq!(risks_of("", None), none);
        let confirmed = "connected_slaves:2\r\nmin_slaves_good_slaves:2\r\n";
        assert_eq!(risks_of(confirmed, None), none);
    }

    #[test]
    fn server_that_takes_no_writes_is_found() {
        let primary = "loading:0\r\nrole:master\r\n";
        assert_eq!(write_refusal(primary), None);
        assert_eq!(write_refusal(""), None);
        assert_eq!(
            write_refusal("loading:1\r\nrole:master\r\n"),
            Some(IS_LOADING)
        );
        let replica = "loading:0\r\nrole:slave\r\nslave_read_only:1\r\n";
        assert_eq!(write_refusal(replica), Some(IS_REPLICA));
        let writable = "loading:0\r\nrole:slave\r\nslave_read_only:0\r\n";
        assert_eq!(write_refusal(writable), None);
    }
}

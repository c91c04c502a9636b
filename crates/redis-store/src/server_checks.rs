//! Checks of a server: of its state, in which it may take no writes, and of its settings, which may
//! lose records.

use redis::{ErrorKind, RedisResult, ServerErrorKind, Value, cmd};

use crate::redis_connection::RedisConnection;

/// Keys are removed when the memory of the server is full.
const EVICTS: &str =
    "maxmemory-policy is not noeviction: a full server removes sessions of running clients";
/// Nothing is written to disk.
const IS_VOLATILE: &str =
    "appendonly is off and save is empty: a restart of the server loses all sessions";

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

/// Returns the name of the run of a server with this `INFO`: another one after each start.
pub(crate) fn server_run(info: &str) -> Option<&str> {
    value_in(info, "run_id")
}

/// Returns the settings of a server with this `INFO` that endanger records, as far as the
/// credentials permit to read them.
pub(crate) async fn server_warnings(info: &str, connection: RedisConnection) -> Vec<&'static str> {
    // Each refusal would be in the server's log of refusals, so it is not asked without a need.
    let save = if value_in(info, "aof_enabled") == Some("0") {
        read_save(connection).await
    } else {
        None
    };
    warnings_of(info, save.as_deref())
}

async fn read_save(mut connection: RedisConnection) -> Option<String> {
    let mut get = cmd("CONFIG");
    get.arg("GET").arg("save");
    let reply: Value = get.query_async(&mut connection).await.ok()?;
    Some(joined_texts(&reply))
}

/// Judges the text of `INFO` and the reply to `CONFIG GET save`, a name and a value.
fn warnings_of(info: &str, save: Option<&str>) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    if value_in(info, "maxmemory_policy").is_some_and(|policy| policy != "noeviction") {
        warnings.push(EVICTS);
    }
    let has_no_snapshots = save.is_some_and(|reply| reply.trim() == "save");
    if value_in(info, "aof_enabled") == Some("0") && has_no_snapshots {
        warnings.push(IS_VOLATILE);
    }
    warnings
}

/// Returns the value of a line of `INFO`.
fn value_in<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
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
        assert_eq!(warnings_of(good, Some("save\n\n")), [""; 0]);
        let bad = "maxmemory_policy:allkeys-lru\r\naof_enabled:0\r\n";
        assert_eq!(warnings_of(bad, Some("save\n\n")), [EVICTS, IS_VOLATILE]);
        let snapshots = "maxmemory_policy:noeviction\r\naof_enabled:0\r\n";
        assert_eq!(warnings_of(snapshots, Some("save\n3600 1\n")), [""; 0]);
        assert_eq!(warnings_of(snapshots, None), [""; 0]);
        assert_eq!(warnings_of("", None), [""; 0]);
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

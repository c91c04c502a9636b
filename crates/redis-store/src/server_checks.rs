//! Checks of a server's settings: those that lose records.

use redis::{Value, cmd};

use crate::redis_connection::RedisConnection;

/// Keys are removed when the memory of the server is full.
const EVICTS: &str =
    "maxmemory-policy is not noeviction: a full server removes sessions of running clients";
/// Nothing is written to disk.
const IS_VOLATILE: &str =
    "appendonly is off and save is empty: a restart of the server loses all sessions";

/// Reads the settings of the server, as far as the credentials permit it.
pub(crate) async fn server_warnings(mut connection: RedisConnection) -> Vec<&'static str> {
    let info: Option<Value> = cmd("INFO").query_async(&mut connection).await.ok();
    let save: Option<Value> = cmd("CONFIG")
        .arg("GET")
        .arg("save")
        .query_async(&mut connection)
        .await
        .ok();
    let info = info.map(|value| joined_texts(&value)).unwrap_or_default();
    warnings_of(&info, save.map(|value| joined_texts(&value)).as_deref())
}

/// Judges the text of `INFO` and the reply to `CONFIG GET save`, a name and a value.
fn warnings_of(info: &str, save: Option<&str>) -> Vec<&'static str> {
    let value_of = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let mut warnings = Vec::new();
    if value_of("maxmemory_policy").is_some_and(|policy| policy != "noeviction") {
        warnings.push(EVICTS);
    }
    let has_no_snapshots = save.is_some_and(|reply| reply.trim() == "save");
    if value_of("aof_enabled") == Some("0") && has_no_snapshots {
        warnings.push(IS_VOLATILE);
    }
    warnings
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
}

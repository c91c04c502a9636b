//! Examines the servers of the settings without a store: for checks of a config.

use std::time::Duration;

use redis::cmd;
use tokio::time::timeout;

use crate::opened_connection::OpenedConnection;
use crate::redis_client::RedisClient;
use crate::redis_connection::RedisConnection;
use crate::server_checks::{server_risks, server_version};
use crate::settings::RedisSettings;

/// The longest time of an examination.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The life of the key that proves that writes are taken, if it cannot be removed.
const PROBE_KEY_LIFE: Duration = Duration::from_secs(10);

/// The server of the settings, which takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// Its version, if the credentials permit to read it.
    pub version: Option<String>,
    /// Its settings that may lose sessions, with their consequences.
    pub warnings: Vec<&'static str>,
}

/// Connects to the servers of the settings, writes and removes a key in the namespace, and reads the
/// settings of the server. Cancel safe: a key that remains expires.
///
/// # Errors
///
/// The settings are invalid, no server answers within ten seconds, or it takes no writes. The text
/// is for operators and has no credentials.
pub async fn examine_server(settings: &RedisSettings) -> Result<ServerReport, String> {
    let client = RedisClient::new(settings).map_err(|error| error.to_string())?;
    let examined = timeout(PROBE_TIMEOUT, examine(&client, &settings.namespace)).await;
    examined.unwrap_or_else(|_| Err(format!("no answer within {PROBE_TIMEOUT:?}")))
}

async fn examine(client: &RedisClient, namespace: &str) -> Result<ServerReport, String> {
    let OpenedConnection { connection, info } = OpenedConnection::open(client).await?;
    write_key(connection.clone(), &format!("{namespace}:check")).await?;
    let risks = server_risks(&info, connection).await;
    Ok(ServerReport {
        version: server_version(&info),
        warnings: risks.into_iter().map(|risk| risk.text()).collect(),
    })
}

async fn write_key(mut connection: RedisConnection, key: &str) -> Result<(), String> {
    let mut set = cmd("SET");
    let life = PROBE_KEY_LIFE.as_millis().to_string();
    set.arg(key).arg("").arg("PX").arg(life);
    let written = set.exec_async(&mut connection).await;
    let removed = cmd("DEL").arg(key).exec_async(&mut connection).await;
    written.and(removed).map_err(|error| error.to_string())
}

//! A connection to a server that was found to take writes.

use std::time::Duration;

use tokio::time::timeout;

use crate::redis_client::RedisClient;
use crate::redis_connection::RedisConnection;
use crate::server_checks::{read_info, write_refusal};

/// The longest wait for the `INFO` of a cluster.
const INFO_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that was just opened, and the `INFO` of its server.
pub(crate) struct OpenedConnection {
    pub(crate) connection: RedisConnection,
    pub(crate) info: String,
}

impl OpenedConnection {
    /// Opens a connection to a server that takes writes.
    ///
    /// # Errors
    /// The reason, without credentials.
    pub(crate) async fn open(client: &RedisClient) -> Result<Self, String> {
        let opened = client.open().await;
        let connection = opened.map_err(|error| error.to_string())?;
        let info = match &connection {
            RedisConnection::Server(_) => read_info(connection.clone())
                .await
                .map_err(|error| error.to_string())?,
            // A cluster is of use while one of its nodes is not.
            RedisConnection::Cluster(_) => {
                let read = timeout(INFO_TIMEOUT, read_info(connection.clone())).await;
                read.ok().and_then(Result::ok).unwrap_or_default()
            }
        };
        if let RedisConnection::Server(_) = &connection
            && let Some(reason) = write_refusal(&info)
        {
            return Err(reason.to_owned());
        }
        Ok(Self { connection, info })
    }
}

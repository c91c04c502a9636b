//! The port to a server that is reached by another way than a socket of the system: a simulated one.

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, RedisResult};
use weir_core::port::BoxFuture;

/// Opens connections to one server.
pub trait ServerDialer: Send + Sync {
    /// Opens a connection for commands, with this config.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the connection.
    fn open(
        &self,
        config: AsyncConnectionConfig,
    ) -> BoxFuture<'_, RedisResult<MultiplexedConnection>>;

    /// Opens a connection for subscriptions.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn open_subscriber(&self) -> BoxFuture<'_, RedisResult<PubSub>>;
}

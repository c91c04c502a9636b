//! The link to a server that answers as a test says.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, cmd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;
use weir_core::port::BoxFuture;
use weir_testkit::FakeRandom;

use super::*;
use crate::server_dialer::ServerDialer;

/// The bytes of `PING`, and of `INFO`.
const COMMAND_SIZE: usize = "*1\r\n$4\r\nPING\r\n".len();

/// Hands the other end of each connection to the test.
struct TestDialer(mpsc::Sender<DuplexStream>);

impl ServerDialer for TestDialer {
    fn open(
        &self,
        config: AsyncConnectionConfig,
    ) -> BoxFuture<'_, RedisResult<MultiplexedConnection>> {
        Box::pin(async move {
            let (own, other) = duplex(4096);
            self.0.send(other).await.unwrap();
            let info = RedisConnectionInfo::default().set_skip_set_lib_name();
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&info, own, config).await?;
            tokio::spawn(driver);
            Ok(connection)
        })
    }

    fn open_subscriber(&self) -> BoxFuture<'_, RedisResult<PubSub>> {
        Box::pin(async { Err((ErrorKind::Client, "no subscriptions").into()) })
    }
}

/// The server of a test, by its connections.
struct TestServer(mpsc::Receiver<DuplexStream>);

impl TestServer {
    /// Takes the next connection. Its `INFO` is empty.
    async fn accept(&mut self) -> DuplexStream {
        let mut connection = self.0.recv().await.unwrap();
        read_commands(&mut connection, 1).await;
        connection.write_all(b"$0\r\n\r\n").await.unwrap();
        connection
    }
}

async fn read_commands(connection: &mut DuplexStream, count: usize) {
    let mut commands = vec![0; count * COMMAND_SIZE];
    connection.read_exact(&mut commands).await.unwrap();
}

fn open_link() -> (Arc<RedisLink>, TestServer) {
    let (opened, connections) = mpsc::channel(1);
    let client = RedisClient::Dialed(Arc::new(TestDialer(opened)));
    let random = Arc::new(FakeRandom::new(1));
    let link = Arc::new(RedisLink::new(client, random, BACKGROUND_TIMEOUT));
    let opening = link.clone();
    tokio::spawn(async move { opening.keep_open().await });
    (link, TestServer(connections))
}

async fn ping(link: Arc<RedisLink>) -> Result<String, StoreError> {
    link.query("ping", BACKGROUND_TIMEOUT, &cmd("PING")).await
}

#[tokio::test(start_paused = true)]
async fn late_failures_of_a_replaced_connection_do_not_open_the_breaker() {
    let (link, mut server) = open_link();
    let mut first = server.accept().await;
    link.wait_opened(0).await;
    let commands: Vec<_> = (0..8).map(|_| tokio::spawn(ping(link.clone()))).collect();
    read_commands(&mut first, commands.len()).await;
    let refusal = b"-READONLY You can't write against a read only replica.\r\n";
    first.write_all(refusal).await.unwrap();
    let mut second = server.accept().await;
    link.wait_opened(1).await;
    for command in commands {
        assert!(command.await.unwrap().is_err());
    }
    tokio::spawn(async move {
        read_commands(&mut second, 1).await;
        second.write_all(b"+PONG\r\n").await.unwrap();
    });
    assert_eq!(ping(link).await.unwrap(), "PONG");
}

#[tokio::test(start_paused = true)]
async fn late_answer_of_a_replaced_connection_does_not_close_the_breaker() {
    let (link, mut server) = open_link();
    let mut first = server.accept().await;
    link.wait_opened(0).await;
    let refused = tokio::spawn(ping(link.clone()));
    read_commands(&mut first, 1).await;
    let late_link = link.clone();
    let late = tokio::spawn(async move {
        let command = cmd("PING");
        late_link.change("ping", BACKGROUND_TIMEOUT, &command).await
    });
    read_commands(&mut first, 1).await;
    let refusal = b"-READONLY You can't write against a read only replica.\r\n";
    first.write_all(refusal).await.unwrap();
    let mut second = server.accept().await;
    link.wait_opened(1).await;
    assert!(refused.await.unwrap().is_err());
    let failing: Vec<_> = (0..5).map(|_| tokio::spawn(ping(link.clone()))).collect();
    read_commands(&mut second, failing.len()).await;
    for command in failing {
        second.write_all(b"-ERR out of order\r\n").await.unwrap();
        assert!(command.await.unwrap().is_err());
    }
    first.write_all(b"+PONG\r\n").await.unwrap();
    late.await.unwrap().unwrap();
    assert_eq!(link.status().values().is_reachable, Some(false));
    let StoreError(text) = ping(link).await.unwrap_err();
    assert!(text.starts_with("shared store unreachable"), "{text}");
}

//! Records and messages over a cluster, and over a primary server that a sentinel knows.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use tokio::time::timeout;
use weir_core::port::{BusMessage, MessageBus as _};
use weir_store::MemoryBus;

use crate::RedisTopology;

use super::replica::{FoundPlace, TestReplica, here, key, wait_for};

const PATIENCE: Duration = Duration::from_secs(40);

/// A `redis-server` with options of its own.
struct ServerProcess {
    port: u16,
    folder: PathBuf,
    process: Child,
}

impl ServerProcess {
    /// Starts a server with the lines of a configuration file, and waits until it answers.
    async fn start(name: &str, lines: &str, options: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let dir = folder.display();
        let config = format!("port {port}\nbind 127.0.0.1\ndir {dir}\nlogfile log\n{lines}\n");
        let file = folder.join("redis.conf");
        std::fs::write(&file, config).expect("a file");
        let process = Command::new("redis-server")
            .arg(&file)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("redis-server: {error}; install its package"));
        let server = Self {
            port,
            folder,
            process,
        };
        let begun = tokio::time::Instant::now();
        while server.run(&["PING"]).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "the server does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn run(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let client = Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A session moves from an ended replica to another one, and a message reaches both.
async fn share_session_and_message(url: &str, topology: RedisTopology) {
    let one = TestReplica::start_on(url, topology.clone(), 1).await;
    let two = TestReplica::start_on(url, topology, 2).await;
    two.wait_live(&[&one]).await;
    let buses: [Arc<MemoryBus>; 2] = std::array::from_fn(|_| Arc::default());
    one.store.link_bus(&buses[0]);
    two.store.link_bus(&buses[1]);
    let mut heard = buses[1].subscribe("cancel");
    one.open(&key(1), "value").await;
    let elsewhere = FoundPlace::Elsewhere(one.id.clone());
    assert_eq!(two.locate(&key(1), &one).await, elsewhere);
    let message = BusMessage {
        topic: "cancel",
        body: "body".into(),
    };
    // The subscription may come later than the first message.
    let begun = tokio::time::Instant::now();
    loop {
        buses[0].publish(message.clone());
        let received = timeout(Duration::from_millis(200), heard.recv()).await;
        if let Ok(received) = received {
            assert_eq!(received, Ok(message));
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "no message");
    }
    assert_eq!(one.store.begin_drain().await, 0);
    one.store.shutdown().await;
    wait_for("absence", || two.seen(&one).is_none()).await;
    assert_eq!(two.locate(&key(1), &one).await, here("value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_a_shared_store() {
    let lines = "cluster-enabled yes\ncluster-config-file nodes.conf\nappendonly yes";
    let node = ServerProcess::start("cluster", lines, &[]).await;
    let slots = node.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    slots.expect("slots");
    let begun = tokio::time::Instant::now();
    while node
        .run(&["SET", "{test:replicas}:born", "long ago"])
        .await
        .is_err()
    {
        assert!(begun.elapsed() < PATIENCE, "the cluster is not ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    share_session_and_message(&node.url(), RedisTopology::Cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn primary_server_of_a_sentinel_is_a_shared_store() {
    let server = ServerProcess::start("primary", "appendonly yes", &[]).await;
    let born = server.run(&["SET", "{test:replicas}:born", "long ago"]);
    born.await.expect("set");
    let lines = format!("sentinel monitor main 127.0.0.1 {} 1", server.port);
    let sentinel = ServerProcess::start("sentinel", &lines, &["--sentinel"]).await;
    let primary = "main".to_owned();
    share_session_and_message(&sentinel.url(), RedisTopology::Sentinel { primary }).await;
}

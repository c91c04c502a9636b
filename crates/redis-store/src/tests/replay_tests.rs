//! Replay logs that outlive their replica.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::SessionKey;
use weir_core::port::{ReplayLog, StreamKey};
use weir_replica_testkit::RedisServer;
use weir_store::{MemoryReplays, ReplayCaps};
use weir_testkit::TokioClock;

use super::replica::{TestReplica, old_server, wait_for};
use crate::SharedReplays;

const AGE: Duration = Duration::from_secs(300);

fn key(stream: u64) -> StreamKey {
    StreamKey {
        session: SessionKey([1; 16]),
        stream,
    }
}

fn lost() -> Bytes {
    Bytes::from_static(b"lost")
}

fn replays(replica: &TestReplica) -> Arc<SharedReplays> {
    let caps = ReplayCaps::default();
    let local = MemoryReplays::new(Arc::new(TokioClock::new()), caps);
    replica.store.replays(Arc::new(local), AGE)
}

/// Waits until the server has all that was written.
async fn wait_written(replica: &TestReplica) {
    wait_for("written logs", || {
        replica.store.status().pending_writes == 0
    })
    .await;
}

/// The events of a recovered stream after a number, each as text; the stream has ended.
async fn recovered(replays: &SharedReplays, key: StreamKey, after: u64) -> Vec<(u64, String)> {
    assert!(replays.recover(key).await, "the log is not found");
    let found = replays.events_after(key, after).await.expect("read");
    let found = found.expect("the stream is known");
    assert!(found.is_ended);
    let text = |(seq, event): (u64, Bytes)| {
        let event = String::from_utf8(event.to_vec()).expect("text");
        (seq, event)
    };
    found.events.into_iter().map(text).collect()
}

fn text(seq: u64, event: &str) -> (u64, String) {
    (seq, event.to_owned())
}

async fn two_replicas(server: &RedisServer) -> (TestReplica, TestReplica) {
    (
        TestReplica::start(server, 1).await,
        TestReplica::start(server, 2).await,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_killed_replica_are_resumed_elsewhere() {
    let server = old_server();
    let (one, two) = two_replicas(&server).await;
    let (own, other) = (replays(&one), replays(&two));
    for stream in 1..=3 {
        assert!(own.begin(key(stream), &lost));
        own.append(key(stream), 1, Bytes::from_static(b"progress"));
    }
    // The answer of one is written; of another it is too large; the third one still runs.
    own.append(key(1), 2, Bytes::from_static(b"answer"));
    own.end(key(1));
    own.append(key(2), 2, Bytes::from(vec![b'x'; 9000]));
    own.end(key(2));
    wait_written(&one).await;
    one.crash();
    let events = recovered(&other, key(1), 0).await;
    assert_eq!(events, [text(1, "progress"), text(2, "answer")]);
    assert_eq!(recovered(&other, key(1), 1).await, [text(2, "answer")]);
    for stream in [2, 3] {
        let events = recovered(&other, key(stream), 1).await;
        assert_eq!(events, [text(u64::MAX, "lost")], "stream {stream}");
    }
    assert!(!other.recover(key(4)).await, "of no stream that began");
    let elsewhere = StreamKey {
        session: SessionKey([2; 16]),
        ..key(1)
    };
    assert!(!other.recover(elsewhere).await, "of another session");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_sealed_expire_and_are_written_after_an_outage() {
    let mut server = old_server();
    let (one, two) = two_replicas(&server).await;
    let (own, other) = (replays(&one), replays(&two));
    assert!(own.begin(key(1), &lost));
    own.append(key(1), 1, Bytes::from_static(b"secret answer"));
    own.end(key(1));
    wait_written(&one).await;
    let all = server.keys();
    let name = all.iter().find(|name| name.starts_with("test:e:"));
    let name = name.expect("the log is in the server");
    let values = format!("{:?}", server.run(&["HGETALL", name]));
    assert!(!values.contains("secret"), "{values}");
    let left = format!("{:?}", server.run(&["PTTL", name]));
    let millis: String = left.chars().filter(char::is_ascii_digit).collect();
    assert!(
        matches!(millis.parse::<u128>(), Ok(left) if (1..=AGE.as_millis()).contains(&left)),
        "{left}"
    );
    // A value of one field does not open for another.
    server.run(&["HSET", name, "7", "AAAA"]);
    assert_eq!(
        recovered(&other, key(1), 0).await,
        [text(1, "secret answer")]
    );
    server.kill();
    assert!(own.begin(key(2), &lost));
    own.append(key(2), 1, Bytes::from_static(b"later"));
    assert!(!other.recover(key(2)).await);
    server.restart();
    wait_written(&one).await;
    wait_for("the link of the other replica", || {
        two.store.status().is_connected
    })
    .await;
    let events = recovered(&other, key(2), 0).await;
    assert_eq!(events, [text(1, "later"), text(u64::MAX, "lost")]);
}

//! A server that is reached and refuses commands, or delays them: each is an outage with its reason,
//! and ends by itself.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use weir_core::SessionKey;
use weir_core::port::{RecordStore as _, ReplayLog as _, ReplicaDirectory as _, StreamKey};
use weir_replica_testkit::RedisServer;
use weir_store::{MemoryReplays, ReplayCaps};
use weir_testkit::TokioClock;

use super::replica::{
    TestReplica, here, key, old_server, prompt, records_in, wait_for, wait_for_outage,
};

/// The longest time for writes that waited for the server.
const WRITTEN: Duration = Duration::from_secs(40);

/// A state in which a server refuses writes.
struct Refusal {
    /// The commands that begin it.
    begin: &'static [&'static [&'static str]],
    /// The commands that end it.
    end: &'static [&'static [&'static str]],
    /// A part of the reason in the status.
    reason: &'static str,
}

const REFUSALS: [Refusal; 5] = [
    Refusal {
        begin: &[&["REPLICAOF", "127.0.0.1", "1"]],
        end: &[&["REPLICAOF", "NO", "ONE"]],
        reason: "read-only replica",
    },
    Refusal {
        begin: &[
            &["CONFIG", "SET", "replica-serve-stale-data", "no"],
            &["REPLICAOF", "127.0.0.1", "1"],
        ],
        end: &[&["REPLICAOF", "NO", "ONE"]],
        reason: "read-only replica",
    },
    Refusal {
        begin: &[&["CONFIG", "SET", "maxmemory", "1"]],
        end: &[&["CONFIG", "SET", "maxmemory", "0"]],
        reason: "OOM",
    },
    Refusal {
        begin: &[&["CONFIG", "SET", "min-replicas-to-write", "1"]],
        end: &[&["CONFIG", "SET", "min-replicas-to-write", "0"]],
        reason: "NOREPLICAS",
    },
    Refusal {
        begin: &[&["CLIENT", "PAUSE", "600000", "WRITE"]],
        end: &[&["CLIENT", "UNPAUSE"]],
        reason: "no answer within",
    },
];

fn run_all(server: &RedisServer, commands: &[&[&str]]) {
    for command in commands {
        server.run(command);
    }
}

// Proves F07.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_refuses_writes_is_an_outage_with_its_reason_and_gets_all_afterwards() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    two.wait_live(&[&one]).await;
    one.open(&key(0), "value").await;
    let mut ids = 1..;
    for refusal in REFUSALS {
        let Refusal { begin, end, reason } = refusal;
        run_all(&server, begin);
        let opened: Vec<_> = ids.by_ref().take(10).collect();
        let keys: Vec<_> = opened.iter().map(|id| key(*id)).collect();
        join_all(keys.iter().map(|key| prompt(one.open(key, "value")))).await;
        wait_for_outage(&one, reason).await;
        assert_eq!(prompt(one.locate(&key(0), &one)).await, here("value"));
        assert!(one.records.pending_writes() > 0, "{reason}");
        run_all(&server, end);
        assert_eq!(one.records.flush(WRITTEN).await, 0, "{reason}");
        wait_for("the end of it", || one.store.status().is_connected).await;
        let last = opened.last().copied().unwrap_or_default();
        assert_eq!(records_in(&server), usize::from(last) + 1, "{reason}");
    }
    // The sessions are whole: another replica takes them over.
    one.crash();
    let registry = two.store.registry();
    wait_for("its end", || registry.address(&one.id).is_none()).await;
    assert_eq!(two.locate(&key(33), &one).await, here("value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_refuses_writes_is_an_outage_while_it_answers_reads() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let local = MemoryReplays::new(Arc::new(TokioClock::new()), ReplayCaps::default());
    let replays = one.store.replays(Arc::new(local), Duration::from_secs(60));
    let unknown = StreamKey {
        session: SessionKey([1; 16]),
        stream: 1,
    };
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let reading = async {
        loop {
            replays.recover(unknown).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = reading => {}
        () = wait_for_outage(&one, "OOM") => {}
    }
    server.run(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_for("the end of it", || one.store.status().is_connected).await;
}

/// A full server permits the end of a session, which begins with a removal.
#[tokio::test(flavor = "multi_thread")]
async fn full_server_stays_an_outage_while_sessions_end() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    for id in 0..100 {
        one.open(&key(id), "value").await;
    }
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let ending = async {
        for id in (0..100).cycle() {
            one.records
                .remove(&key(id))
                .await
                .expect("the memory has it");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = ending => {}
        () = wait_for_outage(&one, "OOM") => {}
    }
    assert!(one.records.remove(&key(99)).await.is_ok());
    assert!(!one.store.status().is_connected);
    server.run(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_for("the end of it", || one.store.status().is_connected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_loads_its_data_is_an_outage_until_it_has_them() {
    let mut server = RedisServer::with_settings(&[["appendonly", "no"]]);
    server.run(&["SET", "{test:replicas}:born", "long ago"]);
    let one = TestReplica::start(&server, 1).await;
    for id in 0..20 {
        one.open(&key(id), "value").await;
    }
    server.restart_loading(Duration::from_millis(300));
    prompt(one.open(&key(20), "value")).await;
    wait_for_outage(&one, "loading").await;
    assert_eq!(prompt(one.locate(&key(1), &one)).await, here("value"));
    assert_eq!(one.records.flush(WRITTEN).await, 0);
    assert_eq!(records_in(&server), 21);
    assert!(one.store.status().is_connected);
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_scripts_are_sent_again_without_an_error() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    one.open(&key(1), "value").await;
    let error_before = one.store.status().last_error;
    server.run(&["SCRIPT", "FLUSH"]);
    one.open(&key(2), "value").await;
    assert_eq!(records_in(&server), 2, "it was written at once");
    // The task that repeats writes may just have taken the same one.
    wait_for("no write to repeat", || one.records.pending_writes() == 0).await;
    assert_eq!(one.store.status().last_error, error_before);
}

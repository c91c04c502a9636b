//! Sealing keys are rotated under load: without a restart, and without a call or a session lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{COUNT, call, delete, open_at, start};
use crate::admin::{OperatorClient, body};
use crate::harness::{
    CheckedClient, Replicas, Weir, retry_params, wait_until_async, within_test_timeout,
};

/// Clients of each kind.
const CLIENTS: usize = 3;
/// The calls of each session that a client opens.
const CALLS_OF_A_SESSION: usize = 3;

/// The observations of clients that run.
#[derive(Default)]
struct LoadState {
    stop: AtomicBool,
    /// The sessions that were opened, used and ended.
    sessions: AtomicUsize,
    /// The parked calls that were continued.
    continued: AtomicUsize,
    /// The ids of the keys that sealed the ids of sessions and the states of calls.
    keys: Mutex<BTreeSet<u8>>,
}

/// Clients that open and end sessions, and clients whose calls are parked and continued, through
/// the balancer. Each of their requests must succeed.
struct RotationLoad {
    state: Arc<LoadState>,
    clients: JoinSet<()>,
}

impl RotationLoad {
    fn start(url: &str) -> Self {
        let mut load = Self {
            state: Arc::default(),
            clients: JoinSet::new(),
        };
        for _ in 0..CLIENTS {
            let sessions = use_sessions(url.to_owned(), load.state.clone());
            load.clients.spawn(sessions);
            let calls = continue_calls(url.to_owned(), load.state.clone());
            load.clients.spawn(calls);
        }
        load
    }

    /// Waits until every client has begun and ended something from now on.
    async fn wait_for_rounds(&mut self) {
        let counts = || {
            let state = &self.state;
            [&state.sessions, &state.continued].map(|count| count.load(Ordering::Relaxed))
        };
        let before = counts();
        let clients = &mut self.clients;
        wait_until_async("more rounds", async || {
            if let Some(ended) = clients.try_join_next() {
                ended.unwrap();
            }
            let mut pairs = counts().into_iter().zip(before);
            pairs
                .all(|(now, before)| now >= before + 3 * CLIENTS)
                .then_some(())
        })
        .await;
    }

    /// Returns the keys that sealed since the last call of this.
    fn take_keys(&self) -> BTreeSet<u8> {
        std::mem::take(&mut *self.state.keys.lock())
    }

    async fn stop(mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = within_test_timeout("the clients", self.clients.join_next()).await {
            ended.unwrap();
        }
    }
}

impl LoadState {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Records the key of a sealed text: its id is the first byte.
    fn note_key(&self, sealed: &str) {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(sealed.as_bytes());
        self.keys.lock().insert(bytes.unwrap()[0]);
    }
}

async fn use_sessions(url: String, state: Arc<LoadState>) {
    while !state.is_stopped() {
        let client = CheckedClient::open(&url, Revision::NEWEST_LEGACY).await;
        state.note_key(client.raw().session().unwrap());
        for number in 0..CALLS_OF_A_SESSION {
            call(&client, number).await;
        }
        delete(&client).await;
        state.sessions.fetch_add(1, Ordering::Relaxed);
    }
}

async fn continue_calls(url: String, state: Arc<LoadState>) {
    let capabilities = json!({ "elicitation": {} });
    let client = CheckedClient::with_capabilities(&url, Revision::MODERN, capabilities).await;
    let mut number = 0;
    while !state.is_stopped() {
        number += 1;
        let arguments = json!({ "n": number });
        let asked = client.call("ask", arguments.clone()).await;
        let params = retry_params(asked.result(), &arguments);
        state.note_key(params["requestState"].as_str().unwrap());
        let done = client.ask("tools/call", params).await;
        assert_eq!(done.text(), arguments.to_string(), "{}", done.last());
        state.continued.fetch_add(1, Ordering::Relaxed);
    }
}

async fn upstream() -> MockServer {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let form = json!({ "message": "Your name?", "requestedSchema": schema });
    MockServer::legacy(Revision::NEWEST_LEGACY)
        .tools(1)
        .tool("ask", MockBehaviour::ask("elicitation/create", form))
        .start()
        .await
}

/// Puts keys in force at one replica.
async fn reload_keys(replicas: &Replicas, number: usize, ids: &[usize]) {
    replicas.write_keys(number, ids);
    let ops = OperatorClient::of(replicas.replica(number));
    ops.change("/admin/reload", json!({})).await;
}

async fn overview(weir: &Weir) -> Value {
    OperatorClient::of(weir).get_json("/admin/replicas").await
}

/// Waits until every replica sees these keys, and the key that seals, of all replicas.
async fn wait_for_keys(replicas: &Replicas, keys: &[Value], sealing: &[u8]) {
    for weir in replicas.running() {
        wait_until_async("the keys of all replicas", async || {
            let seen = overview(weir).await;
            let all = seen["replicas"].as_array()?;
            let matches = all.len() == COUNT
                && all.iter().all(|one| {
                    let sealing_key = one["sealing_key"].as_u64().unwrap_or_default();
                    keys.contains(&one["keys"])
                        && sealing.iter().any(|id| u64::from(*id) == sealing_key)
                });
            matches.then_some(())
        })
        .await;
    }
}

/// Waits until the first replica sees that only the last one lacks the new key.
async fn expect_one_behind(replicas: &Replicas) {
    let weir = replicas.replica(0);
    let seen = wait_until_async("one replica without the new key", async || {
        let seen = overview(weir).await;
        let behind = seen["next_key"]["waits_for"].as_array()?.len();
        (behind == 1).then_some(seen)
    })
    .await;
    let all = seen["replicas"].as_array().unwrap();
    let behind = all.iter().find(|one| one["keys"] == json!([1])).unwrap();
    let next = json!({ "id": 2, "waits_for": [behind["id"]] });
    assert_eq!(seen["next_key"], next, "{seen}");
    wait_until_async("the metric of it", async || {
        let waiting = weir.metric("weir_sealing_waiting", &[]);
        ((waiting - 1.0).abs() < 0.5).then_some(())
    })
    .await;
}

async fn expect_ready(replicas: &Replicas, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let ready = OperatorClient::of(replicas.replica(number))
            .get("/readyz")
            .await;
        assert_eq!(ready.status, 200, "{number}: {}", body(&ready));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_rotated_one_replica_after_another_and_nothing_is_lost() {
    let upstream = upstream().await;
    let replicas = start(&upstream).await;
    let url = replicas.url("/mcp");
    let mut load = RotationLoad::start(&url);
    let old = CheckedClient::open(&url, Revision::NEWEST_LEGACY).await;
    load.wait_for_rounds().await;
    // The new key opens, and does not seal before the last replica has it.
    for number in 0..COUNT - 1 {
        reload_keys(&replicas, number, &[2, 1]).await;
        load.wait_for_rounds().await;
    }
    wait_for_keys(&replicas, &[json!([2, 1]), json!([1])], &[1]).await;
    load.wait_for_rounds().await;
    assert_eq!(load.take_keys(), BTreeSet::from([1]));
    expect_one_behind(&replicas).await;
    // A key that seals is not given up.
    replicas.write_keys(0, &[2]);
    let ops = OperatorClient::of(replicas.replica(0));
    let refused = ops.try_change("/admin/reload", &json!({})).await;
    assert_eq!(refused.status, 409);
    assert!(
        body(&refused).contains("seals with key 1"),
        "{}",
        body(&refused)
    );
    reload_keys(&replicas, 0, &[2, 1]).await;
    // The last replica has it: all seal with it.
    reload_keys(&replicas, COUNT - 1, &[2, 1]).await;
    wait_for_keys(&replicas, &[json!([2, 1])], &[2]).await;
    assert_eq!(overview(replicas.replica(0)).await["next_key"], Value::Null);
    load.wait_for_rounds().await;
    load.take_keys();
    load.wait_for_rounds().await;
    assert_eq!(load.take_keys(), BTreeSet::from([2]));
    for number in 0..2 * COUNT {
        call(&old, number).await;
    }
    delete(&old).await;
    // The old key goes, once nothing is sealed with it.
    let new = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let new = new.at_url(&url);
    for number in 0..COUNT {
        reload_keys(&replicas, number, &[2]).await;
        load.wait_for_rounds().await;
        call(&new, number).await;
    }
    wait_for_keys(&replicas, &[json!([2])], &[2]).await;
    for number in 0..2 * COUNT {
        call(&new, number).await;
    }
    load.wait_for_rounds().await;
    expect_ready(&replicas, 0..COUNT).await;
    load.stop().await;
    delete(&new).await;
    assert!(replicas.metric("weir_forwarded_total", &["result=\"answered\""]) > 0.5);
    let failed = ["unreachable", "lost"].map(|result| {
        let label = format!("result=\"{result}\"");
        replicas.metric("weir_forwarded_total", &[&label])
    });
    assert!(failed.iter().all(|count| *count < 0.5), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_without_the_key_of_others_is_not_ready_and_names_it() {
    let upstream = upstream().await;
    let mut replicas = start(&upstream).await;
    let stranger = replicas.start_unready_with_keys(&[3]);
    let ops = OperatorClient::of(replicas.replica(stranger));
    wait_until_async("the reason", async || {
        let ready = ops.get("/readyz").await;
        (ready.status == 503 && body(&ready).contains("seal with key 1")).then_some(())
    })
    .await;
    let first = replicas.replica(0);
    wait_until_async("the replica that is not ready", async || {
        let seen = overview(first).await;
        let all = seen["replicas"].as_array()?;
        let lacking = all.iter().filter(|one| one["opens_all"] == false);
        (lacking.map(|one| &one["keys"]).collect::<Vec<_>>() == [&json!([3])]).then_some(())
    })
    .await;
    expect_ready(&replicas, 0..COUNT).await;
    reload_keys(&replicas, stranger, &[3, 1]).await;
    wait_until_async("readiness", async || {
        (ops.get("/readyz").await.status == 200).then_some(())
    })
    .await;
}

//! Upstreams with `instances: one`, whose owner stops, restarts gracefully or is reloaded.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use weir_testkit::{MockStdio, TestFolder};
use weir_wire::Revision;

use super::COUNT;
use super::one_instance::{
    count, counted, job, mocks, next_report, open, other_than, owner, start, start_with_child,
};
use crate::handover::{is_gone, successors};
use crate::harness::{
    CheckedClient, ForeignServer, peers_are_enabled, signal, wait_until, within_test_timeout,
};

/// The pause between calls that go on while a replica ends.
const CALL_PAUSE: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_that_stops_hands_over_without_a_failed_call() {
    let (mut replicas, files) = start(MockStdio::legacy(Revision::NEWEST_LEGACY), json!({})).await;
    let stopped = owner(&replicas);
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let calling: Vec<_> = (0..COUNT)
        .filter(|number| *number != stopped)
        .map(|number| {
            let url = replicas.replica(number).url("/mcp");
            let stopping = stopping.clone();
            tokio::spawn(async move {
                let client = CheckedClient::open(&url, Revision::MODERN).await;
                let mut pids = Vec::new();
                while !*stopping.borrow() {
                    let answer = client.call("count", json!({ "wait_ms": 5 })).await;
                    pids.push(counted(&answer).0);
                    tokio::time::sleep(CALL_PAUSE).await;
                }
                pids
            })
        })
        .collect();
    wait_until("calls", || (files.called().len() > 20).then_some(()));
    assert_eq!(replicas.stop(stopped).await, Some(0));
    let next = owner(&replicas);
    assert_ne!(next, stopped);
    let before = files.called().len();
    wait_until("calls of the next owner", || {
        (files.called().len() > before + 20).then_some(())
    });
    stop.send(true).unwrap();
    let mut answered = 0;
    let mut pids = BTreeSet::new();
    for caller in calling {
        let seen = caller.await.unwrap();
        answered += seen.len();
        pids.extend(seen);
    }
    assert_eq!(files.started().len(), 2);
    assert_eq!(pids, files.started().into_iter().collect());
    assert_eq!(answered, files.called().len(), "each call ran once");
}

/// The watches of the other replicas go on where the child does, or the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_not_lost_when_the_owner_restarts_gracefully_and_when_it_stops() {
    for (mock, protocol) in mocks() {
        let (mut replicas, files) = start(mock, protocol).await;
        let number = owner(&replicas);
        let restarted = replicas.replica(number);
        restarted.process.signal("USR2");
        let next = wait_until("the next process", || {
            successors(restarted).first().copied()
        });
        wait_until("the process before to end", || {
            is_gone(restarted.process.id()).then_some(())
        });
        let changing = open(&replicas, number, Revision::MODERN).await;
        changing.call("add_tool", json!({})).await;
        for replica in replicas.running() {
            replica.wait_until_listed("/mcp", &["added_0"]);
        }
        assert_eq!(files.started().len(), 1, "the child moved");

        signal(next, "TERM");
        wait_until("the next process to end", || is_gone(next).then_some(()));
        // Its first process has ended by itself.
        replicas.stop(number).await;
        for other in replicas.running_numbers() {
            count(&open(&replicas, other, Revision::MODERN).await).await;
        }
        assert_eq!(files.started().len(), 2);
        for output in replicas.outputs() {
            assert!(!output.contains("upstream list watch failed"), "{output}");
        }
    }
}

/// Changed settings end the child and its lease; the watches of the other replicas wait for the next
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_not_lost_when_the_owner_is_reloaded_with_changed_settings() {
    let (replicas, files) = start(MockStdio::modern(), json!({ "protocol": "modern" })).await;
    let number = owner(&replicas);
    let reloaded = replicas.replica(number);
    let mut config = reloaded.config();
    config["upstreams"]["one"]["limits"] = json!({ "in_flight": 7 });
    reloaded.rewrite_config(config);
    reloaded.process.signal("HUP");
    wait_until("the next child", || {
        (files.started().len() == 2).then_some(())
    });
    for other in replicas.running_numbers() {
        count(&open(&replicas, other, Revision::MODERN).await).await;
    }
    for output in replicas.outputs() {
        assert!(!output.contains("upstream list watch failed"), "{output}");
    }
}

/// The lease and the child are the next process's, the call is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_the_process_before_ends_although_the_next_process_is_stopped() {
    let (mut replicas, files) = start(MockStdio::legacy(Revision::NEWEST_LEGACY), json!({})).await;
    let number = owner(&replicas);
    let client = open(&replicas, number, Revision::MODERN).await;
    let calling =
        tokio::spawn(async move { client.call("count", json!({ "wait_ms": 6000 })).await });
    let restarted = replicas.replica(number);
    wait_until("the call", || {
        (restarted.metric("weir_upstream_in_flight", &[]) > 0.5).then_some(())
    });
    restarted.process.signal("USR2");
    let next = wait_until("the next process", || {
        successors(restarted).first().copied()
    });
    wait_until("the child to move", || {
        let output = restarted.process.output();
        output
            .contains("graceful restart: sessions received")
            .then_some(())
    });
    signal(next, "TERM");
    let answer = within_test_timeout("the answer", calling).await.unwrap();
    assert_eq!(counted(&answer).0, files.started()[0]);
    wait_until("the next process to end", || is_gone(next).then_some(()));
    // Its first process has ended by itself.
    replicas.stop(number).await;
    for other in replicas.running_numbers() {
        count(&open(&replicas, other, Revision::MODERN).await).await;
    }
    assert_eq!(files.started().len(), 2, "the lease was given up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_of_a_task_goes_on_when_its_owner_restarts_gracefully() {
    if !peers_are_enabled() {
        return;
    }
    let folder = TestFolder::new("task-progress");
    let (end, steps) = (folder.file("end"), folder.file("steps"));
    let child = ForeignServer::task_progress(&end, &steps);
    let replicas = start_with_child(child, json!({ "protocol": "legacy" })).await;
    for replica in replicas.running() {
        replica.wait_until_listed("/mcp", &["job"]);
    }
    let number = owner(&replicas);
    let client = open(&replicas, other_than(number), Revision::V2025_11_25).await;
    let created = client.ask("tools/call", job()).await;
    let about = json!({ "taskId": created.result()["task"]["taskId"] });
    let mut waiting = client.start("tasks/result", about).await;
    next_report(&mut waiting).await;
    let restarted = replicas.replica(number);
    restarted.process.signal("USR2");
    wait_until("the process before to end", || {
        is_gone(restarted.process.id()).then_some(())
    });
    let sent: u64 = wait_until("the number of reports", || {
        std::fs::read_to_string(&steps).ok()?.parse().ok()
    });
    // Those that were sent before the restart may still wait to be read.
    while next_report(&mut waiting).await <= sent {}
    std::fs::write(&end, "").unwrap();
    let rest = waiting.read_rest().await;
    let text = &rest.last().unwrap()["result"]["content"][0]["text"];
    assert_eq!(text, "done", "{rest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_moves_with_a_graceful_restart_of_its_owner() {
    let (replicas, files) = start(MockStdio::legacy(Revision::NEWEST_LEGACY), json!({})).await;
    let restarted = owner(&replicas);
    let mut clients = Vec::new();
    for number in 0..COUNT {
        clients.push(open(&replicas, number, Revision::MODERN).await);
    }
    let (first, _) = count(&clients[0]).await;
    let replica = replicas.replica(restarted);
    let before = replica.process.id();
    replica.process.signal("USR2");
    wait_until("the successor", || {
        crate::handover::successors(replica).first().copied()
    });
    for _ in 0..3 {
        for client in &clients {
            assert_eq!(count(client).await.0, first);
        }
    }
    wait_until("the end of the old process", || {
        crate::handover::is_gone(before).then_some(())
    });
    for client in &clients {
        assert_eq!(count(client).await.0, first);
    }
    assert_eq!(files.started(), [first]);
}

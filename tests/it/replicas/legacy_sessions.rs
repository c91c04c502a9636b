//! Sessions of legacy clients that reach another replica with each request.

use std::collections::BTreeSet;

use weir_testkit::MockServer;
use weir_wire::Revision;

use super::{COUNT, at, call, delete, expect_session_gone, open_at, start, use_session};
use crate::harness::CheckedClient;

const LEGACY: [Revision; 4] = [
    Revision::V2024_11_05,
    Revision::V2025_03_26,
    Revision::V2025_06_18,
    Revision::V2025_11_25,
];

// Proves D18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_each_revision_is_served_by_every_replica_until_its_delete() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(3);
    let upstream = upstream.start().await;
    let replicas = start(&upstream).await;
    for revision in LEGACY {
        let before = upstream.requests_of("tools/call").len();
        let client = CheckedClient::open(&replicas.url("/mcp"), revision).await;
        use_session(&client, 10).await;
        let calls = upstream.requests_of("tools/call").split_off(before);
        let sessions: BTreeSet<_> = calls.iter().map(|call| call.session()).collect();
        assert_eq!((calls.len(), sessions.len()), (10, 1), "one owner calls");
        delete(&client).await;
        expect_session_gone(&client, &replicas).await;
    }
    for number in 0..COUNT {
        let requests = replicas.requests_to(number);
        assert!(requests > 30, "replica {number} got {requests} requests");
    }
}

/// The others have not heard of the replica yet that opened the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_a_replica_that_just_started_stays_there() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let upstream = upstream.start().await;
    let mut replicas = start(&upstream).await;
    let newest = replicas.start_another();
    let client = open_at(&replicas, newest, Revision::NEWEST_LEGACY).await;
    for number in 0..=newest {
        call(&at(&client, &replicas, number), number).await;
    }
    let calls = upstream.requests_of("tools/call");
    let sessions: BTreeSet<_> = calls.iter().map(|call| call.session()).collect();
    assert_eq!((calls.len(), sessions.len()), (newest + 1, 1));
    assert!(replicas.metric("weir_store_lost_total", &[]) < 0.5);
    delete(&client).await;
    expect_session_gone(&client, &replicas).await;
}

// Proves R284.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modern_calls_run_where_they_arrive() {
    let upstream = MockServer::modern().tools(1).start().await;
    let replicas = start(&upstream).await;
    let client = CheckedClient::open(&replicas.url("/mcp"), Revision::MODERN).await;
    for number in 0..30 {
        call(&client, number).await;
    }
    assert_eq!(upstream.executions("tool_0000"), 30);
    assert!(replicas.metric("weir_forwarded_total", &[]) < 0.5);
    for number in 0..COUNT {
        assert!(replicas.requests_to(number) >= 10);
    }
}

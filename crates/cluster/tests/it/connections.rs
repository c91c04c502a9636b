//! The connections between two replicas: their keys, their ends and their limits.

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use weir_listen::ForwardError;
use weir_testkit::ClosedPort;
use weir_testkit::accept::listen_on_loopback;

use crate::test_replica::{TestForwarder, TestReplica, text, tls};

fn is_not_sent<T>(answer: &Result<T, ForwardError>) -> bool {
    matches!(answer, Err(ForwardError::NotSent(_)))
}

async fn assert_served(forwarder: &TestForwarder) {
    let answer = forwarder.post("/echo", "body").await.unwrap();
    assert!(text(answer).await.ends_with("\nbody"));
}

#[tokio::test]
async fn cancelled_requests_do_not_end_the_connection() {
    let replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    assert_served(&forwarder).await;
    let mut hanging = replica.service.hanging.subscribe();
    for _ in 0..20 {
        let mut requests = JoinSet::new();
        for _ in 0..100 {
            let forwarder = forwarder.clone();
            requests.spawn(async move { forwarder.post("/hang", "body").await.map(drop) });
        }
        hanging.wait_for(|count| *count == 100).await.unwrap();
        requests.shutdown().await;
        hanging.wait_for(|count| *count == 0).await.unwrap();
    }
    // Reset before the other side has accepted them.
    for _ in 0..2000 {
        assert!(forwarder.post("/hang", "body").now_or_never().is_none());
    }
    assert_served(&forwarder).await;
    hanging.wait_for(|count| *count == 0).await.unwrap();
    assert_eq!(replica.service.connections(), 1);
}

#[tokio::test]
async fn answers_in_flight_may_be_dropped_by_the_thousand() {
    let mut replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    for _ in 0..2000 {
        let answer = forwarder.post("/stream", "").await.unwrap();
        let sender = replica.streams.recv().await.unwrap();
        sender
            .send(Ok("crosses with the reset".into()))
            .await
            .unwrap();
        drop(answer);
        sender.closed().await;
    }
    assert_served(&forwarder).await;
    assert_eq!(replica.service.connections(), 1);
}

#[tokio::test]
async fn replica_with_other_keys_is_refused() {
    let replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[2]);
    let answer = forwarder.post("/echo", "").await;
    assert!(is_not_sent(&answer));
    assert_eq!(forwarder.unreachable(), 1);
    assert_eq!(*replica.service.served.borrow(), 0);
}

#[tokio::test]
async fn replicas_connect_while_keys_are_rotated() {
    for (own, other) in [(&[2, 1][..], &[1][..]), (&[1], &[2, 1]), (&[2], &[2, 1])] {
        let replica = TestReplica::start(other).await;
        assert_served(&replica.forwarder(own)).await;
    }
}

#[tokio::test]
async fn requests_in_flight_outlive_the_key_of_their_connection() {
    let mut replica = TestReplica::start(&[2, 1]).await;
    let forwarder = replica.forwarder(&[1]);
    let answer = forwarder.post("/stream", "").await.unwrap();
    let sender = replica.streams.recv().await.unwrap();
    replica.cluster.use_server_config(tls(&[2]).server);
    forwarder.forwarder.use_tls(tls(&[2]));
    assert_served(&forwarder).await;
    assert_eq!(replica.service.connections(), 2);
    sender.send(Ok("the rest".into())).await.unwrap();
    drop(sender);
    assert_eq!(text(answer).await, "the rest");
    forwarder.forwarder.use_tls(tls(&[1]));
    assert!(is_not_sent(&forwarder.post("/echo", "").await));
}

#[tokio::test]
async fn dead_port_is_reported() {
    let port = ClosedPort::new();
    let forwarder = TestForwarder::new(port.address(), &[1]);
    assert!(is_not_sent(&forwarder.post("/echo", "").await));
    assert_eq!(forwarder.unreachable(), 1);
}

#[tokio::test]
async fn silent_replica_costs_all_requests_one_connection() {
    let (_listener, address) = listen_on_loopback().await;
    let forwarder = TestForwarder::new(address, &[1]);
    let mut requests = JoinSet::new();
    for _ in 0..50 {
        let forwarder = forwarder.clone();
        requests.spawn(async move { forwarder.post("/echo", "").await.map(drop) });
    }
    while let Some(answer) = requests.join_next().await {
        assert!(is_not_sent(&answer.unwrap()));
    }
    assert_eq!(forwarder.unreachable(), 1);
}

#[tokio::test]
async fn connection_that_breaks_during_a_request_is_lost() {
    let replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let mut hanging = replica.service.hanging.subscribe();
    let sender = forwarder.clone();
    let request = tokio::spawn(async move { sender.post("/hang", "body").await.map(drop) });
    hanging.wait_for(|count| *count == 1).await.unwrap();
    replica.cluster.force().cancel();
    let lost = request.await.unwrap().unwrap_err();
    assert!(matches!(lost, ForwardError::Lost(_)), "{lost:?}");
    assert_eq!(forwarder.unreachable(), 0);
}

#[tokio::test]
async fn draining_replica_ends_its_answers_and_gets_no_new_request() {
    let mut replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let answer = forwarder.post("/stream", "").await.unwrap();
    let sender = replica.streams.recv().await.unwrap();
    replica.cluster.drain().cancel();
    // The open connection takes requests until GOAWAY has arrived.
    while forwarder.post("/echo", "").await.is_ok() {}
    assert!(is_not_sent(&forwarder.post("/echo", "").await));
    sender.send(Ok("the rest".into())).await.unwrap();
    drop(sender);
    assert_eq!(text(answer).await, "the rest");
}

#[tokio::test]
async fn refused_stream_is_not_sent() {
    let replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    assert_served(&forwarder).await;
    replica.budgets.connections.set_limit(0);
    let answer = forwarder.post("/echo", "").await;
    assert!(is_not_sent(&answer));
    assert_eq!(*replica.service.served.borrow(), 1);
}

#[tokio::test]
async fn replica_without_an_address_is_not_asked() {
    let replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    assert_served(&forwarder).await;
    forwarder.end_replica();
    assert!(is_not_sent(&forwarder.post("/echo", "").await));
    assert_eq!(forwarder.unreachable(), 0);
}

#[tokio::test]
async fn shutdown_ends_requests_and_tasks() {
    let mut replica = TestReplica::start(&[1]).await;
    let forwarder = replica.forwarder(&[1]);
    let answer = forwarder.post("/stream", "").await.unwrap();
    let sender = replica.streams.recv().await.unwrap();
    forwarder.forwarder.shutdown().await;
    sender.closed().await;
    drop(answer);
    assert!(is_not_sent(&forwarder.post("/echo", "").await));
}

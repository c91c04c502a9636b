//! Messages and counters of several replicas.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::TryRecvError;
use tokio::time::{sleep, timeout};
use weir_core::port::{BusMessage, MessageBus as _, SharedCounters};
use weir_store::{MemoryBus, MemoryCounters};
use weir_testkit::TokioClock;

use super::replica::{TestReplica, old_server, wait_for};

const PATIENCE: Duration = Duration::from_secs(40);

fn message(body: &str) -> BusMessage {
    BusMessage {
        topic: "cancel",
        body: body.to_owned().into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_reaches_each_replica_once() {
    let mut server = old_server();
    let replicas = [
        TestReplica::start(&server, 1).await,
        TestReplica::start(&server, 2).await,
    ];
    let buses: [Arc<MemoryBus>; 2] = std::array::from_fn(|_| Arc::default());
    let mut heard: Vec<_> = buses.iter().map(|bus| bus.subscribe("cancel")).collect();
    for (replica, bus) in replicas.iter().zip(&buses) {
        replica.store.link_bus(bus);
    }
    for round in ["first", "second"] {
        let is_subscribed = || server.run(&["PUBSUB", "NUMSUB", "test:bus"]).texts()[1] == "2";
        wait_for("subscriptions", is_subscribed).await;
        let sent: Vec<_> = (0..100).map(|n| format!("{round} {n}")).collect();
        for body in &sent {
            buses[0].publish(message(body));
        }
        buses[0].publish(message(&"x".repeat(9000)));
        buses[0].publish(message("end"));
        let mut got = Vec::new();
        while got.last().is_none_or(|last| last != "end") {
            let received = timeout(PATIENCE, heard[1].recv()).await;
            let body = received.expect("in time").expect("no lag").body;
            got.push(String::from_utf8_lossy(&body).into_owned());
        }
        got.pop();
        assert_eq!(got, sent);
        // The sender has its own messages from its own bus alone.
        for _ in 0..102 {
            heard[0].try_recv().expect("its own");
        }
        buses[1].publish(message("answer"));
        let answer = timeout(PATIENCE, heard[0].recv()).await;
        assert_eq!(answer.expect("in time").expect("no lag"), message("answer"));
        assert_eq!(heard[1].try_recv(), Ok(message("answer")));
        for heard in &mut heard {
            assert_eq!(heard.try_recv(), Err(TryRecvError::Empty));
        }
        server.restart();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_add_up_and_fall_back_to_the_own_share() {
    const TTL: Duration = Duration::from_secs(600);
    let mut server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    let [one, two] = [&one, &two].map(|replica| {
        let local = MemoryCounters::new(Arc::new(TokioClock::new()));
        replica.store.counters(Arc::new(local))
    });
    assert_eq!(one.add("a", 2, TTL).await.expect("counted"), 2);
    assert_eq!(two.add("a", 3, TTL).await.expect("counted"), 5);
    assert_eq!(two.add("b", 1, TTL).await.expect("counted"), 1);
    let left = server.run(&["PTTL", "test:c:a"]).text();
    let left: i64 = left.parse().expect("a number");
    assert!((1..=600_000).contains(&left), "{left}");
    server.kill();
    assert_eq!(one.add("a", 1, TTL).await.expect("counted"), 3);
    server.restart();
    // The shared counter, far from the own shares now, goes on once the server is back.
    server.run(&["INCRBY", "test:c:a", "1000"]);
    for counters in [&one, &two] {
        let begun = tokio::time::Instant::now();
        while counters.add("a", 1, TTL).await.expect("counted") < 1000 {
            assert!(begun.elapsed() < PATIENCE, "no reconnection");
            // Its own share grows, too.
            sleep(Duration::from_millis(50)).await;
        }
    }
    assert_eq!(server.run(&["GET", "test:c:a"]).text(), "1007");
}

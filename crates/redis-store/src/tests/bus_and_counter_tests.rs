//! Messages and counters of several replicas.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::TryRecvError;
use tokio::time::{sleep, timeout};
use weir_core::port::{
    BusMessage, CounterAddition, CounterValue, MessageBus as _, OutageCounting, SharedCounters as _,
};
use weir_replica_testkit::RedisServer;
use weir_store::MemoryBus;

use super::replica::{TestReplica, impatient_settings, old_server, wait_for};
use crate::RedisCounters;

const PATIENCE: Duration = Duration::from_secs(40);
/// The life of counters.
const TTL: Duration = Duration::from_secs(600);

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

/// Counters of two replicas.
async fn counters_of_two(server: &RedisServer) -> ([TestReplica; 2], [Arc<RedisCounters>; 2]) {
    let replicas = [
        TestReplica::start(server, 1).await,
        TestReplica::start(server, 2).await,
    ];
    let counters = replicas.each_ref().map(|replica| replica.store.counters());
    (replicas, counters)
}

/// Adds while the store answers, and goes on alone while it does not.
async fn add(counters: &RedisCounters, name: &str, amount: u64) -> u64 {
    let added = counters.add(addition(name, amount), OutageCounting::Own);
    added.await.expect("counted").value
}

/// An addition without a highest value.
fn addition(name: &str, amount: u64) -> CounterAddition<'_> {
    CounterAddition {
        name,
        amount,
        most: u64::MAX,
        ttl: TTL,
    }
}

/// Adds as soon as the store answers again. Returns the value of the first addition that it has.
async fn add_once_it_answers(counters: &RedisCounters, name: &str, amount: u64) -> u64 {
    let begun = tokio::time::Instant::now();
    loop {
        let added = counters.add(addition(name, amount), OutageCounting::Fails);
        if let Ok(counted) = added.await {
            return counted.value;
        }
        assert!(begun.elapsed() < PATIENCE, "no reconnection");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_add_up_and_go_on_alone_in_an_outage() {
    let mut server = old_server();
    let (_replicas, [one, two]) = counters_of_two(&server).await;
    assert_eq!(add(&one, "a", 2).await, 2);
    assert_eq!(add(&two, "a", 3).await, 5);
    assert_eq!(add(&two, "b", 1).await, 1);
    let left = server.run(&["PTTL", "test:c:a"]).text();
    let left: i64 = left.parse().expect("a number");
    assert!((1..=600_000).contains(&left), "{left}");
    server.kill();
    for (counters, seen) in [(&one, 2), (&two, 5)] {
        assert_eq!(add(counters, "a", 1).await, seen + 1);
        assert_eq!(add(counters, "a", 1).await, seen + 2);
        let refused = counters
            .add(addition("a", 100), OutageCounting::Fails)
            .await;
        assert!(refused.is_err(), "{refused:?}");
    }
    server.restart();
    // The amounts of the outage arrive with the next addition, and those that failed do not.
    assert_eq!(add_once_it_answers(&one, "a", 1).await, 8);
    assert_eq!(add_once_it_answers(&two, "a", 1).await, 11);
    assert_eq!(server.run(&["GET", "test:c:a"]).text(), "11");
    server.run(&["INCRBY", "test:c:a", "1000"]);
    assert_eq!(add(&one, "a", 1).await, 1012);
    assert_eq!(add(&two, "a", 0).await, 1012);
}

#[tokio::test(flavor = "multi_thread")]
async fn amount_beyond_the_highest_value_is_not_added() {
    let mut server = old_server();
    let (_replicas, [one, two]) = counters_of_two(&server).await;
    let add_up_to = async |counters: &RedisCounters, amount, most| {
        let addition = CounterAddition {
            most,
            ..addition("a", amount)
        };
        let counted = counters.add(addition, OutageCounting::Own).await;
        let CounterValue { value, is_added } = counted.expect("counted");
        (value, is_added)
    };
    assert_eq!(add_up_to(&one, 4, 5).await, (4, true));
    assert_eq!(add_up_to(&two, 2, 5).await, (4, false));
    assert_eq!(add_up_to(&two, 1, 5).await, (5, true));
    for _ in 0..10 {
        assert_eq!(add_up_to(&one, 1, 5).await, (5, false));
    }
    assert_eq!(add_up_to(&one, 1, 7).await, (6, true));
    server.kill();
    assert_eq!(add_up_to(&one, 1, 7).await, (7, true));
    assert_eq!(add_up_to(&one, 1, 7).await, (7, false));
    server.restart();
    // The amount of the outage counts before the store has it.
    assert_eq!(add_once_it_answers(&two, "b", 1).await, 1);
    assert_eq!(add_once_it_answers(&one, "b", 1).await, 2);
    assert_eq!(add_up_to(&one, 1, 7).await, (7, false));
    assert_eq!(add_up_to(&two, 0, 7).await, (7, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn additions_to_a_store_that_stalls_count_once() {
    let server = old_server();
    let replica = TestReplica::start_with(&impatient_settings(&server.url()), 1).await;
    let counters = replica.store.counters();
    assert_eq!(add(&counters, "a", 2).await, 2);
    server.pause();
    for all in 3..=20 {
        assert_eq!(add(&counters, "a", 1).await, all);
    }
    server.resume();
    assert_eq!(add_once_it_answers(&counters, "a", 0).await, 20);
    assert_eq!(server.run(&["GET", "test:c:a"]).text(), "20");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_restore_a_counter_that_the_store_lost_and_share_it_again() {
    let server = old_server();
    let (_replicas, [one, two]) = counters_of_two(&server).await;
    assert_eq!(add(&one, "a", 8).await, 8);
    assert_eq!(add(&two, "a", 3).await, 11);
    server.run(&["FLUSHALL"]);
    // The replica that saw less comes first.
    assert_eq!(add(&one, "a", 1).await, 9);
    assert_eq!(add(&two, "a", 1).await, 12);
    assert_eq!(add(&one, "a", 1).await, 13);
    assert_eq!(server.run(&["GET", "test:c:a"]).text(), "13");
    let left = server.run(&["PTTL", "test:c:a"]).text();
    let left: i64 = left.parse().expect("a number");
    assert!((1..=600_000).contains(&left), "{left}");
    // A counter at the end of its life begins anew.
    let brief = CounterAddition {
        ttl: Duration::from_millis(300),
        ..addition("b", 5)
    };
    let added = one.add(brief, OutageCounting::Own).await;
    assert_eq!(added.expect("counted").value, 5);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(add(&one, "b", 1).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn simultaneous_additions_count_once() {
    let server = old_server();
    let (_replicas, [one, _]) = counters_of_two(&server).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let counters = one.clone();
        tasks.spawn(async move {
            for _ in 0..50 {
                let added = counters.add(addition("a", 1), OutageCounting::Fails);
                added.await.expect("counted");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    assert_eq!(add(&one, "a", 0).await, 64 * 50);
}

//! A client that is told of a changed list at one replica gets that list from every other, though the
//! server told the first alone.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use weir_replica_testkit::RedisServer;
use weir_testkit::MockServer;
use weir_testkit::mock_server::MockTool;
use weir_wire::Revision;

use super::COUNT;
use super::changing_list::{self, tool};
use crate::harness::{
    CheckedClient, CheckedStream, Replicas, wait_until_async, within_test_timeout,
};

/// Replicas of which each has a server of its own, all under one name: a server tells one replica of
/// a change, or one has another list than the others.
struct SeparateServers {
    servers: Vec<MockServer>,
    replicas: Replicas,
}

impl SeparateServers {
    /// Starts replicas whose servers have so many tools.
    async fn start(tools: [usize; COUNT]) -> Self {
        Self::with_redis(tools, RedisServer::start(), |_, _| {}).await
    }

    /// The same; `adjust` changes the config of a replica, by its number.
    async fn with_redis(
        tools: [usize; COUNT],
        redis: RedisServer,
        adjust: impl Fn(usize, &mut Value),
    ) -> Self {
        let (mut servers, mut configs) = (Vec::new(), Vec::new());
        for (number, count) in tools.into_iter().enumerate() {
            let server = MockServer::modern().tools(count).start().await;
            let mut config = super::config(&server);
            adjust(number, &mut config);
            configs.push(config);
            servers.push(server);
        }
        let replicas = Replicas::with_configs(configs, redis).await;
        let all = Self { servers, replicas };
        for (number, count) in tools.into_iter().enumerate() {
            all.wait_until_listed(number, count).await;
        }
        all
    }

    async fn client(&self, number: usize) -> CheckedClient {
        let url = self.replicas.replica(number).url("/mcp");
        CheckedClient::open(&url, Revision::MODERN).await
    }

    async fn wait_until_listed(&self, number: usize, count: usize) {
        let client = self.client(number).await;
        wait_until_async(&format!("{count} tools at replica {number}"), async || {
            (client.list_tool_names().await.len() == count).then_some(())
        })
        .await;
    }

    /// Gives every server so many tools. The first one alone tells its replica.
    fn change_all_and_notify_first(&self, count: usize) {
        for server in &self.servers {
            server.set_tools(MockTool::numbered(count));
        }
        self.servers[0].notify_list_changed();
    }

    /// Returns the number of lists of tools that a server gave.
    fn walks(&self, number: usize) -> usize {
        self.servers[number].requests_of("tools/list").len()
    }

    /// Returns the requests of a replica that got an older list after a wait.
    fn older_lists(&self, number: usize) -> f64 {
        let labels = [r#"outcome="older_list""#];
        let replica = self.replicas.replica(number);
        replica.metric("weir_list_waits_total", &labels)
    }

    /// Expects that a replica lists so many tools now. It may give the older list only if it says so:
    /// its walk took longer than clients wait.
    async fn expect_list_now(&self, number: usize, count: usize) {
        let client = self.client(number).await;
        let listed = client.list_tool_names().await.len();
        if listed != count {
            assert!(
                self.older_lists(number) > 0.5,
                "replica {number} listed {listed} tools instead of {count}"
            );
            self.wait_until_listed(number, count).await;
        }
    }

    /// Waits until the commands of this name that replicas sent to Redis are so many more.
    async fn wait_for_commands(&self, operation: &str, more: usize) {
        let labels = [format!("operation=\"{operation}\"")];
        let labels = [labels[0].as_str()];
        let count = || self.replicas.metric("weir_store_commands_total", &labels);
        let wanted = count() + more as f64;
        wait_until_async(operation, async || (count() >= wanted).then_some(())).await;
    }
}

async fn expect_change(stream: &mut CheckedStream, what: &str) {
    within_test_timeout(what, stream.expect_list_changed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_that_one_replica_was_told_of_is_listed_by_all() {
    let all = SeparateServers::start([1; COUNT]).await;
    let mut streams = Vec::new();
    for number in 0..COUNT {
        streams.push(all.client(number).await.open_change_stream().await);
    }
    for count in 2..5 {
        all.change_all_and_notify_first(count);
        expect_change(&mut streams[0], "the first replica's own change").await;
        for number in 0..COUNT {
            all.expect_list_now(number, count).await;
        }
        // Their own clients hear it, too.
        for stream in &mut streams[1..] {
            expect_change(stream, "the change at another replica").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_that_one_replica_was_told_of_is_called_at_all() {
    let all = SeparateServers::start([1; COUNT]).await;
    let mut stream = all.client(0).await.open_change_stream().await;
    for count in 2..5 {
        all.change_all_and_notify_first(count);
        expect_change(&mut stream, "the first replica's own change").await;
        let newest = tool(count - 1);
        for number in 0..COUNT {
            let client = all.client(number).await;
            let called = client.call(&newest, json!({})).await;
            if called.messages.iter().any(|one| one.get("error").is_some()) {
                assert!(all.older_lists(number) > 0.5, "{called:?}");
            } else {
                assert_eq!(called.text(), "{}");
                let executions = all.servers[number].executions(&newest);
                assert_eq!(executions, 1, "{newest} at replica {number}");
            }
        }
    }
}

/// A user of Redis that may not use the channel: no message of others reaches its replica.
const DEAF_USER: [&str; 8] = [
    "ACL",
    "SETUSER",
    "deaf",
    "on",
    ">3vq8LkZt0cW5",
    "~*",
    "+@all",
    "resetchannels",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_without_messages_looks_by_itself() {
    let redis = RedisServer::start();
    redis.run(&DEAF_USER);
    let url = redis.url_of_user("deaf", "3vq8LkZt0cW5");
    let all = SeparateServers::with_redis([1; COUNT], redis, |number, config| {
        if number == 2 {
            config["store"]["url"] = json!(url);
        }
    })
    .await;
    let mut told = all.client(0).await.open_change_stream().await;
    let mut deaf = all.client(2).await.open_change_stream().await;
    all.change_all_and_notify_first(3);
    expect_change(&mut told, "the first replica's own change").await;
    all.expect_list_now(1, 3).await;
    expect_change(&mut deaf, "the change at the replica without messages").await;
    all.expect_list_now(2, 3).await;
}

/// The announcing replica asks it over the cluster listener before it notifies its clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_without_messages_has_the_list_before_clients_of_others_are_told() {
    let redis = RedisServer::start();
    redis.run(&DEAF_USER);
    let url = redis.url_of_user("deaf", "3vq8LkZt0cW5");
    let all = SeparateServers::with_redis([1; COUNT], redis, |number, config| {
        if number != 0 {
            config["store"]["url"] = json!(url);
        }
    })
    .await;
    let mut told = all.client(0).await.open_change_stream().await;
    for count in 2..6 {
        all.change_all_and_notify_first(count);
        expect_change(&mut told, "the first replica's own change").await;
        for number in 1..COUNT {
            all.expect_list_now(number, count).await;
        }
    }
}

/// A replica that stands still confirms nothing: clients of the others are told all the same, and once
/// more when it may have given them an older list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_told_once_more_after_a_replica_was_late() {
    let all = SeparateServers::start([1; COUNT]).await;
    let mut told = all.client(0).await.open_change_stream().await;
    for count in [3, 5] {
        let late = &all.replicas.replica(2).process;
        late.freeze();
        all.change_all_and_notify_first(count);
        expect_change(&mut told, "the change, without the late replica").await;
        all.expect_list_now(0, count).await;
        late.signal("CONT");
        expect_change(&mut told, "the change once more").await;
        all.expect_list_now(2, count).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_looks_once_its_lost_subscription_is_back() {
    let all = SeparateServers::start([1; COUNT]).await;
    let mut told = all.client(0).await.open_change_stream().await;
    let mut others = Vec::new();
    for number in 1..COUNT {
        others.push(all.client(number).await.open_change_stream().await);
    }
    for count in 2..6 {
        let redis = all.replicas.redis();
        redis.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        all.change_all_and_notify_first(count);
        redis.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        expect_change(&mut told, "the first replica's own change").await;
        for (at, stream) in others.iter_mut().enumerate() {
            // A notification may be the repeat of an earlier one, after a replica was late.
            loop {
                expect_change(stream, "the change at another replica").await;
                let listed = all.client(at + 1).await.list_tool_names().await;
                if listed.len() == count {
                    break;
                }
            }
        }
    }
}

/// Each replica keeps the list of its own server, and walks at most once for each announcement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_with_different_lists_cause_one_walk_for_each_announcement() {
    let all = SeparateServers::start([1, 2, 3]).await;
    // Those of the start are over by then.
    all.wait_for_commands("poll_lists", 2 * COUNT).await;
    let walks = || (0..COUNT).map(|number| all.walks(number));
    let before: Vec<_> = walks().collect();
    // Of the start alone: a walk of its own, and one for each announcement of the others.
    assert!(before.iter().all(|walks| *walks <= COUNT), "{before:?}");
    let mut told = all.client(0).await.open_change_stream().await;
    all.servers[0].set_tools(MockTool::numbered(6));
    all.servers[0].notify_list_changed();
    expect_change(&mut told, "the first replica's own change").await;
    for (number, count) in [(0, 6), (1, 2), (2, 3)] {
        assert_eq!(
            all.client(number).await.list_tool_names().await.len(),
            count
        );
    }
    all.wait_for_commands("poll_lists", 2 * COUNT).await;
    let more: Vec<_> = walks()
        .zip(before)
        .map(|(now, before)| now - before)
        .collect();
    assert_eq!(more, [1, 1, 1], "one walk at each server");
    assert!(all.replicas.metric("weir_list_behind", &[]) < 0.5);
}

/// One server behind several connections gives another list with each walk: the walks come to rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_another_list_for_each_walk_never_has_replicas_walk_in_circles() {
    let all = SeparateServers::start([1; COUNT]).await;
    let mut told = all.client(0).await.open_change_stream().await;
    let total = || (0..COUNT).map(|number| all.walks(number)).sum::<usize>();
    let (mut changes, mut seen) = (0, total());
    all.change_all_and_notify_first(2);
    // Every walk finds another list: it changes as soon as a walk is seen.
    let changing = async {
        loop {
            if total() != seen {
                seen = total();
                changes += 1;
                for server in &all.servers {
                    server.set_tools(MockTool::numbered(2 + changes));
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let before = total();
    let resting = async {
        expect_change(&mut told, "the first replica's own change").await;
        all.wait_for_commands("poll_lists", 4 * COUNT).await;
        let rested = total();
        all.wait_for_commands("poll_lists", 2 * COUNT).await;
        (rested, total())
    };
    let (rested, after) = tokio::select! {
        counts = resting => counts,
        () = changing => unreachable!("it never ends"),
    };
    assert_eq!(rested, after, "no walk goes on");
    // One of its own, one of each other replica for it, and for each of theirs one of the others.
    let most = 1 + (COUNT - 1) + (COUNT - 1) * (COUNT - 1);
    assert!(after - before <= most, "{} walks", after - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_told_while_redis_is_away_and_the_others_follow_once_it_is_back() {
    let mut all = SeparateServers::start([1; COUNT]).await;
    let mut told = all.client(0).await.open_change_stream().await;
    let mut other = all.client(1).await.open_change_stream().await;
    all.replicas.redis_mut().kill();
    all.replicas.wait_until_store_is_missed().await;
    all.change_all_and_notify_first(4);
    expect_change(&mut told, "a change without Redis").await;
    all.expect_list_now(0, 4).await;
    // It knows no better, and nothing waits.
    assert_eq!(all.client(1).await.list_tool_names().await.len(), 1);
    all.replicas.redis_mut().restart_empty();
    expect_change(&mut other, "the change once Redis is back").await;
    all.expect_list_now(1, 4).await;
    all.wait_until_listed(2, 4).await;
}

/// Pages of one list, each from another replica, while the list changes: the whole list as it once
/// was, or the cursor is invalid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_over_replicas_are_one_list_while_it_changes() {
    let all = SeparateServers::with_redis([20; COUNT], RedisServer::start(), |_, config| {
        config["endpoints"]["/mcp"]["page"] = json!({ "items": changing_list::PAGE });
    })
    .await;
    let client = CheckedClient::open(&all.replicas.url("/mcp"), Revision::MODERN).await;
    let changing = async {
        for round in 0.. {
            for server in &all.servers {
                server.set_tools(changing_list::tools(round));
            }
            all.servers[round % COUNT].notify_list_changed();
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    };
    let reading = async {
        let (mut whole, mut refused, mut lists) = (0, 0, BTreeSet::new());
        while whole < 60 || lists.len() < 6 {
            let ask = |params| async { client.ask("tools/list", params).await.last().clone() };
            match changing_list::read_pages(ask).await {
                Ok(names) => {
                    changing_list::expect_whole(&names);
                    lists.insert(names.len());
                    whole += 1;
                }
                Err(message) => {
                    assert!(changing_list::is_invalid_cursor(&message), "{message}");
                    refused += 1;
                }
            }
        }
        println!("{whole} whole lists, {refused} with an invalid cursor");
    };
    tokio::select! {
        () = within_test_timeout("the lists", reading) => {}
        () = changing => unreachable!("it never ends"),
    }
}

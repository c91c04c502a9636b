//! TLS and credentials: the user of the documentation, wrong passwords, and unknown authorities.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_core::port::{
    ChangeDraft, ChangeTarget, CounterAddition, OutageCounting, RecordStore as _,
    SharedChanges as _, SharedCounters as _,
};
use weir_replica_testkit::{RedisServer, RespValue, TlsFiles, documented_user};
use weir_store::MemoryBus;

use super::replica::{
    TestReplica, here, key, old_server, prompt, records_in, settings, wait_for, wait_for_outage,
};
use super::shared_use::share_session_and_message;
use crate::{RedisSettings, RedisTopology};

/// The commands that weir's Redis client sends by itself: for scripts, for subscriptions, and to
/// nodes of a cluster.
const CLIENT_COMMANDS: [&str; 6] = [
    "evalsha",
    "script|load",
    "subscribe",
    "ping",
    "cluster|slots",
    "asking",
];
/// A command that the user does without: it would read passwords of others, too.
const OPTIONAL_COMMAND: &str = "config";

fn weir_settings(url: &str, files: Option<&TlsFiles>) -> RedisSettings {
    let read = |files: &TlsFiles| std::fs::read(files.authority_file()).expect("a readable file");
    RedisSettings {
        authorities: files.map(read),
        namespace: "weir".to_owned(),
        ..settings(url, RedisTopology::Single)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_user_may_do_over_tls_what_replicas_do_and_nothing_else() {
    let files = TlsFiles::new();
    let server = RedisServer::with_tls(&files);
    server.run(&["SET", "{weir:replicas}:born", "long ago"]);
    server.add_documented_user("secret");
    let store = weir_settings(&files.url_of_user("weir", "secret"), Some(&files));
    let counting = TestReplica::start_with(&store, 3).await;
    let counters = counting.store.counters();
    let addition = CounterAddition {
        name: "a",
        amount: 2,
        most: 5,
        ttl: Duration::from_secs(60),
    };
    let counted = counters.add(addition, OutageCounting::Fails).await;
    assert_eq!(counted.unwrap().value, 2);
    let changes = counting.store.changes(Arc::<MemoryBus>::default());
    let draft = ChangeDraft {
        target: ChangeTarget([1; 32]),
        at: 1,
        is_removal: false,
        ends: None,
        body: "body".into(),
    };
    changes.publish(draft).await.unwrap();
    // A damaged record is removed, which takes a command of its own.
    counting.open(&key(9), "value").await;
    let name = server.keys().into_iter().find(|name| name.contains(":s:"));
    server.run(&["SET", &name.unwrap(), "damaged"]);
    assert!(counting.records.remove(&key(9)).await.is_ok());
    share_session_and_message(&store).await;
    assert_eq!(server.run(&["ACL", "LOG"]), RespValue::Array(Vec::new()));
    for foreign in ["GET other", "CONFIG GET requirepass", "FLUSHALL", "KEYS *"] {
        let words: Vec<_> = foreign.split(' ').collect();
        let tried = [["ACL", "DRYRUN", "weir"].as_slice(), &words].concat();
        let answer = server.run(&tried).text();
        assert!(answer.contains("has no permissions"), "{foreign}: {answer}");
    }
}

/// Reads the commands of the code: `redis.call('GET'`, `redis.pcall('GET'` and `cmd("GET")`.
fn commands_in_code() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut commands = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let code = std::fs::read_to_string(path).unwrap();
        for (before, end) in [("call('", '\''), ("cmd(\"", '"')] {
            let calls = code.split(before).skip(1);
            let names = calls.filter_map(|rest| Some(rest.split_once(end)?.0.to_lowercase()));
            commands.extend(names);
        }
    }
    commands
}

#[test]
fn documented_user_has_the_commands_of_the_code_alone() {
    let mut used = commands_in_code();
    assert!(used.remove(OPTIONAL_COMMAND), "{used:?}");
    used.extend(CLIENT_COMMANDS.map(str::to_owned));
    let words = documented_user("secret");
    let granted = words.iter().filter_map(|word| word.strip_prefix('+'));
    let granted: BTreeSet<_> = granted.map(str::to_owned).collect();
    assert_eq!(granted, used);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_of_an_unknown_authority_is_an_outage_with_its_reason() {
    let (files, others) = (TlsFiles::new(), TlsFiles::new());
    let server = RedisServer::with_tls(&files);
    server.add_documented_user("secret");
    let url = files.url_of_user("weir", "secret");
    for authorities in [None, Some(&others)] {
        let store = weir_settings(&url, authorities);
        let one = TestReplica::unconnected_with(&store, 1);
        prompt(one.open(&key(1), "value")).await;
        wait_for_outage(&one, "certificate").await;
        let error = one.store.status().last_error.unwrap();
        assert!(!error.contains("secret"), "{error}");
        assert!(!one.store.status().is_connected);
    }
    assert_eq!(records_in(&server), 0);
}

/// Waits for an outage with this reason, during which sessions go on and one is opened; `heal` ends
/// it.
async fn expect_outage(one: &TestReplica, opened: u8, reason: &str, heal: impl FnOnce()) {
    prompt(one.open(&key(opened), "value")).await;
    wait_for_outage(one, reason).await;
    assert_eq!(prompt(one.locate(&key(1), one)).await, here("value"));
    heal();
    assert_eq!(one.records.flush(Duration::from_secs(40)).await, 0);
    wait_for("the end of it", || one.store.status().is_connected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn password_that_changes_is_an_outage_until_it_is_the_old_one_again() {
    let server = old_server();
    server.add_documented_user("secret");
    let user = ["ACL", "SETUSER", "weir"];
    let store = RedisSettings {
        namespace: "weir".to_owned(),
        ..settings(&server.url_of_user("weir", "secret"), RedisTopology::Single)
    };
    let one = TestReplica::start_with(&store, 1).await;
    one.open(&key(1), "value").await;
    server.run(&[user.as_slice(), &["resetpass", ">another"]].concat());
    server.run(&["CLIENT", "KILL", "USER", "weir"]);
    expect_outage(&one, 2, "authentication failed", || {
        server.run(&[user.as_slice(), &["resetpass", ">secret"]].concat());
    })
    .await;
    // A user that lost a right.
    server.run(&[user.as_slice(), &["-evalsha"]].concat());
    expect_outage(&one, 3, "NoPerm", || {
        server.run(&[user.as_slice(), &["+evalsha"]].concat());
    })
    .await;
    assert_eq!(records_in(&server), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn password_that_a_server_demands_from_now_on_is_an_outage() {
    let mut server = old_server();
    let one = TestReplica::start(&server, 1).await;
    one.open(&key(1), "value").await;
    server.set_password(Some("secret"));
    server.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    expect_outage(&one, 2, "NOAUTH", || server.set_password(None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn password_in_the_url_is_used_and_is_in_no_error() {
    let server = RedisServer::with_password("secret");
    let one = TestReplica::start(&server, 1).await;
    one.open(&key(1), "value").await;
    assert_eq!(records_in(&server), 1);
    let wrong = server.url().replace("secret", "CANARY-wrong");
    let two = TestReplica::start_unconnected(&wrong, RedisTopology::Single, 2);
    wait_for("the error", || two.store.status().last_error.is_some()).await;
    let error = two.store.status().last_error.unwrap_or_default();
    assert!(!error.contains("CANARY"), "{error}");
    assert!(!two.store.status().is_connected);
}

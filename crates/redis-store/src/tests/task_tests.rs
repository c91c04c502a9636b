//! Kept tasks that outlive their replica.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::port::{KeptTask, TaskBook};
use weir_core::{EndpointId, Principal};
use weir_store::{MemoryTasks, TaskCaps};
use weir_testkit::TokioClock;

use super::replica::{TestReplica, old_server, wait_for};
use crate::SharedTasks;

const TTL: Duration = Duration::from_secs(60);

fn tasks(replica: &TestReplica) -> Arc<SharedTasks> {
    let local = MemoryTasks::new(Arc::new(TokioClock::new()), TaskCaps::default());
    replica.store.tasks(Arc::new(local))
}

fn task(name: &str, state: Vec<u8>, settled: bool) -> KeptTask {
    KeptTask {
        name: name.into(),
        state: Bytes::from(state),
        settled,
    }
}

fn principal(name: &str) -> Principal {
    Principal::owner(Some(("iss", name)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settled_tasks_are_found_after_their_replica_for_their_owner_alone() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    let (own, other) = (tasks(&one), tasks(&two));
    let (ada, bob) = (principal("ada"), principal("bob"));
    let (here, there) = (EndpointId::new("/mcp"), EndpointId::new("/other"));
    let enter = |name: &str, size: usize, settled| {
        let entered = own.enter(
            &ada,
            &here,
            task(name, vec![b'x'; size], settled),
            Some(TTL),
        );
        assert!(entered.is_ok(), "{entered:?}");
    };
    enter("small", 100, true);
    enter("large", 9_000, true);
    enter("open", 100, false);
    enter("forgotten", 100, true);
    own.forget(&ada, &here, "forgotten");
    wait_for("written tasks", || one.store.status().pending_writes == 0).await;
    one.crash();
    let small = other.recover(&ada, &here, "small").await;
    assert_eq!(small, Some(task("small", vec![b'x'; 100], true)));
    for name in ["large", "open", "forgotten", "never"] {
        assert_eq!(other.recover(&ada, &here, name).await, None, "{name}");
    }
    assert_eq!(other.recover(&bob, &here, "small").await, None);
    assert_eq!(other.recover(&ada, &there, "small").await, None);
    let name = server
        .keys()
        .into_iter()
        .find(|name| name.starts_with("test:t:"));
    let name = name.expect("the copy is in the server");
    let value = format!("{:?}", server.run(&["GET", &name]));
    assert!(!value.contains("xxxx"), "it is sealed: {value}");
    server.run(&["SET", &name, "AAAA"]);
    assert_eq!(other.recover(&ada, &here, "small").await, None);
}

/// A task with a state as servers give it, and a result that lists leave out.
fn listed_task(name: &str, settled: bool) -> KeptTask {
    let status = if settled { "completed" } else { "working" };
    let state = format!(r#"{{"taskId":"{name}","status":"{status}","result":{{"secret":1}}}}"#);
    task(name, state.into_bytes(), settled)
}

/// Reads all pages; each task with its status.
async fn list(book: &SharedTasks, owner: &Principal, most: usize) -> Vec<(String, bool)> {
    let (here, mut after, mut found) = (EndpointId::new("/mcp"), 0, Vec::new());
    loop {
        let page = book.page_of_all(owner, &here, after, most).await;
        let page = page.expect("the page is read");
        assert!(page.len() <= most);
        let Some((last, _)) = page.last() else {
            return found;
        };
        assert!(*last > after, "positions grow");
        after = *last;
        let tasks = page.iter().map(|(_, task)| task);
        found.extend(tasks.map(|task| (task.name.to_string(), task.settled)));
    }
}

fn expected(names: &[&str]) -> Vec<(String, bool)> {
    let is_settled = |name: &str| name.ends_with('+');
    let names = names.iter();
    names
        .map(|name| (name.to_string(), is_settled(name)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_all_replicas_are_listed_in_their_order() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    let books = [tasks(&one), tasks(&two)];
    let (ada, bob) = (principal("ada"), principal("bob"));
    let here = EndpointId::new("/mcp");
    let written = async || {
        let pending = || [&one, &two].map(|one| one.store.status().pending_writes);
        wait_for("written tasks", || pending() == [0, 0]).await;
    };
    let names = ["a+", "b", "c+", "d", "e"];
    for (number, name) in names.iter().enumerate() {
        let settled = name.ends_with('+');
        let task = listed_task(name, settled);
        let entered = books[number % 2].enter(&ada, &here, task, Some(TTL));
        assert!(entered.is_ok(), "{entered:?}");
        written().await;
    }
    for book in &books {
        for most in [1, 2, 100] {
            assert_eq!(list(book, &ada, most).await, expected(&names));
        }
        assert_eq!(list(book, &bob, 10).await, []);
    }
    // A new state leaves a task in its place; one that is forgotten anywhere is gone.
    let settled = books[1].enter(&ada, &here, listed_task("b", true), Some(TTL));
    assert!(settled.is_ok(), "{settled:?}");
    books[1].forget(&ada, &here, "c+");
    written().await;
    let page = books[0]
        .page_of_all(&ada, &here, 0, 10)
        .await
        .expect("read");
    let other = page.iter().find(|(_, task)| &*task.name == "b");
    let (_, other) = other.expect("it is listed");
    assert!(other.settled);
    let state = String::from_utf8_lossy(&other.state);
    assert_eq!(state, r#"{"taskId":"b","status":"completed"}"#);
    assert_eq!(page.len(), 4);
    // The tasks of a replica that ended stay listed, sealed.
    one.crash();
    assert_eq!(list(&books[1], &ada, 2).await.len(), 4);
    let key = server
        .keys()
        .into_iter()
        .find(|key| key.ends_with(":entries"));
    let key = key.expect("the list is in the server");
    let values = format!("{:?}", server.run(&["HGETALL", &key]));
    assert!(
        !values.contains("status") && !values.contains("secret"),
        "{values}"
    );
    // An entry that does not open is left out.
    let field = server.run(&["HGETALL", &key]).texts()[0].clone();
    server.run(&["HSET", &key, &field, "99999999999999:AAAA"]);
    assert_eq!(list(&books[1], &ada, 1).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_tasks_is_bounded_and_without_redis_that_of_one_replica() {
    let mut server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    let books = [tasks(&one), tasks(&two)];
    let (ada, here) = (principal("ada"), EndpointId::new("/mcp"));
    for number in 0..300 {
        let task = listed_task(&format!("t{number:03}"), false);
        let entered = books[number % 2].enter(&ada, &here, task, Some(TTL));
        assert!(entered.is_ok(), "{entered:?}");
    }
    let pending = || [&one, &two].map(|one| one.store.status().pending_writes);
    wait_for("written tasks", || pending() == [0, 0]).await;
    let all = list(&books[0], &ada, 50).await;
    assert_eq!(all.len(), 256, "the oldest gave way");
    let page = books[0]
        .page_of_all(&ada, &here, 0, 10)
        .await
        .expect("read");
    let shared_position = page.last().expect("tasks").0;
    server.kill();
    let own = list(&books[0], &ada, 50).await;
    assert_eq!(own.len(), 150, "those of this replica, page by page");
    // Positions of the shared list have no meaning in it.
    let rest = books[0].page_of_all(&ada, &here, shared_position, 10).await;
    assert!(rest.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_that_cannot_be_written_holds_up_no_others() {
    let server = old_server();
    let one = TestReplica::start(&server, 1).await;
    let two = TestReplica::start(&server, 2).await;
    let books = [tasks(&one), tasks(&two)];
    let here = EndpointId::new("/mcp");
    let enter = |owner: &Principal, name: &str| {
        let entered = books[0].enter(owner, &here, listed_task(name, false), Some(TTL));
        assert!(entered.is_ok(), "{entered:?}");
    };
    let (ada, bob) = (principal("ada"), principal("bob"));
    enter(&ada, "first");
    let is_written = || one.store.status().pending_writes == 0;
    wait_for("written tasks", is_written).await;
    // A value of another type, which the server refuses to change.
    for key in server.keys() {
        if key.ends_with(":order") {
            server.run(&["SET", &key, "text"]);
        }
    }
    enter(&ada, "second");
    enter(&bob, "third");
    for _ in 0..400 {
        if list(&books[1], &bob, 10).await == expected(&["third"]) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the task of another owner was not written");
}

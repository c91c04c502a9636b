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

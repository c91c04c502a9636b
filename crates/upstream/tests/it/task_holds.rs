//! The sessions and child processes that tasks hold open at their server.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use weir_core::call::{Call, CallCapabilities, RequestName, SessionKey, TaskMode};
use weir_core::names::EndpointId;
use weir_core::reply::{ReplyEnd, ReplyEvent};
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, OutboundCall, TaskDescriptions, Upstream,
};
use weir_core::{CapabilityClass, Principal};
use weir_testkit::MockServer;
use weir_testkit::mock_server::MockServerBuilder;
use weir_upstream::{UpstreamBounds, UpstreamSettings};
use weir_upstream_core::background_tasks::BackgroundTasks;
use weir_upstream_core::task_holds::{TaskHolds, TaskOwner};
use weir_upstream_core::task_progress::TaskProgress;
use weir_wire::method::Method;
use weir_wire::{Params, Revision};

use crate::fixtures::{build, call, id, next, outbound, outcome, principal, settings};

/// The most holds of one principal, and the most calls of one with tracked progress.
const MAX_OF_A_PRINCIPAL: usize = 256;
const SESSION: SessionKey = SessionKey([3; 16]);

fn capabilities() -> CallCapabilities {
    CallCapabilities {
        class: CapabilityClass::TASKS,
        raw: None,
    }
}

async fn of(principal: &Principal, native: &str, call: Call) -> OutboundCall {
    OutboundCall {
        principal: principal.clone(),
        ..outbound(native, call).await
    }
}

/// A call of this principal's session that is to become a task.
async fn task_call(principal: &Principal) -> OutboundCall {
    tool_call(principal, "task_done").await
}

/// The same of another tool.
async fn tool_call(principal: &Principal, tool: &str) -> OutboundCall {
    let arguments = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "own" } });
    let call = Call {
        params: Params::parse(Some(&arguments.to_string().into())).unwrap(),
        task_mode: TaskMode::Wanted { ttl_ms: None },
        capabilities: capabilities(),
        session: Some(SESSION),
        wants_progress: true,
        ..call(tool, json!({}))
    };
    of(principal, tool, call).await
}

/// A server with tasks, and an upstream that ends sessions soon after their use.
async fn server() -> (MockServer, Arc<dyn Upstream>) {
    server_of(MockServer::legacy(Revision::V2025_11_25)).await
}

async fn server_of(mock: MockServerBuilder) -> (MockServer, Arc<dyn Upstream>) {
    let mock = mock.with_tasks().start().await;
    let upstream = upstream_of(&mock);
    (mock, upstream)
}

/// An upstream of this server that ends sessions soon after their use.
fn upstream_of(mock: &MockServer) -> Arc<dyn Upstream> {
    let bounds = UpstreamBounds {
        session_idle: Duration::from_millis(80),
        ..UpstreamBounds::default()
    };
    build(UpstreamSettings {
        bounds,
        ..settings(&mock.url())
    })
}

/// Moves the sessions of one process to the next; returns the descriptions of later tasks.
async fn hand_over(before: &Arc<dyn Upstream>, after: &Arc<dyn Upstream>) -> TaskDescriptions {
    let later = before.tasks_after_export().unwrap();
    for session in before.clone().export_sessions().await {
        after.clone().import_session(session).await;
    }
    later
}

/// Takes the next description of a later task to the next process.
async fn hand_over_task(later: &mut TaskDescriptions, after: &Arc<dyn Upstream>) {
    let next = tokio::time::timeout(Duration::from_secs(20), later.next());
    let description = next.await.expect("a description").unwrap();
    let session = HandoverSession {
        description,
        descriptors: Vec::new(),
    };
    after.clone().import_session(session).await;
}

/// Begins a task; returns the server's id of it.
async fn begin(upstream: &Arc<dyn Upstream>, principal: &Principal) -> String {
    begin_with(upstream, task_call(principal).await).await
}

/// Begins a task by this call.
async fn begin_with(upstream: &Arc<dyn Upstream>, call: OutboundCall) -> String {
    let mut reply = upstream.clone().call(call).await;
    let ReplyEvent::End(ReplyEnd::Task(task)) = next(&mut reply).await else {
        panic!("no task");
    };
    let task: Value = serde_json::from_slice(&task).unwrap();
    task["taskId"].as_str().unwrap().to_owned()
}

async fn state(upstream: &Arc<dyn Upstream>, principal: &Principal, task: &str) -> Value {
    read(upstream, principal, task, false).await
}

async fn status(upstream: &Arc<dyn Upstream>, principal: &Principal, task: &str) -> Value {
    read(upstream, principal, task, true).await["status"].take()
}

async fn read(
    upstream: &Arc<dyn Upstream>,
    principal: &Principal,
    task: &str,
    wants_status_only: bool,
) -> Value {
    let params = json!({ "taskId": task }).to_string();
    let mut call = Call::new(
        EndpointId::new("/mcp"),
        Method::TasksGet,
        Params::parse(Some(&params.into())).unwrap(),
        RequestName::from_bits(2),
    );
    call.capabilities = capabilities();
    call.session = Some(SESSION);
    call.wants_status_only = wants_status_only;
    let outbound = of(principal, task, call).await;
    let reply = upstream.clone().call(outbound).await;
    outcome(reply).await.end.unwrap()
}

#[tokio::test]
async fn session_of_a_task_ends_after_its_result_was_fetched() {
    let (mock, upstream) = server().await;
    let somebody = principal(Some("somebody")).await;
    let task = begin(&upstream, &somebody).await;
    // Unused sessions are looked for a few times meanwhile.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(mock.sessions(), 1, "the task needs its session");
    while state(&upstream, &somebody, &task).await["status"] != "completed" {}
    // The task's own time is a minute.
    let ended = mock.wait_until("the end of the session", |mock| mock.sessions() == 0);
    let in_time = tokio::time::timeout(Duration::from_secs(20), ended).await;
    assert!(in_time.is_ok(), "the session is held");
}

#[tokio::test]
async fn session_of_a_task_stays_open_if_another_replica_takes_its_client_over() {
    let (mock, upstream) = server().await;
    let somebody = principal(Some("somebody")).await;
    let task = begin(&upstream, &somebody).await;
    let client = HashSet::from([SESSION]);
    upstream.notify_sessions(&client, ClientSessionChange::EndedHere);
    // Unused sessions are looked for a few times meanwhile.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(mock.sessions(), 1, "the task needs its session");
    assert!(upstream.holds_task(&somebody, &task));
    while status(&upstream, &somebody, &task).await != "completed" {}
    let opened = mock.requests_of("initialize").len();
    assert!(state(&upstream, &somebody, &task).await["result"].is_object());
    assert_eq!(mock.requests_of("initialize").len(), opened);
    let ended = mock.wait_until("the end of the session", |mock| mock.sessions() == 0);
    let in_time = tokio::time::timeout(Duration::from_secs(20), ended).await;
    assert!(in_time.is_ok(), "the session is held");
}

#[tokio::test]
async fn session_of_a_task_ends_with_the_session_of_its_client() {
    let (mock, upstream) = server().await;
    let somebody = principal(Some("somebody")).await;
    let task = begin(&upstream, &somebody).await;
    let client = HashSet::from([SESSION]);
    upstream.notify_sessions(&client, ClientSessionChange::EndedHere);
    upstream.notify_sessions(&client, ClientSessionChange::Ended);
    assert!(!upstream.holds_task(&somebody, &task));
    let ended = mock.wait_until("the end of the session", |mock| mock.sessions() == 0);
    let in_time = tokio::time::timeout(Duration::from_secs(20), ended).await;
    assert!(in_time.is_ok(), "the session is held");
}

#[tokio::test]
async fn task_keeps_its_session_and_its_result_while_its_status_alone_is_read() {
    let (mock, upstream) = server().await;
    let somebody = principal(Some("somebody")).await;
    let task = begin(&upstream, &somebody).await;
    while status(&upstream, &somebody, &task).await != "completed" {}
    assert!(mock.requests_of("tasks/result").is_empty());
    // Unused sessions are looked for a few times meanwhile.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(mock.sessions(), 1, "the result was not fetched");
    let state = state(&upstream, &somebody, &task).await;
    assert!(state["result"].is_object(), "{state}");
}

#[tokio::test]
async fn session_is_held_for_its_tasks_in_the_next_process() {
    let (mock, before) = server().await;
    let (somebody, other) = (
        principal(Some("somebody")).await,
        principal(Some("other")).await,
    );
    let task = begin(&before, &somebody).await;
    let after = upstream_of(&mock);
    let _later = hand_over(&before, &after).await;
    while status(&after, &somebody, &task).await != "completed" {}
    assert!(after.holds_task(&somebody, &task));
    assert!(!after.holds_task(&other, &task), "it is another's");
    // Unused sessions are looked for a few times meanwhile.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(mock.sessions(), 1, "the task needs its session");
    let mut running_out = after.clone().run_out(Duration::ZERO);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut running_out).await;
    assert!(early.is_err(), "its result was not fetched");
    let state = state(&after, &somebody, &task).await;
    assert!(state["result"].is_object(), "{state}");
    let in_time = tokio::time::timeout(Duration::from_secs(20), running_out).await;
    assert!(in_time.is_ok(), "its result was fetched");
}

#[tokio::test]
async fn moved_session_is_held_for_a_task_that_began_later_in_the_process_before_until_its_end() {
    let (mock, before) = server().await;
    let somebody = principal(Some("somebody")).await;
    let first = begin(&before, &somebody).await;
    while state(&before, &somebody, &first).await["status"] != "completed" {}
    let after = upstream_of(&mock);
    let mut later = hand_over(&before, &after).await;
    let task = begin(&before, &somebody).await;
    assert_eq!(mock.sessions(), 1, "it began in the moved session");
    // The next process knows the server by its first request.
    status(&after, &somebody, &first).await;
    assert!(!after.holds_task(&somebody, &task));
    hand_over_task(&mut later, &after).await;
    assert!(after.holds_task(&somebody, &task));
    // Unused sessions are looked for a few times meanwhile.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(mock.sessions(), 1, "the task needs its session");

    while state(&before, &somebody, &task).await["status"] != "completed" {}
    hand_over_task(&mut later, &after).await;
    let ended = mock.wait_until("the end of the session", |mock| mock.sessions() == 0);
    let in_time = tokio::time::timeout(Duration::from_secs(20), ended).await;
    assert!(in_time.is_ok(), "the session is held");
}

#[tokio::test]
async fn progress_of_a_task_reaches_its_client_through_the_next_process() {
    let (mock, before) = server().await;
    let somebody = principal(Some("somebody")).await;
    let call = tool_call(&somebody, "task_waits").await;
    let early = begin_with(&before, call).await;
    let after = upstream_of(&mock);
    let mut later = hand_over(&before, &after).await;
    let call = tool_call(&somebody, "task_waits").await;
    let late = begin_with(&before, call).await;
    hand_over_task(&mut later, &after).await;
    for task in [early, late] {
        // Makes the next process read the session.
        status(&after, &somebody, &task).await;
        let mut reports = after.task_progress(&somebody, &task).unwrap();
        let reported = async {
            loop {
                // The server reports progress with each request about the task.
                status(&after, &somebody, &task).await;
                let report = tokio::time::timeout(Duration::from_millis(100), reports.next());
                if let Ok(report) = report.await {
                    return report.unwrap();
                }
            }
        };
        let report = tokio::time::timeout(Duration::from_secs(20), reported).await;
        let report: Value = serde_json::from_slice(&report.expect("no progress")).unwrap();
        assert_eq!(report["progressToken"], "own", "{report}");
    }
}

#[tokio::test]
async fn no_request_id_comes_twice_in_a_session_that_moved() {
    let (mock, before) = server().await;
    let somebody = principal(Some("somebody")).await;
    let task = begin(&before, &somebody).await;
    let after = upstream_of(&mock);
    let _later = hand_over(&before, &after).await;
    for _ in 0..20 {
        status(&after, &somebody, &task).await;
    }
    let own = mock.requests_of("tools/call")[0]
        .session()
        .map(str::to_owned);
    let requests = mock.requests().into_iter();
    let ids = requests
        .filter(|request| request.session().map(str::to_owned) == own)
        .filter_map(|request| request.message["id"].as_u64());
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert!(all > 20 && ids.len() == all, "{ids:?}");
}

#[tokio::test]
async fn upstream_runs_out_once_its_tasks_have_ended_and_knows_them_until_then() {
    for mock in [
        MockServer::legacy(Revision::V2025_11_25),
        MockServer::modern(),
    ] {
        runs_out_after_its_tasks(mock).await;
    }
}

async fn runs_out_after_its_tasks(mock: MockServerBuilder) {
    let (_mock, upstream) = server_of(mock).await;
    let (somebody, other) = (
        principal(Some("somebody")).await,
        principal(Some("other")).await,
    );
    let task = begin(&upstream, &somebody).await;
    assert!(upstream.holds_task(&somebody, &task));
    assert!(!upstream.holds_task(&other, &task), "it is another's");
    assert!(!upstream.holds_task(&somebody, "none"));
    let mut running_out = upstream.clone().run_out(Duration::ZERO);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut running_out).await;
    assert!(early.is_err(), "the task runs");
    while state(&upstream, &somebody, &task).await["status"] != "completed" {}
    // Its client may read its state once more.
    assert!(upstream.holds_task(&somebody, &task));
    assert_eq!(
        state(&upstream, &somebody, &task).await["status"],
        "completed"
    );
    let in_time = tokio::time::timeout(Duration::from_secs(20), running_out).await;
    assert!(in_time.is_ok(), "its task has ended");
    // Without tasks there is nothing to wait for.
    let again = tokio::time::timeout(Duration::from_secs(3), upstream.run_out(Duration::ZERO));
    assert!(again.await.is_ok());
}

/// The answer that a call became the task of this number.
fn created(nth: usize) -> Bytes {
    Bytes::from(json!({ "taskId": format!("t{nth}"), "ttlMs": 3_600_000 }).to_string())
}

#[tokio::test]
async fn one_principal_with_many_tasks_loses_its_oldest_holds_and_no_others() {
    let holds = TaskHolds::new(BackgroundTasks::default());
    let other = TaskOwner::of(&task_call(&principal(Some("other")).await).await);
    let kept = Arc::new(());
    holds.hold(other, &created(0), Some(kept.clone()), None);

    let many = TaskOwner::of(&task_call(&principal(Some("many")).await).await);
    let all: Vec<Arc<()>> = (0..MAX_OF_A_PRINCIPAL + 2)
        .map(|_| Arc::default())
        .collect();
    for (nth, held) in all.iter().enumerate() {
        holds.hold(many.clone(), &created(nth), Some(held.clone()), None);
    }
    let ended = |all: &[Arc<()>]| {
        all.iter()
            .take_while(|one| Arc::strong_count(one) == 1)
            .count()
    };
    let both = async {
        while ended(&all) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(10), both).await;
    assert!(in_time.is_ok(), "the oldest holds do not end");
    assert_eq!(Arc::strong_count(&all[2]), 2);
    assert_eq!(Arc::strong_count(&kept), 2);
}

#[tokio::test]
async fn one_principal_with_many_calls_leaves_room_for_the_progress_of_others() {
    let progress = Arc::new(TaskProgress::new(id(), Arc::default()));
    let many = task_call(&principal(Some("many")).await).await;
    let tracked: Vec<_> = (0..2000)
        .map_while(|id| progress.begin(id, &many))
        .collect();
    assert_eq!(tracked.len(), MAX_OF_A_PRINCIPAL);
    let other = task_call(&principal(Some("other")).await).await;
    assert!(progress.begin(5000, &other).is_some());
}

#[tokio::test]
async fn listener_of_the_progress_of_a_task_ends_with_the_task() {
    let progress = Arc::new(TaskProgress::new(id(), Arc::default()));
    let call = task_call(&principal(Some("somebody")).await).await;
    let tracked = progress.begin(1, &call).unwrap();
    tracked.set_task(&created(0));
    let task = (call.principal.clone(), Arc::from("t0"));
    let mut reports = progress.listen(task.clone()).unwrap();
    progress.end_task(&task);
    let ended = tokio::time::timeout(Duration::from_secs(10), reports.next());
    assert!(ended.await.expect("the listener stays").is_none());
}

#[tokio::test]
async fn holds_end_with_the_session_of_their_client() {
    let holds = TaskHolds::new(BackgroundTasks::default());
    let owner = TaskOwner::of(&task_call(&principal(Some("somebody")).await).await);
    let held = Arc::new(());
    holds.hold(owner, &created(0), Some(held.clone()), None);
    holds.end_sessions(&HashSet::from([SessionKey([4; 16])]));
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&held), 2, "another session ended");
    holds.end_sessions(&HashSet::from([SESSION]));
    let end = async {
        while Arc::strong_count(&held) > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(10), end).await;
    assert!(in_time.is_ok(), "the hold does not end");
}

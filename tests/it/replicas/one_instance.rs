//! Upstreams with `instances: one`: one replica runs the child process, and all serve its calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer, MockStdio, TestFolder};
use weir_wire::{Revision, meta};

use super::{COUNT, at};
use crate::harness::{
    CheckedClient, CheckedStream, ForeignServer, Replicas, peers_are_enabled, wait_until,
    wait_until_async,
};

/// The time of the lease in these tests. A replica that cannot renew it for a third of that time
/// ends its child, so it is longer than this machine may stall.
const LEASE: Duration = Duration::from_secs(8);

/// The files in which the children count.
pub(super) struct ChildFiles {
    starts: PathBuf,
    calls: PathBuf,
    _folder: TestFolder,
}

impl ChildFiles {
    fn new() -> Self {
        let folder = TestFolder::new("child");
        Self {
            starts: folder.file("starts"),
            calls: folder.file("calls"),
            _folder: folder,
        }
    }

    /// Returns the process ids of all children that were started, in order.
    pub(super) fn started(&self) -> Vec<u64> {
        lines(&self.starts)
            .iter()
            .map(|line| line.parse().unwrap())
            .collect()
    }

    /// Returns the process id of each call of `count`, in order.
    pub(super) fn called(&self) -> Vec<u64> {
        let id = |line: &String| line.split(' ').next().unwrap().parse().unwrap();
        lines(&self.calls).iter().map(id).collect()
    }
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Starts replicas in front of a child that one of them runs.
pub(super) async fn start(mock: MockStdio, more: Value) -> (Replicas, ChildFiles) {
    let files = ChildFiles::new();
    let mock = mock.starts_file(&files.starts).calls_file(&files.calls);
    let replicas = start_replicas(&mock, more).await;
    wait_for_lists(&replicas);
    (replicas, files)
}

/// Starts replicas with one child for all, and `more` in the config of its upstream.
async fn start_replicas(mock: &MockStdio, more: Value) -> Replicas {
    let (command, args) = mock.command();
    start_with_child(json!({ "command": command, "args": args }), more).await
}

/// Starts replicas with one child for all: `upstream` is its command, and `more` is in its config, too.
pub(super) async fn start_with_child(mut upstream: Value, more: Value) -> Replicas {
    upstream["instances"] = json!("one");
    for (key, value) in more.as_object().unwrap() {
        upstream[key] = value.clone();
    }
    let config = json!({
        "upstreams": { "one": upstream },
        "endpoints": { "/mcp": { "upstream": "one" } },
        "cluster": { "lease": format!("{}s", LEASE.as_secs()) },
        "limits": { "progress_interval": "0ms" },
        "change_window": "50ms",
        "drain": "20s",
    });
    Replicas::start(COUNT, config).await
}

/// Returns a child of each era, with its `protocol`: otherwise a further process looks for the other
/// era.
pub(super) fn mocks() -> [(MockStdio, Value); 2] {
    [
        (
            MockStdio::legacy(Revision::NEWEST_LEGACY),
            json!({ "protocol": "legacy" }),
        ),
        (MockStdio::modern(), json!({ "protocol": "modern" })),
    ]
}

/// Waits until every replica lists the tools of the child.
fn wait_for_lists(replicas: &Replicas) {
    for replica in replicas.running() {
        replica.wait_until_listed("/mcp", &["count"]);
    }
}

/// Waits until one replica holds the lease, and returns its number.
pub(super) fn owner(replicas: &Replicas) -> usize {
    wait_until("a replica with the lease", || {
        let held = |number: &usize| {
            replicas
                .replica(*number)
                .metric("weir_upstream_lease_held", &[])
                > 0.5
        };
        let numbers = replicas.running_numbers();
        let mut holders = numbers.into_iter().filter(held);
        holders.next().filter(|_| holders.next().is_none())
    })
}

/// Returns a replica that does not run the child.
pub(super) fn other_than(owner: usize) -> usize {
    (owner + 1) % COUNT
}

pub(super) async fn open(replicas: &Replicas, number: usize, revision: Revision) -> CheckedClient {
    CheckedClient::open(&replicas.replica(number).url("/mcp"), revision).await
}

/// Returns the process id and the number of a call of `count`.
pub(super) fn counted(answer: &ClientAnswer) -> (u64, u64) {
    let result = &answer.result()["structuredContent"];
    let number = |name: &str| result[name].as_u64();
    match (number("pid"), number("count")) {
        (Some(pid), Some(count)) => (pid, count),
        _ => panic!("{}", answer.last()),
    }
}

pub(super) async fn count(client: &CheckedClient) -> (u64, u64) {
    counted(&client.call("count", json!({})).await)
}

/// Returns the reason of a failed call.
fn reason(answer: &ClientAnswer) -> String {
    let error = &answer.result()["_meta"][meta::WEIR_ERROR];
    error["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_through_all_replicas_reach_one_child() {
    for (mock, protocol) in mocks() {
        let (replicas, files) = start(mock, protocol).await;
        let mut expected = 0;
        for revision in [Revision::NEWEST_LEGACY, Revision::MODERN] {
            for number in 0..COUNT {
                let client = open(&replicas, number, revision).await;
                let (pid, count) = count(&client).await;
                expected += 1;
                assert_eq!((vec![pid], count), (files.started(), expected));
            }
        }
        assert!((replicas.metric("weir_upstream_lease_held", &[]) - 1.0).abs() < 0.5);
        let forwarded = replicas.metric("weir_upstream_forwarded_total", &["answered"]);
        // Two of three calls of each revision.
        assert!(forwarded > 3.5, "{forwarded}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_large_results_and_errors_come_from_another_replica() {
    let (replicas, _files) = start(MockStdio::legacy(Revision::NEWEST_LEGACY), json!({})).await;
    let other = other_than(owner(&replicas));
    for revision in [Revision::NEWEST_LEGACY, Revision::MODERN] {
        let client = open(&replicas, other, revision).await;
        let token = json!("a token");
        let answer = client
            .call_with_token("progress", json!({ "count": 3, "every_ms": 1 }), &token)
            .await;
        assert_eq!(answer.notes("notifications/progress").count(), 3);
        let bytes = 3 << 20;
        let answer = client.call("huge", json!({ "bytes": bytes })).await;
        assert_eq!(answer.text().len(), bytes);
        let lost = client.call("exit", json!({ "code": 3 })).await;
        assert_eq!(reason(&lost), "result_unknown", "{}", lost.last());
        // The child of before has ended; a later call starts the next one.
        wait_until_async("the next child", async || {
            let answer = client.call("count", json!({})).await;
            answer.result().get("structuredContent").map(drop)
        })
        .await;
    }
}

/// A call of the tool of [`ForeignServer::task_progress`], as a task.
pub(super) fn job() -> Value {
    let meta = json!({ "progressToken": "job" });
    json!({ "name": "job", "arguments": {}, "task": { "ttl": 600_000 }, "_meta": meta })
}

/// Returns the number of the next progress report on a stream.
pub(super) async fn next_report(stream: &mut CheckedStream) -> u64 {
    loop {
        let message = stream.next().await.expect("a report before the end");
        if message["method"] == "notifications/progress" {
            return message["params"]["progress"].as_u64().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_of_a_task_reaches_the_standing_stream_of_its_client_at_another_replica() {
    if !peers_are_enabled() {
        return;
    }
    let folder = TestFolder::new("standing-progress");
    let (end, steps) = (folder.file("end"), folder.file("steps"));
    let child = ForeignServer::task_progress(&end, &steps);
    let replicas = start_with_child(child, json!({ "protocol": "legacy" })).await;
    for replica in replicas.running() {
        replica.wait_until_listed("/mcp", &["job"]);
    }
    let client = open(
        &replicas,
        other_than(owner(&replicas)),
        Revision::V2025_11_25,
    )
    .await;
    let mut standing = client.open_change_stream().await;
    let created = client.ask("tools/call", job()).await;
    let first = next_report(&mut standing).await;
    assert!(next_report(&mut standing).await > first);
    // A request that waits for the result gets them instead.
    let about = json!({ "taskId": created.result()["task"]["taskId"] });
    let mut waiting = client.start("tasks/result", about).await;
    assert!(next_report(&mut waiting).await > first);
    std::fs::write(&end, "").unwrap();
    let rest = waiting.read_rest().await;
    let text = &rest.last().unwrap()["result"]["content"][0]["text"];
    assert_eq!(text, "done", "{rest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_asks_clients_of_every_replica() {
    let (replicas, files) = start(
        MockStdio::modern(),
        json!({ "protocol": "modern", "session": "shared", "asks": ["elicitation"] }),
    )
    .await;
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let form = json!({ "message": "Your name?", "requestedSchema": schema });
    let arguments = json!({ "ask": "elicitation/create", "params": form });
    let filled = json!({ "action": "accept", "content": { "name": "Ada" } });
    let capabilities = json!({ "elicitation": {} });
    for number in 0..COUNT {
        let url = replicas.replica(number).url("/mcp");
        let modern =
            CheckedClient::with_capabilities(&url, Revision::MODERN, capabilities.clone()).await;
        let asked = modern.call("ask", arguments.clone()).await;
        let result = asked.result();
        assert_eq!(result["resultType"], "input_required", "{}", asked.last());
        let key = result["inputRequests"].as_object().unwrap().keys().next();
        let retry = json!({
            "name": "ask",
            "arguments": arguments,
            "inputResponses": { key.unwrap(): filled },
            "requestState": result["requestState"],
        });
        let next = at(&modern, &replicas, other_than(number));
        let done = next.ask("tools/call", retry).await;
        assert!(done.text().contains("Ada"), "{}", done.last());

        let legacy =
            CheckedClient::with_capabilities(&url, Revision::NEWEST_LEGACY, capabilities.clone())
                .await;
        let mut call = legacy.start_call("ask", arguments.clone(), None).await;
        let question = call.next().await.unwrap();
        let taken = legacy.raw().respond(&question["id"], filled.clone()).await;
        assert_eq!(taken.unwrap().status, 202);
        let rest = call.read_rest().await;
        let text = &rest.last().unwrap()["result"]["content"][0]["text"];
        assert!(text.as_str().unwrap().contains("Ada"), "{rest:?}");
    }
    assert_eq!(files.started().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_child_asks_and_cancels_across_replicas() {
    let (replicas, files) = start(
        MockStdio::legacy(Revision::NEWEST_LEGACY),
        json!({ "session": "principal" }),
    )
    .await;
    let other = other_than(owner(&replicas));
    let url = replicas.replica(other).url("/mcp");
    let capabilities = json!({ "elicitation": {} });
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let form = json!({ "message": "Your name?", "requestedSchema": schema });
    let arguments = json!({ "ask": "elicitation/create", "params": form });
    let filled = json!({ "action": "accept", "content": { "name": "Ada" } });
    let client =
        CheckedClient::with_capabilities(&url, Revision::NEWEST_LEGACY, capabilities).await;
    let mut call = client.start_call("ask", arguments, None).await;
    let question = call.next().await.unwrap();
    let taken = client.raw().respond(&question["id"], filled).await;
    assert_eq!(taken.unwrap().status, 202);
    let rest = call.read_rest().await;
    let text = &rest.last().unwrap()["result"]["content"][0]["text"];
    assert!(text.as_str().unwrap().contains("Ada"), "{rest:?}");

    let hanging = client
        .start_call("hang", json!({}), Some(&json!("token")))
        .await;
    drop(client.cancel(hanging).await);
    wait_until_async("the cancellation", async || {
        let answer = client.call("cancelled", json!({})).await;
        (answer.result()["structuredContent"]["calls"] == 1).then_some(())
    })
    .await;
    // All children run at one replica.
    let owner = owner(&replicas);
    let pid = replicas.replica(owner).process.id();
    assert!(files.started().iter().all(|child| *child != u64::from(pid)));
    for number in 0..COUNT {
        let sessions = replicas
            .replica(number)
            .metric("weir_upstream_sessions", &[]);
        assert_eq!(sessions > 0.5, number == owner, "{number}: {sessions}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_changes_reach_clients_of_every_replica() {
    for (mock, protocol) in mocks() {
        let (replicas, _files) = start(mock, protocol).await;
        let mut streams = Vec::new();
        for number in 0..COUNT {
            for revision in [Revision::NEWEST_LEGACY, Revision::MODERN] {
                let client = open(&replicas, number, revision).await;
                streams.push(client.open_change_stream().await);
            }
        }
        let changing = open(&replicas, 0, Revision::MODERN).await;
        changing.call("add_tool", json!({})).await;
        for stream in &mut streams {
            stream.expect_list_changed().await;
        }
        for replica in replicas.running() {
            replica.wait_until_listed("/mcp", &["added_0"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_updates_reach_subscribers_at_every_replica() {
    const URI: &str = "memo:1";
    for server in [
        MockServer::legacy(Revision::NEWEST_LEGACY),
        MockServer::modern(),
    ] {
        let server = server.with_library().tool("echo", MockBehaviour::echo());
        let server = server.start().await;
        let replicas = start_replicas(&MockStdio::relay(&server.url()), json!({})).await;
        let mut subscribers = Vec::new();
        for replica in replicas.running() {
            replica.wait_until_listed("/mcp", &["echo"]);
            let url = replica.url("/mcp");
            let client = CheckedClient::open(&url, Revision::NEWEST_LEGACY).await;
            let stream = client.open_change_stream().await;
            let subscribed = client
                .ask("resources/subscribe", json!({ "uri": URI }))
                .await;
            assert_eq!(subscribed.result(), &json!({}));
            subscribers.push((client, stream));
        }
        while !subscribers.is_empty() {
            server.notify_resource_updated(URI);
            for (_, stream) in &mut subscribers {
                let message = stream.next().await.expect("an update");
                assert_eq!(message["method"], "notifications/resources/updated");
                assert_eq!(message["params"]["uri"], URI);
            }
            // The others stay subscribed.
            let (client, _stream) = subscribers.pop().unwrap();
            let left = client
                .ask("resources/unsubscribe", json!({ "uri": URI }))
                .await;
            assert_eq!(left.result(), &json!({}));
        }
        server
            .wait_until("the end of the last subscription", |server| {
                server.subscriptions().is_empty()
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_owner_is_replaced_and_its_call_is_not_run_again() {
    let (mut replicas, files) = start(MockStdio::legacy(Revision::NEWEST_LEGACY), json!({})).await;
    let killed = owner(&replicas);
    let other = other_than(killed);
    let client = open(&replicas, other, Revision::MODERN).await;
    let (first, _) = count(&client).await;
    let hanging = client.start_call("count", json!({ "hang": true }), None);
    let mut hanging = hanging.await;
    wait_until("the execution", || {
        (files.called().len() == 2).then_some(())
    });
    replicas.kill(killed).await;
    let lost = hanging.next().await.expect("an answer");
    let error = &lost["result"]["_meta"][meta::WEIR_ERROR];
    assert_eq!(error["reason"], "result_unknown", "{lost}");
    // A call at once waits for the next owner.
    let (second, number) = count(&client).await;
    assert_ne!(first, second);
    assert_eq!(number, 1, "the new child has its own state");
    assert_eq!(files.called(), [first, first, second]);
    assert_eq!(files.started(), [first, second]);
    assert_ne!(owner(&replicas), killed);
}

/// Each of the other replicas opens its watch at the next owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_lists_are_no_forwarded_calls() {
    let protocol = json!({ "protocol": "legacy" });
    let (mut replicas, files) = start(MockStdio::legacy(Revision::NEWEST_LEGACY), protocol).await;
    let killed = owner(&replicas);
    replicas.kill(killed).await;
    wait_until("the next child", || {
        (files.started().len() == 2).then_some(())
    });
    owner(&replicas);
    for result in ["answered", "refused", "unreachable", "lost"] {
        let calls = replicas.metric("weir_upstream_forwarded_total", &[result]);
        assert!(calls < 0.5, "{result}: {calls}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_that_was_stopped_past_its_lease_reaches_its_child_no_more() {
    let (replicas, files) = start(MockStdio::legacy(Revision::NEWEST_LEGACY), json!({})).await;
    let stopped = owner(&replicas);
    let other = other_than(stopped);
    let client = open(&replicas, other, Revision::MODERN).await;
    let (first, _) = count(&client).await;
    let own_client = open(&replicas, stopped, Revision::MODERN).await;
    let process = &replicas.replica(stopped).process;
    process.freeze();
    // Its own clients' requests wait in its sockets, and one that another replica sends.
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let client = own_client.raw().clone();
            tokio::spawn(async move { client.call("count", json!({})).await })
        })
        .collect();
    let forwarded = client.raw().call("count", json!({})).await.unwrap();
    assert_eq!(reason(&forwarded), "result_unknown", "{}", forwarded.last());
    let (second, _) = count(&client).await;
    assert_ne!(first, second);
    process.signal("CONT");
    for call in waiting {
        let answer = call.await.unwrap().unwrap();
        let (pid, _) = counted(&answer);
        assert_eq!(pid, second);
    }
    let by_first = files.called().iter().filter(|pid| **pid == first).count();
    assert_eq!(by_first, 1, "the call before the stop");
    wait_until("the end of the old child", || {
        (!Path::new(&format!("/proc/{first}")).exists()).then_some(())
    });
    assert_eq!(files.started(), [first, second]);
    let again = open(&replicas, stopped, Revision::NEWEST_LEGACY).await;
    assert_eq!(count(&again).await.0, second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_the_owner_serves_until_its_lease_ends_and_then_none_does() {
    let (mut replicas, files) = start(MockStdio::legacy(Revision::NEWEST_LEGACY), json!({})).await;
    let owner_before = owner(&replicas);
    let mut clients = Vec::new();
    for number in 0..COUNT {
        clients.push(open(&replicas, number, Revision::MODERN).await);
    }
    let (first, _) = count(&clients[0]).await;
    replicas.redis_mut().kill();
    for client in &clients {
        assert_eq!(count(client).await.0, first, "the lease still holds");
    }
    wait_until("the end of the lease", || {
        let held = replicas
            .replica(owner_before)
            .metric("weir_upstream_lease_held", &[]);
        (held < 0.5).then_some(())
    });
    let called = files.called().len();
    for client in &clients {
        let refused = client.call("count", json!({})).await;
        assert_eq!(reason(&refused), "unavailable", "{}", refused.last());
        assert!(
            refused.text().contains("shared store does not answer"),
            "{}",
            refused.text()
        );
    }
    assert_eq!(files.called().len(), called);
    wait_until("a health that shows it", || {
        let up = replicas.metric("weir_upstream_up", &[]);
        (up < 0.5).then_some(())
    });
    replicas.redis_mut().restart();
    wait_until_async("calls again", async || {
        let answer = clients[0].call("count", json!({})).await;
        answer.result().get("structuredContent").map(drop)
    })
    .await;
    let (second, _) = count(&clients[1]).await;
    assert_ne!(first, second);
    for client in &clients {
        assert_eq!(count(client).await.0, second);
    }
    assert_eq!(files.started(), [first, second]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_goes_on_after_a_loss_of_all_data() {
    let (replicas, files) = start(MockStdio::legacy(Revision::NEWEST_LEGACY), json!({})).await;
    let changes = replicas.metric("weir_upstream_lease_changes_total", &[]);
    let mut clients = Vec::new();
    for number in 0..COUNT {
        clients.push(open(&replicas, number, Revision::MODERN).await);
    }
    replicas.redis().flush();
    wait_until_async("a new epoch at every replica", async || {
        for client in &clients {
            count(client).await;
        }
        let now = replicas.metric("weir_upstream_lease_changes_total", &[]);
        (now > changes + COUNT as f64 - 0.5).then_some(())
    })
    .await;
    assert_eq!(files.started().len(), 1);
}

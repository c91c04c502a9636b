//! Calls that become tasks, in every pairing, of two principals that never see each other's tasks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_wire::Revision;

use super::pairing::{PairingTransport, PairingUpstreamConfig, UpstreamEra};
use super::support_report::FeatureSupport;
use crate::harness::{CheckedClient, WeirDeployment, wait_until_async};
use crate::tenant_isolation::{TENANTS, Tenant};

/// The pause between looks at a task that goes on.
const POLL_PAUSE: Duration = Duration::from_millis(10);

/// A server with tasks, weir, and the revisions of both sides.
pub struct TaskPairing {
    weir: WeirDeployment,
    mock_server: MockServer,
    client: Revision,
    /// The revision that weir speaks to the upstream for this client.
    upstream: Revision,
    _reached: PairingUpstreamConfig,
}

/// Returns the capabilities by which a client offers that its calls may become tasks.
fn able(revision: Revision) -> Value {
    if revision.is_modern() {
        json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } })
    } else {
        json!({ "elicitation": {} })
    }
}

impl TaskPairing {
    pub async fn start(client: Revision, server: UpstreamEra, transport: PairingTransport) -> Self {
        let upstream = server.revision_for(client);
        let mock_server = server.builder().with_tasks_of(upstream).start().await;
        let reached = transport.reached(&mock_server).await;
        let mut shop = reached.config.clone();
        shop["session"] = json!("principal");
        let config = json!({
            "upstreams": { "shop": shop },
            "endpoints": { "/mcp": { "upstreams": ["shop"] }, "/shop": { "upstream": "shop" } },
            "auth": { "mode": "required", "api_keys": TENANTS.each_ref().map(Tenant::api_key) },
        });
        let weir = WeirDeployment::start(config).await;
        let own = Self {
            weir,
            mock_server,
            client,
            upstream,
            _reached: reached,
        };
        if server == UpstreamEra::BothEras && upstream.has_task_param() {
            own.settle().await;
        }
        own
    }

    /// Makes weir find the legacy era of a server of both. It probes when the first client with a
    /// session calls, and lists the tools of that era soon after. Only there the server marks tools
    /// that are tasks alone.
    async fn settle(&self) {
        for url in self.weir.urls_of_each("/mcp") {
            self.settle_at(&url).await;
        }
    }

    async fn settle_at(&self, url: &str) {
        for capabilities in [json!({}), able(Revision::NEWEST_LEGACY)] {
            let header = TENANTS[0].header();
            let client = CheckedClient::with_capabilities_and_header(
                url,
                Revision::NEWEST_LEGACY,
                capabilities,
                header,
            )
            .await;
            assert!(
                client
                    .call("shop__task_done", json!({}))
                    .await
                    .result()
                    .is_object()
            );
            wait_until_async("the list of the legacy era", async || {
                let tools = client.list_tool_pages().await.0;
                let only = tools
                    .iter()
                    .find(|tool| tool["name"] == "shop__task_only")?;
                (only["execution"]["taskSupport"] == "required").then_some(())
            })
            .await;
        }
    }

    async fn of(&self, tenant: &Tenant, path: &str) -> CheckedClient {
        let (url, header) = (self.weir.url(path), tenant.header());
        CheckedClient::with_capabilities_and_header(&url, self.client, able(self.client), header)
            .await
    }

    /// Reports if a revision has tasks in some form.
    fn has(revision: Revision) -> bool {
        revision.is_modern() || revision.has_task_param()
    }

    fn support(&self) -> FeatureSupport {
        match (Self::has(self.client), Self::has(self.upstream)) {
            (true, true) => FeatureSupport::Carried,
            (false, false) => FeatureSupport::NotInRevision,
            _ => FeatureSupport::Refused,
        }
    }

    fn is_bridged(&self) -> bool {
        Self::has(self.client) && Self::has(self.upstream)
    }
}

/// Makes a call that becomes a task; returns its name and its first state.
async fn begin(client: &CheckedClient, tool: &str, arguments: Value) -> (String, Value) {
    let mut params = json!({ "name": tool, "arguments": arguments });
    if !client.revision.is_modern() {
        params["task"] = json!({ "ttl": 60_000 });
    }
    let answer = client.ask("tools/call", params).await;
    let result = answer.result();
    let task = if client.revision.is_modern() {
        result.clone()
    } else {
        result["task"].clone()
    };
    assert_eq!(
        client.revision.is_modern(),
        result["resultType"] == "task",
        "{}",
        answer.last()
    );
    let name = task["taskId"]
        .as_str()
        .unwrap_or_else(|| panic!("no task: {}", answer.last()))
        .to_owned();
    assert!(name.len() > 60 && !name.contains("task-"), "R231: {name}");
    (name, task)
}

async fn get_task(client: &CheckedClient, name: &str) -> Value {
    let answer = client.ask("tasks/get", json!({ "taskId": name })).await;
    let state = answer.result();
    assert_eq!(state["taskId"], name, "{state}");
    let (own, other) = if client.revision.is_modern() {
        (["ttlMs", "pollIntervalMs"], ["ttl", "pollInterval"])
    } else {
        (["ttl", "pollInterval"], ["ttlMs", "pollIntervalMs"])
    };
    for member in own {
        assert!(
            state[member].is_i64() || member.starts_with("poll"),
            "R223: {state}"
        );
    }
    assert!(
        other.iter().all(|member| state.get(member).is_none()),
        "R223: {state}"
    );
    state.clone()
}

/// Polls until the task is over.
async fn poll_until_over(client: &CheckedClient, name: &str) -> Value {
    for _ in 0..20 {
        let state = get_task(client, name).await;
        if ["completed", "failed", "cancelled"]
            .iter()
            .any(|status| state["status"] == *status)
        {
            return state;
        }
    }
    panic!("the task is never over");
}

/// Returns the outcome of the call: in one form it is a part of the state, in the other it is a
/// request of its own.
async fn outcome(client: &CheckedClient, name: &str) -> Value {
    if client.revision.is_modern() {
        let state = poll_until_over(client, name).await;
        return json!({ "result": state.get("result"), "error": state.get("error"), "status": state["status"] });
    }
    let answer = client.ask("tasks/result", json!({ "taskId": name })).await;
    let last = answer.last();
    let state = get_task(client, name).await;
    if let Some(result) = last.get("result") {
        assert_eq!(
            result["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], name,
            "R232: {last}"
        );
    }
    json!({ "result": last.get("result"), "error": last.get("error"), "status": state["status"] })
}

// Proves R220, R227, R228.
pub async fn tasks_are_offered_where_both_sides_have_them(world: &TaskPairing) -> FeatureSupport {
    let client = world.of(&TENANTS[0], "/mcp").await;
    let tools = client.list_tool_pages().await.0;
    let marked: Vec<_> = tools
        .iter()
        .filter(|tool| tool.get("execution").is_some())
        .collect();
    let offers = world.client.has_task_param() && TaskPairing::has(world.upstream);
    assert_eq!(!marked.is_empty(), offers, "{tools:?}");
    let own = world.client.has_task_param() && world.upstream.has_task_param();
    if own {
        let only = tools
            .iter()
            .find(|tool| tool["name"] == "shop__task_only")
            .unwrap();
        assert_eq!(only["execution"]["taskSupport"], "required");
    }
    // A client that does not ask for a task gets none.
    let plain =
        CheckedClient::open_with_header(&world.weir.url("/mcp"), world.client, TENANTS[0].header())
            .await;
    let answer = plain.call("shop__task_done", json!({ "n": 1 })).await;
    assert_eq!(answer.text(), r#"{"n":1}"#, "{}", answer.last());
    if world.is_bridged() && world.client.is_modern() {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let refused = plain
                .ask(method, json!({ "taskId": "x", "inputResponses": {} }))
                .await;
            assert_eq!(
                (refused.status.as_u16(), refused.code()),
                (400, -32021),
                "R224: {}",
                refused.last()
            );
        }
        let filter = json!({ "notifications": { "taskIds": ["x"] } });
        assert_eq!(
            plain.ask("subscriptions/listen", filter).await.code(),
            -32021,
            "R224"
        );
    }
    if !world.is_bridged() {
        let refused = client.ask("tasks/get", json!({ "taskId": "x" })).await;
        assert_eq!(refused.code(), -32601, "{}", refused.last());
    }
    if !world.is_bridged() || world.client.is_modern() {
        // The member that asks for a task is ignored in a revision that does not define it (R227).
        let params =
            json!({ "name": "shop__task_done", "arguments": { "n": 2 }, "task": { "ttl": 1 } });
        assert_eq!(plain.ask("tools/call", params).await.text(), r#"{"n":2}"#);
    }
    world.support()
}

// Proves R221, R235.
pub async fn task_only_tool_is_refused_or_awaited_for_clients_without_tasks(
    world: &TaskPairing,
) -> FeatureSupport {
    if !TaskPairing::has(world.upstream) {
        return FeatureSupport::NotInRevision;
    }
    let plain =
        CheckedClient::open_with_header(&world.weir.url("/mcp"), world.client, TENANTS[0].header())
            .await;
    let answer = plain.call("shop__task_only", json!({ "n": 3 })).await;
    match (world.client, world.upstream) {
        (client, _) if client.is_modern() => {
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (400, -32021),
                "{}",
                answer.last()
            );
            let needed = &answer.error()["data"]["requiredCapabilities"];
            assert!(
                needed["extensions"]
                    .get("io.modelcontextprotocol/tasks")
                    .is_some(),
                "{needed}"
            );
        }
        (client, upstream) if upstream.has_task_param() && client.has_task_param() => {
            assert_eq!(answer.code(), -32601, "{}", answer.last());
        }
        // weir waits for the task in place of a client without tasks.
        (_, upstream) if upstream.has_task_param() => {
            assert_eq!(answer.text(), r#"{"n":3}"#, "{}", answer.last());
            return FeatureSupport::Carried;
        }
        // A modern server refuses it itself.
        _ => assert!(answer.last().get("error").is_some(), "{}", answer.last()),
    }
    FeatureSupport::Refused
}

// Proves R222, R226, R229, R232.
pub async fn polled_task_ends_with_the_result_of_its_call(world: &TaskPairing) -> FeatureSupport {
    if !world.is_bridged() {
        return FeatureSupport::NotInRevision;
    }
    let client = world.of(&TENANTS[0], "/mcp").await;
    let (name, first) = begin(&client, "shop__task_done", json!({ "n": 4 })).await;
    if client.revision.is_modern() {
        let (mut headers, message) = client
            .raw()
            .envelope("tasks/get", json!({ "taskId": name }));
        headers.insert("mcp-name", http::HeaderValue::from_static("another"));
        let exchange = client
            .raw()
            .send(http::Method::POST, headers, message.to_string())
            .await
            .unwrap();
        let refused = exchange.finish().await.unwrap();
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (400, -32020),
            "R226"
        );
    }
    assert_eq!(
        (&first["status"], first.get("result")),
        (&json!("working"), None),
        "{first}"
    );
    let done = outcome(&client, &name).await;
    assert_eq!(done["result"]["content"][0]["text"], r#"{"n":4}"#, "{done}");
    assert_eq!(done["status"], "completed");
    if client.revision.is_modern() && !world.upstream.is_modern() {
        assert_eq!(
            done["result"]["resultType"], "complete",
            "R132, inside of a task too: {done}"
        );
    }
    let (name, _) = begin(&client, "shop__task_errs", json!({})).await;
    let errs = outcome(&client, &name).await;
    assert_eq!(errs["result"]["isError"], true, "{errs}");
    assert_eq!(
        errs["status"],
        if client.revision.is_modern() {
            "completed"
        } else {
            "failed"
        },
        "R229"
    );
    let (name, _) = begin(&client, "shop__task_fails", json!({})).await;
    let fails = outcome(&client, &name).await;
    assert_eq!(
        (&fails["error"]["code"], &fails["status"]),
        (&json!(4242), &json!("failed")),
        "{fails}"
    );
    // A server names its tasks freely; clients know none of these names.
    let direct = world.of(&TENANTS[0], "/shop").await;
    for foreign in [&name, "task-1"] {
        let refused = direct.ask("tasks/get", json!({ "taskId": foreign })).await;
        assert_eq!(refused.code(), -32602, "R225: {}", refused.last());
    }
    FeatureSupport::Carried
}

pub async fn task_changes_reach_only_streams_that_name_the_task(
    world: &TaskPairing,
) -> FeatureSupport {
    if !world.is_bridged() || !world.client.is_modern() {
        return FeatureSupport::NotInRevision;
    }
    let client = world.of(&TENANTS[0], "/mcp").await;
    let (name, _) = begin(&client, "shop__task_done", json!({ "n": 6 })).await;
    let (foreign, _) = begin(
        &world.of(&TENANTS[1], "/mcp").await,
        "shop__task_done",
        json!({}),
    )
    .await;
    let filter = json!({ "notifications": { "taskIds": [foreign, name, "task-1"] } });
    let mut stream = client.start("subscriptions/listen", filter).await;
    let first = stream.next().await.unwrap();
    assert_eq!(
        first["params"]["notifications"],
        json!({ "taskIds": [name] }),
        "{first}"
    );
    loop {
        let told = stream.next().await.unwrap();
        assert_eq!(
            (&told["method"], &told["params"]["taskId"]),
            (&json!("notifications/tasks"), &json!(name))
        );
        if told["params"]["status"] == "completed" {
            assert_eq!(
                told["params"]["result"]["content"][0]["text"], r#"{"n":6}"#,
                "{told}"
            );
            return FeatureSupport::Carried;
        }
        assert_eq!(told["params"]["status"], "working", "{told}");
    }
}

// Proves R207.
pub async fn progress_goes_on_when_a_call_became_a_task(world: &TaskPairing) -> FeatureSupport {
    if !world.client.has_task_param() || !world.upstream.has_task_param() {
        // Tasks of the extension have no progress.
        return FeatureSupport::NotInRevision;
    }
    let client = world.of(&TENANTS[0], "/mcp").await;
    let mut stream = client.open_change_stream().await;
    let meta = json!({ "progressToken": "mine" });
    // A task may be over before its progress arrives, so this one waits for its end.
    let params = json!({ "name": "shop__task_waits", "arguments": {}, "task": { "ttl": 60_000 }, "_meta": meta });
    let begun = client.ask("tools/call", params).await;
    let name = begun.result()["task"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    // Each request is awaited: one that is dropped would be cancelled at the server.
    let is_over = AtomicBool::new(false);
    let hearing = async {
        let told = stream.next().await.unwrap();
        is_over.store(true, Ordering::Relaxed);
        told
    };
    let polling = async {
        while !is_over.load(Ordering::Relaxed) {
            get_task(&client, &name).await;
            tokio::time::sleep(POLL_PAUSE).await;
        }
    };
    let (told, ()) = tokio::join!(hearing, polling);
    client.ask("tasks/cancel", json!({ "taskId": name })).await;
    assert_eq!(
        (&told["method"], &told["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("mine"))
    );
    assert!(told["params"]["progress"].as_u64() > Some(0), "{told}");
    assert_eq!(related_task(&told["params"]), name, "{told}");
    FeatureSupport::Carried
}

// Proves R207.
pub async fn task_progress_arrives_on_the_stream_that_awaits_its_result(
    world: &TaskPairing,
) -> FeatureSupport {
    if !world.client.has_task_param() || !world.upstream.has_task_param() {
        return FeatureSupport::NotInRevision;
    }
    // These clients open no GET stream.
    let plain =
        CheckedClient::open_with_header(&world.weir.url("/mcp"), world.client, TENANTS[0].header())
            .await;
    for client in [world.of(&TENANTS[0], "/mcp").await, plain] {
        waits_and_hears(&client).await;
    }
    FeatureSupport::Carried
}

async fn waits_and_hears(client: &CheckedClient) {
    let meta = json!({ "progressToken": "the call's" });
    let params = json!({ "name": "shop__task_waits", "arguments": {}, "task": { "ttl": 60_000 }, "_meta": meta });
    let begun = client.ask("tools/call", params).await;
    let name = begun.result()["task"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut last = 0;
    // One waiting request that loses its connection, and a second one.
    for own in ["one", "other"] {
        let about = json!({ "taskId": name, "_meta": { "progressToken": own } });
        let mut waiting = client.start("tasks/result", about).await;
        for _ in 0..2 {
            let told = waiting.next().await.unwrap();
            assert_eq!(told["method"], "notifications/progress", "{told}");
            assert_eq!(told["params"]["progressToken"], "the call's", "{told}");
            assert_eq!(related_task(&told["params"]), name, "{told}");
            let now = told["params"]["progress"].as_u64().unwrap();
            assert!(now > last, "{told} after {last}");
            last = now;
        }
        // Its connection is lost: the next request that waits gets the progress.
        drop(waiting);
    }
    client.ask("tasks/cancel", json!({ "taskId": name })).await;
}

// Proves R207.
pub async fn progress_of_an_internal_task_arrives_in_the_original_call(
    world: &TaskPairing,
) -> FeatureSupport {
    if TaskPairing::has(world.client) || !world.upstream.has_task_param() {
        return FeatureSupport::NotInRevision;
    }
    let client =
        CheckedClient::open_with_header(&world.weir.url("/mcp"), world.client, TENANTS[0].header())
            .await;
    // A task may be over before its progress arrives: the total counts.
    wait_until_async("progress", async || {
        let answer = client
            .call_with_token("shop__task_only", json!({ "n": 1 }), &json!("mine"))
            .await;
        assert_eq!(answer.text(), r#"{"n":1}"#, "{}", answer.last());
        let told = answer
            .messages
            .iter()
            .find(|message| message["method"] == "notifications/progress")?;
        assert_eq!(told["params"]["progressToken"], "mine");
        Some(())
    })
    .await;
    FeatureSupport::Carried
}

pub async fn changes_of_tasks_are_heard_from_servers_that_tell_of_them(
    world: &TaskPairing,
) -> FeatureSupport {
    if !world.is_bridged() || !world.client.is_modern() {
        return FeatureSupport::NotInRevision;
    }
    let client = world.of(&TENANTS[0], "/mcp").await;
    let (name, _) = begin(&client, "shop__task_waits", json!({})).await;
    let filter = json!({ "notifications": { "taskIds": [name] } });
    let mut stream = client.start("subscriptions/listen", filter).await;
    assert_eq!(
        stream.next().await.unwrap()["params"]["notifications"],
        json!({ "taskIds": [name] })
    );
    assert_eq!(stream.next().await.unwrap()["params"]["status"], "working");
    if world.upstream.is_modern() {
        let of_task = |listen: &weir_testkit::mock_server::RecordedRequest| {
            let filter = &listen.message["params"]["notifications"];
            filter["taskIds"]
                .as_array()
                .is_some_and(|ids| ids.len() == 1)
        };
        let asked = |mock_server: &MockServer| {
            mock_server
                .requests_of("subscriptions/listen")
                .iter()
                .any(of_task)
        };
        world
            .mock_server
            .wait_until("weir listens for the task", asked)
            .await;
    }
    client.ask("tasks/cancel", json!({ "taskId": name })).await;
    loop {
        let told = stream.next().await.unwrap();
        if told["params"]["status"] == "cancelled" {
            return FeatureSupport::Carried;
        }
    }
}

// Proves R233, R236.
pub async fn a_task_is_cancelled_by_its_own_method(world: &TaskPairing) -> FeatureSupport {
    if !world.is_bridged() {
        return FeatureSupport::NotInRevision;
    }
    let client = world.of(&TENANTS[0], "/mcp").await;
    let (name, _) = begin(&client, "shop__task_waits", json!({})).await;
    let before = world.mock_server.requests_of("tasks/cancel").len();
    assert_eq!(get_task(&client, &name).await["status"], "working");
    let cancelled = client.ask("tasks/cancel", json!({ "taskId": name })).await;
    if client.revision.is_modern() {
        assert!(
            cancelled.result().get("status").is_none(),
            "{}",
            cancelled.last()
        );
    } else {
        assert_eq!(
            cancelled.result()["status"],
            "cancelled",
            "{}",
            cancelled.last()
        );
    }
    assert_eq!(poll_until_over(&client, &name).await["status"], "cancelled");
    let again = client.ask("tasks/cancel", json!({ "taskId": name })).await;
    if client.revision.is_modern() {
        assert_eq!(again.result()["resultType"], "complete", "{}", again.last());
    } else {
        assert_eq!(again.code(), -32602, "R233: {}", again.last());
    }
    assert!(
        world
            .mock_server
            .requests_of("notifications/cancelled")
            .is_empty(),
        "R236"
    );
    let cancels = world.mock_server.requests_of("tasks/cancel").len() - before;
    assert_eq!(cancels, 1 + usize::from(client.revision.is_modern()));
    FeatureSupport::Carried
}

// Proves R230.
pub async fn a_task_asks_and_goes_on_with_the_answer(world: &TaskPairing) -> FeatureSupport {
    if !world.is_bridged() {
        return FeatureSupport::NotInRevision;
    }
    let client = world.of(&TENANTS[0], "/mcp").await;
    let (name, _) = begin(&client, "shop__task_asks", json!({ "n": 5 })).await;
    let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
    let answer_of = |name: &str| {
        let mut answer = answer.clone();
        answer["_meta"] = json!({ "io.modelcontextprotocol/related-task": { "taskId": name } });
        answer
    };
    let said = if client.revision.is_modern() {
        let mut state = get_task(&client, &name).await;
        for _ in 0..20 {
            if state["status"] == "input_required" {
                break;
            }
            state = get_task(&client, &name).await;
        }
        let requests = state["inputRequests"]
            .as_object()
            .unwrap_or_else(|| panic!("it asks nothing: {state}"));
        let (key, request) = requests.iter().next().unwrap();
        assert_eq!(
            (&request["method"], requests.len()),
            (&json!("elicitation/create"), 1)
        );
        assert_eq!(request["params"]["message"], "[shop] Your name?");
        let params = json!({ "taskId": name, "inputResponses": { key: answer, "nobody": { "action": "cancel" } } });
        let told = client.ask("tasks/update", params).await;
        assert!(told.result().get("status").is_none(), "{}", told.last());
        poll_until_over(&client, &name).await["result"].clone()
    } else {
        let mut stream = client
            .start("tasks/result", json!({ "taskId": name }))
            .await;
        loop {
            let message = stream.next().await.unwrap();
            match message["method"].as_str() {
                Some("notifications/tasks/status") => {
                    assert_eq!(message["params"]["taskId"], name, "{message}")
                }
                Some(method) => {
                    assert_eq!(method, "elicitation/create");
                    assert_eq!(related_task(&message["params"]), name, "{message}");
                    client
                        .raw()
                        .respond(&message["id"], answer_of(&name))
                        .await
                        .unwrap();
                }
                None => break message["result"].clone(),
            }
        }
    };
    // The server shows the answer as it came.
    let text = said["content"][0]["text"].as_str().unwrap();
    let mut came: Value = serde_json::from_str(text).unwrap();
    let about = came.as_object_mut().unwrap().remove("_meta");
    assert_eq!(came, answer, "{said}");
    if world.upstream.is_modern() {
        assert_eq!(about, None, "answers have no `_meta` there");
    } else {
        let related = related_task(&json!({ "_meta": about }));
        assert!(related.is_string() && related != name, "{said}");
    }
    FeatureSupport::Carried
}

/// The task that a message of 2025-11-25 names as its own (tasks, "Associating Task-Related
/// Messages").
fn related_task(of: &Value) -> Value {
    of["_meta"]["io.modelcontextprotocol/related-task"]["taskId"].clone()
}

// Proves R225, R234, B20.
pub async fn tasks_belong_to_their_principals(world: &TaskPairing) -> FeatureSupport {
    if !world.is_bridged() {
        return FeatureSupport::NotInRevision;
    }
    let (ada, bob) = (
        world.of(&TENANTS[0], "/mcp").await,
        world.of(&TENANTS[1], "/mcp").await,
    );
    let (hers, _) = begin(&ada, "shop__task_waits", json!({})).await;
    let (his, _) = begin(&bob, "shop__task_waits", json!({})).await;
    let before = world.mock_server.requests_of("tasks/cancel").len();
    for (who, whose) in [(&ada, &his), (&bob, &hers)] {
        for method in ["tasks/get", "tasks/cancel", "tasks/update", "tasks/result"] {
            let exists = match method {
                "tasks/update" => world.client.is_modern(),
                "tasks/result" => !world.client.is_modern(),
                _ => true,
            };
            let refused = who
                .ask(method, json!({ "taskId": whose, "inputResponses": {} }))
                .await;
            assert_eq!(
                refused.code(),
                if exists { -32602 } else { -32601 },
                "{method}: {}",
                refused.last()
            );
        }
    }
    assert_eq!(
        world.mock_server.requests_of("tasks/cancel").len(),
        before,
        "the server hears of none of it"
    );
    let listed = async |client: &CheckedClient| {
        let answer = client.ask("tasks/list", json!({})).await;
        let tasks = answer.result()["tasks"].as_array().unwrap().clone();
        tasks
            .iter()
            .map(|task| task["taskId"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    if world.client.has_task_param() {
        let (all, others) = (listed(&ada).await, listed(&bob).await);
        assert!(all.contains(&hers) && !all.contains(&his), "R234: {all:?}");
        assert_eq!(others, std::slice::from_ref(&his), "R234");
        let bad = ada.ask("tasks/list", json!({ "cursor": "x" })).await;
        assert_eq!(bad.code(), -32602, "{}", bad.last());
    } else {
        assert_eq!(
            ada.ask("tasks/list", json!({})).await.code(),
            -32601,
            "R029"
        );
    }
    FeatureSupport::Carried
}

//! Every feature, in every revision of the host, in front of servers of both eras, from a config
//! and from a URL.

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockServerBuilder, MockTool};
use weir_testkit::{MockBehaviour, MockServer, SseRelay};
use weir_wire::{LogLevel, Revision};

use super::stdio_host::{StdioConfigFile, StdioHost};
use crate::harness::{wait_until_async, within_test_timeout};

/// The form in which the server is named.
#[derive(Clone, Copy, Debug)]
enum TargetForm {
    /// A config that names the server.
    File,
    /// The URL of the server.
    Url,
    /// The URL of a server of HTTP+SSE.
    Sse,
}

struct StdioPairing {
    server: MockServer,
    gate: CallGate,
    host: StdioHost,
    revision: Revision,
    /// The older of the revisions of host and server.
    older: Revision,
    _file: Option<StdioConfigFile>,
    _relay: Option<SseRelay>,
}

fn form() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    json!({ "message": "Who are you?", "requestedSchema": schema })
}

fn prompt() -> Value {
    let message =
        json!({ "role": "user", "content": { "type": "text", "text": "What is 6 times 7?" } });
    json!({ "messages": [message], "maxTokens": 10 })
}

const QUESTIONS: [(&str, &str); 3] = [
    ("form", "elicitation/create"),
    ("sample", "sampling/createMessage"),
    ("roots", "roots/list"),
];

fn question(method: &str) -> Value {
    match method {
        "elicitation/create" => form(),
        "sampling/createMessage" => prompt(),
        _ => json!({}),
    }
}

/// Returns a host's answer, and the text in it that the tool must have seen.
fn answer(method: &str) -> (Value, &'static str) {
    match method {
        "elicitation/create" => (
            json!({ "action": "accept", "content": { "name": "Ada" } }),
            "Ada",
        ),
        "roots/list" => (
            json!({ "roots": [{ "uri": "file:///srv/ada", "name": "ada" }] }),
            "file:///srv/ada",
        ),
        _ => {
            let content = json!({ "type": "text", "text": "forty-two" });
            (
                json!({ "role": "assistant", "model": "m", "content": content }),
                "forty-two",
            )
        }
    }
}

fn asking(builder: MockServerBuilder, is_modern: bool) -> MockServerBuilder {
    QUESTIONS
        .into_iter()
        .fold(builder, |builder, (tool, method)| {
            if !is_modern {
                let ask = AnswerStep::Ask {
                    method,
                    params: question(method),
                };
                return builder.tool(tool, MockBehaviour::steps([ask, AnswerStep::Answer]));
            }
            let mut asked = json!({ "method": method });
            if method != "roots/list" {
                asked["params"] = question(method);
            }
            let rounds = [
                MockBehaviour::input_required(json!({ "q": asked }), Some("s")),
                MockBehaviour::text("asked"),
            ];
            builder.with(MockTool::new(tool).does_in_turn(rounds))
        })
}

impl StdioPairing {
    async fn start(server: Option<Revision>, revision: Revision, way: TargetForm) -> Self {
        let (gate, older) = (
            CallGate::new(),
            server.unwrap_or(Revision::MODERN).min(revision),
        );
        let builder = server.map_or_else(MockServer::modern, MockServer::legacy);
        let builder = asking(builder, server.is_none())
            .with_library()
            .tool("echo", MockBehaviour::echo())
            .tool("steps", MockBehaviour::progress(3))
            .tool(
                "logs",
                MockBehaviour::log(&[LogLevel::Debug, LogLevel::Error]),
            )
            .tool("gated", MockBehaviour::gated_after_progress(&gate))
            .tool("large", MockBehaviour::huge(3 << 20));
        let server = builder.start().await;
        let (mut file, mut relay) = (None, None);
        let target = match way {
            TargetForm::File => {
                let config = json!({
                    "upstreams": { "shop": { "url": server.url() } }, "endpoints": { "/mcp": { "upstream": "shop" } },
                    "limits": { "progress_interval": "0ms" }, "change_window": "50ms",
                });
                file.insert(StdioConfigFile::new(&config)).path().to_owned()
            }
            TargetForm::Url => server.url(),
            TargetForm::Sse => relay.insert(SseRelay::start(&server.url()).await).url(),
        };
        let able = json!({ "sampling": {}, "elicitation": {}, "roots": { "listChanged": true } });
        let host = StdioHost::able(revision, &[&target], able).await;
        Self {
            server,
            gate,
            host,
            revision,
            older,
            _file: file,
            _relay: relay,
        }
    }

    async fn lists_and_calls(&mut self) {
        let host = &mut self.host;
        let names = host.names().await;
        assert!(
            ["echo", "steps", "gated"]
                .iter()
                .all(|tool| names.iter().any(|name| name == tool)),
            "{names:?}"
        );
        assert_eq!(host.call("echo", json!({ "n": 1 })).await, r#"{"n":1}"#);
        let large = host.call("large", json!({})).await;
        assert_eq!(large.len(), 3 << 20);
        let refused = host
            .ask("tools/call", json!({ "name": "nothing", "arguments": {} }))
            .await;
        assert!(
            refused.get("error").is_some() || refused["result"]["isError"] == true,
            "{refused}"
        );
        let unknown = host.ask("nothing/known", json!({})).await;
        assert!(unknown.get("error").is_some(), "{unknown}");
        for (method, member) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
            let listed = host.ask(method, json!({})).await;
            assert!(
                !listed["result"][member]
                    .as_array()
                    .unwrap_or_else(|| panic!("{listed}"))
                    .is_empty()
            );
        }
        if !self.revision.is_modern() {
            assert_eq!(host.ask("ping", json!({})).await["result"], json!({}));
        }
    }

    async fn progress_and_logs(&mut self) {
        let host = &mut self.host;
        let mut params =
            json!({ "name": "steps", "arguments": {}, "_meta": { "progressToken": "t" } });
        let answer = host.ask("tools/call", params.take()).await;
        assert!(answer.get("result").is_some(), "{answer}");
        let progress = host.heard("notifications/progress").await;
        assert_eq!(progress["params"]["progressToken"], "t");
        let mut params = json!({ "name": "logs", "arguments": {} });
        if self.revision.is_modern() {
            params["_meta"] = json!({ weir_wire::meta::LOG_LEVEL: "error" });
        } else {
            assert_eq!(
                host.ask("logging/setLevel", json!({ "level": "error" }))
                    .await["result"],
                json!({})
            );
        }
        host.beside.clear();
        assert!(host.ask("tools/call", params).await.get("result").is_some());
        assert_eq!(
            host.heard("notifications/message").await["params"]["level"],
            "error"
        );
        assert!(
            !host
                .beside
                .iter()
                .any(|message| message["method"] == "notifications/message"),
            "{:?}",
            host.beside
        );
    }

    /// A call ends when the host cancels it, and no answer comes.
    async fn cancellation(&mut self) {
        let id = self
            .host
            .begin(
                "tools/call",
                json!({ "name": "gated", "arguments": {}, "_meta": { "progressToken": 7 } }),
            )
            .await;
        self.host.heard("notifications/progress").await;
        self.host.cancel(&id).await;
        let server = &self.server;
        let is_over = || server.counts("gated").cancelled + server.counts("gated").abandoned > 0;
        wait_until_async("the call to be cancelled", async || is_over().then_some(())).await;
        // Cancelled right after its call: weir handles the two in their order.
        let early = self
            .host
            .begin("tools/call", json!({ "name": "gated", "arguments": {} }))
            .await;
        self.host.cancel(&early).await;
        self.host.cancel(&json!("never asked")).await;
        assert_eq!(
            self.host.call("echo", json!({ "n": 2 })).await,
            r#"{"n":2}"#
        );
        let answered = |message: &Value| message["id"] == id || message["id"] == early;
        assert!(
            !self.host.beside.iter().any(answered),
            "{:?}",
            self.host.beside
        );
        // The early call was cancelled: it does not wait at the gate, so it cannot be answered.
        self.gate.open();
        assert_eq!(
            self.host.call("gated", json!({ "n": 3 })).await,
            r#"{"n":3}"#
        );
        assert!(
            !self.host.beside.iter().any(answered),
            "{:?}",
            self.host.beside
        );
    }

    /// The server's requests reach the host, and the host's answers the server.
    async fn questions(&mut self) {
        for (tool, method) in QUESTIONS {
            let has_words = method != "elicitation/create" || self.older.has_elicitation();
            if !has_words {
                continue;
            }
            let (reply, seen) = answer(method);
            let params = json!({ "name": tool, "arguments": {} });
            let result = if self.revision.is_modern() {
                let first = self.host.ask("tools/call", params.clone()).await;
                let asked = &first["result"];
                assert_eq!(asked["resultType"], "input_required", "{first}");
                let (key, request) = asked["inputRequests"]
                    .as_object()
                    .unwrap()
                    .iter()
                    .next()
                    .unwrap();
                assert_eq!(request["method"], method, "{first}");
                let mut again = params;
                again["inputResponses"] = json!({ key: reply });
                again["requestState"] = asked["requestState"].clone();
                self.host.ask("tools/call", again).await
            } else {
                let id = self.host.begin("tools/call", params).await;
                let asked = self.host.heard(method).await;
                self.host
                    .say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": reply }))
                    .await;
                self.host.answer(&id).await
            };
            let text = result["result"]["content"][0]["text"]
                .as_str()
                .unwrap_or_else(|| panic!("{result}"));
            let retried = self
                .server
                .requests_of("tools/call")
                .last()
                .unwrap()
                .message
                .to_string();
            assert!(
                text.contains(seen) || text == "asked" && retried.contains(seen),
                "{tool}: {text} {retried}"
            );
        }
    }

    async fn changes(&mut self) {
        let listening = match self.revision.is_modern() {
            true => {
                let filter = json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["memo:1"] } });
                let id = self.host.begin("subscriptions/listen", filter).await;
                let acknowledged = self
                    .host
                    .heard("notifications/subscriptions/acknowledged")
                    .await;
                assert_eq!(
                    acknowledged["params"]["notifications"]["toolsListChanged"],
                    true
                );
                Some(id)
            }
            false => {
                let subscribed = self
                    .host
                    .ask("resources/subscribe", json!({ "uri": "memo:1" }))
                    .await;
                assert_eq!(subscribed["result"], json!({}), "{subscribed}");
                None
            }
        };
        let (server, host) = (&self.server, &mut self.host);
        wait_until_async("weir to listen", async || {
            (server.listeners() > 0).then_some(())
        })
        .await;
        wait_until_async("the subscription", async || {
            server
                .subscriptions()
                .iter()
                .any(|uri| uri == "memo:1")
                .then_some(())
        })
        .await;
        server.notify_resource_updated("memo:1");
        assert_eq!(
            host.heard("notifications/resources/updated").await["params"]["uri"],
            "memo:1"
        );
        let grown = [
            MockTool::new("grown"),
            MockTool::new("echo").does(MockBehaviour::echo()),
        ];
        server.set_tools(grown);
        server.notify_list_changed();
        let told = host.heard("notifications/tools/list_changed").await;
        if let Some(id) = &listening {
            assert_eq!(
                told["params"]["_meta"][weir_wire::meta::SUBSCRIPTION_ID],
                *id
            );
        }
        let mut names = host.names().await;
        // The list may be in either order: the host's own session and the shared listen stream
        // report the change at different times, and the session's own items are last.
        names.sort_unstable();
        assert_eq!(names, ["echo", "grown"]);
    }
}

async fn everything(server: Option<Revision>, revision: Revision, way: TargetForm) {
    let mut world = StdioPairing::start(server, revision, way).await;
    world.lists_and_calls().await;
    world.progress_and_logs().await;
    world.questions().await;
    world.cancellation().await;
    world.changes().await;
    let StdioPairing { host, .. } = world;
    within_test_timeout("the end", host.end_well()).await;
}

macro_rules! hosts {
    ($($name:ident: $server:expr, $host:ident, $way:ident;)*) => {$(
        #[tokio::test]
        async fn $name() {
            everything($server, Revision::$host, TargetForm::$way).await;
        }
    )*};
}

hosts! {
    a_file_for_a_host_of_2024_11_05: None, V2024_11_05, File;
    a_file_for_a_host_of_2025_03_26: Some(Revision::V2025_06_18), V2025_03_26, File;
    a_file_for_a_host_of_2025_06_18: None, V2025_06_18, File;
    a_file_for_a_host_of_2025_11_25: Some(Revision::NEWEST_LEGACY), V2025_11_25, File;
    a_file_for_a_host_of_2026_07_28: Some(Revision::NEWEST_LEGACY), MODERN, File;
    a_file_for_a_modern_host_before_a_modern_server: None, MODERN, File;
    a_url_for_a_host_of_2024_11_05: Some(Revision::NEWEST_LEGACY), V2024_11_05, Url;
    a_url_for_a_host_of_2025_03_26: None, V2025_03_26, Url;
    a_url_for_a_host_of_2025_06_18: Some(Revision::V2025_06_18), V2025_06_18, Url;
    a_url_for_a_host_of_2025_11_25: None, V2025_11_25, Url;
    a_url_for_a_host_of_2026_07_28: None, MODERN, Url;
    a_url_of_a_legacy_server_for_a_modern_host: Some(Revision::V2025_06_18), MODERN, Url;
    a_url_of_http_sse_for_a_legacy_host: Some(Revision::V2024_11_05), V2025_11_25, Sse;
}

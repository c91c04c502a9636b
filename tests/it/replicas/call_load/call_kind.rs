//! The kinds of calls under load, and the server that answers them.

use std::pin::Pin;

use serde_json::{Value, json};
use weir_testkit::mock_server::AnswerStep;
use weir_testkit::{MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

/// The most looks at one task: that of the mock server is over after two.
const MAX_LOOKS: usize = 20;

/// The kind of calls that a caller makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// Calls in a session.
    Legacy,
    /// Calls of 2026-07-28.
    Modern,
    /// Calls in a session, over HTTP/2.
    LegacyHttp2,
    /// Calls of 2026-07-28, over HTTP/2.
    ModernHttp2,
    /// Calls in a session, answered by a stream with progress notifications.
    Progress,
    /// Calls in a session whose server asks the client for a form.
    Elicitation,
    /// Calls in a session whose server asks the client for a completion of its model.
    Sampling,
    /// Calls of 2026-07-28 that wait for the client's input.
    Parked,
    /// Calls in a session that become tasks of 2025-11-25.
    LegacyTask,
    /// Calls that become tasks of the extension of 2026-07-28.
    ModernTask,
}

impl CallKind {
    /// The kinds that are one request and one answer.
    pub(crate) const PLAIN: [Self; 4] = [
        Self::Legacy,
        Self::Modern,
        Self::LegacyHttp2,
        Self::ModernHttp2,
    ];
    /// All kinds.
    pub(crate) const ALL: [Self; 10] = [
        Self::Legacy,
        Self::Modern,
        Self::LegacyHttp2,
        Self::ModernHttp2,
        Self::Progress,
        Self::Elicitation,
        Self::Sampling,
        Self::Parked,
        Self::LegacyTask,
        Self::ModernTask,
    ];

    pub(crate) const fn revision(self) -> Revision {
        match self {
            Self::Legacy
            | Self::LegacyHttp2
            | Self::Progress
            | Self::Elicitation
            | Self::Sampling
            | Self::LegacyTask => Revision::NEWEST_LEGACY,
            Self::Modern | Self::ModernHttp2 | Self::Parked | Self::ModernTask => Revision::MODERN,
        }
    }

    /// The tool that it calls: each kind has one of its own, so that executions are counted apart.
    pub(crate) const fn tool(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::LegacyHttp2 => "legacy_http2",
            Self::ModernHttp2 => "modern_http2",
            Self::Progress => "progress",
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::Parked => "parked",
            // These are among the tools of every mock server with tasks.
            Self::LegacyTask => "task_done",
            Self::ModernTask => "task_only",
        }
    }

    /// The capabilities of a client that makes such calls.
    pub(crate) fn capabilities(self) -> Value {
        let mut able = json!({ "elicitation": {}, "sampling": {} });
        if self == Self::ModernTask {
            able["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
        }
        able
    }

    /// Keeps the connections of a client, in the version of HTTP of this kind.
    pub(crate) fn connected(self, client: RawClient) -> RawClient {
        if matches!(self, Self::LegacyHttp2 | Self::ModernHttp2) {
            client.with_http2().keeping_connections()
        } else {
            client.keeping_connections()
        }
    }

    /// The params of a call with these arguments.
    pub(crate) fn params(self, arguments: &Value) -> Value {
        let mut params = json!({ "name": self.tool(), "arguments": arguments });
        if self == Self::Progress {
            params["_meta"] = json!({ "progressToken": 1 });
        }
        if self == Self::LegacyTask {
            params["task"] = json!({ "ttl": 60_000 });
        }
        params
    }

    /// The client's answer to the question of such a call, with this name in it.
    pub(crate) fn answer(self, name: &str) -> Value {
        if self == Self::Sampling {
            let text = json!({ "type": "text", "text": name });
            return json!({ "role": "assistant", "model": "m", "content": text });
        }
        json!({ "action": "accept", "content": { "name": name } })
    }

    /// The params of a call again, with the client's answer to an `input_required` result.
    pub(crate) fn with_input(self, mut params: Value, asked: &Value, name: &str) -> Value {
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let requests = asked["inputRequests"].as_object().unwrap();
        let key = requests.keys().next().unwrap();
        params["inputResponses"] = json!({ key: self.answer(name) });
        params["requestState"] = asked["requestState"].clone();
        params
    }

    /// Looks at the task that a call became, by `ask`, until the task has ended. Returns the result of
    /// the call.
    pub(crate) async fn follow_task<'a, E>(
        self,
        created: &Value,
        ask: impl Fn(&'static str, Value) -> Pin<Box<dyn Future<Output = Result<Value, E>> + Send + 'a>>,
    ) -> Result<Value, E> {
        let is_modern = self.revision().is_modern();
        let task = if is_modern { created } else { &created["task"] };
        assert!(task["taskId"].is_string(), "{created}");
        let about = json!({ "taskId": task["taskId"] });
        for _ in 0..MAX_LOOKS {
            let state = ask("tasks/get", about.clone()).await?;
            if state["status"] != "completed" {
                assert_eq!(state["status"], "working", "{state}");
                continue;
            }
            return if is_modern {
                Ok(state["result"].clone())
            } else {
                ask("tasks/result", about).await
            };
        }
        panic!("a task of {self:?} does not end");
    }

    /// The method of the server's question.
    pub(crate) const fn question(self) -> &'static str {
        if matches!(self, Self::Sampling) {
            "sampling/createMessage"
        } else {
            "elicitation/create"
        }
    }

    /// The behaviour of its tool; `None` if the mock server has the tool with its tasks.
    fn behaviour(self) -> Option<MockBehaviour> {
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let form = json!({ "message": "Your name?", "requestedSchema": schema });
        let asking = |params: Value| {
            let ask = AnswerStep::Ask {
                method: self.question(),
                params,
            };
            MockBehaviour::steps([ask, AnswerStep::Answer])
        };
        Some(match self {
            Self::Legacy | Self::Modern | Self::LegacyHttp2 | Self::ModernHttp2 => {
                MockBehaviour::echo()
            }
            Self::Progress => MockBehaviour::progress(3),
            Self::Elicitation => asking(form),
            Self::Sampling => {
                let content = json!({ "type": "text", "text": "Your name?" });
                let messages = [json!({ "role": "user", "content": content })];
                asking(json!({ "messages": messages, "maxTokens": 10 }))
            }
            Self::Parked => MockBehaviour::ask(self.question(), form),
            Self::LegacyTask | Self::ModernTask => return None,
        })
    }
}

/// Starts a server with the tools of all kinds of calls.
pub(crate) async fn upstream() -> MockServer {
    let mut server = MockServer::legacy(Revision::NEWEST_LEGACY).with_tasks();
    for kind in CallKind::ALL {
        if let Some(behaviour) = kind.behaviour() {
            server = server.tool(kind.tool(), behaviour);
        }
    }
    server.start().await
}

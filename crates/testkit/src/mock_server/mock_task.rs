//! One task of a mock server, and its state in messages.

use serde_json::{Value, json};
use weir_wire::Revision;

/// One task.
#[derive(Clone, Debug)]
pub(super) struct MockTask {
    pub(super) tool: String,
    pub(super) arguments: Value,
    pub(super) request_count: usize,
    pub(super) cancelled: bool,
    /// The answer to its request for input.
    pub(super) answer: Option<Value>,
    /// The session that began it, and its progress token.
    pub(super) progress: Option<(String, Value)>,
}

impl MockTask {
    /// Returns its state, in the protocol's word.
    pub(super) fn status(&self) -> &'static str {
        match &*self.tool {
            _ if self.cancelled => "cancelled",
            "task_waits" => "working",
            "task_asks" if self.answer.is_none() => {
                if self.request_count > 1 {
                    "input_required"
                } else {
                    "working"
                }
            }
            _ if self.request_count < 2 => "working",
            "task_fails" => "failed",
            _ => "completed",
        }
    }

    /// Reports if it ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.status(), "completed" | "failed" | "cancelled")
    }

    /// Returns the members that every message about it has.
    pub(super) fn brief(&self, name: &str, revision: Revision) -> Value {
        let failed =
            self.tool == "task_errs" && self.status() == "completed" && !revision.is_modern();
        let (ttl, interval) = if revision.is_modern() {
            ("ttlMs", "pollIntervalMs")
        } else {
            ("ttl", "pollInterval")
        };
        json!({
            "taskId": name,
            "status": if failed { "failed" } else { self.status() },
            "statusMessage": format!("looked at {} times", self.request_count),
            "createdAt": "2026-01-01T00:00:00Z",
            "lastUpdatedAt": "2026-01-01T00:00:01Z",
            ttl: 60_000,
            interval: 50,
        })
    }

    /// Returns its state with its outcome or its request for input, in the modern form.
    pub(super) fn detailed(&self, name: &str) -> Value {
        let mut state = self.brief(name, Revision::MODERN);
        state["resultType"] = json!("complete");
        match self.status() {
            "completed" => state["result"] = self.outcome(),
            "failed" => state["error"] = failure(),
            "input_required" => {
                state["inputRequests"] =
                    json!({"name": {"method": "elicitation/create", "params": form()}});
            }
            _ => {}
        }
        state
    }

    /// Returns its result.
    pub(super) fn outcome(&self) -> Value {
        let given = self.answer.as_ref().unwrap_or(&self.arguments);
        let mut result = json!({"content": [{"type": "text", "text": given.to_string()}]});
        if self.tool == "task_errs" {
            result["isError"] = json!(true);
        }
        result
    }
}

/// Returns the error of a task that fails.
pub(super) fn failure() -> Value {
    json!({"code": 4242, "message": "sold out", "data": {"left": 0}})
}

/// Returns the parameters of a task's request for input.
pub(super) fn form() -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    json!({"mode": "form", "message": "Your name?", "requestedSchema": schema})
}

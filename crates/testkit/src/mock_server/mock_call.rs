//! A request as a behaviour answers it.

use serde_json::{Value, json};
use weir_wire::{LogLevel, Revision};

use crate::mock_server::recorded_request::RecordedRequest;

/// The request that a behaviour answers.
#[derive(Debug)]
pub(super) struct MockCall {
    pub(super) id: Value,
    pub(super) token: Option<Value>,
    pub(super) arguments: Value,
    pub(super) revision: Revision,
    /// The least severe log message the client wants.
    pub(super) level: Option<LogLevel>,
    pub(super) session: Option<String>,
    /// The tool, unless the answer comes before any tool runs.
    pub(super) tool: Option<String>,
}

impl MockCall {
    /// Returns the facts of a request that a behaviour needs.
    pub(super) fn of(request: &RecordedRequest, revision: Revision) -> Self {
        Self {
            id: request.message["id"].clone(),
            token: request.meta().get("progressToken").cloned(),
            arguments: request.message["params"]
                .get("arguments")
                .cloned()
                .unwrap_or_else(|| json!({})),
            revision,
            level: None,
            session: request.session().map(str::to_owned),
            tool: request.tool().map(str::to_owned),
        }
    }
}

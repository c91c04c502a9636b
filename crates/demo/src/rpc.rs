//! JSON-RPC as both demo servers use it: parsed requests, and built answers. They are small and far
//! from any hot path, so plain JSON values do.

use serde_json::{Map, Value, json};
use weir_wire::error_code;

/// A message of a client.
#[derive(Debug)]
pub(crate) enum DemoMessage {
    /// A request that wants an answer.
    Request(DemoRequest),
    /// A notification, which wants no answer.
    Notification,
    /// An answer; these servers send no requests.
    Response,
}

/// The parts of a request.
#[derive(Debug)]
pub(crate) struct DemoRequest {
    /// A string or an integer.
    pub(crate) id: Value,
    pub(crate) method: String,
    /// Empty when the request has no params.
    pub(crate) params: Map<String, Value>,
}

/// A JSON-RPC error before it gets its id.
#[derive(Debug)]
pub(crate) struct DemoFault {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl DemoFault {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new(error_code::INVALID_PARAMS, message)
    }

    pub(crate) fn with(self, data: Value) -> Self {
        Self {
            data: Some(data),
            ..self
        }
    }

    /// The error message for `id`; without an id if the request's could not be read.
    pub(crate) fn message(self, id: Option<&Value>) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = self.data {
            error["data"] = data;
        }
        let mut message = json!({"jsonrpc": "2.0", "error": error});
        if let Some(id) = id {
            message["id"] = id.clone();
        }
        message
    }
}

impl DemoRequest {
    /// A member of params that must be a string if it is present.
    pub(crate) fn string(&self, name: &str) -> Result<Option<&str>, DemoFault> {
        match self.params.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(DemoFault::params(format!("params.{name} must be a string"))),
        }
    }

    /// The `_meta.progressToken`, if its type is allowed by the specification.
    pub(crate) fn progress_token(&self) -> Option<Value> {
        let token = self.params.get("_meta")?.get("progressToken")?;
        (token.is_string() || token.is_i64() || token.is_u64()).then(|| token.clone())
    }

    /// The name and arguments of a `tools/call`.
    pub(crate) fn tool_call(&self) -> Result<(&str, Map<String, Value>), DemoFault> {
        let name = self
            .string("name")?
            .ok_or_else(|| DemoFault::params("params.name must name a tool"))?;
        match self.params.get("arguments") {
            None => Ok((name, Map::new())),
            Some(Value::Object(arguments)) => Ok((name, arguments.clone())),
            Some(_) => Err(DemoFault::params("params.arguments must be an object")),
        }
    }
}

/// The fault of a message, and its id if it could be read.
#[derive(Debug)]
pub(crate) struct MalformedMessage {
    pub(crate) id: Option<Value>,
    pub(crate) fault: DemoFault,
}

/// Parses one JSON-RPC message.
pub(crate) fn parse(message: Value) -> Result<DemoMessage, Box<MalformedMessage>> {
    let Value::Object(mut message) = message else {
        let fault = DemoFault::new(
            error_code::INVALID_REQUEST,
            "a message must be a JSON object",
        );
        return Err(Box::new(MalformedMessage { id: None, fault }));
    };
    let id = message.remove("id");
    let known = id
        .clone()
        .filter(|id| id.is_string() || id.is_i64() || id.is_u64());
    let refuse = |why: &str| {
        Box::new(MalformedMessage {
            id: known.clone(),
            fault: DemoFault::new(error_code::INVALID_REQUEST, why),
        })
    };
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(refuse("jsonrpc must be \"2.0\""));
    }
    let method = match message.remove("method") {
        Some(Value::String(method)) => method,
        None if message.contains_key("result") || message.contains_key("error") => {
            return Ok(DemoMessage::Response);
        }
        _ => return Err(refuse("method must be a string")),
    };
    let params = match message.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(refuse("params must be an object")),
    };
    match (id, known.clone()) {
        (None, _) => Ok(DemoMessage::Notification),
        (Some(_), Some(id)) => Ok(DemoMessage::Request(DemoRequest { id, method, params })),
        (Some(_), None) => Err(refuse("id must be a string or an integer")),
    }
}

/// The answer to `id`.
pub(crate) fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// A notification.
pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// A tool's result of one text block, as success or as an error that the model reads.
pub(crate) fn tool_text(text: impl Into<String>, is_error: bool) -> Value {
    json!({"content": [{"type": "text", "text": text.into()}], "isError": is_error})
}

/// A tool's result with structured content and the same as text, for clients that read only text.
pub(crate) fn tool_structured(text: impl Into<String>, structured: Value) -> Value {
    let mut result = tool_text(text, false);
    result["structuredContent"] = structured;
    result
}

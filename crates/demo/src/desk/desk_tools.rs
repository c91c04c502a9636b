//! The tools of desk: a clock, a calculator, a countdown that takes its time, and a coin that
//! appears later.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{Stream, StreamExt as _, stream};
use serde_json::{Map, Value, json};
use weir_wire::log_level::LogLevel;

use crate::desk::envelope::complete;
use crate::desk::{clock, expression};
use crate::rpc;

/// The notifications that the client of a countdown wants.
pub(super) struct CountdownSubscriber {
    pub(super) progress_token: Option<Value>,
    pub(super) log_level: Option<LogLevel>,
}

/// A countdown with valid arguments.
pub(super) struct Countdown {
    from: u64,
    interval: Duration,
}

/// The tools as `tools/list` shows them.
pub(super) fn list(revealed: bool) -> Vec<Value> {
    let mut tools = vec![calculate_tool(), countdown_tool(), now_tool()];
    if revealed {
        tools.insert(1, coin_flip_tool());
    }
    tools
}

/// Runs a tool that answers at once; no result for an unknown name.
pub(super) fn call(name: &str, arguments: &Map<String, Value>, revealed: bool) -> Option<Value> {
    let outcome = match name {
        "now" => now(arguments),
        "calculate" => calculate(arguments),
        "coin_flip" if revealed => coin_flip(),
        _ => return None,
    };
    Some(outcome.unwrap_or_else(|why| rpc::tool_text(why, true)))
}

impl Countdown {
    /// Reads the arguments; the error is a sentence for the model.
    pub(super) fn new(arguments: &Map<String, Value>) -> Result<Self, String> {
        let from = whole(arguments, "from", 1, 600)?.unwrap_or(5);
        let interval = whole(arguments, "interval_ms", 1, 60_000)?.unwrap_or(1_000);
        Ok(Self {
            from,
            interval: Duration::from_millis(interval),
        })
    }

    /// The messages of the countdown, its answer to `id` last. Dropping the stream ends the
    /// countdown.
    pub(super) fn run(
        self,
        id: &Value,
        watching: CountdownSubscriber,
    ) -> impl Stream<Item = Value> + Send + use<> {
        let log = watching
            .log_level
            .is_some_and(|level| level <= LogLevel::Info);
        let opening = log.then(|| {
            let data = json!(format!("counting down from {}", self.from));
            rpc::notification(
                "notifications/message",
                &json!({"level": "info", "logger": "countdown", "data": data}),
            )
        });
        let token = watching.progress_token;
        let ticks = stream::unfold(0, move |done| {
            let token = token.clone();
            async move {
                if done == self.from {
                    return None;
                }
                tokio::time::sleep(self.interval).await;
                let done = done + 1;
                Some((token.map(|token| tick(&token, done, self.from)), done))
            }
        });
        let last = rpc::result(
            id,
            &complete(rpc::tool_text(
                format!("Counted down from {}: lift-off!", self.from),
                false,
            )),
        );
        stream::iter(opening)
            .chain(ticks.filter_map(std::future::ready))
            .chain(stream::iter([last]))
    }
}

fn tick(token: &Value, done: u64, total: u64) -> Value {
    let params = json!({
        "progressToken": token, "progress": done, "total": total, "message": format!("{} to go", total - done),
    });
    rpc::notification("notifications/progress", &params)
}

fn now(arguments: &Map<String, Value>) -> Result<Value, String> {
    let offset = match arguments.get("offset") {
        None => 0,
        Some(Value::String(offset)) => clock::parse_offset(offset)?,
        Some(_) => return Err("`offset` must be a string such as +02:00.".to_owned()),
    };
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| "This machine's clock is before 1970.")?;
    let unix =
        i64::try_from(since.as_secs()).map_err(|_| "This machine's clock is out of range.")?;
    let text = clock::rfc3339(unix, offset);
    let structured = json!({"time": text, "unix": unix, "offsetSeconds": offset});
    Ok(rpc::tool_structured(text, structured))
}

fn calculate(arguments: &Map<String, Value>) -> Result<Value, String> {
    let Some(Value::String(expression)) = arguments.get("expression") else {
        return Err("`expression` must be a string such as \"(1 + 2) * 3\".".to_owned());
    };
    let value = expression::evaluate(expression)?;
    Ok(rpc::tool_structured(
        value.to_string(),
        json!({"value": value}),
    ))
}

fn coin_flip() -> Result<Value, String> {
    let mut byte = [0];
    getrandom::fill(&mut byte).map_err(|_| "This machine has no randomness to offer right now.")?;
    let side = if byte[0] & 1 == 0 { "heads" } else { "tails" };
    Ok(rpc::tool_structured(side, json!({"side": side})))
}

fn whole(
    arguments: &Map<String, Value>,
    name: &str,
    least: u64,
    most: u64,
) -> Result<Option<u64>, String> {
    match arguments.get(name) {
        None => Ok(None),
        Some(value) => match value
            .as_u64()
            .filter(|value| (least..=most).contains(value))
        {
            Some(value) => Ok(Some(value)),
            None => Err(format!(
                "`{name}` must be a whole number from {least} to {most}."
            )),
        },
    }
}

fn now_tool() -> Value {
    json!({
        "name": "now",
        "title": "Clock",
        "description": "Tells the current time.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "offset": {"type": "string", "description": "Offset from UTC such as +02:00; Z (UTC) when absent."},
            },
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "time": {"type": "string"}, "unix": {"type": "integer"}, "offsetSeconds": {"type": "integer"},
            },
            "required": ["time", "unix", "offsetSeconds"],
        },
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

fn calculate_tool() -> Value {
    json!({
        "name": "calculate",
        "title": "Calculator",
        "description": "Evaluates an arithmetic expression with + - * / ^ and parentheses.",
        "inputSchema": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "For example (1 + 2) * 3 ^ 2."}},
            "required": ["expression"],
            "additionalProperties": false,
        },
        "outputSchema": {"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]},
        "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false},
    })
}

fn countdown_tool() -> Value {
    json!({
        "name": "countdown",
        "title": "Countdown",
        "description": "Counts down and reports its progress at every step. Close the call to cancel it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "from": {"type": "integer", "minimum": 1, "maximum": 600, "default": 5},
                "interval_ms": {"type": "integer", "minimum": 1, "maximum": 60000, "default": 1000},
            },
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

fn coin_flip_tool() -> Value {
    json!({
        "name": "coin_flip",
        "title": "Coin",
        "description": "Flips a fair coin.",
        "inputSchema": {"type": "object", "additionalProperties": false},
        "outputSchema": {
            "type": "object",
            "properties": {"side": {"type": "string", "enum": ["heads", "tails"]}},
            "required": ["side"],
        },
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

//! A list of tools that changes while clients read it page by page.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_testkit::mock_server::MockTool;

/// The most items of a page.
pub(super) const PAGE: usize = 4;
/// The number of lists before the first comes again.
const LISTS: usize = 7;
/// The number of tools of the shortest list.
const MIN_TOOLS: usize = 20;

/// Returns the name of a tool.
pub(super) fn tool(number: usize) -> String {
    format!("tool_{number:04}")
}

/// The numbers of the tools of a list, by the number of changes before it. No two lists in a row have
/// the same beginning and end.
fn numbers(change: usize) -> std::ops::Range<usize> {
    let from = change % LISTS;
    from..from + MIN_TOOLS + from
}

/// Returns the tools of a list, by the number of changes before it.
pub(super) fn tools(change: usize) -> Vec<MockTool> {
    let numbers = numbers(change);
    numbers.map(|number| MockTool::new(&tool(number))).collect()
}

/// Reads all pages by `ask`, which makes a request with these params and returns the message that
/// answers it. Returns the names of the tools, or else the first message without a result.
pub(super) async fn read_pages<F>(ask: impl Fn(Value) -> F) -> Result<Vec<String>, Value>
where
    F: Future<Output = Value>,
{
    let (mut names, mut params) = (Vec::new(), json!({}));
    loop {
        let message = ask(params).await;
        let Some(result) = message.get("result") else {
            return Err(message);
        };
        let tools = result["tools"].as_array().unwrap().iter();
        names.extend(tools.map(|tool| tool["name"].as_str().unwrap().to_owned()));
        match result.get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return Ok(names),
        }
    }
}

/// True if a message says that a cursor is not valid any more.
pub(super) fn is_invalid_cursor(message: &Value) -> bool {
    message["error"]["code"] == -32602
}

/// Expects the tools of one of the lists: no gap, and none twice.
pub(super) fn expect_whole(names: &[String]) {
    let different: BTreeSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "none twice: {names:?}");
    let is_whole = (0..LISTS).any(|change| names.iter().cloned().eq(numbers(change).map(tool)));
    assert!(is_whole, "a gap: {names:?}");
}

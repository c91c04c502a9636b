//! `weir call URL TOOL JSON`: the result on standard output, progress and log messages on standard error.

use std::process::ExitCode;

use serde_json::Value;

use super::{Target, UNREACHABLE, USAGE, fail};
use crate::client::{self, Note};
use crate::serve::Signals;
use crate::terminal::{self, plain};

/// The tool ran and says that it failed.
const TOOL_ERROR: u8 = 1;
/// A person ended it.
const INTERRUPTED: u8 = 130;

pub(super) async fn call(target: &Target, tool: &str, arguments: &str, json: bool) -> ExitCode {
    let arguments = match client::arguments(arguments) {
        Ok(arguments) => arguments,
        Err(why) => return fail(USAGE, format_args!("the arguments are no JSON object: {why}")),
    };
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return fail(UNREACHABLE, error),
    };
    let called = async {
        let mut client = target.open().await?;
        let result = client.call(tool, arguments, &mut |note| tell(&note)).await;
        client.close().await;
        result.map_err(|error| (UNREACHABLE, error.to_string()))
    };
    let called = tokio::select! {
        called = called => called,
        () = signals.stop() => return ExitCode::from(INTERRUPTED),
    };
    match called {
        Ok(result) => finish(&result, json),
        Err((code, why)) => fail(code, why),
    }
}

fn finish(result: &Value, json: bool) -> ExitCode {
    if result["resultType"] == "input_required" {
        return fail(UNREACHABLE, "the tool asks for input, which this command cannot give: use an MCP client");
    }
    if json {
        terminal::line(terminal::json(result));
    } else {
        for line in lines(result) {
            terminal::line(line);
        }
    }
    if result["isError"] == true { ExitCode::from(TOOL_ERROR) } else { ExitCode::SUCCESS }
}

/// Texts as they are, other content as JSON or by its size.
fn lines(result: &Value) -> Vec<String> {
    let content = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = content.iter().map(block).collect();
    if lines.is_empty() && !result["structuredContent"].is_null() {
        lines.push(terminal::json(&result["structuredContent"]));
    }
    lines
}

fn block(block: &Value) -> String {
    match block["type"].as_str() {
        Some("text") => plain(block["text"].as_str().unwrap_or_default()),
        Some(kind @ ("image" | "audio")) => {
            let bytes = block["data"].as_str().map_or(0, |data| data.len() / 4 * 3);
            format!("[{kind} {}, about {bytes} bytes]", plain(block["mimeType"].as_str().unwrap_or("?")))
        }
        _ => terminal::json(block),
    }
}

fn tell(note: &Note) {
    match note {
        Note::Progress { progress, total, message } => {
            let of = total.map(|total| format!("/{total}")).unwrap_or_default();
            terminal::note(format_args!("... {progress}{of} {}", message.as_deref().unwrap_or_default()));
        }
        Note::Log { level, text } => terminal::note(format_args!("[{level}] {text}")),
        Note::Changed | Note::Other => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_read_well_on_a_terminal() {
        let result = json!({"content": [
            {"type": "text", "text": "two\nlines\u{1b}[0m"},
            {"type": "image", "mimeType": "image/png", "data": "AAAAAAAA"},
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
        ]});
        assert_eq!(lines(&result)[..2], ["two\nlines[0m", "[image image/png, about 6 bytes]"]);
        assert!(lines(&result)[2].contains("file:///x"));
        assert_eq!(lines(&json!({"content": [], "structuredContent": {"a": 1}})), ["{\"a\":1}"]);
    }
}

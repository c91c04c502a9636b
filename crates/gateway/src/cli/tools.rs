//! `weir tools URL [--watch]`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Target, UNREACHABLE, fail};
use crate::client::Client;
use crate::serve::Signals;
use crate::terminal::{self, one_line, plain};

/// Between attempts to reach a server that went away while it was watched.
const AGAIN: Duration = Duration::from_secs(2);
/// As much of a description as fits beside a name.
const LINE: usize = 100;

pub(super) async fn tools(target: &Target, watch: bool, json: bool) -> ExitCode {
    let mut client = match target.open().await {
        Ok(client) => client,
        Err((code, why)) => return fail(code, why),
    };
    let tools = match client.tools().await {
        Ok(tools) => tools,
        Err(error) => return fail(UNREACHABLE, error),
    };
    if json {
        terminal::line(terminal::json(&Value::from(tools.clone())));
    } else {
        for tool in &tools {
            terminal::line(show(tool));
        }
        terminal::note(format_args!("{} ({})", count(tools.len()), whom(&client)));
    }
    if watch {
        return stay(client, tools, target, json).await;
    }
    client.close().await;
    ExitCode::SUCCESS
}

async fn stay(mut client: Client, tools: Vec<Value>, target: &Target, json: bool) -> ExitCode {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return fail(UNREACHABLE, error),
    };
    let mut known = by_name(tools);
    let mut stream = None;
    terminal::note("watching; Ctrl-C ends it");
    loop {
        let changed = tokio::select! {
            () = signals.stop() => break,
            changed = client.changed(&mut stream) => changed,
        };
        let relisted = match changed {
            Ok(()) => client.tools().await,
            Err(error) => Err(error),
        };
        let now = match relisted {
            Ok(now) => now,
            Err(error) => {
                terminal::note(format_args!("weir: {error}; trying again"));
                stream = None;
                tokio::select! {
                    () = signals.stop() => break,
                    (anew, now) = reconnect(target) => {
                        client = anew;
                        terminal::note("weir: connected again");
                        now
                    }
                }
            }
        };
        let now = by_name(now);
        for line in difference(&known, &now, json) {
            terminal::line(line);
        }
        known = now;
    }
    client.close().await;
    ExitCode::SUCCESS
}

async fn reconnect(target: &Target) -> (Client, Vec<Value>) {
    loop {
        tokio::time::sleep(AGAIN).await;
        if let Ok(mut client) = target.open().await
            && let Ok(tools) = client.tools().await
        {
            return (client, tools);
        }
    }
}

fn by_name(tools: Vec<Value>) -> BTreeMap<String, Value> {
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    tools.into_iter().map(|tool| (name(&tool), tool)).collect()
}

/// What was added, changed and removed, a line each.
fn difference(before: &BTreeMap<String, Value>, now: &BTreeMap<String, Value>, json: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, tool) in now {
        match before.get(name) {
            None if json => lines.push(terminal::json(&json!({ "added": tool }))),
            None => lines.push(format!("+ {}", show(tool))),
            Some(old) if old != tool && json => lines.push(terminal::json(&json!({ "changed": tool }))),
            Some(old) if old != tool => lines.push(format!("~ {}", show(tool))),
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    lines.extend(gone.map(|name| match json {
        true => terminal::json(&json!({ "removed": name })),
        false => format!("- {}", one_line(name)),
    }));
    lines
}

fn show(tool: &Value) -> String {
    let name = one_line(tool["name"].as_str().unwrap_or("?"));
    let about = tool["description"].as_str().or(tool["title"].as_str()).unwrap_or_default();
    let about = about.lines().next().unwrap_or_default();
    let mut short: String = plain(about).chars().take(LINE).collect();
    if about.chars().count() > LINE {
        short.push('…');
    }
    if short.is_empty() { name } else { format!("{name:<32} {short}") }
}

fn count(tools: usize) -> String {
    if tools == 1 { "1 tool".to_owned() } else { format!("{tools} tools") }
}

fn whom(client: &Client) -> String {
    let info = match &client.about()["serverInfo"] {
        Value::Null => &client.about()["_meta"][weir_wire::meta::SERVER_INFO],
        info => info,
    };
    let name = one_line(info["name"].as_str().unwrap_or("a server"));
    let version = one_line(info["version"].as_str().unwrap_or_default());
    format!("{name} {version}, protocol {}", client.revision().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_shows_what_came_changed_and_went() {
        let before =
            by_name(vec![json!({"name": "a"}), json!({"name": "b", "description": "old"}), json!({"name": "c"})]);
        let now = by_name(vec![json!({"name": "c"}), json!({"name": "b", "description": "new"}), json!({"name": "d"})]);
        let lines = difference(&before, &now, false);
        assert_eq!(lines, [format!("~ {:<32} new", "b"), "+ d".to_owned(), "- a".to_owned()]);
    }

    #[test]
    fn a_server_cannot_steer_the_terminal() {
        let tool = json!({"name": "a\u{1b}[2Jb", "description": "first\u{7} line\nsecond"});
        assert_eq!(show(&tool), format!("{:<32} first line", "a[2Jb"));
    }
}

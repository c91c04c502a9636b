//! `weir tools URL [--watch]`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use weir_core::upstream::ListKind;
use weir_mcp_client::{Client, ListedItems};
use weir_program::ProcessSignals;
use weir_text::one_line;

use crate::exit_code::{EXIT_UNREACHABLE, exit_with_error};
use crate::list_options::{self, ListOptions, about};
use crate::server_target::print_client_error;
use crate::table::columns;

/// The interval between attempts to reach a server that was lost during a watch.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(2);

/// The options of `weir tools`.
#[derive(Debug, Args)]
pub struct ToolsOptions {
    #[command(flatten)]
    listing: ListOptions,
    /// Stay, and show added, changed and removed tools as they happen
    #[arg(long)]
    watch: bool,
    /// Print the tools as a JSON array; with --watch, then one JSON object for each change
    #[arg(long)]
    json: bool,
}

/// Lists the tools of a server, once or at each change.
pub async fn tools(options: &ToolsOptions) -> ExitCode {
    let ToolsOptions {
        listing,
        watch,
        json,
    } = options;
    let (client, [ListedItems { items, missing }]) = match listing.read([ListKind::Tools]).await {
        Ok(read) => read,
        Err(error) => return print_client_error(&error),
    };
    let all = items.len();
    let tools = listing.filter_items(items);
    if *json {
        weir_terminal::line(weir_text::json(&Value::from(tools.clone())));
    } else {
        let rows: Vec<Vec<String>> = tools.iter().map(row).collect();
        weir_terminal::write(columns(&rows, weir_terminal::width()));
        weir_terminal::note(list_options::summary(
            ListKind::Tools,
            tools.len(),
            all,
            &client,
        ));
    }
    listing.print_missing(ListKind::Tools, &missing);
    let code = listing.exit_code(tools.len(), &missing);
    if *watch {
        return watch_tools(client, tools, options).await;
    }
    client.close().await;
    code
}

async fn watch_tools(mut client: Client, tools: Vec<Value>, options: &ToolsOptions) -> ExitCode {
    let mut signals = match ProcessSignals::new() {
        Ok(signals) => signals,
        Err(error) => return exit_with_error(EXIT_UNREACHABLE, error),
    };
    let mut known = by_name(tools);
    let mut stream = None;
    weir_terminal::note("watching; Ctrl-C ends it");
    // A closed pipe ends the watch.
    while !weir_terminal::is_closed() {
        let changed = tokio::select! {
            () = signals.stop() => break,
            changed = client.changed(&mut stream) => changed,
        };
        let relisted = match changed {
            Ok(()) => client.list(ListKind::Tools).await,
            Err(error) => Err(error),
        };
        let now = match relisted {
            Ok(now) => now,
            Err(error) => {
                weir_terminal::note(format_args!("weir: {error}; trying again"));
                stream = None;
                tokio::select! {
                    () = signals.stop() => break,
                    (anew, now) = reconnect(&options.listing) => {
                        client = anew;
                        weir_terminal::note("weir: connected again");
                        now
                    }
                }
            }
        };
        let now = by_name(options.listing.filter_items(now.items));
        for line in difference(&known, &now, options.json) {
            weir_terminal::line(line);
        }
        known = now;
    }
    client.close().await;
    ExitCode::SUCCESS
}

async fn reconnect(listing: &ListOptions) -> (Client, ListedItems) {
    loop {
        tokio::time::sleep(RECONNECT_INTERVAL).await;
        if let Ok(mut client) = listing.target.open().await
            && let Ok(tools) = client.list(ListKind::Tools).await
        {
            return (client, tools);
        }
    }
}

fn by_name(tools: Vec<Value>) -> BTreeMap<String, Value> {
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    tools.into_iter().map(|tool| (name(&tool), tool)).collect()
}

/// Returns added, changed and removed tools, one per line.
fn difference(
    before: &BTreeMap<String, Value>,
    now: &BTreeMap<String, Value>,
    json: bool,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, tool) in now {
        match before.get(name) {
            None if json => lines.push(weir_text::json(&json!({ "added": tool }))),
            None => lines.push(format!("+ {}", show(tool))),
            Some(old) if old != tool && json => {
                lines.push(weir_text::json(&json!({ "changed": tool })))
            }
            Some(old) if old != tool => lines.push(format!("~ {}", show(tool))),
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    lines.extend(gone.map(|name| match json {
        true => weir_text::json(&json!({ "removed": name })),
        false => format!("- {}", one_line(name)),
    }));
    lines
}

fn row(tool: &Value) -> Vec<String> {
    vec![one_line(tool["name"].as_str().unwrap_or("?")), about(tool)]
}

fn show(tool: &Value) -> String {
    columns(&[row(tool)], weir_terminal::width())
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_shows_added_changed_and_removed_tools() {
        let before = by_name(vec![
            json!({"name": "a"}),
            json!({"name": "b", "description": "old"}),
            json!({"name": "c"}),
        ]);
        let now = by_name(vec![
            json!({"name": "c"}),
            json!({"name": "b", "description": "new"}),
            json!({"name": "d"}),
        ]);
        let lines = difference(&before, &now, false);
        assert_eq!(lines, ["~ b  new", "+ d", "- a"]);
    }

    #[test]
    fn a_server_cannot_steer_the_terminal() {
        let tool = json!({"name": "a\u{1b}[2Jb", "description": "first\u{7} line\nsecond"});
        assert_eq!(show(&tool), "a[2Jb  first line");
    }
}

//! Shared parts of `weir tools`, `weir prompts` and `weir resources`: waiting for a complete list,
//! filtering it, and naming the missing upstreams.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use weir_config_file::raw::Time;
use weir_core::upstream::ListKind;
use weir_mcp_client::{Client, ClientError, ListedItems, MissingUpstream, item_word};
use weir_text::{count, one_line};

use crate::exit_code::{EXIT_INCOMPLETE, EXIT_NO};
use crate::server_target::ServerTarget;

/// The interval between reads of an incomplete list.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The options of commands that list.
#[derive(Debug, Args)]
pub(super) struct ListOptions {
    #[command(flatten)]
    pub target: ServerTarget,
    /// Only items with this text in their name or description, ignoring case; exits with 1 if there
    /// is no match
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Wait until the server answers and the list has the items of every upstream, for 30s or the
    /// given time
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "30s", value_parser = time)]
    wait: Option<Duration>,
}

fn time(text: &str) -> Result<Duration, String> {
    let time: Result<Time, _> = serde_json::from_value(Value::from(text));
    time.map(|Time(time)| time)
        .map_err(|_| "write a time such as 30s or 2m".to_owned())
}

impl ListOptions {
    /// Connects and reads the lists. With `--wait` it repeats this until all are complete or the
    /// time is over.
    pub(crate) async fn read<const N: usize>(
        &self,
        lists: [ListKind; N],
    ) -> Result<(Client, [ListedItems; N]), ClientError> {
        let deadline = self.wait.map(|wait| Instant::now() + wait);
        let mut is_noted = false;
        loop {
            let read = self.read_once(lists).await;
            let why = match &read {
                Err(error @ ClientError::Unreachable { .. }) => error.to_string(),
                Ok((_, listed)) if listed.iter().any(is_incomplete) => {
                    format!("{} missing", away_upstreams(listed))
                }
                Ok(_) | Err(_) => return read,
            };
            if deadline.is_none_or(|deadline| Instant::now() + RETRY_INTERVAL > deadline) {
                return read;
            }
            if !std::mem::replace(&mut is_noted, true) {
                weir_terminal::note(format_args!("weir: {why}; waiting"));
            }
            if let Ok((client, _)) = read {
                client.close().await;
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    async fn read_once<const N: usize>(
        &self,
        lists: [ListKind; N],
    ) -> Result<(Client, [ListedItems; N]), ClientError> {
        let mut client = self.target.open().await?;
        let mut listed = std::array::from_fn(|_| ListedItems::default());
        for (list, listed) in lists.into_iter().zip(&mut listed) {
            *listed = client.list(list).await?;
        }
        Ok((client, listed))
    }

    /// Returns the items that match `--grep`.
    pub(super) fn filter_items(&self, items: Vec<Value>) -> Vec<Value> {
        let Some(text) = self.grep.as_ref().map(|text| text.to_lowercase()) else {
            return items;
        };
        let members = ["name", "title", "description", "uri", "uriTemplate"];
        let has = |item: &Value| {
            members.iter().any(|member| {
                item[member]
                    .as_str()
                    .is_some_and(|said| said.to_lowercase().contains(&text))
            })
        };
        items.into_iter().filter(has).collect()
    }

    /// Returns the exit code of a command that showed `shown` items.
    pub(crate) fn exit_code(&self, shown: usize, missing: &[MissingUpstream]) -> ExitCode {
        if missing.iter().any(MissingUpstream::is_away) {
            ExitCode::from(EXIT_INCOMPLETE)
        } else if self.grep.is_some() && shown == 0 {
            ExitCode::from(EXIT_NO)
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Prints the missing upstreams, one per line.
    pub(super) fn print_missing(&self, list: ListKind, missing: &[MissingUpstream]) {
        for one in missing {
            weir_terminal::note(format_args!(
                "weir: {}",
                missing_message(one, list, self.wait.is_some())
            ));
        }
    }
}

/// Returns the upstreams that are away: `a is`, or `a, b are`.
fn away_upstreams(listed: &[ListedItems]) -> String {
    let mut names: Vec<String> = Vec::new();
    for missing in listed
        .iter()
        .flat_map(|listed| &listed.missing)
        .filter(|missing| missing.is_away())
    {
        let name = format!("`{}`", one_line(&missing.upstream));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    format!(
        "{} {}",
        names.join(", "),
        if names.len() == 1 { "is" } else { "are" }
    )
}

fn is_incomplete(listed: &ListedItems) -> bool {
    listed.missing.iter().any(MissingUpstream::is_away)
}

fn missing_message(missing: &MissingUpstream, list: ListKind, waited: bool) -> String {
    let (upstream, items) = (one_line(&missing.upstream), format!("{}s", item_word(list)));
    match missing.reason.as_str() {
        "pending" if waited => {
            format!(
                "`{upstream}` is still starting, and its {items} are missing: give --wait more time, as in --wait=2m"
            )
        }
        "pending" => format!(
            "`{upstream}` is still starting, and its {items} are missing: --wait waits for them"
        ),
        "down" => format!(
            "`{upstream}` is down, and its {items} are missing: `weir admin upstreams` shows why"
        ),
        "stale" => format!(
            "`{upstream}` does not answer now, and its last {items} are listed: `weir admin upstreams` shows why"
        ),
        "truncated" => {
            format!(
                "`{upstream}` has more {items} than `walk` of weir's config lets it list: the first are here"
            )
        }
        "disabled" => format!(
            "`{upstream}` is disabled by an operator, and its {items} are missing: `weir admin upstreams {upstream}` shows by whom"
        ),
        other => format!(
            "the {items} of `{upstream}` are incomplete ({})",
            one_line(other)
        ),
    }
}

/// Returns the number of items, and the server.
pub(super) fn summary(list: ListKind, shown: usize, all: usize, client: &Client) -> String {
    let found = if shown == all {
        count(all, item_word(list))
    } else {
        format!("{shown} of {}", count(all, item_word(list)))
    };
    format!("{found} ({})", server(client))
}

fn server(client: &Client) -> String {
    let mut info = &client.about()["serverInfo"];
    if info.is_null() {
        info = &client.about()["_meta"][weir_wire::meta::SERVER_INFO];
    }
    let name = one_line(info["name"].as_str().unwrap_or("a server"));
    let version = one_line(info["version"].as_str().unwrap_or_default());
    format!("{name} {version}, protocol {}", client.revision().as_str())
}

/// Returns the first line of an item's description.
pub(super) fn about(item: &Value) -> String {
    let about = item["description"]
        .as_str()
        .or(item["title"].as_str())
        .unwrap_or_default();
    one_line(
        about
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default()
            .trim(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_missing_upstream_message_names_upstream_and_list() {
        for reason in ["pending", "down", "stale", "truncated", "disabled", "new"] {
            let missing = MissingUpstream {
                upstream: "gone\u{1b}[2J".to_owned(),
                reason: reason.to_owned(),
            };
            let said = missing_message(&missing, ListKind::Tools, false);
            assert!(
                said.contains("`gone[2J`") && said.contains("tools"),
                "{said}"
            );
        }
    }

    #[test]
    fn times_are_written_as_in_the_config() {
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert!(time("soon").is_err());
    }

    #[test]
    fn item_summary_is_the_first_line_of_its_description() {
        assert_eq!(
            about(&json!({"description": "\n  first\u{7} line\nsecond"})),
            "first line"
        );
        assert_eq!(
            (about(&json!({"title": "T"})), about(&json!({}))),
            ("T".to_owned(), String::new())
        );
    }
}

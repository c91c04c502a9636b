//! `weir admin`: the admin API of a running weir, for people at a terminal.

pub(super) mod ask;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::operators::{NAME_IT, OperatorsOptions};
use super::{UNREACHABLE, fail};
use crate::terminal;
use ask::Desk;

/// The options of `weir admin`: the listener, the token, and the output format.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    operators: OperatorsOptions,
    /// A file with the operator's token; alternatively the variable WEIR_ADMIN_TOKEN
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The upstreams: state, era, latency, last error
    Upstreams {
        /// Show one of them, with all details
        id: Option<String>,
    },
    /// The items that an endpoint lists, by both of their names
    Catalog {
        /// The endpoint
        #[arg(long, value_name = "PATH", default_value = crate::explain::ENDPOINT)]
        endpoint: String,
        /// Only the items of this upstream
        #[arg(long, value_name = "ID")]
        upstream: Option<String>,
        /// tools, prompts, resources or resource_templates
        #[arg(long, default_value = "tools")]
        kind: String,
    },
    /// The open sessions
    Sessions,
    /// The client programs that were seen, and the open streams
    Clients,
    /// The limits that refuse now
    Limits,
    /// The running calls, and those that wait for an answer of their clients, the oldest first
    Calls {
        /// Only the calls of this upstream
        #[arg(long, value_name = "ID")]
        upstream: Option<String>,
    },
    /// The applied config, the result of the last reload, and the changes in force
    Config,
    /// Disable an upstream: its tools, prompts and resources are hidden, and its running calls end
    Disable {
        /// As `weir admin upstreams` names it
        id: String,
        #[command(flatten)]
        why: Lasting,
    },
    /// Enable an upstream again
    Enable {
        /// As `weir admin upstreams` names it
        id: String,
        #[command(flatten)]
        why: Once,
    },
    /// Drain an upstream: its running calls may end, and no new ones begin
    Drain {
        /// As `weir admin upstreams` names it
        id: String,
        #[command(flatten)]
        why: Lasting,
    },
    /// Read an upstream's lists now
    Refresh {
        /// As `weir admin upstreams` names it
        id: String,
        #[command(flatten)]
        why: Once,
    },
    /// Cancel a call, running or waiting
    Cancel {
        /// As `weir admin calls` names it
        id: String,
        #[command(flatten)]
        why: Once,
    },
    /// End a session
    End {
        /// As `weir admin sessions` names it
        id: String,
        #[command(flatten)]
        why: Once,
    },
    /// Block a principal; its streams and calls end
    Block {
        /// The subject of the principal
        subject: String,
        /// The issuer of the principal: the `iss` of its tokens, or as `weir admin clients` shows
        /// it
        #[arg(long)]
        issuer: String,
        #[command(flatten)]
        why: Lasting,
    },
    /// Admit a principal again
    Unblock {
        /// The subject of the principal
        subject: String,
        /// The issuer of the principal
        #[arg(long)]
        issuer: String,
        #[command(flatten)]
        why: Once,
    },
    /// Set another log level or filter; without one, restore the initial one
    Log {
        level: Option<String>,
        #[command(flatten)]
        why: Lasting,
    },
    /// Reload the config; exits with 1 if it is refused
    Reload {
        /// Accept the file once, although it gives up protections without naming them
        #[arg(long)]
        allow_weaker: bool,
        #[command(flatten)]
        why: Once,
    },
}

/// The options of a change that takes effect once.
#[derive(Debug, Args)]
struct Once {
    /// The reason, for the audit record
    #[arg(long)]
    reason: Option<String>,
}

/// The options of a change that stays in force.
#[derive(Debug, Args)]
struct Lasting {
    /// The reason, for the audit record and for other operators
    #[arg(long)]
    reason: Option<String>,
    /// Undo the change after this time, such as 30m; without it, the change holds until it is
    /// undone or weir ends
    #[arg(long)]
    ttl: Option<String>,
}

/// A request to the admin API.
enum Request {
    Look(String),
    Change(String, Map<String, Value>),
}

pub(super) async fn admin(options: Options) -> ExitCode {
    let Options {
        operators,
        token_file,
        json,
        command,
    } = options;
    let desk = match operators
        .url()
        .and_then(|admin| Desk::new(&admin, token_file.as_deref()))
    {
        Ok(desk) => desk,
        Err(why) => return fail(super::USAGE, why),
    };
    let answered = match command.request() {
        Request::Look(path) => desk.look(&path).await,
        Request::Change(path, wish) => desk.change(&path, &Value::Object(wish)).await,
    };
    match answered {
        Ok(answer) if json => terminal::line(terminal::json(&answer)),
        Ok(answer) => terminal::write(show::show(&command, &answer)),
        Err(ask::Failed {
            code: UNREACHABLE,
            why,
        }) => return fail(UNREACHABLE, format_args!("{why}; {NAME_IT}")),
        Err(ask::Failed { code, why }) => return fail(code, why),
    }
    ExitCode::SUCCESS
}

impl Command {
    fn request(&self) -> Request {
        let upstream = |id: &str, act: &str| format!("/admin/upstreams/{}/{act}", part(id));
        match self {
            Self::Upstreams { id: None } => Request::Look("/admin/upstreams".to_owned()),
            Self::Upstreams { id: Some(id) } => {
                Request::Look(format!("/admin/upstreams/{}", part(id)))
            }
            Self::Catalog {
                endpoint,
                upstream,
                kind,
            } => {
                let query = [
                    ("endpoint", Some(endpoint)),
                    ("upstream", upstream.as_ref()),
                    ("kind", Some(kind)),
                ];
                Request::Look(format!("/admin/catalog?limit=1000&{}", queried(query)))
            }
            Self::Sessions => Request::Look("/admin/sessions?limit=1000".to_owned()),
            Self::Clients => Request::Look("/admin/clients?limit=1000".to_owned()),
            Self::Limits => Request::Look("/admin/limits?limit=1000".to_owned()),
            Self::Calls { upstream } => Request::Look(format!(
                "/admin/calls?limit=1000&{}",
                queried([("upstream", upstream.as_ref())])
            )),
            Self::Config => Request::Look("/admin/config".to_owned()),
            Self::Disable { id, why } => Request::Change(upstream(id, "disable"), why.wish()),
            Self::Enable { id, why } => Request::Change(upstream(id, "enable"), why.wish()),
            Self::Drain { id, why } => Request::Change(upstream(id, "drain"), why.wish()),
            Self::Refresh { id, why } => Request::Change(upstream(id, "refresh"), why.wish()),
            Self::Cancel { id, why } => {
                Request::Change(format!("/admin/calls/{}/cancel", part(id)), why.wish())
            }
            Self::End { id, why } => {
                Request::Change(format!("/admin/sessions/{}/end", part(id)), why.wish())
            }
            Self::Block {
                subject,
                issuer,
                why,
            } => Request::Change(
                "/admin/principals/block".to_owned(),
                whom(why.wish(), issuer, subject),
            ),
            Self::Unblock {
                subject,
                issuer,
                why,
            } => Request::Change(
                "/admin/principals/unblock".to_owned(),
                whom(why.wish(), issuer, subject),
            ),
            Self::Log { level, why } => {
                let mut wish = why.wish();
                wish.extend(level.iter().map(|level| ("level".to_owned(), json!(level))));
                Request::Change("/admin/log".to_owned(), wish)
            }
            Self::Reload { allow_weaker, why } => {
                let mut wish = why.wish();
                wish.extend(allow_weaker.then(|| ("allow_weaker".to_owned(), json!(true))));
                Request::Change("/admin/reload".to_owned(), wish)
            }
        }
    }
}

impl Once {
    fn wish(&self) -> Map<String, Value> {
        self.reason
            .iter()
            .map(|reason| ("reason".to_owned(), json!(reason)))
            .collect()
    }
}

impl Lasting {
    fn wish(&self) -> Map<String, Value> {
        let (reason, ttl) = (("reason", &self.reason), ("ttl", &self.ttl));
        let given = [reason, ttl]
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), json!(text.as_ref()?))));
        given.collect()
    }
}

fn whom(mut wish: Map<String, Value>, issuer: &str, subject: &str) -> Map<String, Value> {
    wish.insert("issuer".to_owned(), json!(issuer));
    wish.insert("subject".to_owned(), json!(subject));
    wish
}

/// Encodes any text as a segment of a path.
fn part(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

fn queried<'a>(pairs: impl IntoIterator<Item = (&'a str, Option<&'a String>)>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(
        pairs
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    query.finish()
}

//! The commands of `weir admin`, and the request that each of them sends.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use weir_config_file::raw::Time;
use weir_core::upstream::ListKind;

/// A command of `weir admin`.
#[derive(Debug, Subcommand)]
pub(super) enum AdminCommand {
    /// The upstreams: state, era, latency, last error
    Upstreams {
        /// Show one of them, with all details
        id: Option<String>,
    },
    /// The items that an endpoint lists, by both of their names
    Catalog {
        /// The endpoint
        #[arg(long, value_name = "PATH", default_value = weir_config::DEFAULT_ENDPOINT)]
        endpoint: String,
        /// Only the items of this upstream
        #[arg(long, value_name = "ID")]
        upstream: Option<String>,
        /// The list
        #[arg(long, default_value = "tools", value_parser = list_kinds())]
        kind: String,
        /// Only the items that follow this exposed name; by default the first 1,000
        #[arg(long, value_name = "NAME")]
        after: Option<String>,
    },
    /// The open sessions
    Sessions,
    /// The client programs that were seen, and the open streams
    Clients,
    /// The limits that refuse now
    Limits,
    /// The replicas that serve the same clients, and the state of their shared store
    Replicas,
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
        why: OverrideOptions,
    },
    /// Enable an upstream again
    Enable {
        /// As `weir admin upstreams` names it
        id: String,
        #[command(flatten)]
        why: ReasonOptions,
    },
    /// Drain an upstream: its running calls may end, and no new ones begin
    Drain {
        /// As `weir admin upstreams` names it
        id: String,
        #[command(flatten)]
        why: OverrideOptions,
    },
    /// Read an upstream's lists now
    Refresh {
        /// As `weir admin upstreams` names it
        id: String,
        #[command(flatten)]
        why: ReasonOptions,
    },
    /// Cancel a call, running or waiting
    Cancel {
        /// As `weir admin calls` names it
        id: String,
        #[command(flatten)]
        why: ReasonOptions,
    },
    /// End a session
    End {
        /// As `weir admin sessions` names it
        id: String,
        #[command(flatten)]
        why: ReasonOptions,
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
        why: OverrideOptions,
    },
    /// Admit a principal again
    Unblock {
        /// The subject of the principal
        subject: String,
        /// The issuer of the principal
        #[arg(long)]
        issuer: String,
        #[command(flatten)]
        why: ReasonOptions,
    },
    /// Set another log level or filter; without one, restore the initial one
    Log {
        level: Option<String>,
        #[command(flatten)]
        why: OverrideOptions,
    },
    /// Reload the config; exits with 1 if it is refused
    Reload {
        /// Accept the file once, although it gives up protections without naming them
        #[arg(long)]
        allow_weaker: bool,
        #[command(flatten)]
        why: ReasonOptions,
    },
}

/// The options of a change that takes effect once.
#[derive(Debug, Args)]
pub(super) struct ReasonOptions {
    /// The reason, for the audit record
    #[arg(long)]
    reason: Option<String>,
}

/// The options of a change that stays in force.
#[derive(Debug, Default, Args)]
pub(super) struct OverrideOptions {
    /// The reason, for the audit record and for other operators
    #[arg(long)]
    reason: Option<String>,
    /// Undo the change after this time, such as 30m; without it, the change holds until it is
    /// undone or weir ends
    #[arg(long, value_parser = ttl)]
    ttl: Option<String>,
}

/// A request to the admin API.
pub(super) enum AdminRequest {
    Get(String),
    Post(String, Map<String, Value>),
}

impl AdminCommand {
    /// Returns the request of the command.
    pub(super) fn request(&self) -> AdminRequest {
        let upstream =
            |id: &str, act: &str| format!("/admin/upstreams/{}/{act}", encode_segment(id));
        match self {
            Self::Upstreams { id: None } => AdminRequest::Get("/admin/upstreams".to_owned()),
            Self::Upstreams { id: Some(id) } => {
                AdminRequest::Get(format!("/admin/upstreams/{}", encode_segment(id)))
            }
            Self::Catalog {
                endpoint,
                upstream,
                kind,
                after,
            } => {
                let query = [
                    ("endpoint", Some(endpoint)),
                    ("upstream", upstream.as_ref()),
                    ("kind", Some(kind)),
                    ("after", after.as_ref()),
                ];
                AdminRequest::Get(format!("/admin/catalog?limit=1000&{}", to_query(query)))
            }
            Self::Sessions => AdminRequest::Get("/admin/sessions?limit=1000".to_owned()),
            Self::Clients => AdminRequest::Get("/admin/clients?limit=1000".to_owned()),
            Self::Limits => AdminRequest::Get("/admin/limits?limit=1000".to_owned()),
            Self::Replicas => AdminRequest::Get("/admin/replicas".to_owned()),
            Self::Calls { upstream } => AdminRequest::Get(format!(
                "/admin/calls?limit=1000&{}",
                to_query([("upstream", upstream.as_ref())])
            )),
            Self::Config => AdminRequest::Get("/admin/config".to_owned()),
            Self::Disable { id, why } => {
                AdminRequest::Post(upstream(id, "disable"), why.to_members())
            }
            Self::Enable { id, why } => {
                AdminRequest::Post(upstream(id, "enable"), why.to_members())
            }
            Self::Drain { id, why } => AdminRequest::Post(upstream(id, "drain"), why.to_members()),
            Self::Refresh { id, why } => {
                AdminRequest::Post(upstream(id, "refresh"), why.to_members())
            }
            Self::Cancel { id, why } => AdminRequest::Post(
                format!("/admin/calls/{}/cancel", encode_segment(id)),
                why.to_members(),
            ),
            Self::End { id, why } => AdminRequest::Post(
                format!("/admin/sessions/{}/end", encode_segment(id)),
                why.to_members(),
            ),
            Self::Block {
                subject,
                issuer,
                why,
            } => AdminRequest::Post(
                "/admin/principals/block".to_owned(),
                with_principal(why.to_members(), issuer, subject),
            ),
            Self::Unblock {
                subject,
                issuer,
                why,
            } => AdminRequest::Post(
                "/admin/principals/unblock".to_owned(),
                with_principal(why.to_members(), issuer, subject),
            ),
            Self::Log { level, why } => {
                let mut members = why.to_members();
                members.extend(level.iter().map(|level| ("level".to_owned(), json!(level))));
                AdminRequest::Post("/admin/log".to_owned(), members)
            }
            Self::Reload { allow_weaker, why } => {
                let mut members = why.to_members();
                members.extend(allow_weaker.then(|| ("allow_weaker".to_owned(), json!(true))));
                AdminRequest::Post("/admin/reload".to_owned(), members)
            }
        }
    }
}

impl ReasonOptions {
    fn to_members(&self) -> Map<String, Value> {
        self.reason
            .iter()
            .map(|reason| ("reason".to_owned(), json!(reason)))
            .collect()
    }
}

impl OverrideOptions {
    fn to_members(&self) -> Map<String, Value> {
        let (reason, ttl) = (("reason", &self.reason), ("ttl", &self.ttl));
        let given = [reason, ttl]
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), json!(text.as_ref()?))));
        given.collect()
    }
}

fn list_kinds() -> PossibleValuesParser {
    PossibleValuesParser::new(ListKind::ALL.map(ListKind::word))
}

/// Checks the duration of a change as weir does. weir also knows the longest one.
fn ttl(text: &str) -> Result<String, String> {
    match Time::deserialize(json!(text)) {
        Ok(Time(ttl)) if !ttl.is_zero() => Ok(text.to_owned()),
        Ok(_) | Err(_) => {
            Err("write a number above 0 and ms, s, m, h or d, such as 30m".to_owned())
        }
    }
}

fn with_principal(
    mut members: Map<String, Value>,
    issuer: &str,
    subject: &str,
) -> Map<String, Value> {
    members.insert("issuer".to_owned(), json!(issuer));
    members.insert("subject".to_owned(), json!(subject));
    members
}

/// Encodes any text as a segment of a path.
pub(super) fn encode_segment(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

fn to_query<'a>(pairs: impl IntoIterator<Item = (&'a str, Option<&'a String>)>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(
        pairs
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    query.finish()
}

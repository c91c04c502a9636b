//! The config file, from text to settings: raw (as written) -> checked (all that is wrong, at once,
//! with path, line and hint) -> the settings of each crate. Nothing outside this module knows the
//! file's format.

mod admin;
mod audit;
mod check;
mod decode;
mod document;
mod edit;
mod env;
mod files;
mod foreign;
mod json;
mod load;
mod operators;
mod raw;
mod report;
mod schema;
mod secret;
mod team_files;
mod telemetry;
mod toml;
mod tree;
mod waivers;
mod weaker;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use weir_core::Endpoint;
use weir_core::endpoint::UpstreamRules;
use weir_core::hold::HoldLimits;
use weir_policy::rules::Book;
use weir_store::{ParkingCaps, RecordCaps, ReplayCaps};

use crate::system::on_this_machine;

pub use admin::{AdminPlan, OperatorKey};
pub use audit::{AuditPlan, FilePlan};
pub(crate) use check::{ADMIN as DEFAULT_OPERATORS, slug};
pub(crate) use edit::{NewUpstream, json_tree, with_upstream};
pub use env::Environment;
pub(crate) use env::{
    EnvReference, ReferenceError, ReferenceSyntax, TextPiece, WORKSPACE, is_variable, pieces,
};
pub(crate) use foreign::{FoundFile, FoundServer, find, parse_env_file as read_env_file};
pub use foreign::{InputSource, InputVariable};
pub(crate) use json::options as json_options;
pub use load::{Loader, Outcome, Source};
pub(crate) use operators::operators;
pub(crate) use raw::Time;
pub use report::{Path, Problem, Report, Severity};
pub use schema::schema;
pub use secret::Secret;
pub use team_files::{TeamFile, TeamFileVersion};
pub use telemetry::{OtlpPlan, TelemetryPlan};
pub use waivers::Waivers;
pub use weaker::{Protection, Weakening, weakenings};

/// A checked config: what each part of weir is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The client side.
    pub front: weir_front::Settings,
    /// How clients are known.
    pub auth: weir_policy::settings::Settings,
    /// Where operators connect, and who they are; `None` switches that listener off.
    pub admin: Option<AdminPlan>,
    /// The servers, in config order.
    pub upstreams: Vec<UpstreamPlan>,
    /// The paths clients use.
    pub endpoints: Vec<Endpoint>,
    /// False where no file names endpoints, and the default ones are there.
    pub names_endpoints: bool,
    /// Waits and windows of the catalog.
    pub catalog: CatalogPlan,
    /// The memory that the process may use; `None`: what its control group may.
    pub memory: Option<u64>,
    /// How many legacy sessions may be kept.
    pub sessions: RecordCaps,
    /// What is kept for legacy clients that lose their connection.
    pub replays: ReplayCaps,
    /// How many calls may wait for input, and how long.
    pub parked: ParkingCaps,
    /// How much may be held of large results.
    pub hold: HoldLimits,
    /// How often clients may come.
    pub rates: weir_policy::limit::Rates,
    /// Sealing keys, newest first; none means a random one.
    pub keys: Vec<SealingKey>,
    /// How long running calls may take to end when weir stops.
    pub drain: Duration,
    /// How weir logs.
    pub log: LogPlan,
    /// Who may see and call what.
    pub rules: Arc<Book>,
    /// How it is kept who did what; `None`: in the log alone.
    pub audit: Option<AuditPlan>,
    /// What is measured and told.
    pub telemetry: TelemetryPlan,
    /// The files of `include`, and what of each is served.
    pub team_files: Vec<TeamFile>,
    /// Whether a start is refused where one of them has errors.
    pub include_errors: IncludeErrors,
    /// The protections that its files give up by name.
    pub waivers: Waivers,
    /// Which files it was read from. No part of what it says.
    pub source: SourceDigest,
}

/// Longer than any process lives.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The longest drain where one client waits for the end of the process.
const SHORT_DRAIN: Duration = Duration::from_secs(5);
/// The wait of a host's first list for servers that are still starting. The host started them with
/// weir, and many hosts ask once; SDKs give up after 60 s.
const HOST_LIST_WAIT: Duration = Duration::from_secs(10);

/// Whether an address can be reached from this machine alone.
pub(crate) fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Whether the host of a URL is this machine, by its name or its address.
pub(crate) fn is_local_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = |address: IpAddr| is_local(SocketAddr::new(address, 0));
    host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(is_local)
}

impl Config {
    /// The `scheme://host[:port]` of weir as clients reach it: the public URL, else the listener's
    /// address, as a program on the same machine reaches it.
    pub(crate) fn public_base(&self, listener: SocketAddr) -> String {
        match &self.front.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => check::auth::implied_base(&self.front, on_this_machine(listener)),
        }
    }

    /// Returns true if clients show an API key, because no authorization server gives them tokens.
    pub(crate) fn wants_keys(&self) -> bool {
        self.auth.required && self.auth.issuers.is_empty() && !self.auth.api_keys.is_empty()
    }

    /// This config as it is served to one client inside the process: without listeners, and with a
    /// session that lasts as long as the process. The client waits for the end, so a drain is
    /// short.
    pub(crate) fn in_memory(&self) -> Self {
        let mut served = self.clone();
        served.admin = None;
        served.front.tls = None;
        served.front.limits.session_idle = FOR_GOOD;
        served.front.limits.session_age = FOR_GOOD;
        served.drain = served.drain.min(SHORT_DRAIN);
        served.catalog.first_list_wait = served.catalog.first_list_wait.max(HOST_LIST_WAIT);
        served
    }

    /// This config as it is served at `bound`. Tokens are for the URL of weir; where that follows
    /// from `listen`, and `listen` leaves the port to the system (0), it has the port that the
    /// system chose.
    pub(crate) fn served_at(self: &Arc<Self>, bound: SocketAddr) -> Arc<Self> {
        let Self { front, auth, .. } = &**self;
        if front.listen.port() != 0 || front.public_url.is_some() || auth.base.is_empty() {
            return self.clone();
        }
        let base =
            check::auth::implied_base(front, SocketAddr::new(front.listen.ip(), bound.port()));
        let mut served = (**self).clone();
        if let Some(oauth) = &mut served.front.oauth {
            oauth.base.clone_from(&base);
        }
        served.auth.base = base;
        Arc::new(served)
    }
}

/// Names what the files of a config said. Two configs that mean the same are equal, whatever their
/// files look like.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceDigest(Option<[u8; 32]>);

impl SourceDigest {
    /// SHA-256 over the names and texts of the files.
    #[must_use]
    pub fn digest(&self) -> Option<[u8; 32]> {
        self.0
    }
}

impl PartialEq for SourceDigest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One server: how to speak to it, and what the catalog and router know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamPlan {
    /// How to speak to it.
    pub settings: weir_upstream::Settings,
    /// Deadlines, validation, walks.
    pub rules: UpstreamRules,
}

/// Waits and windows of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogPlan {
    /// How long the first list after a start waits for upstreams that have not answered.
    pub first_list_wait: Duration,
    /// The shortest time between two change notifications to one client.
    pub change_window: Duration,
}

/// What a start does where a file of `include` has errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IncludeErrors {
    /// It serves all other files.
    #[default]
    LeaveOut,
    /// It is refused.
    RefuseStart,
}

/// A sealing key of the config.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey {
    /// Names it in what it sealed.
    pub id: u8,
    /// The key itself.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealingKey({}, <secret>)", self.id)
    }
}

/// How weir logs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LogPlan {
    /// How lines look.
    pub format: LogFormat,
    /// A level or filter; `None`: `info`.
    pub filter: Option<String>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

#[cfg(test)]
mod tests;

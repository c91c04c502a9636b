//! The view of the applied config: the settings that help to find a fault, without any that may be
//! secret.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use data_encoding::HEXLOWER;
use serde::Serialize;
use weir_core::endpoint::EndpointMode;
use weir_policy::IssuerStatus;

use super::super::chronicle::Book;
use super::super::desk::Desk;
use super::super::refused::{Refused, json};
use super::upstreams::InForce;
use super::{Moment, Query, millis};
use crate::config::{Config, TeamFile};

/// The applied config, its history, and the operators' changes since.
#[derive(Serialize)]
pub(in super::super) struct Applied {
    pub(in super::super) version: &'static str,
    pub(in super::super) started: Moment,
    /// The time at which this config was applied.
    pub(in super::super) applied: Moment,
    /// SHA-256 over the names and texts of the config's files, as they were read for it.
    pub(in super::super) digest: Option<String>,
    pub(in super::super) last_reload: Option<Reload>,
    /// Changed settings that take effect only at a restart.
    pub(in super::super) takes_restart: Vec<&'static str>,
    listen: String,
    public_url: Option<String>,
    tls: bool,
    admin: Admin,
    pub(in super::super) auth: Auth,
    pub(in super::super) endpoints: Vec<Endpoint>,
    /// The trusted token issuers, and the state of their keys.
    pub(in super::super) issuers: Vec<Issuer>,
    pub(in super::super) upstreams: Vec<String>,
    pub(in super::super) team_files: Vec<TeamFileState>,
    log: Option<String>,
    drain_ms: u64,
    audit: bool,
    /// The operators' changes in force.
    pub(in super::super) changes: Vec<Changed>,
}

/// The outcome of the last reload.
#[derive(Serialize)]
pub(in super::super) struct Reload {
    pub(in super::super) at: Moment,
    /// `ok` or `error`.
    pub(in super::super) result: &'static str,
    /// The error of a rejected config: the former one stays in force.
    pub(in super::super) error: Option<String>,
}

#[derive(Serialize)]
struct Admin {
    guarded: bool,
    open_metrics: bool,
    operators: Vec<String>,
    scope: Option<String>,
}

#[derive(Serialize)]
pub(in super::super) struct Auth {
    pub(in super::super) required: bool,
    issuers: Vec<String>,
    api_keys: Vec<String>,
    certificates: bool,
    /// Tokens, API keys and certificates that were refused since the start.
    pub(in super::super) refused: u64,
}

/// A trusted token issuer.
#[derive(Serialize)]
pub(in super::super) struct Issuer {
    pub(in super::super) issuer: String,
    /// True if its tokens can be verified now.
    pub(in super::super) ready: bool,
    /// The consecutive failed attempts to fetch its keys.
    pub(in super::super) failures: u32,
    /// The age of its keys; absent if never fetched, or if tokens are introspected.
    keys_age_ms: Option<f64>,
    /// Its tokens that were refused since the config was applied.
    pub(in super::super) refused: u64,
}

impl Issuer {
    fn of(status: IssuerStatus) -> Self {
        Self {
            issuer: status.issuer.to_string(),
            ready: status.ready,
            failures: status.failures,
            keys_age_ms: status.keys_age.map(millis),
            refused: status.refused,
        }
    }
}

/// An endpoint.
#[derive(Serialize)]
pub(in super::super) struct Endpoint {
    pub(in super::super) path: String,
    /// `aggregate` or `transparent`.
    mode: &'static str,
    upstreams: Vec<String>,
    /// True if the config selects or rewrites its tools.
    selected: bool,
}

/// A file of `include`.
#[derive(Serialize)]
pub(in super::super) struct TeamFileState {
    pub(in super::super) name: String,
    /// One of `current`, `last_good` and `nothing`.
    pub(in super::super) serves: &'static str,
    pub(in super::super) errors: Vec<String>,
    /// Paths, or patterns of them, that answer 503.
    pub(in super::super) unserved: Vec<String>,
}

impl TeamFileState {
    fn of(file: &TeamFile) -> Self {
        Self {
            name: file.name.clone(),
            serves: file.serves.label(),
            errors: file.errors.clone(),
            unserved: file
                .unserved
                .iter()
                .map(|path| path.as_str().to_owned())
                .collect(),
        }
    }
}

/// A change that is in force.
#[derive(Serialize)]
pub(in super::super) struct Changed {
    pub(in super::super) kind: &'static str,
    pub(in super::super) name: String,
    #[serde(flatten)]
    pub(in super::super) change: InForce,
}

/// Returns the applied config.
pub(in super::super) async fn all(
    State(desk): State<Arc<Desk>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    Query::read(query.as_deref(), &[])?;
    Ok(json(StatusCode::OK, &desk.applied()))
}

impl Desk {
    pub(in super::super) fn applied(&self) -> Applied {
        let changed =
            |(target, change): (super::super::book::Target, super::super::book::Change)| {
                let (kind, name) = target.named();
                Changed {
                    kind,
                    name,
                    change: InForce::of(&change),
                }
            };
        let changes = self.book.all().into_iter().map(changed).collect();
        let issuers = self
            .credentials
            .issuers()
            .into_iter()
            .map(Issuer::of)
            .collect();
        let refused = self.credentials.refused();
        Applied::of(
            &self.chronicle.config(),
            &self.chronicle.book(),
            issuers,
            refused,
            changes,
        )
    }
}

impl Applied {
    fn of(
        config: &Config,
        book: &Book,
        issuers: Vec<Issuer>,
        refused: u64,
        changes: Vec<Changed>,
    ) -> Self {
        let last = book.last.as_ref();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            started: Moment(book.started),
            applied: Moment(book.applied),
            digest: config
                .source
                .digest()
                .map(|digest| HEXLOWER.encode(&digest)),
            last_reload: last.map(|last| Reload {
                at: Moment(last.at),
                result: if last.error.is_some() { "error" } else { "ok" },
                error: last.error.clone(),
            }),
            takes_restart: book.unmoved.clone(),
            listen: config.front.listen.to_string(),
            public_url: config.front.public_url.clone(),
            tls: config.front.tls.is_some(),
            admin: Admin::of(config),
            auth: Auth::of(config, refused),
            endpoints: config.endpoints.iter().map(Endpoint::of).collect(),
            issuers,
            upstreams: config
                .upstreams
                .iter()
                .map(|plan| plan.settings.id.to_string())
                .collect(),
            team_files: config.team_files.iter().map(TeamFileState::of).collect(),
            log: config.log.filter.clone(),
            drain_ms: u64::try_from(config.drain.as_millis()).unwrap_or(u64::MAX),
            audit: config.audit.is_some(),
            changes,
        }
    }
}

impl Admin {
    fn of(config: &Config) -> Self {
        let plan = config.admin.as_ref();
        Self {
            guarded: plan.is_some_and(crate::config::AdminPlan::is_guarded),
            open_metrics: plan.is_some_and(|plan| plan.open_metrics),
            operators: plan
                .iter()
                .flat_map(|plan| &plan.keys)
                .map(|key| key.name.to_string())
                .collect(),
            scope: plan
                .and_then(|plan| plan.scope.as_deref())
                .map(str::to_owned),
        }
    }
}

impl Auth {
    fn of(config: &Config, refused: u64) -> Self {
        let auth = &config.auth;
        Self {
            required: auth.required,
            issuers: auth
                .issuers
                .iter()
                .map(|issuer| issuer.name.to_string())
                .collect(),
            api_keys: auth
                .api_keys
                .iter()
                .map(|key| format!("{}: {}", key.id, key.subject))
                .collect(),
            certificates: auth.certificates.is_some(),
            refused,
        }
    }
}

impl Endpoint {
    fn of(endpoint: &weir_core::Endpoint) -> Self {
        let (mode, upstreams) = match &endpoint.mode {
            EndpointMode::Aggregate { upstreams, .. } => (
                "aggregate",
                upstreams.iter().map(ToString::to_string).collect(),
            ),
            EndpointMode::Transparent(upstream) => ("transparent", vec![upstream.to_string()]),
        };
        Self {
            path: endpoint.id.to_string(),
            mode,
            upstreams,
            selected: endpoint.tools.is_some(),
        }
    }
}

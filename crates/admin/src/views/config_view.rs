//! The view of the applied config: the settings that help to find a fault, without any that may be
//! secret.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use data_encoding::HEXLOWER;
use serde::Serialize;
use weir_config::{Config, TeamFile};
use weir_core::endpoint::EndpointMode;
use weir_policy::IssuerStatus;

use crate::admin_error::{AdminError, json};
use crate::config_history::ConfigHistoryState;
use crate::state::AdminState;
use crate::views::upstream_views::OverrideView;
use crate::views::{AdminQuery, Rfc3339Time, millis};

/// The applied config, its history, and the operators' changes since.
#[derive(Serialize)]
pub(crate) struct AppliedConfigView {
    pub version: &'static str,
    pub started: Rfc3339Time,
    /// The time at which this config was applied.
    pub applied: Rfc3339Time,
    /// SHA-256 over the names and texts of the config's files, as they were read for it.
    pub(crate) digest: Option<String>,
    pub(crate) last_reload: Option<ReloadView>,
    /// Changed settings that take effect only at a restart.
    pub(crate) takes_restart: Vec<&'static str>,
    listen: String,
    public_url: Option<String>,
    tls: bool,
    admin: AdminView,
    pub auth: AuthView,
    pub endpoints: Vec<EndpointView>,
    /// The trusted token issuers, and the state of their keys.
    pub(crate) issuers: Vec<IssuerView>,
    pub upstreams: Vec<String>,
    pub team_files: Vec<TeamFileView>,
    log: Option<String>,
    drain_ms: u64,
    audit: bool,
    /// The operators' changes in force.
    pub changes: Vec<ActiveOverrideView>,
}

/// The outcome of the last reload.
#[derive(Serialize)]
pub(crate) struct ReloadView {
    pub at: Rfc3339Time,
    /// `ok` or `error`.
    pub result: &'static str,
    /// The error of a rejected config: the former one stays in force.
    pub error: Option<String>,
}

#[derive(Serialize)]
struct AdminView {
    guarded: bool,
    open_metrics: bool,
    operators: Vec<String>,
    scope: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct AuthView {
    pub(crate) required: bool,
    issuers: Vec<String>,
    api_keys: Vec<String>,
    certificates: bool,
    /// Tokens, API keys and certificates that were refused since the start.
    pub refused: u64,
}

/// A trusted token issuer.
#[derive(Serialize)]
pub(crate) struct IssuerView {
    pub(crate) issuer: String,
    /// True if its tokens can be verified now: it has fresh keys, or it answered the last
    /// introspection request.
    pub ready: bool,
    /// True if it is asked about each token.
    pub(crate) introspection: bool,
    /// The consecutive failed attempts to fetch its keys, or introspection requests without an
    /// answer.
    pub(crate) failures: u32,
    /// The age of its keys; absent if never fetched, or if tokens are introspected.
    keys_age_ms: Option<f64>,
    /// Its tokens that were refused since the config was applied.
    pub refused: u64,
}

impl IssuerView {
    fn of(status: &IssuerStatus) -> Self {
        Self {
            issuer: status.issuer.to_string(),
            ready: status.ready,
            introspection: status.is_introspected,
            failures: status.failures,
            keys_age_ms: status.keys_age.map(millis),
            refused: status.refused,
        }
    }
}

/// An endpoint.
#[derive(Serialize)]
pub(crate) struct EndpointView {
    pub path: String,
    /// `aggregate` or `transparent`.
    mode: &'static str,
    upstreams: Vec<String>,
    /// True if the config selects or rewrites its tools.
    selected: bool,
}

/// A file of `include`.
#[derive(Serialize)]
pub(crate) struct TeamFileView {
    pub name: String,
    /// One of `current`, `last_good` and `nothing`.
    pub serves: &'static str,
    pub errors: Vec<String>,
    /// Paths, or patterns of them, that answer 503.
    pub(crate) unserved: Vec<String>,
}

impl TeamFileView {
    fn of(file: &TeamFile) -> Self {
        Self {
            name: file.name.clone(),
            serves: file.version.label(),
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
pub(crate) struct ActiveOverrideView {
    pub(crate) kind: &'static str,
    pub name: String,
    #[serde(flatten)]
    pub(crate) change: OverrideView,
}

/// Returns the applied config.
pub(crate) async fn all(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    AdminQuery::read(query.as_deref(), &[])?;
    Ok(json(StatusCode::OK, &state.applied()))
}

impl AdminState {
    pub(crate) fn applied(&self) -> AppliedConfigView {
        let changed = |(target, change): (
            super::super::overrides::OverrideTarget,
            super::super::overrides::OperatorOverride,
        )| {
            let (kind, name) = target.kind_and_name();
            ActiveOverrideView {
                kind,
                name,
                change: OverrideView::of(&change),
            }
        };
        let changes = self.overrides.all().into_iter().map(changed).collect();
        let issuers = self
            .credentials
            .issuers()
            .iter()
            .map(IssuerView::of)
            .collect();
        let refused = self.credentials.refused();
        AppliedConfigView::of(
            &self.config_history.config(),
            &self.config_history.snapshot(),
            issuers,
            refused,
            changes,
        )
    }
}

impl AppliedConfigView {
    fn of(
        config: &Config,
        history: &ConfigHistoryState,
        issuers: Vec<IssuerView>,
        refused: u64,
        changes: Vec<ActiveOverrideView>,
    ) -> Self {
        let last = history.last.as_ref();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            started: Rfc3339Time(history.started),
            applied: Rfc3339Time(history.applied),
            digest: config
                .source
                .digest()
                .map(|digest| HEXLOWER.encode(&digest)),
            last_reload: last.map(|last| ReloadView {
                at: Rfc3339Time(last.at),
                result: if last.error.is_some() { "error" } else { "ok" },
                error: last.error.clone(),
            }),
            takes_restart: history.needs_restart.clone(),
            listen: config.front.listen.to_string(),
            public_url: config.front.public_url.clone(),
            tls: config.front.tls.is_some(),
            admin: AdminView::of(config),
            auth: AuthView::of(config, refused),
            endpoints: config.endpoints.iter().map(EndpointView::of).collect(),
            issuers,
            upstreams: config
                .upstreams
                .iter()
                .map(|plan| plan.settings.id.to_string())
                .collect(),
            team_files: config.team_files.iter().map(TeamFileView::of).collect(),
            log: config.log.filter.clone(),
            drain_ms: weir_core::instant::millis(config.drain),
            audit: config.audit.is_some(),
            changes,
        }
    }
}

impl AdminView {
    fn of(config: &Config) -> Self {
        let plan = config.admin.as_ref();
        Self {
            guarded: plan.is_some_and(weir_config::AdminPlan::is_guarded),
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

impl AuthView {
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

impl EndpointView {
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

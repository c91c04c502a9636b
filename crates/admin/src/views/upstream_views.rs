//! The upstreams: transport, health and lists of each.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Serialize, Serializer};
use weir_catalog::{ClosingMode, ListState, ListStatus, UpstreamReach, UpstreamStatus};
use weir_config::{Config, UpstreamPlan};
use weir_core::log_text::sanitize_text;
use weir_core::names::UpstreamId;
use weir_core::upstream::{InstanceHealth, UpstreamOwner};
use weir_upstream::{HttpUpstreamSettings, TransportSettings, UpstreamProtocol};
use weir_wire::Revision;

use crate::admin_error::{AdminError, json};
use crate::overrides::{OperatorOverride, OverrideTarget};
use crate::state::AdminState;
use crate::views::{AdminQuery, Rfc3339Time, millis, without_secrets};

/// An upstream.
#[derive(Serialize)]
pub(crate) struct UpstreamView {
    pub id: String,
    /// `up`, `down`, `starting`, `disabled`, `draining` or `drained`.
    pub state: &'static str,
    /// The time since which it is in this state.
    pub(crate) since: Rfc3339Time,
    /// The cause why it is not up, with advice; absent while it is up.
    pub(crate) last_error: Option<String>,
    /// The last failure of a call or of an attempt to connect, however long ago.
    pub(crate) last_failure: Option<LastFailureView>,
    /// The start of a process that has not answered yet.
    pub starting: Option<StartingView>,
    /// The replica that runs its child processes for all, with `instances: one` and a shared store.
    pub(crate) owner: Option<OwnerView>,
    /// `http`, `sse` or `stdio`.
    pub(crate) transport: &'static str,
    /// Its URL without user and query, or its program. Of several URLs the first, with the number
    /// of the others.
    pub(crate) target: String,
    /// Its URLs, if it has several.
    pub(crate) urls: Vec<UpstreamUrlView>,
    /// `modern` or `legacy`, once that is known.
    pub(crate) era: Option<&'static str>,
    pub(crate) protocol: Option<&'static str>,
    /// The legacy revision that it speaks besides to clients with sessions, once a call of such a
    /// client has found it.
    pub(crate) second_protocol: Option<&'static str>,
    pub(crate) server: Option<SoftwareView>,
    /// `closed`: calls go through. `open`: they fail at once, but for one a second.
    pub(crate) breaker: &'static str,
    /// Sessions or child processes that weir holds open there.
    pub sessions: usize,
    pub calls: UpstreamCallsView,
    pub catalog: UpstreamListsView,
    /// The views of clients of each capability class that see more than the base class.
    pub(crate) classes: Vec<CapabilityClassView>,
    /// The paths of the endpoints that show it.
    pub endpoints: Vec<String>,
    /// The operator's change in force.
    pub(crate) change: Option<OverrideView>,
}

/// A URL of an upstream that has several.
#[derive(Serialize)]
pub(crate) struct UpstreamUrlView {
    /// Without user and query.
    pub(crate) url: String,
    pub(crate) weight: u32,
    /// `closed`: it gets calls. `half_open`: it answers again, and gets a few calls. `open`: it gets
    /// no calls while another URL does.
    pub(crate) breaker: &'static str,
    /// True if the lists of the upstream are read there.
    pub(crate) watched: bool,
    pub(crate) in_flight: usize,
    pub(crate) sessions: usize,
    pub(crate) latency_ms: Option<f64>,
    /// The last failure of a call or of an attempt to connect, however long ago.
    pub(crate) last_error: Option<String>,
}

/// A failure, as operators read it.
#[derive(Serialize)]
pub(crate) struct LastFailureView {
    pub(crate) cause: String,
    pub at: Rfc3339Time,
}

/// A process that has not answered yet.
#[derive(Serialize)]
pub(crate) struct StartingView {
    pub(crate) seconds: u64,
    /// The last line of its error stream.
    pub(crate) says: Option<String>,
}

/// The replica that runs the child processes of an upstream for all replicas.
#[derive(Serialize)]
pub(crate) struct OwnerView {
    /// The id of the replica, as in the list of replicas.
    pub(crate) replica: String,
    pub(crate) is_own: bool,
    /// The epoch of its lease.
    pub(crate) epoch: u64,
}

impl OwnerView {
    fn of(owner: &UpstreamOwner) -> Self {
        Self {
            replica: owner.replica.to_string(),
            is_own: owner.is_own,
            epoch: owner.epoch,
        }
    }
}

/// The name and version that a server or client claims, unverified.
#[derive(Serialize)]
pub(crate) struct SoftwareView {
    pub name: String,
    pub version: String,
}

/// The upstream's calls. Counts and durations are of the last one or two minutes.
#[derive(Serialize)]
pub(crate) struct UpstreamCallsView {
    pub(crate) in_flight: usize,
    pub(crate) recent: u64,
    /// Of these, failed by the upstream or by weir.
    pub failed: u64,
    /// Of these, answered by a tool with an error of its own.
    pub(crate) tool_errors: u64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

/// The upstream's lists as clients without capabilities see them.
#[derive(Serialize)]
pub(crate) struct UpstreamListsView {
    #[serde(serialize_with = "list_state")]
    pub state: ListState,
    pub(crate) since: Rfc3339Time,
    /// True if the list is whole and current.
    pub complete: bool,
    /// The guard that cut the last walk.
    pub(crate) truncated: Option<&'static str>,
    pub(crate) tools: usize,
    pub(crate) prompts: usize,
    pub(crate) resources: usize,
    /// Tools with a schema that cannot be used for validation.
    pub(crate) unchecked: usize,
    /// Items that the last walk left out.
    pub(crate) rejected: u64,
    /// The number of times that a tool came back with another definition.
    pub(crate) redefined: u64,
    pub(crate) walks: u64,
    pub(crate) walked_at: Option<Rfc3339Time>,
    pub error: Option<String>,
}

/// The lists as clients of another capability class see them.
#[derive(Serialize)]
pub(crate) struct CapabilityClassView {
    class: String,
    state: &'static str,
    tools: usize,
}

/// An operator's change in force.
#[derive(Serialize)]
pub(crate) struct OverrideView {
    pub what: &'static str,
    pub(crate) by: String,
    pub reason: Option<String>,
    pub(crate) since: Rfc3339Time,
    pub(crate) expires: Option<Rfc3339Time>,
}

#[derive(Serialize)]
struct UpstreamsView {
    upstreams: Vec<UpstreamView>,
}

/// Lists every upstream, in config order.
pub(crate) async fn all(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    AdminQuery::read(query.as_deref(), &[])?;
    Ok(json(
        StatusCode::OK,
        &UpstreamsView {
            upstreams: state.upstreams(),
        },
    ))
}

/// Returns one upstream.
pub(crate) async fn one(
    State(state): State<Arc<AdminState>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    AdminQuery::read(query.as_deref(), &[])?;
    let found = state
        .upstreams()
        .into_iter()
        .find(|upstream| upstream.id == id);
    found
        .map(|upstream| json(StatusCode::OK, &upstream))
        .ok_or_else(|| AdminError::not_found("upstream", &id))
}

impl AdminState {
    /// Returns every upstream, in config order.
    pub(crate) fn upstreams(&self) -> Vec<UpstreamView> {
        let config = self.config_history.config();
        let view = |status: UpstreamStatus| {
            let change = self
                .overrides
                .find(&OverrideTarget::Upstream(status.id.clone()));
            UpstreamView::of(&status, &config, change.as_ref(), self.now())
        };
        self.catalog.status().into_iter().map(view).collect()
    }
}

impl UpstreamView {
    fn of(
        status: &UpstreamStatus,
        config: &Config,
        change: Option<&OperatorOverride>,
        now: SystemTime,
    ) -> Self {
        let plan = config
            .upstreams
            .iter()
            .find(|plan| plan.settings.id == status.id);
        let (transport, target) = plan.map(reached).unwrap_or(("http", String::new()));
        let health = &status.health;
        let (base, others) = match status.lists.split_first() {
            Some((base, others)) => (Some(base), others),
            None => (None, &[][..]),
        };
        let since = status
            .closed
            .map(|closed| closed.since)
            .or(status.since())
            .unwrap_or(now);
        let state = state(status);
        let error = status.cause().filter(|_| state != "up").map(str::to_owned);
        let failure = health.last_error.clone().zip(health.last_error_at);
        let starting = health.starting.clone();
        Self {
            id: status.id.to_string(),
            state,
            since: Rfc3339Time(since),
            last_error: error,
            last_failure: failure.map(|(cause, at)| LastFailureView {
                cause,
                at: Rfc3339Time(at),
            }),
            starting: starting.map(|start| StartingView {
                seconds: start.time.as_secs(),
                says: start.last_line.map(|says| sanitize_text(&says, 300)),
            }),
            owner: health.owner.as_ref().map(OwnerView::of),
            transport,
            target,
            urls: health.instances.iter().map(UpstreamUrlView::of).collect(),
            era: health
                .revision
                .and_then(Revision::parse)
                .map(|revision| revision.era().as_str()),
            protocol: health.revision,
            second_protocol: health.second_revision,
            server: status
                .about
                .as_ref()
                .and_then(|about| SoftwareView::of(about.server_info.as_deref()?)),
            breaker: if health.breaker_open {
                "open"
            } else {
                "closed"
            },
            sessions: health.sessions,
            calls: UpstreamCallsView::of(status),
            catalog: UpstreamListsView::of(base, now),
            classes: others.iter().map(CapabilityClassView::of).collect(),
            endpoints: shown_at(config, &status.id),
            change: change.map(OverrideView::of),
        }
    }
}

fn state(status: &UpstreamStatus) -> &'static str {
    match (status.closed.map(|closed| closed.mode), status.reach()) {
        (Some(ClosingMode::Disabled), _) => "disabled",
        (Some(ClosingMode::Draining), _)
            if status.health.in_flight > 0 || status.health.predecessor_runs =>
        {
            "draining"
        }
        (Some(ClosingMode::Draining), _) => "drained",
        (None, UpstreamReach::Down) => "down",
        (None, UpstreamReach::Up) => "up",
        (None, UpstreamReach::Unknown) => "starting",
    }
}

/// Returns the transport and the address or program.
fn reached(plan: &UpstreamPlan) -> (&'static str, String) {
    match (&plan.settings.transport, plan.settings.protocol) {
        (TransportSettings::Http(http), UpstreamProtocol::Sse) => ("sse", address(http)),
        (TransportSettings::Http(http), _) => ("http", address(http)),
        // Arguments may hold secrets.
        (TransportSettings::Stdio(stdio), _) => ("stdio", stdio.command.clone()),
    }
}

fn address(http: &HttpUpstreamSettings) -> String {
    let first = without_secrets(&http.url);
    match http.instances.len() {
        0 | 1 => first,
        all => format!("{first} and {} more", all - 1),
    }
}

fn shown_at(config: &Config, id: &UpstreamId) -> Vec<String> {
    use weir_core::endpoint::EndpointMode;
    let shows = |mode: &EndpointMode| match mode {
        EndpointMode::Aggregate { upstreams, .. } => upstreams.contains(id),
        EndpointMode::Transparent(one) => one == id,
    };
    let those = config
        .endpoints
        .iter()
        .filter(|endpoint| shows(&endpoint.mode));
    those.map(|endpoint| endpoint.id.to_string()).collect()
}

impl UpstreamUrlView {
    fn of(instance: &InstanceHealth) -> Self {
        Self {
            url: instance.url.to_string(),
            weight: instance.weight,
            breaker: instance.breaker.as_str(),
            watched: instance.watched,
            in_flight: instance.in_flight,
            sessions: instance.sessions,
            latency_ms: instance.latency.map(millis),
            last_error: instance.last_error.clone(),
        }
    }
}

impl SoftwareView {
    fn of(raw: &[u8]) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_slice(raw).ok()?;
        let text = |name: &str| {
            value[name]
                .as_str()
                .unwrap_or_default()
                .chars()
                .take(64)
                .collect()
        };
        Some(Self {
            name: text("name"),
            version: text("version"),
        })
    }
}

impl UpstreamCallsView {
    fn of(status: &UpstreamStatus) -> Self {
        let recent = status.recent;
        Self {
            in_flight: status.health.in_flight,
            recent: recent.calls,
            failed: recent.failed,
            tool_errors: recent.tool_errors,
            p50_ms: recent.median.map(millis),
            p99_ms: recent.p99.map(millis),
        }
    }
}

fn list_state<S: Serializer>(state: &ListState, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(state.as_str())
}

impl UpstreamListsView {
    fn of(list: Option<&ListStatus>, now: SystemTime) -> Self {
        let state = list.map_or(ListState::Pending, |list| list.state);
        let truncated = list.and_then(|list| list.truncated);
        Self {
            state,
            since: Rfc3339Time(list.map_or(now, |list| list.since)),
            complete: state == ListState::Fresh && truncated.is_none(),
            truncated,
            tools: list.map_or(0, |list| list.tools),
            prompts: list.map_or(0, |list| list.prompts),
            resources: list.map_or(0, |list| list.resources),
            unchecked: list.map_or(0, |list| list.unchecked),
            rejected: list.map_or(0, |list| list.rejected),
            redefined: list.map_or(0, |list| list.redefined),
            walks: list.map_or(0, |list| list.walks),
            walked_at: list.and_then(|list| list.walked_at).map(Rfc3339Time),
            error: list
                .and_then(|list| list.error.as_deref())
                .map(str::to_owned),
        }
    }
}

impl CapabilityClassView {
    fn of(list: &ListStatus) -> Self {
        Self {
            class: list.class.to_string(),
            state: list.state.as_str(),
            tools: list.tools,
        }
    }
}

impl OverrideView {
    pub(crate) fn of(change: &OperatorOverride) -> Self {
        Self {
            what: change.action,
            by: change.operator.to_string(),
            reason: change.reason.clone(),
            since: Rfc3339Time(change.since),
            expires: change.expires.map(|(ends, _)| Rfc3339Time(ends)),
        }
    }
}

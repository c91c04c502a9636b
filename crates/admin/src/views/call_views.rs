//! The running calls, and those that wait for their clients.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use weir_core::{ParkedCall, Principal};
use weir_router::live_calls::LiveCall;

use crate::admin_error::{AdminError, json};
use crate::state::AdminState;
use crate::views::{AdminQuery, Rfc3339Time, millis};

#[derive(Serialize)]
struct CallsView {
    /// The number of running calls.
    total: usize,
    /// The oldest first.
    calls: Vec<CallView>,
    /// The number of calls that wait for their clients.
    total_parked: usize,
    /// The oldest first.
    parked: Vec<ParkedCallView>,
}

/// A call.
#[derive(Serialize)]
pub(crate) struct CallView {
    /// The id for `/admin/calls/{id}/cancel`.
    pub id: String,
    /// weir's id of the request that made it, as in `X-Request-Id`, errors and logs.
    pub(crate) request: String,
    pub(crate) principal: PrincipalView,
    pub endpoint: String,
    pub upstream: String,
    pub(crate) method: String,
    /// The name that the client uses.
    pub(crate) tool: String,
    pub(crate) since: Rfc3339Time,
    pub(crate) age_ms: f64,
    /// `queued`, `sent`, `answering` or `asking`.
    pub(crate) phase: &'static str,
}

/// A parked call: its request ended with requests to the client (elicitation, sampling, roots), and
/// the client has not come back.
#[derive(Serialize)]
pub(crate) struct ParkedCallView {
    /// The id for `/admin/calls/{id}/cancel`.
    pub id: String,
    /// The request that ended with requests to the client.
    request: String,
    pub(crate) principal: PrincipalView,
    pub endpoint: String,
    pub upstream: String,
    method: &'static str,
    /// The name that the client uses.
    pub(crate) tool: String,
    /// The methods of the requests to the client.
    pub(crate) waits_for: Vec<&'static str>,
    pub(crate) since: Rfc3339Time,
    /// The time at which the call is given up.
    pub(crate) until: Rfc3339Time,
    age_ms: f64,
}

/// A principal; the anonymous one has neither issuer nor subject.
#[derive(Clone, Serialize, PartialEq, Eq)]
pub(crate) struct PrincipalView {
    pub(crate) issuer: Option<String>,
    pub(crate) subject: Option<String>,
}

impl PrincipalView {
    pub(crate) fn of(principal: &Principal) -> Self {
        let subject = principal.subject();
        Self {
            issuer: subject.map(|subject| subject.issuer().to_owned()),
            subject: subject.map(|subject| subject.subject().to_owned()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.subject.as_deref().unwrap_or("anonymous")
    }
}

/// Lists the running and the parked calls, the oldest first, of each at most `limit`.
pub(crate) async fn all(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let query = AdminQuery::read(query.as_deref(), &["upstream", "limit"])?;
    let (limit, upstream) = (query.limit()?, query.text("upstream"));
    let live = state.running_calls(upstream);
    let waiting = state.parked_calls(upstream);
    // An upstream that a reload removed may still have calls.
    let is_unknown = |id: &&str| live.is_empty() && waiting.is_empty() && !state.has_upstream(id);
    if let Some(id) = upstream.filter(is_unknown) {
        return Err(AdminError::not_found("upstream", id));
    }
    let now = state.now();
    let calls = live
        .iter()
        .take(limit)
        .map(|call| CallView::of(call, now))
        .collect();
    let parked = waiting
        .iter()
        .take(limit)
        .map(|call| ParkedCallView::of(call, now))
        .collect();
    Ok(json(
        StatusCode::OK,
        &CallsView {
            total: live.len(),
            calls,
            total_parked: waiting.len(),
            parked,
        },
    ))
}

/// Returns the id of a call for operators.
pub(crate) fn name(id: u64) -> String {
    format!("c{id}")
}

/// Returns the id of a parked call for operators.
pub(crate) fn parked_name(number: u64) -> String {
    format!("p{number}")
}

impl ParkedCallView {
    pub(crate) fn of(
        ParkedCall {
            number,
            details,
            age,
            left,
        }: &ParkedCall,
        now: SystemTime,
    ) -> Self {
        Self {
            id: parked_name(*number),
            request: details.request.as_str().to_owned(),
            principal: PrincipalView::of(&details.principal),
            endpoint: details.endpoint.to_string(),
            upstream: details.upstream.to_string(),
            method: details.method,
            tool: details.exposed.to_string(),
            waits_for: details.questions.clone(),
            since: Rfc3339Time(now.checked_sub(*age).unwrap_or(now)),
            until: Rfc3339Time(now.checked_add(*left).unwrap_or(now)),
            age_ms: millis(*age),
        }
    }
}

impl CallView {
    pub(crate) fn of(live: &LiveCall, now: SystemTime) -> Self {
        Self {
            id: name(live.id),
            request: live.call.request.as_str().to_owned(),
            principal: PrincipalView::of(&live.principal),
            endpoint: live.call.endpoint.to_string(),
            upstream: live.item.tool.upstream.to_string(),
            method: live.call.method_name().to_owned(),
            tool: live.item.exposed.to_string(),
            since: Rfc3339Time(now.checked_sub(live.age).unwrap_or(now)),
            age_ms: millis(live.age),
            phase: live.phase.word(),
        }
    }
}

//! The changes that operators make. Every change is a POST of a JSON object with an optional reason
//! and, for lasting changes, an optional duration. Each one is audited with the operator's name.

pub(super) mod client_actions;
pub(super) mod process_actions;
pub(super) mod request;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tokio::time::Instant;
use weir_core::call::RequestName;
use weir_core::instant::rfc3339;
use weir_core::names::UpstreamId;
use weir_router::live_calls::StopReason;

use crate::admin_error::{AdminError, json};
use crate::operator_auth::Operator;
use crate::override_effects::OverrideEffect;
use crate::overrides::{OperatorOverride, OverrideTarget, words};
use crate::shared_overrides::{OverrideRemoval, ReplicaNotice};
use crate::state::AdminState;
use crate::views::call_views;
use request::ActionRequest;

/// An action on an upstream.
#[derive(Clone, Copy, Debug)]
pub(super) enum UpstreamAction {
    /// Takes the upstream out of service and ends its calls now.
    Disable,
    /// Puts the upstream back into service.
    Enable,
    /// Lets the upstream's calls end and begins no new ones.
    Drain,
    /// Walks the upstream's lists now.
    Refresh,
}

impl UpstreamAction {
    const fn word(self) -> &'static str {
        match self {
            Self::Disable => words::DISABLE,
            Self::Enable => "enable",
            Self::Drain => words::DRAIN,
            Self::Refresh => "refresh",
        }
    }
}

/// The response to a change.
#[derive(Serialize)]
pub(super) struct ActionResponse {
    /// The name of the action.
    done: &'static str,
    /// False if the state was like this already and the action changed no state.
    changed: bool,
    /// The time at which the change is undone.
    expires: Option<String>,
    /// The number of calls that it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_calls: Option<usize>,
    /// The number of streams that it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_streams: Option<usize>,
    /// The state of the change at the other replicas. Absent if the store is not shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<ReplicaNotice>,
}

impl ActionResponse {
    fn new(done: &'static str, changed: bool) -> Self {
        Self {
            done,
            changed,
            expires: None,
            ended_calls: None,
            ended_streams: None,
            replicas: None,
        }
    }

    fn of_effect(
        done: &'static str,
        effect: &OverrideEffect,
        replicas: Option<ReplicaNotice>,
    ) -> Self {
        Self {
            ended_calls: effect.ended_calls,
            ended_streams: effect.ended_streams,
            replicas,
            ..Self::new(done, effect.changed)
        }
    }

    fn answer(done: &'static str, changed: bool) -> Response {
        json(StatusCode::OK, &Self::new(done, changed))
    }
}

/// Disables, enables, drains or refreshes an upstream.
pub(super) async fn on_upstream(
    act: UpstreamAction,
    State(state): State<Arc<AdminState>>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, AdminError> {
    let lasting = matches!(act, UpstreamAction::Disable | UpstreamAction::Drain);
    let request = ActionRequest::read(body, lasting).await?;
    let known = UpstreamId::new(id.as_str()).ok();
    let Some(id) = known.filter(|id| state.has_upstream(id.as_str())) else {
        return Err(state.refuse_unknown(&operator, act.word(), "upstream", &id));
    };
    let target = OverrideTarget::Upstream(id.clone());
    let expires = request.expires(&state);
    let record = || {
        let detail = request.detail(&format!("upstream {id}"), expires.as_deref());
        state.record_operator_action(&operator, act.word(), &detail, true);
    };
    let mut effect = OverrideEffect::default();
    let replicas = match act {
        UpstreamAction::Disable | UpstreamAction::Drain => {
            let change = request.change(act.word(), &operator, &state);
            effect = state.make_override(&target, change.clone())?;
            record();
            state.share_override(&target, &change).await
        }
        UpstreamAction::Enable => {
            effect.changed = state.revert_override(&target);
            record();
            let removal = request.removal(act.word(), &operator);
            state.share_removal(&target, removal).await
        }
        UpstreamAction::Refresh => {
            effect.changed = state.catalog.walk_now(&id);
            record();
            None
        }
    };
    let response = ActionResponse::of_effect(act.word(), &effect, replicas);
    Ok(json(
        StatusCode::OK,
        &ActionResponse {
            expires,
            ..response
        },
    ))
}

/// Cancels a running call, or one that waits for its client.
pub(crate) async fn cancel(
    State(state): State<Arc<AdminState>>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, AdminError> {
    let request = ActionRequest::read(body, false).await?;
    let Some((request_id, tool)) = state
        .cancel_running(&id)
        .or_else(|| state.cancel_parked(&id))
    else {
        return Err(state.refuse_unknown(&operator, "cancel", "call", &id));
    };
    let what = format!(
        "call {id}, request {}, of {}",
        request_id.as_str(),
        request::audit_text(&tool)
    );
    state.record_operator_action(&operator, "cancel", &request.detail(&what, None), true);
    Ok(ActionResponse::answer("cancel", true))
}

impl ActionRequest {
    /// Returns the time at which the change is undone, for the response.
    fn expires(&self, state: &AdminState) -> Option<String> {
        self.ttl
            .and_then(|ttl| state.now().checked_add(ttl))
            .map(rfc3339)
    }

    fn change(
        &self,
        what: &'static str,
        operator: &Operator,
        state: &AdminState,
    ) -> OperatorOverride {
        let since = state.now();
        let ends = self
            .ttl
            .and_then(|ttl| Some((since.checked_add(ttl)?, Instant::now() + ttl)));
        OperatorOverride {
            action: what,
            operator: operator.0.clone(),
            reason: self.reason.clone(),
            since,
            expires: ends,
        }
    }

    fn removal<'a>(&'a self, action: &'static str, operator: &'a Operator) -> OverrideRemoval<'a> {
        OverrideRemoval {
            action,
            operator: &operator.0,
            reason: self.reason.as_deref(),
        }
    }

    /// Returns the detail of the audit record: the subject, the end and the reason.
    fn detail(&self, of: &str, expires: Option<&str>) -> String {
        let reason = self.reason.iter().map(|reason| format!("; {reason}"));
        let until = expires.iter().map(|expires| format!("; until {expires}"));
        std::iter::once(of.to_owned())
            .chain(until)
            .chain(reason)
            .collect()
    }
}

impl AdminState {
    /// Cancels a running call. Returns the id of its request and the name of its tool.
    fn cancel_running(&self, id: &str) -> Option<(RequestName, Arc<str>)> {
        let call = self
            .live
            .all()
            .into_iter()
            .find(|call| call_views::name(call.id) == id)?;
        let was_there = self.live.stop(call.id, StopReason::Cancelled);
        was_there.then(|| (call.call.request, call.item.exposed))
    }

    /// Cancels a parked call. Its client learns of it when it comes back.
    fn cancel_parked(&self, id: &str) -> Option<(RequestName, Arc<str>)> {
        let call = self
            .parking
            .waiting()
            .into_iter()
            .find(|call| call_views::parked_name(call.number) == id)?;
        let dropped = self.parking.stop(&|number, _| number == call.number);
        (dropped > 0).then_some((call.details.request, call.details.exposed))
    }

    /// Records an action on an unknown target and returns the refusal.
    fn refuse_unknown(&self, operator: &Operator, act: &str, what: &str, id: &str) -> AdminError {
        self.record_operator_action(
            operator,
            act,
            &format!("{what} {}: unknown", request::audit_text(id)),
            false,
        );
        AdminError::not_found(what, id)
    }
}

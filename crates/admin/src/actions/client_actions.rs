//! Operators' actions on clients: end a session, block and unblock a principal.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use weir_config_file::raw::Time;

use crate::actions::ActionResponse;
use crate::actions::request::{self, ActionRequest};
use crate::admin_error::{AdminError, json};
use crate::operator_auth::Operator;
use crate::overrides::{OverrideTarget, words};
use crate::state::AdminState;
use crate::views::client_views::session_of;

/// The most bytes of the name of an issuer or subject.
const MAX_NAME_BYTES: usize = 1024;

/// The body of a request to block or unblock a principal.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PrincipalActionBody {
    issuer: Option<String>,
    subject: Option<String>,
    reason: Option<String>,
    ttl: Option<Time>,
}

/// A principal, with the reason and duration of an action on it.
struct PrincipalAction {
    target: OverrideTarget,
    /// The principal as audit records name it.
    what: String,
    request: ActionRequest,
}

impl PrincipalAction {
    /// Reads the request body.
    async fn read(body: Body, lasting: bool) -> Result<Self, AdminError> {
        let PrincipalActionBody {
            issuer,
            subject,
            reason,
            ttl,
        } = request::read(body).await?;
        let one = |text: Option<String>, name: &str| {
            let text = text.filter(|text| !text.is_empty() && text.len() <= MAX_NAME_BYTES);
            text.ok_or_else(|| {
                AdminError::bad_request(format!(
                    "`{name}` is missing: as `/admin/clients` shows it"
                ))
            })
        };
        let (issuer, subject) = (one(issuer, "issuer")?, one(subject, "subject")?);
        Ok(Self {
            what: format!(
                "principal {} of {}",
                request::audit_text(&subject),
                request::audit_text(&issuer)
            ),
            target: OverrideTarget::Principal { issuer, subject },
            request: ActionRequest::new(reason, ttl, lasting)?,
        })
    }
}

/// Ends a session.
pub(crate) async fn end(
    State(state): State<Arc<AdminState>>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, AdminError> {
    let request = ActionRequest::read(body, false).await?;
    let ended = match session_of(&id) {
        Some(key) => state.front.end_session(key).await,
        None => None,
    };
    let Some(principal) = ended else {
        return Err(state.refuse_unknown(&operator, "end", "session", &id));
    };
    let what = format!(
        "session {id} of {}",
        request::audit_text(&principal.to_string())
    );
    state.record_operator_action(&operator, "end", &request.detail(&what, None), true);
    Ok(ActionResponse::answer("end", true))
}

/// Blocks a principal: its requests are refused, its streams and calls end.
pub(crate) async fn block(
    State(state): State<Arc<AdminState>>,
    Extension(operator): Extension<Operator>,
    body: Body,
) -> Result<Response, AdminError> {
    let PrincipalAction {
        target,
        what,
        request,
    } = PrincipalAction::read(body, true).await?;
    let expires = request.expires(&state);
    let change = request.change(words::BLOCK, &operator, &state);
    let effect = state.make_override(&target, change.clone())?;
    state.record_operator_action(
        &operator,
        "block",
        &request.detail(&what, expires.as_deref()),
        true,
    );
    let replicas = state.share_override(&target, &change).await;
    let done = ActionResponse::of_effect("block", &effect, replicas);
    Ok(json(StatusCode::OK, &ActionResponse { expires, ..done }))
}

/// Unblocks a principal.
pub(crate) async fn unblock(
    State(state): State<Arc<AdminState>>,
    Extension(operator): Extension<Operator>,
    body: Body,
) -> Result<Response, AdminError> {
    let PrincipalAction {
        target,
        what,
        request,
    } = PrincipalAction::read(body, false).await?;
    let changed = state.revert_override(&target);
    state.record_operator_action(&operator, "unblock", &request.detail(&what, None), true);
    let removal = request.removal("unblock", &operator);
    let done = ActionResponse {
        replicas: state.share_removal(&target, removal).await,
        ..ActionResponse::new("unblock", changed)
    };
    Ok(json(StatusCode::OK, &done))
}

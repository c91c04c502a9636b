//! Operators' actions on the process: change the log level, reload the config.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use tokio::sync::oneshot;
use weir_config_file::raw::Time;

use crate::actions::ActionResponse;
use crate::actions::request::{self, ActionRequest};
use crate::admin_error::{AdminError, json};
use crate::operator_auth::Operator;
use crate::overrides::{OverrideTarget, words};
use crate::state::{AdminState, ReloadRequest};
use crate::strictness::Strictness;

/// The time that a reload request waits for its result. Reading a config takes milliseconds; the
/// start of child processes is not waited for.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The body of a request to change the log level.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LogLevelBody {
    level: Option<String>,
    reason: Option<String>,
    ttl: Option<Time>,
}

/// Sets another log level or filter; without one, restores the config's.
pub(crate) async fn log(
    State(state): State<Arc<AdminState>>,
    Extension(operator): Extension<Operator>,
    body: Body,
) -> Result<Response, AdminError> {
    let LogLevelBody { level, reason, ttl } = request::read(body).await?;
    let request = ActionRequest::new(reason, ttl, level.is_some())?;
    let Some(controls) = state.controls() else {
        return Err(no_control_handles());
    };
    let expires = request.expires(&state);
    let shown = request::audit_text(level.as_deref().unwrap_or("as from the beginning"));
    let refused = |why: String| {
        state.record_operator_action(
            &operator,
            "log",
            &format!("{shown}: {}", request::audit_text(&why)),
            false,
        );
        AdminError::bad_request(format!("level: {why}"))
    };
    match level {
        Some(level) => {
            let change = request.change(words::LOG, &operator, &state);
            state
                .overrides
                .apply(OverrideTarget::Log(shown.clone()), change, || {
                    controls.log.set(&level).map_err(refused)
                })?;
        }
        None => state
            .overrides
            .remove_log_level(|| controls.log.reset())
            .map_err(refused)?,
    }
    state.record_operator_action(
        &operator,
        "log",
        &request.detail(&shown, expires.as_deref()),
        true,
    );
    Ok(json(
        StatusCode::OK,
        &ActionResponse {
            expires,
            ..ActionResponse::new("log", true)
        },
    ))
}

/// The body of a reload request.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ReloadBody {
    reason: Option<String>,
    allow_weaker: bool,
}

/// Reloads the config's files and returns the outcome.
pub(crate) async fn reload(
    State(state): State<Arc<AdminState>>,
    Extension(operator): Extension<Operator>,
    body: Body,
) -> Result<Response, AdminError> {
    let ReloadBody {
        reason,
        allow_weaker,
    } = request::read(body).await?;
    let request = ActionRequest::new(reason, None, false)?;
    let Some(controls) = state.controls() else {
        return Err(no_control_handles());
    };
    let detail = if allow_weaker {
        "asked for, and allowed to be weaker"
    } else {
        "asked for"
    };
    let may = !allow_weaker || operator.is_logged_in();
    state.record_operator_action(&operator, "reload", &request.detail(detail, None), may);
    if !may {
        let text = "only an operator with a token may allow a weaker config: this listener requires none (`admin.auth`)";
        return Err(AdminError::new(StatusCode::FORBIDDEN, text));
    }
    let (done, wait) = oneshot::channel();
    let busy = || {
        AdminError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "weir is busy or stopping: try again",
        )
    };
    let strictness = if allow_weaker {
        Strictness::AllowWeaker
    } else {
        Strictness::NoWeaker
    };
    controls
        .reload
        .try_send(ReloadRequest { strictness, done })
        .map_err(|_| busy())?;
    match tokio::time::timeout(RELOAD_TIMEOUT, wait).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) | Err(_) => return Err(busy()),
    }
    match state
        .config_history
        .snapshot()
        .last
        .and_then(|last| last.error)
    {
        None => Ok(ActionResponse::answer("reload", true)),
        Some(why) => Err(AdminError::new(
            StatusCode::CONFLICT,
            format!("the config was refused, nothing changed: {why}"),
        )),
    }
}

/// The refusal if weir is embedded in another program, as in its quickstart.
fn no_control_handles() -> AdminError {
    AdminError::new(
        StatusCode::CONFLICT,
        "this weir has no config to reload and no log of its own, as in `weir quickstart`",
    )
}

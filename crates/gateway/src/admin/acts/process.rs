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

use super::super::book::Target;
use super::super::desk::{Desk, ReloadRequest};
use super::super::gate::Operator;
use super::super::refused::{Refused, json};
use super::wish::{self, Wish};
use super::{Done, words};
use crate::config::Time;
use crate::weir::Strictness;

/// The time that a reload request waits for its result. Reading a config takes milliseconds; the
/// start of child processes is not waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The body of a request to change the log level.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Level {
    level: Option<String>,
    reason: Option<String>,
    ttl: Option<Time>,
}

/// Sets another log level or filter; without one, restores the config's.
pub(in super::super) async fn log(
    State(desk): State<Arc<Desk>>,
    Extension(operator): Extension<Operator>,
    body: Body,
) -> Result<Response, Refused> {
    let Level { level, reason, ttl } = wish::read(body).await?;
    let wish = Wish::new(reason, ttl, level.is_some())?;
    let Some(levers) = desk.levers() else {
        return Err(none());
    };
    let expires = wish.expires(&desk);
    let shown = wish::plain(level.as_deref().unwrap_or("as from the beginning"));
    let refused = |why: String| {
        desk.operated(
            &operator.0,
            "log",
            &format!("{shown}: {}", wish::plain(&why)),
            false,
        );
        Refused::bad(format!("level: {why}"))
    };
    match level {
        Some(level) => {
            let change = wish.change(words::LOG, &operator, &desk);
            desk.book.enter(Target::Log(shown.clone()), change, || {
                levers.log.set(&level).map_err(refused)
            })?;
        }
        None => desk
            .book
            .strike_log(|| levers.log.reset())
            .map_err(refused)?,
    }
    desk.operated(
        &operator.0,
        "log",
        &wish.detail(&shown, expires.as_deref()),
        true,
    );
    Ok(json(
        StatusCode::OK,
        &Done {
            expires,
            ..Done::new("log", true)
        },
    ))
}

/// The body of a reload request.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Reload {
    reason: Option<String>,
    allow_weaker: bool,
}

/// Reloads the config's files and returns the outcome.
pub(in super::super) async fn reload(
    State(desk): State<Arc<Desk>>,
    Extension(operator): Extension<Operator>,
    body: Body,
) -> Result<Response, Refused> {
    let Reload {
        reason,
        allow_weaker,
    } = wish::read(body).await?;
    let wish = Wish::new(reason, None, false)?;
    let Some(levers) = desk.levers() else {
        return Err(none());
    };
    let asked = if allow_weaker {
        "asked for, and allowed to be weaker"
    } else {
        "asked for"
    };
    let may = !allow_weaker || operator.is_logged_in();
    desk.operated(&operator.0, "reload", &wish.detail(asked, None), may);
    if !may {
        let text = "only an operator with a token may allow a weaker config: this listener asks for none (`admin.auth`)";
        return Err(Refused::new(StatusCode::FORBIDDEN, text));
    }
    let (done, wait) = oneshot::channel();
    let busy = || {
        Refused::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "weir is busy or stops: try again",
        )
    };
    let strictness = if allow_weaker {
        Strictness::AllowWeaker
    } else {
        Strictness::NoWeaker
    };
    levers
        .reload
        .try_send(ReloadRequest { strictness, done })
        .map_err(|_| busy())?;
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) | Err(_) => return Err(busy()),
    }
    match desk.chronicle.book().last.and_then(|last| last.error) {
        None => Ok(Done::answer("reload", true)),
        Some(why) => Err(Refused::new(
            StatusCode::CONFLICT,
            format!("the config was not taken, nothing changed: {why}"),
        )),
    }
}

/// The refusal if weir is embedded in another program, as in its quickstart.
fn none() -> Refused {
    Refused::new(
        StatusCode::CONFLICT,
        "this weir has no config file and no log of its own",
    )
}

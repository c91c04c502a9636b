//! Operators' actions on clients: end a session, block and unblock a principal.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use weir_core::live_calls::StopReason;
use weir_core::principal::Subject;

use super::super::book::Target;
use super::super::desk::Desk;
use super::super::gate::Operator;
use super::super::refused::{Refused, json};
use super::super::views::clients::session_of;
use super::wish::{self, Wish};
use super::{Done, words};
use crate::config::Time;

/// The most bytes of the name of an issuer or subject.
const LONGEST: usize = 1024;

/// The body of a request to block or unblock a principal.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Whom {
    issuer: Option<String>,
    subject: Option<String>,
    reason: Option<String>,
    ttl: Option<Time>,
}

/// A principal, with the reason and duration of an action on it.
struct Named {
    subject: Subject,
    target: Target,
    /// The principal as audit records name it.
    what: String,
    wish: Wish,
}

impl Named {
    /// Reads the request body.
    async fn read(body: Body, lasting: bool) -> Result<Self, Refused> {
        let Whom {
            issuer,
            subject,
            reason,
            ttl,
        } = wish::read(body).await?;
        let one = |text: Option<String>, name: &str| {
            let text = text.filter(|text| !text.is_empty() && text.len() <= LONGEST);
            text.ok_or_else(|| {
                Refused::bad(format!("`{name}` is missing: as `/admin/clients` shows it"))
            })
        };
        let (issuer, subject) = (one(issuer, "issuer")?, one(subject, "subject")?);
        Ok(Self {
            what: format!(
                "principal {} of {}",
                wish::plain(&subject),
                wish::plain(&issuer)
            ),
            subject: Subject::new(issuer.as_str(), subject.as_str()),
            target: Target::Principal { issuer, subject },
            wish: Wish::new(reason, ttl, lasting)?,
        })
    }
}

/// Ends a session.
pub(in super::super) async fn end(
    State(desk): State<Arc<Desk>>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, Refused> {
    let wish = Wish::read(body, false).await?;
    let ended = match session_of(&id) {
        Some(key) => desk.front.end_session(key).await,
        None => None,
    };
    let Some(principal) = ended else {
        return Err(desk.unknown(&operator, "end", "session", &id));
    };
    let what = format!("session {id} of {}", wish::plain(&principal.to_string()));
    desk.operated(&operator.0, "end", &wish.detail(&what, None), true);
    Ok(Done::answer("end", true))
}

/// Blocks a principal: its requests are refused, its streams and calls end.
pub(in super::super) async fn block(
    State(desk): State<Arc<Desk>>,
    Extension(operator): Extension<Operator>,
    body: Body,
) -> Result<Response, Refused> {
    let Named {
        subject,
        target,
        what,
        wish,
    } = Named::read(body, true).await?;
    let digest = *subject.digest();
    let expires = wish.expires(&desk);
    let change = wish.change(words::BLOCK, &operator, &desk);
    let changed = desk
        .book
        .enter(target, change, || Ok(desk.blocked.block(subject)))?;
    let ended_calls = desk.live.stop_all(
        |principal, _| *principal.digest() == digest,
        StopReason::Blocked,
    );
    let parked = desk
        .parking
        .stop(&|_, stay| *stay.principal.digest() == digest);
    let ended_streams = desk.front.end_streams(&digest);
    desk.operated(
        &operator.0,
        "block",
        &wish.detail(&what, expires.as_deref()),
        true,
    );
    let done = Done {
        ended_calls: Some(ended_calls + parked),
        ended_streams: Some(ended_streams),
        ..Done::new("block", changed)
    };
    Ok(json(StatusCode::OK, &Done { expires, ..done }))
}

/// Unblocks a principal.
pub(in super::super) async fn unblock(
    State(desk): State<Arc<Desk>>,
    Extension(operator): Extension<Operator>,
    body: Body,
) -> Result<Response, Refused> {
    let Named {
        subject,
        target,
        what,
        wish,
    } = Named::read(body, false).await?;
    let changed = desk
        .book
        .strike(&target, || desk.blocked.unblock(subject.digest()));
    desk.operated(&operator.0, "unblock", &wish.detail(&what, None), true);
    Ok(Done::answer("unblock", changed))
}

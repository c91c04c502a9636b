//! What operators change. Every change is a POST of a JSON object, has a reason where one is given,
//! ends by itself where a time is given, and is on record with who made it.

pub(super) mod clients;
pub(super) mod process;
mod wish;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tokio::time::Instant;
use weir_core::call::RequestName;
use weir_core::catalog::Closing;
use weir_core::instant::rfc3339;
use weir_core::live::Stop;
use weir_core::names::UpstreamId;
use weir_core::principal::Subject;

use super::book::{Change, Target};
use super::desk::Desk;
use super::gate::Operator;
use super::refused::{Refused, json};
use super::views::calls;
use wish::Wish;

/// What can be done to an upstream.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnUpstream {
    /// Nothing of it is served, and its calls end now.
    Disable,
    /// As it was before.
    Enable,
    /// Its calls may end, and no new ones begin.
    Drain,
    /// Its lists are walked now.
    Refresh,
}

/// What changes that last are called: in answers, in records, and by one process to the next.
pub(super) mod words {
    pub(in super::super) const DISABLE: &str = "disable";
    pub(in super::super) const DRAIN: &str = "drain";
    pub(in super::super) const BLOCK: &str = "block";
    pub(in super::super) const LOG: &str = "log";
    pub(in super::super) const ALL: [&str; 4] = [DISABLE, DRAIN, BLOCK, LOG];
}

impl OnUpstream {
    const fn word(self) -> &'static str {
        match self {
            Self::Disable => words::DISABLE,
            Self::Enable => "enable",
            Self::Drain => words::DRAIN,
            Self::Refresh => "refresh",
        }
    }
}

/// The answer to a change.
#[derive(Serialize)]
pub(super) struct Done {
    /// What was done.
    done: &'static str,
    /// False: it was so already, and nothing changed.
    changed: bool,
    /// When it undoes itself.
    expires: Option<String>,
    /// Calls that were ended by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_calls: Option<usize>,
    /// Streams that were ended by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_streams: Option<usize>,
}

impl Done {
    fn new(done: &'static str, changed: bool) -> Self {
        Self {
            done,
            changed,
            expires: None,
            ended_calls: None,
            ended_streams: None,
        }
    }

    fn answer(done: &'static str, changed: bool) -> Response {
        json(StatusCode::OK, &Self::new(done, changed))
    }
}

/// Disables, enables, drains or refreshes an upstream.
pub(super) async fn on_upstream(
    act: OnUpstream,
    State(desk): State<Arc<Desk>>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, Refused> {
    let lasting = matches!(act, OnUpstream::Disable | OnUpstream::Drain);
    let wish = Wish::read(body, lasting).await?;
    let known = UpstreamId::new(id.as_str()).ok();
    let known = known.filter(|id| {
        desk.catalog
            .status()
            .iter()
            .any(|upstream| upstream.id == *id)
    });
    let Some(id) = known else {
        return Err(desk.unknown(&operator, act.word(), "upstream", &id));
    };
    let target = Target::Upstream(id.clone());
    let expires = wish.expires(&desk);
    let mut ended_calls = None;
    let changed = match act {
        OnUpstream::Disable | OnUpstream::Drain => {
            let closing = if matches!(act, OnUpstream::Disable) {
                Closing::Disabled
            } else {
                Closing::Draining
            };
            let changed =
                desk.book
                    .enter(target, wish.change(act.word(), &operator, &desk), || {
                        let changed = desk
                            .catalog
                            .closed(&id)
                            .is_none_or(|closed| closed.how != closing);
                        desk.catalog.close(&id, closing);
                        Ok(changed)
                    })?;
            if closing == Closing::Disabled {
                let own = |_: &_, item: &weir_core::catalog::Item| item.tool.upstream == id;
                let parked = desk.parking.stop(&|_, stay| stay.upstream == id);
                ended_calls = Some(desk.live.stop_all(own, Stop::Disabled) + parked);
            }
            changed
        }
        OnUpstream::Enable => desk.book.strike(&target, || desk.catalog.reopen(&id)),
        OnUpstream::Refresh => desk.catalog.walk_now(&id),
    };
    desk.operated(
        &operator.0,
        act.word(),
        &wish.detail(&format!("upstream {id}"), expires.as_deref()),
        true,
    );
    Ok(json(
        StatusCode::OK,
        &Done {
            expires,
            ended_calls,
            ..Done::new(act.word(), changed)
        },
    ))
}

/// Cancels a call, whether it runs or waits for its client.
pub(super) async fn cancel(
    State(desk): State<Arc<Desk>>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, Refused> {
    let wish = Wish::read(body, false).await?;
    let Some((request, tool)) = desk.cancelled(&id).or_else(|| desk.cancelled_parked(&id)) else {
        return Err(desk.unknown(&operator, "cancel", "call", &id));
    };
    let what = format!(
        "call {id}, request {}, of {}",
        request.as_str(),
        wish::plain(&tool)
    );
    desk.operated(&operator.0, "cancel", &wish.detail(&what, None), true);
    Ok(Done::answer("cancel", true))
}

impl Wish {
    /// When the change undoes itself; for the answer.
    fn expires(&self, desk: &Desk) -> Option<String> {
        self.ttl
            .and_then(|ttl| desk.now().checked_add(ttl))
            .map(rfc3339)
    }

    fn change(&self, what: &'static str, operator: &Operator, desk: &Desk) -> Change {
        let since = desk.now();
        let ends = self
            .ttl
            .and_then(|ttl| Some((since.checked_add(ttl)?, Instant::now() + ttl)));
        Change {
            what,
            who: operator.0.clone(),
            reason: self.reason.clone(),
            since,
            ends,
        }
    }

    /// What the record says: of what it was, why, and until when.
    fn detail(&self, of: &str, expires: Option<&str>) -> String {
        let reason = self.reason.iter().map(|reason| format!("; {reason}"));
        let until = expires.iter().map(|expires| format!("; until {expires}"));
        std::iter::once(of.to_owned())
            .chain(until)
            .chain(reason)
            .collect()
    }
}

impl Desk {
    /// Cancels a call that runs: the request that made it, and what it is of.
    fn cancelled(&self, id: &str) -> Option<(RequestName, Arc<str>)> {
        let call = self
            .live
            .all()
            .into_iter()
            .find(|call| calls::name(call.id) == id)?;
        let was_there = self.live.stop(call.id, Stop::Cancelled);
        was_there.then(|| (call.call.request.clone(), call.item.exposed))
    }

    /// The same for one that waits: its client hears of it when it comes back.
    fn cancelled_parked(&self, id: &str) -> Option<(RequestName, Arc<str>)> {
        let call = self
            .parking
            .waiting()
            .into_iter()
            .find(|call| calls::parked_name(call.number) == id)?;
        let dropped = self.parking.stop(&|number, _| number == call.number);
        (dropped > 0).then_some((call.stay.request, call.stay.exposed))
    }

    /// Records that something was to be done to what is not there, and says so.
    fn unknown(&self, operator: &Operator, act: &str, what: &str, id: &str) -> Refused {
        self.operated(
            &operator.0,
            act,
            &format!("{what} {}: unknown", wish::plain(id)),
            false,
        );
        Refused::unknown(what, id)
    }

    /// Undoes a change whose time is over.
    pub(super) fn undo(&self, target: &Target) {
        match target {
            Target::Upstream(id) => {
                self.catalog.reopen(id);
            }
            Target::Principal { issuer, subject } => {
                self.blocked
                    .unblock(Subject::new(issuer.as_str(), subject.as_str()).digest());
            }
            Target::Log(_) => {
                let reset = self.levers().map(|levers| levers.log.reset());
                if let Some(Err(error)) = reset {
                    tracing::error!(error, "the log level cannot be taken back");
                }
            }
        }
    }
}

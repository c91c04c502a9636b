//! The modern server: revision 2026-07-28. Every request carries its whole context, there is no
//! session, and a client cancels a call by closing the response stream.

mod clock;
mod desk_tools;
mod envelope;
mod expression;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use weir_wire::log_level::LogLevel;
use weir_wire::{error_code, meta};

use crate::host::{ServeRequest, SignalReceiver};
use crate::http::{self as web, DemoBody};
use crate::rpc::{self, DemoFault, DemoMessage};
use desk_tools::{Countdown, CountdownSubscriber};

/// The most countdowns at one time: each holds a timer and a connection.
const MAX_COUNTDOWNS: usize = 64;
/// The time that a client without a listen stream may cache a list, in milliseconds.
const LIST_TTL_MS: u64 = 5_000;

/// The state of the server, which is little.
#[derive(Debug)]
pub(crate) struct DeskServer {
    signals: SignalReceiver,
    countdowns: Arc<AtomicUsize>,
}

impl DeskServer {
    pub(crate) fn new(signals: SignalReceiver) -> Self {
        Self {
            signals,
            countdowns: Arc::default(),
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<DemoBody>, Box<Response<DemoBody>>> {
        web::check_head(&request, &[Method::POST])?;
        let (head, body) = request.into_parts();
        let body = web::read(body).await?;
        let parsed = match serde_json::from_slice(&body) {
            Ok(message) => rpc::parse(message),
            Err(error) => {
                let fault = DemoFault::new(
                    error_code::PARSE_ERROR,
                    format!("the body is not JSON: {error}"),
                );
                Err(Box::new(rpc::MalformedMessage { id: None, fault }))
            }
        };
        Ok(match parsed {
            Ok(DemoMessage::Request(request)) => self.dispatch(&head.headers, request),
            Ok(DemoMessage::Notification) => web::empty(StatusCode::ACCEPTED),
            Ok(DemoMessage::Response) => {
                let fault = DemoFault::new(
                    error_code::INVALID_REQUEST,
                    "responses are not posted in this revision",
                );
                web::json(StatusCode::BAD_REQUEST, &fault.message(None))
            }
            Err(bad) => web::json(StatusCode::BAD_REQUEST, &bad.fault.message(bad.id.as_ref())),
        })
    }

    fn dispatch(&self, headers: &HeaderMap, request: rpc::DemoRequest) -> Response<DemoBody> {
        if let Err((status, fault)) = envelope::check(headers, &request) {
            return web::json(status, &fault.message(Some(&request.id)));
        }
        let outcome = match request.method.as_str() {
            "server/discover" => Ok(discover()),
            "tools/list" => self.list(&request),
            "subscriptions/listen" => match wants_tools(&request) {
                Ok(wanted) => return web::events(self.listen(request.id, wanted)),
                Err(fault) => Err(fault),
            },
            _ => match self.call(&request) {
                Ok(DeskCallOutcome::Now(result)) => Ok(result),
                Ok(DeskCallOutcome::Later(response)) => return response,
                Err(fault) => Err(fault),
            },
        };
        let message = match outcome {
            Ok(result) => rpc::result(&request.id, &envelope::complete(result)),
            Err(fault) => fault.message(Some(&request.id)),
        };
        web::json(StatusCode::OK, &message)
    }

    fn list(&self, request: &rpc::DemoRequest) -> Result<Value, DemoFault> {
        if request.string("cursor")?.is_some() {
            return Err(DemoFault::params(
                "this server never gave out that cursor: its list has one page",
            ));
        }
        let tools = desk_tools::list(self.signals.borrow().revealed);
        Ok(json!({"tools": tools, "ttlMs": LIST_TTL_MS, "cacheScope": "public"}))
    }

    fn call(&self, request: &rpc::DemoRequest) -> Result<DeskCallOutcome, DemoFault> {
        let (name, arguments) = request.tool_call()?;
        let watching = CountdownSubscriber {
            progress_token: request.progress_token(),
            log_level: log_level(request)?,
        };
        if name != "countdown" {
            let result = desk_tools::call(name, &arguments, self.signals.borrow().revealed);
            return result
                .map(DeskCallOutcome::Now)
                .ok_or_else(|| DemoFault::params(format!("unknown tool: {name}")));
        }
        let countdown = match Countdown::new(&arguments) {
            Ok(countdown) => countdown,
            Err(why) => return Ok(DeskCallOutcome::Now(rpc::tool_text(why, true))),
        };
        let Some(place) = CountdownPermit::take(&self.countdowns) else {
            let why = "Too many countdowns are running. Try again when some have ended.";
            return Ok(DeskCallOutcome::Now(rpc::tool_text(why, true)));
        };
        // The permit lives in the stream, so any end of the stream frees it.
        let messages = countdown
            .run(&request.id, watching)
            .map(move |message| (&place, message).1);
        Ok(DeskCallOutcome::Later(web::events(messages)))
    }

    /// Sends the acknowledgement, then one message for each change, then the closing result when
    /// the server ends.
    fn listen(&self, id: Value, wanted: bool) -> impl Stream<Item = Value> + Send + 'static {
        let granted = if wanted {
            json!({"toolsListChanged": true})
        } else {
            json!({})
        };
        let mark = json!({meta::SUBSCRIPTION_ID: id});
        let params = json!({"notifications": granted, "_meta": mark});
        let opening = rpc::notification("notifications/subscriptions/acknowledged", &params);
        let state = Some((self.signals.clone(), self.signals.borrow().revealed));
        let changes = stream::unfold(state, move |state| {
            let (id, mark) = (id.clone(), mark.clone());
            async move {
                let (mut signals, seen) = state?;
                let news = signals
                    .wait_for(|signal| signal.stopping || (wanted && signal.revealed != seen))
                    .await;
                match news.map(|signal| *signal) {
                    Ok(signal) if !signal.stopping => {
                        let changed = rpc::notification(
                            "notifications/tools/list_changed",
                            &json!({"_meta": mark}),
                        );
                        Some((changed, Some((signals, signal.revealed))))
                    }
                    _ => Some((
                        rpc::result(&id, &envelope::complete(json!({"_meta": mark}))),
                        None,
                    )),
                }
            }
        });
        stream::iter([opening]).chain(changes)
    }
}

impl ServeRequest for DeskServer {
    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<DemoBody> {
        self.answer(request)
            .await
            .unwrap_or_else(|refusal| *refusal)
    }
}

enum DeskCallOutcome {
    Now(Value),
    Later(Response<DemoBody>),
}

/// One of the [`MAX_COUNTDOWNS`] permits, given back when dropped.
struct CountdownPermit(Arc<AtomicUsize>);

impl CountdownPermit {
    fn take(places: &Arc<AtomicUsize>) -> Option<Self> {
        let taken = places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < MAX_COUNTDOWNS).then_some(taken + 1)
        });
        taken.ok().map(|_| Self(Arc::clone(places)))
    }
}

impl Drop for CountdownPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn discover() -> Value {
    json!({
        "supportedVersions": [envelope::REVISION],
        "capabilities": {"tools": {"listChanged": true}, "logging": {}},
        "instructions": "A clock, a calculator and a countdown.",
        "ttlMs": 3_600_000,
        "cacheScope": "public",
    })
}

fn wants_tools(request: &rpc::DemoRequest) -> Result<bool, DemoFault> {
    let wrong =
        || DemoFault::params("params.notifications must be an object of notification types");
    let filter = request
        .params
        .get("notifications")
        .and_then(Value::as_object)
        .ok_or_else(wrong)?;
    match filter.get("toolsListChanged") {
        None => Ok(false),
        Some(wanted) => wanted.as_bool().ok_or_else(wrong),
    }
}

fn log_level(request: &rpc::DemoRequest) -> Result<Option<LogLevel>, DemoFault> {
    match request
        .params
        .get("_meta")
        .and_then(|meta| meta.get(meta::LOG_LEVEL))
    {
        None => Ok(None),
        Some(level) => match level.as_str().and_then(LogLevel::parse) {
            Some(level) => Ok(Some(level)),
            None => Err(DemoFault::params(
                "the log level in _meta is not one of the eight levels",
            )),
        },
    }
}

//! Watches over HTTP: a legacy session of its own with a GET stream, or a modern `subscriptions/listen`.
//!
//! A task reads the stream and only sets a mark, so that changes during a walk are kept, never more than one. It is
//! aborted when the watch is dropped, which closes its connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method as Verb, StatusCode, header};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use weir_core::port::Fut;
use weir_core::upstream::{About, ListKind, ListPage, Watch};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::hop::{self, Heard};
use weir_era::lower;
use weir_wire::method::Method;
use weir_wire::{Incoming, Message};

use super::answer::{Answer, Part, limits};
use super::exchange::{self, EVENTS, Headed, media_type, unreadable};
use super::modern::Modern;
use super::session::Session;
use super::talk::Side;
use crate::listing;
use crate::refusal::Refusal;
use crate::site::Site;

/// A GET stream that lived shorter than this is not opened again at once.
const BRIEF: Duration = Duration::from_secs(1);

/// What a watch's reading task tells.
#[derive(Clone, Debug, Default)]
struct Seen {
    changes: u64,
    lost: Option<Arc<str>>,
}

/// A watch on a server over HTTP.
pub(crate) struct HttpWatch {
    site: Arc<Site>,
    line: Line,
    about: About,
    seen: watch::Receiver<Seen>,
    /// Changes heard on the streams of calls.
    overheard: watch::Receiver<u64>,
    reader: Option<AbortHandle>,
}

enum Line {
    Session(Arc<Session>),
    Modern(Modern, CapabilityClass),
}

impl HttpWatch {
    /// Watches in a session of its own. Where the server has no GET stream the lists are polled.
    pub(crate) async fn legacy(site: Arc<Site>, session: Arc<Session>) -> Self {
        let mut about = session.about().clone();
        let (teller, seen) = watch::channel(Seen::default());
        let overheard = site.changes();
        let reader = match get(&session, None).await {
            Some(stream) => site.spawn(read_session(site.clone(), session.clone(), stream, teller)),
            None => {
                about.pushes = false;
                None
            }
        };
        Self { site, line: Line::Session(session), about, seen, overheard, reader }
    }

    /// Listens, where the server says that it tells of changes.
    ///
    /// # Errors
    /// The server cannot be reached, or does not keep to the protocol of the subscription.
    pub(crate) async fn modern(modern: Modern, mut about: About, class: CapabilityClass) -> Result<Self, Refusal> {
        let site = modern.site.clone();
        let (teller, seen) = watch::channel(Seen::default());
        let overheard = site.changes();
        let mut reader = None;
        if about.pushes {
            match listen(&modern, class).await? {
                Some(stream) => {
                    reader = site.spawn(read_listen(site.clone(), stream, teller));
                }
                None => about.pushes = false,
            }
        }
        Ok(Self { site, line: Line::Modern(modern, class), about, seen, overheard, reader })
    }
}

impl Watch for HttpWatch {
    fn about(&self) -> &About {
        &self.about
    }

    fn list(&mut self, kind: ListKind, cursor: Option<String>) -> Fut<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let ListKind::Tools = kind;
            let text = cursor.as_deref().map(lower::json);
            let members: Vec<(&str, &[u8])> = text.iter().map(|text| ("cursor", &text[..])).collect();
            let (outcome, tongue) = match &self.line {
                Line::Session(session) => (session.ask(Method::ToolsList, &members).await, session.tongue()),
                Line::Modern(modern, class) => (modern.ask(*class, Method::ToolsList, &members).await, modern.tongue),
            };
            let drop_bad_mirrors = matches!(self.line, Line::Modern(..));
            listing::page(&self.site, tongue, outcome, drop_bad_mirrors)
        })
    }

    fn changed(&mut self) -> Fut<'_, Result<ListKind, Failure>> {
        Box::pin(async move {
            loop {
                let reading = self.reader.is_some();
                if let Some(why) = self.seen.borrow().lost.clone() {
                    let text = "The upstream's change stream was lost";
                    return Err(self.site.fail(FailureKind::Unavailable, text).because(why.to_string()));
                }
                tokio::select! {
                    told = self.seen.changed(), if reading => {
                        if told.is_err() {
                            return Err(self.site.fail(FailureKind::Unavailable, "The upstream's change stream ended"));
                        }
                        if self.seen.borrow().lost.is_none() {
                            return Ok(ListKind::Tools);
                        }
                    }
                    told = self.overheard.changed() => {
                        if told.is_err() {
                            return Err(self.site.fail(FailureKind::Unavailable, "The upstream is gone"));
                        }
                        return Ok(ListKind::Tools);
                    }
                }
            }
        })
    }
}

impl Drop for HttpWatch {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.abort();
        }
        if let Line::Session(session) = &self.line {
            let session = session.clone();
            self.site.spawn(async move { session.close().await });
        }
    }
}

/// Opens the GET stream of a session; `None` where the server has none.
async fn get(session: &Session, last_event: Option<&str>) -> Option<Answer> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = session.headers();
    headers.push((header::ACCEPT, EVENTS));
    if let Some(id) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.push((HeaderName::from_static("last-event-id"), id));
    }
    let request = session.http().send(Verb::GET, headers, Bytes::new());
    let response = tokio::time::timeout(weir_core::upstream::Deadlines::LIST.hard, request).await.ok()?.ok()?;
    let (head, body) = response.into_parts();
    let is_stream = head.status == StatusCode::OK && media_type(&head.headers).as_deref() == Some("text/event-stream");
    is_stream.then(|| Answer::events(body, session.max_reply()).endless())
}

/// Reads a session's GET stream for as long as it can be had. A server may end it at any time to have it opened again;
/// what happened in between is unknown, so that counts as a change.
async fn read_session(site: Arc<Site>, session: Arc<Session>, first: Answer, teller: watch::Sender<Seen>) {
    let mut stream = first;
    let (mut last_event, mut retry) = (None, None);
    loop {
        let began = tokio::time::Instant::now();
        read(&site, &mut stream, &teller, &mut last_event, &mut retry, Some(&session)).await;
        let wait = retry.map(|millis: u64| Duration::from_millis(millis.min(30_000)));
        let brief = began.elapsed() < BRIEF;
        tokio::time::sleep(wait.unwrap_or(if brief { BRIEF } else { Duration::ZERO })).await;
        match get(&session, last_event.as_deref()).await {
            Some(again) => stream = again,
            None => {
                teller.send_modify(|seen| seen.lost = Some("the stream was not given again".into()));
                return;
            }
        }
        teller.send_modify(|seen| seen.changes += 1);
    }
}

/// Opens `subscriptions/listen`, whose first message is the acknowledgment. `None` where the server will not tell of
/// tools after all.
async fn listen(modern: &Modern, class: CapabilityClass) -> Result<Option<Answer>, Refusal> {
    let site = &modern.site;
    let id = site.next_id();
    let members: &[(&str, &[u8])] = &[("notifications", br#"{"toolsListChanged":true}"#)];
    let body = modern.tongue.request(id, Method::SubscriptionsListen, members, (class, &site.client_info));
    crate::settle::in_time(site, async {
        let headers = modern.headers(Method::SubscriptionsListen);
        let mut stream = match exchange::post(site, &modern.http, headers, body).await? {
            Headed::Answer(_, answer) => answer.endless(),
            Headed::Accepted => return Ok(None),
            // A server without subscriptions says that it does not know the method; its lists are polled.
            Headed::Refused(refused) if refused.error.is_some() => return Ok(None),
            Headed::Refused(refused) => return Err(refused.into_refusal(site)),
        };
        loop {
            match stream.part().await.map_err(|error| Refusal::new(unreadable(site, error)))? {
                Some(Part::Message(bytes)) => match Message::parse(bytes, &limits()) {
                    Ok(Message::Notification(told)) if told.method == Method::SubscriptionsAcknowledged.into() => {
                        return Ok(told.params.is_some_and(|params| listing::honours_tools(&params)).then_some(stream));
                    }
                    Ok(Message::Response(_)) => return Ok(None),
                    _ => site.dropped("before_acknowledgment"),
                },
                Some(_) => {}
                None => return Ok(None),
            }
        }
    })
    .await
}

async fn read_listen(site: Arc<Site>, mut stream: Answer, teller: watch::Sender<Seen>) {
    let (mut last_event, mut retry) = (None, None);
    let why = read(&site, &mut stream, &teller, &mut last_event, &mut retry, None).await;
    teller.send_modify(|seen| seen.lost = Some(why.into()));
}

/// Reads one stream to its end.
async fn read(
    site: &Arc<Site>,
    stream: &mut Answer,
    teller: &watch::Sender<Seen>,
    last_event: &mut Option<String>,
    retry: &mut Option<u64>,
    session: Option<&Arc<Session>>,
) -> String {
    loop {
        let bytes = match stream.part().await {
            Ok(Some(Part::Message(bytes))) => bytes,
            Ok(Some(Part::Mark { id, retry: wait })) => {
                // The id must fit a header; an empty one takes back the last.
                if let Some(id) = id {
                    *last_event = Some(id).filter(|id| !id.is_empty() && id.len() <= 1024);
                }
                *retry = wait.or(*retry);
                continue;
            }
            Ok(Some(_)) => continue,
            Ok(None) => return "the stream ended".to_owned(),
            Err(error) => return error.to_string(),
        };
        let messages = match Incoming::parse(bytes, &limits()) {
            Ok(Incoming::One(message)) => vec![message],
            Ok(Incoming::Batch(items)) => {
                items.into_iter().filter_map(|item| Message::parse(item, &limits()).ok()).collect()
            }
            Err(_) => {
                site.dropped("malformed");
                continue;
            }
        };
        for message in messages {
            match overhear(message, session.is_some()) {
                Heard::ToolsChanged => {
                    site.count_change();
                    teller.send_modify(|seen| seen.changes += 1);
                }
                Heard::Reply(answer) => {
                    if let Some(session) = session {
                        session.send(answer);
                    }
                }
                Heard::Answer(Ok(_)) => return "the server ended the subscription".to_owned(),
                Heard::Dropped(why) => site.dropped(why),
                _ => {}
            }
        }
    }
}

/// What a message means to a watch.
fn overhear(message: Message, in_session: bool) -> Heard {
    match message {
        Message::Notification(told) => match told.method.known() {
            Some(Method::ToolsListChanged) => Heard::ToolsChanged,
            Some(_) => Heard::Nothing,
            None => Heard::Dropped("unknown_notification"),
        },
        Message::Request(request) if in_session => Heard::Reply(hop::answer(&request)),
        Message::Request(_) => Heard::Dropped("server_request"),
        Message::Response(response) if !in_session => Heard::Answer(response.outcome),
        Message::Response(_) => Heard::Dropped("unknown_id"),
    }
}

//! Reads the streams of a watch, and reopens them while the server allows it.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::upstream::ListKinds;
use weir_era::upstream_messages::{self, MessageClass};
use weir_upstream_core::message_limits::message_limits;
use weir_upstream_core::retry_backoff::least_wait;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::method::Method;
use weir_wire::{IncomingMessage, Message};

use super::reading_state::{ReadingPermit, ReadingPublisher, ReadingTask};
use super::response_part::{ResponsePart, ResponseReadError};
use super::response_reader::ResponseReader;
use super::session_channel::SessionChannel;
use super::standing_stream;

/// The shortest life of a stream that is reopened at once. After shorter ones the wait doubles.
const BRIEF_STREAM: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait that a server may ask for.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(300);

/// Starts to read the GET stream of a session; absent if it has no such stream. Without the permit
/// the reader does not mark the session's lists as heard. With an `alone`, the stream's requests to the client
/// are served.
///
/// The reader does not keep the session alive: it ends when its last other owner drops it.
pub(crate) async fn start_reading(
    site: &Arc<UpstreamContext>,
    session: &Arc<SessionChannel>,
    permit: ReadingPermit,
    teller: ReadingPublisher,
    alone: Option<standing_stream::StandingReader>,
) -> Option<ReadingTask> {
    let session_of = Arc::downgrade(session);
    let reader = StreamReader {
        site: site.clone(),
        teller,
        session: Some(session_of),
        permit: Some(permit),
        request: None,
        alone,
        last_event: None,
        retry: None,
        heard: false,
    };
    let mut opening = Box::pin(session.clone().open_get_stream(None));
    let head_wait = site.own_requests.deadlines.stream_head;
    let task = match tokio::time::timeout(head_wait, &mut opening).await {
        Ok(stream) => {
            let stream = stream?;
            session.set_lists_heard(permit, true);
            site.tasks.spawn_endless(reader.read_on(stream))
        }
        // Some servers send the head with the first event, and the caller must not wait for that.
        Err(_) => site.tasks.spawn_endless(async move {
            match opening.await {
                Some(stream) => {
                    reader.heard_in_session(true);
                    reader.read_on(stream).await;
                }
                None => reader.lost("there is no such stream after all"),
            }
        }),
    };
    Some(ReadingTask::new(task))
}

/// A subscription: its stream, and the request that opened it.
pub(crate) struct HttpSubscription {
    pub(crate) stream: ResponseReader,
    pub(crate) id: u64,
}

/// Reads a subscription to its end.
pub(crate) async fn read_subscription(
    site: Arc<UpstreamContext>,
    subscription: HttpSubscription,
    teller: ReadingPublisher,
) {
    let HttpSubscription { mut stream, id } = subscription;
    let request = Some(id);
    let (last_event, retry) = (None, None);
    let mut reader = StreamReader {
        site,
        teller,
        session: None,
        permit: None,
        request,
        alone: None,
        last_event,
        retry,
        heard: false,
    };
    let why = reader.read(&mut stream).await;
    reader.lost(&why);
}

struct StreamReader {
    site: Arc<UpstreamContext>,
    teller: ReadingPublisher,
    /// Present for a legacy stream, on which the server may send requests.
    session: Option<Weak<SessionChannel>>,
    /// The permission to read that stream.
    permit: Option<ReadingPermit>,
    /// The request that opened a subscription: its response ends it.
    request: Option<u64>,
    /// Present if a client can be asked there.
    alone: Option<standing_stream::StandingReader>,
    last_event: Option<String>,
    retry: Option<u64>,
    /// True if a message came on the current stream.
    heard: bool,
}

impl StreamReader {
    /// Reads a session's GET stream. A server may end it at any time to have it reopened. Events in
    /// between are unknown, so the gap counts as a change.
    async fn read_on(mut self, mut stream: ResponseReader) {
        let mut wait = FIRST_WAIT;
        let mut in_vain = 0;
        loop {
            let began = Instant::now();
            let over = self
                .session()
                .map(|session| session.over().clone())
                .unwrap_or_default();
            self.heard = false;
            if over
                .run_until_cancelled(self.read(&mut stream))
                .await
                .is_none()
            {
                return self.lost("weir ended the session");
            }
            let brief = began.elapsed() < BRIEF_STREAM;
            wait = if brief {
                (wait * 2).min(LAST_WAIT)
            } else {
                FIRST_WAIT
            };
            // A server that makes its clients poll like this sends a message on each stream.
            in_vain = if brief && !self.heard { in_vain + 1 } else { 0 };
            let asked = self
                .retry
                .map(|millis| Duration::from_millis(millis).min(MAX_RETRY_WAIT));
            tokio::time::sleep(asked.unwrap_or(wait / 2).max(least_wait(in_vain))).await;
            let Some(session) = self.session() else {
                return;
            };
            self.heard_in_session(false);
            match session.open_get_stream(self.last_event.clone()).await {
                Some(again) => stream = again,
                None => return self.lost("the stream was not given again"),
            }
            self.heard_in_session(true);
            self.teller.changed(ListKinds::default());
            if let Some(updates) = self.teller.updates() {
                updates.add_all();
            }
        }
    }

    fn heard_in_session(&self, is_heard: bool) {
        if let Some((session, permit)) = self.session().zip(self.permit) {
            session.set_lists_heard(permit, is_heard);
        }
    }

    fn session(&self) -> Option<Arc<SessionChannel>> {
        self.session.as_ref().and_then(Weak::upgrade)
    }

    /// Sends a message to the server of a legacy stream.
    fn send(&self, message: Bytes) {
        if let Some(session) = self.session() {
            session.send(message);
        }
    }

    /// Polls the next part of the stream. Meanwhile the client's answers are sent.
    fn poll_part(
        &mut self,
        stream: &mut ResponseReader,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<ResponsePart>, ResponseReadError>> {
        if let Some(alone) = &mut self.alone {
            let session = &self.session;
            alone.poll(cx, |message| {
                if let Some(session) = session.as_ref().and_then(Weak::upgrade) {
                    session.send(message);
                }
            });
        }
        stream.poll_part(cx)
    }

    /// Reads one stream to its end, and returns the reason of the end.
    async fn read(&mut self, stream: &mut ResponseReader) -> String {
        loop {
            match poll_fn(|cx| self.poll_part(stream, cx)).await {
                Ok(Some(ResponsePart::Message(bytes))) => {
                    self.heard = true;
                    for message in self.messages(bytes) {
                        if let Some(end) = self.take(message) {
                            return end.to_owned();
                        }
                    }
                }
                Ok(Some(ResponsePart::Mark { id, retry })) => {
                    // An empty id resets the last one; an id that is too long for a header is
                    // ignored.
                    if let Some(id) = id {
                        self.last_event = Some(id).filter(|id| !id.is_empty() && id.len() <= 1024);
                    }
                    self.retry = retry.or(self.retry);
                }
                Ok(Some(_)) => {}
                Ok(None) => return "the stream ended".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn messages(&self, bytes: Bytes) -> Vec<Message> {
        match IncomingMessage::parse(bytes, &message_limits()) {
            Ok(IncomingMessage::One(message)) => vec![message],
            Ok(IncomingMessage::Batch(items)) => items
                .into_iter()
                .filter_map(|item| Message::parse(item, &message_limits()).ok())
                .collect(),
            Err(_) => {
                self.site.label.count_dropped("malformed");
                Vec::new()
            }
        }
    }

    /// Takes one message. Returns a text if it ends the stream.
    fn take(&mut self, message: Message) -> Option<&'static str> {
        if self
            .session()
            .is_some_and(|session| session.take_list_message(&message))
        {
            return None;
        }
        if let Some(alone) = &mut self.alone {
            if let Some(answer) = alone.take(message) {
                self.send(answer);
            }
            return None;
        }
        if let (Message::Notification(told), Some(updates)) = (&message, self.teller.updates())
            && let Some(uri) = upstream_messages::updated_resource(told)
        {
            updates.add(&uri);
            return None;
        }
        if self.teller.is_of_task()
            && matches!(&message, Message::Notification(told) if told.method.known() == Some(Method::Tasks))
        {
            self.teller.changed(ListKinds::default());
            return None;
        }
        match self.classify(message) {
            MessageClass::ListChanged(kinds) => {
                self.site.list_changes.count();
                self.teller.changed(kinds);
            }
            MessageClass::Reply(answer) => self.send(answer),
            MessageClass::Answer(_) => return Some("the server ended the subscription"),
            MessageClass::Dropped(why) => self.site.label.count_dropped(why),
            MessageClass::Note(_)
            | MessageClass::Ask(_)
            | MessageClass::Withdrawn(_)
            | MessageClass::Ignored => {}
        }
        None
    }

    /// Classifies a message for a watch.
    fn classify(&self, message: Message) -> MessageClass {
        match message {
            Message::Notification(told) => match told.method.known() {
                Some(
                    method @ (Method::ToolsListChanged
                    | Method::PromptsListChanged
                    | Method::ResourcesListChanged),
                ) => MessageClass::ListChanged(upstream_messages::changed_lists(method)),
                Some(_) => MessageClass::Ignored,
                None => MessageClass::Dropped("unknown_notification"),
            },
            Message::Request(request) if self.session.is_some() => {
                MessageClass::Reply(upstream_messages::answer_outside_call(&request))
            }
            Message::Request(_) => MessageClass::Dropped("server_request"),
            message @ Message::Response(_)
                if self.request.is_none()
                    || upstream_messages::request_of(&message) != self.request =>
            {
                MessageClass::Dropped("unknown_id")
            }
            Message::Response(response) => MessageClass::Answer(response.outcome),
        }
    }

    fn lost(&self, why: &str) {
        self.heard_in_session(false);
        self.teller.lost(why);
    }
}

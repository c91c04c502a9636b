//! Reads the streams of a watch, and reopens them while the server allows it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::port::{doubled, half_jitter};
use weir_core::upstream::ListKinds;
use weir_era::upstream_messages::{self, DropReason, MessageClass};
use weir_upstream_core::message_limits::message_limits;
use weir_upstream_core::retry_backoff::least_wait;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::method::Method;
use weir_wire::sse::{MAX_RETRY_WAIT, ResumePoint};
use weir_wire::{IncomingMessage, Message};

use crate::reading_state::{ReadingPermit, ReadingPublisher, ReadingTask};
use crate::response_part::{LARGE_EVENT, ResponsePart, ResponseReadError};
use crate::response_reader::ResponseReader;
use crate::session_channel::SessionChannel;
use crate::side_channel::StreamRefusal;
use crate::standing_stream::StandingReader;

/// The shortest life of a stream that is reopened soon. After shorter ones the wait doubles.
pub(crate) const BRIEF_STREAM: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_secs(30);

/// Starts to read the GET stream of a session; absent if it has no such stream. After the end of
/// the permit the reader does not mark the session's lists as heard. With a `standing_reader`, the
/// stream's requests to the client are served, and the stream is requested again while the server
/// does not open it now. The owner of another reader opens another stream.
///
/// The reader does not keep the session alive: it ends when its last other owner drops it.
pub(crate) async fn start_reading(
    context: &Arc<UpstreamContext>,
    session: &Arc<SessionChannel>,
    permit: ReadingPermit,
    publisher: ReadingPublisher,
    standing_reader: Option<StandingReader>,
) -> Option<ReadingTask> {
    let kind = ReadStreamKind::Session(SessionStream {
        channel: Arc::downgrade(session),
        permit,
        standing_reader,
    });
    let mut reader = StreamReader::new(context.clone(), publisher, kind);
    let mut opening = Box::pin(session.clone().open_get_stream(None));
    let head_wait = context.own_requests.deadlines.stream_head;
    let task = match tokio::time::timeout(head_wait, &mut opening).await {
        Ok(Ok(stream)) => {
            session.set_lists_heard(permit, true);
            context.tasks.spawn_endless(reader.read_on(stream))
        }
        Ok(Err(refusal)) => {
            let wait = reader.wait_after(refusal, FIRST_WAIT)?;
            context.tasks.spawn_endless(async move {
                if let Some(stream) = reader.reopen(wait).await {
                    reader.read_on(stream).await;
                }
            })
        }
        // Some servers send the head with the first event, and the caller must not wait for that.
        Err(_) => context.tasks.spawn_endless(async move {
            let opened = match opening.await {
                Ok(stream) => {
                    reader.heard_in_session(true);
                    Some(stream)
                }
                Err(refusal) => match reader.wait_after(refusal, FIRST_WAIT) {
                    Some(wait) => reader.reopen(wait).await,
                    None => return reader.lost("there is no such stream after all"),
                },
            };
            if let Some(stream) = opened {
                reader.read_on(stream).await;
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

/// Starts the task that reads a subscription to its end.
pub(crate) fn read_subscription(
    context: &Arc<UpstreamContext>,
    subscription: HttpSubscription,
    publisher: ReadingPublisher,
) -> ReadingTask {
    let HttpSubscription { mut stream, id } = subscription;
    let kind = ReadStreamKind::Subscription(id);
    let mut reader = StreamReader::new(context.clone(), publisher, kind);
    ReadingTask::new(context.tasks.spawn_endless(async move {
        let why = reader.read(&mut stream).await;
        if reader.has_result {
            reader.publisher.ended(&why);
        } else {
            reader.lost(&why);
        }
    }))
}

struct StreamReader {
    context: Arc<UpstreamContext>,
    publisher: ReadingPublisher,
    kind: ReadStreamKind,
    point: ResumePoint,
    /// True if a message came on the current stream.
    heard: bool,
    /// True once a subscription was answered with a result.
    has_result: bool,
}

enum ReadStreamKind {
    /// The GET stream of a legacy session, on which the server may send requests.
    Session(SessionStream),
    /// A subscription. The response to the request with this id, which opened it, ends it.
    Subscription(u64),
}

/// The GET stream of a session.
struct SessionStream {
    channel: Weak<SessionChannel>,
    /// The permission to read the stream.
    permit: ReadingPermit,
    /// Present if a client can be asked there.
    standing_reader: Option<StandingReader>,
}

impl SessionStream {
    /// True for the standing stream of a session that meets this condition.
    fn is_standing_if(&self, condition: impl Fn(&SessionChannel) -> bool) -> bool {
        let is_standing = self.standing_reader.is_some();
        is_standing
            && self
                .channel
                .upgrade()
                .is_some_and(|session| condition(&session))
    }
}

impl StreamReader {
    fn new(
        context: Arc<UpstreamContext>,
        publisher: ReadingPublisher,
        kind: ReadStreamKind,
    ) -> Self {
        Self {
            context,
            publisher,
            kind,
            point: ResumePoint::default(),
            heard: false,
            has_result: false,
        }
    }

    /// Reads a session's GET stream. A server may end it at any time to have it reopened. Events in
    /// between are unknown, so the gap counts as a change.
    async fn read_on(mut self, mut stream: ResponseReader) {
        let mut brief_streams = 0;
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
            brief_streams = if brief { brief_streams + 1 } else { 0 };
            // A server that makes its clients poll like this sends a message on each stream.
            in_vain = if brief && !self.heard { in_vain + 1 } else { 0 };
            let own_wait = doubled(FIRST_WAIT, brief_streams, LAST_WAIT) / 2;
            let wait = self.point.asked_wait().unwrap_or(own_wait);
            let wait = wait.max(least_wait(in_vain));
            match self.reopen(wait).await {
                Some(again) => stream = again,
                None => return,
            }
            self.publisher.changed(ListKinds::default());
            // A server that numbers its events sends those of the gap again.
            if self.announces_shared_lists() && self.point.last_event().is_none() {
                self.context.list_changes.record(ListKinds::default());
            }
            if let Some(updates) = self.publisher.updates() {
                updates.add_all();
            }
        }
    }

    /// Opens a session's GET stream again, after a wait. Absent if the stream is lost, or its
    /// session is over.
    async fn reopen(&mut self, mut wait: Duration) -> Option<ResponseReader> {
        loop {
            self.answering(tokio::time::sleep(wait)).await;
            let session = self.session()?;
            self.heard_in_session(false);
            let last_event = self.point.last_event().map(str::to_owned);
            let opening = session.open_get_stream(last_event);
            match self.answering(opening).await {
                Ok(stream) => {
                    self.heard_in_session(true);
                    return Some(stream);
                }
                Err(refusal) => match self.wait_after(refusal, wait) {
                    Some(next) => wait = next,
                    None => {
                        self.lost("the stream was not given again");
                        return None;
                    }
                },
            }
        }
    }

    /// Returns the wait before the next request for the stream, after one that followed a wait of
    /// `last`. Absent if the stream is lost.
    fn wait_after(&self, refusal: StreamRefusal, last: Duration) -> Option<Duration> {
        let StreamRefusal::NotNow(asked_wait) = refusal else {
            return None;
        };
        let stream = self.session_stream()?;
        if !stream.is_standing_if(|session| session.permits(stream.permit)) {
            return None;
        }
        let asked_wait = asked_wait.unwrap_or_default().min(MAX_RETRY_WAIT);
        let ceiling = (last * 2).clamp(FIRST_WAIT, LAST_WAIT);
        // All sessions lose their streams when a server restarts.
        let wait = half_jitter(ceiling, self.context.clock.random());
        Some(wait.max(asked_wait))
    }

    /// Waits for `future`. Meanwhile the client's answers are sent.
    async fn answering<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|cx| {
            self.poll_answers(cx);
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Sends the client's answers to the server.
    fn poll_answers(&mut self, cx: &mut Context<'_>) {
        if let ReadStreamKind::Session(SessionStream {
            channel,
            standing_reader: Some(reader),
            ..
        }) = &mut self.kind
        {
            reader.poll(cx, |message| {
                if let Some(session) = channel.upgrade() {
                    session.send(message);
                }
            });
        }
    }

    /// True for the standing stream of a session without lists of its own: changes that the server
    /// announces there are of the shared lists.
    fn announces_shared_lists(&self) -> bool {
        self.session_stream()
            .is_some_and(|stream| stream.is_standing_if(|session| session.lists().is_none()))
    }

    fn heard_in_session(&self, is_heard: bool) {
        if let Some(stream) = self.session_stream()
            && let Some(session) = stream.channel.upgrade()
        {
            session.set_lists_heard(stream.permit, is_heard);
        }
    }

    fn session(&self) -> Option<Arc<SessionChannel>> {
        self.session_stream()?.channel.upgrade()
    }

    fn session_stream(&self) -> Option<&SessionStream> {
        match &self.kind {
            ReadStreamKind::Session(stream) => Some(stream),
            ReadStreamKind::Subscription(_) => None,
        }
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
        self.poll_answers(cx);
        stream.poll_part(cx)
    }

    /// Reads one stream to its end, and returns the reason of the end.
    async fn read(&mut self, stream: &mut ResponseReader) -> String {
        loop {
            match poll_fn(|cx| self.poll_part(stream, cx)).await {
                Ok(Some(ResponsePart::Message(bytes))) => {
                    self.heard = true;
                    for message in self.messages(&bytes) {
                        if let Some(end) = self.take(message) {
                            return end.to_owned();
                        }
                    }
                }
                Ok(Some(ResponsePart::Unreadable)) => self.context.record.drop_event(LARGE_EVENT),
                Ok(Some(ResponsePart::Mark { id, retry })) => self.point.record_mark(id, retry),
                Ok(Some(_)) => {}
                Ok(None) => return "the stream ended".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn messages(&self, bytes: &Bytes) -> Vec<Message> {
        match IncomingMessage::parse(bytes.clone(), &message_limits()) {
            Ok(IncomingMessage::One(message)) => vec![message],
            Ok(IncomingMessage::Batch(items)) => items
                .into_iter()
                .filter_map(|item| Message::parse(item, &message_limits()).ok())
                .collect(),
            Err(_) => {
                self.context.record.drop_event(bytes);
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
        if self.announces_shared_lists()
            && let Message::Notification(notification) = &message
            && let Some(kinds) = notification
                .method
                .known()
                .map(upstream_messages::changed_lists)
            && !kinds.is_empty()
        {
            self.context.list_changes.record(kinds);
            return None;
        }
        if let ReadStreamKind::Session(SessionStream {
            standing_reader: Some(reader),
            ..
        }) = &mut self.kind
        {
            if let Some(answer) = reader.take(message) {
                self.send(answer);
            }
            return None;
        }
        if let (Message::Notification(notification), Some(updates)) =
            (&message, self.publisher.updates())
            && let Some(uri) = upstream_messages::updated_resource(notification)
        {
            updates.add(&uri);
            return None;
        }
        if self.publisher.is_of_task()
            && matches!(&message, Message::Notification(notification) if notification.method.known() == Some(Method::Tasks))
        {
            self.publisher.changed(ListKinds::default());
            return None;
        }
        match self.classify(message) {
            MessageClass::ListChanged(kinds) => {
                self.context.list_changes.count();
                self.publisher.changed(kinds);
            }
            MessageClass::Reply(answer) => self.send(answer),
            MessageClass::Answer(outcome) => {
                self.has_result = outcome.is_ok();
                return Some("the server ended the subscription");
            }
            MessageClass::Dropped { reason, .. } => {
                self.context.label.count_dropped(reason.as_str());
            }
            MessageClass::Note(_)
            | MessageClass::Ask { .. }
            | MessageClass::Withdrawn(_)
            | MessageClass::Ignored => {}
        }
        None
    }

    /// Classifies a message for a watch.
    fn classify(&self, message: Message) -> MessageClass {
        let reason = match &message {
            Message::Notification(notification) => match notification.method.known() {
                Some(
                    method @ (Method::ToolsListChanged
                    | Method::PromptsListChanged
                    | Method::ResourcesListChanged),
                ) => return MessageClass::ListChanged(upstream_messages::changed_lists(method)),
                Some(_) => return MessageClass::Ignored,
                None => DropReason::UnknownNotification,
            },
            Message::Request(request) if self.session_stream().is_some() => {
                return MessageClass::Reply(upstream_messages::answer_outside_call(request));
            }
            Message::Request(_) => DropReason::ServerRequest,
            Message::Response(response) if self.ends_with(&message) => {
                return MessageClass::Answer(response.outcome.clone());
            }
            Message::Response(_) => DropReason::UnknownId,
        };
        MessageClass::Dropped { reason, message }
    }

    /// True for the response that ends a subscription.
    fn ends_with(&self, response: &Message) -> bool {
        let answered = upstream_messages::request_of(response);
        matches!(self.kind, ReadStreamKind::Subscription(request) if answered == Some(request))
    }

    fn lost(&self, why: &str) {
        self.heard_in_session(false);
        self.publisher.lost(why);
    }
}

#[cfg(test)]
mod tests;

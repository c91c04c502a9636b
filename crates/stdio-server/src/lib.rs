//! A gateway served over standard input and output, to the one host that started the process.
//!
//! The gateway has no socket. The host's messages go through a channel inside the process to the
//! client side, as HTTP requests, and the messages of the responses come back as lines. So every
//! rule of the client side holds here, too. A legacy host has a session. This module keeps its id,
//! and its standing stream is open from `notifications/initialized` on. A modern request is
//! cancelled by dropping its response.

mod exchange;
mod gateway_state;
mod http_request;
mod in_flight;
mod login_keeper;
mod remote;
mod response_messages;
mod streams;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::poll;
use http::{HeaderValue, Uri};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_front::InMemoryChannel;
use weir_wire::message::{Notification, Request as HostRequest, Response as HostResponse};
use weir_wire::{
    EnvelopeOutline, IncomingMessage, JsonLimits, Message, Method, RequestId, error_code, scan,
};

pub use remote::{RemoteGate, remote_config};

use exchange::HostExchange;
use gateway_state::StdioGatewayState;
use http_request::{HostSession, RequestEra, RequestMaker};
use in_flight::InFlightRequests;
use response_messages::ResponseMessages;
use streams::{StdinLine, StdinLines, StdoutEnd, StdoutWriter};

/// The wait before a standing stream that ended is opened again.
const REOPEN_DELAY: Duration = Duration::from_secs(1);
/// The longest wait for tasks after the gateway has stopped.
const TASKS_GRACE: Duration = Duration::from_secs(1);

/// The gateway as the host's server.
pub struct StdioGateway {
    shared: Arc<StdioGatewayState>,
    stdin: StdinLines,
    end: StdoutEnd,
}

impl std::fmt::Debug for StdioGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StdioGateway").finish_non_exhaustive()
    }
}

/// The settings of a [`StdioGateway`].
pub struct StdioGatewaySettings {
    /// The channel to the client side of the gateway.
    pub channel: InMemoryChannel,
    /// The path of the endpoint.
    pub endpoint: Uri,
    /// The whole `Authorization` header. Sensitive.
    pub authorization: Option<HeaderValue>,
    /// The longest message that the host may send, in bytes.
    pub longest: usize,
    /// The wait for the remote server of `weir stdio URL`.
    pub remote: Option<RemoteGate>,
}

impl std::fmt::Debug for StdioGatewaySettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StdioGatewaySettings")
            .finish_non_exhaustive()
    }
}

/// An `initialize` without an answer yet. Later messages need the id of its session.
struct SessionHandshake(oneshot::Receiver<()>);

impl SessionHandshake {
    async fn finished(self) {
        // An error is the end of its task, too.
        let _done = self.0.await;
    }
}

impl StdioGateway {
    /// Starts to read standard input.
    ///
    /// # Errors
    /// The system has no descriptor or no thread left.
    pub fn open(settings: StdioGatewaySettings) -> io::Result<Self> {
        let StdioGatewaySettings {
            channel,
            endpoint,
            authorization,
            longest,
            remote,
        } = settings;
        let (stdout, end) = StdoutWriter::open()?;
        let shared = StdioGatewayState {
            channel,
            requests: RequestMaker {
                endpoint,
                authorization,
            },
            remote,
            longest,
            stdout,
            in_flight: InFlightRequests::default(),
            session: Mutex::default(),
            room: Semaphore::new(1),
            tasks: TaskTracker::new(),
            abandoned: CancellationToken::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            stdin: StdinLines::open(longest)?,
            end,
        })
    }

    /// Serves until the host closes either stream. Call it once; dropping the future only stops the
    /// reading.
    pub async fn serve(&mut self) {
        let Self { shared, stdin, .. } = self;
        let mut opening = None;
        loop {
            let line = tokio::select! {
                line = stdin.next() => line,
                () = shared.stdout.closed() => return shared.abandoned.cancel(),
            };
            let Some(line) = line else { return };
            if let Some(opening) = opening.take() {
                SessionHandshake::finished(opening).await;
            }
            opening = shared.take(line).await;
        }
    }

    /// Stops the reopening of standing streams. Call it after the reading has ended.
    pub fn close(&self) {
        self.shared.tasks.close();
    }

    /// Stops the wait for answers, and for a host that does not read.
    pub fn abandon(&self) {
        self.shared.abandoned.cancel();
    }

    /// Writes the last messages. Call it after [`Self::close`] and after the gateway has stopped.
    pub async fn finish(self) {
        let Self { shared, end, .. } = self;
        let _ = tokio::time::timeout(TASKS_GRACE, shared.tasks.wait()).await;
        shared.abandoned.cancel();
        shared.tasks.wait().await;
        // The writing thread ends with the last writer.
        drop(shared);
        end.finish().await;
    }
}

impl StdioGatewayState {
    /// Handles a line. Requests run on after the return; all other messages are complete then.
    /// Returns the session being opened, if the next message must wait for it.
    async fn take(self: &Arc<Self>, line: StdinLine) -> Option<SessionHandshake> {
        let line = match line {
            StdinLine::Whole(line) => line,
            StdinLine::TooLong(id) => {
                let text = format!(
                    "A line is longer than {} bytes, the most that a message may have",
                    self.longest
                );
                self.refuse(id.as_ref(), error_code::INVALID_REQUEST, text)
                    .await;
                return None;
            }
        };
        match IncomingMessage::parse(line.clone(), &JsonLimits::default()) {
            Err(error) => {
                // The host waits for the answer to a broken request, too.
                let outline = EnvelopeOutline::of(&line);
                let id = error.id.as_ref().or(outline.requested_id());
                self.refuse(id, error.code, error.text).await;
            }
            Ok(IncomingMessage::Batch(_)) => self.take_batch(line).await,
            Ok(IncomingMessage::One(Message::Request(request))) => {
                return self.take_request(request).await;
            }
            Ok(IncomingMessage::One(Message::Notification(notification))) => {
                self.take_notification(&notification).await
            }
            Ok(IncomingMessage::One(Message::Response(answer))) => {
                self.take_response(&answer, line).await
            }
        }
        None
    }

    async fn take_request(self: &Arc<Self>, request: HostRequest) -> Option<SessionHandshake> {
        let era = RequestEra::of(&request);
        let is_modern = matches!(era, RequestEra::Modern(_));
        let in_flight = match self.in_flight.begin(&request.id, is_modern) {
            Ok(in_flight) => in_flight,
            Err(error) => {
                self.refuse(
                    Some(&request.id),
                    error_code::INVALID_REQUEST,
                    error.to_string(),
                )
                .await;
                return None;
            }
        };
        let is_initialize = !is_modern && request.method.known() == Some(Method::Initialize);
        let upcoming = self.channel.upcoming();
        let exchange = HostExchange {
            shared: self.clone(),
            request,
            era,
            in_flight,
            _upcoming: upcoming,
        };
        if is_initialize {
            let (done, opening) = oneshot::channel();
            self.tasks.spawn(async move {
                exchange.initialize().await;
                let _gone = done.send(());
            });
            return Some(SessionHandshake(opening));
        }
        let mut run = Box::pin(exchange.run());
        // Polled here, in the order of the lines, so that a cancellation in the next line finds the
        // request.
        if poll!(&mut run).is_pending() {
            self.tasks.spawn(run);
        }
        None
    }

    /// Starts a batch. It belongs to a session and has one response.
    async fn take_batch(self: &Arc<Self>, line: Bytes) {
        let request = self.requests.post(self.session().as_ref(), line);
        let shared = self.clone();
        let mut run = Box::pin(async move {
            shared
                .abandoned
                .run_until_cancelled(shared.answer_batch(request))
                .await
        });
        if poll!(&mut run).is_pending() {
            self.tasks.spawn(run);
        }
    }

    async fn answer_batch(&self, request: http::Request<Bytes>) {
        let Ok(response) = self.channel.send(request).await else {
            return;
        };
        let mut messages = ResponseMessages::new(response, &self.room);
        loop {
            match messages.next().await {
                Ok(Some(message)) => self.stdout.write(message).await,
                Ok(None) => break,
                Err(error) => {
                    return self
                        .refuse(None, error_code::INTERNAL_ERROR, error.to_string())
                        .await;
                }
            }
        }
        if messages.status().is_client_error() || messages.status().is_server_error() {
            let text = messages.text().await;
            if !text.is_empty() {
                self.refuse(None, error_code::INVALID_REQUEST, text).await;
            }
        }
    }

    async fn take_notification(self: &Arc<Self>, notification: &Notification) {
        let method = notification.method.known();
        if method == Some(Method::Cancelled) {
            let params = notification.params.clone().unwrap_or_default();
            let id = scan::find(&params, "requestId")
                .and_then(|range| RequestId::from_json(&params[range]).ok());
            if id.is_some_and(|id| self.in_flight.withdraw(&id)) {
                return;
            }
        }
        // Modern hosts send no other notification.
        let Some(session) = self.session() else {
            return;
        };
        self.send_without_response(self.requests.post(Some(&session), notification.raw.clone()))
            .await;
        if method == Some(Method::Initialized) {
            self.open_stream();
        }
    }

    async fn take_response(&self, answer: &HostResponse, line: Bytes) {
        match self.session() {
            Some(session) => {
                self.send_without_response(self.requests.post(Some(&session), line))
                    .await
            }
            None => {
                let id = answer
                    .id
                    .as_ref()
                    .map(|id| String::from_utf8_lossy(id.as_json()).into_owned());
                tracing::debug!(id, "response from the host without a pending request");
            }
        }
    }

    /// Opens the standing stream of the session, once.
    fn open_stream(self: &Arc<Self>) {
        let (session, ended) = match &mut *self.open_session() {
            Some(open) if !open.is_streaming => {
                open.is_streaming = true;
                (open.session.clone(), open.stream.clone())
            }
            _ => return,
        };
        let shared = self.clone();
        self.tasks
            .spawn(async move { ended.run_until_cancelled(shared.stream(session)).await });
    }

    /// Forwards the messages of the standing stream, and reopens it after its end. Returns if the
    /// client side refuses the stream.
    async fn stream(&self, session: HostSession) {
        loop {
            let Ok(response) = self.channel.send(self.requests.get(&session)).await else {
                return;
            };
            if !response.status().is_success() {
                return;
            }
            let mut messages = ResponseMessages::new(response, &self.room);
            while let Ok(Some(message)) = messages.next().await {
                self.stdout.write(message).await;
            }
            if self.tasks.is_closed() {
                return;
            }
            tokio::time::sleep(REOPEN_DELAY).await;
        }
    }
}

//! One HTTP/2 connection to another replica.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use weir_core::Budgets;
use weir_core::budget::ConnectionSide;
use weir_core::port::BoxFuture;
use weir_http2_client::{
    ClientConnection, Http2Response, OpenResponses, ReceiveWindow, is_unprocessed,
};

use crate::cluster_tls::ClusterTls;
use crate::peer_stream::{PeerStream, StreamSender};

/// The time between pings, and the longest wait for the answer to one.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// The window of a connection at first, and the most that it grows to: slow readers of answers hold
/// a part of it each.
const CONNECTION_WINDOW: u32 = 16 << 20;
const MAX_CONNECTION_WINDOW: u32 = 64 << 20;
/// The size of an answer's headers.
const HEAD_BYTES: u32 = 256 << 10;
/// Reset streams whose frames may still arrive, and the time in which they may.
const RESET_STREAMS: usize = 10_000;
const RESET_TIME: Duration = Duration::from_secs(5);

/// A handle of a connection. The connection ends when its handles and its requests have ended.
#[derive(Clone)]
pub(crate) struct PeerConnection {
    sender: SendRequest<Bytes>,
    /// Set once the connection takes no more requests.
    is_retired: Arc<AtomicBool>,
    answers: Arc<OpenResponses>,
}

/// The reason that a connection was not opened.
#[derive(Clone, Debug)]
pub(crate) struct OpenFailure(pub(crate) Arc<str>);

/// The reason that a request got no answer.
#[derive(Debug)]
pub(crate) enum PeerSendFailure {
    /// The connection takes no more requests: this one was not sent.
    Retired(String),
    /// The request was not processed.
    NotProcessed(String),
    /// The request may have been processed.
    Lost(String),
}

impl OpenFailure {
    /// The failure with this cause.
    pub(crate) fn new(cause: &impl ToString) -> Self {
        Self(cause.to_string().into())
    }
}

/// An open connection, with the future that drives it to its end.
pub struct OpenedPeer {
    pub(crate) connection: PeerConnection,
    pub(crate) driver: BoxFuture<'static, ()>,
}

/// Begins TLS and HTTP/2 on a stream, and waits for the first answer of the other replica.
pub(crate) async fn begin<S>(
    stream: S,
    tls: &ClusterTls,
    window: ReceiveWindow,
) -> std::io::Result<OpenedPeer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connector = TlsConnector::from(tls.client.clone());
    let stream = connector.connect(tls.server_name.clone(), stream).await?;
    let failed = std::io::Error::other::<h2::Error>;
    let (sender, mut connection) = begin_http2(stream, window).await?;
    let mut pings = connection
        .ping_pong()
        .ok_or_else(|| std::io::Error::other("no pings"))?;
    // In TLS 1.3 a client does not see at first that the server refuses its key. The answer to a
    // ping shows that it does not; a request would leave that in doubt.
    tokio::select! {
        ended = &mut connection => {
            ended.map_err(failed)?;
            return Err(std::io::Error::other("connection closed"));
        }
        pong = pings.ping(Ping::opaque()) => { pong.map_err(failed)?; }
    }
    Ok(opened_peer(sender, connection, watch_pings(pings)))
}

/// Begins HTTP/2 on a stream to another process of this machine. The system closes the stream with
/// that process, so no ping watches over it.
pub(crate) async fn begin_local<S>(stream: S, window: ReceiveWindow) -> std::io::Result<OpenedPeer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = begin_http2(stream, window).await?;
    Ok(opened_peer(sender, connection, pending()))
}

fn opened_peer<S>(
    sender: SendRequest<Bytes>,
    connection: ClientConnection<S>,
    lost: impl Future<Output = ()> + Send + 'static,
) -> OpenedPeer
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let is_retired = Arc::<AtomicBool>::default();
    let answers = connection.responses();
    let driver = Box::pin(drive(connection, lost, is_retired.clone()));
    let connection = PeerConnection {
        sender,
        is_retired,
        answers,
    };
    OpenedPeer { connection, driver }
}

async fn begin_http2<S>(
    stream: S,
    window: ReceiveWindow,
) -> std::io::Result<(SendRequest<Bytes>, ClientConnection<S>)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder
        .max_header_list_size(HEAD_BYTES)
        // Frames of the other side cross with the resets of clients that cancel.
        .max_concurrent_reset_streams(RESET_STREAMS)
        .reset_stream_duration(RESET_TIME);
    let begun = ClientConnection::begin(stream, &mut builder, window).await;
    begun.map_err(std::io::Error::other)
}

/// Drives a connection until it ends, or is `lost`.
async fn drive<S>(
    connection: ClientConnection<S>,
    lost: impl Future<Output = ()>,
    is_retired: Arc<AtomicBool>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _retire = RetireOnDrop(is_retired);
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection to replica ended");
            }
        }
        () = lost => tracing::warn!("connection to replica lost: ping unanswered"),
    }
}

/// Reserves the window of a connection.
pub(crate) fn reserve_window(budgets: &Budgets) -> ReceiveWindow {
    ReceiveWindow::reserve(&budgets.windows, CONNECTION_WINDOW, MAX_CONNECTION_WINDOW)
}

/// Takes the file descriptor of a connection from the budget.
pub(crate) fn take_descriptor(
    budgets: &Budgets,
) -> Result<impl Send + 'static + use<>, OpenFailure> {
    budgets
        .descriptors
        .take(ConnectionSide::Upstream)
        .ok_or_else(|| OpenFailure("out of file descriptors".into()))
}

/// Ends when a ping stays unanswered.
async fn watch_pings(mut pings: PingPong) {
    loop {
        sleep(PING_INTERVAL).await;
        match timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection reports its own end.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return,
        }
    }
}

/// Retires the connection, also if its task is aborted.
struct RetireOnDrop(Arc<AtomicBool>);

impl Drop for RetireOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl PeerConnection {
    /// True while the connection takes requests.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_retired.load(Ordering::Acquire) && !self.answers.is_worn()
    }

    /// True if slow readers of answers hold much of the connection's window, and could stop the
    /// others.
    pub(crate) fn is_crowded(&self) -> bool {
        self.answers.is_crowded()
    }

    /// The bytes of answers that the connection's window has room for.
    pub(crate) fn window_left(&self) -> i64 {
        self.answers.window_left()
    }

    /// True if no answer is read or awaited.
    pub(crate) fn is_idle(&self) -> bool {
        self.answers.is_empty()
    }

    /// Waits until the connection takes one more request. A failure retires it.
    async fn ready_sender(&self) -> Result<SendRequest<Bytes>, PeerSendFailure> {
        self.sender.clone().ready().await.map_err(|error| {
            self.is_retired.store(true, Ordering::Release);
            PeerSendFailure::Retired(error.to_string())
        })
    }

    /// Sends a request and waits for the head of its answer. Dropping the future resets the stream.
    pub(crate) async fn send(
        &self,
        head: Request<()>,
        body: Bytes,
    ) -> Result<Response<Http2Response>, PeerSendFailure> {
        let mut sender = self.ready_sender().await?;
        let (answer, stream) = sender
            .send_request(head, body.is_empty())
            .map_err(|error| PeerSendFailure::NotProcessed(error.to_string()))?;
        let mut answer = self.answers.add(answer, None);
        let answered = if body.is_empty() {
            answer.head().await
        } else {
            tokio::select! {
                // The replica may answer before it has read the body.
                answered = answer.head() => answered,
                () = send_body(stream, body) => answer.head().await,
            }
        };
        let head = answered.map_err(|error| failure_of(&error))?;
        Ok(Response::from_parts(head, answer))
    }

    /// Opens a stream that both sides send on. `first` is on its way when the head of the answer
    /// comes. Dropping the future resets the stream.
    pub(crate) async fn open_stream(
        &self,
        head: Request<()>,
        first: Bytes,
    ) -> Result<Response<PeerStream>, PeerSendFailure> {
        let mut sender = self.ready_sender().await?;
        let (answer, stream) = sender
            .send_request(head, false)
            .map_err(|error| PeerSendFailure::NotProcessed(error.to_string()))?;
        let mut answer = self.answers.add(answer, None);
        let mut sending = StreamSender::new(stream);
        sending.send(first);
        let answered = std::future::poll_fn(|cx| {
            sending.poll_send(cx);
            answer.poll_head(cx)
        });
        let head = answered.await.map_err(|error| failure_of(&error))?;
        Ok(Response::from_parts(head, PeerStream::new(sending, answer)))
    }
}

/// Sends a whole body. The answer reports failures.
async fn send_body(mut stream: SendStream<Bytes>, mut body: Bytes) {
    stream.reserve_capacity(body.len());
    while !body.is_empty() {
        let room = match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(room)) => room.min(body.len()),
            Some(Err(_)) | None => return,
        };
        if room == 0 {
            continue;
        }
        let part = body.split_to(room);
        if stream.send_data(part, body.is_empty()).is_err() {
            return;
        }
    }
}

fn failure_of(error: &h2::Error) -> PeerSendFailure {
    if is_unprocessed(error) {
        PeerSendFailure::NotProcessed(error.to_string())
    } else {
        PeerSendFailure::Lost(error.to_string())
    }
}

impl fmt::Debug for OpenedPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedPeer").finish_non_exhaustive()
    }
}

impl fmt::Debug for PeerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerConnection")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
